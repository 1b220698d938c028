//! A full stack ends its G, and no other: it unwinds like a panic.
//!
//! A G touches a page below its stack that has no memory and gets none: the stack is at its limit,
//! or memory is used up. It cannot continue, but it can end as one that panics does: destructors
//! run, locks are poisoned and freed, its join says why. Machine code and unwind tables are in
//! `arch` (`rescue`, `lsda`).
//!
//! # The steps
//!
//! 1. The page-fault handler, on its own stack, finds that no page is available. If the code that
//!    faulted ran with interrupts on, on the stack of the running G, [`stack_full`] opens the
//!    *spare pages* (`mem::stack`), which are kept closed below every stack for this. Their frames
//!    come from this CPU's reserve, or any, or some that were set aside when the machine started.
//! 2. The handler returns not to the faulting instruction but to [`end`], below all that is in use
//!    on that stack.
//! 3. The report is printed: name, spawn site, and the backtrace.
//! 4. The function that faulted is replaced by [`unwind_or_abandon`], as if its caller had called
//!    that, which unwinds with the reason for the join.
//!
//! # Why the frame that faulted may be lost
//!
//! Unwinding begins at the *caller* of the function that faulted, because the tables list what is
//! to be dropped only at calls. What the function itself owned is lost. It cannot own much:
//!
//! > A function that has called another, or has taken a lock, has touched the lowest
//! > byte of its frame.
//!
//! For a call pushes its return address right below the frame, and a lock probes further down;
//! frames larger than a page are probed page by page before they are used. So a function faults in
//! its first instructions, or at its first call, and then it is the caller, and nothing of it is
//! lost (`rescue`'s `divert`). What it may own by then are its arguments, and the results of
//! inlined code without a call: a box is leaked, a `Mutex` that was free stays locked. No other
//! code has the address of any of it: a node is put into a queue under a lock.
//!
//! # Callers that may not unwind
//!
//! The compiler proves of many functions that they never unwind, and leaves their calls out of the
//! tables of their callers. The unwinder refuses such a call. Then the G unwinds from above the
//! last caller that would refuse (`rescue`): the frames below it have nothing to clean up that the
//! tables know of, and what the refusing caller owns is lost like that of the function that
//! faulted. If the frames below are those of a scope, the G waits for its members first (`scope`);
//! so it must park here. Kernel code whose address other code has (a node in a queue, a buffer that
//! a device writes) waits in functions that may panic, so it is in the tables.
//!
//! A lock whose guard was lost in either way stays locked, but no G waits for it for ever: at its
//! root a G has no guard, so a lock that still has its name is abandoned there, and every caller
//! and waiter gets that error (`unwind`'s `catch`, `wait::held`).
//!
//! # In a blocking call
//!
//! Then the full stack is that of an M (`call`), which has spare pages, too. The unwinding is
//! caught where the call began, and continues from the G's own stack. That M serves no call before
//! its spare pages are closed. A margin that was opened there stays open: the next call has less.
//!
//! # Where the G does not unwind
//!
//! - **With interrupts off** the kernel's own state is half changed: the machine stops, as for a
//!   panic there. The kernel probes before it turns them off, so that it does not happen.
//! - **Between the halves of parking** wakers may already have the G's handle, so it must park; it
//!   is given a page of the *margin*. So is the kernel when it probes, and the scheduler when it
//!   preempts a G near the end of its stack: pages that are needed for a moment do not count as
//!   used by the G. When the margin ends, a probe is an overflow like any other; it comes before
//!   any state is changed, except where a lock is released: a G that releases locks that have
//!   waiters, at every depth, may end with one of them locked for ever.
//! - **While it panics** it unwinds already: it is given the spare pages, once, and continues.
//! - **When the spare pages are full, too** (a destructor recurses); if no frame catches the
//!   unwinding; or if not even the spare pages are available: the G is *abandoned* (`abandon`).
//!
//! # What was rejected
//!
//! - **A second stack to unwind on**: the landing pads run on the stack of the frame that they
//!   belong to, that is, on the full one.
//! - **Abandoning always**: every lock that the G held would be lost for good.
//! - **Checking the depth in every function**, as Go does: it makes its stacks grow by copying, for
//!   which it must know all pointers. Here the page tables check at no cost.

use crate::arch::{self, PageFault, Rescue};
use crate::mem::frames::Stock;
use crate::mem::percpu::Here;
use crate::mem::reclaim;
use crate::mem::stack::pack;
use crate::mem::stack::slot::{self, Slot};
use crate::mem::stack::{self, POOL};
use crate::run::error::{Filled, Full, JoinError};
use crate::run::m::M;
use crate::run::scope::wait_for_lost;
use crate::run::task::Task;
use crate::run::{
    TIMERS, abandon_in_fault, ask_for_upkeep, call, running, this_cpu, unpack_in_fault, unwind,
};
use crate::watch::backtrace;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Status};

/// Closed pages for work that cannot be refused: one more than the margin, in case the G itself has
/// used that.
const MORE: usize = slot::MARGIN_PAGES + 1;

/// The `stack_full` of [`arch::Handlers`].
pub fn stack_full(full: &arch::FullStack) -> Rescue {
    let &arch::FullStack { found, address, sp, is_probe } = full;
    let is_in = |slot: Slot, at| slot::locate(at).is_some_and(|(found, _)| found == slot);
    // The scheduler is no G that could end; and a wild pointer is no overflow.
    let Some((g, slot)) = running().and_then(|g| Some((g, slot_under(g)?))) else {
        return Rescue::None;
    };
    // A packed stack that the G touches is not its own.
    let is_others = !is_in(slot, address) && found == PageFault::NoMemory;
    if !is_in(slot, sp) || !is_in(slot, address) && !is_others {
        return Rescue::None;
    }
    // SAFETY: a G runs here.
    let cpu = unsafe { this_cpu() };
    if found == PageFault::StillPacked {
        return Rescue::Leave(cpu.sp.get(), unpack_in_fault);
    }
    ask_for_upkeep();
    // Wakers may already have its handle: it must finish parking. And pages that the kernel needs
    // for a moment do not count as used by the G.
    let range = address.min(sp)..address.max(sp);
    let is_parking = g.status() != Status::Running;
    let is_kernels = is_probe && found == PageFault::StackOverflow;
    // For the stack of another it waits, as at a switch, if it can.
    let is_mended = match is_others {
        true => {
            !is_parking && !pack::is_hopeless(arch::now_ns())
                || pack::restore(address, Stock::Unpack) == Some(Ok(()))
        }
        false => {
            is_parking && POOL.open(slot, range.clone(), MORE)
                || is_kernels && POOL.open(slot, range.clone(), slot::MARGIN_PAGES)
                || found == PageFault::NoMemory
                    && reclaim::would_help()
                    && !is_parking
                    && POOL.open(slot, range, 0)
        }
    };
    if is_mended {
        if found == PageFault::NoMemory {
            reclaim_soon();
        }
        return Rescue::Retry;
    }
    let why = if found == PageFault::NoMemory { Full::NoMemory } else { Full::Overflow };
    if fill(g, why) && !is_parking && !is_others && stack::rescue(slot, sp) {
        // A G that panics unwinds already: that is what the room is for.
        let unwinds = g.kernel.is_panicking();
        return if unwinds { Rescue::Retry } else { Rescue::Call(end) };
    }
    // A G in a call is on the stack of its M: that M is abandoned with it.
    if g.kernel.m.get().is_some() {
        call::hand_over(cpu, g);
    }
    Rescue::Leave(cpu.sp.get(), abandon_in_fault)
}

/// For a running G without a frame while there is memory to reclaim: it continues for a moment with
/// reserved frames, and leaves its CPU at the interrupt that is sent here, so that the M there (in
/// a call the spare M) reclaims that memory (`mem::reclaim`).
fn reclaim_soon() {
    let _ = reclaim::want(&Here::enter(), 1);
    arch::wake(arch::cpu_index());
}

/// Records that the stack under `g` is full. True if that is new: a stack's reserve is used once.
/// The stack of an M and that of the G have a reserve each, as unwinding in a call continues
/// outside.
fn fill(g: &G<Task>, why: Full) -> bool {
    let had_own = g.kernel.full.get().is_some_and(|filled| filled.is_own);
    let m = g.kernel.m.get();
    g.kernel.full.set(Some(Filled { why, is_own: had_own || m.is_none() }));
    m.map_or(!had_own, M::fill)
}

/// Which stack `g` is on: its own, or in a call that of its M.
fn slot_under(g: &G<Task>) -> Option<Slot> {
    g.kernel.m.get().map_or_else(|| slot_of(g), |m| Some(m.slot()))
}

/// Where the stack of `g` is: the G is its record.
pub(crate) fn slot_of(g: &G<Task>) -> Option<Slot> {
    slot::of_record(core::ptr::from_ref(g).addr() as u64)
}

/// The `room_to_preempt` of [`arch::Handlers`].
pub fn room_to_preempt(range: Range<u64>) -> bool {
    slot::locate(range.end).is_some_and(|(slot, _)| POOL.open(slot, range, MORE))
}

/// Ends the running G, whose stack is full: see the head of this file.
extern "C" fn end(faulted: &arch::Faulted) -> ! {
    let g = running().expect("no G whose stack is full");
    crate::run::begin_panic();
    TIMERS.cancel(g); // it may have been about to sleep
    report(faulted, g);
    // SAFETY: 1. The handler called this with the state it saved. 2. See "Why the frame that
    // faulted may be lost"; this function owns nothing.
    unsafe { arch::call_in_place(faulted, call::stack_end(), wait_for_lost, unwind_or_abandon) };
    log::error!("no caller of the function that faulted catches an unwinding");
    super::abandon()
}

/// Stands in for the function that faulted, as called by its caller: unwinds, if it can.
extern "C-unwind" fn unwind_or_abandon(_: usize) -> ! {
    let filled = running().and_then(|g| g.kernel.full.get());
    // The payload is on the heap. Without memory, and only then, it does not unwind.
    if unwind::has_memory() {
        unwind::begin(filled.map_or(JoinError::StackOverflow, |filled| filled.why.into()));
    }
    super::abandon()
}

/// Reports the G, and unless there were many reports just now also its backtrace.
fn report(faulted: &arch::Faulted, g: &'static G<Task>) {
    let Some(shown) = crate::run::current() else { return };
    let what = match g.kernel.full.get() {
        Some(Filled { why: Full::NoMemory, .. }) => "found no memory for its stack of",
        _ => "overflowed its stack of",
    };
    let bounds = slot_under(g).map_or(0..0, Slot::bounds);
    let size = bounds.end - bounds.start;
    let place = if crate::run::is_in_call() { " in a blocking call" } else { "" };
    let has_calls = take_token(&BUDGET, arch::now_ns());
    let calls = fmt::from_fn(|f| match has_calls {
        true => f.write_str(":\n").and_then(|()| backtrace::print(f, faulted.at())),
        false => Ok(()),
    });
    log::error!("{shown} {what} {size} bytes{place}, and ends{calls}");
}

/// Limits reports with a backtrace: a token bucket, stored as the time (ns) at which it is full
/// again. As names take time to find, a program whose Gs overflow by the thousand gets a line for
/// each G, but not all backtraces.
static BUDGET: AtomicU64 = AtomicU64::new(0);

const AT_ONCE: u64 = 32;
/// One more is allowed after each such period, ns. In an emulator a report takes a quarter of a
/// second: with ten in a second everything else would wait.
const REFILL_NS: u64 = 2_000_000_000;

fn take_token(budget: &AtomicU64, now_ns: u64) -> bool {
    let less_one = |full_ns: u64| {
        let full_ns = full_ns.max(now_ns) + REFILL_NS;
        (full_ns <= now_ns + AT_ONCE * REFILL_NS).then_some(full_ns)
    };
    budget.try_update(Relaxed, Relaxed, less_one).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &AtomicU64, now_ns: u64) -> u64 {
        (0..2 * AT_ONCE).filter(|_| take_token(budget, now_ns)).count() as u64
    }

    #[test]
    fn so_many_reports_are_full_at_once_and_more_with_time() {
        let budget = AtomicU64::new(0);
        assert_eq!(taken(&budget, 5), AT_ONCE);
        assert_eq!(taken(&budget, 5 + REFILL_NS - 1), 0);
        assert_eq!(taken(&budget, 5 + REFILL_NS), 1);
        assert_eq!(taken(&budget, 5 + 4 * REFILL_NS), 3);
        assert_eq!(taken(&budget, 1_000 * REFILL_NS), AT_ONCE, "no more than all");
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let budget = AtomicU64::new(0);
        assert_eq!(taken(&budget, 9 * REFILL_NS), AT_ONCE);
        assert_eq!(taken(&budget, 8 * REFILL_NS), 0);
        assert_eq!(taken(&budget, 10 * REFILL_NS), 1);
    }
}
