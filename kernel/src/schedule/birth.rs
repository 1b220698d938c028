//! A G begins and ends: its record, its stack, its root.
//!
//! A G is at the top of its stack, in the page that this has from the start: one
//! page is a G, its stack and all. The two are made together and stay together.
//! A G that has ended goes to `sched`'s free lists, if its stack is of the usual
//! size and has hardly grown, and the next G that is started on this CPU has
//! both for the price of one look. Else it goes to the pool of stacks.
//!
//! # What was rejected
//!
//! - **A stack at the first run, not at the start**: it helps only Gs that are
//!   never run, for one that has run keeps it; and each switch would have to ask
//!   whether there is a stack, at a moment at which there may be no memory and
//!   nobody to be told. So a start that finds no memory is an error to whoever
//!   starts, and once started a G runs.
//! - **A G on the heap**: 256 bytes more for each, in another page and with
//!   another line of the page tables' cache.

use super::task::Task;
use super::{Cpu, Leaving, SCHED, ask_for_upkeep, leave, running, submit, with_p};
use super::{kill, roster};
use crate::arch;
use crate::cell::{Run as Work, Shared};
use crate::go::SpawnError;
use crate::mem::{self, stack::Stack};
use crate::park::Birth;
use crate::program::Instance;
use crate::trace;
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
    // Of the same program as who starts it; none is the booted one.
    let program = birth.program.or_else(|| running()?.kernel.program.get());
    if birth.program.is_none() && program.is_some_and(Instance::is_ending) {
        kill::end_of_program();
    }
    let is_usual = birth.stack <= mem::stack::DEFAULT_SIZE;
    let recycled = if is_usual { with_p(|p| SCHED.take_dead(p)) } else { None };
    let g = match recycled {
        Some(g) => g,
        None => g_with_stack(birth.stack)?,
    };
    let task = &g.kernel;
    let g_at = core::ptr::from_ref(g).addr();
    // SAFETY: a G is at the top of its stack (`g_with_stack`), which is its own
    // until it ends; the page is there.
    let sp = unsafe { arch::prepare(g_at, g_main, g_at) };
    task.sp.set(sp);
    task.work.set(Some(work));
    task.christen(&birth, program);
    submit(|cpu, p| {
        cpu.counters.created.add_one();
        let wake = SCHED.start(p, g, birth.pin);
        trace::created(|| g.id(), birth.pin, birth.name, birth.site);
        wake
    });
    Ok(())
}

/// A dead G with a stack of that size: one whose stack had gone back to the pool,
/// or one that never was before.
fn g_with_stack(size: usize) -> Result<&'static G<Task>, SpawnError> {
    let stack = Stack::new(size).map_err(|_| SpawnError::NoMemory)?;
    let mut is_new = false;
    // SAFETY: Gs are all that is kept with stacks.
    let g = unsafe {
        stack.record(|| {
            is_new = true;
            new_g()
        })
    };
    if is_new {
        roster::add(g);
    }
    g.kernel.stack.set(Some(stack));
    Ok(g)
}

/// A G that never was before. Never freed.
fn new_g() -> G<Task> {
    G::new(Task::new())
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

/// A G has ended, and nobody is on its stack any more. It stays with its stack: on
/// the list of this P if that is of the usual size and has hardly grown, else in
/// the pool of stacks, where pages are given back. Interrupts off.
pub(super) fn lay_to_rest(cpu: &Cpu, g: &'static G<Task>) {
    cpu.counters.ended.add_one();
    let stack = g.kernel.stack.take();
    if stack.as_ref().is_some_and(Stack::is_as_new) {
        g.kernel.stack.set(stack);
        // SAFETY: this CPU's own record, interrupts off.
        unsafe { cpu.with_p(|p| SCHED.exited(p, g)) };
    } else {
        // First, as whoever gets the stack gets the G.
        SCHED.exited_for_kernel(g);
        drop(stack);
        ask_for_upkeep();
    }
}
