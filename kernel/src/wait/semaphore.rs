//! `Semaphore`: a limited number of holders at a time.
//!
//! Free permits and waiters are under one lock. A release grants: the first waiter in the queue
//! gets its permits as soon as there are enough, and no other G gets any before it. So a large
//! request is not starved by small ones.
#![forbid(unsafe_code)]

use super::limit::Limit;
use super::queue::{IfUnwound, Locked, Place, TimedOut, WaitQueue};
use crate::run::door::{self, Reason};
use crate::run::sys::const_fn;
use alloc::sync::Arc;
use core::fmt;

/// A number of permits; a G takes some and gives them back.
///
/// ```
/// use runnext::{prelude::*, sync::Semaphore};
/// static DESKS: Semaphore = Semaphore::new(2);
/// let guests: Vec<_> = (0..5).map(|_| go(|| drop(DESKS.permit(1)))).collect();
/// guests.into_iter().for_each(|guest| guest.join().unwrap());
/// assert_eq!(DESKS.available(), 2);
/// ```
pub struct Semaphore {
    /// How many are free; and for each waiter, how many it wants.
    pub(crate) free: WaitQueue<usize, usize>,
}

impl Semaphore {
    const_fn! {
        /// `permits` to begin with.
        pub fn new(permits: usize) -> Self {
            Semaphore { free: WaitQueue::new(permits) }
        }
    }

    /// Takes `n` permits, waiting for them if need be, behind the Gs that wait already.
    pub fn acquire(&self, n: usize) {
        let _in_time = self.acquire_by(n, None);
    }

    /// Takes `n` permits if they are free and no G waits.
    #[must_use = "if false, nothing was taken"]
    pub fn try_acquire(&self, n: usize) -> bool {
        let taken = take_now(&mut self.free.lock(), n);
        if !taken {
            door::check_kill();
        }
        taken
    }

    /// Takes `n` permits, waiting until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`] if there were not enough in time; nothing was taken.
    pub fn acquire_until<'l>(&self, n: usize, limit: impl Into<Limit<'l>>) -> Result<(), TimedOut> {
        limit.into().during(|deadline_ns| self.acquire_by(n, Some(deadline_ns)))
    }

    fn acquire_by(&self, n: usize, deadline_ns: Option<u64>) -> Result<(), TimedOut> {
        door::might_park();
        let mut locked = self.free.lock();
        if take_now(&mut locked, n) {
            return Ok(());
        }
        let place = Place { reason: Reason::Semaphore, list: 0, value: Some(n), deadline_ns };
        let if_killed = IfUnwound(|| self.serve()); // as after a timeout
        let waited = locked.wait(place, |_| false).in_time();
        core::mem::forget(if_killed);
        if waited.is_err() {
            self.serve(); // this G may have been first, and wanted more than the next does
        }
        waited
    }

    /// Adds `n` permits; they need not have been taken before.
    ///
    /// # Panics
    /// When there would be more than `usize::MAX`.
    pub fn release(&self, n: usize) {
        let mut locked = self.free.lock();
        let sum = locked.checked_add(n);
        *locked = sum.unwrap_or(*locked);
        let has_waiters = !locked.is_empty(0);
        drop(locked);
        assert!(sum.is_some(), "Semaphore: more than usize::MAX permits");
        if has_waiters {
            self.serve();
        }
    }

    /// Grants permits to the first waiters while there are enough.
    pub(crate) fn serve(&self) {
        loop {
            let mut locked = self.free.lock();
            let left = locked.front(0).and_then(|n| locked.checked_sub(n));
            let Some(left) = left else { return };
            // None: it selects, and has something else; what it wanted is for the next.
            if let Some(wake) = locked.grant_first(0) {
                *locked = left;
                locked.ready(wake);
            }
        }
    }

    /// The permit of a G that was granted `n`.
    pub(crate) fn granted(&self, n: usize) -> Permit<'_> {
        Permit { semaphore: self, n }
    }

    /// How many permits are free at this instant.
    pub fn available(&self) -> usize {
        *self.free.lock()
    }

    /// Takes `n` permits that are given back when the [`Permit`] is dropped.
    pub fn permit(&self, n: usize) -> Permit<'_> {
        self.acquire(n);
        self.granted(n)
    }

    /// As [`permit`](Self::permit), waiting until `limit` at most.
    ///
    /// # Errors
    /// As for [`acquire_until`](Self::acquire_until).
    pub fn permit_until<'l>(
        &self,
        n: usize,
        limit: impl Into<Limit<'l>>,
    ) -> Result<Permit<'_>, TimedOut> {
        self.acquire_until(n, limit).map(|()| self.granted(n))
    }
}

impl Semaphore {
    /// As [`permit`](Self::permit), for a permit that has a part of the semaphore.
    pub fn permit_owned(self: &Arc<Self>, n: usize) -> OwnedPermit {
        self.acquire(n);
        OwnedPermit { semaphore: self.clone(), n }
    }

    /// As [`permit_owned`](Self::permit_owned), waiting until `limit` at most.
    ///
    /// # Errors
    /// As for [`acquire_until`](Self::acquire_until).
    pub fn permit_owned_until<'l>(
        self: &Arc<Self>,
        n: usize,
        limit: impl Into<Limit<'l>>,
    ) -> Result<OwnedPermit, TimedOut> {
        self.acquire_until(n, limit)?;
        Ok(OwnedPermit { semaphore: self.clone(), n })
    }
}

/// Takes `n` permits if no G waits.
pub(crate) fn take_now(free: &mut Locked<'_, usize, usize>, n: usize) -> bool {
    let left = free.checked_sub(n).filter(|_| free.is_empty(0));
    **free = left.unwrap_or(**free);
    left.is_some()
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}

/// Permits of a [`Semaphore`], given back when this is dropped.
///
/// ```
/// use runnext::sync::{Permit, Semaphore};
/// let gate = Semaphore::new(1);
/// let permit: Permit<'_> = gate.permit(1);
/// permit.forget();
/// assert_eq!(gate.available(), 0);
/// ```
#[must_use = "permits are given back at once if this is not kept"]
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
}

impl Permit<'_> {
    /// Keeps the permits for ever; another G may give them back by [`Semaphore::release`].
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.n > 0 {
            self.semaphore.release(self.n);
        }
    }
}

/// Permits of a [`Semaphore`] in an `Arc`, given back when this is dropped, by whichever G.
///
/// ```
/// use runnext::{prelude::*, sync::Semaphore};
/// use std::sync::Arc;
/// let desks = Arc::new(Semaphore::new(2));
/// let guests: Vec<_> = (0..5).map(|_| {
///     let permit = desks.permit_owned(1); // at most two guests at a time
///     go(move || drop(permit))
/// }).collect();
/// guests.into_iter().for_each(|guest| guest.join().unwrap());
/// assert_eq!(desks.available(), 2);
/// ```
#[must_use = "permits are given back at once if this is not kept"]
#[derive(Debug)]
pub struct OwnedPermit {
    semaphore: Arc<Semaphore>,
    n: usize,
}

impl OwnedPermit {
    /// Keeps the permits for ever; another G may give them back by [`Semaphore::release`].
    pub fn forget(mut self) {
        self.n = 0;
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        if self.n > 0 {
            self.semaphore.release(self.n);
        }
    }
}
