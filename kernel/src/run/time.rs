//! Time for programs: instants, sleeping, deadlines for waits.
//!
//! Time is nanoseconds since boot in a word, which lasts for 584 years. Arithmetic saturates at
//! both ends and never panics: a deadline further away than that never comes, so
//! `sleep(Duration::MAX)` sleeps for ever.
#![forbid(unsafe_code)]

// By its path, because the models compile this file from elsewhere.
#[cfg(not(loom))]
#[path = "time/wall.rs"]
mod wall;

use super::door::{self, Reason, Wait};
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

pub use core::time::Duration;
#[cfg(not(loom))]
pub use wall::{SystemTime, now_utc};

/// A moment, by a clock that never goes backwards.
///
/// ```
/// use runnext::prelude::*;
/// let start = Instant::now();
/// sleep(Duration::from_millis(2));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// The end of time, which never comes.
    pub const NEVER: Instant = Instant { ns: u64::MAX };

    /// This moment.
    #[inline]
    #[must_use]
    pub fn now() -> Self {
        Instant { ns: door::now_ns() }
    }

    /// How long ago this was; zero if it is in the future.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now() - self
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, by: Duration) -> Instant {
        Instant { ns: self.ns.saturating_add(whole_ns(by)) }
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, by: Duration) -> Instant {
        Instant { ns: self.ns.saturating_sub(whole_ns(by)) }
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl fmt::Debug for Instant {
    /// Seconds since boot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Instant::NEVER => f.write_str("never"),
            Instant { ns } => write!(f, "{}.{:09}s", ns / 1_000_000_000, ns % 1_000_000_000),
        }
    }
}

fn whole_ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for `d` at least; other Gs run meanwhile. Does not wait if it is zero.
///
/// ```
/// use runnext::prelude::*;
/// let worker = go(|| sleep(Duration::from_millis(1)));
/// assert_eq!(worker.join(), Ok(()));
/// ```
pub fn sleep(d: Duration) {
    if !d.is_zero() {
        sleep_until(Instant::now() + d);
    }
}

/// Waits until `at`; does not wait if that is past. For a period that does not drift:
///
/// ```
/// use runnext::prelude::*;
/// use runnext::time::sleep_until;
/// let start = Instant::now();
/// let mut next = start;
/// for _ in 0..3 {
///     next += Duration::from_millis(1);
///     sleep_until(next);
/// }
/// assert!(start.elapsed() >= Duration::from_millis(3));
/// ```
pub fn sleep_until(at: Instant) {
    door::might_park();
    // The clock of the CPU that this G wakes up on may be behind that of the CPU whose timer fires.
    let until = at.ns.saturating_add(door::clock_uncertainty_ns());
    while Instant::now() < at {
        let _ = door::begin_park(Wait::new(Reason::Sleep, 0)); // no other G gets the handle
        let is_readied = door::park_until(until); // by a kill, or a stale handle
        door::check_kill();
        if !is_readied {
            return;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const START: Instant = Instant { ns: 5_000_000_000 };
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn arithmetic_stops_at_both_ends_of_time() {
        assert_eq!(START + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::NEVER + MS, Instant::NEVER);
        assert_eq!((START - Duration::from_secs(6)).as_nanos(), 0);
        // 2^64 ns and a bit: must not wrap around to a short time.
        assert_eq!(START + Duration::new(18_446_744_073, 709_551_617), Instant::NEVER);
        assert_eq!(START.duration_since(Instant::NEVER), Duration::ZERO);
    }

    #[test]
    fn sums_and_differences_agree() {
        let mut later = START + 3 * MS;
        assert_eq!(later - START, 3 * MS);
        later += MS;
        assert_eq!(later.duration_since(START), 4 * MS);
        assert!(START < later && later - 4 * MS == START);
    }

    #[test]
    fn instants_are_shown_in_seconds_since_boot() {
        assert_eq!(std::format!("{START:?}"), "5.000000000s");
        assert_eq!(std::format!("{:?}", START + Duration::from_nanos(42)), "5.000000042s");
        assert_eq!(std::format!("{:?}", Instant::NEVER), "never");
    }

    #[test]
    fn sleep_is_never_too_short() {
        for d in [Duration::ZERO, Duration::from_nanos(1), MS, 5 * MS] {
            let start = Instant::now();
            sleep(d);
            assert!(start.elapsed() >= d);
        }
    }

    #[test]
    fn sleep_goes_on_after_a_wake_up_that_was_not_meant_for_it() {
        let start = Instant::now();
        let left_behind = door::begin_park(Wait::default());
        let waker = std::thread::spawn(move || {
            for _ in 0..5 {
                std::thread::sleep(2 * MS);
                door::ready(left_behind.clone());
            }
        });
        sleep(30 * MS);
        assert!(start.elapsed() >= 30 * MS);
        waker.join().unwrap();
    }

    #[test]
    fn time_that_is_past_is_not_waited_for() {
        assert_eq!((Instant::now() + 3600 * 1000 * MS).elapsed(), Duration::ZERO);
        sleep_until(Instant { ns: 0 });
        sleep_until(Instant::now());
    }

    #[test]
    fn deadline_tells_a_wake_up_from_a_timeout() {
        let deadline = Instant::now() + Duration::from_secs(600);
        let g = door::begin_park(Wait::default());
        let waker = std::thread::spawn(move || door::ready(g));
        assert!(door::park_until(deadline.ns));
        waker.join().unwrap();
        let _ = door::begin_park(Wait::default());
        assert!(!door::park_until((Instant::now() + MS).ns));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the thread is left behind")]
    fn sleep_for_ever_is_not_over_soon() {
        let sleeper = std::thread::spawn(|| sleep(Duration::MAX));
        std::thread::sleep(20 * MS);
        assert!(!sleeper.is_finished());
    }
}
