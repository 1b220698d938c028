//! The unsafe code behind the public API: wait queues, locks, result cells.
//!
//! What waits: [`wait`], the wait queues, with their nodes on the stacks of the waiters; `mutex`,
//! `rwlock` and `semaphore`, which are built on it; [`held`], the owners of locks; [`ring`], the
//! values of channels. What the scheduler itself needs, and so uses none of these: `job`, the
//! closure of a G and its outcome; `permit`, of park and unpark; `link`, an atomic reference to a
//! record, and `registry`, the list of all records of a kind; `label`, the name of a G, readable
//! from outside; `shared`, a reference-counted pointer; `sys`, what all of them need of the kernel.

pub mod held;
mod job;
mod label;
mod link;
pub(crate) mod mutex;
mod permit;
mod registry;
pub mod ring;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
mod shared;
pub(crate) mod sys;
pub mod wait;

pub use job::{InlineCell, Job, Joiner, WORKER_WORD, Work, pair, pair_in, worker_in};
pub use label::Label;
pub use link::Link;
pub(crate) use permit::Permit;
pub use registry::{Older, Record, Registry};
pub use shared::Shared;
