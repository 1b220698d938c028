//! Channels whose values come from the clock: of timers, tickers, [`after`] and [`tick`].
//!
//! Such a channel has a [`Clock`] in place of a buffer, and no heap of timers knows it. A G that
//! waits for its value waits in the list of receivers, as in every channel, with the value's time
//! as its deadline: so it is the G's own node that is in the heap of its CPU, and only while it
//! waits. A timer on which no G waits costs its memory and nothing else; a million of them are made
//! and stopped in a constant number of instructions each. And what the deadlock scan must know of a
//! timer it sees: the G that waits for it has a deadline.
//!
//! A set to an earlier time grants to all that wait, without a value: they look at the clock again.
//!
//! Rejected: a node of each timer in the heap of a CPU, whose interrupt sends to the channel. That
//! costs O(log n) for timers that are stopped before any G looks, as most are; the channel's lock
//! would be taken in interrupts; the node must outlive its timer or be taken out by every way in
//! which that can go; and the deadlock scan would have to count the pending ones of each program.
#![forbid(unsafe_code)]

use super::buffer::Buffer;
use super::clock::Clock;
use super::{Chan, ChanLocked, RECEIVERS, Receiver, Sender, Until, make_receiver, or_panic};
use crate::run::door::{self, Reason};
use crate::run::time::{Duration, Instant};
use crate::wait::queue::{Place, Waited};
use core::convert::identity;
use core::sync::atomic::Ordering;

/// A channel that gets one value, at `duration` from now: that moment (Go: time.After). It is never
/// closed. A [`Timer`](crate::time::Timer) can be stopped, too.
///
/// # Panics
/// When there is no memory for it, as [`bounded`](super::bounded).
///
/// ```
/// use runnext::prelude::*;
/// let start = Instant::now();
/// let (_tx, numbers) = chan::bounded::<u32>(1);
/// let late = chan::after(Duration::from_millis(2));
/// select! {
///     recv(numbers) => unreachable!("none was sent"),
///     recv(late) -> at => assert!(at.unwrap() >= start + Duration::from_millis(2)),
/// }
/// assert!(late.try_recv().is_err(), "it came once");
/// ```
#[track_caller]
#[must_use]
pub fn after(duration: Duration) -> Receiver<Instant> {
    or_panic(Receiver::from_clock(Instant::now() + duration, None))
}

/// A channel that gets a value again and again, `period` apart: the moment at which it was due (Go:
/// time.Tick). Values that are not received in time are dropped, except for the oldest. It is never
/// closed. A [`Ticker`](crate::time::Ticker) can be stopped, too.
///
/// # Panics
/// If the period is zero, or there is no memory.
///
/// ```
/// use runnext::prelude::*;
/// let ticks = chan::tick(Duration::from_millis(1));
/// let [first, second] = [ticks.recv().unwrap(), ticks.recv().unwrap()];
/// assert!(second - first >= Duration::from_millis(1));
/// ```
#[track_caller]
#[must_use]
pub fn tick(period: Duration) -> Receiver<Instant> {
    or_panic(Receiver::from_clock(Instant::now() + period, Some(period)))
}

/// A channel that never gets a value and is never closed (Go: a nil channel). For a variable that
/// has the receiver of an arm of `select!`, when that arm is not wanted.
///
/// # Panics
/// When there is no memory for it.
///
/// ```
/// use runnext::prelude::*;
/// let mut numbers = chan::never::<u32>();
/// assert!(numbers.recv_timeout(Duration::from_millis(1)).is_err());
/// let (tx, rx) = chan::bounded(1);
/// numbers = rx;
/// tx.send(7).unwrap();
/// assert_eq!(numbers.recv(), Ok(7));
/// ```
#[track_caller]
#[must_use]
pub fn never<T: Send>() -> Receiver<T> {
    or_panic(Buffer::ring(0).and_then(|buffer| make_receiver(buffer, Some(0))))
}

impl Receiver<Instant> {
    pub(crate) fn from_clock(
        next: Instant,
        period: Option<Duration>,
    ) -> Result<Self, super::NoMemory> {
        let buffer = Buffer::of_clock(Clock::new(next, period), identity);
        let receiver = make_receiver(buffer, Some(0))?;
        receiver.chan.len.store(1, Ordering::Release);
        Ok(receiver)
    }

    /// The end by which the clock of this channel is set. There is only one.
    pub(crate) fn setter(&self) -> Sender<Instant> {
        Sender { chan: self.chan.clone() }
    }
}

impl Sender<Instant> {
    /// Sets the clock of a timer's channel anew; whether it was set, and its value not received.
    pub(crate) fn set_clock(&self, next: Instant, period: Option<Duration>) -> bool {
        let to = Clock::new(next, period);
        let mut locked = self.chan.lock.lock();
        let Some(clock) = locked.clock() else { return false }; // no receiver is left
        let before = clock.set(to);
        self.chan.len.store(1, Ordering::Release);
        let is_earlier = before.is_none_or(|before| next < before);
        drop(locked);
        if is_earlier {
            self.chan.lock.grant_all(RECEIVERS);
        }
        before.is_some()
    }

    /// Stops the clock of a timer's channel; whether it was set, and its value not received. A G
    /// that waits wakes once for nothing, when the value would have been due.
    pub(crate) fn stop_clock(&self) -> bool {
        let mut locked = self.chan.lock.lock();
        let was_set = locked.clock().is_some_and(Clock::stop);
        self.chan.len.store(0, Ordering::Release);
        was_set
    }
}

/// The word `len` of a channel with a clock is 1 while the clock is set: so it looks ready to
/// `select!`, which finds out here.
impl<T> Chan<T> {
    /// The way of `recv` in a channel with a clock.
    #[cold]
    #[inline(never)]
    pub(super) fn recv_tick<'a, U: Until>(
        &'a self,
        mut locked: ChanLocked<'a, T>,
        until: U,
    ) -> Option<T> {
        loop {
            let now = Instant::now();
            if let Some((value, is_set)) = locked.tick(now) {
                self.len.store(is_set.into(), Ordering::Release);
                return Some(value);
            }
            let next = locked.clock().and_then(|clock| clock.next());
            let limit_ns = until.deadline_ns();
            let is_late = limit_ns.is_some_and(|ns| ns <= now.as_nanos() || door::is_limit_over());
            if !U::WAITS || is_late || next.is_none() && self.is_closed() {
                return None;
            }
            // As in `sleep_until`: on the CPU that the G wakes up on the time has come, too.
            let due_ns = next.map(|at| at.as_nanos().saturating_add(door::clock_uncertainty_ns()));
            let deadline_ns = due_ns.into_iter().chain(limit_ns).min();
            let place =
                Place { reason: Reason::ChanReceive, list: RECEIVERS, value: None, deadline_ns };
            locked = match locked.wait(place, |_| false) {
                Waited::Granted(_) => self.lock.lock_in_g(), // set anew, or closed
                Waited::TimedOut(locked, _) | Waited::Took(locked) => locked,
            };
        }
    }

    /// When this channel has a value by itself, if its clock is set.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let has_clock = self.capacity == 0 && self.len.load(Ordering::Acquire) != 0;
        if has_clock { self.lock.lock_in_g().clock()?.next() } else { None }
    }
}
