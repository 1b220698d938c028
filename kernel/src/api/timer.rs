//! `Timer`, `Ticker` and `after_func`: timers that can be stopped and set anew.
//!
//! Each is the setting end of a channel whose values come from the clock (`chan::timed` says how,
//! and why no heap has them). A [`Timer`] and a [`Ticker`] are receivers at the same time, with all
//! methods of one. [`after_func`] is a timer and a G that receives from it and calls the function:
//! the G is there from the beginning, so when the time has come nothing needs memory, and nothing
//! runs in an interrupt.
//!
//! # The rules of Go since 1.23
//!
//! - `stop` and `reset` say whether the timer was set and its value not received: then it did not
//!   happen, and never will. A value that was due and not received counts as not received.
//! - A receive after a `stop` or a `reset` gets no value from before it.
//! - A ticker drops the ticks that are not received in time, except for the oldest; the time
//!   between two does not drift.
//!
//! What differs: a timer is gone when it is dropped, where Go's is collected when no G can reach
//! it. What it was set for still comes, once, to clones of its receiver; then their channel is
//! closed. The calls of one `after_func` are one after the other.
#![forbid(unsafe_code)]

use super::chan::{Receiver, Sender};
use super::go::Go;
use crate::run::time::{Duration, Instant};
use core::fmt;
use core::ops::Deref;

/// A channel that gets one value, when the time has come: that moment (Go: time.Timer).
///
/// ```
/// use runnext::{prelude::*, time::Timer};
/// let timeout = Timer::new(Duration::from_secs(3600));
/// let (tx, rx) = chan::bounded(1);
/// tx.send(7).unwrap();
/// select! {
///     recv(rx) -> n => assert_eq!(n, Ok(7)),
///     recv(timeout) => unreachable!("not within an hour"),
/// }
/// assert!(timeout.stop(), "it had not come");
/// assert!(!timeout.reset(Duration::from_millis(1)), "it was stopped");
/// assert!(timeout.recv().is_ok());
/// ```
pub struct Timer {
    setter: Sender<Instant>,
    receiver: Receiver<Instant>,
}

impl Timer {
    /// Set for `duration` from now (Go: time.NewTimer).
    ///
    /// # Panics
    /// When there is no memory, as all functions that make a timer.
    #[must_use]
    pub fn new(duration: Duration) -> Self {
        Self::at(Instant::now() + duration)
    }

    /// Set for that moment.
    #[must_use]
    pub fn at(at: Instant) -> Self {
        let (setter, receiver) = make(at, None);
        Timer { setter, receiver }
    }

    /// Stops it. True if it was set, and its value not received: then that never comes.
    pub fn stop(&self) -> bool {
        self.setter.stop_clock()
    }

    /// Sets it for `duration` from now; the result is that of [`stop`](Self::stop).
    pub fn reset(&self, duration: Duration) -> bool {
        self.reset_at(Instant::now() + duration)
    }

    /// Sets it for that moment; the result is that of [`stop`](Self::stop).
    pub fn reset_at(&self, at: Instant) -> bool {
        self.setter.set_clock(at, None)
    }
}

/// A channel that gets a value again and again: the moment at which it was due (Go: time.Ticker).
///
/// ```
/// use runnext::{prelude::*, time::Ticker};
/// let ticker = Ticker::new(Duration::from_millis(1));
/// let first = ticker.recv().unwrap();
/// assert!(ticker.recv().unwrap() >= first + Duration::from_millis(1));
/// ticker.stop();
/// assert!(ticker.try_recv().is_err());
/// ```
pub struct Ticker {
    setter: Sender<Instant>,
    receiver: Receiver<Instant>,
}

impl Ticker {
    /// Ticks every `period`, for the first time in one period from now (Go: time.NewTicker).
    ///
    /// # Panics
    /// If the period is zero, or there is no memory.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        let (setter, receiver) = make(Instant::now() + period, Some(period));
        Ticker { setter, receiver }
    }

    /// No tick comes any more, not even one that was due.
    pub fn stop(&self) {
        self.setter.stop_clock();
    }

    /// Ticks every `period` from now on, for the first time in one period, also if it was stopped.
    ///
    /// # Panics
    /// If the period is zero.
    pub fn reset(&self, period: Duration) {
        self.setter.set_clock(Instant::now() + period, Some(period));
    }
}

/// Calls `f` when `duration` has passed, on a G of its own (Go: time.AfterFunc). It is called also
/// when the result was dropped. The G waits from now on, and belongs to the caller's program: as in
/// Go, that does not wait for it.
///
/// # Panics
/// When there is no memory, as [`go`](super::go::go). If `f` panics, its G ends.
///
/// ```
/// use runnext::{prelude::*, time::after_func};
/// let (tx, rx) = chan::bounded(1);
/// drop(after_func(Duration::from_millis(1), move || tx.send("late").unwrap()));
/// assert_eq!(rx.recv(), Ok("late"));
/// ```
#[track_caller]
pub fn after_func(duration: Duration, mut f: impl FnMut() + Send + 'static) -> AfterFunc {
    let (setter, receiver) = make(Instant::now() + duration, None);
    let calls = move || receiver.into_iter().for_each(|_| f());
    match Go::new().name("after_func").spawn(calls) {
        Ok(detached) => drop(detached),
        Err(error) => panic!("after_func: {error}"),
    }
    AfterFunc { setter }
}

/// The timer of an [`after_func`]. Dropping it changes nothing.
///
/// ```
/// use runnext::{prelude::*, time::after_func};
/// let (tx, rx) = chan::bounded(2);
/// let call = after_func(Duration::from_secs(3600), move || tx.send("called").unwrap());
/// assert!(call.reset(Duration::from_millis(1)), "it had not begun");
/// assert_eq!(rx.recv(), Ok("called"));
/// assert!(!call.stop(), "it has begun");
/// drop(call); // its G ends, and what it owns is dropped
/// assert!(rx.recv().is_err());
/// ```
pub struct AfterFunc {
    setter: Sender<Instant>,
}

impl AfterFunc {
    /// Stops it. True if the call had not begun: then it never does.
    pub fn stop(&self) -> bool {
        self.setter.stop_clock()
    }

    /// Has the function called at `duration` from now; once more, if the call has begun already:
    /// then the result is false, as that of [`stop`](Self::stop).
    pub fn reset(&self, duration: Duration) -> bool {
        self.setter.set_clock(Instant::now() + duration, None)
    }
}

#[track_caller]
fn make(next: Instant, period: Option<Duration>) -> (Sender<Instant>, Receiver<Instant>) {
    match Receiver::from_clock(next, period) {
        Ok(receiver) => (receiver.setter(), receiver),
        Err(error) => panic!("{error}"),
    }
}

macro_rules! receives {
    ($($timer:ident),+) => {$(
        impl Deref for $timer {
            type Target = Receiver<Instant>;
            fn deref(&self) -> &Receiver<Instant> {
                &self.receiver
            }
        }
    )+};
}

macro_rules! shown {
    ($($timer:ident),+) => {$(
        impl fmt::Debug for $timer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let next = self.setter.chan().next_tick();
                f.debug_struct(stringify!($timer)).field("next", &next).finish()
            }
        }
    )+};
}

receives!(Timer, Ticker);
shown!(Timer, Ticker, AfterFunc);

#[cfg(test)]
mod tests;
