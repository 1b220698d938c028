//! The interrupt handlers' interface to the scheduler. Interrupts are off here.
//!
//! A handler touches no run queue: it puts Gs into the inbox of its CPU ([`ready_from_interrupt`])
//! and has them moved to the queue at its end ([`arrive`]), when this CPU cannot be in the middle
//! of a queue operation. `preempt` calls this; it decides whether the interrupted G continues.

use super::kill;
use super::task::GHandle;
use super::{SCHED, TIMERS, is_running, running, send, try_this_cpu, wait, wake_cpu, with_p};
use crate::drivers::simulated;
use crate::mem::percpu::Here;
use crate::mem::relief;
use crate::trace::{self, Kind};
use crate::{arch, chaos, guardian};
use sched::{Status, Wake};

/// Whether the running G may be preempted: not one that is about to park, whose state is no longer
/// its CPU's alone.
pub fn may_be_preempted() -> bool {
    running().is_some_and(|g| g.status() == Status::Running)
}

/// The interrupt has found a G running here, and may let it continue.
pub fn note_chance() {
    running().into_iter().for_each(kill::note_chance);
}

/// Whether the G that runs here, or is about to, needs a timer for its slice: another G waits for
/// the CPU.
pub fn needs_timer() -> bool {
    with_p(|p| SCHED.needs_timer(p))
}

/// Whether the running G must leave: this CPU's P may run Gs no more, the G has found no memory for
/// its stack and the M has to reclaim some, or the G is to be abandoned.
pub fn must_leave() -> bool {
    let running = running();
    let pinned = running.is_some_and(|g| g.pin().is_some());
    let cpu = arch::cpu_index();
    !pinned && cpu >= SCHED.limit()
        || relief::is_wanted(cpu)
        || running.is_some_and(kill::is_abandoned)
}

/// Moves the Gs in this CPU's inbox to its queue (Go: injectglist). True if one of them should run
/// at once, instead of the running G. A CPU that is still coming up has no inbox.
pub fn arrive() -> bool {
    let Some(cpu) = try_this_cpu() else { return false };
    // SAFETY: this CPU's own record, interrupts off.
    let arrival = unsafe { cpu.with_p(|p| SCHED.arrive(p)) };
    send(arrival.wake);
    arrival.displace && is_running()
}

/// Readies the sleepers of this CPU whose deadline has passed, and lets simulated devices complete
/// requests.
pub fn wake_sleepers(now_ns: u64) {
    chaos::on_tick(now_ns);
    simulated::on_tick(now_ns);
    let here = Here::enter();
    TIMERS.on_tick(&here, now_ns, |g| {
        trace::event(Kind::Fire, || g.id(), 0);
        ready_from_interrupt(g.handle());
    });
}

/// As [`super::ready`], for an interrupt handler: puts the G into the inbox of this CPU, or of that
/// which it is pinned to. The handler ends with [`arrive`].
pub fn ready_from_interrupt(g: GHandle) {
    let cpu = arch::cpu_index();
    match SCHED.ready_from_interrupt_noting(cpu, g, |g, was| wait::readied(g, was, 1)) {
        Wake::Cpu(other) if other != cpu => wake_cpu(other),
        _ => {}
    }
}

/// The first deadline of this CPU has become earlier: sets its timer. Interrupts are off.
pub fn set_timer(due_ns: u64) {
    if let Some(cpu) = try_this_cpu() {
        cpu.slices.arm_for_sleeper(due_ns);
    }
}

/// When the next sleeper of this CPU, completion of a simulated device, delayed wake-up or watchdog
/// check is due.
pub fn next_deadline() -> Option<u64> {
    let cpu = arch::cpu_index();
    let chaos = chaos::next_deadline(cpu);
    let due = [TIMERS.next_deadline(cpu), simulated::next_deadline(cpu), chaos, guardian::due(cpu)];
    due.into_iter().flatten().min()
}
