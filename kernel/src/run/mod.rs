//! What every M runs: put the G that has left where it belongs, find the next, go there.
//!
//! `sched` decides, this module acts: it switches stacks, sends the wake-ups and halts. Each CPU
//! has a record ([`Cpu`]) with the P that it holds, and an M ([`m::M`]) on whose stack it
//! schedules. A G leaves its CPU by calling a function on the M's stack (`Leaving`), which, off the
//! G's stack, tells `sched` and goes on with the next G.
//!
//! Code that touches the record has an [`OnCpu`], which exists only while interrupts are off and
//! which a switch uses up. Everything above this module that a switch, a tick or a halt must call
//! is in the one table of [`hooks`].
//!
//! # Which M
//!
//! CPU and P stay together; the M may change. A G in a blocking call ([`mod@call`]) is *on* the
//! stack of its M, so when the G leaves, that M leaves with it: the G calls that function on the
//! stack of a spare M. When such a G runs again, on any CPU, its own M displaces the M there, which
//! becomes the spare one.
//!
//! So a G that comes back from a switch may be on another CPU than before: it reads the CPU's
//! record again.
//!
//! Interrupts are off on the M's stack and during every switch. A G runs with interrupts on; it
//! turns them off to touch the P of its CPU ([`OnCpu`]), so that it stays on that CPU meanwhile.
//!
//! # The files, in the order in which to read them
//!
//! 1. From G to G: [`proc`] finds, runs, parks and readies; [`mod@spawn`] creates and recycles;
//!    [`preempt`] ends slices, [`priority`] lends ranks; [`mod@call`] and [`m`] are the calls that
//!    block and their Ms; [`cpu`] is the record of a CPU.
//! 2. What a G has: [`task`] is its record, [`job`] its closure and result, [`waiting`] what it
//!    waits for, [`mod@permit`] an unpark before its park, [`kill`] a request to end, [`unwind`]
//!    the catch at its root, [`mod@program`] what all Gs of a program have in common, and
//!    [`share`] how much of the CPUs that is. [`roster`] finds a G
//!    by its number, and [`record`] has the links of records that are never freed.
//!    [`mod@attached`] is what few Gs have: [`scope`] are Gs that borrow, [`members`] how they are
//!    counted, [`local`] are values of its own. [`pin`] keeps it on a CPU.
//! 3. What wakes it: [`timer`] and [`time`], [`poller`].
//! 4. For the rooms around: [`door`] and [`sys`] are what `wait` and `api` call, [`hooks`] what
//!    this room calls, [`view`] what others may ask, [`error`] what a spawn or a join may answer.
//!    [`account`], [`event`] and [`ring`] count and record. [`service`] is the kernel's own Gs,
//!    [`packing`] says which stacks may be packed, [`near`] which CPUs are near each other, and
//!    [`system`] is the scheduling system (`system=`).

pub(crate) mod account;
pub(crate) mod attached;
pub(crate) mod call;
pub(crate) mod cpu;
pub(crate) mod door;
pub(crate) mod ended;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod hooks;
pub(crate) mod job;
pub(crate) mod kill;
pub(crate) mod local;
pub(crate) mod m;
pub(crate) mod members;
pub(crate) mod near;
pub(crate) mod packing;
pub(crate) mod payload;
pub(crate) mod permit;
pub(crate) mod pin;
pub(crate) mod poller;
pub(crate) mod preempt;
pub(crate) mod priority;
pub(crate) mod proc;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod roster;
pub(crate) mod scope;
pub(crate) mod service;
pub(crate) mod share;
pub(crate) mod spawn;
pub(crate) mod sys;
pub(crate) mod system;
pub(crate) mod task;
pub mod time;
pub(crate) mod timer;
pub(crate) mod unwind;
pub(crate) mod view;
pub mod waiting;

pub use call::{Handoff, call, resumed_in_call};
#[cfg(test)]
pub use job::pair;
pub use job::{InlineCell, Job, Joiner, WORKER_WORD, Work, pair_in, worker_in};
pub use m::{BlockingError, MState};
pub use preempt::{on_device_end, on_tick, on_wake, ready_from_interrupt, set_timer};
pub use proc::{
    ask_for_upkeep, begin_park, begin_wait, cancel_park, keep, may_spin, may_wait, park,
    park_unlock, park_until, ready, ready_from, refill_reserve, wait_for_memory, yield_now,
};
pub use program::{Ended, ProgramId};
pub use record::{Link, Name, Record, Registry};
pub use roster::{is_gone, me};
pub use spawn::{spawn, spawn_borrowing};
pub use task::{
    GHandle, Task, WhichPanic, attached, begin_panic, current, during_hook, end_limit, end_panic,
    has_attached, is_in_call, is_in_hook, is_limit_over, is_panicking, report_last_panic,
    report_panic, set_limit_over,
};
pub use view::{
    all_idle, all_slices, busy, created, created_and_ended, current_id, cycles_run, gomaxprocs,
    is_busy, lives_changed, name_of, num_goroutines, permit, present, program, progress, random,
    set_gomaxprocs, slices_begun, take_permit, this, worker,
};

pub(crate) use cpu::{Cpu, OnCpu, this_cpu, try_this_cpu, with_p};
pub(crate) use event::{Event, Kind, What};
pub(crate) use permit::Permit;
pub(crate) use proc::{
    BOTTOM, Leaving, SP, abandon_in_fault, leave, mcall, mcall_for_good, mstart1, note_ready, send,
    submitted, unpack_in_fault, wake_cpu,
};
pub(crate) use program::{BOOT, Instance, KERNEL};

use crate::arch;
use m::M;
use sched::{G, Order, PSlot, Sched};
use timer::Timers;

/// The slice under way on this CPU, if it runs Gs yet. Interrupts off.
pub(crate) fn slices() -> Option<&'static preempt::Slices> {
    try_this_cpu().map(|cpu| &cpu.slices)
}

pub(crate) static SLOTS: [PSlot<Task>; arch::MAX_CPUS] = [const { PSlot::new() }; arch::MAX_CPUS];
pub(crate) static SCHED: Sched<Task> = Sched::new(&SLOTS);
pub(crate) static TIMERS: Timers = Timers::new();
pub(crate) static CPUS: [Cpu; arch::MAX_CPUS] = [const { Cpu::new() }; arch::MAX_CPUS];

/// Seeds the order of stealing unless the command line does.
pub(crate) const DEFAULT_SEED: u64 = 1;

/// The per-CPU word that names the running G, or [`NO_G`].
pub(crate) const G_SLOT: usize = 0;

/// Placeholder for "no G runs here". It never runs and is in no queue. It has a lock name, so
/// taking a lock needs no check whether a G runs (saves 4 of a lock's 16 instructions).
pub(crate) static NO_G: G<Task> = G::new(Task::no_g(roster::NO_G_NAME));

/// Marks all CPUs as running no G. Called before everything else: after it, `running` is valid.
pub fn begin() {
    arch::set_all_slots::<G_SLOT>(core::ptr::from_ref(&NO_G).addr());
}

/// Sets the number of Ps, the order in which they look for Gs and how they are handed off; once,
/// before the boot CPU calls [`init_cpu`]. The system is chosen before any CPU does.
pub fn init(ps: Option<usize>, order: Order, handoff: Handoff) {
    SCHED.set_order(order);
    system::init();
    call::init(system::handoff(handoff));
    // CPUs that have come up already look at the limit when they search.
    let _ = SCHED.set_limit(ps.unwrap_or(usize::MAX).min(system::most_ps()));
}

/// Gives this CPU its P and its M.
pub fn init_cpu(seed: Option<u64>) {
    let index = arch::cpu_index();
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let mut p = SCHED.acquire_under(index, seed, system::places()).expect("P taken");
    near::seat(&mut p);
    let cpu = &CPUS[index];
    cpu.random.set(seed ^ (index as u64) << 32);
    let m = M::create().expect("no memory for an M");
    m.set_state(MState::OnCpu);
    cpu.m.set(Some(m));
    cpu.slices.begin(arch::cycles());
    ring::init_cpu();
    cpu.install(p);
}

/// Switches from the boot stack to that of this CPU's M (Go: mstart). Interrupts off.
pub fn mstart() -> ! {
    assert!(!arch::irq::enabled(), "irqs on");
    // SAFETY: 1. See above. 2. `init_cpu` came before. 3. This CPU schedules nothing yet.
    let on = unsafe { OnCpu::assume() };
    on.cpu().sp.set(on.cpu().m().bottom());
    // SAFETY: 1. Made by `M::create`, and not used yet. 2. No code returns to this stack.
    // 3. Interrupts are off.
    unsafe { arch::mcall_for_good::<_, _, BOTTOM>(on.give_up(), &NO_G, arch::OnM::new(mstart1)) }
}

/// The G that runs on this CPU.
pub(crate) fn running() -> Option<&'static G<Task>> {
    let g = running_or_none();
    (!core::ptr::eq(g, &NO_G)).then_some(g)
}

/// The G that runs on that CPU, if one does; it may be another by now.
pub(crate) fn running_on(cpu: usize) -> Option<&'static G<Task>> {
    let g = arch::slot_of::<G_SLOT>(cpu) as *const G<Task>;
    // SAFETY: as in `running_or_none`; null on the host, where `begin` is not called.
    unsafe { g.as_ref() }.filter(|&g| !core::ptr::eq(g, &NO_G))
}

/// The G that runs on this CPU, or [`NO_G`].
#[inline(always)]
pub(crate) fn running_or_none() -> &'static G<Task> {
    let g = arch::slot::<G_SLOT>() as *const G<Task>;
    // SAFETY: set by `begin`, or by `execute` from a G, which lives for ever.
    unsafe { &*g }
}

/// Whether a G runs on this CPU; if not, its M does.
pub fn is_running() -> bool {
    running().is_some()
}
