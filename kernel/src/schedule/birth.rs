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
//! - **A stack at the first run, not at the start**: it helps only Gs that are never run, for one
//!   that has run keeps it; and each switch would have to check whether there is a stack, at a
//!   moment at which there may be no memory and no caller to report it to. So a start that finds no
//!   memory is an error to the caller, and once started a G runs.
//! - **A G on the heap**: 256 bytes more for each, in another page and with another TLB entry.

use super::task::Task;
use super::{
    Cpu, Leaving, SCHED, ask_for_upkeep, is_running, running, send, submit, this_cpu, with_p,
};
use super::{kill, roster};
use crate::arch::{self, irq::IrqState};
use crate::cell::{InlineCell, Job, Joiner, Work, pair, pair_in};
use crate::go::SpawnError;
use crate::mem::{
    self,
    stack::{self, Stack, slot::CANARY_BYTES},
};
use crate::park::Birth;
use crate::preempt::Attention;
use crate::program::Instance;
use crate::trace;
use core::panic::Location;
use sched::{G, StartRest, Wake};

/// Dead Gs that go to the pool at a time, when memory is short.
const SHED: usize = 64;

/// Starts a G that runs `labour` (Go: newproc).
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
#[inline(always)]
pub fn spawn<L: Job>(birth: Birth, labour: L) -> Result<Joiner<L::Outcome>, SpawnError> {
    let Birth { name, site, stack, pin, program } = birth;
    let own = inherited();
    let is_plain = stack <= mem::stack::DEFAULT_SIZE
        && pin.is_none()
        && program.is_none()
        && !own.is_some_and(Instance::is_ending);
    if !is_plain || !const { InlineCell::fits::<L>() } {
        return spawn_otherwise(None, name, site, stack, pin, program, labour);
    }
    // Fast path: a dead G of this P, its own place for the work, and all of it with interrupts off,
    // so that the CPU's record is looked up once.
    let irqs = arch::irq::disable_probed();
    // SAFETY: every caller comes after `init_cpu`; interrupts are off.
    let cpu = unsafe { this_cpu() };
    // SAFETY: this CPU's own record, interrupts off.
    let Some(g) = (unsafe { cpu.with_p(|p| SCHED.take_dead(p)) }) else {
        arch::irq::restore(irqs);
        return spawn_otherwise(None, name, site, stack, pin, program, labour);
    };
    // SAFETY: a dead G that was taken belongs to the taker alone.
    match unsafe { pair_in(&g.kernel.place, labour) } {
        Ok((work, joiner)) => {
            start(g, work, name, site, own, irqs);
            Ok(joiner)
        }
        // The result of its last life was not joined yet.
        Err(labour) => {
            arch::irq::restore(irqs);
            spawn_otherwise(Some(g), name, site, stack, pin, program, labour)
        }
    }
}

/// The program of a G for which none is named: that of the G that starts it; `None` is the booted
/// one.
#[inline(always)]
fn inherited() -> Option<&'static Instance> {
    running()?.kernel.program.get()
}

/// Slow path: with a new G, or another stack, or another CPU; or with a dead G that was taken
/// already, but whose place is still in use. Takes separate arguments, as the fast path would
/// otherwise build a [`Birth`] in memory for it.
#[inline(never)]
fn spawn_otherwise<L: Job>(
    taken: Option<&'static G<Task>>,
    name: &'static str,
    site: &'static Location<'static>,
    stack: usize,
    pin: Option<usize>,
    program: Option<&'static Instance>,
    labour: L,
) -> Result<Joiner<L::Outcome>, SpawnError> {
    // With a larger least size no stack is of the smallest class, so there are no dead Gs to reuse
    // and each start comes here: the fast path need not check.
    let stack = stack.max(mem::stack::least_size());
    let birth = Birth { name, site, stack, pin, program };
    if let Some(g) = taken {
        return spawn_as(g, birth, labour);
    }
    if birth.stack > mem::stack::MAX_SIZE {
        return Err(SpawnError::StackTooLarge);
    }
    if birth.pin.is_some_and(|cpu| cpu >= arch::num_cpus()) {
        return Err(SpawnError::NoSuchCpu);
    }
    if birth.program.is_none() {
        kill::check_kill_at_spawn();
    }
    let is_usual = birth.stack <= mem::stack::DEFAULT_SIZE;
    let recycled = if is_usual { with_p(|p| SCHED.take_dead(p)) } else { None };
    match recycled {
        Some(g) => spawn_as(g, birth, labour),
        None => spawn_as(g_with_stack(birth.stack)?, birth, labour),
    }
}

/// Starts this dead G, which the caller owns.
#[inline(never)]
fn spawn_as<L: Job>(
    g: &'static G<Task>,
    birth: Birth,
    labour: L,
) -> Result<Joiner<L::Outcome>, SpawnError> {
    // SAFETY: as in `spawn`.
    let made = unsafe { pair_in(&g.kernel.place, labour) };
    let Ok((work, joiner)) = made.or_else(pair) else {
        drop(g.kernel.stack.take()); // and the G with it
        return Err(SpawnError::NoMemory);
    };
    work.set_owner(core::ptr::from_ref(g).addr());
    let program = birth.program.or_else(inherited);
    set_up(g, work, birth.name, birth.site, program);
    submit(|cpu, p| {
        cpu.counters.created.add_one();
        let wake = SCHED.start(p, g, birth.pin);
        trace::created(|| g.id(), birth.pin, birth.name, birth.site);
        wake
    });
    Ok(joiner)
}

/// Starts a dead G, which the caller owns, on this CPU, with no special options. Interrupts are off
/// before; afterwards as they were.
#[inline(never)]
fn start(
    g: &'static G<Task>,
    work: Work,
    name: &'static str,
    site: &'static Location<'static>,
    program: Option<&'static Instance>,
    irqs: IrqState,
) {
    set_up(g, work, name, site, program);
    // SAFETY: every caller comes after `init_cpu`; interrupts are off.
    let cpu = unsafe { this_cpu() };
    cpu.counters.created.add_one();
    // SAFETY: this CPU's own record, interrupts off.
    let left = unsafe { cpu.with_p(|p| SCHED.start_at_once(p, g)) };
    // As in `wait::ready_from`: the fast path requires that no attention bit is set, and that the
    // timer runs.
    if left.is_err() || cpu.slices.attention.get() != 0 {
        return start_rest(g, left, name, site, irqs);
    }
    arch::irq::restore(irqs);
}

/// Slow path of [`start`].
#[cold]
#[inline(never)]
fn start_rest(
    g: &'static G<Task>,
    left: Result<(), StartRest<Task>>,
    name: &'static str,
    site: &'static Location<'static>,
    irqs: IrqState,
) {
    // SAFETY: as in `start`.
    let cpu = unsafe { this_cpu() };
    let wake = left.map_or_else(
        // SAFETY: as in `start`.
        |rest| unsafe { cpu.with_p(|p| SCHED.start_rest(p, rest)) },
        |()| Wake::Nobody,
    );
    // SAFETY: as above.
    if !cpu.slices.is_timed() && is_running() && unsafe { cpu.with_p(|p| SCHED.needs_timer(p)) } {
        cpu.slices.arm();
    }
    trace::created(|| g.id(), None, name, site);
    let is_killing = cpu.slices.attention.has(Attention::KILL);
    // Interrupts stay off until the wake-up is sent, as in `schedule::submit`.
    send(wake);
    arch::irq::restore(irqs);
    if is_killing {
        kill::check_kill();
    }
}

/// Prepares the next life of a dead G.
#[inline(always)]
fn set_up(
    g: &'static G<Task>,
    work: Work,
    name: &'static str,
    site: &'static Location<'static>,
    program: Option<&'static Instance>,
) {
    let g_at = core::ptr::from_ref(g).addr();
    // SAFETY: a G is at the top of its stack (`g_with_stack`), above the canary, and the
    // stack is its own until it ends; the page is there.
    let sp = unsafe { arch::prepare(g_at - CANARY_BYTES, g_main, g_at) };
    g.kernel.sp.set(sp);
    // A dead G has no work; so the old value is not checked for one to be dropped.
    core::mem::forget(g.kernel.work.replace(Some(work)));
    g.kernel.christen(name, site, program);
}

/// A dead G with a stack of that size: one whose stack had gone back to the pool, or a new one.
fn g_with_stack(size: usize) -> Result<&'static G<Task>, SpawnError> {
    let stack = Stack::new(size).map_err(|_| SpawnError::NoMemory)?;
    let mut is_new = false;
    // SAFETY: only Gs are kept with stacks.
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

/// Memory is short: moves some dead Gs to the pool, which frees the pages of their stacks except
/// the one that the G is in. Interrupts off.
#[cold]
pub(super) fn shed(cpu: &Cpu) {
    for _ in 0..SHED {
        // SAFETY: this CPU's own record, interrupts off.
        let Some(g) = (unsafe { cpu.with_p(|p| SCHED.take_dead(p)) }) else { break };
        drop(g.kernel.stack.take()); // and the G with it
    }
}

/// A new G. Never freed.
fn new_g() -> G<Task> {
    G::new(Task::new(0)) // `roster` names it
}

/// The root of every G; its end is that of Go's goexit0.
extern "C" fn g_main(g: usize) -> ! {
    // SAFETY: `start` passed the address of this very G, which lives for ever.
    let g = unsafe { &*(g as *const G<Task>) };
    arch::irq::restore(IrqState::ON);
    // The work stays in its cell, where `abandon::finish_abandoned` finds it if this G is abandoned.
    Work::run_from(&g.kernel.work);
    // No probe: the root is at the very top of the G's first page. As in `schedule::leave`, a G
    // must leave with no lock held and interrupts on.
    assert!(arch::irq::disable().were_on(), "irqs off");
    // SAFETY: a G runs here.
    let cpu = unsafe { this_cpu() };
    cpu.leaving.set(Leaving::Exit);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G here. 2. No CPU runs
    // it any more. 3. Interrupts are off.
    unsafe { arch::switch_for_good(cpu.sp.get()) }
}

/// Recycles a G that has ended and whose stack is no longer in use (Go: gdestroy). It stays with
/// its stack: on the free list of this P if the stack is of the usual size and has hardly grown,
/// else in the pool of stacks, where pages are freed. Interrupts off.
#[inline(always)]
pub(super) fn lay_to_rest(cpu: &Cpu, g: &'static G<Task>) {
    cpu.counters.ended.add_one();
    // SAFETY: the cell belongs to the holder, this CPU, and nothing changes it before the next
    // lines.
    let stack = unsafe { &*g.kernel.stack.as_ptr() };
    debug_assert!(stack.as_ref().is_none_or(|own| stack::is_whole(own.slot())), "stack overrun");
    if stack.as_ref().is_some_and(Stack::is_as_new) {
        // SAFETY: this CPU's own record, interrupts off.
        unsafe { cpu.with_p(|p| SCHED.exited(p, g)) };
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
