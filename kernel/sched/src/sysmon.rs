//! What a clock is for: ending slices, and taking Ps away from calls.
//!
//! **The slice timer** runs only where somebody waits for the slice to be over. A
//! G that nobody waits for is never preempted, and its CPU takes no tick. The
//! price is that a P without a timer must be told when somebody begins to wait:
//!
//! - in its own queues: then it is itself that put the G there, or it was sent
//!   an interrupt for its inbox, and asks [`Sched::needs_timer`] again;
//! - in the global queue: then whoever put it there interrupts every P that has
//!   no timer ([`Sched::take_untimed`]). All of them, not one: five hogs on four
//!   CPUs are fair only if each of the four is preempted in its turn.
//!
//! It is the argument of parking once more (essay, "Parking"): the one sets its
//! bit, then looks at the queue; the other fills the queue, then looks at the
//! bits; with a fence between on both sides, one of them sees the other.
//!
//! **The monitor** is for `handoff=sysmon`, where a CPU whose G waits in a call
//! halts and keeps its P until the monitor notices. Go has a thread for that,
//! which sleeps for 20 µs between two looks and longer and longer while it finds
//! nothing to do. Here the CPU that halts asks when that thread would look next,
//! and sets its timer: there is no tick while nobody is in a call.
//!
//! When a slice began, and how long it is, the kernel knows; time comes in as an
//! argument.

use crate::p::P;
use crate::sync::{AtomicU64, Relaxed, SeqCst, const_fn, fence};
use crate::{SLICE_NS, Sched};

impl<K: Sync + 'static> Sched<K> {
    /// Whether the G that this P runs, or is about to run, needs a timer for
    /// its slice. If not, this P is remembered as one without.
    ///
    /// Caller: the M that holds `p`, interrupts off: before it switches to a G,
    /// after it made one ready, after an interrupt, and when a slice is over
    /// (nobody waits: no preemption, and no timer until somebody does). A timer
    /// that is started late is started for what is left of the slice.
    #[must_use = "start the timer or stop it"]
    pub fn needs_timer(&self, p: &P<K>) -> bool {
        if self.somebody_waits(p) {
            // Our bit, if it is still set, costs us an interrupt for nothing;
            // clearing it would cost a locked operation each time.
            return true;
        }
        if self.untimed.has(p.index) {
            return false; // set, and looked after it, before
        }
        self.untimed.set(p.index);
        fence(SeqCst); // bit before queue; the partner is in `Idle::wake_p`
        self.somebody_waits(p)
    }

    /// Whether [`Sched::needs_timer`] has said no since this P last halted, and would
    /// say so again: for who asks at every switch of a G that is alone.
    #[must_use = "if not, ask `needs_timer`"]
    #[inline(always)]
    pub fn is_untimed(&self, p: &P<K>) -> bool {
        // The bit is set, and was looked after it, before.
        self.untimed.has(p.index) && !self.somebody_waits(p)
    }

    /// A CPU that must be interrupted so that it asks [`Sched::needs_timer`]
    /// again; call it until it gives None.
    ///
    /// Caller: who called anything that gives a [`Wake`](crate::Wake), after
    /// that. Costs a load when nobody waits in the global queue.
    #[inline(always)]
    pub fn take_untimed(&self) -> Option<usize> {
        if self.global.is_empty() { None } else { self.take_untimed_for_global() }
    }

    /// The rest of `take_untimed`.
    #[cold]
    fn take_untimed_for_global(&self) -> Option<usize> {
        // Queue before bits: whoever puts a G there has been through the fence
        // of `Idle::wake_p` since, or owes it (`Marks::OWES_WAKE`) and comes again.
        if self.untimed.is_empty() {
            return None;
        }
        self.untimed.claim_any(self.slots.len())
    }

    /// Whether a G waits that a preemption would let run on this P: in its
    /// queues, its inbox or the global queue. Gs that wait on other Ps are not
    /// counted: a G preempted for their sake would itself be the next that
    /// this P finds. Their own P has a timer, and sends them on.
    #[must_use]
    #[inline]
    pub fn somebody_waits(&self, p: &P<K>) -> bool {
        !p.is_empty() || !p.slot.inbox.is_empty() || !self.global.is_empty()
    }

    /// This P halts: it has no G that could need a timer.
    pub(crate) fn forget_untimed(&self, p: &P<K>) {
        if self.untimed.has(p.index) {
            self.untimed.claim(p.index);
        }
    }
}

/// Between two looks, at first.
const SHORT_NS: u64 = 20_000;
/// Looks at that distance: Go's round counter must get beyond 50.
const SHORT_LOOKS: u64 = 51;
/// Between two looks, at most; the distance doubles up to here.
const LONG_NS: u64 = 10_000_000;

/// When the monitor looks: a row of times that begins anew whenever it has
/// taken a P away.
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

/// What the monitor sees of a P whose G is in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSeen {
    /// It saw the same call when it looked last.
    pub seen_before: bool,
    /// For so long the G is in it.
    pub in_call_ns: u64,
    /// A G waits on that P.
    pub somebody_waits: bool,
    /// Another P is idle or looks for work.
    pub somebody_free: bool,
}

/// Whether the monitor takes the P away, by Go's rule: at the second look at the
/// same call, or after a slice; but if nobody waits there and somebody is free
/// to take what comes, not before a slice is over.
#[must_use]
pub fn retake(call: CallSeen) -> bool {
    let long = call.in_call_ns >= SLICE_NS;
    long || call.seen_before && (call.somebody_waits || !call.somebody_free)
}

impl Sysmon {
    const_fn! {
        /// A monitor whose row of looks begins at time 0.
        #[must_use]
        pub fn new() -> Self {
            Sysmon { last_success_ns: AtomicU64::new(0) }
        }
    }

    /// It has taken a P away.
    pub fn succeeded(&self, now_ns: u64) {
        self.last_success_ns.store(now_ns, Relaxed); // two at once: either will do
    }

    /// The first look after `now_ns`.
    #[must_use]
    pub fn next_look(&self, now_ns: u64) -> u64 {
        let start = self.last_success_ns.load(Relaxed);
        let Some(since) = now_ns.checked_sub(start) else {
            return start.saturating_add(SHORT_NS); // the success of a faster clock
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
