//! A G whose rank was raised while it waits in a queue is taken out, to displace.
//!
//! Inheritance needs this: a G that holds a lock, and waits behind others for a CPU, must not keep an
//! urgent G waiting for as long. But no word says which queue a G is in: each push of each G would
//! have to store it. So [`Sched::raised`] searches the lists that have a lock, and asks each P that is
//! not idle to look through its own queues, which no other CPU could take a G out of the middle of
//! ([`Sched::sift`], in the interrupt that asks). A G in an inbox or in a call needs none of it: its
//! rank is read when it arrives.
//!
//! # No P misses it
//!
//! A G may move while the Ps look, from a P that has not looked to one that has. Each raise counts
//! up `raises` *before* it reads which Ps are busy, and `asked` Ps count down as they have looked. A
//! P that has taken Gs from elsewhere compares: if Ps still had to look when it began, or a raise has
//! come since, it looks through its ring once more. Else all Ps had looked before, and the G was not
//! there; or the raise came after it had taken the G, and asks it like the others. (A ring that
//! overflows at that very instant may carry the G to the middle of the global queue, where it waits
//! as any other. So does a G that has more than [`MOST`] others before it there.)

use crate::g::{G, Handle, Status};
use crate::list::{GlobalQueue, List};
use crate::p::{Marks, P};
use crate::priority::Priority;
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed, const_fn, planted};
use crate::{Arrival, Sched, Wake};

/// The most Gs of one list that are searched under its lock.
const MOST: usize = 1024;

/// How many raises there were (high half), and how many requests to look are open.
pub(crate) struct Raises(AtomicU64);

impl Raises {
    const_fn! {
        pub(crate) fn new() -> Self {
            Raises(AtomicU64::new(0))
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Whether a P that began to take Gs at `before` may have one that was raised meanwhile.
    pub(crate) fn have_come_since(&self, before: u64) -> bool {
        before as u32 != 0 || self.now() != before
    }
}

impl<K: Sync + 'static> GlobalQueue<K> {
    /// Takes `g` out of the list of normal Gs, or of a lane, if it is there.
    fn take(&self, g: &'static G<K>) -> bool {
        !self.is_empty() && self.take_normal(g) || self.take_ranked(g) || self.take_shared(g, MOST)
    }

    fn take_normal(&self, g: &'static G<K>) -> bool {
        self.lock.with(|| {
            let len = self.len();
            let mut before = None;
            let mut at = self.head.load(Relaxed).filter(|_| len > 0);
            for place in 1..=len.min(MOST) {
                let Some(here) = at else { return false };
                let next = here.next.load(Relaxed).filter(|_| place < len);
                if core::ptr::eq(here, g) {
                    self.cut(before, next);
                    g.set_expired(false);
                    return true;
                }
                (before, at) = (Some(here), next);
            }
            false
        })
    }
}

impl<K: Sync + 'static> Sched<K> {
    /// The rank of that life of a G was raised. If the G waits in a list with a lock, it is readied
    /// anew; if it waits elsewhere, and is urgent now, the CPUs that `ask` is called with must be
    /// interrupted, and call [`Sched::sift`].
    pub fn raised(&self, p: &mut P<K>, g: &Handle<K>, mut ask: impl FnMut(usize)) -> Wake {
        let Some(g) = g.get().filter(|g| g.status() == Status::Runnable && !g.is_guided()) else {
            return Wake::Nobody;
        };
        if self.global.take(g) {
            p.marks.set(Marks::OWES_WAKE); // it was in no queue for a moment
            let wake = self.submit(p, g, g.has_home());
            return if planted!(RaisedUnseen) { Wake::Nobody } else { wake };
        }
        if g.rank() != Priority::Urgent {
            return Wake::Nobody; // it has its place in a ring
        }
        self.raises.0.fetch_add(1 << 32, AcqRel);
        let slots = self.acquired();
        for index in self.idle.busy_ps(slots.len()).iter() {
            self.raises.0.fetch_add(1, AcqRel);
            slots[index].asked.fetch_add(1, AcqRel);
            ask(index);
        }
        Wake::Nobody
    }

    /// Whether [`Sched::raised`] has asked this P.
    #[must_use]
    pub fn is_asked(&self, p: &P<K>) -> bool {
        p.slot.asked.load(Acquire) != 0
    }

    /// Looks through the queues of this P for urgent Gs. As [`Sched::arrive`], and like that at the
    /// end of an interrupt.
    #[cold]
    pub fn sift(&self, p: &mut P<K>) -> Arrival {
        let asked = p.slot.asked.swap(0, AcqRel);
        let mut displace = false;
        // The queues of an idle P are empty.
        if !p.marks.has(Marks::IDLE) {
            self.pull(p, &mut displace);
        }
        self.raises.0.fetch_sub(u64::from(asked), AcqRel); // Release: it has looked
        Arrival { wake: self.pay_wake(p), displace }
    }

    /// The P has taken Gs from elsewhere: see the head of this file.
    #[cold]
    pub(crate) fn pull_late(&self, p: &mut P<K>) {
        let lends = core::mem::replace(&mut p.lends, false); // to the lane, where it looks next
        self.pull(p, &mut false);
        p.lends = lends;
    }

    /// Takes the urgent Gs out of the queues of this P, and admits them.
    fn pull(&self, p: &mut P<K>, displace: &mut bool) {
        // What is taken and put back is in no queue for a moment.
        p.marks.set(Marks::OWES_WAKE);
        if let Some(g) = p.runq.take_next()
            && !self.admit_urgent(p, g, displace)
        {
            let none = p.runq.swap_next(g);
            debug_assert!(none.is_none(), "only the owner fills it");
        }
        if let Some(g) = p.runq.take_displaced()
            && !self.admit_urgent(p, g, displace)
        {
            p.runq.displace(g);
        }
        let mut raised = List::new();
        let ring = p.runq.len() - p.runq.front_len();
        if p.runq.iter().any(|g| g.rank() == Priority::Urgent) {
            for _ in 0..ring {
                let Some(g) = p.runq.pop() else { break };
                match g.rank() {
                    Priority::Urgent => raised.push(g),
                    _ => self.push(p, g, crate::system::Why::Readied),
                }
            }
        }
        while let Some(g) = raised.pop() {
            if !self.admit_urgent(p, g, displace) {
                self.push(p, g, crate::system::Why::Readied);
            }
        }
        p.pull_pinned(|p, g| self.admit_urgent(p, g, displace));
    }
}

impl<K: Sync + 'static> P<K> {
    /// Takes those of the Gs that are pinned here out that `takes` takes; the others keep their order.
    fn pull_pinned(&mut self, mut takes: impl FnMut(&mut Self, &'static G<K>) -> bool) {
        let resumes = core::mem::take(&mut self.resumes_pinned);
        for place in 0..self.pinned.len() {
            let Some(g) = self.pinned.pop() else { break };
            if !takes(self, g) {
                self.pinned.push(g);
                self.resumes_pinned |= resumes && place == 0;
            }
        }
        if self.pinned.is_empty() {
            self.marks.take(Marks::PINNED);
        }
    }
}
