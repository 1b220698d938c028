//! Channels: values go from G to G, and a G that must wait leaves its CPU.
//!
//! As Go's: one lock a channel, a buffer, and two lines of waiting Gs, first come first served. A G
//! that finds another waiting hands over directly, from frame to frame. At most one of these is
//! true: senders wait (then the buffer is full), receivers wait (then it is empty).
//!
//! Unlike Go's, a channel has two ends, and is closed when one of them is gone: without senders,
//! receivers get what is left and then an error; without receivers, a send gives its value back.
//! `close` on either end does the same at once. Sending on a closed channel is an error, no panic.
//!
//! | what | blocks the G | blocks the CPU |
//! |---|---|---|
//! | `send`, `recv`, `select!` | until done, closed, or the time is up | no |
//! | `try_send`, `try_recv`, `close` | no | no |
//!
//! The lines and the hand-over are in [`crate::wait::queue`]. A value is moved with interrupts off,
//! so send large ones (more than a kilobyte) in a box.
//!
//! ```
//! use runnext::prelude::*;
//! let (tx, rx) = chan::bounded(8);
//! let squares = go(move || (1..=10).try_for_each(|i| tx.send(i * i)));
//! assert_eq!(rx.iter().sum::<u32>(), 385);
//! assert_eq!(squares.join(), Ok(Ok(())));
//! ```
#![forbid(unsafe_code)]

mod buffer;
mod ends;
mod error;
#[cfg(all(test, not(loom)))]
mod tests;

#[doc(hidden)]
pub use buffer::Buffer;
pub use ends::{IntoIter, Iter, Receiver, Sender, TryIter};
pub use error::{
    NoMemory, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};

use crate::run::door::Reason;
use crate::wait::Shared;
use crate::wait::queue::{Locked, Place, WaitQueue, Waited};
use buffer::Fresh;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A channel with room for `capacity` values; with 0, [`rendezvous`].
///
/// # Panics
/// When there is no memory for it; [`try_bounded`] gives an error instead.
///
/// ```
/// use runnext::chan;
/// let (tx, rx) = chan::bounded(2);
/// tx.send("a")?;
/// tx.send("b")?;
/// assert!(tx.try_send("c").is_err());
/// assert_eq!(rx.recv(), Ok("a"));
/// # Ok::<(), chan::SendError<&str>>(())
/// ```
#[track_caller]
pub fn bounded<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    or_panic(try_bounded(capacity))
}

/// As [`bounded`], but no memory is an error.
pub fn try_bounded<T: Send>(capacity: usize) -> Result<(Sender<T>, Receiver<T>), NoMemory> {
    make(Buffer::ring(capacity)?, Some(capacity))
}

/// As [`bounded`] with 0: without room, so a send waits for its receive, and the other way.
#[track_caller]
pub fn rendezvous<T: Send>() -> (Sender<T>, Receiver<T>) {
    bounded(0)
}

/// A channel with room for as many values as there is memory for: a send never waits.
///
/// # Panics
/// When there is no memory for it. Later, a [`send`](Sender::send) that finds no
/// memory panics, and a [`try_send`](Sender::try_send) gives the value back.
#[track_caller]
pub fn unbounded<T: Send>() -> (Sender<T>, Receiver<T>) {
    or_panic(make(Buffer::blocks(), None))
}

#[track_caller]
fn or_panic<R>(made: Result<R, NoMemory>) -> R {
    match made {
        Ok(ends) => ends,
        Err(error) => panic!("{error}"),
    }
}

fn make<T: Send>(
    buffer: Buffer<T>,
    capacity: Option<usize>,
) -> Result<(Sender<T>, Receiver<T>), NoMemory> {
    let chan = Chan {
        lock: WaitQueue::new(buffer),
        len: AtomicUsize::new(0),
        closed: AtomicUsize::new(0),
        capacity: capacity.unwrap_or(usize::MAX),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    };
    let chan = Shared::try_new(chan).map_err(|_| NoMemory)?;
    Ok((Sender::new(chan.clone()), Receiver::new(chan)))
}

/// What both ends share.
#[doc(hidden)]
pub struct Chan<T> {
    lock: ChanQueue<T>,

    // Written under the lock, read without it as a hint.
    len: AtomicUsize,
    /// 1 from when it is closed, and final; a word, so that `select!` can or it with others.
    closed: AtomicUsize,

    // Atomic.
    senders: AtomicUsize,
    receivers: AtomicUsize,

    // Constant. Without a limit `usize::MAX`, which no buffer reaches.
    capacity: usize,
}

/// The list of the Gs that have a value in their slot.
pub(crate) const SENDERS: usize = 0;
/// The list of the Gs that want one.
pub(crate) const RECEIVERS: usize = 1;

type ChanQueue<T> = WaitQueue<Buffer<T>, T, 2>;
type ChanLocked<'a, T> = Locked<'a, Buffer<T>, T, 2>;

/// Until when a call waits. A type for each, so that calls that wait for ever do not pass a time
/// along, and calls that do not wait have no code for it.
pub(crate) trait Until {
    const WAITS: bool = true;

    #[inline(always)]
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}

pub(crate) struct Never;
pub(crate) struct Now;

impl Until for Never {}

impl Until for Now {
    const WAITS: bool = false;
}

impl Until for u64 {
    fn deadline_ns(&self) -> Option<u64> {
        Some(*self)
    }
}

impl<T> Chan<T> {
    /// Sends. `Timeout` if there was no room in time or, in an unbounded channel, no memory.
    #[inline(always)]
    pub(crate) fn send(&self, value: T, until: impl Until) -> Result<(), SendTimeoutError<T>> {
        let mut locked = self.lock.lock();
        // The common case, inlined into the caller: no receiver waits, and there is room in the
        // ring. (A closed channel's ring is sealed: nothing fits in.)
        if self.lock.looks_waited_for(RECEIVERS) {
            return self.hand_over(locked, value, until);
        }
        match locked.push_ring(value) {
            Ok(len) => {
                self.len.store(len, Ordering::Release);
                Ok(())
            }
            Err(value) => self.send_slow(locked, value, until),
        }
    }

    /// Sends to the first receiver in the queue.
    #[inline(never)]
    fn hand_over<'a>(
        &'a self,
        mut locked: ChanLocked<'a, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        // While a close is under way, receivers are still in their list.
        if self.is_closed() {
            return Err(SendTimeoutError::Disconnected(value));
        }
        match locked.give(RECEIVERS, value) {
            Ok(wake) => {
                locked.ready(wake);
                Ok(())
            }
            Err(value) => {
                drop(locked); // all of them have got a value elsewhere
                self.send(value, until)
            }
        }
    }

    /// Sends if no receiver waits and the ring is full, or the channel has none: waits.
    #[inline(never)]
    fn send_slow<U: Until>(
        &self,
        locked: ChanLocked<'_, T>,
        value: T,
        until: U,
    ) -> Result<(), SendTimeoutError<T>> {
        if self.capacity == usize::MAX {
            return self.send_unbounded(locked, value);
        }
        if self.is_closed() {
            return Err(SendTimeoutError::Disconnected(value));
        }
        if !U::WAITS {
            return Err(SendTimeoutError::Timeout(value));
        }
        let (reason, deadline_ns) = (Reason::ChanSend, until.deadline_ns());
        let place = Place { reason, list: SENDERS, value: Some(value), deadline_ns };
        match locked.wait(place, |_| false) {
            // Taken; or not, and the channel was closed.
            Waited::Granted(None) | Waited::Took(_) | Waited::TimedOut(_, None) => Ok(()),
            Waited::Granted(Some(value)) => Err(SendTimeoutError::Disconnected(value)),
            Waited::TimedOut(_, Some(value)) => Err(SendTimeoutError::Timeout(value)),
        }
    }

    /// Sends to the blocks of an unbounded channel, and gets memory for them without the lock.
    #[inline(never)]
    fn send_unbounded<'a>(
        &'a self,
        mut locked: ChanLocked<'a, T>,
        mut value: T,
    ) -> Result<(), SendTimeoutError<T>> {
        loop {
            if self.is_closed() {
                return Err(SendTimeoutError::Disconnected(value));
            }
            // A receiver may have come while the lock was free.
            value = match locked.give(RECEIVERS, value) {
                Ok(wake) => {
                    locked.ready(wake);
                    return Ok(());
                }
                Err(value) => value,
            };
            value = match locked.push(value) {
                Ok(len) => {
                    self.len.store(len, Ordering::Release);
                    return Ok(());
                }
                Err(value) => value,
            };
            let want = locked.want().unwrap_or(0);
            drop(locked);
            let Ok(mut fresh) = Fresh::new(want) else {
                return Err(SendTimeoutError::Timeout(value));
            };
            self.lock.lock().grow(&mut fresh);
            drop(fresh); // what was not needed, outside the lock
            locked = self.lock.lock();
        }
    }

    /// Receives. `None` if the channel is closed and empty, or there was no value in time:
    /// [`is_over`](Self::is_over) says which.
    #[inline(always)]
    pub(crate) fn recv(&self, until: impl Until) -> Option<T> {
        let mut locked = self.lock.lock();
        // The common case, inlined into the caller: no sender waits, and the ring has a value.
        if self.lock.looks_waited_for(SENDERS) {
            return self.recv_from_sender(locked, until);
        }
        match locked.pop_ring() {
            Some((value, len)) => {
                self.len.store(len, Ordering::Release);
                Some(value)
            }
            None => self.recv_slow(locked, until),
        }
    }

    /// Receives if a sender waits.
    #[inline(never)]
    fn recv_from_sender(&self, mut locked: ChanLocked<'_, T>, until: impl Until) -> Option<T> {
        if self.capacity == 0
            && !self.is_closed()
            && let Some((value, wake)) = locked.take_alone(SENDERS)
        {
            locked.ready(wake);
            return Some(value);
        }
        // The ring is full, the first sender selects, or the channel is closed.
        match self.take(locked) {
            Ok(value) => Some(value),
            Err(locked) => self.recv_slow(locked, until),
        }
    }

    /// Receives the oldest value in the buffer, else that of the first sender, if there is either.
    #[inline(never)]
    fn take<'a>(&self, mut locked: ChanLocked<'a, T>) -> Result<T, ChanLocked<'a, T>> {
        let oldest = locked.pop();
        // While a close is under way, senders are still in their list, and get their values back.
        let sent = if self.is_closed() { None } else { locked.take(SENDERS) };
        if let Some((value, len, spent)) = oldest {
            // There is room now, for the value of the first sender.
            let wake = sent.map(|(next, wake)| {
                let pushed = locked.push_ring(next);
                debug_assert!(pushed.is_ok(), "no room");
                wake
            });
            self.len.store(if wake.is_some() { len + 1 } else { len }, Ordering::Release);
            locked.ready_if(wake);
            drop(spent);
            return Ok(value);
        }
        match sent {
            Some((value, wake)) => {
                locked.ready(wake);
                Ok(value)
            }
            None => Err(locked),
        }
    }

    /// Receives if no sender waits and the ring is empty, or the channel has none: waits.
    #[inline(never)]
    fn recv_slow<U: Until>(&self, mut locked: ChanLocked<'_, T>, until: U) -> Option<T> {
        if self.capacity == usize::MAX {
            locked = match self.take(locked) {
                Ok(value) => return Some(value),
                Err(locked) => locked,
            };
        }
        if self.is_closed() || !U::WAITS {
            return None;
        }
        let (reason, deadline_ns) = (Reason::ChanReceive, until.deadline_ns());
        let place = Place { reason, list: RECEIVERS, value: None, deadline_ns };
        match locked.wait(place, |_| false) {
            Waited::Granted(value) => value,
            Waited::TimedOut(..) | Waited::Took(_) => None,
        }
    }

    /// Closes, and wakes all waiting Gs: one at a time, so that the lock is held briefly.
    fn close(&self) {
        let mut locked = self.lock.lock();
        locked.seal();
        self.closed.store(1, Ordering::Release);
        loop {
            let wake = locked.grant(RECEIVERS).or_else(|| locked.grant(SENDERS));
            drop(locked);
            let Some(wake) = wake else { return };
            wake.ready();
            locked = self.lock.lock();
        }
    }

    /// Drops the values that no G will receive.
    fn discard(&self) {
        let mut locked = self.lock.lock();
        let buffer = core::mem::replace(&mut *locked, Buffer::gone());
        self.len.store(0, Ordering::Release);
        drop(locked);
        drop(buffer);
    }

    /// Whether nothing will ever be received any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_closed() && self.len.load(Ordering::Acquire) == 0
    }

    #[inline(always)]
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        Some(self.capacity).filter(|&capacity| capacity != usize::MAX)
    }

    /// Not 0 if a receive will succeed or fail at once, even if no sender waits.
    #[inline(always)]
    fn receivable(&self) -> usize {
        self.len.load(Ordering::Acquire) | self.closed.load(Ordering::Acquire)
    }

    /// Whether a send will succeed or fail at once, even if no receiver waits.
    #[inline(always)]
    fn is_sendable(&self) -> bool {
        (self.len.load(Ordering::Acquire) < self.capacity) | self.is_closed()
    }
}

/// What `select!` needs of a channel, for a case that waits in `list` if it must.
impl<T> Chan<T> {
    /// Whether the case would seem to succeed or fail at once.
    #[inline]
    pub(crate) fn looks_ready(&self, list: usize) -> bool {
        match list {
            // As words, and one question: `select!` asks it of every channel.
            RECEIVERS => self.receivable() | self.lock.first_address(SENDERS) != 0,
            _ => self.is_sendable() | self.lock.looks_waited_for(RECEIVERS),
        }
    }

    /// Whether it will succeed or fail at once, even if no G waits at the other end.
    #[inline(always)]
    pub(crate) fn is_ready(&self, list: usize) -> bool {
        if list == RECEIVERS { self.receivable() != 0 } else { self.is_sendable() }
    }

    pub(crate) fn wait_queue(&self) -> &ChanQueue<T> {
        &self.lock
    }
}
