//! The time of day, in UTC: what the real-time clock said once, and the time since.

use super::{Duration, Instant};
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A moment of the calendar, in UTC. Displayed as `2026-11-19T17:04:05Z`.
///
/// ```no_run
/// use runnext::time::SystemTime;
/// match SystemTime::now() {
///     Some(now) => println!("it is {now}, {} s after 1970 began", now.since_epoch().as_secs()),
///     None => println!("this machine has no clock that goes on while it is off"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemTime {
    since_epoch: Duration,
}

impl SystemTime {
    /// This moment, to a second. The machine's clock is read at the first call; `None` if it has
    /// none, or one without a date that makes sense.
    #[must_use]
    pub fn now() -> Option<Self> {
        /// The second of the calendar at boot; 0 before the first call.
        static BOOTED: AtomicU64 = AtomicU64::new(0);
        let up = Duration::from_nanos(Instant::now().as_nanos());
        let booted = match BOOTED.load(Relaxed) {
            0 => unix_seconds()?.checked_sub(up.as_secs())?,
            known => known,
        };
        // The first of several Gs that came here at once: time must not go back.
        let booted = match BOOTED.compare_exchange(0, booted, Relaxed, Relaxed) {
            Ok(_) => booted,
            Err(known) => known,
        };
        Some(SystemTime { since_epoch: Duration::from_secs(booted) + up })
    }

    /// The time since 1970 began.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        self.since_epoch
    }
}

/// This moment in UTC, if the machine knows: [`SystemTime::now`].
#[must_use]
pub fn now_utc() -> Option<SystemTime> {
    SystemTime::now()
}

#[cfg(target_os = "none")]
fn unix_seconds() -> Option<u64> {
    crate::arch::unix_seconds()
}

#[cfg(not(target_os = "none"))]
fn unix_seconds() -> Option<u64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().map(|since| since.as_secs())
}

impl fmt::Display for SystemTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.since_epoch.as_secs();
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Days since a 1 March, 400 years of which have as many days as any other: so a leap day is
        // the last of its year, and of its four and of its 400 years.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_their_dates() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (946_684_799, "1999-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_107_845, "2026-11-19T17:04:05Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = SystemTime { since_epoch: Duration::from_secs(seconds) };
            assert_eq!(time.to_string(), shown);
        }
    }

    #[test]
    fn it_goes_on_and_never_back() {
        let first = SystemTime::now().expect("the host has a clock");
        assert!(SystemTime::now() >= Some(first));
        assert!(first.since_epoch().as_secs() > 1_700_000_000);
    }
}
