//! `RwLock`: a value for many readers or one writer.
//!
//! The lock and its guards are `wait::rwlock`, which says how it works and which waiter is next;
//! here are poisoning and the forms with a limit.
#![forbid(unsafe_code)]

use super::poison::{
    LockResult, PoisonError, TimeoutResult, TryResult, check, lock_type, locked, locked_at_once,
    locked_in_time,
};
use crate::run::door::{deadline_after, might_park};
use crate::wait::rwlock::{GuardedRw, RwLockReadGuard, RwLockWriteGuard};
use core::fmt;
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

lock_type!(RwLock, GuardedRw, GuardedRw::try_read);

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, waiting for it if need be.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a writer panicked; or no
    /// guard, if a writer was abandoned.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        might_park();
        locked(self.inner.read(None))
    }

    /// Takes the lock for reading if no G writes or waits to write.
    ///
    /// # Errors
    /// [`TryLockError`](super::TryLockError) says why not, or warns.
    pub fn try_read(&self) -> TryResult<RwLockReadGuard<'_, T>> {
        locked_at_once(self.inner.try_read())
    }

    /// Takes the lock for reading, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`](super::LockTimeoutError) says why not, or warns.
    pub fn read_timeout(&self, timeout: Duration) -> TimeoutResult<RwLockReadGuard<'_, T>> {
        might_park();
        locked_in_time(self.inner.read(Some(deadline_after(timeout))))
    }

    /// Takes the lock for writing, waiting for it if need be.
    ///
    /// # Errors
    /// [`LockError`](super::LockError): the guard with a warning, if a writer panicked; or no
    /// guard, if a writer was abandoned.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        might_park();
        locked(self.inner.write(None))
    }

    /// Takes the lock for writing if no G holds it or waits for it.
    ///
    /// # Errors
    /// [`TryLockError`](super::TryLockError) says why not, or warns.
    pub fn try_write(&self) -> TryResult<RwLockWriteGuard<'_, T>> {
        locked_at_once(self.inner.try_write())
    }

    /// Takes the lock for writing, waiting for `timeout` at most.
    ///
    /// # Errors
    /// [`LockTimeoutError`](super::LockTimeoutError) says why not, or warns.
    pub fn write_timeout(&self, timeout: Duration) -> TimeoutResult<RwLockWriteGuard<'_, T>> {
        might_park();
        locked_in_time(self.inner.write(Some(deadline_after(timeout))))
    }
}
