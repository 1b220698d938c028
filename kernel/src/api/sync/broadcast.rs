//! `broadcast`: every receiver gets every value; a slow one is told how many it missed.
//!
//! The last values are in one ring, each counted. A receiver has the number of the value that it
//! gets next: if the ring begins behind that, the difference is what it missed. Senders never wait.
#![forbid(unsafe_code)]

use super::hub::{Listener, Teller};
use crate::api::chan;
use crate::arch::text_enum;
use crate::run::door::check_kill;
use crate::wait::limit::Limit;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;

/// A channel from many senders to many receivers, that keeps the last `capacity` values (at least
/// one) for receivers that are slow.
///
/// ```
/// use runnext::sync::broadcast::{self, RecvError};
/// let (tx, mut quick) = broadcast::channel(2);
/// let mut slow = tx.subscribe();
/// for n in 1..=3 {
///     assert_eq!(tx.send(n), 2);
///     assert_eq!(quick.recv(), Ok(n));
/// }
/// assert_eq!(slow.recv(), Err(RecvError::Missed(1)));
/// assert_eq!((slow.recv(), slow.recv()), (Ok(2), Ok(3)));
/// drop(tx);
/// assert_eq!(slow.recv(), Err(RecvError::Closed));
/// ```
///
/// # Panics
/// When there is no memory for it.
pub fn channel<T: Clone + Send + Sync>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.max(1);
    let hub = Teller::new(Ring { capacity, values: VecDeque::with_capacity(capacity), next: 0 });
    let sender = Sender { hub };
    let receiver = sender.subscribe();
    (sender, receiver)
}

struct Ring<T> {
    capacity: usize,
    values: VecDeque<Arc<T>>,
    /// The number of the value that is sent next.
    next: u64,
}

impl<T> Ring<T> {
    fn first(&self) -> u64 {
        self.next - self.values.len() as u64
    }
}

text_enum! {
    /// Why a receiver got no value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error RecvError {
        /// It goes on behind them.
        Missed(count: u64) => "{count} values were overwritten",
        Empty => "no value until then",
        Closed => "no value, and no sender is left",
    }
}

/// An end that values go in. A clone is one more sender.
pub struct Sender<T> {
    hub: Teller<Ring<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { hub: self.hub.clone() }
    }
}

impl<T: Clone + Send + Sync> Sender<T> {
    /// Sends `value` to all receivers that there are; how many. Never waits.
    pub fn send(&self, value: T) -> usize {
        let value = Arc::new(value);
        let (_oldest, receivers) = self.hub.tell(|ring| {
            let is_full = ring.values.len() == ring.capacity;
            let oldest = if is_full { ring.values.pop_front() } else { None };
            ring.values.push_back(value);
            ring.next += 1;
            oldest // dropped when the lock is free
        });
        receivers
    }

    /// A receiver of all that is sent from here on.
    pub fn subscribe(&self) -> Receiver<T> {
        let (hub, next) = self.hub.listen(|ring| ring.next);
        Receiver { hub, next }
    }
}

/// An end that every value comes out of. A clone is one more receiver, at the same value.
pub struct Receiver<T> {
    hub: Listener<Ring<T>>,
    next: u64,
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let (hub, is_behind) = self.hub.listen(|ring| self.next < ring.next);
        if is_behind {
            hub.ring_again();
        }
        Receiver { hub, next: self.next }
    }
}

impl<T: Clone + Send + Sync> Receiver<T> {
    /// Receives the next value; waits while there is none.
    ///
    /// # Errors
    /// [`RecvError::Missed`] or [`RecvError::Closed`].
    pub fn recv(&mut self) -> Result<T, RecvError> {
        self.recv_with(|bell| bell.recv().is_ok())
    }

    /// As [`recv`](Self::recv), until `limit` at most.
    ///
    /// # Errors
    /// Any [`RecvError`].
    pub fn recv_until<'l>(&mut self, limit: impl Into<Limit<'l>>) -> Result<T, RecvError> {
        let limit = limit.into().starting_now();
        self.recv_with(|bell| bell.recv_until(limit).is_ok())
    }

    fn recv_with(
        &mut self,
        mut wait: impl FnMut(&chan::Receiver<()>) -> bool,
    ) -> Result<T, RecvError> {
        let mut has_rung = true;
        loop {
            let received = self.try_recv();
            if !has_rung || !matches!(received, Err(RecvError::Empty)) {
                return received;
            }
            has_rung = wait(&self.hub.bell);
        }
    }

    /// Receives the next value if it is there.
    ///
    /// # Errors
    /// Any [`RecvError`].
    pub fn try_recv(&mut self) -> Result<T, RecvError> {
        // Before the look: what was sent before the last sender was gone is seen.
        let is_closed = self.hub.bell.is_closed();
        let next = self.next;
        let (found, is_behind) = self.hub.read(|ring| match ring.first().checked_sub(next) {
            Some(missed @ 1..) => (Err(RecvError::Missed(missed)), true),
            _ => {
                let value = ring.values.get((next - ring.first()) as usize);
                (value.cloned().ok_or(RecvError::Empty), next + 1 < ring.next)
            }
        });
        if is_behind {
            self.hub.ring_again();
        }
        match found {
            Ok(value) => {
                self.next += 1;
                Ok(Arc::unwrap_or_clone(value))
            }
            Err(RecvError::Missed(count)) => {
                self.next += count;
                Err(RecvError::Missed(count))
            }
            Err(_) if is_closed => Err(RecvError::Closed),
            Err(error) => {
                check_kill();
                Err(error)
            }
        }
    }

    /// For `select!`: rings while a [`try_recv`](Self::try_recv) has something to say; now and then
    /// once more, for nothing.
    ///
    /// ```
    /// use runnext::{prelude::*, sync::broadcast};
    /// let (tx, mut news) = broadcast::channel(8);
    /// let (_stop, stopped) = chan::bounded::<()>(1);
    /// tx.send("first");
    /// select! {
    ///     recv(news.bell()) => assert_eq!(news.try_recv(), Ok("first")),
    ///     recv(stopped) => unreachable!(),
    /// }
    /// ```
    pub fn bell(&self) -> &chan::Receiver<()> {
        &self.hub.bell
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("broadcast::Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("broadcast::Receiver").field("next", &self.next).finish_non_exhaustive()
    }
}
