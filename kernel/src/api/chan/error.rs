//! The errors of channels: they carry the value back to its sender.
//!
//! None of them needs `T: Debug`, so that `send(x).expect("…")` works for any `T`.

use crate::wait::poison::describe;

/// There is no memory for a channel of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// The channel is closed; here is the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`try_send`](super::Sender::try_send) did not send; here is the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room now (no receiver waits, or no memory to grow).
    Full(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Why [`send_timeout`](super::Sender::send_timeout) did not send; here is the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room in time.
    Timeout(T),
    /// The channel is closed.
    Disconnected(T),
}

/// The channel is closed, and everything in it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Why [`try_recv`](super::Receiver::try_recv) gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is nothing to receive now.
    Empty,
    /// The channel is closed, and everything in it was received.
    Disconnected,
}

/// Why [`recv_timeout`](super::Receiver::recv_timeout) gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvTimeoutError {
    /// Nothing came in time.
    Timeout,
    /// The channel is closed, and everything in it was received.
    Disconnected,
}

impl<T> SendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// What the errors of sends that do not wait for ever offer, and those of such receives.
macro_rules! as_disconnected {
    ($error:ident<T>, $other:ident) => {
        impl<T> $error<T> {
            /// The value that was not sent.
            pub fn into_inner(self) -> T {
                match self {
                    $error::$other(value) | $error::Disconnected(value) => value,
                }
            }
        }
        impl<T> From<SendError<T>> for $error<T> {
            fn from(SendError(value): SendError<T>) -> Self {
                $error::Disconnected(value)
            }
        }
    };
    ($error:ident) => {
        impl From<RecvError> for $error {
            fn from(RecvError: RecvError) -> Self {
                $error::Disconnected
            }
        }
    };
}

as_disconnected!(TrySendError<T>, Full);
as_disconnected!(SendTimeoutError<T>, Timeout);
as_disconnected!(TryRecvError);
as_disconnected!(RecvTimeoutError);

describe!(NoMemory { NoMemory => "no memory for a channel"; });
describe!(SendError<T> {
    SendError(_) => "SendError(..)", "sending on a closed channel";
});
describe!(TrySendError<T> {
    TrySendError::Full(_) => "Full(..)", "sending on a full channel";
    TrySendError::Disconnected(_) => "Disconnected(..)", "sending on a closed channel";
});
describe!(SendTimeoutError<T> {
    SendTimeoutError::Timeout(_) => "Timeout(..)", "no room to send in time";
    SendTimeoutError::Disconnected(_) => "Disconnected(..)", "sending on a closed channel";
});
describe!(RecvError { RecvError => "receiving on an empty and closed channel"; });
describe!(TryRecvError {
    TryRecvError::Empty => "receiving on an empty channel";
    TryRecvError::Disconnected => "receiving on an empty and closed channel";
});
describe!(RecvTimeoutError {
    RecvTimeoutError::Timeout => "nothing to receive in time";
    RecvTimeoutError::Disconnected => "receiving on an empty and closed channel";
});
