//! Snapshots: one type each for a G, an M, a P and the machine.
//!
//! Every report reads these: `ps`, `top`, schedtrace, the stream of events, the deadlock scan. No
//! CPU is stopped for a snapshot; what is consistent in one, and how that is achieved, is at the
//! head of its file. (The census of `invariant` has all values of one moment: all CPUs stand still
//! for it.)

mod g;
mod m;
mod machine;
mod p;

pub use g::{GInfo, GState, gs, info, members};
pub(crate) use g::{of_record, wait_of};
pub use m::{MInfo, ms};
pub use machine::{Bucket, Histogram, MStats, Stats, stats};
pub use p::PInfo;
