//! For tests and study: unkind machines, and what must hold on every one.
//!
//! [`chaos`] preempts and delays at random, by a seed; [`simulated`] is a device of software;
//! `invariant` checks the whole scheduler, with `census`, the place of every G, and
//! [`idle_latency`], how long a runnable G waits beside an idle P. Nothing below names this room:
//! the scheduler reaches it through `run::hooks`.

#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub(crate) mod census;
pub(crate) mod chaos;
pub(crate) mod idle_latency;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub(crate) mod invariant;
pub mod simulated;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use census::Census;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use census::Queued;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use idle_latency::IdleLatency;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use idle_latency::longest as longest_idle_latency;
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub use idle_latency::reset as reset_idle_latency;
pub use idle_latency::{begins, halts, resumes};
