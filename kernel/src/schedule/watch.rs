//! Observers' view of the scheduler: for `trace`, `schedtrace` and `watchdog`.
//!
//! Requests to all CPUs, and snapshots of each. Any CPU may call; a value may be stale at once.

use super::{CPUS, SCHED, TIMERS, m, running_on, with_p};
use crate::arch;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sched::G;

/// The number of the kernel's service Gs: `attendants`.
static ATTENDANTS: AtomicUsize = AtomicUsize::new(0);

/// Counts one more service G, so that the program's count leaves it out.
pub fn count_attendant() {
    ATTENDANTS.fetch_add(1, Relaxed);
}

/// Discounts a service G that was not created, or has ended.
pub fn discount_attendant() {
    ATTENDANTS.fetch_sub(1, Relaxed);
}

pub(super) fn attendants() -> usize {
    ATTENDANTS.load(Relaxed)
}

/// Sets attention bits (`preempt::Attention`) on every CPU, which acts on them at each switch.
pub fn ask_for_attention(bits: u32) {
    CPUS.iter().for_each(|cpu| cpu.slices.attention.set(bits));
}

/// Clears them.
pub fn spare_attention(bits: u32) {
    for cpu in &CPUS {
        let _ = cpu.slices.attention.clear(bits);
    }
}

/// The number of the M on a CPU, and that of the G that runs there, if one does.
pub fn present(cpu: usize) -> (u32, Option<u64>) {
    (CPUS[cpu].m.get().map_or(0, |m| m.id() as u32), running_on(cpu).map(G::id))
}

/// Whether a CPU runs a G or may be about to, as seen from outside, for `watchdog`.
pub fn is_busy(cpu: usize) -> bool {
    running_on(cpu).is_some() || cpu < SCHED.limit() && !SCHED.is_idle(cpu)
}

/// Whether this CPU, which comes out of a halt, was woken to run a G, or has one to run.
pub fn has_work() -> bool {
    is_busy(arch::cpu_index()) || !with_p(|p| p.has_nobody())
}

/// A number that changes whenever a CPU makes progress: begins a slice, halts, takes a tick. As
/// [`is_busy`].
pub fn progress(cpu: usize) -> u64 {
    let record = &CPUS[cpu];
    let [ticks, preemptions, _] = record.slices.counters();
    let counted = [record.counters.halts.get(), ticks, preemptions];
    counted.into_iter().fold(SCHED.slots()[cpu].tick().into(), u64::wrapping_add)
}

/// A snapshot of the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedInfo {
    /// Idle Ps.
    pub idle_ps: usize,
    /// All Ms, including those on no CPU.
    pub threads: usize,
    /// Ps that look for work in the queues of others.
    pub spinning: usize,
    /// Spare Ms, and Ms on idle CPUs.
    pub idle_threads: usize,
    /// Gs in the global queue.
    pub global: usize,
    /// The Ps up to the limit.
    pub ps: Vec<PInfo>,
}

impl SchedInfo {
    /// Ps that run Gs or look for them.
    pub fn busy(&self) -> usize {
        self.ps.len() - self.idle_ps
    }
}

/// A snapshot of one P; its CPU has the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PInfo {
    /// It is idle.
    pub is_idle: bool,
    /// Gs in its queue, without those pinned to it.
    pub queued: usize,
    /// Slices that began on it, wrapping.
    pub ticks: u32,
    /// How often it was handed off from a call.
    pub handoffs: u64,
    /// Gs that sleep on it.
    pub sleepers: usize,
    /// The number of its M.
    pub m: u32,
    /// The number of the G that it runs.
    pub g: Option<u64>,
}

/// Takes a snapshot of the scheduler.
pub fn sched_info() -> SchedInfo {
    let counts = SCHED.counts();
    let (limit, cpus) = (SCHED.limit().min(arch::num_cpus()), arch::num_cpus());
    let ps: Vec<PInfo> = (0..limit).map(p_info).collect();
    let idle_ps = ps.iter().filter(|p| p.is_idle).count();
    let (threads, spare, _) = m::count();
    SchedInfo {
        idle_ps,
        threads: threads as usize,
        spinning: counts.spinning,
        idle_threads: spare as usize + idle_ps + (cpus - limit),
        global: counts.global,
        ps,
    }
}

/// All Ps that there may be, by number, and the length of the global queue.
pub fn ps() -> (Vec<PInfo>, usize) {
    ((0..arch::num_cpus()).map(p_info).collect(), SCHED.counts().global)
}

fn p_info(index: usize) -> PInfo {
    let slot = &SCHED.slots()[index];
    let (m, g) = present(index);
    PInfo {
        is_idle: SCHED.is_idle(index),
        queued: slot.queued(),
        ticks: slot.tick(),
        handoffs: CPUS[index].counters.handoffs.get(),
        sleepers: TIMERS.waiting(index),
        m,
        g,
    }
}
