//! Synchronization of Gs: locks, conditions, counters.
//!
//! All of them block the calling G only: its CPU runs another one meanwhile. None allocates, not
//! even to wait: a waiter is in a node on its own stack. All can be statics. The names and the
//! poisoning are std's; added are forms with a limit (`_timeout`), because above a kernel there is
//! no layer that could interrupt a wait that will not end, and [`LockError::Abandoned`], because a
//! G can end without its destructors.
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
//! The waiting itself, and all unsafe code, is in `cell`: `wait` is the queue,
//! `mutex` and `rwlock` are the locks without poisoning and guards.
#![forbid(unsafe_code)]

mod condvar;
mod mutex;
mod once;
mod poison;
mod rwlock;
mod semaphore;
#[cfg(test)]
mod tests;
mod waitgroup;

pub use condvar::Condvar;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use poison::{LockError, LockResult, LockTimeoutError, PoisonError, TryLockError};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use waitgroup::{Ticket, WaitGroup};

use crate::park;
use core::fmt;
use core::time::Duration;

/// The timeout passed before the awaited event.
///
/// ```
/// use runnext::sync::{TimedOut, WaitGroup};
/// use std::time::Duration;
/// let group = WaitGroup::new();
/// group.add(1);
/// assert_eq!(group.wait_timeout(Duration::from_micros(1)), Err(TimedOut));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl core::error::Error for TimedOut {}

/// The instant that is `timeout` from now.
fn deadline_ns(timeout: Duration) -> u64 {
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    park::now_ns().saturating_add(timeout_ns)
}
