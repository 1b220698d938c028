//! Dead Gs, to be recycled: two piles with each P, and a store of whole piles.
//!
//! A G that ends goes on top of the P's current pile, and the next G that is
//! started there is taken off it: the most recent, whose stack is warm. When the
//! current pile is full it becomes the spare, and the old spare goes to the common
//! store; when it is empty it is replaced by the spare, else from the store. Piles
//! move as wholes, so a G costs the same few instructions whether ten are started
//! at a time or ten thousand, and between two visits to the store there is at least
//! a pile's worth of Gs.

use crate::FREE_PILE;
use crate::g::G;
use crate::list::Link;
use crate::sync::{Acquire, AtomicUsize, Relaxed, Release, SpinLock, const_fn};

/// A pile of dead Gs, linked by `next`.
struct Pile<K: 'static> {
    top: Option<&'static G<K>>,
    len: usize,
}

impl<K: Sync + 'static> Pile<K> {
    const EMPTY: Self = Pile { top: None, len: 0 };

    #[inline(always)]
    fn push(&mut self, g: &'static G<K>) {
        g.next().store(self.top, Relaxed);
        self.top = Some(g);
        self.len += 1;
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<&'static G<K>> {
        let g = self.top?;
        self.top = g.next().load(Relaxed);
        self.len -= 1;
        Some(g)
    }
}

/// The dead Gs of one P: the current pile and the spare.
pub(crate) struct Free<K: 'static> {
    at_hand: Pile<K>,
    /// Full or empty.
    behind: Pile<K>,
}

impl<K: Sync + 'static> Free<K> {
    pub(crate) const fn new() -> Self {
        Free { at_hand: Pile::EMPTY, behind: Pile::EMPTY }
    }

    /// How many Gs both piles hold.
    pub(crate) fn len(&self) -> usize {
        self.at_hand.len + self.behind.len
    }

    /// Pops the G that was pushed last, else one from the store.
    #[inline(always)]
    pub(crate) fn pop(&mut self, store: &Store<K>) -> Option<&'static G<K>> {
        self.at_hand.pop().or_else(|| self.pop_otherwise(store))
    }

    #[cold]
    #[inline(never)]
    fn pop_otherwise(&mut self, store: &Store<K>) -> Option<&'static G<K>> {
        self.at_hand = core::mem::replace(&mut self.behind, Pile::EMPTY);
        if self.at_hand.len == 0 {
            self.at_hand = store.take()?;
        }
        self.at_hand.pop()
    }

    /// Puts `g`, which no queue holds, on top.
    #[inline(always)]
    pub(crate) fn push(&mut self, store: &Store<K>, g: &'static G<K>) {
        if self.at_hand.len == FREE_PILE {
            self.make_room(store);
        }
        self.at_hand.push(g);
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, store: &Store<K>) {
        let full = core::mem::replace(&mut self.at_hand, Pile::EMPTY);
        let older = core::mem::replace(&mut self.behind, full);
        if older.len > 0 {
            store.put(older);
        }
    }
}

/// Full piles, for all Ps. Callers: any CPU, interrupts off.
pub(crate) struct Store<K: 'static> {
    lock: SpinLock,
    /// The top of the pile that was put here last; `pile` links it to the next
    /// pile. Written under the lock only.
    newest: Link<K>,
    /// How many piles. Written under the lock, read by any CPU.
    len: AtomicUsize,
}

impl<K: Sync + 'static> Store<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Store { lock: SpinLock::new(), newest: Link::null(), len: AtomicUsize::new(0) }
        }
    }

    /// How many Gs there are.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Acquire) * FREE_PILE // pairs with `put` and `take`
    }

    fn put(&self, pile: Pile<K>) {
        debug_assert!(pile.len == FREE_PILE, "not full");
        let top = pile.top.expect("not full");
        self.lock.with(|| {
            top.pile().store(self.newest.load(Relaxed), Relaxed);
            self.newest.store(Some(top), Relaxed);
            self.len.store(self.len.load(Relaxed) + 1, Release); // pairs with `take`
        });
    }

    /// An empty store costs one load and no lock.
    fn take(&self) -> Option<Pile<K>> {
        if self.len.load(Acquire) == 0 {
            return None;
        }
        self.lock.with(|| {
            let top = self.newest.load(Relaxed)?;
            self.newest.store(top.pile().load(Relaxed), Relaxed);
            self.len.store(self.len.load(Relaxed) - 1, Release);
            Some(Pile { top: Some(top), len: FREE_PILE })
        })
    }
}

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    use super::*;
    extern crate std;
    use std::{boxed::Box, vec::Vec};

    fn gs(n: usize) -> Vec<&'static G<usize>> {
        (0..n).map(|i| &*Box::leak(Box::new(G::new(i)))).collect()
    }

    #[test]
    fn the_last_to_end_is_the_first_to_be_used_again() {
        let (store, mut free) = (Store::new(), Free::new());
        gs(5 * FREE_PILE + 7).into_iter().for_each(|g| free.push(&store, g));
        let out: Vec<_> = core::iter::from_fn(|| free.pop(&store)).map(|g| g.kernel).collect();
        assert_eq!(out, (0..5 * FREE_PILE + 7).rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_ends_on_one_p_is_used_again_on_another() {
        let (store, mut one, mut other) = (Store::new(), Free::new(), Free::new());
        gs(4 * FREE_PILE).into_iter().for_each(|g| one.push(&store, g));
        let mut out: Vec<_> = core::iter::from_fn(|| other.pop(&store)).map(|g| g.kernel).collect();
        assert_eq!(out.len(), 2 * FREE_PILE, "all that one does not keep");
        out.extend(core::iter::from_fn(|| one.pop(&store)).map(|g| g.kernel));
        out.sort_unstable();
        assert!(out.into_iter().eq(0..4 * FREE_PILE), "each of them once");
    }

    #[test]
    fn a_p_that_starts_and_ends_by_turns_leaves_the_store_alone() {
        let (store, mut free) = (Store::new(), Free::new());
        let mut gs = gs(2 * FREE_PILE).into_iter();
        gs.by_ref().take(FREE_PILE + 1).for_each(|g| free.push(&store, g));
        for _ in 0..10 {
            // Back and forth over the edge of a pile.
            let two = [free.pop(&store), free.pop(&store)].map(|g| g.expect("there are some"));
            two.into_iter().for_each(|g| free.push(&store, g));
            assert_eq!(store.len.load(Relaxed), 0);
        }
    }
}
