//! Poisoning: a value whose holder panicked may be half changed.
//!
//! The errors of `Mutex` and `RwLock`. As in std, a lock is poisoned by a guard
//! that was there when the panic began and is dropped while it unwinds; a lock
//! taken and freed by a destructor meanwhile is not. How that is known is in
//! `cell::held`; a lock whose holder ended without unwinding is poisoned as well.

use core::fmt;

/// What taking a lock gives: a guard, or a guard with a warning.
pub type LockResult<G> = Result<G, PoisonError<G>>;

/// The lock was taken, but a G panicked while it held it.
///
/// ```
/// use runnext::{prelude::*, sync::Mutex};
/// static COUNT: Mutex<u32> = Mutex::new(0);
/// let half_done = go(|| {
///     let _count = COUNT.lock();
///     panic!("in the middle");
/// });
/// assert!(half_done.join().is_err());
/// assert_eq!(*COUNT.lock().unwrap_err().into_inner(), 0);
/// ```
pub struct PoisonError<G> {
    guard: G,
}

impl<G> PoisonError<G> {
    /// An error around a guard.
    pub fn new(guard: G) -> Self {
        PoisonError { guard }
    }

    /// The guard, warning or not.
    pub fn into_inner(self) -> G {
        self.guard
    }

    /// The guard, for a look.
    pub fn get_ref(&self) -> &G {
        &self.guard
    }

    /// The guard, for a change.
    pub fn get_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<G> fmt::Debug for PoisonError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoisonError").finish_non_exhaustive()
    }
}

impl<G> fmt::Display for PoisonError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("poisoned lock: a G panicked while it held it")
    }
}

impl<G> core::error::Error for PoisonError<G> {}

/// Why a lock was not taken at once.
///
/// ```
/// use runnext::sync::{Mutex, TryLockError};
/// let lock = Mutex::new(());
/// let _held = lock.lock();
/// assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
/// ```
pub enum TryLockError<G> {
    /// It was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// Somebody else has it.
    WouldBlock,
}

impl<G> fmt::Debug for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryLockError::Poisoned(_) => "Poisoned(..)",
            TryLockError::WouldBlock => "WouldBlock",
        })
    }
}

impl<G> fmt::Display for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryLockError::Poisoned(error) => error.fmt(f),
            TryLockError::WouldBlock => f.write_str("the lock is held by another G"),
        }
    }
}

impl<G> core::error::Error for TryLockError<G> {}

/// Why a lock was not taken in time.
///
/// ```
/// use runnext::sync::{LockTimeoutError, Mutex};
/// use std::time::Duration;
/// let lock = Mutex::new(());
/// let _held = lock.lock();
/// let second = lock.lock_timeout(Duration::from_micros(1));
/// assert!(matches!(second, Err(LockTimeoutError::TimedOut)));
/// ```
pub enum LockTimeoutError<G> {
    /// It was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// Somebody else had it all the time.
    TimedOut,
}

impl<G> fmt::Debug for LockTimeoutError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockTimeoutError::Poisoned(_) => "Poisoned(..)",
            LockTimeoutError::TimedOut => "TimedOut",
        })
    }
}

impl<G> fmt::Display for LockTimeoutError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockTimeoutError::Poisoned(error) => error.fmt(f),
            LockTimeoutError::TimedOut => {
                f.write_str("the lock was held by another G all the time")
            }
        }
    }
}

impl<G> core::error::Error for LockTimeoutError<G> {}

/// A guard as result: with a warning if its lock is poisoned.
#[inline]
pub(super) fn warn<G>(guard: G, is_poisoned: bool) -> LockResult<G> {
    if is_poisoned { Err(PoisonError::new(guard)) } else { Ok(guard) }
}
