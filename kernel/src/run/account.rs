//! What is counted: the time of each G and CPU, and events.
//!
//! A switch reads the cycle counter once. Always counted are the run time of a G and how often it
//! left (`task::Account`), and the run time and number of Gs of a CPU. How long Gs waited, for a
//! CPU or for something else, and the histograms are counted only while *full accounting* is on
//! ([`FullAccounting`], `accounting=full`): an attention bit, so without it a switch pays nothing.
//! `top`, traces and `schedtrace=` switch it on while they run. Cycles become nanoseconds when a
//! report reads them.
//!
//! # Two counters, one difference
//!
//! A G that leaves one CPU and runs on another is stamped by two counters, which may differ a
//! little. So a difference may be negative. Sums wrap, and are right again after the next addition;
//! readers take a negative sum for zero ([`to_ns`]). So the switch needs no check.
#![forbid(unsafe_code)]

use super::preempt::Attention;
use super::view::all_slices;
use crate::arch;
use crate::arch::lock::IrqLock;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How many [`FullAccounting`]s there are.
static KEEPERS: IrqLock<usize> = IrqLock::new(0);
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Keeps full accounting on while it lives: how long Gs wait, and histograms.
///
/// ```
/// use runnext::stats::{FullAccounting, stats};
/// let full = FullAccounting::begin();
/// assert!(stats().queue_wait.is_some());
/// drop(full);
/// assert!(stats().queue_wait.is_none());
/// ```
#[derive(Debug)]
#[must_use = "full accounting ends when it is dropped"]
pub struct FullAccounting(());

impl FullAccounting {
    /// Switches it on, if it is off. Counts are of the time since it was on; a G that waits already
    /// is counted from when it left its CPU.
    pub fn begin() -> Self {
        let mut keepers = KEEPERS.lock();
        *keepers += 1;
        IS_FULL.store(true, Relaxed);
        all_slices().for_each(|slices| slices.attention.set(Attention::ACCOUNT));
        FullAccounting(())
    }

    /// Ends one that was forgotten.
    pub(crate) fn end() {
        let mut keepers = KEEPERS.lock();
        *keepers -= 1;
        if *keepers == 0 {
            IS_FULL.store(false, Relaxed);
            all_slices().for_each(|slices| slices.attention.clear(Attention::ACCOUNT));
        }
    }
}

impl Drop for FullAccounting {
    fn drop(&mut self) {
        FullAccounting::end();
    }
}

pub(crate) fn is_full() -> bool {
    IS_FULL.load(Relaxed)
}

/// Where the time of one CPU went. Written by it alone, interrupts off.
pub(crate) struct CpuTimes {
    /// How many cycles Gs have run here; while one does, less the counter when the first of them
    /// began, as `Account::cpu`. A turn from one G to the next changes nothing.
    run: AtomicU64,
    idle: AtomicU64,
    /// How many Gs began to run here.
    pub(crate) switches: Counter,
    // Full accounting.
    /// `switches` and `run` when a run was last counted by size.
    counted: [AtomicU64; 2],
    /// How long Gs that began to run here had waited for it.
    pub(crate) queue_wait: Buckets,
    /// How long Gs that have left had run.
    pub(crate) on_cpu: Buckets,
}

impl CpuTimes {
    pub(crate) const fn new() -> Self {
        CpuTimes {
            run: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            switches: Counter::new(),
            counted: [const { AtomicU64::new(0) }; 2],
            queue_wait: Buckets::new(),
            on_cpu: Buckets::new(),
        }
    }

    /// A G is about to run, after none did.
    pub(crate) fn begin_runs(&self, now: u64) {
        sub(&self.run, now);
    }

    /// The last G has left, and something else than a turn follows.
    pub(crate) fn end_runs(&self, now: u64) {
        add(&self.run, now);
    }

    /// Full accounting: counts by size for how long the last G ran that has left at `now`, once.
    pub(crate) fn count_last_run(&self, now: u64) {
        let now = [self.switches.get(), at(&self.run, now)];
        let [began, ran] =
            [0, 1].map(|i| now[i].wrapping_sub(self.counted[i].swap(now[i], Relaxed)));
        // More than one since the last count: full accounting was off, and this one is not known.
        if began == 1 {
            self.on_cpu.count(ran);
        }
    }

    pub(crate) fn idled(&self, cycles: u64) {
        add(&self.idle, cycles);
    }

    /// A number that is another one after each run of Gs here, and while they run.
    pub(crate) fn runs(&self) -> u64 {
        self.run.load(Relaxed)
    }

    pub(crate) fn run_ns(&self) -> u64 {
        to_ns(at(&self.run, arch::cycles()))
    }

    pub(crate) fn idle_ns(&self) -> u64 {
        to_ns(self.idle.load(Relaxed))
    }
}

/// Counts by size: bucket *i* counts times from 2^*i* cycles to less than twice that.
pub(crate) struct Buckets([Counter; 64]);

impl Buckets {
    const fn new() -> Self {
        Buckets([const { Counter::new() }; 64])
    }

    pub(crate) fn count(&self, cycles: u64) {
        self.0[(cycles | 1).ilog2() as usize].add_one();
    }

    #[cfg(test)]
    fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }

    /// Calls `f` with the lower bound of each bucket, in nanoseconds, and its count.
    pub(crate) fn for_each(&self, mut f: impl FnMut(u64, u64)) {
        for (bucket, counter) in self.0.iter().enumerate() {
            f(to_ns(1 << bucket), counter.get());
        }
    }
}

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

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of a CPU; those of its slices are in `preempt`.
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
        let [halts, wakes, created, ended, handoffs, retakes] = [const { Counter::new() }; 6];
        Counters { halts, wakes, created, ended, handoffs, retakes }
    }
}

#[inline(always)]
pub(crate) fn add(to: &AtomicU64, cycles: u64) {
    to.store(to.load(Relaxed).wrapping_add(cycles), Relaxed);
}

#[inline(always)]
pub(crate) fn sub(from: &AtomicU64, cycles: u64) {
    add(from, cycles.wrapping_neg());
}

/// The cycles of a word that is below zero while they go on.
pub(crate) fn at(word: &AtomicU64, now: u64) -> u64 {
    let word = word.load(Relaxed);
    if word.cast_signed() < 0 { word.wrapping_add(now) } else { word }
}

/// Cycles in nanoseconds; see "Two counters, one difference".
pub(crate) fn to_ns(cycles: u64) -> u64 {
    if cycles.cast_signed() < 0 { 0 } else { arch::cycles_to_ns(cycles) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::task::Account;
    use sched::Status;

    fn new(now: u64) -> (Account, CpuTimes) {
        let account = Account::new();
        account.since.store(now, Relaxed);
        (account, CpuTimes::new())
    }

    fn cycles(account: &Account) -> [u64; 4] {
        [&account.cpu, &account.queued, &account.waiting, &account.switches]
            .map(|word| word.load(Relaxed))
    }

    /// The G was queued, and runs.
    fn queued(account: &Account, cpu: &CpuTimes, now: u64) {
        account.was_queued(cpu, now);
        begins(account, cpu, now);
    }

    fn begins(account: &Account, cpu: &CpuTimes, now: u64) {
        account.begins(now);
        cpu.switches.add_one();
    }

    #[test]
    fn every_cycle_of_a_life_is_in_one_column() {
        let (account, cpu) = new(1_000);
        queued(&account, &cpu, 1_010); // 10 queued
        account.left(1_030); //  20 run
        account.has_waited(1_070); //       40 waited
        queued(&account, &cpu, 1_150); // 80 queued
        account.left(1_310); // 160 run
        assert_eq!(cycles(&account), [180, 90, 40, 2]);
    }

    #[test]
    fn without_full_accounting_only_the_time_on_a_cpu_is_counted() {
        let (account, cpu) = new(1_000);
        cpu.begin_runs(1_010);
        begins(&account, &cpu, 1_010);
        account.left(1_030);
        cpu.end_runs(1_030);
        cpu.begin_runs(1_150);
        begins(&account, &cpu, 1_150);
        assert_eq!((at(&account.cpu, 1_200), at(&cpu.run, 1_200)), (70, 70), "under way");
        account.left(1_310);
        assert_eq!(cycles(&account), [180, 0, 0, 2]);
        assert_eq!((cpu.queue_wait.total(), cpu.on_cpu.total()), (0, 0));
        cpu.count_last_run(1_310);
        assert_eq!(cpu.on_cpu.total(), 0, "two runs, of which none is known");
        begins(&account, &cpu, 1_310);
        account.left(1_317);
        (0..2).for_each(|_| cpu.count_last_run(1_317));
        cpu.end_runs(1_317);
        assert_eq!((cpu.run.load(Relaxed), cpu.switches.get()), (187, 3));
        assert_eq!((cpu.on_cpu.total(), cpu.on_cpu.0[2].get()), (1, 1), "the last run, once");
    }

    #[test]
    fn sizes_are_counted_by_powers_of_two() {
        let buckets = Buckets::new();
        for cycles in [0, 1, 2, 3, 4, 1 << 40] {
            buckets.count(cycles);
        }
        let counts: Vec<u64> = buckets.0.iter().map(Counter::get).collect();
        assert_eq!((counts[0], counts[1], counts[2], counts[40]), (2, 2, 1, 1));
        assert_eq!(buckets.total(), 6);
    }

    #[test]
    fn counters_that_are_apart_make_no_time_below_zero() {
        let (account, cpu) = new(1_000);
        queued(&account, &cpu, 990); // by a CPU whose counter is 10 behind
        assert_eq!(to_ns(cycles(&account)[1]), 0);
        account.left(2_000);
        queued(&account, &cpu, 2_110);
        assert_eq!(cycles(&account)[1], 100, "the sum is right again");
    }

    #[test]
    fn what_is_under_way_is_added_where_it_belongs() {
        let (account, cpu) = new(0);
        queued(&account, &cpu, 1);
        assert_eq!(account.cycles_at(Status::Running, 2), [1, 1, 0]);
        account.left(3);
        account.has_waited(7);
        assert_eq!(account.cycles_at(Status::Runnable, 15), [2, 9, 4]);
        assert_eq!(account.cycles_at(Status::Parked, 15), [2, 1, 12]);
        assert_eq!(account.cycles_at(Status::Dead, 15), [2, 1, 4]);
    }
}
