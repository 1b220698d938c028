//! Channels: values go from G to G, and a G that must wait leaves its CPU.
//!
//! As Go's: one lock a channel, a buffer, and two lines of waiting Gs, first come
//! first served. Whoever finds somebody waiting hands over directly, from frame
//! to frame. At most one of these is true: senders wait (then the buffer is full),
//! receivers wait (then it is empty).
//!
//! Unlike Go's, a channel has two ends, and is closed when one of them is gone:
//! without senders, receivers get what is left and then an error; without
//! receivers, a send gives its value back. `close` on either end does the same
//! at once. Sending on a closed channel is an error, never a panic.
//!
//! | what | blocks the G | blocks the CPU |
//! |---|---|---|
//! | `send`, `recv`, `select!` | until done, closed, or the time is up | no |
//! | `try_send`, `try_recv`, `close` | no | no |
//!
//! The lines and the hand-over are in [`crate::cell::wait`], `select!` is in
//! [`mod@crate::select`]. A value is moved with interrupts off, so send large ones
//! (more than a kilobyte) in a box.
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
mod glance;
mod iter;
#[cfg(all(test, not(loom)))]
mod tests;
mod until;

pub use ends::{Receiver, Sender};
pub use error::{
    NoMemory, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
pub(crate) use until::{Never, Until, deadline_after};

use crate::cell::Shared;
use crate::cell::wait::{Locked, Place, WaitQueue, Waited, Wake};
use crate::park::Reason;
use buffer::{Buffer, Fresh, Spent};
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
///
/// # Errors
/// [`NoMemory`] if there is none for that many values.
///
/// ```
/// use runnext::chan;
/// assert!(chan::try_bounded::<u64>(4).is_ok());
/// assert_eq!(chan::try_bounded::<u64>(usize::MAX).err(), Some(chan::NoMemory));
/// ```
pub fn try_bounded<T: Send>(capacity: usize) -> Result<(Sender<T>, Receiver<T>), NoMemory> {
    make(Buffer::ring(capacity)?, Some(capacity))
}

/// A channel without room: a send waits for its receive, and the other way.
///
/// # Panics
/// When there is no memory for it.
///
/// ```
/// use runnext::prelude::*;
/// let (tx, rx) = chan::rendezvous();
/// let meeting = go(move || tx.send("hello"));
/// assert_eq!(rx.recv(), Ok("hello"));
/// assert_eq!(meeting.join(), Ok(Ok(())));
/// ```
#[track_caller]
pub fn rendezvous<T: Send>() -> (Sender<T>, Receiver<T>) {
    bounded(0)
}

/// A channel with room for as many values as there is memory for: a send never
/// waits.
///
/// # Panics
/// When there is no memory for it. Later, a [`send`](Sender::send) that finds no
/// memory panics, and a [`try_send`](Sender::try_send) gives the value back.
///
/// ```
/// use runnext::chan;
/// let (tx, rx) = chan::unbounded();
/// (0..1000).try_for_each(|i| tx.send(i))?;
/// drop(tx);
/// assert_eq!(rx.iter().count(), 1000);
/// # Ok::<(), chan::SendError<i32>>(())
/// ```
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
        lock: WaitQueue::new(State {
            buffer,
            is_closed: false,
            may_wait: capacity.is_some(),
            is_direct: capacity == Some(0),
        }),
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

    // Written under the lock, read by anybody for a glance.
    len: AtomicUsize,
    /// 1 from when it is closed; a word, so that a glance can or it with others.
    closed: AtomicUsize,

    // Atomic.
    senders: AtomicUsize,
    receivers: AtomicUsize,

    // Constant. Without a limit `usize::MAX`, which no buffer reaches.
    capacity: usize,
}

/// What the lock guards.
#[doc(hidden)]
pub struct State<T> {
    buffer: Buffer<T>,
    is_closed: bool,
    /// It is bounded and not closed, so that what the ring says is all there is to
    /// say: who finds no room in it, or no value, must wait.
    may_wait: bool,
    /// It is a rendezvous and not closed: nothing is ever stored, and who waits to
    /// send has the next value.
    is_direct: bool,
}

/// The list of those who have a value in their slot.
pub(crate) const SENDERS: usize = 0;
/// The list of those who want one.
pub(crate) const RECEIVERS: usize = 1;

type ChanQueue<T> = WaitQueue<State<T>, T, 2>;
type ChanLocked<'a, T> = Locked<'a, State<T>, T, 2>;

/// A value that was received, and what is owed when the lock is free.
struct Taken<T> {
    value: T,
    wake: Option<Wake>,
    spent: Spent<T>,
}

impl<T> Chan<T> {
    /// Sends with the lock held, if that is possible at once.
    #[inline]
    fn offer(
        &self,
        locked: &mut ChanLocked<'_, T>,
        value: T,
    ) -> Result<Option<Wake>, TrySendError<T>> {
        if locked.is_closed {
            return Err(TrySendError::Disconnected(value));
        }
        let value = match locked.give(RECEIVERS, value) {
            Ok(wake) => return Ok(Some(wake)),
            Err(value) => value,
        };
        match locked.buffer.push(value) {
            Ok(()) => {
                self.len.store(locked.buffer.len(), Ordering::Release);
                Ok(None)
            }
            Err(value) => Err(TrySendError::Full(value)),
        }
    }

    /// Receives with the lock held, if that is possible at once.
    #[inline(never)]
    fn accept(&self, locked: &mut ChanLocked<'_, T>) -> Result<Taken<T>, TryRecvError> {
        let Some((value, spent)) = locked.buffer.pop() else {
            // Who still waits to send on a closed channel will get the value back.
            if locked.is_closed {
                return Err(TryRecvError::Disconnected);
            }
            let (value, wake) = locked.take(SENDERS).ok_or(TryRecvError::Empty)?;
            return Ok(Taken { value, wake: Some(wake), spent: None });
        };
        // There is room now: for the value of whoever waits longest.
        let waiting = if locked.is_closed { None } else { locked.take(SENDERS) };
        let wake = waiting.map(|(next, wake)| {
            let pushed = locked.buffer.push(next);
            debug_assert!(pushed.is_ok(), "no room");
            wake
        });
        self.len.store(locked.buffer.len(), Ordering::Release);
        Ok(Taken { value, wake, spent })
    }

    #[inline]
    pub(crate) fn try_send(&self, mut value: T) -> Result<(), TrySendError<T>> {
        loop {
            let mut locked = self.lock.lock();
            let offered = self.offer(&mut locked, value);
            let Err(TrySendError::Full(back)) = offered else {
                return offered.map(|wake| locked.ready_if(wake));
            };
            value = back;
            if !self.grow(locked) {
                return Err(TrySendError::Full(value));
            }
        }
    }

    #[inline]
    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut locked = self.lock.lock();
        // The short ways, as in `recv_until`.
        if !self.lock.looks_waited_for(SENDERS) {
            if let Some((value, len)) = locked.buffer.pop_ring() {
                self.len.store(len, Ordering::Release);
                return Ok(value);
            }
        } else if locked.is_direct
            && let Some((value, wake)) = locked.take_alone(SENDERS)
        {
            locked.ready(wake);
            return Ok(value);
        }
        self.accept(&mut locked).map(|taken| finish(locked, taken))
    }

    /// Gets memory for an unbounded channel; false if it is bounded, or there is
    /// none.
    #[cold]
    fn grow(&self, locked: ChanLocked<'_, T>) -> bool {
        let Some(want) = locked.buffer.want() else { return false };
        drop(locked);
        let Ok(fresh) = Fresh::new(want) else { return false };
        let mut locked = self.lock.lock();
        let surplus = locked.buffer.grow(fresh);
        drop(locked);
        drop(surplus);
        true
    }

    /// Times out only with a deadline, or without memory.
    #[inline(always)]
    fn send_until(&self, value: T, until: impl Until) -> Result<(), SendTimeoutError<T>> {
        let mut locked = self.lock.lock();
        // The short way, inlined into the caller: nobody waits, and there is room.
        // (A closed channel's ring is sealed: nothing fits in.)
        if self.lock.looks_waited_for(RECEIVERS) {
            return self.hand_over(locked, value, until);
        }
        match locked.buffer.push_ring(value) {
            Ok(len) => {
                self.len.store(len, Ordering::Release);
                Ok(())
            }
            Err(value) => self.send_when_full(locked, value, until),
        }
    }

    /// Sends to somebody who seems to wait, from hand to hand.
    #[inline(never)]
    fn hand_over(
        &self,
        mut locked: ChanLocked<'_, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        // In the middle of a close they wait no more.
        if locked.is_closed {
            return Err(SendTimeoutError::Disconnected(value));
        }
        match locked.give_alone(RECEIVERS, value) {
            Ok(wake) => {
                locked.ready(wake);
                Ok(())
            }
            Err(value) => self.hand_over_otherwise(locked, value, until),
        }
    }

    /// The rest of `hand_over`: the first in the line selects.
    #[inline(never)]
    fn hand_over_otherwise(
        &self,
        mut locked: ChanLocked<'_, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        match locked.give(RECEIVERS, value) {
            Ok(wake) => {
                locked.ready(wake);
                Ok(())
            }
            Err(value) => self.send_slowly(locked, value, until),
        }
    }

    /// Sends when nobody waits and nothing fits into the ring, if there is one.
    #[inline(never)]
    fn send_when_full(
        &self,
        locked: ChanLocked<'_, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        if locked.may_wait {
            return self.wait_to_send(locked, value, until);
        }
        self.send_slowly(locked, value, until)
    }

    #[inline(never)]
    fn send_slowly(
        &self,
        mut locked: ChanLocked<'_, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        match self.offer(&mut locked, value) {
            Ok(wake) => {
                locked.ready_if(wake);
                Ok(())
            }
            Err(TrySendError::Disconnected(value)) => Err(SendTimeoutError::Disconnected(value)),
            Err(TrySendError::Full(value)) if self.capacity == usize::MAX => {
                drop(locked);
                self.try_send(value).map_err(|error| match error {
                    TrySendError::Full(value) => SendTimeoutError::Timeout(value),
                    TrySendError::Disconnected(value) => SendTimeoutError::Disconnected(value),
                })
            }
            Err(TrySendError::Full(value)) => self.wait_to_send(locked, value, until),
        }
    }

    #[inline(always)]
    fn wait_to_send(
        &self,
        locked: ChanLocked<'_, T>,
        value: T,
        until: impl Until,
    ) -> Result<(), SendTimeoutError<T>> {
        let (reason, deadline_ns) = (Reason::ChanSend, until.deadline_ns());
        let place = Place { reason, list: SENDERS, value: Some(value), deadline_ns };
        match self.lock.wait(locked, place, |_| false) {
            // Taken; or not, and the channel was closed.
            Waited::Granted(None) | Waited::Took(_) | Waited::TimedOut(_, None) => Ok(()),
            Waited::Granted(Some(value)) => Err(SendTimeoutError::Disconnected(value)),
            Waited::TimedOut(_, Some(value)) => Err(SendTimeoutError::Timeout(value)),
        }
    }

    /// None comes in time only if there is a deadline; else the channel is closed.
    #[inline(always)]
    fn recv_until(&self, until: impl Until) -> Option<T> {
        let mut locked = self.lock.lock();
        // The short way, inlined into the caller: nobody waits, and there is one.
        if self.lock.looks_waited_for(SENDERS) {
            return self.recv_waiting(locked, until);
        }
        match locked.buffer.pop_ring() {
            Some((value, len)) => {
                self.len.store(len, Ordering::Release);
                Some(value)
            }
            None => self.recv_when_empty(locked, until),
        }
    }

    /// Receives when somebody seems to wait to send: then there is something.
    #[inline(never)]
    fn recv_waiting(&self, mut locked: ChanLocked<'_, T>, until: impl Until) -> Option<T> {
        // From hand to hand, without the detour of what is stored.
        if locked.is_direct
            && let Some((value, wake)) = locked.take_alone(SENDERS)
        {
            locked.ready(wake);
            return Some(value);
        }
        self.recv_slowly(locked, until)
    }

    /// Receives when nobody waits to send and nothing is in the ring, if there is
    /// one.
    #[inline(never)]
    fn recv_when_empty(&self, locked: ChanLocked<'_, T>, until: impl Until) -> Option<T> {
        if locked.may_wait {
            return self.wait_to_recv(locked, until);
        }
        self.recv_slowly(locked, until)
    }

    #[inline(never)]
    fn recv_slowly(&self, mut locked: ChanLocked<'_, T>, until: impl Until) -> Option<T> {
        match self.accept(&mut locked) {
            Ok(taken) => Some(finish(locked, taken)),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => self.wait_to_recv(locked, until),
        }
    }

    #[inline(always)]
    fn wait_to_recv(&self, locked: ChanLocked<'_, T>, until: impl Until) -> Option<T> {
        let (reason, deadline_ns) = (Reason::ChanReceive, until.deadline_ns());
        let place = Place { reason, list: RECEIVERS, value: None, deadline_ns };
        match self.lock.wait(locked, place, |_| false) {
            Waited::Granted(value) => value,
            Waited::TimedOut(..) | Waited::Took(_) => None,
        }
    }

    /// Closes, and wakes everybody: one at a time, so that the lock is held for
    /// few instructions. Nobody comes to the lines any more.
    fn close(&self) {
        let mut locked = self.lock.lock();
        locked.is_closed = true;
        locked.may_wait = false;
        locked.is_direct = false;
        locked.buffer.seal();
        self.closed.store(1, Ordering::Release);
        loop {
            let wake = locked.grant(RECEIVERS).or_else(|| locked.grant(SENDERS));
            drop(locked);
            let Some(wake) = wake else { return };
            wake.ready();
            locked = self.lock.lock();
        }
    }

    /// Whether nothing will ever be received any more.
    fn is_over(&self) -> bool {
        self.looks_closed() && self.len.load(Ordering::Acquire) == 0
    }

    /// Drops what nobody will receive.
    fn discard(&self) {
        let mut locked = self.lock.lock();
        let buffer = core::mem::replace(&mut locked.buffer, Buffer::gone());
        self.len.store(0, Ordering::Release);
        drop(locked);
        drop(buffer);
    }
}

/// Pays what is owed, and frees the lock for it.
#[inline]
fn finish<T>(locked: ChanLocked<'_, T>, taken: Taken<T>) -> T {
    let Taken { value, wake, spent } = taken;
    locked.ready_if(wake);
    drop(spent);
    value
}
