//! The monitor: when a P is retaken from a G in a call.
//!
//! It is for `handoff=sysmon`, where a CPU whose G waits in a call halts and keeps its P
//! until the monitor notices. Go has a thread for that, which sleeps for 20 µs between two
//! checks and longer and longer while it finds nothing to do. Here the CPU that halts
//! computes when that thread would check next, and sets its timer: there is no tick while
//! no G is in a call. Time comes in as an argument.

use crate::p::P;
use crate::sync::{AtomicU64, Relaxed, const_fn};
use crate::{SLICE_NS, Sched};

/// Interval between two checks, at first.
const SHORT_NS: u64 = 20_000;
/// Checks at that interval: Go's round counter must exceed 50.
const SHORT_CHECKS: u64 = 51;
/// The longest interval; the interval doubles up to here.
const LONG_NS: u64 = 10_000_000;

/// When the monitor checks: a series of times that restarts whenever it has retaken
/// a P.
///
/// ```
/// let monitor = sched::Sysmon::new();
/// monitor.succeeded(1_000_000);
/// assert_eq!(monitor.next_check(1_000_000), 1_020_000);
/// assert_eq!(monitor.next_check(1_020_000), 1_040_000);
/// ```
pub struct Sysmon {
    last_success_ns: AtomicU64,
}

impl<K: Sync + 'static> Sched<K> {
    /// Whether the monitor retakes this P, whose G is in a call since `in_call_ns`, by Go's rule:
    /// at the second check of the same call (`seen_before`), or after a slice; but if no G waits on
    /// this P and another is idle or spins, not before a slice is over.
    #[must_use]
    pub fn retake(&self, p: &P<K>, seen_before: bool, in_call_ns: u64) -> bool {
        let is_needed = || self.has_waiting_g(p) || !self.idle.has_free_p(self.limit());
        in_call_ns >= SLICE_NS || seen_before && is_needed()
    }
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
    pub fn next_check(&self, now_ns: u64) -> u64 {
        let start = self.last_success_ns.load(Relaxed);
        let Some(since) = now_ns.checked_sub(start) else {
            return start.saturating_add(SHORT_NS); // success stamped by a faster clock
        };
        let (mut last, mut distance, mut checks) = (0, SHORT_NS, SHORT_CHECKS);
        // At most as many rounds as 10 ms / 20 µs has bits.
        while distance < LONG_NS && since >= last + checks * distance {
            last += checks * distance;
            distance = LONG_NS.min(2 * distance);
            checks = 1;
        }
        let latest = now_ns - (since - last) % distance;
        latest.saturating_add(distance)
    }
}

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    extern crate std;

    use super::*;
    use crate::{G, Next, PSlot};
    use std::boxed::Box;

    fn checks(start: u64, n: usize) -> impl Iterator<Item = u64> {
        let monitor = Sysmon::new();
        monitor.succeeded(start);
        let next = move |&at: &u64| Some(monitor.next_check(at));
        core::iter::successors(Some(start), next).skip(1).take(n)
    }

    #[test]
    fn checks_come_every_20_us_then_at_doubling_distances_then_every_10_ms() {
        let start = 5_000_000_000;
        let distances =
            (0..51).map(|_| 20_000).chain((1..=8).map(|i| 20_000 << i)).chain([10_000_000; 3]);
        let mut at = start;
        for (check, distance) in checks(start, 62).zip(distances) {
            at += distance;
            assert_eq!(check, at);
        }
    }

    #[test]
    fn next_check_is_the_first_of_the_row_after_any_time() {
        let monitor = Sysmon::new();
        let row = || checks(0, 80);
        let step = if cfg!(miri) { 9_999_991 } else { 7_919 };
        let exact = row().take(if cfg!(miri) { 3 } else { 70 });
        for now in (0..60_000_000).step_by(step).chain(exact.flat_map(|at| [at, at - 1])) {
            let first = row().find(|&at| at > now).expect("the row is long enough");
            assert_eq!(monitor.next_check(now), first, "after {now}");
        }
    }

    #[test]
    fn success_long_ago_or_ahead_is_answered_at_once() {
        let monitor = Sysmon::new();
        let hours = 40 * 3_600_000_000_000;
        let next = monitor.next_check(hours);
        assert!(next > hours && next <= hours + LONG_NS);
        assert!(monitor.next_check(u64::MAX - 1) == u64::MAX);
        monitor.succeeded(1_000_000);
        assert_eq!(monitor.next_check(999_999), 1_020_000);
    }

    /// Of two Ps the first has a G in a call; the others wait, or the second P is free, or both.
    #[test]
    fn p_is_taken_at_the_second_check_unless_no_g_would_gain() {
        fn machine(waits: bool, is_free: bool) -> impl Fn(bool, u64) -> bool {
            let slots = Box::leak(Box::new([const { PSlot::<u32>::new() }; 2]));
            let sched: &'static Sched<u32> = Box::leak(Box::new(Sched::new(slots)));
            let [mut p, mut other] = [0, 1].map(|index| sched.acquire(index, 7).expect("new"));
            let start = |p: &mut P<u32>| _ = sched.start(p, Box::leak(Box::new(G::new(0))), None);
            start(&mut p);
            assert!(matches!(sched.find_runnable(&mut p), Next::Run(_)));
            if is_free {
                assert!(matches!(sched.find_runnable(&mut other), Next::Park(_)));
            }
            if waits {
                start(&mut p);
            }
            assert_eq!(sched.has_waiting_g(&p), waits);
            assert_eq!(sched.idle.has_free_p(2), is_free);
            move |seen_before, in_call_ns| sched.retake(&p, seen_before, in_call_ns)
        }
        let [both, waits] = [machine(true, true), machine(true, false)];
        let [free, none] = [machine(false, true), machine(false, false)];
        assert!(!waits(false, 19_999), "first check");
        assert!(both(true, 20_000));
        assert!(none(true, 20_000));
        assert!(!free(true, SLICE_NS - 1), "no G waits, and a P is free");
        assert!(free(true, SLICE_NS));
        assert!(free(false, SLICE_NS), "its slice is over");
    }
}
