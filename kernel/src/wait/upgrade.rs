//! From reader to writer of a `RwLock`.
//!
//! Two readers that both wait to become writers would wait for each other. So a reader that may
//! become one (`upgradable_read`) has a mutex beside its place among the readers, and there is one
//! such reader at a time. To become the writer it waits in a list of its own, before all others:
//! QUEUED keeps new readers out, and the reader that leaves it alone comes to the queue.
#![forbid(unsafe_code)]

use super::limit::Limit;
use super::mutex::MutexGuard;
use super::poison::{LockError, LockResult, with_guard};
use super::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::run::door::might_park;
use core::mem::forget;
use core::ops::Deref;

/// The right to read the value of a `RwLock`, and to become its writer.
///
/// ```
/// use runnext::sync::{RwLock, RwLockUpgradableGuard};
/// let cache = RwLock::new(None);
/// let found = cache.upgradable_read().unwrap();
/// if found.is_none() {
///     *RwLockUpgradableGuard::upgrade(found).unwrap() = Some(42);
/// }
/// assert_eq!(*cache.read().unwrap(), Some(42));
/// ```
#[must_use = "the lock is free again at once if its guard is not kept"]
pub struct RwLockUpgradableGuard<'a, T: ?Sized> {
    // Freed in this order: the next one finds no reader that may become a writer.
    read: RwLockReadGuard<'a, T>,
    upgrader: MutexGuard<'a, ()>,
}

impl<T: ?Sized> Deref for RwLockUpgradableGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.read
    }
}

impl<'a, T: ?Sized> RwLockUpgradableGuard<'a, T> {
    /// Becomes the writer when all other readers have left; none enters meanwhile, and no other
    /// writer comes before this one. Associated, as it would hide a method of the value.
    ///
    /// # Errors
    /// [`LockError::Poisoned`], with the guard.
    pub fn upgrade(this: Self) -> LockResult<RwLockWriteGuard<'a, T>> {
        might_park();
        Self::upgrade_by(this, None).unwrap_or_else(|_| unreachable!("there is no limit"))
    }

    /// As [`upgrade`](Self::upgrade), until `limit` at most.
    ///
    /// # Errors
    /// The reader's guard, if other readers were still there.
    pub fn upgrade_until<'l>(
        this: Self,
        limit: impl Into<Limit<'l>>,
    ) -> Result<LockResult<RwLockWriteGuard<'a, T>>, Self> {
        might_park();
        limit.into().during(|deadline_ns| Self::upgrade_by(this, Some(deadline_ns)))
    }

    fn upgrade_by(
        this: Self,
        deadline_ns: Option<u64>,
    ) -> Result<LockResult<RwLockWriteGuard<'a, T>>, Self> {
        let lock = RwLockReadGuard::lock(&this.read);
        // A G that is killed here is a reader that leaves.
        if lock.lock.upgrade(deadline_ns).is_err() {
            return Err(this);
        }
        let RwLockUpgradableGuard { read, upgrader } = this;
        forget(read);
        drop(upgrader);
        Ok(lock.writing(lock.lock.poisoned()))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, with the right to become the writer: one G at a time, beside
    /// other readers.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn upgradable_read(&self) -> LockResult<RwLockUpgradableGuard<'_, T>> {
        self.upgradable(self.lock.upgrader.lock(), || self.read())
    }

    /// As [`upgradable_read`](Self::upgradable_read), waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn upgradable_read_until<'l>(
        &self,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<RwLockUpgradableGuard<'_, T>> {
        let limit = limit.into().starting_now();
        self.upgradable(self.lock.upgrader.lock_until(limit), || self.read_until(limit))
    }

    fn upgradable<'a>(
        &'a self,
        upgrader: LockResult<MutexGuard<'a, ()>>,
        read: impl FnOnce() -> LockResult<RwLockReadGuard<'a, T>>,
    ) -> LockResult<RwLockUpgradableGuard<'a, T>> {
        let upgrader = match upgrader {
            // Nothing is in that mutex that a panic could have left half changed.
            Ok(upgrader) | Err(LockError::Poisoned(upgrader)) => upgrader,
            Err(LockError::Abandoned) => return Err(LockError::Abandoned),
            Err(LockError::Held) => return Err(LockError::Held),
        };
        with_guard(read(), |read| RwLockUpgradableGuard { read, upgrader })
    }
}
