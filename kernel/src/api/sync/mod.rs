//! Synchronization of Gs: locks, conditions, counters.
//!
//! All of them block the calling G only: its CPU runs another one meanwhile. To wait allocates
//! nothing: a waiter is in a node on its own stack. Locks and counters can be statics. The names
//! and the poisoning are std's; added are forms with a limit (`_until` a time, for a duration or
//! until a [`Context`](crate::context::Context) is over), because above a kernel there is no layer
//! that could interrupt a wait that will not end, and [`LockError::Abandoned`], because a G can end
//! without its destructors.
//!
//! | type | what it is for | which waiter is served first |
//! |---|---|---|
//! | [`Mutex`] | one G at a time | the first G that tries, for 1 ms; then FIFO |
//! | [`RwLock`] | many readers or one writer | readers and writers in turns |
//! | [`Condvar`] | wait until a condition holds | FIFO |
//! | [`Semaphore`] | a limited number at a time | FIFO |
//! | [`WaitGroup`] | wait until all are done | all at once |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | initialized by the first caller | all at once |
//! | [`Barrier`] | so many Gs wait for each other | all at once |
//! | [`Notify`] | wake one G, now or when it comes | FIFO |
//! | [`broadcast`], [`watch`] | each receiver gets every value, or the latest | as for channels |
//! | [`ErrGroup`] | several Gs; the first error cancels the rest | |
//! | [`JoinSet`] | several Gs; their results as they end | |
//!
//! Guards stay in their G, as std's do. Of a lock or semaphore in an `Arc` there are *owned* ones
//! (`lock_owned`, `write_owned`, `permit_owned`), which may be dropped by another G.
//!
//! There is no concurrent map (Go: `sync.Map`): its own documentation prefers a map in a mutex for
//! most programs, and here a `Mutex<HashMap>` that is held shortly never blocks a CPU.
//!
//! The waiting itself, all unsafe code, the locks, and (for drivers) the semaphore are in `wait`.
#![forbid(unsafe_code)]

mod barrier;
pub mod broadcast;
mod condvar;
mod group;
mod hub;
mod joinset;
mod notify;
mod once;
#[cfg(test)]
mod tests;
mod waitgroup;
pub mod watch;

pub use crate::wait::mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use crate::wait::poison::{LockError, LockResult};
pub use crate::wait::queue::TimedOut;
pub use crate::wait::rwlock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
pub use crate::wait::semaphore::{OwnedPermit, Permit, Semaphore};
pub use crate::wait::upgrade::RwLockUpgradableGuard;
pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use group::{ErrGroup, GroupError};
pub use joinset::JoinSet;
pub use notify::Notify;
pub use once::{LazyLock, Once, OnceLock};
pub use waitgroup::{Ticket, WaitGroup};
