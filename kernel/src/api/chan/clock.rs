//! When the channel of a timer has a value: the state machine, pure.
//!
//! ```text
//!           set ┌──────┐ tick, with a period
//!     ┌────────▶│ Set  │◀────┐   the value is due from `next` on, and there
//!     │         └─┬──┬─┘─────┘   until it is received, set again or stopped
//!  ┌──┴─────┐     │  │ stop
//!  │ Not set│◀────┘  │
//!  └────────┘◀───────┘
//!        tick, without
//! ```
//!
//! A value that is due is not put anywhere before a G takes it ([`Clock::tick`]). So a stop or a
//! set has no stale value to drain, and its result needs no race to be decided: it was in time if
//! the value was not received. These are Go's rules since 1.23, where a timer on which no G waits
//! is in no heap either.

use crate::run::time::{Duration, Instant};

/// The clock of a timer's channel; guarded by the channel's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    next: Option<Instant>,
    /// Nanoseconds from one value to the next; 0 if there is only one.
    period_ns: u64,
}

impl Clock {
    /// Set for `next`, and then again and again if there is a `period`.
    ///
    /// # Panics
    /// If the period is zero: so it is made before the channel's lock is taken, under which a panic
    /// would be the kernel's.
    pub(super) fn new(next: Instant, period: Option<Duration>) -> Self {
        Clock { next: Some(next), period_ns: nanos(period) }
    }

    /// Sets it anew; returns when it was set for, if it was.
    pub(super) fn set(&mut self, to: Clock) -> Option<Instant> {
        core::mem::replace(self, to).next
    }

    /// No value comes any more; whether one would have.
    pub(super) fn stop(&mut self) -> bool {
        self.next.take().is_some()
    }

    /// One value comes at most, because no G can set it any more.
    pub(super) fn seal(&mut self) {
        self.period_ns = 0;
    }

    /// When the next value is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Takes the value if it is due: the moment at which it was. With a period the next one is due
    /// at the first multiple of it in the future: ticks that were missed are dropped, and the time
    /// between two never drifts.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next.filter(|&at| at <= now)?;
        let missed = (now - due).as_nanos() as u64; // of two instants: it fits
        self.next = missed
            .checked_div(self.period_ns)
            .map(|periods| due + Duration::from_nanos(self.period_ns.saturating_mul(periods + 1)));
        Some(due)
    }
}

/// # Panics
/// If the period is zero.
fn nanos(period: Option<Duration>) -> u64 {
    period.map_or(0, |period| {
        assert!(!period.is_zero(), "a ticker with a period of zero");
        u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
