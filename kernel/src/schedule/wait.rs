//! A G parks, yields and is readied: what [`crate::park`] calls.
//!
//! Waiting has two halves, so that no wake-up is lost between the decision to wait and the switch:
//! see `park`. How a G leaves its CPU is in `turn`.

use super::kill;
use super::task::{GHandle, Task};
use super::{
    Cpu, Leaving, SCHED, TIMERS, is_running, leave, leave_by, leave_now, running, send, this_cpu,
};
use crate::arch::{self, irq::IrqState};
use crate::mem::percpu::Here;
use crate::trace::{self, Kind};
use crate::waiting::Wait;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use sched::{G, P, ReadyRest, Status};

/// Lets the other Gs of this P run first (Go: Gosched).
///
/// ```no_run
/// runnext::yield_now();
/// ```
#[inline(always)]
pub fn yield_now() {
    crate::park::might_park();
    let g = running().expect("no G to leave");
    // A G may do nothing but yield for ever; a G that waits checks when it is woken.
    if g.kernel.kill.is_set() {
        kill::check_kill_now();
    }
    leave_by(g, Leaving::Yield);
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
    leave(Leaving::Park);
}

/// As [`park`], for a caller that has had interrupts off since before it released the lock of the
/// wait queue; interrupts are as they were when it returns. `g` is the running G.
#[inline(always)]
pub fn park_from(irqs: IrqState, g: GHandle) {
    // A G that left with another lock held would keep it held.
    assert!(irqs.were_on(), "irqs off");
    let (g, _) = g.parts();
    leave_now(g, Leaving::Park);
    arch::irq::restore(irqs);
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

/// Takes back a [`begin_park`]: the G need not wait after all. True if it was
/// readied meanwhile; that wake-up is consumed.
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
    let here = Here::enter(); // armed and set on one CPU
    if TIMERS.arm(&here, g, deadline_ns) {
        // SAFETY: a G runs here.
        unsafe { this_cpu() }.slices.arm_for_sleeper(deadline_ns);
    }
    drop(here);
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
/// wait queue; interrupts are as they were when it returns. They are off until the wake-up is sent:
/// `sched` expects a CPU that it has claimed to come, and a G preempted in between would delay the
/// wake-up until it runs again.
#[inline(always)]
pub fn ready_from(irqs: IrqState, g: GHandle) {
    // SAFETY: every caller comes after `init_cpu`.
    let cpu = unsafe { this_cpu() };
    // Fast path: no attention bit is set (no tracing, no kill), and the timer runs.
    let left = if cpu.slices.attention.get() == 0 {
        let note = |g: &G<Task>, _| g.kernel.account.ready(arch::cycles());
        // SAFETY: this CPU's own record, interrupts off.
        unsafe { cpu.with_p(|p| SCHED.ready_at_once(p, &g, note)) }
    } else {
        Err(ReadyRest::All)
    };
    // If nothing is left, no G went to the global queue: no CPU must be told.
    if let Err(rest) = left {
        ready_rest(cpu, g, rest);
    }
    arch::irq::restore(irqs);
}

/// Slow path of [`ready_from`]: does what is left.
#[cold]
fn ready_rest(cpu: &'static Cpu, g: GHandle, rest: ReadyRest<Task>) {
    let ready = |p: &mut P<Task>| {
        let wake = SCHED.ready_rest(p, g, rest, |g, was| readied(g, was, 0));
        // A G that readies another must be preempted in time for it.
        if !cpu.slices.is_timed() && is_running() && SCHED.needs_timer(p) {
            cpu.slices.arm();
        }
        wake
    };
    // SAFETY: this CPU's own record, interrupts off.
    send(unsafe { cpu.with_p(ready) });
}

/// Records that a G that waited was readied; `by` is the event's argument.
#[inline(always)]
pub(super) fn readied(g: &'static G<Task>, was: Status, by: u32) {
    // A G that is still on its CPU has waited for no time.
    if was == Status::Parked {
        g.kernel.account.ready(arch::cycles());
    }
    trace::event(Kind::Ready, || g.id(), by);
}
