//! How a CPU goes from G to G: find one, switch to it, requeue it when it leaves; how a G leaves,
//! and how it is readied (Go: proc.go).
//!
//! [`schedule`] is the loop that every M runs on its own stack, interrupts off, and the hottest path
//! of the kernel: all that a switch does is in [`execute`] and [`came_back`] and what they inline.
//! Rare work leaves it by one branch: [`searched`] if the G was not in the P's own queue, [`stop_m`]
//! if there is no G, [`attend`] if an attention bit is set other than that for tracing alone.
//!
//! A G parks in two halves, so that no wake-up is lost between the decision to wait and the switch:
//! [`begin_park`] and [`park`] (`door`, "How to wait").
//!
//! # Why by way of the M's stack
//!
//! A G that leaves could switch straight to the next G, which would then queue it. That would save
//! one switch of two, which is eight instructions (`arch`, `switch`), and cost more:
//!
//! - A G may be in no queue before its context is saved. So the next G would have to be found
//!   before the leaving G is queued: a G that yields would be in no queue and invisible to thieves
//!   meanwhile (`sched`, "A G in transit"), and alone on its CPU it would find no G, not even
//!   itself.
//! - The next G would owe the rest of that leaving, wherever it continues: at the root of a new G,
//!   after a park, after an interrupt, in a call on the stack of another M. Here the rest is in one
//!   place, [`came_back`].
//! - A G that has ended would have to be recycled by another G, on whose stack there may be little
//!   room.
//!
//! # One reading of the clock
//!
//! The counter is read when a G has left. That is the end of its time on the CPU, the end of the next
//! G's time in the queue, the beginning of that G's slice, and the time of the event that records
//! both. So [`came_back`] gives it to the next round ([`Last`]), and the kernel's time in between is
//! charged to the next G. Only code that has done something longer reads it again.

use super::account::Spent;
use super::kill;
use super::preempt::Attention;
use super::ring;
use super::task::{GHandle, Task};
use super::waiting::Wait;
use super::{
    CPUS, Cpu, Event, G_SLOT, Kind, NO_G, OnCpu, SCHED, TIMERS, What, all_idle, busy, call,
    cycles_run, hooks, is_running, running, running_or_none, set_timer, spawn, try_this_cpu,
};
use crate::arch;
use crate::arch::irq::IrqState;
use crate::mem::percpu::Here;
use crate::mem::{self, reclaim};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use sched::{G, Next, P, Run, Slice, Status, Stop, Wake};

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

/// How this CPU came to look for a G: what one switch passes to the next.
#[derive(Clone, Copy)]
struct Last {
    /// The cycle counter then: a switch reads it only once.
    at: u64,
    /// The event of the next G's start: it says why the last G left, unless that was traced already.
    start: What,
}

impl Last {
    /// As of now, with no G that has left.
    fn now() -> Self {
        Last { at: arch::cycles(), start: What::START }
    }

    /// Traces why a G has left as an event of its own: something longer precedes the next start.
    fn trace(self) {
        if hooks::is_traced()
            && let Some(left) = self.start.left_before()
        {
            (hooks::get().event_at)(self.at, 0, left);
        }
    }
}

/// The root of every M, on its own stack (Go: mstart1, schedule). Each round finds a G and runs it
/// until it leaves, or halts.
pub(crate) extern "C" fn schedule(_: usize) -> ! {
    // SAFETY: 1, 2. An M is switched to with interrupts off, by a CPU that runs Gs. 3. The switch
    // has used up the one there was.
    let mut on = unsafe { OnCpu::assume() };
    // A spare M that takes over first deals with the G that has left with the M before it.
    let mut last = if is_running() { start_spare(&mut on) } else { Last::now() };
    loop {
        (on, last) = match SCHED.find_runnable(on.p()) {
            Next::Run(run) => execute(on, run, last),
            Next::Park(wake) => stop_m(on, wake, last),
        };
    }
}

/// As [`came_back`], on a fresh M.
#[inline(never)]
fn start_spare(on: &mut OnCpu<'_>) -> Last {
    came_back(on)
}

/// Switches to a G (Go: execute); returns when a G has left the CPU that this M is then on.
#[inline(always)]
fn execute<'a>(mut on: OnCpu<'a>, run: Run<Task>, mut last: Last) -> (OnCpu<'a>, Last) {
    // As separate values from here on: as one struct they would be put into memory.
    let Run { g, slice, wake, searched: has_searched } = run;
    if has_searched {
        last = searched(&mut on, g, wake, last);
    }
    match slice {
        Slice::Inherited => {}
        Slice::Resumed => on.cpu().slices.resume(last.at),
        Slice::New => {
            g.kernel.slices.set(g.kernel.slices.get() + 1);
            on.cpu().slices.begin(last.at);
        }
    }
    match on.cpu().slices.attention.get() {
        0 => {}
        Attention::TRACE => {
            let event = Event { time: last.at, g: g.id() as u32, what: start_of(slice, last) };
            // SAFETY: `Attention::TRACE` is set when the rings have memory. This CPU's own,
            // interrupts off.
            if unsafe { ring::here().push(event) } {
                (hooks::get().half_full)();
            }
        }
        _ => (on, last) = attend(on, g, slice, last),
    }
    if cfg!(debug_assertions) {
        (hooks::get().runs)(g, last.at);
    }
    let cpu = on.cpu();
    g.kernel.account.charge(Spent::Queued(&cpu.times), last.at);
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    let save = match g.kernel.m.get() {
        None => cpu.sp.as_ptr(),
        Some(own) => call::displace_m(cpu, own),
    };
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `leave`, and `sched` gives a G to one CPU
    // only, with its context saved. 2. As 1, and an M's stack is entered by the one CPU that has it.
    // 3. Interrupts are off.
    on = unsafe { on.switch(save, g.kernel.sp.get()) };
    let last = came_back(&mut on);
    (on, last)
}

/// A G was found elsewhere than in the P's own queue: that took a while, and a CPU may have to be
/// woken.
#[inline(never)]
fn searched(on: &mut OnCpu<'_>, g: &G<Task>, wake: Wake, last: Last) -> Last {
    last.trace();
    if let Some((victim, stolen)) = on.p().take_stolen() {
        hooks::event(Kind::Steal, g.id(), (victim as u32) << 12 | stolen.min(0xfff));
    }
    send(wake);
    Last::now()
}

#[inline(always)]
fn start_of(slice: Slice, last: Last) -> What {
    if slice == Slice::New {
        return last.start;
    }
    core::hint::cold_path(); // a branch, which costs the other case less than a choice of values
    last.start.on_same_slice()
}

/// Does what [`Attention`] says before a G runs.
#[inline(never)]
fn attend<'a>(
    mut on: OnCpu<'a>,
    g: &'static G<Task>,
    slice: Slice,
    mut last: Last,
) -> (OnCpu<'a>, Last) {
    if on.cpu().slices.attention.has(Attention::UPKEEP) {
        last.trace();
        on = upkeep(on);
        last = Last::now();
        if slice == Slice::New {
            on.cpu().slices.begin(last.at); // the time until now was not the G's
        }
    }
    let (cpu, p) = on.parts();
    // A timer that is armed already serves the next slice as well.
    if cpu.slices.chaos_on() || !cpu.slices.is_timed() && SCHED.needs_timer(p) {
        cpu.slices.arm();
    }
    if cpu.slices.attention.has(Attention::TRACED) {
        (hooks::get().event_at)(last.at, g.id(), start_of(slice, last));
    }
    (on, last)
}

/// Puts the G that has left this CPU where it now belongs (Go: park_m, gosched_m, goexit0).
#[inline(always)]
fn came_back(on: &mut OnCpu<'_>) -> Last {
    let (cpu, p) = on.parts();
    debug_assert!(is_running(), "no G came back");
    // `execute` has stored the G that it switched to, on this CPU, and only the next line clears
    // it; a G leaves a CPU by coming here.
    let g = running_or_none();
    arch::point_slot!(G_SLOT, NO_G);
    let at = arch::cycles();
    g.kernel.account.charge(Spent::Running(&cpu.times), at);
    // The most frequent reasons, with the least work.
    match cpu.leaving.get() {
        Leaving::Yield => {
            // It wakes no CPU; if the ring overflowed, the P owes a wake-up, and sends it when it
            // looks for a G next.
            let _ = SCHED.stopped(p, g, Stop::Yield);
            Last { at, start: What::start_after(Kind::Yield, 0) }
        }
        Leaving::Park => {
            // Before it is parked: from then on another CPU may own it.
            let start = What::start_after(Kind::Park, g.kernel.reason());
            // If its run-next place was taken and the ring overflowed, as above.
            let wake = SCHED.stopped(p, g, Stop::Park);
            if wake != Wake::Nobody {
                send(wake);
            }
            Last { at, start }
        }
        Leaving::Exit => {
            spawn::recycle(on, g);
            Last { at, start: What::start_after(Kind::Exit, 0) }
        }
        why => came_back_slow(on, g, why, at),
    }
}

/// The longer ways of leaving: the slice of the G is over or lent, or the G is abandoned.
#[cold]
fn came_back_slow(on: &mut OnCpu<'_>, g: &'static G<Task>, why: Leaving, at: u64) -> Last {
    let (cpu, p) = on.parts();
    let (kind, wake) = match why {
        Leaving::Displace => (Kind::Displace, SCHED.stopped(p, g, Stop::Displace)),
        Leaving::Abandon => {
            cpu.counters.ended.add_one();
            (hooks::get().finish_abandoned)(g, cpu.exit_reason.take());
            (Kind::Exit, Wake::Nobody)
        }
        _ => (Kind::Expire, SCHED.stopped(p, g, Stop::Expire)),
    };
    if hooks::is_traced() {
        (hooks::get().event_at)(at, 0, What::new(kind, 0));
    }
    send(wake);
    Last::now()
}

/// There is no G: does one thing that is left for a CPU without a G, or halts (Go: stopm). The caller
/// looks for Gs again.
#[inline(never)]
fn stop_m<'a>(mut on: OnCpu<'a>, wake: Wake, last: Last) -> (OnCpu<'a>, Last) {
    last.trace();
    send(wake);
    if on.cpu().slices.attention.has(Attention::UPKEEP) {
        on = upkeep(on);
    } else if !all_idle() {
        let is_watched = on.cpu().slices.at_rest.has(Attention::WATCHER);
        // If a G was readied, it is in the inbox.
        if !is_watched || !(hooks::get().poll_watcher)(busy()) {
            on = halt(on);
        }
    } else {
        let run = cycles_run();
        on = match (hooks::get().on_all_idle)(run) {
            Some(act) => on.open(|| act(run)),
            None => halt(on),
        };
    }
    (on, Last::now())
}

fn halt(mut on: OnCpu<'_>) -> OnCpu<'_> {
    debug_assert!(on.p().is_empty(), "halts with Gs");
    on.cpu().slices.idle();
    on.cpu().counters.halts.add_one();
    hooks::cpu_event(Kind::Halt, 0);
    let halted = arch::cycles();
    if cfg!(debug_assertions) {
        (hooks::get().halts)(halted);
    }
    on = on.halt();
    let now = arch::cycles();
    on.cpu().times.idled(now.wrapping_sub(halted));
    // The next G here does not inherit a slice from before the halt.
    on.cpu().slices.begin(now);
    if cfg!(debug_assertions) {
        (hooks::get().resumes)(now);
    }
    if on.cpu().slices.at_rest.has(Attention::WATCHDOG) {
        (hooks::get().after_halt)();
    }
    hooks::cpu_event(Kind::Resume, 0);
    on
}

/// Runs the memory upkeep: the fault reserve, unused stacks. With interrupts on, as it may wait for
/// the other CPUs; on the M's stack, so that it is not preempted and stays on this CPU.
#[cold]
fn upkeep(mut on: OnCpu<'_>) -> OnCpu<'_> {
    on.cpu().slices.attention.clear(Attention::UPKEEP);
    if mem::is_short() {
        spawn::trim(&mut on);
    }
    on.open(mem::maintain)
}

/// Asks for [`mem::maintain`] at the next round of this CPU's M: a page fault has used the reserve.
/// Any context.
pub fn ask_for_upkeep() {
    // None: a CPU that has run no G yet needs no upkeep.
    if let Some(cpu) = try_this_cpu() {
        cpu.slices.attention.set(Attention::UPKEEP);
    }
}

/// The running G leaves its CPU (Go: mcall); returns when it runs again. Interrupts are off; they
/// are on then, as they were before: `irqs`.
#[inline(always)]
pub(crate) fn leave(irqs: IrqState, g: &'static G<Task>, why: Leaving) {
    // A G that left with a lock held or interrupts off would take both along.
    assert!(irqs.were_on(), "irqs off");
    // SAFETY: 1. The caller has them off. 2. A G runs here. 3. Its caller has none: the G leaves.
    let on = unsafe { OnCpu::assume() };
    if g.kernel.m.get().is_some() {
        call::leave(on, g, why);
    } else {
        on.cpu().leaving.set(why);
        let sp = on.cpu().sp.get();
        // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G here. 2. No CPU
        // runs this G before the M has told `sched`, which is after the switch. 3. Interrupts are
        // off.
        unsafe { arch::switch(g.kernel.sp.as_ptr(), sp) };
    }
    arch::irq::restore(irqs);
}

/// Lets the other Gs of this P run first (Go: Gosched).
///
/// ```no_run
/// runnext::yield_now();
/// ```
#[inline(always)]
pub fn yield_now() {
    super::door::might_park();
    // A G may do nothing but yield for ever; a G that waits checks when it is woken.
    let g = running().expect("no G to leave");
    if g.kernel.kill.is_set() {
        kill::check_kill_at_spawn();
    }
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Yield);
}

/// The first half of waiting: from here on [`ready`] is not lost. Call it before publishing that
/// this G waits, and then [`park`].
#[inline(always)]
pub fn begin_park(wait: Wait) -> GHandle {
    let g = running().expect("no G to park");
    g.kernel.waiting.store(wait.pack(), Relaxed);
    // A reader that sees that it parks sees why (`holder::Seen`); no instruction on x86.
    fence(Release);
    g.begin_park()
}

/// The second half of waiting (Go: gopark): leaves the CPU until [`ready`] is called for it.
pub fn park() {
    let g = running().expect("no G to park");
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Park);
}

/// As [`park`], for a caller that has had interrupts off since before it released the lock of the
/// wait queue; then they are as they were. `g` is the running G.
#[inline(always)]
pub fn park_from(irqs: IrqState, g: GHandle) {
    leave(irqs, g.parts().0, Leaving::Park);
}

/// Whether spinning for another G makes sense (Go: sync_runtime_canSpin): that G can run meanwhile,
/// and no G waits for this CPU.
pub fn may_spin() -> bool {
    SCHED.limit() > 1 && SCHED.slots()[arch::cpu_index()].queued() == 0
}

/// Whether the caller can park here, for callers that have another way if not: it is a G that does
/// not park already, with interrupts on, and its stack was not full.
pub fn may_wait() -> bool {
    let can_park =
        |g: &'static G<Task>| g.status() == Status::Running && g.kernel.full.get().is_none();
    arch::irq::enabled() && running().is_some_and(can_park)
}

/// Takes back a [`begin_park`]. True if the G was readied meanwhile; that wake-up is consumed.
pub fn cancel_park() -> bool {
    running().expect("no G to park").cancel_park()
}

/// As [`park`], until `deadline_ns` at most; false if that came first.
pub fn park_until(deadline_ns: u64) -> bool {
    let g = running().expect("no G to park");
    if deadline_ns <= arch::now_ns() {
        return g.cancel_park(); // no switch; true if readied meanwhile
    }
    g.kernel.waits_until_some_time();
    set_timer(g, deadline_ns);
    park();
    TIMERS.cancel(g)
}

/// Readies a G that waits (Go: goready); a G that does not wait is left alone.
#[inline(never)]
pub fn ready(g: GHandle) {
    arch::probe_stack_again(); // the caller that took it from a wait queue has probed
    ready_from(arch::irq::disable(), g);
}

/// As [`ready`], for a caller that has had interrupts off since before it released the lock of the
/// wait queue. They are off until the wake-up is sent: `sched` expects a CPU that it has claimed to
/// come, and a G preempted in between would delay the wake-up until it runs again.
#[inline(always)]
pub fn ready_from(irqs: IrqState, g: GHandle) {
    // SAFETY: 1. The caller has them off, until `restore`. 2. Every caller comes after `init_cpu`.
    // 3. The caller has none.
    let mut on = unsafe { OnCpu::assume() };
    let (cpu, p) = on.parts();
    let attention = cpu.slices.attention.get();
    let wake = SCHED.ready(p, g, move |g, was| {
        // A G that is still on its CPU has waited for no time.
        if was == Status::Parked {
            g.kernel.account.charge(Spent::Waiting, arch::cycles());
        }
        if attention & Attention::TRACED != 0 {
            hooks::event(Kind::Ready, g.id(), 0);
        }
    });
    // In this order: where `sched` has found no CPU to wake, only `attention` is tested.
    match wake {
        Wake::Cpu(_) => submitted(cpu, p, wake),
        Wake::Nobody if attention != 0 => submitted(cpu, p, wake),
        Wake::Nobody => {}
    }
    arch::irq::restore(irqs);
}

/// The end of a submit that has found a CPU to wake, or an attention bit: sends the wake-up, and
/// arms the timer if the calling G must be preempted for the G that was submitted. Interrupts are
/// off since before the submit, as in [`ready_from`].
#[cold]
pub(crate) fn submitted(cpu: &Cpu, p: &P<Task>, wake: Wake) {
    if !cpu.slices.is_timed() && is_running() && SCHED.needs_timer(p) {
        cpu.slices.arm();
    }
    send(wake);
}

/// Carries out a wake-up, and interrupts each CPU that runs a G without a timer if a G now waits
/// for that CPU.
#[cold]
pub(crate) fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        wake_cpu(cpu);
    }
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

/// The [`reclaim::Wait`]: the running G leaves its CPU until the M there has reclaimed that many
/// pages. False if the G cannot leave here: with interrupts off, or when it is about to park. In a
/// blocking call it leaves with its M, and the spare M does the work. It does not check for a kill
/// request: an allocation does not unwind.
pub fn wait_for_memory(pages: usize) -> bool {
    let g = match running() {
        Some(g) if arch::irq::enabled() && g.status() == Status::Running => g,
        _ => return false,
    };
    let irqs = arch::irq::disable_probed();
    let request = reclaim::want(&Here::enter(), pages);
    ask_for_upkeep();
    leave(irqs, g, Leaving::Yield);
    // Another CPU may have stolen the G while the M still reclaims.
    while !request.is_done() {
        arch::probe_stack_again();
        leave(arch::irq::disable(), g, Leaving::Yield);
    }
    true
}
