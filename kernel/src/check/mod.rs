//! For tests and study: random preemption and delays, and invariants that must hold all the same.
//!
//! [`chaos`] preempts and delays at random, by a seed; [`simulated`] is a device of software;
//! `invariant` checks the whole scheduler, and [`idle_latency`] how long a runnable G waits while
//! a P is idle. No other room names this one: the scheduler reaches it through `run::hooks`.

pub(crate) mod chaos;
pub(crate) mod idle_latency;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub(crate) mod invariant;
pub mod simulated;
pub use idle_latency::{begins, halts, resumes};
