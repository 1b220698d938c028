//! A G whose stack is full: how it is rescued, and how it is abandoned.
//!
//! The page-fault handler calls [`stack_full`]; the whole plan is in `overflow`. A G that can
//! neither continue nor unwind, for that reason or because it panicked twice ([`give_up`]), is
//! abandoned where it is, for good ([`Leaving::Abandon`]): its M continues as if it had ended
//! ([`bury`]). No CPU returns to its stack, and the stack is not reused either, because other Gs
//! may hold pointers into it: its pages are counted. In a blocking call that is so of the stack of
//! its M as well, and another M continues.

use super::m::M;
use super::task::{Running, Task};
use super::was_killed;
use super::{Leaving, SCHED, TIMERS};
use super::{abandon_locks, ask_for_upkeep, call, kill, leave, running, slices, this_cpu};
use crate::arch::{self, PageFault, Rescue};
use crate::go::JoinError;
use crate::mem::percpu::Here;
use crate::mem::relief;
use crate::mem::stack::{self, Need, slot, slot::Slot};
use crate::overflow;
use crate::program;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Status};

/// Why a stack has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is as large as it may be.
    Overflow,
    /// There is no memory for its next page.
    NoMemory,
}

impl From<Full> for JoinError {
    fn from(full: Full) -> Self {
        match full {
            Full::Overflow => JoinError::StackOverflow,
            Full::NoMemory => JoinError::NoMemory,
        }
    }
}

/// The state of a G whose stack was full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    why: Full,
    /// Its own stack, not only that of the M under a call.
    is_own: bool,
}

/// The `stack_full` of [`arch::Handlers`].
pub fn stack_full(full: &arch::FullStack) -> Rescue {
    let &arch::FullStack { found, address, sp, is_probe } = full;
    let is_in = |slot: Slot, at| slot::locate(at).is_some_and(|(found, _)| found == slot);
    // The scheduler is no G that could end; and a wild pointer is no overflow.
    let Some((g, slot)) = running().and_then(|g| Some((g, slot_under(g)?))) else {
        return Rescue::None;
    };
    if !is_in(slot, address) || !is_in(slot, sp) {
        return Rescue::None;
    }
    ask_for_upkeep();
    // Wakers may already have its handle: it must finish parking. And pages that the kernel needs
    // for a moment do not count as used by the G.
    let range = address.min(sp)..address.max(sp);
    let is_parking = g.status() != Status::Running;
    let is_kernels = is_probe && found == PageFault::StackOverflow;
    if is_parking && stack::make_room(slot, range.clone(), Need::More)
        || is_kernels && stack::make_room(slot, range.clone(), Need::Margin)
    {
        return Rescue::Retry;
    }
    if found == PageFault::NoMemory && !is_parking && has_relief(slot, range.clone()) {
        return Rescue::Retry;
    }
    let full = if found == PageFault::NoMemory { Full::NoMemory } else { Full::Overflow };
    if fill(g, full) && !is_parking && stack::rescue(slot, sp) {
        // A G that panics unwinds already: that is what the room is for.
        let unwinds = g.kernel.is_panicking();
        return if unwinds { Rescue::Retry } else { Rescue::Call(overflow::end) };
    }
    // SAFETY: a G runs here.
    let cpu = unsafe { this_cpu() };
    cpu.leaving.set(Leaving::Abandon);
    // A G in a call is on the stack of its M: that M is abandoned with it.
    let is_in_call = g.kernel.m.get().is_some();
    Rescue::Leave(if is_in_call { call::leave_behind(cpu, g) } else { cpu.sp.get() })
}

/// For a running G without a frame for its stack while memory is cached elsewhere: the G continues
/// for a moment with reserved frames, and leaves its CPU at the interrupt that is sent here, so
/// that the M there reclaims that memory (`mem::relief`). In a call that is the spare M. False if
/// there is no such memory, or no frame.
fn has_relief(slot: Slot, range: Range<u64>) -> bool {
    if !relief::would_help() || !stack::commit_at_any_cost(slot, range) {
        return false;
    }
    let _ = relief::want(&Here::enter(), 1);
    arch::wake(arch::cpu_index());
    true
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

/// The `room_to_preempt` of [`arch::Handlers`].
pub fn room_to_preempt(sp: u64) -> bool {
    let range = sp.saturating_sub(arch::PREEMPT_ROOM)..sp;
    slot::locate(sp).is_some_and(|(slot, _)| stack::make_room(slot, range, Need::More))
}

/// The `preempt_later` of [`arch::Handlers`].
pub fn preempt_later() {
    if let Some(slices) = slices() {
        slices.ask_again();
    }
}

/// The running G is about to unwind because its stack is full: returns why, and the bounds of its
/// stack. As [`super::begin_panic`].
pub fn begin_full() -> (Full, Range<u64>) {
    let g = running().expect("no G whose stack is full");
    super::begin_panic();
    TIMERS.cancel(g); // it may have been about to sleep
    let bounds = slot_under(g).map_or(0..0, Slot::bounds);
    (g.kernel.full.get().map_or(Full::Overflow, |filled| filled.why), bounds)
}

/// Why the stack of the running G is full, if it unwinds for that.
pub fn is_full() -> Option<Full> {
    Some(running()?.kernel.full.get()?.why)
}

/// Whether the running G is in a blocking call, on the stack of an M.
pub fn is_in_call() -> bool {
    running().is_some_and(|g| g.kernel.m.get().is_some())
}

/// Abandons the running G where it is, for good.
pub fn leave_behind() -> ! {
    leave(running().expect("no G to end"), Leaving::Abandon);
    unreachable!("an abandoned G runs")
}

/// Abandons the running G where it is, for good, as there is not even memory for it to unwind.
pub fn end_without_memory() -> ! {
    let g = running().expect("no G to end");
    g.kernel.full.set(Some(Filled { why: Full::NoMemory, is_own: true }));
    leave_behind()
}

/// Abandons the running G where it is, for good, as it panicked while it unwound. If it unwound
/// because it was killed, or its stack was full, that stays the reason.
pub fn give_up(why: JoinError) -> ! {
    let g = running().expect("no G to end");
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    let why = match g.kernel.full.get() {
        Some(filled) => filled.why.into(),
        None if was_killed() => JoinError::Killed,
        None => why,
    };
    // SAFETY: a G runs here, and interrupts are off until its M has taken it.
    unsafe { this_cpu() }.last_words.set(Some(why));
    kill::abandon(g)
}

/// Finishes an abandoned G: completes its job for the joiner. On the M, interrupts off.
pub fn bury(g: &'static G<Task>, said: Option<JoinError>) {
    kill::note_abandoned();
    let full = || g.kernel.full.get().map(|filled| filled.why.into());
    let said = said.or_else(full);
    // A G that ignored a kill gives no reason, and is not reported.
    let is_news = said.is_some();
    let why = said.unwrap_or(JoinError::Killed);
    let (id, program) = (g.id(), g.kernel.program());
    TIMERS.cancel(g);
    let name = g.kernel.name.load(Relaxed);
    // Before the joiner is woken: it may want one of these locks.
    let locks = abandon_locks(id);
    crate::log::pass_turn_of(name);
    // Its own stack, and that of the M if it was in a call.
    core::mem::forget(g.kernel.stack.take());
    let slots = [slot_of(g), g.kernel.m.get().map(M::slot)];
    let pages: usize = slots.into_iter().flatten().map(stack::leave).sum();
    if is_news {
        log::error!("{} ends without its destructors: {why}", Running(g));
        log::error!(
            "its mutexes and write locks are abandoned, somebody waited for {locks}; \
             {pages} pages of stack are kept, and what else its frames owned is lost"
        );
    }
    if let Some(work) = g.kernel.work.take() {
        // SAFETY: `g_main` has run it from there, and the G was abandoned for good, by the last
        // lines of `stack_full`, by `leave_behind` or by `kill::abandon`.
        unsafe { work.give_up(why) };
    }
    if g.status() != Status::Running {
        g.cancel_park();
    }
    SCHED.exited_for_kernel(g);
    program::left_behind(program, id);
}

/// Which stack `g` is on: its own, or in a call that of its M.
fn slot_under(g: &G<Task>) -> Option<Slot> {
    g.kernel.m.get().map_or_else(|| slot_of(g), |m| Some(m.slot()))
}

/// Where the stack of `g` is: the G is at its top.
fn slot_of(g: &G<Task>) -> Option<Slot> {
    slot::locate(core::ptr::from_ref(g).addr() as u64).map(|(slot, _)| slot)
}
