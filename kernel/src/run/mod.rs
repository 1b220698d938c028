//! What every M runs: find a G, switch to it, deal with how it came back.
//!
//! `sched` decides, this module acts: it switches stacks, sends the wake-ups and
//! halts. Each CPU has a record ([`Cpu`]) with the P that it holds, and an M
//! ([`m::M`]) on whose stack it schedules. A G leaves its CPU by switching to the
//! M's stack with a word that says why ([`Leaving`]); the M, off the G's stack,
//! tells `sched`.
//!
//! Code that touches the record has an [`OnCpu`], which exists only while interrupts are off and
//! which a switch uses up. Everything above this module that a switch, a tick or a halt must call
//! is in the one table of [`hooks`].
//!
//! # Which M
//!
//! CPU and P stay together; the M may change. A G that is in a blocking call ([`mod@call`]) is *on*
//! the stack of its M, so when the G leaves, that M leaves with it: the G switches to a spare M,
//! which continues as if the G had come back to it. When such a G runs again, on any CPU, the M
//! there switches to it as to any other G and thereby becomes the spare M, because its CPU is now
//! on the stack of the G's own M.
//!
//! So code that returns from a switch may be on another CPU than before, and the G that left there
//! need not be the G that it switched to. It reads both from the CPU's record again and keeps
//! neither the CPU nor the G across the switch.
//!
//! Interrupts are off on the M's stack and during every switch. A G runs with
//! interrupts on; it turns them off to touch the P of its CPU ([`with_cpu`]), so
//! that it stays on that CPU meanwhile.

pub(crate) mod account;
pub(crate) mod call;
pub(crate) mod cpu;
pub(crate) mod door;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod hooks;
pub(crate) mod index;
pub(crate) mod interrupt;
pub(crate) mod job;
pub(crate) mod kill;
pub(crate) mod label;
pub(crate) mod link;
pub(crate) mod m;
pub(crate) mod name;
pub(crate) mod park;
pub(crate) mod permit;
pub(crate) mod poller;
pub(crate) mod preempt;
pub(crate) mod program;
pub(crate) mod reclaim;
pub(crate) mod registry;
pub(crate) mod ring;
pub(crate) mod roster;
pub(crate) mod service;
pub(crate) mod spawn;
pub(crate) mod sys;
pub(crate) mod task;
pub mod time;
pub(crate) mod timer;
pub(crate) mod turn;
pub(crate) mod unwind;
pub(crate) mod view;
pub mod waiting;

pub use call::{Handoff, call};
pub use spawn::spawn;

pub(crate) use event::{Event, Kind, What};

pub use interrupt::{on_device, on_tick, on_wake, preempted, ready_from_interrupt};
pub use preempt::set_timer;

pub use m::{BlockingError, MState};
pub use name::{is_gone, me};

pub use reclaim::wait_for_memory;

pub use park::{
    begin_park, cancel_park, may_spin, may_wait, park, park_from, park_until, ready, ready_from,
    yield_now,
};
pub use task::{GHandle, Task, begin_panic, current, end_panic, is_in_call, is_panicking};
pub use turn::ask_for_upkeep;
pub use view::{
    all_idle, ask_for_attention, busy, count_service_g, created, created_and_ended, current_id,
    cycles_run, discount_service_g, gomaxprocs, has_work, is_busy, lives_changed, num_goroutines,
    permit, present, program, progress, random, set_gomaxprocs, slices_begun, spare_attention,
    take_permit, this,
};

use crate::arch;
use crate::mem::percpu::Here;
use crate::run::timer::Timers;
pub(crate) use cpu::{Cpu, OnCpu, this_cpu, try_this_cpu, with_cpu, with_p};
use m::M;
use sched::{G, Order, P, PSlot, Sched, Wake};
use turn::m_main;

/// The slice under way on this CPU, if it runs Gs yet. Interrupts off.
pub(crate) fn slices() -> Option<&'static preempt::Slices> {
    try_this_cpu().map(|cpu| &cpu.slices)
}

/// Why a G has switched to its M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It yields: other Gs run first.
    Yield,
    /// It has called `begin_park` and has published its handle to a waker.
    Park,
    /// Its work is done.
    Exit,
    /// Its slice is over.
    Expire,
    /// An interrupt has readied another that is in a hurry.
    Displace,
    /// It can neither continue nor unwind: see `abandon`.
    Abandon,
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
pub(crate) static NO_G: G<Task> = G::new(Task::new(name::NOBODY));

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

/// Makes `sched` draw its choices at random, for `chaos`.
pub fn be_random(seed: u64) {
    SCHED.be_random(seed);
}

/// Gives this CPU its P and its M.
pub fn init_cpu(seed: Option<u64>) {
    let index = arch::cpu_index();
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let p = SCHED.acquire(index, seed).expect("P taken");
    let cpu = &CPUS[index];
    cpu.random.set(seed ^ (index as u64) << 32);
    cpu.m.set(Some(M::create(m_main).expect("no memory for an M")));
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

/// The running G, with interrupts on, switches to its M (Go: mcall); returns when it runs again.
#[inline(always)]
pub(crate) fn leave(g: &'static G<Task>, why: Leaving) {
    arch::probe_stack_again();
    let irqs = arch::irq::disable();
    // A G that left with a lock held or interrupts off would take both along.
    assert!(irqs.were_on(), "irqs off");
    leave_now(g, why);
    arch::irq::restore(irqs);
}

/// As [`leave`], with interrupts off before and after.
#[inline(always)]
pub(crate) fn leave_now(g: &'static G<Task>, why: Leaving) {
    let sp = {
        // SAFETY: 1. The caller has them off. 2. A G runs here. 3. Its caller has none: the G leaves.
        let on = unsafe { OnCpu::assume() };
        if g.kernel.m.get().is_some() {
            return call::leave(on, g, why);
        }
        on.cpu().leaving.set(why);
        on.cpu().sp.get()
    };
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G here. 2. No CPU runs
    // this G before the M has told `sched`, which is after the switch. 3. Interrupts are off.
    unsafe { arch::switch(g.kernel.sp.as_ptr(), sp) };
}

/// The end of every submit: sends the wake-up, and arms the timer if the calling G must be
/// preempted for the G that was submitted.
///
/// `attention` is what [`preempt::Attention`] said before.
///
/// Interrupts are off since before the submit: `sched` expects a CPU that it has claimed to come,
/// and a G preempted in between would delay the wake-up until it runs again.
#[inline(always)]
pub(crate) fn submitted(cpu: &Cpu, p: &P<Task>, attention: u32, wake: Wake) {
    // In this order: where `sched` has found no CPU to wake, only `attention` is tested.
    match wake {
        Wake::Cpu(_) => finish_submit(cpu, p, wake),
        Wake::Nobody if attention != 0 => finish_submit(cpu, p, wake),
        Wake::Nobody => {}
    }
}

#[cold]
pub(crate) fn finish_submit(cpu: &Cpu, p: &P<Task>, wake: Wake) {
    if !cpu.slices.is_timed() && is_running() && SCHED.needs_timer(p) {
        cpu.slices.arm();
    }
    send(wake);
}

/// Carries out a wake-up, and [`tell_untimed`].
#[cold]
pub(crate) fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        wake_cpu(cpu);
    }
    tell_untimed();
}

/// Interrupts each CPU that runs a G without a timer if a G now waits for that CPU.
pub(crate) fn tell_untimed() {
    while let Some(cpu) = SCHED.take_untimed() {
        // This CPU checks for itself: before it called, or when it runs a G next.
        if cpu != arch::cpu_index() {
            wake_cpu(cpu);
        }
    }
}

/// Interrupts a CPU, so that it looks for Gs.
#[cold]
pub(crate) fn wake_cpu(cpu: usize) {
    let here = Here::enter(); // counted where it is done
    let own = &CPUS[here.index()];
    own.counters.wakes.add_one();
    hooks::cpu_event(Kind::WakeSent, cpu as u32);
    if !own.slices.chaos_on() || !(hooks::get().defers_wake)(&here, cpu) {
        arch::wake(cpu);
    }
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
pub use job::{InlineCell, Job, Joiner, WORKER_WORD, Work, pair, pair_in, worker_in};
pub use label::Label;
pub use link::Link;
pub(crate) use permit::Permit;
pub(crate) use program::{BOOT, Instance, KERNEL};
pub use program::{Ended, ProgramId};
pub use registry::{Older, Record, Registry};
