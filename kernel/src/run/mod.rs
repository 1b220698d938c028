//! What every M runs: find a G, switch to it, deal with how it came back.
//!
//! `sched` decides, this module acts: it switches stacks, sends the wake-ups and halts. Each CPU has
//! a record ([`Cpu`]) with the P that it holds, and an M ([`m::M`]) on whose stack it schedules. A G
//! leaves its CPU by switching to the M's stack with a word that says why (`Leaving`); the M, off
//! the G's stack, tells `sched`.
//!
//! Code that touches the record has an [`OnCpu`], which exists only while interrupts are off and
//! which a switch uses up. Everything above this module that a switch, a tick or a halt must call
//! is in the one table of [`hooks`].
//!
//! # Which M
//!
//! CPU and P stay together; the M may change. A G in a blocking call ([`mod@call`]) is *on* the stack
//! of its M, so when the G leaves, that M leaves with it: the G switches to a spare M, which continues
//! as if the G had come back to it. When such a G runs again, on any CPU, its own M displaces the M
//! there, which becomes the spare one.
//!
//! So code that returns from a switch may be on another CPU than before, and the G that left there
//! need not be the G that it switched to: it reads both from the CPU's record again.
//!
//! Interrupts are off on the M's stack and during every switch. A G runs with interrupts on; it turns
//! them off to touch the P of its CPU ([`with_p`]), so that it stays on that CPU meanwhile.

pub(crate) mod account;
pub(crate) mod call;
pub(crate) mod cpu;
pub(crate) mod door;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod hooks;
pub(crate) mod interrupt;
pub(crate) mod job;
pub(crate) mod kill;
pub(crate) mod m;
pub(crate) mod permit;
pub(crate) mod poller;
pub(crate) mod preempt;
pub(crate) mod proc;
pub(crate) mod program;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod roster;
pub(crate) mod service;
pub(crate) mod spawn;
pub(crate) mod sys;
pub(crate) mod task;
pub mod time;
pub(crate) mod timer;
pub(crate) mod unwind;
pub(crate) mod view;
pub mod waiting;

pub use call::{Handoff, call};
pub use interrupt::{on_device, on_tick, on_wake, preempted, ready_from_interrupt};
pub use job::{InlineCell, Job, Joiner, WORKER_WORD, Work, pair, pair_in, worker_in};
pub use m::{BlockingError, MState};
pub use preempt::set_timer;
pub use proc::{
    ask_for_upkeep, begin_park, cancel_park, may_spin, may_wait, park, park_from, park_until,
    ready, ready_from, wait_for_memory, yield_now,
};
pub use program::{Ended, ProgramId};
pub use record::{Label, Link, Record, Registry};
pub use roster::{is_gone, me};
pub use spawn::spawn;
pub use task::{GHandle, Task, begin_panic, current, end_panic, is_in_call, is_panicking};
pub use view::{
    all_idle, ask_at_rest, ask_for_attention, busy, created, created_and_ended, current_id,
    cycles_run, gomaxprocs, has_work, is_busy, lives_changed, num_goroutines, permit, present,
    program, progress, random, set_gomaxprocs, slices_begun, spare_at_rest, spare_attention,
    take_permit, this,
};

pub(crate) use cpu::{Cpu, OnCpu, this_cpu, try_this_cpu, with_p};
pub(crate) use event::{Event, Kind, What};
pub(crate) use permit::Permit;
pub(crate) use proc::{Leaving, leave, schedule, send, submitted, wake_cpu};
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
pub(crate) static NO_G: G<Task> = G::new(Task::new(roster::NO_G_NAME));

/// Marks all CPUs as running no G. Called before everything else: after it, `running` is valid.
pub fn begin() {
    arch::set_all_slots::<G_SLOT>(core::ptr::from_ref(&NO_G).addr());
}

/// Sets the number of Ps, the order in which they look for Gs and how they are handed off; once,
/// before any CPU calls [`init_cpu`].
pub fn init(ps: Option<usize>, order: Order, handoff: Handoff) {
    SCHED.set_order(order);
    call::init(handoff);
    // No CPU schedules yet, so there is no CPU to notify.
    let _ = SCHED.set_limit(ps.unwrap_or(usize::MAX).min(arch::num_cpus()));
}

/// Gives this CPU its P and its M.
pub fn init_cpu(seed: Option<u64>) {
    let index = arch::cpu_index();
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let p = SCHED.acquire(index, seed).expect("P taken");
    let cpu = &CPUS[index];
    cpu.random.set(seed ^ (index as u64) << 32);
    cpu.m.set(Some(M::create(schedule).expect("no memory for an M")));
    cpu.slices.begin(arch::cycles());
    ring::init_cpu();
    cpu.install(p);
}

/// Switches from the boot stack to that of this CPU's M (Go: mstart). Interrupts off.
pub fn mstart() -> ! {
    assert!(!arch::irq::enabled(), "irqs on");
    // SAFETY: 1. See above. 2. `init_cpu` came before. 3. This CPU schedules nothing yet.
    let on = unsafe { OnCpu::assume() };
    let (save, sp) = (on.cpu().sp.as_ptr(), on.cpu().m().resume());
    // SAFETY: 1. made by `M::create`, not used yet. 2. No code returns to the stack that is left.
    // 3. Interrupts are off.
    unsafe { on.switch(save, sp) };
    unreachable!("a CPU came back from its M")
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
