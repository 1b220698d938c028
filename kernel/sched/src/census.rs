//! Every G that waits for a CPU, and its queue: for the invariant checker.
//!
//! Walks the queues in place, so the result is valid only while no G moves: the
//! kernel stops all CPUs first (`runnext::invariant`). A walk that finds no end,
//! because a link is broken, stops after [`MAX_WALK`] Gs.

use crate::g::G;
use crate::p::{Marks, P};
use crate::sync::Relaxed;
use crate::{Priority, Sched};

/// The most Gs of one queue that a walk visits: more than fit in memory.
const MAX_WALK: usize = 1 << 24;

/// Which queue a G is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueName {
    /// The global queue.
    Global,
    /// The lane of that rank.
    Lane(Priority),
    /// The lane of a program, by number (`share`).
    Shared(u8),
    /// The inbox of the P of this index.
    Inbox(usize),
    /// Its ring, or one of the two slots before it.
    Ring(usize),
    /// The ring of an M, under `system::distributed`; newest M first.
    MRing(usize),
    /// The Gs pinned to it, urgent or not.
    Pinned(usize),
}

impl<K: Sync + 'static> Sched<K> {
    /// Calls `f` for each G in a shared queue. No G may move meanwhile, and no P
    /// may be idle.
    ///
    /// ```
    /// use sched::{G, QueueName, PSlot, Sched};
    ///
    /// static SLOTS: [PSlot<()>; 1] = [const { PSlot::new() }; 1];
    /// static SCHED: Sched<()> = Sched::new(&SLOTS);
    /// static A: G<()> = G::new(());
    ///
    /// let mut p = SCHED.acquire(0, 1).expect("P 0 is free");
    /// let _ = SCHED.start(&mut p, &A, None);
    /// let mut found = Vec::new();
    /// SCHED.census(&mut |g, place| found.push((g.id(), place)));
    /// assert_eq!(found, [(1, QueueName::Ring(0))]);
    /// ```
    pub fn census(&self, f: &mut impl FnMut(&'static G<K>, QueueName)) {
        walk(self.global.head.load(Relaxed), self.global.len(), |g| f(g, QueueName::Global));
        for rank in [Priority::Urgent, Priority::Background] {
            self.global.ranked(rank).take(MAX_WALK).for_each(|g| f(g, QueueName::Lane(rank)));
        }
        self.global.shared().take(MAX_WALK).for_each(|(g, lane)| f(g, QueueName::Shared(lane)));
        for (index, slot) in self.slots.iter().enumerate() {
            walk(slot.inbox.newest.load(Relaxed), MAX_WALK, |g| f(g, QueueName::Inbox(index)));
            slot.runq.iter().for_each(|g| f(g, QueueName::Ring(index)));
        }
        for (number, ring) in self.rings.iter().enumerate() {
            ring.runq.iter().for_each(|g| f(g, QueueName::MRing(number)));
        }
    }

    /// How many dead Gs are in the common stores, to be recycled.
    #[must_use]
    pub fn stored_dead(&self) -> usize {
        self.slots.iter().map(|slot| slot.free.len()).sum()
    }

    /// How many Ps are counted as idle; a waker reads this count. It is exact while
    /// no P parks or wakes.
    #[must_use]
    pub fn counted_idle(&self) -> usize {
        self.idle.counted.load(Relaxed) as usize
    }
}

impl<K: Sync + 'static> P<K> {
    /// As [`Sched::census`], for the Gs that only the holder of this P can see.
    pub fn census(&self, f: &mut impl FnMut(&'static G<K>, QueueName)) {
        let index = self.index();
        for list in [&self.pinned, &self.urgent] {
            walk(list.front(), list.len(), |g| f(g, QueueName::Pinned(index)));
        }
    }

    /// How many dead Gs this P keeps, to recycle them.
    #[must_use]
    pub fn kept_dead(&self) -> usize {
        self.free.len()
    }

    /// Whether this P has its spinning mark, hence is counted as spinning. Not
    /// while it runs a G.
    #[must_use]
    pub fn spins(&self) -> bool {
        self.marks.has(Marks::SPINNING)
    }

    /// Whether this P has its idle mark. Not while it runs a G.
    #[must_use]
    pub fn idles(&self) -> bool {
        self.marks.has(Marks::IDLE)
    }
}

/// Calls `f` for the Gs of a list, of that length at most.
fn walk<K: Sync + 'static>(first: Option<&'static G<K>>, len: usize, f: impl FnMut(&'static G<K>)) {
    core::iter::successors(first, |g| g.next.load(Relaxed)).take(len.min(MAX_WALK)).for_each(f);
}
