//! `Mutex`: a value for one G at a time.
//!
//! The lock and its guard are `wait::mutex`, which says how it works and which waiter is next; here
//! are poisoning and the forms with a limit.
#![forbid(unsafe_code)]

use super::poison::{
    LockResult, PoisonError, TimeoutResult, TryResult, check, lock_type, locked_at_once,
    locked_in_time, not_locked,
};
use crate::run::door::{deadline_after, might_park};
use crate::wait::mutex::{Guarded, MutexGuard};
use core::fmt;
use core::time::Duration;

/// A value that one G at a time may touch.
///
/// A G that finds it taken waits and leaves its CPU to others. A free lock goes to
/// the first G that comes, as in Go. The first waiter in the queue that is woken, finds
/// the lock taken again and has waited for more than 1 ms is served next, and after it,
/// in the order of the queue, every waiter that has waited that long: no other G gets
/// the lock in between.
///
/// ```
/// use runnext::{prelude::*, sync::Mutex};
/// static SUM: Mutex<u64> = Mutex::new(0);
/// let adders: Vec<_> = (1..=4).map(|n| go(move || *SUM.lock().unwrap() += n)).collect();
/// adders.into_iter().for_each(|adder| adder.join().unwrap());
/// assert_eq!(*SUM.lock().unwrap(), 10);
/// ```
pub struct Mutex<T: ?Sized> {
    inner: Guarded<T>,
}

lock_type!(Mutex, Guarded, Guarded::try_lock);

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it if need be. A G that holds it already waits for ever.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a G panicked while it
    /// held the lock; or no guard, if a G that held the lock was abandoned.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        might_park();
        match self.inner.lock_at_once() {
            Some(guard) => Ok(guard),
            // Inline, and not by `locked`: else the fast path has a branch on the result.
            None => {
                let (guard, poisoned) = self.inner.lock(None).map_err(not_locked)?;
                Ok(check(guard, poisoned)?)
            }
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError`](super::TryLockError) says why not, or warns.
    pub fn try_lock(&self) -> TryResult<MutexGuard<'_, T>> {
        locked_at_once(self.inner.try_lock())
    }

    /// Takes the lock, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`](super::LockTimeoutError) says why not, or warns.
    pub fn lock_timeout(&self, timeout: Duration) -> TimeoutResult<MutexGuard<'_, T>> {
        might_park();
        match self.inner.lock_at_once() {
            Some(guard) => Ok(guard), // without reading the clock
            None => locked_in_time(self.inner.lock(Some(deadline_after(timeout)))),
        }
    }

    /// Spins for the lock and does not queue. Whether it got the lock.
    #[cfg(test)]
    pub(super) fn spin_only(&self) -> bool {
        self.inner.spin_only()
    }
}
