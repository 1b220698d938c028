//! A G parks, yields and is readied: what [`crate::run::door`] calls.
//!
//! Waiting has two halves, so that no wake-up is lost between the decision to wait and the switch:
//! see `park`. How a G leaves its CPU is in `turn`.

use super::kill;
use super::preempt::Attention;
use super::task::{GHandle, Task};
use super::waiting::Wait;
use super::{
    Kind, Leaving, OnCpu, SCHED, TIMERS, hooks, leave, leave_now, running, submitted, with_cpu,
};
use crate::arch;
use crate::arch::irq::IrqState;
use crate::mem::percpu::Here;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::fence;
use sched::{G, Status};

/// Lets the other Gs of this P run first (Go: Gosched).
///
/// ```no_run
/// runnext::yield_now();
/// ```
#[inline(always)]
pub fn yield_now() {
    crate::run::door::might_park();
    // A G may do nothing but yield for ever; a G that waits checks when it is woken.
    let g = running().expect("no G to leave");
    if g.kernel.kill.is_set() {
        kill::check_kill_at_spawn();
    }
    leave(g, Leaving::Yield);
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
    leave(running().expect("no G to park"), Leaving::Park);
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
        with_cpu(|on| on.cpu().slices.arm_for_sleeper(deadline_ns));
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
    // SAFETY: 1. The caller has them off, until `restore`. 2. Every caller comes after `init_cpu`.
    // 3. The caller has none.
    let mut on = unsafe { OnCpu::assume() };
    let (cpu, p) = on.parts();
    let attention = cpu.slices.attention.get();
    let wake = SCHED.ready(p, g, move |g, was| {
        readied(g, was);
        if attention & Attention::TRACED != 0 {
            hooks::event(Kind::Ready, g.id(), 0);
        }
    });
    submitted(cpu, p, attention, wake);
    arch::irq::restore(irqs);
}

/// A G that waited was readied: counts how long it has waited.
#[inline(always)]
pub(crate) fn readied(g: &'static G<Task>, was: Status) {
    // A G that is still on its CPU has waited for no time.
    if was == Status::Parked {
        g.kernel.account.ready(arch::cycles());
    }
}
