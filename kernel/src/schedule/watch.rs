//! For those who watch the scheduler: `trace` and `schedtrace`.
//!
//! What they ask of all CPUs, and what they ask about each. Any CPU may call;
//! what is read may be over at once.

use super::{CPUS, SCHED, TIMERS, m, running_on, with_p};
use crate::arch;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sched::G;

/// Gs of the kernel's own: `attendants`.
static ATTENDANTS: AtomicUsize = AtomicUsize::new(0);

/// One more G is the kernel's own, and not counted.
pub fn count_attendant() {
    ATTENDANTS.fetch_add(1, Relaxed);
}

/// It did not come to be, or has come to its end.
pub fn discount_attendant() {
    ATTENDANTS.fetch_sub(1, Relaxed);
}

pub(super) fn attendants() -> usize {
    ATTENDANTS.load(Relaxed)
}

/// Has every CPU see to it at each switch (bits of `preempt::Attention`).
pub fn ask_for_attention(bits: u32) {
    CPUS.iter().for_each(|cpu| cpu.slices.attention.set(bits));
}

/// Takes that back.
pub fn spare_attention(bits: u32) {
    for cpu in &CPUS {
        let _ = cpu.slices.attention.clear(bits);
    }
}

/// The number of the M on a CPU, and that of the G that runs there, if one does.
pub fn present(cpu: usize) -> (u32, Option<u64>) {
    (CPUS[cpu].m.get().map_or(0, |m| m.id() as u32), running_on(cpu).map(G::id))
}

/// Whether a CPU runs a G or may be about to. A look from outside, for `guardian`.
pub fn is_busy(cpu: usize) -> bool {
    running_on(cpu).is_some() || cpu < SCHED.limit() && !SCHED.is_idle(cpu)
}

/// Whether this CPU, which comes out of a halt, was woken to run a G, or has one to run.
pub fn has_work() -> bool {
    is_busy(arch::cpu_index()) || !with_p(|p| p.has_nobody())
}

/// A number that changes whenever a CPU is seen to do something: begins a slice,
/// halts, takes a tick. As [`is_busy`].
pub fn progress(cpu: usize) -> u64 {
    let record = &CPUS[cpu];
    let [ticks, preemptions, _] = record.slices.counters();
    let counted = [record.counters.halts.get(), ticks, preemptions];
    counted.into_iter().fold(SCHED.slots()[cpu].tick().into(), u64::wrapping_add)
}

/// What the scheduler looks like from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedInfo {
    /// Ps that have nothing to do.
    pub idle_ps: usize,
    /// Ms, those on no CPU among them.
    pub threads: usize,
    /// Ps that look for work on others.
    pub spinning: usize,
    /// Ms that wait to be used again, or on a CPU that has nothing to do.
    pub idle_threads: usize,
    /// Gs in the global queue.
    pub global: usize,
    /// The Ps that run Gs.
    pub ps: Vec<PInfo>,
}

impl SchedInfo {
    /// Ps that run Gs or look for them.
    pub fn busy(&self) -> usize {
        self.ps.len() - self.idle_ps
    }
}

/// What one P looks like from outside; its CPU has the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PInfo {
    /// It has nothing to do.
    pub is_idle: bool,
    /// Gs that wait for it, those not counted that are pinned to it.
    pub queued: usize,
    /// Slices that began on it, wrapping.
    pub ticks: u32,
    /// How often it was handed on from a call.
    pub handoffs: u64,
    /// Gs that sleep on it.
    pub sleepers: usize,
    /// The number of its M.
    pub m: u32,
    /// The number of the G that it runs.
    pub g: Option<u64>,
}

/// What the scheduler looks like now.
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
