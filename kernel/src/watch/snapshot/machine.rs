//! A snapshot of the machine: its Ps, the counts of Gs and Ms, the histograms.
//!
//! The counters of all CPUs are added up. A value may be a moment old, and two may be of two
//! moments; but never more Gs have ended than were created.

use super::p::PInfo;
use crate::arch;
use crate::run::{CPUS, SCHED, created, ended, m};
use alloc::vec::Vec;

/// The scheduler at about one moment, and its counters so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Gs that were started.
    pub created: u64,
    /// Gs that have ended.
    pub ended: u64,
    /// Ps that may run Gs.
    pub gomaxprocs: usize,
    /// Ps that look for work in the queues of others.
    pub spinning: usize,
    /// Gs in the global queue.
    pub global: usize,
    /// The Ms.
    pub ms: MStats,
    /// How long runnable Gs waited until they ran.
    pub queue_wait: Histogram,
    /// How long Gs ran before they left their CPU.
    pub on_cpu: Histogram,
    /// Each CPU and its P, by index. On the host, where threads stand in for Gs, there are none.
    pub cpus: Vec<PInfo>,
}

impl Stats {
    /// Gs that run, are runnable, or wait.
    pub fn alive(&self) -> u64 {
        self.created.saturating_sub(self.ended)
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

/// Takes a snapshot of the machine.
pub fn stats() -> Stats {
    // Ended before created: so the sum never shows more ended Gs than created ones.
    let (ended, created) = (ended(), created());
    let (ms, spare, blocked) = m::count();
    let [mut queue_wait, mut on_cpu] = [Histogram::default(), Histogram::default()];
    for cpu in &CPUS[..arch::num_cpus()] {
        cpu.times.queue_wait.for_each(|from_ns, count| queue_wait.add(from_ns, count));
        cpu.times.on_cpu.for_each(|from_ns, count| on_cpu.add(from_ns, count));
    }
    let counts = SCHED.counts();
    Stats {
        created,
        ended,
        gomaxprocs: SCHED.limit().min(arch::num_cpus()),
        spinning: counts.spinning,
        global: counts.global,
        ms: MStats { created: ms, spare, blocked },
        queue_wait,
        on_cpu,
        cpus: (0..arch::num_cpus()).map(PInfo::of).collect(),
    }
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
    fn add(&mut self, from_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        match self.buckets.binary_search_by_key(&from_ns, |bucket| bucket.from_ns) {
            Ok(at) => self.buckets[at].count += count,
            Err(at) => self.buckets.insert(at, Bucket { from_ns, count }),
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
