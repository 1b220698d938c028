//! The monitor: when a P is retaken from a G in a call.
//!
//! It is for `handoff=sysmon`, where a CPU whose G waits in a call halts and keeps its P
//! until the monitor notices. Go has a thread for that, which sleeps for 20 µs between two
//! checks and longer and longer while it finds nothing to do. Here the CPU that halts
//! computes when that thread would check next, and sets its timer: there is no tick while
//! no G is in a call. Time comes in as an argument.

use crate::SLICE_NS;
use crate::sync::{AtomicU64, Relaxed, const_fn};

/// Interval between two checks, at first.
const SHORT_NS: u64 = 20_000;
/// Checks at that interval: Go's round counter must exceed 50.
const SHORT_LOOKS: u64 = 51;
/// The longest interval; the interval doubles up to here.
const LONG_NS: u64 = 10_000_000;

/// When the monitor checks: a series of times that restarts whenever it has retaken
/// a P.
///
/// ```
/// let monitor = sched::Sysmon::new();
/// monitor.succeeded(1_000_000);
/// assert_eq!(monitor.next_look(1_000_000), 1_020_000);
/// assert_eq!(monitor.next_look(1_020_000), 1_040_000);
/// ```
pub struct Sysmon {
    last_success_ns: AtomicU64,
}

/// What the monitor knows of a P whose G is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSeen {
    /// The monitor saw the same call at its last check.
    pub seen_before: bool,
    /// How long the G has been in the call.
    pub in_call_ns: u64,
    /// A G waits on that P.
    pub somebody_waits: bool,
    /// Another P is idle or spins.
    pub somebody_free: bool,
}

/// Whether the monitor retakes the P, by Go's rule: at the second check of the same
/// call, or after a slice; but if no G waits on that P and another P is free, not
/// before a slice is over.
#[must_use]
pub fn retake(call: CallSeen) -> bool {
    let long = call.in_call_ns >= SLICE_NS;
    long || call.seen_before && (call.somebody_waits || !call.somebody_free)
}

impl Sysmon {
    const_fn! {
        /// A monitor whose series of checks begins at time 0.
        #[must_use]
        pub fn new() -> Self {
            Sysmon { last_success_ns: AtomicU64::new(0) }
        }
    }

    /// The monitor has retaken a P.
    pub fn succeeded(&self, now_ns: u64) {
        self.last_success_ns.store(now_ns, Relaxed); // two at once: either value will do
    }

    /// The first check after `now_ns`.
    #[must_use]
    pub fn next_look(&self, now_ns: u64) -> u64 {
        let start = self.last_success_ns.load(Relaxed);
        let Some(since) = now_ns.checked_sub(start) else {
            return start.saturating_add(SHORT_NS); // success stamped by a faster clock
        };
        let (mut last, mut distance) = (0, SHORT_NS);
        if since >= SHORT_LOOKS * SHORT_NS {
            // At most as many rounds as 10 ms / 20 µs has bits.
            last = SHORT_LOOKS * SHORT_NS;
            distance = 2 * SHORT_NS;
            while distance < LONG_NS && since >= last + distance {
                last += distance;
                distance = LONG_NS.min(2 * distance);
            }
        }
        let latest = now_ns - (since - last) % distance;
        latest.saturating_add(distance)
    }
}

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    use super::*;

    fn looks(start: u64, n: usize) -> impl Iterator<Item = u64> {
        let monitor = Sysmon::new();
        monitor.succeeded(start);
        let next = move |&at: &u64| Some(monitor.next_look(at));
        core::iter::successors(Some(start), next).skip(1).take(n)
    }

    #[test]
    fn looks_come_every_20_us_then_at_doubling_distances_then_every_10_ms() {
        let start = 5_000_000_000;
        let distances =
            (0..51).map(|_| 20_000).chain((1..=8).map(|i| 20_000 << i)).chain([10_000_000; 3]);
        let mut at = start;
        for (look, distance) in looks(start, 62).zip(distances) {
            at += distance;
            assert_eq!(look, at);
        }
    }

    #[test]
    fn next_look_is_the_first_of_the_row_after_any_time() {
        let monitor = Sysmon::new();
        let row = || looks(0, 80);
        let step = if cfg!(miri) { 9_999_991 } else { 7_919 };
        let exact = row().take(if cfg!(miri) { 3 } else { 70 });
        for now in (0..60_000_000).step_by(step).chain(exact.flat_map(|at| [at, at - 1])) {
            let first = row().find(|&at| at > now).expect("the row is long enough");
            assert_eq!(monitor.next_look(now), first, "after {now}");
        }
    }

    #[test]
    fn success_long_ago_or_ahead_is_answered_at_once() {
        let monitor = Sysmon::new();
        let hours = 40 * 3_600_000_000_000;
        let next = monitor.next_look(hours);
        assert!(next > hours && next <= hours + LONG_NS);
        assert!(monitor.next_look(u64::MAX - 1) == u64::MAX);
        monitor.succeeded(1_000_000);
        assert_eq!(monitor.next_look(999_999), 1_020_000);
    }

    #[test]
    fn p_is_taken_at_the_second_look_unless_nobody_would_gain() {
        let call = |seen_before, in_call_ns, somebody_waits, somebody_free| {
            retake(CallSeen { seen_before, in_call_ns, somebody_waits, somebody_free })
        };
        assert!(!call(false, 19_999, true, false), "first look");
        assert!(call(true, 20_000, true, true));
        assert!(call(true, 20_000, false, false));
        assert!(!call(true, SLICE_NS - 1, false, true), "nobody waits, somebody is free");
        assert!(call(true, SLICE_NS, false, true));
        assert!(call(false, SLICE_NS, false, true), "its slice is over");
    }
}
