//! A full stack ends its G, and no other.
//!
//! A G touches a page below its stack that has no memory and gets none: the stack is at its limit,
//! or memory is used up. The G cannot continue. But it can end as one that panics does: destructors
//! run, locks are poisoned and freed, its join says why. This file is the end of such a G
//! ([`end`]); the other files involved are named below.
//!
//! # The steps
//!
//! 1. The page-fault handler, on its own stack, finds that no page is available. If the code that
//!    faulted ran with interrupts on, on the stack of the running G, `schedule::stack_full` opens
//!    the *spare pages* (`mem::stack`), which are kept closed below every stack for this. Their
//!    frames come from this CPU's reserve, or any, or some that were set aside when the machine
//!    started.
//! 2. The handler returns not to the faulting instruction but to [`end`], below all that is in use
//!    on that stack (`arch`, `rescue`).
//! 3. The report is printed: name, spawn site, and the backtrace.
//! 4. The function that faulted is replaced by [`unwind_here`], as if its caller had called that:
//!    and that function unwinds, with the reason for the join.
//!
//! # Why the frame that faulted may be lost
//!
//! Unwinding begins at the *caller* of the function that faulted, because the tables list what is
//! to be dropped only at calls. What the function itself owned is lost. It cannot own much:
//!
//! > A function that has called another, or has taken a lock, has touched the lowest
//! > byte of its frame.
//!
//! For a call pushes its return address right below the frame, and a lock probes further down. All
//! of its frame has memory then: the distance is at most one page, and larger frames are probed
//! page by page before they are used. So a function faults in its first instructions, before it has
//! called another; or at its first call, and then it is the caller, and nothing of it is lost
//! (`step`). What it may own by then are its arguments, and the results of inlined code without a
//! call: a box is leaked, a `Mutex` that was free stays locked. No other code has the address of
//! any of it: a node is put into a queue under a lock.
//!
//! # Callers that may not unwind
//!
//! The compiler proves of many functions that they never unwind, a recursion that does nothing but
//! arithmetic for one, and leaves their calls out of the tables of their callers. The unwinder
//! refuses such a call. Then the G unwinds from above the last caller that would refuse (`rescue`):
//! the frames below it have nothing to clean up that the tables know of, and what the refusing
//! caller owns is lost like that of the function that faulted. Kernel code whose address other code
//! has (a node in a queue, a buffer that a device writes) waits in functions that may panic, so it
//! is in the tables.
//!
//! A lock whose guard was lost in either way stays locked, but no G waits for it for ever: at its
//! root a G has no guard, so a lock that still has its name is abandoned there, and every caller
//! and waiter gets that error (`unwind`'s `catch_at_root`, `cell::held`).
//!
//! # In a blocking call
//!
//! Then the full stack is that of an M (`schedule`, `call`), and it is a stack like others: it has
//! spare pages, and from the frame that faulted up to where the call began all frames are the G's.
//! There the unwinding is caught, and continues from the G's own stack, which has spare pages, too.
//! The frames of the scheduler lie above, and are not reached. That M serves no call before its
//! spare pages are closed. A margin that was opened on the stack of an M, and nothing more, stays
//! open: the next call there has that much less of it, like a G that waits near the end of its
//! stack for a second time.
//!
//! # Where the G does not unwind
//!
//! - **With interrupts off** the kernel's own state is half changed: the machine stops, as for a
//!   panic there. The kernel probes before it turns them off, so that it does not happen.
//! - **Between the halves of parking** wakers may already have the G's handle, so it must park; it
//!   is given a page of the *margin*. So is the kernel when it probes: pages that it needs for a
//!   moment do not count as used by the G. So is the scheduler when it preempts a G near the end of
//!   its stack, as the G did not cause that. The margin ends, too, and then a probe is an overflow
//!   like any other; it comes before any state is changed, except where a lock is released: a G
//!   that releases locks that have waiters, at every depth, may end with one of them locked for
//!   ever.
//! - **While it panics** it unwinds already: it is given the spare pages, once, and continues.
//! - **When the spare pages are full, too** (a destructor recurses); if no frame catches the
//!   unwinding; or if not even the spare pages are available: the G is *abandoned*. It never runs
//!   again, nothing is dropped, its stack is kept, because other code may have addresses on it; its
//!   join says why, and the console what was lost.
//!
//! # What was rejected
//!
//! - **A second stack to unwind on**: the landing pads run on the stack of the frame that they
//!   belong to, that is, on the full one.
//! - **Abandoning always**: every lock that the G held would be lost for good.
//! - **Checking the depth in every function**, as Go does: it makes its stacks grow by copying, for
//!   which it must know all pointers. Here the page tables check at no cost.

use crate::backtrace;
use crate::go::JoinError;
use crate::schedule::{self, Full};
use crate::{arch, unwind};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The budget of reports with a backtrace. A program that overflows by the thousand gets one line
/// for each G, but names take time to find, and not all backtraces are printed.
static REPORTS: Budget = Budget::new();

/// Maximum number of full reports at once.
const AT_ONCE: u64 = 32;
/// One more is allowed after each such period, ns. In an emulator a report takes a quarter of a
/// second: ten in a second made everything else wait.
const REFILL_NS: u64 = 2_000_000_000;

/// A token bucket of reports: [`AT_ONCE`], refilled with time.
struct Budget {
    /// When all taken tokens will have been refilled, ns.
    full_ns: AtomicU64,
}

impl Budget {
    const fn new() -> Self {
        Budget { full_ns: AtomicU64::new(0) }
    }

    /// Takes a token, if there is one at `now_ns`.
    fn take(&self, now_ns: u64) -> bool {
        let less_one = |full_ns: u64| {
            let full_ns = full_ns.max(now_ns) + REFILL_NS;
            (full_ns <= now_ns + AT_ONCE * REFILL_NS).then_some(full_ns)
        };
        self.full_ns.try_update(Relaxed, Relaxed, less_one).is_ok()
    }
}

/// Ends the running G, whose stack is full: see the head of this file.
pub extern "C" fn end(faulted: &arch::Faulted) -> ! {
    let (full, stack) = schedule::begin_full();
    report(faulted, full, (stack.end - stack.start) as usize);
    // SAFETY: 1. The handler called this with the state it saved. 2. See "Why the frame that
    // faulted may be lost"; this function owns nothing.
    let none = unsafe { arch::call_in_place(faulted, stack.end, unwind_here) };
    log::error!("there are no tables to unwind by ({none:?})");
    schedule::leave_behind()
}

/// Stands in for the function that faulted, as called by its caller: unwinds, or arranges to be
/// called from further up.
extern "C-unwind" fn unwind_here(_: usize) -> ! {
    let (_, rbp) = arch::here();
    unwind_once();
    // SAFETY: `unwind_once` owns nothing any more, and neither does this function, whose frame
    // pointer that is.
    unsafe { arch::call_above_forbidden(rbp, unwind_above, 0) };
    schedule::leave_behind()
}

/// The same, above the last caller that may not unwind.
extern "C-unwind" fn unwind_above(_: usize) -> ! {
    unwind_once();
    schedule::leave_behind()
}

/// Unwinds, if it can.
fn unwind_once() {
    let why = JoinError::from(schedule::is_full().unwrap_or(Full::Overflow));
    // The payload is on the heap. Without memory, and only then, it does not unwind.
    if unwind::has_memory() {
        unwind::begin(why);
    }
}

/// Reports the G, and unless there were many reports just now also its backtrace.
fn report(faulted: &arch::Faulted, full: Full, size: usize) {
    let Some(g) = schedule::current() else { return };
    let what = match full {
        Full::Overflow => "overflowed its stack of",
        Full::NoMemory => "found no memory for its stack of",
    };
    let place = if schedule::is_in_call() { " in a blocking call" } else { "" };
    if REPORTS.take(arch::now_ns()) {
        log::error!("{g} {what} {size} bytes{place}, and ends:\n{}", Calls(faulted));
    } else {
        log::error!("{g} {what} {size} bytes{place}, and ends");
    }
}

/// Prints the backtrace of the fault.
struct Calls<'a>(&'a arch::Faulted);

impl fmt::Display for Calls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rip, rbp) = self.0.at();
        let readable = |address: usize| arch::paging::translate(address as u64).is_some();
        backtrace::print(f, rip as usize, rbp as usize, readable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &Budget, now_ns: u64) -> u64 {
        (0..2 * AT_ONCE).filter(|_| budget.take(now_ns)).count() as u64
    }

    #[test]
    fn so_many_reports_are_full_at_once_and_more_with_time() {
        let budget = Budget::new();
        assert_eq!(taken(&budget, 5), AT_ONCE);
        assert_eq!(taken(&budget, 5 + REFILL_NS - 1), 0);
        assert_eq!(taken(&budget, 5 + REFILL_NS), 1);
        assert_eq!(taken(&budget, 5 + 4 * REFILL_NS), 3);
        assert_eq!(taken(&budget, 1_000 * REFILL_NS), AT_ONCE, "no more than all");
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let budget = Budget::new();
        assert_eq!(taken(&budget, 9 * REFILL_NS), AT_ONCE);
        assert_eq!(taken(&budget, 8 * REFILL_NS), 0);
        assert_eq!(taken(&budget, 10 * REFILL_NS), 1);
    }
}
