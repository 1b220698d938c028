//! A G that can neither continue nor unwind: it is abandoned where it is.
//!
//! That is so of a G whose stack is full although it unwinds ([`overflow`](super::overflow)), that
//! panicked twice ([`fail`]), or that did not heed a kill (`kill`). It leaves its CPU for good
//! ([`Leaving::Abandon`]), and its M continues as if it had ended ([`finish_abandoned`]): its join
//! says why, and the console what was lost. Its locks are abandoned: they never open, and every
//! caller gets an error (`wait::held`). No CPU returns to its stack, and the stack is not reused
//! either, because other Gs may hold pointers into it: its pages are counted. In a blocking call
//! that is so of the stack of its M as well, and another M continues. If Gs borrow from it, the
//! scope around it waits for them as well (`run::scope`).

use super::end;
use super::overflow::slot_of;
use crate::arch::irq::IrqState;
use crate::mem::stack;
use crate::run::error::{Filled, Full, JoinError};
use crate::run::kill::was_killed;
use crate::run::m::M;
use crate::run::priority::take_back;
use crate::run::program::Ended;
use crate::run::roster::{ALL, EPOCH};
use crate::run::task::{Running, Task};
use crate::run::waiting::Wait;
use crate::run::{Leaving, TIMERS, door, leave, ready_from, running, scope, this_cpu};
use crate::wait::held;
use crate::watch::holder::owner_for;
use crate::{arch, drivers};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicUsize, fence};
use sched::{G, Status};

static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// How many Gs were abandoned.
pub fn abandoned() -> usize {
    ABANDONED.load(Relaxed)
}

#[cold]
pub fn abandon() -> ! {
    let g = running().expect("no G to end");
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Abandon);
    unreachable!("an abandoned G runs")
}

/// Abandons the running G, as there is not even memory for it to unwind.
pub fn fail_without_memory() -> ! {
    let g = running().expect("no G to end");
    g.kernel.full.set(Some(Filled { why: Full::NoMemory, is_own: true }));
    abandon()
}

/// Abandons the running G, as it panicked while it unwound. If it unwound because it was killed, or
/// its stack was full, that stays the reason.
pub fn fail(why: JoinError) -> ! {
    let g = running().expect("no G to end");
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    let why = match g.kernel.full.get() {
        Some(filled) => filled.why.into(),
        None if was_killed() => JoinError::Killed,
        None => why,
    };
    // SAFETY: a G runs here, and interrupts are off until its M has taken it.
    unsafe { this_cpu() }.exit_reason.set(Some(why));
    leave(IrqState::ON, g, Leaving::Abandon);
    unreachable!("an abandoned G runs")
}

/// Finishes an abandoned G: completes its job for the joiner. If it ran the main function of its
/// program, the program ends as if it had panicked. On the M, interrupts off. `reason` is what
/// [`fail`] has recorded.
pub fn finish_abandoned(g: &'static G<Task>, reason: Option<JoinError>) {
    ABANDONED.fetch_add(1, Relaxed);
    let full = || g.kernel.full.get().map(|filled| filled.why.into());
    let reason = reason.or_else(full);
    // A G that did not heed a kill gives no reason, and is not reported.
    let is_news = reason.is_some();
    let why = reason.unwrap_or(JoinError::Killed);
    let (id, program) = (g.id(), g.kernel.program());
    TIMERS.cancel(g);
    let name = g.kernel.name.load(Relaxed);
    take_back(&g.handle());
    // Before the joiner is woken: it may want one of these locks.
    let woken = abandon_locks(id);
    drivers::log::pass_turn_of(name);
    // Its own stack, and that of the M if it was in a call.
    core::mem::forget(g.kernel.stack.take());
    let slots = [slot_of(g), g.kernel.m.get().map(M::slot)];
    let pages: usize = slots.into_iter().flatten().map(|slot| stack::POOL.leave(slot)).sum();
    if is_news {
        log::error!("{} ends without its destructors: {why}", Running(g));
        log::error!(
            "its mutexes and write locks are abandoned, {woken} Gs that waited for them are woken; \
             {pages} pages of stack are kept, and everything else that it owned is lost"
        );
    }
    scope::orphan(g);
    if let Some(work) = g.kernel.work.take() {
        // SAFETY: `g_main` has run it from there, and the G was abandoned for good, by the last
        // lines of `stack_full`, by `abandon` or by `fail`; or never will (`starved`), and what was
        // to run is lost: its destructors are the program's, and no G runs here.
        unsafe { work.give_up(why) };
    }
    if g.status() != Status::Running {
        g.cancel_park();
    }
    g.exit();
    if program.is_main(id) {
        end::end_program(program, program.id(), Ended::Panicked);
    }
}

/// Abandons the locks of the G of that number, which is gone without dropping its guards: each
/// mutex that it holds, and each `RwLock` that it writes, is abandoned (`wait::held`), and the Gs
/// that wait for one are woken to see that. Returns how many were; locks without waiters are
/// noticed when a G next takes them. 0 also if there is no such G.
///
/// That G is the running G, or no CPU runs it any more. Allocates nothing; not for interrupts.
pub fn abandon_locks(id: u64) -> usize {
    let Some(gone) = ALL.iter().find(|g| g.id() == id) else { return 0 };
    // It does not panic any more, either. No other CPU writes the name, as the G does not run.
    let name = gone.kernel.name.load(Relaxed);
    gone.kernel.name.store(name.wrapping_add(EPOCH) & !held::PANICKING, Relaxed);
    fence(SeqCst); // pairs with that of `held::watch_wait`
    // Before the locks are examined: the G may be granted one until its node is removed.
    if gone.status() != Status::Running {
        let Wait { reason, object, .. } = Wait::unpack(gone.kernel.waiting.load(Relaxed));
        // SAFETY: it began to park, so its wait word is valid, and it never runs again.
        unsafe { held::forget_waiter(reason, object, name) };
    }
    let mut woken = 0;
    for g in ALL.iter() {
        // A call that tried the lock since may have replaced the name already.
        if let Some((seen, owner)) = owner_for(g)
            && ((owner ^ name) & !held::PANICKING == 0 || owner == held::ABANDONED)
        {
            woken += 1;
            ready_from(arch::irq::disable_probed(), seen.handle);
        }
    }
    woken
}

/// The running G has ended by a full stack: abandons the locks that it has lost, if any.
pub fn locks_lost() {
    drivers::log::pass_turn_of(door::me()); // it may have printed when its stack was full
    let g = door::current_id();
    match abandon_locks(g) {
        0 => {} // or no G has tried to take them yet
        woken => log::error!("G {g} has lost locks that {woken} Gs wait for: abandoned"),
    }
}
