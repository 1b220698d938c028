//! Interrupt handlers: ticks, wake-ups, the end of every interrupt, preemption.
//!
//! A handler touches no run queue: it puts Gs into the inbox of its CPU ([`ready_from_interrupt`])
//! and has them moved to the queue at its end ([`finish`]), when this CPU cannot be in the middle
//! of a queue operation. There it is also decided whether the interrupted G continues. How long a
//! slice is, and when the timer is armed, is in `preempt`. Interrupts are off here.

use super::account::Spent;
use super::preempt::Attention;
use super::task::{GHandle, Task};
use super::{Cpu, Kind, Leaving, OnCpu, SCHED, TIMERS, hooks, leave, running, send, wake_cpu};
use crate::arch::irq::IrqState;
use crate::arch::{self, Afterwards};
use crate::mem::reclaim;
use sched::{G, P, Status, Wake};

/// The `tick` of [`arch::Handlers`]: the timer of this CPU has fired.
pub fn on_tick() -> Afterwards {
    // SAFETY: 1. A handler. 3. It has come where interrupts were on, and none is in use.
    // None: a CPU that is still coming up tests its timer.
    let Some(on) = (unsafe { OnCpu::in_handler() }) else { return Afterwards::Resume };
    let (slices, now_ns) = (&on.cpu().slices, arch::now_ns());
    if let Some(late_ns) = slices.fired(now_ns) {
        hooks::cpu_event(Kind::Tick, (late_ns / 1_000).try_into().unwrap_or(u32::MAX));
        if slices.at_rest.has(Attention::WATCHER) {
            (hooks::get().poll_watcher)(usize::MAX); // if readied, it arrives at the end
        }
    }
    while let Some(alarm) = slices.take_due(now_ns) {
        (hooks::get().alarm)(alarm, now_ns);
    }
    TIMERS.on_tick(arch::cpu_index(), now_ns);
    finish(on)
}

/// The `wake` of [`arch::Handlers`]: another CPU has work for this one.
pub fn on_wake() -> Afterwards {
    hooks::cpu_event(Kind::WakeReceived, 0);
    on_device()
}

/// The end of every device interrupt: queues the Gs that its driver has readied.
pub fn on_device() -> Afterwards {
    // SAFETY: as in `on_tick`.
    unsafe { OnCpu::in_handler() }.map_or(Afterwards::Resume, finish)
}

/// The end of every interrupt: moves the Gs that it has readied from the inbox to the queue (Go:
/// injectglist), and decides whether the running G must leave for another; if not, sees that the
/// timer is armed for what is left of its slice.
fn finish(mut on: OnCpu<'_>) -> Afterwards {
    let (cpu, p) = on.parts();
    let arrival = SCHED.arrive(p);
    send(arrival.wake);
    let mut afterwards = Afterwards::Resume;
    // Else on the stack of the M, or about to be: the M looks for Gs itself. A G that is about to
    // park is not preempted: its state is no longer its CPU's alone.
    if let Some(g) = running().filter(|g| g.status() == Status::Running) {
        if arrival.displace {
            cpu.slices.is_urgent.set(true);
        }
        g.kernel.kill.count_chance();
        if why_to_leave(cpu, p, g).is_some() {
            afterwards = Afterwards::Preempt;
        } else if !cpu.slices.is_timed() && SCHED.needs_timer(p) {
            cpu.slices.arm();
        }
    }
    cpu.slices.arm_for_deadlines();
    afterwards
}

/// Why the running G must leave, if it must: its kill is forced; this CPU's P may run Gs no more; the
/// M has to reclaim memory for its stack; or another G is to run.
fn why_to_leave(cpu: &Cpu, p: &P<Task>, g: &'static G<Task>) -> Option<Leaving> {
    if g.kernel.kill.is_set() && super::kill::is_forced(g) {
        return Some(Leaving::Abandon);
    }
    let index = arch::cpu_index();
    if g.pin().is_none() && index >= SCHED.limit() || reclaim::is_wanted(index) {
        return Some(Leaving::Expire);
    }
    cpu.slices.why_to_leave(arch::cycles(), || SCHED.needs_timer(p))
}

/// The `preempt` of [`arch::Handlers`] (Go: asyncPreempt2): the running G leaves, if it must.
/// Between the interrupt and now it may have left and come back.
pub fn preempted() {
    let g = running().expect("no G to preempt");
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    // SAFETY: 1. See above. 2. A G runs here. 3. It has no other, and `leave` comes after.
    let mut on = unsafe { OnCpu::assume() };
    let (cpu, p) = on.parts();
    let why = why_to_leave(cpu, p, g);
    cpu.slices.carry_out(why);
    if let Some(why) = why {
        return leave(IrqState::ON, g, why);
    }
    arch::irq::restore(IrqState::ON);
}

/// As [`super::ready`], for an interrupt handler: puts the G into the inbox of this CPU, or of that
/// which it is pinned to. The handler ends with [`finish`].
pub fn ready_from_interrupt(g: GHandle) {
    let cpu = arch::cpu_index();
    let note = |g: &'static G<Task>, was| {
        if was == Status::Parked {
            g.kernel.account.charge(Spent::Waiting, arch::cycles());
        }
        hooks::event(Kind::Ready, g.id(), 1);
    };
    match SCHED.ready_from_interrupt(cpu, g, note) {
        Wake::Cpu(other) if other != cpu => wake_cpu(other),
        _ => {}
    }
}
