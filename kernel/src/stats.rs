//! Statistics of the scheduler, for programs: [`stats()`], [`num_goroutines`].
//!
//! Each CPU counts for itself with plain loads and stores, so that counting costs
//! an instruction or two where Gs are switched; whoever asks adds up. What is
//! read while others count may be a moment old, and two counters may be of two
//! moments.
#![forbid(unsafe_code)]

use crate::park;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the scheduler has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Gs that were started.
    pub created: u64,
    /// Gs that have ended.
    pub ended: u64,
    /// The Ms.
    pub ms: MStats,
    /// What each CPU did, by index. On the host, where threads stand in for Gs,
    /// there are none.
    pub cpus: Vec<CpuStats>,
}

impl Stats {
    /// Gs that run, wait for a CPU, or wait for something else.
    ///
    /// ```
    /// assert!(runnext::stats().alive() <= runnext::stats().created);
    /// ```
    pub fn alive(&self) -> u64 {
        self.created.saturating_sub(self.ended)
    }
}

/// What one CPU has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
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
    /// How many of these the monitor of `handoff=sysmon` brought about.
    pub retakes: u64,
    /// How often it stole from another P.
    pub steals: u64,
}

/// How many Ms there are, and what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MStats {
    /// All that were ever made; none is freed.
    pub created: u64,
    /// Those that wait to be used again.
    pub spare: u64,
    /// Those that are away from all CPUs, each with a G in a blocking call.
    pub blocked: u64,
}

/// What the scheduler has done so far.
///
/// ```
/// use runnext::prelude::*;
/// let before = stats();
/// go(|| ()).join().unwrap();
/// assert!(stats().created > before.created);
/// for (cpu, did) in stats().cpus.iter().enumerate() {
///     runnext::println!("CPU {cpu}: {} switches, {} halts", did.switches, did.halts);
/// }
/// ```
#[must_use]
pub fn stats() -> Stats {
    park::stats()
}

/// How many Gs there are at this moment, the calling one included.
///
/// ```
/// use runnext::prelude::*;
/// let (tx, rx) = chan::rendezvous::<()>();
/// let waits = go(move || rx.recv());
/// assert!(num_goroutines() >= 1);
/// drop(tx);
/// assert!(waits.join().unwrap().is_err());
/// ```
#[must_use]
pub fn num_goroutines() -> usize {
    park::num_goroutines()
}

/// Counts what happens on one CPU.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// Its own CPU only, interrupts off: no other writer, so no locked addition.
    #[inline(always)]
    pub(crate) fn add_one(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Anybody.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What a CPU counts for `schedule`; `preempt` has the rest.
pub(crate) struct Counters {
    pub(crate) switches: Counter,
    pub(crate) halts: Counter,
    pub(crate) wakes: Counter,
    pub(crate) created: Counter,
    pub(crate) ended: Counter,
    pub(crate) handoffs: Counter,
    pub(crate) retakes: Counter,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Counters {
            switches: Counter::new(),
            halts: Counter::new(),
            wakes: Counter::new(),
            created: Counter::new(),
            ended: Counter::new(),
            handoffs: Counter::new(),
            retakes: Counter::new(),
        }
    }
}
