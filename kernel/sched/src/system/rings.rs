//! The rings of Ms, for [`distributed`](super::distributed): a list that only grows.
//!
//! An M is never freed, and neither is its ring. A new ring is linked in before its M puts a G
//! there; so a P that checks for Gs late enough to see the G (essay, "Parking") sees the ring as
//! well.

use super::add;
use crate::Lines;
use crate::Sched;
use crate::p::{Marks, P};
use crate::proc::{Found, steal_from};
use crate::runq::{Owner, RunQueue};
use crate::sync::{AcqRel, Acquire, AtomicPtr, Relaxed, const_fn, planted, spin_loop};
use crate::{RUNQ_CAPACITY, STEAL_MAX};
use core::ptr;

/// The ring of one M.
pub struct MRing<K: 'static> {
    pub(crate) runq: Lines<RunQueue<K>>,
    /// The ring that was added before this one. Constant once it is in the list.
    older: AtomicPtr<MRing<K>>,
}

impl<K: Sync + 'static> MRing<K> {
    const_fn! {
        /// An empty ring.
        #[must_use]
        pub fn new() -> Self {
            MRing { runq: Lines(RunQueue::new()), older: AtomicPtr::new(ptr::null_mut()) }
        }
    }
}

/// All of them, newest first.
pub(crate) struct Rings<K: 'static> {
    newest: AtomicPtr<MRing<K>>,
}

impl<K: Sync + 'static> Rings<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Rings { newest: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Adds a ring, and gives its owner's handle; None if it was added before.
    pub(crate) fn add(&self, ring: &'static MRing<K>) -> Option<Owner<K>> {
        let owner = ring.runq.own()?;
        let new = ptr::from_ref(ring).cast_mut();
        let mut newest = self.newest.load(Relaxed);
        loop {
            ring.older.store(newest, Relaxed);
            // Release publishes the ring and its link; pairs with `iter`.
            match self.newest.compare_exchange_weak(newest, new, AcqRel, Relaxed) {
                Ok(_) => return Some(owner),
                Err(now) => newest = now,
            }
            spin_loop();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Relaxed).is_null()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static MRing<K>> {
        // SAFETY: both pointers are written in `add` only, with null or a `&'static MRing`, of
        // which no `&mut` exists; `MRing<K>: Sync` as `K: Sync`.
        let as_ref = |ring: *mut MRing<K>| unsafe { ring.as_ref() };
        let first = as_ref(self.newest.load(Acquire)); // pairs with `add`
        core::iter::successors(first, move |ring| as_ref(ring.older.load(Relaxed)))
    }
}

impl<K: Sync + 'static> Sched<K> {
    /// The rings that the Ps came with, and those that were added.
    fn all_rings(&self) -> impl Iterator<Item = &'static RunQueue<K>> {
        let first = self.acquired().iter().map(|slot| &*slot.runq);
        first.chain(self.rings.iter().map(|ring| &*ring.runq))
    }

    /// Whether a G waits in a ring, where rings go with Ms: also in that of an M which has left.
    #[inline]
    pub(crate) fn ms_have_work(&self) -> bool {
        !planted!(SkipRingsOfMs)
            && !self.rings.is_empty()
            && self.all_rings().any(|ring| !ring.is_empty())
    }

    /// Steals from the rings of all Ms, on CPUs or not. Not if another P spins that will.
    #[inline(always)]
    pub(crate) fn steal_from_ms(&self, p: &mut P<K>) -> Option<Found<K>> {
        if self.rings.is_empty() || !p.marks.has(Marks::SPINNING) {
            return None;
        }
        self.steal_from_rings(p, false)
    }

    /// Steals from the rings that have left, if one has left this P with Gs. Not if its own ring
    /// has no room for them.
    #[inline(always)]
    pub(crate) fn steal_left(&self, p: &mut P<K>) -> Option<Found<K>> {
        if p.marks.has(Marks::LEFT_GS) { self.steal_left_slow(p) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn steal_left_slow(&self, p: &mut P<K>) -> Option<Found<K>> {
        if p.runq.len() > RUNQ_CAPACITY - STEAL_MAX {
            return None;
        }
        let found = self.steal_from_rings(p, true);
        if found.is_none() {
            p.marks.take(Marks::LEFT_GS);
        }
        found
    }

    /// Steals from a ring, `left` from one that has left its CPU.
    #[inline(never)]
    fn steal_from_rings(&self, p: &mut P<K>, left: bool) -> Option<Found<K>> {
        for takes_front in [false, true] {
            for (number, ring) in self.all_rings().enumerate() {
                add(&p.slot.scanned, 1);
                if left && !ring.is_away.load(Relaxed) {
                    continue;
                }
                let found = steal_from(p, number, ring, takes_front);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }
}

impl<K: Sync + 'static> P<K> {
    /// This P goes on with another ring, that of the M which takes over; returns the ring that
    /// leaves with the old M. The Gs in that ring wait for thieves from now on: for a P that is
    /// idle, or for this one, which has a mark, a timer and a turn for them. No CPU is woken for
    /// them: while one is idle and a ring has a G, a P spins, and finds it where it is.
    #[must_use = "the Gs in it would be lost"]
    pub fn swap_ring(&mut self, ring: Owner<K>) -> Owner<K> {
        ring.tick.store(self.tick(), Relaxed); // the P counts its slices, not the ring
        ring.is_away.store(false, Relaxed);
        self.marks.set_if(Marks::DISPLACED, ring.has_displaced());
        self.slot.came_with(&ring);
        let left = core::mem::replace(&mut self.runq, ring);
        left.is_away.store(true, Relaxed);
        self.marks.set_if(Marks::LEFT_GS, !left.is_empty());
        left
    }
}
