//! A G is created and recycled: its record, its stack, its root.
//!
//! A G is the record of its stack (`mem::stack`): the two are made together and stay together. A G
//! that has ended goes to `sched`'s free lists (Go: gfput), if its stack is of the usual size and
//! has hardly grown, and the next G that is started on this CPU gets both with one lookup. Else it
//! goes to the pool of stacks.
//!
//! # What was rejected
//!
//! - **A stack at the first run, not at the start**: it helps only Gs that are never run; and each
//!   switch would have to check for a stack, at a moment at which there may be no memory and no
//!   caller to report it to.
//! - **A G on the heap**: where it is would not follow from its stack, nor its stack from it.

use super::door::SpawnOptions;
use super::error::SpawnError;
use super::preempt::Attention;
use super::priority::{Priority, while_starting};
use super::task::Task;
use super::{
    Instance, Job, Joiner, Kind, Leaving, OnCpu, SCHED, What, Work, ask_for_upkeep, hooks, kill,
    mcall_for_good, packing, pair_in, roster, running_or_none, submitted, system,
};
use crate::arch;
use crate::arch::irq::IrqState;
use crate::mem;
use crate::mem::stack::{self, Stack};
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Wake};

/// Dead Gs that go to the pool at a time, when memory is short.
const TRIM: usize = 256;

/// Starts a G that runs `job` (Go: newproc).
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
#[inline(always)]
pub fn spawn<J: Job + 'static>(
    options: SpawnOptions,
    job: J,
) -> Result<Joiner<J::Outcome>, SpawnError> {
    // SAFETY: it borrows nothing.
    unsafe { spawn_borrowing(options, job) }
}

/// As [`spawn`], for a job that may borrow.
///
/// # Errors
/// As for [`spawn`].
///
/// # Safety
/// What the job has borrowed is there until its ticket is dropped, and for the outcome until that
/// is.
#[inline(always)]
pub unsafe fn spawn_borrowing<J: Job>(
    options: SpawnOptions,
    job: J,
) -> Result<Joiner<J::Outcome>, SpawnError> {
    let SpawnOptions { name, site, stack, pin, program, priority } = options;
    let me = &running_or_none().kernel;
    let own = me.program.get();
    let mut irqs = IrqState::ON;
    // Gs which only start Gs come to an end here: a G with a kill request, and a G of a program
    // that has ended. If no G runs, a request is set as well.
    if me.kill.is_set() || own.is_some_and(Instance::is_ending) {
        irqs = arch::irq::state();
        if program.is_none() {
            kill::check_kill_at_spawn();
        }
    }
    debug_assert!(!irqs.were_on() || arch::irq::enabled(), "irqs off");
    if pin.is_some_and(|cpu| cpu >= arch::num_cpus()) {
        return Err(SpawnError::NoSuchCpu);
    }
    arch::probe_stack();
    arch::irq::disable();
    // SAFETY: 1. Off until `restore`. 2. Every caller comes after `init_cpu`. 3. The caller has
    // none.
    let mut on = unsafe { OnCpu::assume() };
    // With a larger least size no stack is of the smallest class, and there are no dead Gs.
    let dead = if stack <= stack::DEFAULT_SIZE { SCHED.take_dead(on.p()) } else { None };
    let made = match dead {
        // SAFETY: 1. A dead G that was taken belongs to the taker alone. 2. The caller's promise.
        Some(g) => unsafe { pair_in(Some(&g.kernel.place), job) },
        None => Err(job),
    };
    let (g, (work, joiner)) = match (dead, made) {
        (Some(g), Ok(owners)) => (g, owners),
        // No dead G; or the job is too large for the cell in its record, or the result of the last
        // life was not joined yet.
        (_, Err(job)) => {
            arch::irq::restore(irqs);
            // SAFETY: the caller's promise.
            let made = unsafe { spawn_slow(dead, stack, job) }?;
            arch::probe_stack_again();
            arch::irq::disable();
            // SAFETY: as above.
            on = unsafe { OnCpu::assume() };
            made
        }
        (None, Ok(_)) => unreachable!("a job without a G"),
    };
    // SAFETY: every dead G has a stack (`g_with_stack`), which is its own until it ends.
    g.kernel.sp.set(unsafe { arch::prepare(top_of(g), g_main) });
    let (cpu, p) = on.parts();
    g.kernel.init_g(work, name, site, program.or(own), cpu.slices.began());
    cpu.counters.created.add_one();
    let is_normal = priority == Priority::Normal;
    if !is_normal || cpu.slices.attention.get() != 0 || cfg!(debug_assertions) {
        start_slow(on, g, pin, priority);
    } else if let wake @ Wake::Cpu(_) = SCHED.start(p, g, pin) {
        submitted(cpu, p, wake);
    }
    arch::irq::restore(irqs);
    Ok(joiner)
}

/// The top of the stack of a dead G that the caller has taken.
#[inline(always)]
fn top_of(g: &'static G<Task>) -> usize {
    // SAFETY: a dead G that was taken belongs to the taker, and so does the cell.
    unsafe { &*g.kernel.stack.as_ptr() }.as_ref().map_or(0, Stack::start) as usize
}

/// The last part of [`spawn`] with interrupts off, where an attention bit is set, or for a G that is
/// not normal.
#[cold]
fn start_slow(mut on: OnCpu<'_>, g: &'static G<Task>, pin: Option<usize>, priority: Priority) {
    let (cpu, p) = on.parts();
    g.kernel.account.since.store(arch::cycles(), Relaxed); // how long it is queued is counted
    if system::binds() {
        // SAFETY: as in `spawn`, which has prepared it for another root.
        g.kernel.sp.set(unsafe { arch::prepare(top_of(g), system::thread_main) });
    }
    // SAFETY: it was not started yet, so this CPU holds it; and its name lives for ever.
    let (name, site) = unsafe { g.kernel.own_label() };
    let is_shared = cpu.slices.attention.has(Attention::SHARES);
    let lane = if is_shared { g.kernel.program().lane() } else { None };
    let wake = while_starting(priority, || SCHED.start_in_lane(p, g, pin, priority, lane));
    if cpu.slices.attention.has(Attention::TRACED)
        && let Some(site) = site
    {
        let created = What::new(Kind::Create, pin.map_or(0, |cpu| cpu as u32 + 1));
        (hooks::get().created)(g.id(), created, name, site);
    }
    submitted(cpu, p, wake);
}

/// A G that is not started yet, and the two owners of its result cell.
type Prepared<T> = (&'static G<Task>, (Work, Joiner<T>));

/// A dead G, made if there is none, with its result cell, on the heap if need be.
///
/// # Safety
/// As for [`spawn_borrowing`].
#[inline(never)]
unsafe fn spawn_slow<J: Job>(
    dead: Option<&'static G<Task>>,
    stack: usize,
    job: J,
) -> Result<Prepared<J::Outcome>, SpawnError> {
    let g = dead.map_or_else(|| g_with_stack(stack), Ok)?;
    // SAFETY: as in `spawn_borrowing`.
    let made = unsafe { pair_in(Some(&g.kernel.place), job) };
    // SAFETY: no inline cell; the caller's promise.
    let made = made.or_else(|job| unsafe { pair_in(None, job) });
    let Ok((work, joiner)) = made else {
        drop(g.kernel.stack.take()); // and the G with it
        return Err(SpawnError::NoMemory);
    };
    work.set_owner(core::ptr::from_ref(g).addr());
    Ok((g, (work, joiner)))
}

/// A dead G with a stack of that size: one whose stack had gone back to the pool, or a new one.
/// With the usual size several are made at a time, and the P keeps the others for the next Gs; but
/// none where memory is short.
#[cold]
fn g_with_stack(size: usize) -> Result<&'static G<Task>, SpawnError> {
    let size = size.max(stack::least_size());
    if size > stack::MAX_SIZE {
        return Err(SpawnError::StackTooLarge);
    }
    let is_one = size > stack::DEFAULT_SIZE || mem::is_short() || system::binds();
    let most = if is_one { 1 } else { stack::BATCH };
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
    if !new.is_empty() {
        packing::made_some();
    }
    let first = gs.pop().ok_or(SpawnError::NoMemory)?;
    system::bind(first).inspect_err(|_| drop(first.kernel.stack.take()))?; // and the G with it
    if !gs.is_empty() {
        let irqs = arch::irq::disable_probed();
        // SAFETY: as in `spawn`.
        let mut on = unsafe { OnCpu::assume() };
        gs.into_iter().for_each(|g| SCHED.keep_dead(on.p(), g));
        arch::irq::restore(irqs);
    }
    Ok(first)
}

/// Memory is short: moves some dead Gs to the pool, which frees the pages of their stacks. False if
/// there are no more.
#[cold]
pub(crate) fn trim(on: &mut OnCpu<'_>) -> bool {
    (0..TRIM).all(|_| {
        let dead = SCHED.take_dead(on.p());
        dead.inspect(|g| drop(g.kernel.stack.take())).is_some() // and the G with it
    })
}

/// The root of every G; its end is that of Go's goexit0.
extern "C" fn g_main(_: usize, g: &'static G<Task>) -> ! {
    arch::irq::restore(IrqState::ON);
    // The work stays in its cell: `abandon::finish_abandoned` finds it if this G is abandoned.
    Work::run_from(&g.kernel.work);
    // No probe: the root is at the very top of the G's first page. As in `leave`, a G must leave
    // with no lock held and interrupts on.
    let irqs = arch::irq::disable();
    debug_assert!(irqs.were_on(), "irqs off");
    // SAFETY: 1. See above. 2. A G runs here. 3. It has no other.
    let on = unsafe { OnCpu::assume() };
    mcall_for_good(on, g, Leaving::Exit)
}

/// Recycles a G that has ended and whose stack is no longer in use (Go: gdestroy), with its stack:
/// to the free list of this P. If false, nothing was done, and [`recycle_slow`] follows.
#[inline(always)]
#[must_use = "if false, nothing was done"]
pub(crate) fn recycle(on: &mut OnCpu<'_>, g: &'static G<Task>) -> bool {
    let is_done = is_as_new(g) && SCHED.exited(on.p(), g);
    if is_done {
        on.cpu().counters.ended.add_one();
    }
    is_done
}

/// As [`recycle`], if the free list is full or the stack goes to the pool, where pages are freed.
#[cold]
pub(crate) fn recycle_slow(on: &mut OnCpu<'_>, g: &'static G<Task>) {
    on.cpu().counters.ended.add_one();
    if is_as_new(g) {
        g.exit();
        SCHED.keep_dead(on.p(), g);
    } else {
        give_to_pool(g, g.kernel.stack.take());
    }
}

/// As [`recycle_slow`], for a G whose record and stack are not kept.
pub(crate) fn free(on: &OnCpu<'_>, g: &'static G<Task>) {
    on.cpu().counters.ended.add_one();
    give_to_pool(g, g.kernel.stack.take());
}

#[inline(always)]
fn is_as_new(g: &'static G<Task>) -> bool {
    if cfg!(debug_assertions) {
        // SAFETY: the cell is the holder's, this CPU, and nothing changes it before the next line.
        let stack = unsafe { &*g.kernel.stack.as_ptr() };
        assert!(stack.as_ref().is_none_or(|own| stack::is_whole(own.slot())), "stack overrun");
    }
    // SAFETY: every G that has run is the record of its stack.
    unsafe { stack::is_as_new(g) }
}

fn give_to_pool(g: &'static G<Task>, stack: Option<Stack>) {
    // First: the caller that gets the stack from the pool gets the G with it.
    g.exit();
    drop(stack);
    ask_for_upkeep();
}
