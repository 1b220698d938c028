//! Channels: values go from G to G, and a G that must wait leaves its CPU.
//!
//! As Go's: one lock a channel, a buffer, and two lines of waiting Gs, first come first served. A G
//! that finds another waiting hands over directly, from frame to frame. At most one of these is
//! true: senders wait (then the buffer is full), receivers wait (then it is empty). So a send or a
//! receive that finds a ring neither full nor empty looks for no waiting G.
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
mod clock;
mod error;
mod iter;
mod oneshot;
#[cfg(all(test, not(loom)))]
mod tests;
mod timed;

#[doc(hidden)]
pub use buffer::Buffer;
pub use error::{
    NoMemory, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
pub use oneshot::{OneSender, oneshot};
pub use timed::{after, never, tick};

use crate::run::door::{Reason, check_kill, might_park};
use crate::wait::Shared;
use crate::wait::limit::Limit;
use crate::wait::queue::{Locked, Place, WaitQueue, Waited};
use buffer::{Flow, Fresh};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

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
    let receiver = make_receiver(buffer, capacity)?;
    Ok((Sender { chan: receiver.chan.clone() }, receiver))
}

/// A channel's receiver, and no sender: as one counts as being there, the channel is not closed.
fn make_receiver<T: Send>(
    buffer: Buffer<T>,
    capacity: Option<usize>,
) -> Result<Receiver<T>, NoMemory> {
    let chan = Chan {
        lock: WaitQueue::new(buffer),
        len: AtomicUsize::new(0),
        closed: AtomicUsize::new(0),
        capacity: capacity.unwrap_or(usize::MAX),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    };
    Shared::try_new(chan).map(|chan| Receiver { chan }).map_err(|_| NoMemory)
}

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
        let Err(error) = self.chan.send(value, Never) else { return Ok(()) };
        core::hint::cold_path();
        match error {
            SendTimeoutError::Disconnected(value) => Err(SendError(value)),
            SendTimeoutError::Timeout(_) => panic!("{NoMemory}"),
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
        self.send_until(value, timeout)
    }

    /// As [`send`](Self::send), until `limit` at most. No memory in an unbounded one is a timeout.
    pub fn send_until<'l>(
        &self,
        value: T,
        limit: impl Into<Limit<'l>>,
    ) -> Result<(), SendTimeoutError<T>> {
        might_park();
        limit.into().during(|deadline_ns| self.chan.send(value, deadline_ns))
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
        let Some(value) = self.chan.recv(Never) else {
            core::hint::cold_path();
            return Err(RecvError);
        };
        Ok(value)
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
        self.recv_until(timeout)
    }

    /// As [`recv`](Self::recv), until `limit` at most.
    pub fn recv_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<T, RecvTimeoutError> {
        might_park();
        let received = limit.into().during(|deadline_ns| self.chan.recv(deadline_ns));
        received.ok_or_else(|| match self.chan.is_over() {
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
                // Of a timer's channel, whose capacity is 0, the word says something else.
                self.chan.len.load(Ordering::Acquire).min(self.chan.capacity)
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

/// What both ends share. The lock first, at the address that both ends have.
#[doc(hidden)]
#[repr(C)]
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
/// Channels are for Gs, which have interrupts on.
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
    pub(crate) fn send<U: Until>(&self, value: T, until: U) -> Result<(), SendTimeoutError<T>> {
        let mut locked = self.lock.lock_in_g();
        if let Some(ring) = locked.ring.between() {
            self.len.store(ring.push(value), Ordering::Release);
            drop(locked); // here: else the ways that fail share it, and a test follows
            return Ok(());
        }
        if locked.flow == Flow::Rendezvous {
            let Some(receiver) = locked.first(RECEIVERS) else {
                return wait_to_send(locked, value, until).into();
            };
            return match receiver.give(value) {
                Ok(wake) => {
                    locked.ready(wake);
                    Ok(())
                }
                Err(value) => self.send_slow(locked, value, until),
            };
        }
        if !locked.is_empty(RECEIVERS) {
            return self.send_slow(locked, value, until);
        }
        match locked.ring.push(value) {
            Ok(len) => {
                self.len.store(len, Ordering::Release);
                drop(locked);
                Ok(())
            }
            Err(value) => self.send_slow(locked, value, until),
        }
    }

    /// Sends, if the channel is open: to the first receiver, else to its buffer, else waits. Memory for
    /// the blocks of an unbounded channel it gets without the lock.
    #[cold]
    #[inline(never)]
    fn send_slow<'a, U: Until>(
        &'a self,
        mut locked: ChanLocked<'a, T>,
        mut value: T,
        until: U,
    ) -> Result<(), SendTimeoutError<T>> {
        loop {
            // While a close is under way, receivers are still in their list.
            if locked.flow == Flow::Closed {
                return Err(SendTimeoutError::Disconnected(value));
            }
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
            let Some(want) = locked.want() else {
                return wait_to_send(locked, value, until).into();
            };
            drop(locked);
            let Ok(mut fresh) = Fresh::new(want) else {
                return Err(SendTimeoutError::Timeout(value));
            };
            self.lock.lock_in_g().grow(&mut fresh);
            drop(fresh); // what was not needed, outside the lock
            locked = self.lock.lock_in_g(); // a receiver may have come meanwhile
        }
    }

    /// Receives. `None` if the channel is closed and empty, or there was no value in time:
    /// [`is_over`](Self::is_over) says which.
    #[inline(always)]
    pub(crate) fn recv<U: Until>(&self, until: U) -> Option<T> {
        let mut locked = self.lock.lock_in_g();
        if let Some(ring) = locked.ring.between() {
            let (value, len) = ring.pop();
            self.len.store(len, Ordering::Release);
            drop(locked); // as in `send`
            return Some(value);
        }
        if locked.flow == Flow::Rendezvous {
            let Some(sender) = locked.first(SENDERS) else {
                return wait_to_recv(locked, until);
            };
            return match sender.take_alone() {
                Some((value, wake)) => {
                    locked.ready(wake);
                    Some(value)
                }
                None => self.recv_slow(locked, until), // it selects
            };
        }
        if locked.is_empty(SENDERS)
            && let Some((value, len)) = locked.ring.pop()
        {
            self.len.store(len, Ordering::Release);
            drop(locked);
            return Some(value);
        }
        self.recv_slow(locked, until)
    }

    /// Receives the oldest value in the buffer, else that of the first sender, else waits if the
    /// channel is open.
    #[inline(never)]
    fn recv_slow<'a, U: Until>(&'a self, mut locked: ChanLocked<'a, T>, until: U) -> Option<T> {
        let oldest = locked.pop();
        // While a close is under way, senders are still in their list, and get their values back.
        let is_closed = locked.flow == Flow::Closed;
        let sent = if is_closed { None } else { locked.take(SENDERS) };
        let Some((value, len, spent)) = oldest else {
            return match sent {
                Some((value, wake)) => {
                    locked.ready(wake);
                    Some(value)
                }
                None if locked.clock().is_some() => self.recv_tick(locked, until),
                None if is_closed => None,
                None => wait_to_recv(locked, until),
            };
        };
        // There is room now, for the value of the first sender.
        let wake = sent.map(|(next, wake)| {
            let pushed = locked.ring.push(next);
            debug_assert!(pushed.is_ok(), "no room");
            wake
        });
        self.len.store(if wake.is_some() { len + 1 } else { len }, Ordering::Release);
        locked.ready_if(wake);
        drop(spent);
        Some(value)
    }

    /// Closes, and wakes all waiting Gs: one at a time, so that the lock is held briefly.
    fn close(&self) {
        let mut locked = self.lock.lock(); // a destructor may call this anywhere
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

/// How the wait of a sender has ended. In this order: so it begins with the word that says whether the
/// value is in its slot still.
enum Sent<T> {
    /// The value was taken.
    Done,
    Closed(T),
    TooLate(T),
}

impl<T> From<Sent<T>> for Result<(), SendTimeoutError<T>> {
    #[inline(always)]
    fn from(sent: Sent<T>) -> Self {
        match sent {
            Sent::Done => Ok(()),
            Sent::Closed(value) => Err(SendTimeoutError::Disconnected(value)),
            Sent::TooLate(value) => Err(SendTimeoutError::Timeout(value)),
        }
    }
}

/// Waits in the list of senders, if it may wait. Not inlined, and nor is [`wait_to_recv`]: a switch
/// changes all registers, which the loop of a caller that seldom waits would pay for.
#[inline(never)]
fn wait_to_send<T, U: Until>(locked: ChanLocked<'_, T>, value: T, until: U) -> Sent<T> {
    if !U::WAITS {
        return Sent::TooLate(value);
    }
    let (reason, deadline_ns) = (Reason::ChanSend, until.deadline_ns());
    let place = Place { reason, list: SENDERS, value: Some(value), deadline_ns };
    match locked.wait(place, |_| false) {
        Waited::Granted(None) | Waited::Took(_) | Waited::TimedOut(_, None) => Sent::Done,
        Waited::Granted(Some(value)) => Sent::Closed(value),
        Waited::TimedOut(_, Some(value)) => Sent::TooLate(value),
    }
}

/// Waits in the list of receivers, if it may wait.
#[inline(never)]
fn wait_to_recv<T, U: Until>(locked: ChanLocked<'_, T>, until: U) -> Option<T> {
    if !U::WAITS {
        return None;
    }
    let (reason, deadline_ns) = (Reason::ChanReceive, until.deadline_ns());
    let place = Place { reason, list: RECEIVERS, value: None, deadline_ns };
    match locked.wait(place, |_| false) {
        Waited::Granted(value) => value,
        Waited::TimedOut(..) | Waited::Took(_) => None,
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
