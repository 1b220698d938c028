//! Does this P need a slice timer? Only if somebody waits for it to be over.
//!
//! A G that nobody waits for is never preempted, and its CPU takes no tick. The
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
//! When a slice began, and how long it is, the kernel knows: a timer that is
//! started late is started for what is left of the slice, if anything.

use crate::Sched;
use crate::p::P;
use crate::sync::{SeqCst, fence};

impl<K: Sync + 'static> Sched<K> {
    /// Whether the G that this P runs, or is about to run, needs a timer for
    /// its slice. If not, this P is remembered as one without.
    ///
    /// Caller: the M that holds `p`, interrupts off: before it switches to a G,
    /// after it made one ready, after an interrupt, and when a slice is over
    /// (nobody waits: no preemption, and no timer until somebody does).
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
        fence(SeqCst); // bit before queue; the partner is in `take_untimed`
        self.somebody_waits(p)
    }

    /// A CPU that must be interrupted so that it asks [`Sched::needs_timer`]
    /// again; call it until it gives None.
    ///
    /// Caller: who called anything that gives a [`Wake`](crate::Wake), after
    /// that. Costs a load when nobody waits in the global queue.
    pub fn take_untimed(&self) -> Option<usize> {
        if self.global.is_empty() {
            return None;
        }
        fence(SeqCst); // queue before bits; the partner is in `needs_timer`
        self.untimed.claim_any(self.slots.len())
    }

    /// Whether a G waits that a preemption would let run on this P: in its
    /// queues, its inbox or the global queue. Gs that wait on other Ps are not
    /// counted: a G preempted for their sake would itself be the next that
    /// this P finds. Their own P has a timer, and sends them on.
    #[must_use]
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
