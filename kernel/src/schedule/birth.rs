//! A G begins and ends: its record, its stack, its root.
//!
//! The record of a G that has ended goes back to `sched`'s free lists, and with
//! it its stack, if that is of the usual size and has not grown: the next G
//! that is started on this CPU then has both for the price of one look.

use super::roster;
use super::task::Task;
use super::{Leaving, SCHED, ask_for_upkeep, leave, submit, with_p};
use crate::arch;
use crate::cell::{Run as Work, Shared};
use crate::go::SpawnError;
use crate::mem::{self, stack::Stack};
use crate::park::Birth;
use crate::trace;
use alloc::vec::Vec;
use sched::G;

/// Starts a G that does `work`.
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
pub fn spawn(birth: Birth, work: Shared<dyn Work>) -> Result<(), SpawnError> {
    if birth.stack > mem::stack::MAX_SIZE {
        return Err(SpawnError::StackTooLarge);
    }
    if birth.pin.is_some_and(|cpu| cpu >= arch::num_cpus()) {
        return Err(SpawnError::NoSuchCpu);
    }
    let g = match with_p(|p| SCHED.take_dead(p)) {
        Some(g) => g,
        None => new_g()?,
    };
    let task = &g.kernel;
    let Some(stack) = stack_for(task, birth.stack) else {
        with_p(|p| SCHED.give_back_dead(p, g));
        return Err(SpawnError::NoMemory);
    };
    // SAFETY: the top of a stack that is this G's alone; its highest page is
    // there.
    let sp = unsafe { arch::prepare(stack.top() as usize, g_main, core::ptr::from_ref(g).addr()) };
    task.sp.set(sp);
    task.stack.set(Some(stack));
    task.work.set(Some(work));
    task.christen(birth.name, birth.site);
    submit(|cpu, p| {
        cpu.counters.created.add_one();
        let wake = SCHED.start(p, g, birth.pin);
        trace::created(|| g.id(), birth.pin, birth.name, birth.site);
        wake
    });
    Ok(())
}

/// The stack that the record still has, if it will do, or another.
fn stack_for(task: &Task, size: usize) -> Option<Stack> {
    match task.stack.take() {
        Some(stack) if size <= mem::stack::DEFAULT_SIZE => Some(stack),
        _ => Stack::new(size).ok(),
    }
}

/// A G that never was before. Never freed.
fn new_g() -> Result<&'static G<Task>, SpawnError> {
    let mut place = Vec::new();
    place.try_reserve_exact(1).map_err(|_| SpawnError::NoMemory)?;
    place.push(G::new(Task::new()));
    let g = &place.leak()[0];
    roster::add(g);
    Ok(g)
}

/// The root of every G.
extern "C" fn g_main(g: usize) -> ! {
    // SAFETY: `spawn` passed the address of this very G, which lives for ever.
    let g = unsafe { &*(g as *const G<Task>) };
    arch::irq_restore(true);
    if let Some(work) = g.kernel.work.take() {
        work.run();
    }
    leave(Leaving::Exit);
    unreachable!("an ended G runs")
}

/// A G has ended, and nobody is on its stack any more. Interrupts off.
pub(super) fn lay_to_rest(g: &G<Task>) {
    let stack = g.kernel.stack.take();
    let keep = stack.as_ref().is_some_and(Stack::is_as_new);
    if keep {
        g.kernel.stack.set(stack);
    } else {
        drop(stack);
        ask_for_upkeep();
    }
}
