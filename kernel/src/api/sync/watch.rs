//! `watch`: receivers see the latest value, and wait for it to change.
//!
//! What a receiver has not looked at is overwritten: for states, settings and progress, not for
//! values of which each counts.
#![forbid(unsafe_code)]

use super::hub::{Listener, Teller};
use crate::api::chan::{self, RecvError, RecvTimeoutError};
use crate::wait::limit::Limit;
use alloc::sync::Arc;
use core::fmt;

/// A value that senders replace and receivers look at; the receiver that this gives has seen
/// `value`.
///
/// ```
/// use runnext::{prelude::*, sync::watch};
/// let (tx, mut progress) = watch::channel(0);
/// let shown = go(move || {
///     let mut last = 0;
///     while let Ok(percent) = progress.changed() {
///         assert!(*percent > last);
///         last = *percent;
///     }
///     last
/// });
/// (1..=100).for_each(|percent| tx.send(percent));
/// drop(tx);
/// assert_eq!(shown.join(), Ok(100));
/// ```
///
/// # Panics
/// When there is no memory for it.
pub fn channel<T: Send + Sync>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender { hub: Teller::new(State { value: Arc::new(value), version: 0 }) };
    let receiver = sender.subscribe();
    (sender, receiver)
}

struct State<T> {
    value: Arc<T>,
    version: u64,
}

/// An end that replaces the value. A clone is one more sender.
pub struct Sender<T> {
    hub: Teller<State<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { hub: self.hub.clone() }
    }
}

impl<T: Send + Sync> Sender<T> {
    /// Replaces the value, and wakes all receivers that wait for a change.
    pub fn send(&self, value: T) {
        let value = Arc::new(value);
        let (_old, _receivers) = self.hub.tell(|state| {
            state.version += 1;
            core::mem::replace(&mut state.value, value) // dropped when the lock is free
        });
    }

    /// A receiver that has seen the value that is there now.
    pub fn subscribe(&self) -> Receiver<T> {
        let (hub, seen) = self.hub.listen(|state| state.version);
        Receiver { hub, seen }
    }
}

/// An end that looks at the value. A clone is one more receiver, which has seen the same.
pub struct Receiver<T> {
    hub: Listener<State<T>>,
    /// The version that was looked at last.
    seen: u64,
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let (hub, version) = self.hub.listen(|state| state.version);
        if version != self.seen {
            hub.ring_again();
        }
        Receiver { hub, seen: self.seen }
    }
}

impl<T: Send + Sync> Receiver<T> {
    /// The value; it counts as seen.
    pub fn get(&mut self) -> Arc<T> {
        let (value, version) = self.hub.read(|state| (state.value.clone(), state.version));
        self.seen = version;
        value
    }

    /// Whether there is a value that this receiver has not seen.
    pub fn has_changed(&self) -> bool {
        self.hub.read(|state| state.version) != self.seen
    }

    /// Waits for a value that this receiver has not seen; the latest.
    ///
    /// # Errors
    /// [`RecvError`]: no sender is left, and the last value was seen.
    pub fn changed(&mut self) -> Result<Arc<T>, RecvError> {
        let changed =
            self.changed_with(|bell| bell.recv().map_err(|_| RecvTimeoutError::Disconnected));
        changed.map_err(|_| RecvError)
    }

    /// As [`changed`](Self::changed), until `limit` at most.
    ///
    /// # Errors
    /// [`RecvTimeoutError`].
    pub fn changed_until<'l>(
        &mut self,
        limit: impl Into<Limit<'l>>,
    ) -> Result<Arc<T>, RecvTimeoutError> {
        let limit = limit.into().starting_now();
        self.changed_with(|bell| bell.recv_until(limit))
    }

    fn changed_with(
        &mut self,
        mut wait: impl FnMut(&chan::Receiver<()>) -> Result<(), RecvTimeoutError>,
    ) -> Result<Arc<T>, RecvTimeoutError> {
        let mut rung = Ok(());
        loop {
            if self.has_changed() {
                return Ok(self.get());
            }
            rung?;
            rung = wait(&self.hub.bell);
        }
    }

    /// For `select!`: rings when the value may have changed; see
    /// [`broadcast::Receiver::bell`](super::broadcast::Receiver::bell).
    pub fn bell(&self) -> &chan::Receiver<()> {
        &self.hub.bell
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("watch::Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("watch::Receiver").field("seen", &self.seen).finish_non_exhaustive()
    }
}
