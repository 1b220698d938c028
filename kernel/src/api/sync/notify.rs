//! `Notify`: wake one waiter, now or the next that comes.
//!
//! One bit beside the queue remembers a notification that found no waiter. Both are under the
//! queue's lock, so a notification is not lost between a G that looks and waits.
#![forbid(unsafe_code)]

use crate::run::sys::{Reason, const_fn};
use crate::wait::limit::Limit;
use crate::wait::queue::{Place, TimedOut, WaitQueue};
use core::fmt;

/// Wakes Gs without a value and without a lock (Tokio: Notify).
///
/// [`notify_one`](Self::notify_one) wakes the longest waiter. If there is none, the next call of
/// [`wait`](Self::wait) returns at once; any number of such notifications counts as one. So a G
/// that stores something and notifies, and another that takes what is there and waits, never miss
/// each other.
///
/// ```
/// use runnext::{prelude::*, sync::{Mutex, Notify}};
/// static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// static MORE: Notify = Notify::new();
/// let worker = go(|| loop {
///     if let Some(job) = JOBS.lock().unwrap().pop() {
///         return job;
///     }
///     MORE.wait();
/// });
/// JOBS.lock().unwrap().push(7);
/// MORE.notify_one();
/// assert_eq!(worker.join(), Ok(7));
/// ```
#[derive(Default)]
pub struct Notify {
    /// Whether a notification waits for a G.
    queue: WaitQueue<bool>,
}

impl Notify {
    const_fn! {
        /// Not notified.
        pub fn new() -> Self {
            Notify { queue: WaitQueue::new(false) }
        }
    }

    /// Waits for a notification, and uses it up.
    pub fn wait(&self) {
        let _in_time = self.wait_by(None);
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    ///
    /// # Errors
    /// [`TimedOut`]; no notification was used up.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), TimedOut> {
        limit.into().during(|deadline_ns| self.wait_by(Some(deadline_ns)))
    }

    fn wait_by(&self, deadline_ns: Option<u64>) -> Result<(), TimedOut> {
        crate::run::door::might_park();
        let mut locked = self.queue.lock();
        if core::mem::take(&mut *locked) {
            return Ok(());
        }
        let place = Place { reason: Reason::Condvar, list: 0, value: None, deadline_ns };
        locked.wait(place, |_| false).in_time()
    }

    /// Wakes the longest waiter, or lets the next wait return at once.
    pub fn notify_one(&self) {
        let mut locked = self.queue.lock();
        let first = locked.grant(0);
        *locked |= first.is_none();
        locked.ready_if(first);
    }

    /// Wakes all Gs that wait now. Nothing is kept for later ones.
    pub fn notify_all(&self) {
        self.queue.grant_all(0);
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").field("notified", &*self.queue.lock()).finish()
    }
}
