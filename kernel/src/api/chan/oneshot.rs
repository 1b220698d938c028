//! `oneshot`: a channel for one value.

use super::{Receiver, SendError, Sender, TrySendError};

/// A channel for one value, as for an answer: its sender is used up by sending, and never waits. The
/// receiver is that of any channel.
///
/// # Panics
/// When there is no memory for it.
///
/// ```
/// use runnext::prelude::*;
/// let (answer, answered) = chan::oneshot();
/// let worker = go(move || answer.send(6 * 7));
/// assert_eq!(answered.recv(), Ok(42));
/// assert_eq!(worker.join(), Ok(Ok(())));
/// ```
#[track_caller]
pub fn oneshot<T: Send>() -> (OneSender<T>, Receiver<T>) {
    let (tx, rx) = super::bounded(1);
    (OneSender { tx }, rx)
}

/// The end that one value goes in.
#[derive(Debug)]
pub struct OneSender<T> {
    tx: Sender<T>,
}

impl<T: Send> OneSender<T> {
    /// Sends the value.
    ///
    /// # Errors
    /// [`SendError`] with the value, if there is no receiver any more.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.tx.try_send(value).map_err(|error| match error {
            TrySendError::Disconnected(value) => SendError(value),
            TrySendError::Full(_) => unreachable!("there was room for one"),
        })
    }

    /// Whether there is no receiver any more, so that the value need not be computed.
    pub fn is_closed(&self) -> bool {
        self.tx.is_closed()
    }
}
