//! `RwLock`: a value for many readers or one writer.
//!
//! The lock is `cell::rwlock`, which says how it works and which waiter is next; here are guards,
//! poisoning and the forms with a limit.
#![forbid(unsafe_code)]

use super::poison::{
    LockResult, LockTimeoutError, PoisonError, TryLockError, not_at_once, not_in_time, not_locked,
    warn,
};
use crate::cell::rwlock::{GuardedRw, HeldRead, HeldWrite};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

/// A value that many Gs may read at a time, or one may change.
///
/// Readers and writers take turns where both wait: a writer that waits keeps new readers out, and
/// when it is done lets in the readers that waited meanwhile. So a G that reads must not read again
/// meanwhile: a writer between the two would wait for the first, and the second for the writer.
///
/// ```
/// use runnext::{prelude::*, sync::RwLock};
/// static CONFIG: RwLock<u32> = RwLock::new(1);
/// let readers: Vec<_> = (0..3).map(|_| go(|| *CONFIG.read().unwrap())).collect();
/// assert!(readers.into_iter().all(|reader| reader.join() == Ok(1)));
/// *CONFIG.write().unwrap() = 2;
/// assert_eq!(*CONFIG.read().unwrap(), 2);
/// ```
pub struct RwLock<T: ?Sized> {
    inner: GuardedRw<T>,
}

type TimeoutResult<G> = Result<G, LockTimeoutError<G>>;
type TryResult<G> = Result<G, TryLockError<G>>;

impl<T> RwLock<T> {
    /// A free lock around `value`.
    ///
    /// ```
    /// static LOCK: runnext::sync::RwLock<u32> = runnext::sync::RwLock::new(1);
    /// ```
    pub const fn new(value: T) -> Self {
        RwLock { inner: GuardedRw::new(value) }
    }

    /// The value, without the lock.
    ///
    /// # Errors
    /// The value with a warning, if a writer panicked, or the lock was abandoned.
    ///
    /// ```
    /// assert_eq!(runnext::sync::RwLock::new(5).into_inner().unwrap(), 5);
    /// ```
    pub fn into_inner(self) -> Result<T, PoisonError<T>> {
        let is_poisoned = self.is_poisoned();
        warn(self.inner.into_inner(), is_poisoned)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, waiting for it if need be.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a writer panicked; or no
    /// guard, if a writer was abandoned.
    ///
    /// ```
    /// let lock = runnext::sync::RwLock::new(1);
    /// let (one, other) = (lock.try_read().unwrap(), lock.try_read().unwrap());
    /// assert_eq!(*one, *other);
    /// ```
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        crate::park::might_park();
        Ok(self.reading(self.inner.read(None).map_err(not_locked)?)?)
    }

    /// Takes the lock for reading if no G writes or waits to write.
    ///
    /// # Errors
    /// [`TryLockError`] says why not, or warns.
    ///
    /// ```
    /// let lock = runnext::sync::RwLock::new(1);
    /// let _writer = lock.write();
    /// assert!(lock.try_read().is_err());
    /// ```
    pub fn try_read(&self) -> TryResult<RwLockReadGuard<'_, T>> {
        let held = self.inner.try_read().map_err(not_at_once)?;
        self.reading(held).map_err(TryLockError::Poisoned)
    }

    /// Takes the lock for reading, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`] says why not, or warns.
    ///
    /// ```
    /// use std::time::Duration;
    /// let lock = runnext::sync::RwLock::new(1);
    /// let _writer = lock.write();
    /// assert!(lock.read_timeout(Duration::from_micros(1)).is_err());
    /// ```
    pub fn read_timeout(&self, timeout: Duration) -> TimeoutResult<RwLockReadGuard<'_, T>> {
        crate::park::might_park();
        let held = self.inner.read(Some(super::deadline_ns(timeout)));
        self.reading(held.map_err(not_in_time)?).map_err(LockTimeoutError::Poisoned)
    }

    /// Takes the lock for writing, waiting for it if need be.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a writer panicked; or no
    /// guard, if a writer was abandoned.
    ///
    /// ```
    /// let lock = runnext::sync::RwLock::new(1);
    /// *lock.write().unwrap() += 1;
    /// assert_eq!(*lock.read().unwrap(), 2);
    /// ```
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        crate::park::might_park();
        Ok(self.writing(self.inner.write(None).map_err(not_locked)?)?)
    }

    /// Takes the lock for writing if no G holds it or waits for it.
    ///
    /// # Errors
    /// [`TryLockError`] says why not, or warns.
    ///
    /// ```
    /// let lock = runnext::sync::RwLock::new(1);
    /// let _reader = lock.read();
    /// assert!(lock.try_write().is_err());
    /// ```
    pub fn try_write(&self) -> TryResult<RwLockWriteGuard<'_, T>> {
        let held = self.inner.try_write().map_err(not_at_once)?;
        self.writing(held).map_err(TryLockError::Poisoned)
    }

    /// Takes the lock for writing, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`] says why not, or warns.
    ///
    /// ```
    /// use std::time::Duration;
    /// let lock = runnext::sync::RwLock::new(1);
    /// let _reader = lock.read();
    /// assert!(lock.write_timeout(Duration::from_micros(1)).is_err());
    /// ```
    pub fn write_timeout(&self, timeout: Duration) -> TimeoutResult<RwLockWriteGuard<'_, T>> {
        crate::park::might_park();
        let held = self.inner.write(Some(super::deadline_ns(timeout)));
        self.writing(held.map_err(not_in_time)?).map_err(LockTimeoutError::Poisoned)
    }

    /// Whether a writer panicked, or the lock was abandoned.
    ///
    /// ```
    /// assert!(!runnext::sync::RwLock::new(()).is_poisoned());
    /// ```
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Declares the value consistent again. An abandoned lock stays abandoned.
    ///
    /// ```
    /// let lock = runnext::sync::RwLock::new(());
    /// lock.clear_poison();
    /// assert!(!lock.is_poisoned());
    /// ```
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// The value, without taking the lock: `&mut self` excludes all other holders.
    ///
    /// # Errors
    /// The value with a warning, if a writer panicked, or the lock was abandoned.
    ///
    /// ```
    /// let mut lock = runnext::sync::RwLock::new(1);
    /// *lock.get_mut().unwrap() = 2;
    /// ```
    pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
        let is_poisoned = self.is_poisoned();
        warn(self.inner.get_mut(), is_poisoned)
    }

    /// How many Gs have ever queued here.
    #[cfg(test)]
    pub(super) fn queued_ever(&self) -> u64 {
        self.inner.queued_ever()
    }

    fn reading<'a>(
        &self,
        held: HeldRead<'a, T>,
    ) -> Result<RwLockReadGuard<'a, T>, PoisonError<RwLockReadGuard<'a, T>>> {
        warn(RwLockReadGuard { held }, self.inner.was_poisoned())
    }

    fn writing<'a>(
        &self,
        held: HeldWrite<'a, T>,
    ) -> Result<RwLockWriteGuard<'a, T>, PoisonError<RwLockWriteGuard<'a, T>>> {
        warn(RwLockWriteGuard { held }, self.inner.was_poisoned())
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        match self.try_read().map_err(poisoned) {
            Ok(guard) | Err(Some(guard)) => out.field("value", &&*guard),
            Err(None) => out.field("value", &format_args!("<locked>")),
        };
        out.field("poisoned", &self.is_poisoned()).finish()
    }
}

/// The guard of a poisoned lock, if there is one.
fn poisoned<G>(error: TryLockError<G>) -> Option<G> {
    match error {
        TryLockError::Poisoned(poisoned) => Some(PoisonError::into_inner(poisoned)),
        TryLockError::Abandoned | TryLockError::WouldBlock => None,
    }
}

/// The right to read the value of a [`RwLock`], until this is dropped. A reader
/// that panics poisons nothing.
///
/// ```
/// use runnext::sync::{RwLock, RwLockReadGuard};
/// let lock = RwLock::new(1);
/// let guard: RwLockReadGuard<'_, i32> = lock.read().unwrap();
/// assert_eq!(*guard, 1);
/// ```
#[must_use = "the lock is free again at once if its guard is not kept"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    held: HeldRead<'a, T>,
}

/// The right to change the value of a [`RwLock`], until this is dropped; the
/// lock is poisoned if that is by a panic.
///
/// ```
/// use runnext::sync::{RwLock, RwLockWriteGuard};
/// let lock = RwLock::new(1);
/// let mut guard: RwLockWriteGuard<'_, i32> = lock.write().unwrap();
/// *guard = 2;
/// ```
#[must_use = "the lock is free again at once if its guard is not kept"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    held: HeldWrite<'a, T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
