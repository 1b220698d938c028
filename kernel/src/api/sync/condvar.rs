//! `Condvar`: wait, with a mutex released meanwhile, until a G notifies.
//!
//! A waiter queues before it frees the mutex: a G that changes the value and notifies finds it.
#![forbid(unsafe_code)]

use super::{LockResult, MutexGuard, TimedOut};
use crate::run::door::{self, Reason};
use crate::wait::limit::Limit;
use crate::wait::queue::{Place, WaitQueue};
use core::fmt;
use core::time::Duration;

/// Waits until a condition on the value of a [`Mutex`](super::Mutex) holds.
///
/// A wake-up means "check again", as in std: the condition may be false again when the mutex is
/// retaken. [`wait_while`](Self::wait_while) checks by itself. The queue is FIFO.
///
/// ```
/// use runnext::{prelude::*, sync::{Condvar, Mutex}};
/// static READY: Mutex<bool> = Mutex::new(false);
/// static CHANGED: Condvar = Condvar::new();
/// let waiter = go(|| *CHANGED.wait_while(READY.lock().unwrap(), |ready| !*ready).unwrap());
/// *READY.lock().unwrap() = true;
/// CHANGED.notify_one();
/// assert_eq!(waiter.join(), Ok(true));
/// ```
#[derive(Default)]
pub struct Condvar {
    pub(super) queue: WaitQueue,
}

impl Condvar {
    /// Without waiters.
    pub const fn new() -> Self {
        Condvar { queue: WaitQueue::new(()) }
    }

    /// Frees the mutex and waits, as one step; then takes the mutex again.
    ///
    /// # Errors
    /// The guard with a warning, if a G panicked while it held the mutex; no guard, if a G that
    /// held it was abandoned meanwhile.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_by(guard, None).0
    }

    /// As [`wait`](Self::wait), for `timeout` at most. The mutex is taken again in any case; the
    /// second of the pair says whether the timeout passed.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), TimedOut>)> {
        self.wait_until(guard, timeout)
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `limit` at most.
    pub fn wait_until<'a, 'l, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), TimedOut>)> {
        pair(limit.into().during(|deadline_ns| self.wait_by(guard, Some(deadline_ns))))
    }

    /// As [`wait`](Self::wait), while `condition` returns true.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// As [`wait_while`](Self::wait_while), for `timeout` at most. `TimedOut` says that the
    /// condition still held at the end.
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), TimedOut>)> {
        self.wait_until_while(guard, timeout, condition)
    }

    /// As [`wait_timeout_while`](Self::wait_timeout_while), until `limit` at most.
    pub fn wait_until_while<'a, 'l, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: impl Into<Limit<'l>>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, Result<(), TimedOut>)> {
        let limit = limit.into().starting_now();
        while condition(&mut guard) {
            let (again, waited) = self.wait_until(guard, limit)?;
            guard = again;
            if waited.is_err() {
                let waited = if condition(&mut guard) { waited } else { Ok(()) };
                return Ok((guard, waited));
            }
        }
        Ok((guard, Ok(())))
    }

    /// Wakes the longest waiter, if there is one.
    pub fn notify_one(&self) {
        let mut locked = self.queue.lock();
        let first = locked.grant(0);
        locked.ready_if(first);
    }

    /// Wakes all current waiters.
    pub fn notify_all(&self) {
        self.queue.grant_all(0);
    }

    fn wait_by<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_ns: Option<u64>,
    ) -> (LockResult<MutexGuard<'a, T>>, Result<(), TimedOut>) {
        door::might_park();
        let mutex = MutexGuard::mutex(&guard);
        let place = Place { reason: Reason::Condvar, list: 0, value: None, deadline_ns };
        let mut guard = Some(guard);
        let free = || drop(guard.take());
        let waited = self.queue.lock().wait_watching(place, Some(free), |()| false).in_time();
        (mutex.lock(), waited)
    }
}

fn pair<G, W>((guard, waited): (LockResult<G>, W)) -> LockResult<(G, W)> {
    match guard {
        Ok(guard) => Ok((guard, waited)),
        Err(error) => Err(error.map(|guard| (guard, waited))),
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
