//! Statistics of the scheduler, for programs: [`stats()`], [`num_goroutines`].
//!
//! Each CPU counts for itself with plain loads and stores, so that counting costs an instruction or
//! two where Gs are switched; the reader adds up. A value that is read while other CPUs count may
//! be a moment old, and two counters may be of two moments. The time of a single G is in
//! `schedule::account`.
#![forbid(unsafe_code)]

use crate::park;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The scheduler's counters so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Gs that were started.
    pub created: u64,
    /// Gs that have ended.
    pub ended: u64,
    /// The Ms.
    pub ms: MStats,
    /// How long runnable Gs waited until they ran.
    pub queue_wait: Histogram,
    /// How long Gs ran before they left their CPU.
    pub on_cpu: Histogram,
    /// The counters of each CPU, by index. On the host, where threads stand in for Gs, there are
    /// none.
    pub cpus: Vec<CpuStats>,
}

impl Stats {
    /// Gs that run, are runnable, or wait.
    ///
    /// ```
    /// assert!(runnext::stats().alive() <= runnext::stats().created);
    /// ```
    pub fn alive(&self) -> u64 {
        self.created.saturating_sub(self.ended)
    }
}

/// The counters of one CPU so far.
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

/// Counts of times by size: each bucket counts times from its lower bound on, and less than twice
/// that.
///
/// ```
/// use runnext::prelude::*;
/// go(yield_now).join().unwrap();
/// for bucket in stats().on_cpu.buckets() {
///     runnext::println!("{:>10} ns and more: {}", bucket.from_ns, bucket.count);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<Bucket>,
}

/// One row of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// The shortest time that is counted here.
    pub from_ns: u64,
    /// The number of times.
    pub count: u64,
}

impl Histogram {
    /// The buckets that are not empty, shortest times first.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The number of times counted.
    ///
    /// ```
    /// assert_eq!(runnext::stats::Histogram::default().total(), 0);
    /// ```
    pub fn total(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// The bucket that holds the time below which that share of all times are: `(1, 2)` is the
    /// median, `(99, 100)` all but the longest hundredth. None if nothing was counted.
    pub fn quantile(&self, (part, of): (u64, u64)) -> Option<Bucket> {
        let mut left = self.total().checked_mul(part)? / of.max(1);
        let holds = |bucket: &&Bucket| match left.checked_sub(bucket.count) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        self.buckets.iter().find(holds).or(self.buckets.last()).copied()
    }

    /// Adds `count` times of at least `from_ns`.
    pub(crate) fn add(&mut self, from_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        match self.buckets.binary_search_by_key(&from_ns, |bucket| bucket.from_ns) {
            Ok(at) => self.buckets[at].count += count,
            Err(at) => self.buckets.insert(at, Bucket { from_ns, count }),
        }
    }
}

/// How many Ms there are, and their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MStats {
    /// All Ms ever created; none is freed.
    pub created: u64,
    /// Ms that wait to be used again.
    pub spare: u64,
    /// Ms that are away from all CPUs, each with a G in a blocking call.
    pub blocked: u64,
}

/// Reads the scheduler's counters.
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

/// How many Gs there are at this moment, including the calling one. As Go's `NumGoroutine`, it does
/// not count the kernel's service Gs.
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

/// A counter of events on one CPU.
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

    /// Any CPU may read.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of a CPU for `schedule`; `preempt` has the rest.
pub(crate) struct Counters {
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
            halts: Counter::new(),
            wakes: Counter::new(),
            created: Counter::new(),
            ended: Counter::new(),
            handoffs: Counter::new(),
            retakes: Counter::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_all_cpus_are_added_up_in_order() {
        let mut histogram = Histogram::default();
        for (from_ns, count) in [(8, 1), (2, 5), (8, 2), (4, 0)] {
            histogram.add(from_ns, count);
        }
        let rows = histogram.buckets().iter().map(|bucket| (bucket.from_ns, bucket.count));
        assert!(rows.eq([(2, 5), (8, 3)]));
        assert_eq!(histogram.total(), 8);
    }

    #[test]
    fn quantiles_name_the_bucket_that_holds_them() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile((1, 2)), None);
        for (from_ns, count) in [(1, 50), (2, 49), (1024, 1)] {
            histogram.add(from_ns, count);
        }
        let at = |part| histogram.quantile((part, 100)).map(|bucket| bucket.from_ns);
        assert_eq!(
            [at(0), at(49), at(50), at(98), at(99), at(100)],
            [1, 1, 2, 2, 1024, 1024].map(Some)
        );
    }
}
