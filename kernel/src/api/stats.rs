//! The scheduler's state and counters, for programs: [`stats()`], [`num_goroutines`].
#![forbid(unsafe_code)]

pub use crate::run::account::FullAccounting;
pub use crate::watch::{Bucket, MStats, PInfo, Stats};

/// A snapshot of the scheduler and its counters. No CPU stops: values may be of different moments.
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
pub use crate::watch::stats;

/// How many Gs there are now, without the kernel's service Gs (Go: `NumGoroutine`).
pub use crate::run::door::num_goroutines;
