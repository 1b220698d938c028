//! Interrupt handlers: ticks, wake-ups, the end of every interrupt, preemption.
//!
//! A handler touches no run queue: it puts Gs into the inbox of its CPU ([`ready_from_interrupt`])
//! and has them moved to the queue at its end ([`finish`]), when this CPU cannot be in the middle
//! of a queue operation. There it is also decided whether the interrupted G continues. How long a
//! slice is, and when the timer is armed, is in `preempt`. Interrupts are off here.

use super::account::Spent;
use super::kill;
use super::preempt::Verdict;
use super::task::{GHandle, Task};
use super::{Kind, Leaving, OnCpu, SCHED, TIMERS, hooks, leave, running, send, wake_cpu};
use crate::arch::irq::IrqState;
use crate::arch::{self, Afterwards};
use crate::mem::percpu::Here;
use crate::mem::reclaim;
use sched::{G, Status, Wake};

/// The `tick` of [`arch::Handlers`]: the timer of this CPU has fired.
pub fn on_tick() -> Afterwards {
    // SAFETY: 1. A handler. 3. It has come where interrupts were on, and none is in use.
    // None: a CPU that is still coming up tests its timer.
    let Some(mut on) = (unsafe { OnCpu::in_handler() }) else { return Afterwards::Resume };
    let now_ns = arch::now_ns();
    if (hooks::get().on_tick)(now_ns, on.cpu().slices.fired()) {
        on.cpu().slices.count_tick();
    }
    TIMERS.on_tick(&Here::enter(), now_ns, |g| {
        hooks::event(Kind::Fire, g.id(), 0);
        ready_from_interrupt(g.handle());
    });
    let (cpu, p) = on.parts();
    if !SCHED.somebody_waits(p) {
        cpu.slices.renew();
    }
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
        kill::note_found_running(g);
        let needs_timer = || SCHED.needs_timer(p);
        if must_leave(g) || cpu.slices.verdict(needs_timer) != Verdict::GoOn {
            afterwards = Afterwards::Preempt;
        } else if !cpu.slices.is_timed() && SCHED.needs_timer(p) {
            cpu.slices.arm();
        }
    }
    if let Some(deadline_ns) = next_deadline() {
        cpu.slices.arm_for_sleeper(deadline_ns);
    }
    afterwards
}

/// Whether the running G must leave whatever its slice is: this CPU's P may run Gs no more, the G
/// has found no memory for its stack and the M has to reclaim some, or the G is to be abandoned.
fn must_leave(g: &'static G<Task>) -> bool {
    let cpu = arch::cpu_index();
    kill::is_forced(g) || g.pin().is_none() && cpu >= SCHED.limit() || reclaim::is_wanted(cpu)
}

/// The `preempt` of [`arch::Handlers`] (Go: asyncPreempt2): the running G leaves, if it must.
/// Between the interrupt and now it may have left and come back.
pub fn preempted() {
    let g = running().expect("no G to preempt");
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    if let Some(why) = why_to_leave(g) {
        return leave(IrqState::ON, g, why);
    }
    arch::irq::restore(IrqState::ON);
}

/// Why the running G leaves now, if it must.
fn why_to_leave(g: &'static G<Task>) -> Option<Leaving> {
    if kill::is_forced(g) {
        return Some(Leaving::Abandon);
    }
    // SAFETY: 1. `preempted` has them off. 2. A G runs here. 3. It has no other.
    let mut on = unsafe { OnCpu::assume() };
    let (cpu, p) = on.parts();
    let verdict = match must_leave(g) {
        true => Verdict::Expire,
        false => cpu.slices.verdict(|| SCHED.needs_timer(p)),
    };
    cpu.slices.carry_out(verdict);
    match verdict {
        Verdict::GoOn => None,
        Verdict::Expire => Some(Leaving::Expire),
        Verdict::Displace => Some(Leaving::Displace),
    }
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

/// The first deadline of this CPU has become earlier: sets its timer. Interrupts are off.
pub fn set_timer(due_ns: u64) {
    if let Some(slices) = super::slices() {
        slices.arm_for_sleeper(due_ns);
    }
}

/// When the timer of this CPU must fire next for another reason than a slice: a sleeper, or a hook.
pub fn next_deadline() -> Option<u64> {
    let cpu = arch::cpu_index();
    let due = [TIMERS.next_deadline(cpu), (hooks::get().next_deadline)(cpu)];
    due.into_iter().flatten().min()
}
