//! The two ends of a channel, as a program holds them: what each may do, what happens when its last
//! clone is gone, and receiving in a loop (`for value in rx`).

use super::error::{
    NoMemory, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use super::{Chan, Never, Now};
use crate::run::door::{check_kill, deadline_after, might_park};
use crate::wait::Shared;
use core::fmt;
use core::iter::FusedIterator;
use core::sync::atomic::Ordering;
use core::time::Duration;

/// The end of a channel that values go in. Clones are the same end.
pub struct Sender<T> {
    chan: Shared<Chan<T>>,
}

/// The end of a channel that values come out of, each once. Clones are the same end.
pub struct Receiver<T> {
    chan: Shared<Chan<T>>,
}

impl<T: Send> Sender<T> {
    /// Sends `value`; waits while there is no room.
    ///
    /// # Errors
    /// [`SendError`] with the value, if the channel is closed, or is closed while this waits.
    ///
    /// # Panics
    /// If the channel is unbounded and there is no memory.
    ///
    /// ```
    /// use runnext::chan::{self, SendError};
    /// let (tx, rx) = chan::bounded(1);
    /// assert_eq!(tx.send(1), Ok(()));
    /// drop(rx);
    /// assert_eq!(tx.send(2), Err(SendError(2)));
    /// ```
    #[inline(always)]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        might_park();
        match self.chan.send(value, Never) {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Disconnected(value)) => Err(SendError(value)),
            Err(SendTimeoutError::Timeout(_)) => panic!("{NoMemory}"),
        }
    }

    /// Sends `value` if there is room at this instant, or a receiver waits; else the error has it.
    /// An unbounded channel is full when there is no memory.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.send(value, Now).map_err(|error| {
            check_kill();
            match error {
                SendTimeoutError::Timeout(value) => TrySendError::Full(value),
                SendTimeoutError::Disconnected(value) => TrySendError::Disconnected(value),
            }
        })
    }

    /// As [`send`](Self::send), for `timeout` at most. No memory in an unbounded one is a timeout.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        might_park();
        self.chan.send(value, deadline_after(timeout))
    }
}

impl<T: Send> Receiver<T> {
    /// Receives a value; waits while there is none.
    ///
    /// # Errors
    /// [`RecvError`] if the channel is closed and empty.
    ///
    /// ```
    /// use runnext::chan::{self, RecvError};
    /// let (tx, rx) = chan::bounded(1);
    /// tx.send(1)?;
    /// drop(tx);
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert_eq!(rx.recv(), Err(RecvError));
    /// # Ok::<(), chan::SendError<i32>>(())
    /// ```
    #[inline(always)]
    pub fn recv(&self) -> Result<T, RecvError> {
        might_park();
        self.chan.recv(Never).ok_or(RecvError)
    }

    /// Receives a value if there is one at this instant, or a sender waits.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.chan.recv(Now).ok_or_else(|| {
            check_kill();
            match self.chan.is_over() {
                true => TryRecvError::Disconnected,
                false => TryRecvError::Empty,
            }
        })
    }

    /// As [`recv`](Self::recv), for `timeout` at most.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        might_park();
        self.chan.recv(deadline_after(timeout)).ok_or_else(|| match self.chan.is_over() {
            true => RecvTimeoutError::Disconnected,
            false => RecvTimeoutError::Timeout,
        })
    }

    /// Receives one value after the other, until the channel is closed and empty.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Receives what is there, and does not wait for more.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }
}

/// What both ends offer.
macro_rules! both_ends {
    ($end:ident, $count:ident $(, $discard:ident)?) => {
        impl<T> $end<T> {
            /// The first of its kind: the count has it already.
            pub(super) fn new(chan: Shared<Chan<T>>) -> Self {
                $end { chan }
            }

            /// Closes the channel: nothing can be sent any more, and what is in it can still be
            /// received. All waiting Gs are woken; a sender that waits gets its value back.
            ///
            /// ```
            /// use runnext::chan::{self, RecvError, SendError};
            /// let (tx, rx) = chan::bounded(2);
            /// assert_eq!(tx.send(1), Ok(()));
            /// tx.close();
            /// assert_eq!(tx.send(2), Err(SendError(2)));
            /// assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));
            /// ```
            pub fn close(&self) {
                self.chan.close();
            }

            /// Whether the channel is closed; then it stays so.
            pub fn is_closed(&self) -> bool {
                self.chan.is_closed()
            }

            /// How many values are in the channel at this instant.
            pub fn len(&self) -> usize {
                self.chan.len.load(Ordering::Acquire)
            }

            /// Whether no value is in the channel at this instant.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// How many values fit in; `None` if there is no limit.
            pub fn capacity(&self) -> Option<usize> {
                self.chan.capacity()
            }

            pub(crate) fn chan(&self) -> &Chan<T> {
                &self.chan
            }
        }

        impl<T> Clone for $end<T> {
            fn clone(&self) -> Self {
                // Relaxed: we are one of them, so it is not the last that goes.
                self.chan.$count.fetch_add(1, Ordering::Relaxed);
                $end { chan: self.chan.clone() }
            }
        }

        impl<T> Drop for $end<T> {
            fn drop(&mut self) {
                // AcqRel: everything that other clones of this end did is before the close.
                if self.chan.$count.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.chan.close();
                    $(self.chan.$discard();)?
                }
            }
        }

        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($end))
                    .field("len", &self.len())
                    .field("capacity", &self.capacity())
                    .finish_non_exhaustive()
            }
        }
    };
}

both_ends!(Sender, senders);
both_ends!(Receiver, receivers, discard);

/// Receives until the channel is closed and empty: see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// Receives what is there: see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// Receives until the channel is closed and empty; owns its receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T: Send> Iterator for Iter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T: Send> Iterator for TryIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T: Send> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T: Send> FusedIterator for Iter<'_, T> {}
impl<T: Send> FusedIterator for IntoIter<T> {}

impl<'a, T: Send> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Send> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
