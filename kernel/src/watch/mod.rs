//! Snapshots, backtraces, traces: what can be seen of the machine while it runs.
//!
//! [`snapshot`] reads one G, M, P or the machine while it runs; [`mod@calls`] the stack of a G at
//! rest, by [`backtrace`], with names from [`symbols`]; [`holder`] which G it waits for. [`trace`]
//! records the scheduler's events, which come through `run::hooks`, and [`schedtrace`] prints a
//! line now and then.

pub(crate) mod backtrace;
pub(crate) mod calls;
pub(crate) mod holder;
pub(crate) mod irqs_off;
pub mod schedtrace;
pub(crate) mod snapshot;
pub(crate) mod symbols;
pub mod trace;
pub use calls::{NoBacktrace, calls};
pub use holder::{WaitingG, lend_rank, waits_for_another};
pub use snapshot::{
    Bucket, GInfo, GState, MInfo, MStats, PInfo, Stats, gs, info, members, ms, stats,
};
