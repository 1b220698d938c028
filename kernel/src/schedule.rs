//! What every M runs: find a G, switch to it, deal with how it came back.
//!
//! `sched` decides, this file acts: it switches stacks, sends the wake-ups and
//! halts. Each CPU has a record ([`Cpu`]) with the P that it holds, and an M
//! ([`m::M`]) on whose stack it schedules. A G leaves its CPU by switching to the
//! M's stack with a word that says why ([`Leaving`]); the M, off the G's stack,
//! tells `sched`.
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
//! interrupts on; it turns them off to touch the P of its CPU ([`with_p`]), so
//! that it stays on that CPU meanwhile.

mod account;
mod beside;
mod birth;
mod call;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
mod census;
mod full;
mod holder;
mod index;
mod interrupt;
mod kill;
mod m;
mod relief;
mod roster;
mod task;
mod turn;
mod view;
mod wait;
mod watch;

#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use beside::{Beside, forget as forget_beside, longest as longest_beside};
pub use birth::spawn;
pub use call::{Handoff, call};
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use census::{Census, Queued};
pub use full::{
    Full, begin_full, end_without_memory, give_up, is_full, is_in_call, leave_behind,
    preempt_later, room_to_preempt, stack_full,
};
pub use holder::{Waiting, abandon_locks, is_gone, me, waits_for_another};
pub use interrupt::{
    arrive, may_be_preempted, must_leave, needs_timer, next_deadline, note_chance,
    ready_from_interrupt, set_timer, wake_sleepers,
};
pub use kill::{
    Doom, Left, Vigil, abandoned, begin_tending, computes, die, end_tending, ends_when_woken, find,
    heed_kill, is_killed, kill, kill_all, program_of, was_killed,
};
pub use m::{MAX_MS, MInfo, MState, NoM, ms};
pub use relief::wait_for_relief;
pub use roster::{calls, gs, info, members, with_calls};
pub use task::{GHandle, Task, begin_panic, current, end_panic, is_panicking};
pub use turn::ask_for_upkeep;
pub use view::{
    all_idle, busy, created, current_id, cycles_run, gomaxprocs, lives_changed, num_goroutines,
    permit, program, random, set_gomaxprocs, slices_begun, stats, take_permit, this,
};
pub use wait::{
    begin_park, cancel_park, may_spin, may_wait, park, park_from, park_until, ready, ready_from,
    yield_now,
};
pub use watch::{
    PInfo, SchedInfo, ask_for_attention, count_attendant, discount_attendant, has_work, is_busy,
    present, progress, ps, sched_info, spare_attention,
};

use crate::arch::{self, irq::IrqState};
use crate::cell::Link;
use crate::chaos;
use crate::go::JoinError;
use crate::mem::percpu::Here;
use crate::preempt;
use crate::stats::Counters;
use crate::timer::Timers;
use crate::trace::{self, Kind};
use account::CpuTimes;
use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use m::M;
use sched::{G, Order, P, PSlot, Sched, Wake};
use turn::m_main;

/// The scheduling state of one CPU.
struct Cpu {
    /// Where the stack pointer of its M was when that switched to a G.
    sp: Cell<usize>,
    /// The M on whose stack it schedules; there from `init_cpu` on.
    m: Link<M>,
    /// A spare M that takes over when the current M leaves with a call.
    spare: Cell<Option<&'static M>>,
    /// The M that was displaced by the M of a G in a call, which puts it on the spare list.
    made_room: Cell<Option<&'static M>>,
    /// Why the G that ran has left.
    leaving: Cell<Leaving>,
    /// The slice under way.
    slices: preempt::Slices,
    /// The P of this CPU; there from `init_cpu` on.
    p: UnsafeCell<MaybeUninit<P<Task>>>,
    /// The state of `view::random`.
    random: Cell<u64>,
    /// Any CPU reads it.
    counters: Counters,
    /// Any CPU reads it.
    times: CpuTimes,
    /// Why the G that is just being abandoned ends, if it recorded a reason.
    last_words: Cell<Option<JoinError>>,
}

// SAFETY: only its own CPU touches it, with interrupts off, except for the atomic fields.
unsafe impl Sync for Cpu {}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            sp: Cell::new(0),
            m: Link::new(),
            spare: Cell::new(None),
            made_room: Cell::new(None),
            leaving: Cell::new(Leaving::Exit),
            slices: preempt::Slices::new(),
            p: UnsafeCell::new(MaybeUninit::uninit()),
            random: Cell::new(0),
            counters: Counters::new(),
            times: CpuTimes::new(),
            last_words: Cell::new(None),
        }
    }

    /// Calls `f` with the P of this CPU.
    ///
    /// # Safety
    /// This is the record that [`this_cpu`] or [`try_this_cpu`] gave, interrupts
    /// are off since, and `f` calls nothing that comes here again: so there is
    /// no second borrow.
    #[inline(always)]
    unsafe fn with_p<R>(&self, f: impl FnOnce(&mut P<Task>) -> R) -> R {
        // SAFETY: the caller's promise.
        let p = unsafe { &mut *self.p.get() };
        // SAFETY: a record that `this_cpu` gives has its P.
        f(unsafe { p.assume_init_mut() })
    }

    /// The M on whose stack this CPU schedules.
    fn m(&self) -> &'static M {
        self.m.get().expect("no M here")
    }
}

/// The record of this CPU.
///
/// # Safety
/// On a CPU that has been through [`init_cpu`]: every CPU that runs Gs. Good
/// while interrupts stay off, and until the next switch.
#[inline(always)]
unsafe fn this_cpu() -> &'static Cpu {
    // SAFETY: `init_cpu` has put a pointer to a static there.
    unsafe { &*(arch::slot::<CPU_SLOT>() as *const Cpu) }
}

/// The record of this CPU, if `init_cpu` has run here. Interrupts off.
fn try_this_cpu() -> Option<&'static Cpu> {
    // SAFETY: null until `init_cpu` has put a pointer to a static there.
    unsafe { (arch::slot::<CPU_SLOT>() as *const Cpu).as_ref() }
}

/// The slice under way on this CPU, if it runs Gs yet. Interrupts off.
pub(crate) fn slices() -> Option<&'static preempt::Slices> {
    try_this_cpu().map(|cpu| &cpu.slices)
}

/// Why a G has switched to its M.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It yields: other Gs run first.
    Yield,
    /// It yields, and is in a call.
    YieldInCall,
    /// It has begun to park, and is in a call.
    ParkInCall,
    /// Its slice is over.
    Expire,
    /// An interrupt has readied another that is in a hurry.
    Displace,
    /// It has called `begin_park` and has published its handle to a waker.
    Park,
    /// Its work is done.
    Exit,
    /// It can neither continue nor unwind: see `full`.
    Abandon,
}

impl Leaving {
    fn kind(self) -> Kind {
        match self {
            Leaving::Yield | Leaving::YieldInCall => Kind::Yield,
            Leaving::Expire => Kind::Expire,
            Leaving::Displace => Kind::Displace,
            Leaving::Park | Leaving::ParkInCall => Kind::Park,
            Leaving::Exit | Leaving::Abandon => Kind::Exit,
        }
    }
}

static SLOTS: [PSlot<Task>; arch::MAX_CPUS] = [const { PSlot::new() }; arch::MAX_CPUS];
static SCHED: Sched<Task> = Sched::new(&SLOTS);
static TIMERS: Timers<G<Task>> = Timers::new();
static CPUS: [Cpu; arch::MAX_CPUS] = [const { Cpu::new() }; arch::MAX_CPUS];

/// Seeds the order of stealing unless the command line does.
const DEFAULT_SEED: u64 = 1;

/// The per-CPU word that names the running G, or [`NO_G`].
const G_SLOT: usize = 0;
/// The per-CPU word that points to its [`Cpu`], 0 before it has a P.
const CPU_SLOT: usize = 1;

/// Placeholder for "no G runs here". It never runs and is in no queue. It has a lock name, so
/// taking a lock needs no check whether a G runs (saves 4 of a lock's 16 instructions).
static NO_G: G<Task> = G::new(Task::new(holder::NOBODY));

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
    // SAFETY: this CPU's own record; no code reads it before the next lines.
    unsafe { (*cpu.p.get()).write(p) };
    cpu.slices.begin(arch::cycles());
    trace::init_cpu();
    arch::set_slot::<CPU_SLOT>(core::ptr::from_ref(cpu).addr());
}

/// Switches from the boot stack to that of this CPU's M (Go: mstart). Interrupts off.
pub fn mstart() -> ! {
    assert!(!arch::irq::enabled(), "irqs on");
    // SAFETY: `init_cpu` came before.
    let cpu = unsafe { this_cpu() };
    let sp = cpu.m().come_on();
    // SAFETY: 1. made by `M::create`, not used yet. 2. No code returns to the stack that is left.
    // 3. Interrupts are off.
    unsafe { arch::switch(cpu.sp.as_ptr(), sp) };
    unreachable!("a CPU came back from its M")
}

/// Switches from the running G to its M (Go: mcall); returns when the G runs again.
#[inline(always)]
fn leave(why: Leaving) {
    leave_by(running().expect("no G to leave"), why);
}

/// As [`leave`], for a caller that knows the running G.
#[inline(always)]
fn leave_by(g: &'static G<Task>, why: Leaving) {
    arch::probe_stack_again();
    let irqs = arch::irq::disable();
    // A G that left with a lock held or interrupts off would take both along.
    assert!(irqs.were_on(), "irqs off");
    leave_now(g, why);
    arch::irq::restore(irqs);
}

/// As [`leave`], with interrupts off before and after.
#[inline(always)]
fn leave_now(g: &'static G<Task>, why: Leaving) {
    if g.kernel.m.get().is_some() {
        return call::leave(g, why);
    }
    // SAFETY: a G runs here.
    let cpu = unsafe { this_cpu() };
    cpu.leaving.set(why);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G here. 2. No CPU runs
    // this G before the M has told `sched`, which is after the switch. 3. Interrupts are off.
    unsafe { arch::switch(g.kernel.sp.as_ptr(), cpu.sp.get()) };
}

/// Makes a G runnable by `f`, sends the wake-up, and arms the timer if the calling G must be
/// preempted for it.
#[inline(always)]
fn submit(f: impl FnOnce(&Cpu, &mut P<Task>) -> Wake) {
    arch::probe_stack_again();
    // Interrupts stay off until the wake-up is sent: `sched` expects a CPU that it has claimed to
    // come, and a G preempted in between would delay the wake-up until it runs again.
    let irqs = arch::irq::disable();
    // SAFETY: every caller comes after `init_cpu`.
    let cpu = unsafe { this_cpu() };
    let ready = |p: &mut P<Task>| {
        let wake = f(cpu, p);
        if !cpu.slices.is_timed() && is_running() && SCHED.needs_timer(p) {
            cpu.slices.arm();
        }
        wake
    };
    // SAFETY: this CPU's own record, interrupts off.
    send(unsafe { cpu.with_p(ready) });
    arch::irq::restore(irqs);
}

/// Calls `f` with the P of this CPU, interrupts off.
#[inline(always)]
fn with_p<R>(f: impl FnOnce(&mut P<Task>) -> R) -> R {
    let irqs = arch::irq::disable_probed();
    // SAFETY: every caller comes after `init_cpu`.
    let cpu = unsafe { this_cpu() };
    // SAFETY: this CPU's own record, interrupts off.
    let result = unsafe { cpu.with_p(f) };
    arch::irq::restore(irqs);
    result
}

/// Carries out a wake-up, and [`tell_untimed`].
#[inline(always)]
fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        wake_cpu(cpu);
    }
    tell_untimed();
}

/// Interrupts each CPU that runs a G without a timer if a G now waits for that CPU.
#[inline(always)]
fn tell_untimed() {
    while let Some(cpu) = SCHED.take_untimed() {
        // This CPU checks for itself: before it called, or when it runs a G next.
        if cpu != arch::cpu_index() {
            wake_cpu(cpu);
        }
    }
}

/// Interrupts a CPU, so that it looks for Gs.
#[cold]
fn wake_cpu(cpu: usize) {
    let here = Here::enter(); // counted where it is done
    CPUS[here.index()].counters.wakes.add_one();
    trace::cpu_event(Kind::WakeSent, cpu as u32);
    if !chaos::puts_off(&here, cpu) {
        arch::wake(cpu);
    }
}

/// The G that runs on this CPU.
fn running() -> Option<&'static G<Task>> {
    let g = running_or_none();
    (!core::ptr::eq(g, &NO_G)).then_some(g)
}

/// The G that runs on that CPU, if one does; it may be another by now.
fn running_on(cpu: usize) -> Option<&'static G<Task>> {
    let g = arch::slot_of::<G_SLOT>(cpu) as *const G<Task>;
    // SAFETY: as in `running_or_none`; null on the host, where `begin` is not called.
    unsafe { g.as_ref() }.filter(|&g| !core::ptr::eq(g, &NO_G))
}

/// The G that runs on this CPU, or [`NO_G`].
#[inline(always)]
fn running_or_none() -> &'static G<Task> {
    let g = arch::slot::<G_SLOT>() as *const G<Task>;
    // SAFETY: set by `begin`, or by `execute` from a G, which lives for ever.
    unsafe { &*g }
}

/// Whether a G runs on this CPU; if not, its M does.
pub fn is_running() -> bool {
    running().is_some()
}

/// The `preempt` of [`arch::Handlers`] (Go: asyncPreempt2): the running G leaves, if it must.
/// Between the interrupt and now it may have left and come back.
pub fn preempted() {
    let g = running().expect("no G to preempt");
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    if kill::is_abandoned(g) {
        kill::abandon(g);
    }
    // SAFETY: a G runs here.
    let why = match unsafe { this_cpu() }.slices.verdict() {
        preempt::Verdict::GoOn => None,
        preempt::Verdict::Expire => Some(Leaving::Expire),
        preempt::Verdict::Displace => Some(Leaving::Displace),
    };
    if let Some(why) = why {
        leave_now(g, why);
    }
    arch::irq::restore(IrqState::ON);
}
