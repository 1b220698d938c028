//! What every CPU counts always: the time of each G and CPU, and events.
//!
//! A switch reads the cycle counter once. The run time of the G that leaves and the queue time of
//! the next G are differences to the stamp that each carries ([`Account`]); both are also counted,
//! by size, for the CPU ([`CpuTimes`]). Cycles become nanoseconds when a report reads them.
//!
//! # Two counters, one difference
//!
//! A G that leaves one CPU and runs on another is stamped by two counters, which may be apart by a
//! little. So a difference may come out below zero. Sums wrap and are right again with the next
//! addition; readers take "below zero" for zero ([`to_ns`]). So the switch needs no check.
#![forbid(unsafe_code)]

use crate::arch;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sched::Status;

/// Where the time of one life of a G went. Written by its holder (see `sched::Status`), read by any
/// CPU: each word is whole, two of them may be of two moments.
pub struct Account {
    /// The cycle counter when it last began to run, wait for a CPU, or wait.
    since: AtomicU64,
    // In cycles, up to `since`.
    cpu: AtomicU64,
    queued: AtomicU64,
    waiting: AtomicU64,
    switches: AtomicU64,
}

impl Account {
    pub(crate) const fn new() -> Self {
        let [since, cpu, queued, waiting, switches] = [const { AtomicU64::new(0) }; 5];
        Account { since, cpu, queued, waiting, switches }
    }

    /// A life begins: it waits for a CPU from now on.
    pub(crate) fn open(&self, now: u64) {
        self.since.store(now, Relaxed);
        for word in [&self.cpu, &self.queued, &self.waiting, &self.switches] {
            word.store(0, Relaxed);
        }
    }

    /// Its state changes: counts the time since the last change.
    #[inline(always)]
    pub(crate) fn charge(&self, spent: Spent<'_>, now: u64) {
        let cycles = now.wrapping_sub(self.since.load(Relaxed));
        self.since.store(now, Relaxed);
        match spent {
            Spent::Queued(cpu) => {
                add(&self.queued, cycles);
                cpu.queue_wait.count(cycles);
            }
            Spent::Running(cpu) => {
                add(&self.cpu, cycles);
                add(&self.switches, 1);
                add(&cpu.run, cycles);
                cpu.on_cpu.count(cycles);
            }
            Spent::Waiting => add(&self.waiting, cycles),
        }
    }

    pub(crate) fn since(&self) -> u64 {
        self.since.load(Relaxed)
    }

    pub fn switches(&self) -> u64 {
        self.switches.load(Relaxed)
    }

    /// All times up to this moment, if the G's status is `status`. If the G changes its state
    /// meanwhile, one column or two are a little off.
    pub fn times(&self, status: Status) -> Times {
        let [cpu_ns, queued_ns, waiting_ns] = self.cycles_at(status, arch::cycles()).map(to_ns);
        Times { cpu_ns, queued_ns, waiting_ns }
    }

    fn cycles_at(&self, status: Status, now: u64) -> [u64; 3] {
        let [cpu, queued, waiting] =
            [&self.cpu, &self.queued, &self.waiting].map(|word| word.load(Relaxed));
        let under_way = now.wrapping_sub(self.since.load(Relaxed));
        match status {
            Status::Dead => [cpu, queued, waiting],
            Status::Runnable => [cpu, queued.wrapping_add(under_way), waiting],
            Status::Parked => [cpu, queued, waiting.wrapping_add(under_way)],
            Status::Running | Status::Parking | Status::Woken => {
                [cpu.wrapping_add(under_way), queued, waiting]
            }
        }
    }
}

/// The state of a G that ends, with the CPU that it begins to run on, or has left.
pub(crate) enum Spent<'a> {
    Queued(&'a CpuTimes),
    Running(&'a CpuTimes),
    Waiting,
}

/// Where the time of a G went, including its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// On a CPU.
    pub cpu_ns: u64,
    /// Runnable, and waiting for a CPU.
    pub queued_ns: u64,
    /// Waiting for something else.
    pub waiting_ns: u64,
}

/// Where the time of one CPU went. Written by it alone, interrupts off.
pub(crate) struct CpuTimes {
    run: AtomicU64,
    idle: AtomicU64,
    /// How long Gs that began to run here had waited for it: as many as switches.
    pub(crate) queue_wait: Buckets,
    pub(crate) on_cpu: Buckets,
}

impl CpuTimes {
    pub(crate) const fn new() -> Self {
        CpuTimes {
            run: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            queue_wait: Buckets::new(),
            on_cpu: Buckets::new(),
        }
    }

    pub(crate) fn idled(&self, cycles: u64) {
        add(&self.idle, cycles);
    }

    /// Cycles for which Gs ran here, without the current run of the running G.
    pub(crate) fn cycles_run(&self) -> u64 {
        self.run.load(Relaxed)
    }

    pub(crate) fn run_ns(&self) -> u64 {
        to_ns(self.cycles_run())
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

    #[inline(always)]
    fn count(&self, cycles: u64) {
        self.0[(cycles | 1).ilog2() as usize].add_one();
    }

    pub(crate) fn total(&self) -> u64 {
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
fn add(to: &AtomicU64, cycles: u64) {
    to.store(to.load(Relaxed).wrapping_add(cycles), Relaxed);
}

/// Cycles in nanoseconds; see "Two counters, one difference".
fn to_ns(cycles: u64) -> u64 {
    if cycles.cast_signed() < 0 { 0 } else { arch::cycles_to_ns(cycles) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(account: &Account) -> [u64; 4] {
        [&account.cpu, &account.queued, &account.waiting, &account.switches]
            .map(|word| word.load(Relaxed))
    }

    #[test]
    fn every_cycle_of_a_life_is_in_one_column() {
        let (account, cpu) = (Account::new(), CpuTimes::new());
        account.open(1_000);
        account.charge(Spent::Queued(&cpu), 1_010); // 10 queued
        account.charge(Spent::Running(&cpu), 1_030); //  20 run
        account.charge(Spent::Waiting, 1_070); //       40 waited
        account.charge(Spent::Queued(&cpu), 1_150); // 80 queued
        account.charge(Spent::Running(&cpu), 1_310); // 160 run
        assert_eq!(cycles(&account), [180, 90, 40, 2]);
        assert_eq!(cpu.run.load(Relaxed), 180);
    }

    #[test]
    fn a_new_life_begins_with_nothing() {
        let (account, cpu) = (Account::new(), CpuTimes::new());
        account.open(5);
        account.charge(Spent::Queued(&cpu), 7);
        account.charge(Spent::Running(&cpu), 9);
        account.open(100);
        assert_eq!(cycles(&account), [0; 4]);
        account.charge(Spent::Queued(&cpu), 103);
        assert_eq!(cycles(&account), [0, 3, 0, 0]);
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
        let (account, cpu) = (Account::new(), CpuTimes::new());
        account.open(1_000);
        account.charge(Spent::Queued(&cpu), 990); // by a CPU whose counter is 10 behind
        assert_eq!(to_ns(cycles(&account)[1]), 0);
        account.charge(Spent::Running(&cpu), 2_000);
        account.charge(Spent::Queued(&cpu), 2_110);
        assert_eq!(cycles(&account)[1], 100, "the sum is right again");
    }

    #[test]
    fn what_is_under_way_is_added_where_it_belongs() {
        let (account, cpu) = (Account::new(), CpuTimes::new());
        account.open(0);
        account.charge(Spent::Queued(&cpu), 1);
        account.charge(Spent::Running(&cpu), 3);
        account.charge(Spent::Waiting, 7);
        assert_eq!(account.cycles_at(Status::Running, 15), [10, 1, 4]);
        assert_eq!(account.cycles_at(Status::Runnable, 15), [2, 9, 4]);
        assert_eq!(account.cycles_at(Status::Parked, 15), [2, 1, 12]);
        assert_eq!(account.cycles_at(Status::Dead, 15), [2, 1, 4]);
    }
}
