//! A snapshot of one P and its CPU, which stay together and have the same number.
//!
//! Each CPU counts for itself with plain loads and stores, so that counting costs an instruction or
//! two where Gs are switched; any CPU reads. Each value is whole, two may be of two moments.

use crate::run::{CPUS, SCHED, TIMERS, present};

/// A snapshot of one P and its CPU: its state, and what it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PInfo {
    /// The P is idle.
    pub is_idle: bool,
    /// Gs in its queue, without those pinned to it.
    pub queued: usize,
    /// Gs that sleep on it, and answers of simulated devices that it awaits.
    pub sleepers: usize,
    /// The number of its M.
    pub m: u32,
    /// The number of the G that it runs.
    pub g: Option<u64>,
    /// Slices that began on it, wrapping.
    pub slices: u32,
    /// How often it switched to a G.
    pub switches: u64,
    /// How often a G had to leave because its slice was over.
    pub preemptions: u64,
    /// Timer interrupts.
    pub ticks: u64,
    /// How often it found nothing to run, and halted.
    pub halts: u64,
    /// How often it woke or interrupted another CPU.
    pub wakes: u64,
    /// How often a G lent its slice to one that an interrupt had readied.
    pub displacements: u64,
    /// How often a spare M took over, because a call had to wait.
    pub handoffs: u64,
    /// How many of these the monitor of `handoff=sysmon` caused.
    pub retakes: u64,
    /// How often it stole from another P.
    pub steals: u64,
    /// How many Gs it stole in all.
    pub stolen: u64,
    /// Nanoseconds for which Gs ran on it, up to its last switch.
    pub run_ns: u64,
    /// Nanoseconds for which it was halted.
    pub idle_ns: u64,
}

impl PInfo {
    /// The P of that CPU.
    pub(crate) fn of(index: usize) -> Self {
        let (cpu, slot) = (&CPUS[index], &SCHED.slots()[index]);
        let [ticks, preemptions, displacements] = cpu.slices.counters();
        let (m, g) = present(index);
        PInfo {
            is_idle: SCHED.is_idle(index),
            queued: slot.queued(),
            sleepers: TIMERS.waiting(index),
            m,
            g,
            slices: slot.tick(),
            switches: cpu.times.queue_wait.total(),
            preemptions,
            ticks,
            halts: cpu.counters.halts.get(),
            wakes: cpu.counters.wakes.get(),
            displacements,
            handoffs: cpu.counters.handoffs.get(),
            retakes: cpu.counters.retakes.get(),
            steals: slot.steals(),
            stolen: slot.stolen(),
            run_ns: cpu.times.run_ns(),
            idle_ns: cpu.times.idle_ns(),
        }
    }
}
