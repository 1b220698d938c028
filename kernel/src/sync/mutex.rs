//! `Mutex`: a value for one G at a time.
//!
//! The lock is `cell::mutex`, which says how it works and which waiter is next; here are guards,
//! poisoning and the forms with a limit.
#![forbid(unsafe_code)]

use super::poison::{
    LockResult, LockTimeoutError, PoisonError, TryLockError, not_at_once, not_in_time, not_locked,
    warn,
};
use crate::cell::mutex::{Guarded, Held, Taken};
use core::fmt;
use core::ops::{Deref, DerefMut};
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

impl<T> Mutex<T> {
    /// A free lock around `value`.
    ///
    /// ```
    /// static LOCK: runnext::sync::Mutex<u32> = runnext::sync::Mutex::new(1);
    /// ```
    pub const fn new(value: T) -> Self {
        Mutex { inner: Guarded::new(value) }
    }

    /// The value, without the lock.
    ///
    /// # Errors
    /// The value with a warning, if a G panicked while it held the lock, or the lock was
    /// abandoned.
    ///
    /// ```
    /// assert_eq!(runnext::sync::Mutex::new(5).into_inner().unwrap(), 5);
    /// ```
    pub fn into_inner(self) -> Result<T, PoisonError<T>> {
        let is_poisoned = self.is_poisoned();
        warn(self.inner.into_inner(), is_poisoned)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it if need be. A G that holds it already waits for ever.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a G panicked while it
    /// held the lock; or no guard, if a G that held the lock was abandoned.
    ///
    /// ```
    /// let lock = runnext::sync::Mutex::new(1);
    /// *lock.lock().unwrap() += 1;
    /// assert_eq!(*lock.lock().unwrap(), 2);
    /// ```
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        crate::park::might_park();
        match self.inner.lock_at_once() {
            Some(held) => Ok(MutexGuard { held }),
            // Inline: the slow path returns no guard, which would cost the fast path a register.
            None => Ok(MutexGuard::new(self.inner.lock(None).map_err(not_locked)?)?),
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`TryLockError`] says why not, or warns.
    ///
    /// ```
    /// let lock = runnext::sync::Mutex::new(1);
    /// let first = lock.try_lock();
    /// assert!(first.is_ok());
    /// assert!(lock.try_lock().is_err());
    /// ```
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError<MutexGuard<'_, T>>> {
        let taken = self.inner.try_lock().map_err(not_at_once)?;
        MutexGuard::new(taken).map_err(TryLockError::Poisoned)
    }

    /// Takes the lock, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`] says why not, or warns.
    ///
    /// ```
    /// use std::time::Duration;
    /// let lock = runnext::sync::Mutex::new(1);
    /// let first = lock.lock_timeout(Duration::from_secs(1));
    /// assert!(first.is_ok());
    /// assert!(lock.lock_timeout(Duration::from_micros(1)).is_err());
    /// ```
    pub fn lock_timeout(
        &self,
        timeout: Duration,
    ) -> Result<MutexGuard<'_, T>, LockTimeoutError<MutexGuard<'_, T>>> {
        crate::park::might_park();
        if let Some(held) = self.inner.lock_at_once() {
            return Ok(MutexGuard { held }); // without reading the clock
        }
        let taken = self.inner.lock(Some(super::deadline_ns(timeout))).map_err(not_in_time)?;
        MutexGuard::new(taken).map_err(LockTimeoutError::Poisoned)
    }

    /// Whether a G panicked while it held the lock, or the lock was abandoned.
    ///
    /// ```
    /// assert!(!runnext::sync::Mutex::new(()).is_poisoned());
    /// ```
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Declares the value consistent again. An abandoned lock stays abandoned.
    ///
    /// ```
    /// let lock = runnext::sync::Mutex::new(());
    /// lock.clear_poison();
    /// assert!(!lock.is_poisoned());
    /// ```
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// How many Gs have ever queued here.
    #[cfg(test)]
    pub(super) fn queued_ever(&self) -> u64 {
        self.inner.queued_ever()
    }

    /// Spins for the lock and does not queue. Whether it got the lock.
    #[cfg(test)]
    pub(super) fn spin_only(&self) -> bool {
        self.inner.spin_only()
    }

    /// The value, without taking the lock: `&mut self` excludes all other holders.
    ///
    /// # Errors
    /// The value with a warning, if a G panicked while it held the lock, or the lock was
    /// abandoned.
    ///
    /// ```
    /// let mut lock = runnext::sync::Mutex::new(1);
    /// *lock.get_mut().unwrap() = 2;
    /// ```
    pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
        let is_poisoned = self.is_poisoned();
        warn(self.inner.get_mut(), is_poisoned)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match self.inner.try_lock() {
            Ok((held, _)) => out.field("value", &&*held),
            Err(_) => out.field("value", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned()).finish()
    }
}

/// The right to touch the value of a [`Mutex`]; the lock is free again when
/// this is dropped, and poisoned if that is by a panic.
///
/// ```
/// use runnext::sync::{Mutex, MutexGuard};
/// let lock = Mutex::new(1);
/// let mut guard: MutexGuard<'_, i32> = lock.lock().unwrap();
/// *guard = 2;
/// ```
#[must_use = "the lock is free again at once if its guard is not kept"]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held<'a, T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    fn new((held, poisoned): Taken<'a, T>) -> Result<Self, PoisonError<Self>> {
        warn(MutexGuard { held }, poisoned.0)
    }

    /// A token to take this lock again after the guard is dropped.
    pub(super) fn retake(&self) -> Retake<'a, T> {
        Retake { lock: self.held.lock() }
    }
}

/// A lock that was held, and will be again: `Condvar` keeps it meanwhile.
pub(super) struct Retake<'a, T: ?Sized> {
    lock: &'a Guarded<T>,
}

impl<'a, T: ?Sized> Retake<'a, T> {
    pub(super) fn lock(self) -> LockResult<MutexGuard<'a, T>> {
        let taken = self.lock.lock(None).map_err(not_locked)?;
        Ok(MutexGuard::new(taken)?)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
