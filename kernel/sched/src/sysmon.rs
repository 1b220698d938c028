//! Uses of the clock: ending slices, and retaking Ps from calls.
//!
//! **The slice timer** runs only where a G waits for the slice to end. A G is not
//! preempted while no other G waits, and its CPU takes no tick. The price is that a P
//! without a timer must be told when a G begins to wait:
//!
//! - in its own queues: then the P itself put the G there, or was sent an interrupt
//!   for its inbox, and calls [`Sched::needs_timer`] again;
//! - in the global queue: then the CPU that put it there interrupts every P that has
//!   no timer ([`Sched::take_untimed`]). All of them, not one: five hogs on four
//!   CPUs are fair only if each of the four is preempted in its turn.
//!
//! It is the argument of parking once more (essay, "Parking"): one CPU sets its
//! bit, then checks the queue; the other fills the queue, then checks the bits;
//! with a fence between on both sides, one of them sees the other's store.
//!
//! **The monitor** is for `handoff=sysmon`, where a CPU whose G waits in a call
//! halts and keeps its P until the monitor notices. Go has a thread for that, which
//! sleeps for 20 µs between two checks and longer and longer while it finds nothing
//! to do. Here the CPU that halts computes when that thread would check next, and
//! sets its timer: there is no tick while no G is in a call.
//!
//! The kernel knows when a slice began and how long it is; time comes in as an
//! argument.

use crate::p::P;
use crate::sync::{AtomicU64, Relaxed, SeqCst, const_fn, fence};
use crate::{SLICE_NS, Sched};

impl<K: Sync + 'static> Sched<K> {
    /// Whether the G that this P runs, or is about to run, needs a timer for its
    /// slice. If not, this P is recorded as one without.
    ///
    /// Caller: the M that holds `p`, interrupts off: before it switches to a G,
    /// after it made one ready, after an interrupt, and when a slice is over (if no
    /// G waits: no preemption, and no timer until one does). A timer that is
    /// started late runs for the rest of the slice.
    #[must_use = "start the timer or stop it"]
    pub fn needs_timer(&self, p: &P<K>) -> bool {
        if self.somebody_waits(p) {
            // A bit of this P that is still set costs it one useless interrupt;
            // clearing it would cost a locked operation each time.
            return true;
        }
        if self.untimed.has(p.index) {
            return false; // set, and the queues were checked after it
        }
        self.untimed.set(p.index);
        fence(SeqCst); // bit before queue; the partner is in `Idle::wake_p`
        self.somebody_waits(p)
    }

    /// A CPU that must be interrupted so that it asks [`Sched::needs_timer`]
    /// again; call it until it gives None.
    ///
    /// Caller: the caller of any method that returns a [`Wake`](crate::Wake), after
    /// that; after `start` and `ready` only if they return a CPU. Costs a load while the
    /// global queue is empty.
    #[inline(always)]
    pub fn take_untimed(&self) -> Option<usize> {
        if self.global.is_empty() { None } else { self.take_untimed_for_global() }
    }

    /// Slow path of `take_untimed`.
    #[cold]
    fn take_untimed_for_global(&self) -> Option<usize> {
        // Queue before bits: a CPU that puts a G there has been through the fence
        // of `Idle::wake_p` since, or owes it (`Marks::OWES_WAKE`) and calls again.
        if self.untimed.is_empty() {
            return None;
        }
        self.untimed.claim_any(self.slots.len())
    }

    /// Whether a G waits that a preemption would let run on this P: in its queues,
    /// its inbox or the global queue. Gs that wait on other Ps are not counted: a G
    /// preempted for their sake would itself be the next that this P finds. Their
    /// own P has a timer, and sends them on.
    #[must_use]
    #[inline]
    pub fn somebody_waits(&self, p: &P<K>) -> bool {
        !p.is_empty() || !p.slot.inbox.is_empty() || !self.global.is_empty()
    }

    /// This P halts: it runs no G that could need a timer.
    pub(crate) fn forget_untimed(&self, p: &P<K>) {
        if self.untimed.has(p.index) {
            self.untimed.claim(p.index);
        }
    }
}

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
