//! The unsafe code behind the public API: wait queues, locks, result cells.
//!
//! What waits: [`wait`], the wait queues, with their nodes on the stacks of the waiters; `mutex`,
//! `rwlock` and `semaphore`, which are built on it; [`held`], the owners of locks; [`ring`], the
//! values of channels. What the scheduler itself needs, and so uses none of these: `job`, the
//! closure of a G and its outcome; `permit`, of park and unpark; `link`, an atomic reference to a
//! record, and `registry`, the list of all records of a kind; `label`, the name of a G, readable
//! from outside; `shared`, a reference-counted pointer; `sys`, what all of them need of the kernel.

pub mod held;
pub(crate) mod mutex;
pub mod queue;
pub mod ring;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod shared;

pub use shared::Shared;
