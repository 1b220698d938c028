//! A G is created and recycled: its record, its stack, its root.
//!
//! A G is at the top of its stack, in the page that the stack has from the start: one page holds a
//! G, its stack and all. The two are made together and stay together. A G that has ended goes to
//! `sched`'s free lists (Go: gfput), if its stack is of the usual size and has hardly grown, and
//! the next G that is started on this CPU gets both with one lookup. Else it goes to the pool of
//! stacks.
//!
//! # What was rejected
//!
//! - **A stack at the first run, not at the start**: it helps only Gs that are never run; and each
//!   switch would have to check for a stack, at a moment at which there may be no memory and no
//!   caller to report it to.
//! - **A G on the heap**: 256 bytes more for each, in another page and with another TLB entry.

use super::door::SpawnOptions;
use super::error::SpawnError;
use super::preempt::Attention;
use super::task::Task;
use super::{
    Instance, Job, Joiner, Kind, Leaving, OnCpu, SCHED, What, Work, ask_for_upkeep, hooks, kill,
    pair, pair_in, roster, running_or_none, submitted,
};
use crate::arch;
use crate::arch::irq::IrqState;
use crate::mem;
use crate::mem::stack::slot::CANARY_BYTES;
use crate::mem::stack::{self, Stack};
use arrayvec::ArrayVec;
use sched::{G, Stop, Wake};

/// Dead Gs that go to the pool at a time, when memory is short.
const TRIM: usize = 64;

/// Starts a G that runs `job` (Go: newproc).
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
#[inline(always)]
pub fn spawn<J: Job>(options: SpawnOptions, job: J) -> Result<Joiner<J::Outcome>, SpawnError> {
    let SpawnOptions { name, site, stack, pin, program } = options;
    let me = &running_or_none().kernel; // if no G runs: without a program and a kill request
    let own = me.program.get();
    // Gs which only start Gs come to an end here: a G with a kill request, and a G of a program that
    // has ended.
    if program.is_none() && (me.kill.is_set() || own.is_some_and(Instance::is_ending)) {
        kill::check_kill_at_spawn();
    }
    if pin.is_some_and(|cpu| cpu >= arch::num_cpus()) {
        return Err(SpawnError::NoSuchCpu);
    }
    let mut irqs = arch::irq::disable_probed();
    // SAFETY: 1. Off until `restore`. 2. Every caller comes after `init_cpu`. 3. The caller has none.
    let mut on = unsafe { OnCpu::assume() };
    // With a larger least size no stack is of the smallest class, and there are no dead Gs.
    let dead = if stack <= stack::DEFAULT_SIZE { SCHED.take_dead(on.p()) } else { None };
    let made = match dead {
        // SAFETY: a dead G that was taken belongs to the taker alone.
        Some(g) => unsafe { pair_in(Some(&g.kernel.place), job) },
        None => Err(job),
    };
    let (g, (work, joiner)) = match (dead, made) {
        (Some(g), Ok(owners)) => (g, owners),
        // No dead G; or the job is too large for the cell in its record, or the result of the last
        // life was not joined yet.
        (_, Err(job)) => {
            arch::irq::restore(irqs);
            let made = spawn_slow(dead, stack, job)?;
            irqs = arch::irq::disable_probed();
            // SAFETY: as above.
            on = unsafe { OnCpu::assume() };
            made
        }
        (None, Ok(_)) => unreachable!("a job without a G"),
    };
    let g_at = core::ptr::from_ref(g).addr();
    // SAFETY: a G is at the top of its stack (`g_with_stack`), above the canary, and the stack is its
    // own until it ends; the page is there.
    g.kernel.sp.set(unsafe { arch::prepare(g_at - CANARY_BYTES, g_main, g_at) });
    g.kernel.init_g(work, name, site, program.or(own));
    let (cpu, p) = on.parts();
    cpu.counters.created.add_one();
    let attention = cpu.slices.attention.get();
    let wake = SCHED.start(p, g, pin);
    if wake != Wake::Nobody || attention != 0 {
        core::hint::cold_path();
        if attention & Attention::TRACED != 0 {
            let created = What::new(Kind::Create, pin.map_or(0, |cpu| cpu as u32 + 1));
            (hooks::get().created)(g.id(), created, name, site);
        }
        submitted(cpu, p, wake);
    }
    arch::irq::restore(irqs);
    Ok(joiner)
}

/// A G that is not started yet, and the two owners of its result cell.
type Prepared<T> = (&'static G<Task>, (Work, Joiner<T>));

/// A dead G, made if there is none, with its result cell, on the heap if need be.
#[inline(never)]
fn spawn_slow<J: Job>(
    dead: Option<&'static G<Task>>,
    stack: usize,
    job: J,
) -> Result<Prepared<J::Outcome>, SpawnError> {
    let g = dead.map_or_else(|| g_with_stack(stack), Ok)?;
    // SAFETY: as in `spawn`.
    let made = unsafe { pair_in(Some(&g.kernel.place), job) }.or_else(pair);
    let Ok((work, joiner)) = made else {
        drop(g.kernel.stack.take()); // and the G with it
        return Err(SpawnError::NoMemory);
    };
    work.set_owner(core::ptr::from_ref(g).addr());
    Ok((g, (work, joiner)))
}

/// A dead G with a stack of that size: one whose stack had gone back to the pool, or a new one. With
/// the usual size several are made at a time, and the P keeps the others for the next Gs; but none
/// where memory is short.
#[cold]
fn g_with_stack(size: usize) -> Result<&'static G<Task>, SpawnError> {
    let size = size.max(stack::least_size());
    if size > stack::MAX_SIZE {
        return Err(SpawnError::StackTooLarge);
    }
    let most = if size > stack::DEFAULT_SIZE || mem::is_short() { 1 } else { stack::BATCH };
    let mut gs = ArrayVec::<_, { stack::BATCH }>::new();
    let mut new = ArrayVec::<_, { stack::BATCH }>::new();
    for stack in Stack::some(size, most).map_err(|_| SpawnError::NoMemory)? {
        let mut is_new = false;
        let new_g = || {
            is_new = true;
            G::new(Task::new(0)) // never freed; `roster` names it
        };
        // SAFETY: only Gs are kept with stacks.
        let g: &'static G<Task> = unsafe { stack.record(new_g) };
        g.kernel.stack.set(Some(stack));
        gs.push(g);
        if is_new {
            new.push(g);
        }
    }
    roster::add(&new);
    let first = gs.pop().ok_or(SpawnError::NoMemory)?;
    if !gs.is_empty() {
        let irqs = arch::irq::disable_probed();
        // SAFETY: as in `spawn`.
        let mut on = unsafe { OnCpu::assume() };
        gs.into_iter().for_each(|g| SCHED.keep_dead(on.p(), g));
        arch::irq::restore(irqs);
    }
    Ok(first)
}

/// Memory is short: moves some dead Gs to the pool, which frees the pages of their stacks except
/// the one that the G is in.
#[cold]
pub(crate) fn trim(on: &mut OnCpu<'_>) {
    for _ in 0..TRIM {
        let Some(g) = SCHED.take_dead(on.p()) else { break };
        drop(g.kernel.stack.take()); // and the G with it
    }
}

/// The root of every G; its end is that of Go's goexit0.
extern "C" fn g_main(g: usize) -> ! {
    // SAFETY: `spawn` passed the address of this very G, which lives for ever.
    let g = unsafe { &*(g as *const G<Task>) };
    arch::irq::restore(IrqState::ON);
    // The work stays in its cell, where `abandon::finish_abandoned` finds it if this G is abandoned.
    Work::run_from(&g.kernel.work);
    // No probe: the root is at the very top of the G's first page. As in `leave`, a G must leave with
    // no lock held and interrupts on.
    let irqs = arch::irq::disable();
    debug_assert!(irqs.were_on(), "irqs off");
    // SAFETY: 1. See above. 2. A G runs here. 3. It has no other.
    let on = unsafe { OnCpu::assume() };
    on.cpu().leaving.set(Leaving::Exit);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G here. 2. No CPU runs
    // it any more. 3. Interrupts are off.
    unsafe { arch::switch_for_good(on.cpu().sp.get()) }
}

/// Recycles a G that has ended and whose stack is no longer in use (Go: gdestroy), with its stack: to
/// the free list of this P, or to the pool of stacks, where pages are freed.
#[inline(always)]
pub(crate) fn recycle(on: &mut OnCpu<'_>, g: &'static G<Task>) {
    on.cpu().counters.ended.add_one();
    // SAFETY: the cell is the holder's, this CPU, and nothing changes it before the next lines.
    let stack = unsafe { &*g.kernel.stack.as_ptr() };
    debug_assert!(stack.as_ref().is_none_or(|own| stack::is_whole(own.slot())), "stack overrun");
    if stack.as_ref().is_some_and(Stack::is_as_new) {
        let _ = SCHED.stopped(on.p(), g, Stop::Exit); // wakes no CPU
    } else {
        give_to_pool(g, g.kernel.stack.take());
    }
}

#[cold]
#[inline(never)]
fn give_to_pool(g: &'static G<Task>, stack: Option<Stack>) {
    // First: the caller that gets the stack from the pool gets the G with it.
    SCHED.exited_for_kernel(g);
    drop(stack);
    ask_for_upkeep();
}
