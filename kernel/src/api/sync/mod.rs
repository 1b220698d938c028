//! Synchronization of Gs: locks, conditions, counters.
//!
//! All of them block the calling G only: its CPU runs another one meanwhile. None allocates, not
//! even to wait: a waiter is in a node on its own stack. All can be statics. The names and the
//! poisoning are std's; added are forms with a limit (`_until` a time, for a duration or until a
//! [`Context`](crate::context::Context) is over), because above a kernel there is no layer that
//! could interrupt a wait that will not end, and [`LockError::Abandoned`], because a G can end
//! without its destructors.
//!
//! | type | what it is for | which waiter is served first |
//! |---|---|---|
//! | [`Mutex`] | one G at a time | the first G that tries, for 1 ms; then FIFO |
//! | [`RwLock`] | many readers or one writer | readers and writers in turns |
//! | [`Condvar`] | wait until a condition holds | FIFO |
//! | [`Semaphore`] | a limited number at a time | FIFO |
//! | [`WaitGroup`] | wait until all are done | all at once |
//! | [`Once`], [`OnceLock`] | initialized by the first caller | all at once |
//!
//! The waiting itself, all unsafe code, the locks, and (for drivers) the semaphore are in `wait`.
#![forbid(unsafe_code)]

mod condvar;
mod once;
#[cfg(test)]
mod tests;
mod waitgroup;

pub use crate::wait::mutex::{Mutex, MutexGuard};
pub use crate::wait::poison::{LockError, LockResult};
pub use crate::wait::queue::TimedOut;
pub use crate::wait::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use crate::wait::semaphore::{Permit, Semaphore};
pub use condvar::Condvar;
pub use once::{Once, OnceLock};
pub use waitgroup::{Ticket, WaitGroup};
