//! How a G waits: wait queues, and the locks that are built on them.
//!
//! The unsafe code behind `api`: [`queue`], the wait queues, with their nodes on the stacks of the
//! waiters; [`limit`], how long a wait may last; `mutex`, `rwlock` with `upgrade`, and `semaphore`,
//! which are built on wait queues; [`held`], the owners of locks; `poison`, their errors; [`ring`],
//! the values of channels; `shared`, a reference-counted pointer. The models in `kernel/tests`
//! compile these very files under loom.

pub mod held;
pub mod limit;
pub(crate) mod mutex;
pub(crate) mod poison;
pub mod queue;
pub mod ring;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod shared;
pub(crate) mod upgrade;

pub use shared::Shared;
