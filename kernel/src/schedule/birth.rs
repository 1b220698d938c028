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
use super::{
    Cpu, Leaving, SCHED, ask_for_upkeep, is_running, running, send, submit, this_cpu, with_p,
};
use super::{kill, roster};
use crate::arch::{self, irq::IrqState};
use crate::cell::{Joiner, Labour, Place, Work, pair, pair_in};
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

/// Starts a G that does `labour`.
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
#[inline(always)]
pub fn spawn<L: Labour>(birth: Birth, labour: L) -> Result<Joiner<L::Outcome>, SpawnError> {
    let Birth { name, site, stack, pin, program } = birth;
    let own = inherited();
    let is_plain = stack <= mem::stack::DEFAULT_SIZE
        && pin.is_none()
        && program.is_none()
        && !own.is_some_and(Instance::is_ending);
    if !is_plain || !const { Place::fits::<L>() } {
        return spawn_otherwise(None, name, site, stack, pin, program, labour);
    }
    // The short way: a G that is at hand, its own place for the work, and all of
    // it with interrupts off, so that one look at the CPU serves for all.
    let irqs = arch::irq::disable_probed();
    // SAFETY: what calls this comes after `init_cpu`; interrupts are off.
    let cpu = unsafe { this_cpu() };
    // SAFETY: this CPU's own record, interrupts off.
    let Some(g) = (unsafe { cpu.with_p(|p| SCHED.take_dead(p)) }) else {
        arch::irq::restore(irqs);
        return spawn_otherwise(None, name, site, stack, pin, program, labour);
    };
    // SAFETY: a dead G that was taken is its taker's alone.
    match unsafe { pair_in(&g.kernel.place, labour) } {
        Ok((work, joiner)) => {
            start(g, work, name, site, own, irqs);
            Ok(joiner)
        }
        // What its last life has left was not joined yet.
        Err(labour) => {
            arch::irq::restore(irqs);
            spawn_otherwise(Some(g), name, site, stack, pin, program, labour)
        }
    }
}

/// The program of a G that is not started as another's: that of who starts it;
/// none is the booted one.
#[inline(always)]
fn inherited() -> Option<&'static Instance> {
    running()?.kernel.program.get()
}

/// The long way: with a new G, or another stack, or another CPU; or with a dead G
/// that was taken already, but is no place for the work. By its parts, as the short
/// way would else put a [`Birth`] together for it.
#[inline(never)]
fn spawn_otherwise<L: Labour>(
    taken: Option<&'static G<Task>>,
    name: &'static str,
    site: &'static Location<'static>,
    stack: usize,
    pin: Option<usize>,
    program: Option<&'static Instance>,
    labour: L,
) -> Result<Joiner<L::Outcome>, SpawnError> {
    // With a larger least size no stack is of the smallest class, so no dead G is at hand and
    // each start comes here: the short way need not ask.
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
        kill::end_instead();
    }
    let is_usual = birth.stack <= mem::stack::DEFAULT_SIZE;
    let recycled = if is_usual { with_p(|p| SCHED.take_dead(p)) } else { None };
    match recycled {
        Some(g) => spawn_as(g, birth, labour),
        None => spawn_as(g_with_stack(birth.stack)?, birth, labour),
    }
}

/// Starts this dead G, which is the caller's.
#[inline(never)]
fn spawn_as<L: Labour>(
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
    work.is_of(core::ptr::from_ref(g).addr());
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

/// Starts a dead G, which is the caller's, here, with nothing special about it.
/// Interrupts are off before; afterwards as they were.
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
    // SAFETY: what calls this comes after `init_cpu`; interrupts are off.
    let cpu = unsafe { this_cpu() };
    cpu.counters.created.add_one();
    // SAFETY: this CPU's own record, interrupts off.
    let left = unsafe { cpu.with_p(|p| SCHED.start_at_once(p, g)) };
    // As in `wait::ready_from`: the short way is for when nobody watches, and the
    // timer runs.
    if left.is_err() || cpu.slices.attention.get() != 0 {
        return start_rest(g, left, name, site, irqs);
    }
    arch::irq::restore(irqs);
}

/// The rest of [`start`].
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
    let may_be_doomed = cpu.slices.attention.has(Attention::DOOM);
    // Off until the wake-up is sent, as in `schedule::submit`.
    send(wake);
    arch::irq::restore(irqs);
    if may_be_doomed {
        kill::heed_kill();
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
    // A dead G has none; so nobody need look whether there is one to be dropped.
    core::mem::forget(g.kernel.work.replace(Some(work)));
    g.kernel.christen(name, site, program);
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

/// Memory is short: some dead Gs go to the pool, which gives the pages of their
/// stacks back, but for the one that they are in. Interrupts off.
#[cold]
pub(super) fn shed(cpu: &Cpu) {
    for _ in 0..SHED {
        // SAFETY: this CPU's own record, interrupts off.
        let Some(g) = (unsafe { cpu.with_p(|p| SCHED.take_dead(p)) }) else { break };
        drop(g.kernel.stack.take()); // and the G with it
    }
}

/// A G that never was before. Never freed.
fn new_g() -> G<Task> {
    G::new(Task::new(0)) // `roster` names it
}

/// The root of every G.
extern "C" fn g_main(g: usize) -> ! {
    // SAFETY: `start` passed the address of this very G, which lives for ever.
    let g = unsafe { &*(g as *const G<Task>) };
    arch::irq::restore(IrqState::ON);
    // It stays where whoever buries this G finds it, should it not come to its end.
    Work::run_from(&g.kernel.work);
    // No probe: the root is at the very top of the G's first page. As in
    // `schedule::leave`, a G takes neither a lock along nor interrupts off.
    assert!(arch::irq::disable().were_on(), "irqs off");
    // SAFETY: a G runs here.
    let cpu = unsafe { this_cpu() };
    cpu.leaving.set(Leaving::Exit);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G
    // here. 2. Nobody runs it any more. 3. Interrupts are off.
    unsafe { arch::switch_for_good(cpu.sp.get()) }
}

/// A G has ended, and nobody is on its stack any more. It stays with its stack: on
/// the pile of this P if that is of the usual size and has hardly grown, else in
/// the pool of stacks, where pages are given back. Interrupts off.
#[inline(always)]
pub(super) fn lay_to_rest(cpu: &Cpu, g: &'static G<Task>) {
    cpu.counters.ended.add_one();
    // SAFETY: the cell is its holder's, us, and nobody changes it before the next
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
    // First, as whoever gets the stack gets the G.
    SCHED.exited_for_kernel(g);
    drop(stack);
    ask_for_upkeep();
}
