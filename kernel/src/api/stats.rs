//! The scheduler's state and counters, for programs: [`stats()`], [`num_goroutines`].
#![forbid(unsafe_code)]

pub use crate::watch::{Bucket, Histogram, MStats, PInfo, Stats};

use crate::run::door;
use crate::watch;

/// Takes a snapshot of the scheduler and its counters. No CPU is stopped for it, so two values may
/// be of two moments.
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
    watch::stats()
}

/// How many Gs there are at this moment, including the calling one. As Go's `NumGoroutine`, it does
/// not count the kernel's service Gs.
#[must_use]
pub fn num_goroutines() -> usize {
    door::num_goroutines()
}
