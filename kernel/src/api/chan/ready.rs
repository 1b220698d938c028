//! What `select!` needs of a channel: whether it seems ready, and where to wait.

use super::{Chan, ChanQueue, RECEIVERS, SENDERS};
use core::sync::atomic::Ordering;

impl<T> Chan<T> {
    /// Whether a receive would seem to succeed or fail at once.
    #[inline]
    pub(crate) fn looks_receivable(&self) -> bool {
        // All three as words, and one question: `select!` asks it of every channel.
        let closed = self.closed.load(Ordering::Acquire);
        (self.len.load(Ordering::Acquire) | closed | self.lock.first_address(SENDERS)) != 0
    }

    /// Whether a receive will succeed or fail at once, even if no sender waits.
    #[inline(always)]
    pub(crate) fn is_receivable(&self) -> bool {
        // Without a branch: of a few of these each is as likely as the other.
        self.len.load(Ordering::Acquire) | self.closed.load(Ordering::Acquire) != 0
    }

    /// Whether a send would seem to succeed or fail at once.
    #[inline]
    pub(crate) fn looks_sendable(&self) -> bool {
        self.is_sendable() | self.lock.looks_waited_for(RECEIVERS)
    }

    /// Whether a send will succeed or fail at once, even if no receiver waits.
    #[inline(always)]
    pub(crate) fn is_sendable(&self) -> bool {
        (self.len.load(Ordering::Acquire) < self.capacity) | self.is_closed()
    }

    /// Whether it is closed, without the lock.
    #[inline(always)]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// How many values fit in; `None` if there is no limit.
    pub(crate) fn capacity(&self) -> Option<usize> {
        Some(self.capacity).filter(|&capacity| capacity != usize::MAX)
    }

    pub(crate) fn wait_queue(&self) -> &ChanQueue<T> {
        &self.lock
    }
}
