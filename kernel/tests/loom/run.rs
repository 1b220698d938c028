//! What the models need of the kernel's `run`: its own files, on a [`sys`] that loom watches.
//!
//! The kernel itself cannot be built under loom (its statics want constant
//! atomics). So each model takes the sources that it is about as they are, and
//! finds the rest of the kernel here and in `wait`, by the same names.

#[path = "../../src/run/attached.rs"]
pub mod attached;
pub mod door;
#[path = "../../src/run/job.rs"]
pub mod job;
#[path = "../../src/run/members.rs"]
pub mod members;
#[path = "../../src/run/permit.rs"]
pub(crate) mod permit;
#[path = "../../src/run/record.rs"]
pub mod record;
pub(crate) mod sys;
#[path = "../../src/run/time.rs"]
pub mod time;
#[path = "../../sched/src/told.rs"]
pub(crate) mod told;
#[path = "../../src/run/waiting.rs"]
pub mod waiting;

pub use record::Link;
