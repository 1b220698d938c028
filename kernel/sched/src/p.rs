//! P: the right to run Gs, and the state that comes with it.
//!
//! A P is two structs, split by access: [`PSlot`] lies in a static array and is
//! what other CPUs see (thieves, senders to the inbox, diagnosis); [`P`] is the
//! right itself, a value that one M holds and that is moved, not shared. Its plain
//! fields need neither atomics nor a lock, and operations of the holder alone take
//! `&mut P`.
//!
//! What a P does with Gs is in `proc`; parking and waking are in `idle`.

use crate::g::G;
use crate::list::{Inbox, Link, List};
use crate::runq::{Owner, RunQueue};
use crate::sync::{
    Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, SpinLock, const_fn,
};
use crate::{FREE_PILE, Lines, Wake};

/// The part of a P that other CPUs see.
///
/// All zeroes at first, so that an array of them costs nothing in the image. Grouped
/// by writer, each group on cache lines of its own: a G that is sent here does not take
/// away the line that the owner writes at every slice.
#[repr(C, align(128))]
pub struct PSlot<K: 'static> {
    // The owner writes, any CPU reads.
    tick: AtomicU32,
    steals: AtomicU64,
    stolen: AtomicU64,
    // The owner pushes, any CPU steals.
    pub(crate) runq: Lines<RunQueue<K>>,
    // Any CPU pushes, the owner takes.
    pub(crate) inbox: Lines<Inbox<K>>,
}

impl<K: Sync + 'static> PSlot<K> {
    const_fn! {
        /// A slot for a P that is not acquired yet.
        #[must_use]
        pub fn new() -> Self {
            PSlot {
                tick: AtomicU32::new(0),
                steals: AtomicU64::new(0),
                stolen: AtomicU64::new(0),
                runq: Lines(RunQueue::new()),
                inbox: Lines(Inbox::new()),
            }
        }
    }

    /// How many slices began here, wrapping. Any CPU; for diagnosis.
    #[must_use]
    pub fn tick(&self) -> u32 {
        self.tick.load(Relaxed)
    }

    /// How many times this P stole. Any CPU; for diagnosis.
    #[must_use]
    pub fn steals(&self) -> u64 {
        self.steals.load(Relaxed)
    }

    /// How many Gs it stole in all. Any CPU; for diagnosis.
    #[must_use]
    pub fn stolen(&self) -> u64 {
        self.stolen.load(Relaxed)
    }

    /// How many Gs wait in its ring and before it. Any CPU; for diagnosis.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.runq.len()
    }
}

/// The right to run Gs on the P of one index. Held by one M at a time, used
/// with interrupts off; see [`Sched::acquire`](crate::Sched::acquire).
pub struct P<K: 'static> {
    // Constant.
    pub(crate) index: usize,
    pub(crate) slot: &'static PSlot<K>,

    // Holder only.
    pub(crate) runq: Owner<K>,
    /// Tasks that come before its own queue.
    pub(crate) marks: Marks,
    /// Runnable Gs that must run here. Thieves cannot take them. [`Marks::PINNED`]
    /// is set while there are any.
    pub(crate) pinned: List<K>,
    /// The first of `pinned` was displaced: it resumes before the ring.
    resumes_pinned: bool,
    /// Dead Gs to be recycled, most recent first.
    pub(crate) free: Free<K>,
    /// Unused ids of this P's batch, each less one.
    pub(crate) ids: core::ops::Range<u64>,
    pub(crate) random: Random,
    /// The CPU to wake after a search.
    pub(crate) wake: Wake,
    /// Victim of the last steal and how many Gs, until `take_stolen`.
    pub(crate) stolen: Option<(usize, u32)>,
}

impl<K: Sync + 'static> P<K> {
    /// None if the P of `slot` is acquired already.
    pub(crate) fn new(index: usize, slot: &'static PSlot<K>, seed: u64) -> Option<Self> {
        Some(P {
            index,
            slot,
            runq: slot.runq.own()?,
            marks: Marks(0),
            pinned: List::new(),
            resumes_pinned: false,
            free: Free::new(),
            ids: 0..0,
            random: Random(seed ^ (index as u64) << 32),
            wake: Wake::Nobody,
            stolen: None,
        })
    }

    /// Its number, which is its CPU's in the steady state.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many Gs wait on this P (its inbox not counted).
    #[must_use]
    pub fn len(&self) -> usize {
        self.runq.len() + self.pinned.len()
    }

    /// Whether no G waits on this P (its inbox not counted).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Victim and number of Gs of the steal since the last call: for diagnosis,
    /// after [`Sched::find_runnable`](crate::Sched::find_runnable).
    #[must_use]
    pub fn take_stolen(&mut self) -> Option<(usize, u32)> {
        self.stolen.take()
    }

    pub(crate) fn tick(&self) -> u32 {
        self.slot.tick.load(Relaxed) // written by the owner alone
    }

    /// Counts a slice that begins.
    pub(crate) fn count_slice(&mut self) {
        self.slot.tick.store(self.tick().wrapping_add(1), Relaxed);
    }

    /// Counts a steal of so many Gs from `victim`.
    pub(crate) fn count_steal(&mut self, victim: usize, stolen: u32) {
        self.stolen = Some((victim, stolen));
        self.slot.steals.store(self.slot.steals() + 1, Relaxed);
        self.slot.stolen.store(self.slot.stolen() + u64::from(stolen), Relaxed);
    }

    /// Whether only the P's own queue matters now: the P does not return from a
    /// halt, owes no wake-up and has no pinned G.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.marks.0 == 0
    }

    /// Whether a displaced G waits to resume.
    pub(crate) fn has_displaced(&self) -> bool {
        self.resumes_pinned || self.runq.has_displaced()
    }

    /// Takes any G: the ring and the pinned Gs by turns while both have some.
    pub(crate) fn pop(&mut self) -> Option<(&'static G<K>, Slice)> {
        let odd_slice = !self.tick().is_multiple_of(2);
        let pinned_has_turn = self.runq.front_len() == 0
            && (self.resumes_pinned || odd_slice && !self.pinned.is_empty());
        if pinned_has_turn {
            // A G that has just yielded to this one is one more in the ring.
            self.marks.set(Marks::OWES_WAKE);
        } else if let Some(found) = self.runq.get() {
            return Some(found);
        }
        self.pop_pinned()
    }

    /// Takes the first of the pinned Gs.
    pub(crate) fn pop_pinned(&mut self) -> Option<(&'static G<K>, Slice)> {
        let resumes = core::mem::take(&mut self.resumes_pinned);
        let slice = if resumes { Slice::Resumed } else { Slice::New };
        let first = self.pinned.pop();
        if self.pinned.is_empty() {
            self.marks.take(Marks::PINNED);
        }
        first.map(|g| (g, slice))
    }

    /// Appends `g`, which is pinned here, to the pinned Gs.
    pub(crate) fn push_pinned(&mut self, g: &'static G<K>) {
        self.marks.set(Marks::PINNED);
        self.pinned.push(g);
    }

    /// `g`, which is pinned here, was displaced: it resumes before the ring.
    pub(crate) fn displace_pinned(&mut self, g: &'static G<K>) {
        self.marks.set(Marks::PINNED);
        self.resumes_pinned = true;
        self.pinned.push_front(g);
    }

    /// Whether the first of the pinned Gs used up its slice.
    pub(crate) fn has_pinned_hog(&self) -> bool {
        self.pinned.front().is_some_and(G::is_expired)
    }
}

/// Tasks of a P that come before its own queue: a bit each, and nearly always all
/// clear. One word, so that the path of every switch tests it once.
pub(crate) struct Marks(u32);

impl Marks {
    /// The P set its idle bit and did not clear it; a waker may have.
    pub(crate) const IDLE: u32 = 1;
    /// Counted in `Idle::spinning`.
    pub(crate) const SPINNING: u32 = 1 << 1;
    /// The P put Gs into a queue that were in none before, and has not checked yet
    /// whether a CPU must be woken for them.
    pub(crate) const OWES_WAKE: u32 = 1 << 2;
    /// The P has pinned Gs.
    pub(crate) const PINNED: u32 = 1 << 3;

    pub(crate) fn has(&self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    pub(crate) fn set(&mut self, bit: u32) {
        self.0 |= bit;
    }

    pub(crate) fn set_if(&mut self, bit: u32, is_so: bool) {
        if is_so {
            self.set(bit);
        }
    }

    /// Clears the bit; true if it was set.
    pub(crate) fn take(&mut self, bit: u32) -> bool {
        let was = self.has(bit);
        self.0 &= !bit;
        was
    }
}

/// Which slice a G runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// A whole slice of its own, from now.
    New,
    /// The rest of the slice under way on this P: the G was run-next. So a chain of
    /// Gs that ready one another and park has one slice in all, and the Gs in the
    /// ring wait for one slice, not for ever.
    Inherited,
    /// The rest of its own slice from when it was displaced.
    Resumed,
}

/// A pile of dead Gs, linked by `next`.
struct Pile<K: 'static> {
    top: Option<&'static G<K>>,
    len: usize,
}

/// The dead Gs of one P, to be recycled.
///
/// A G that ends goes on top of the current pile, and the next G that is started here
/// is taken off it: the most recent, whose stack is warm. When the current pile is full
/// it becomes the spare, and the old spare goes to the common store; when it is empty
/// it is replaced by the spare, else from the store. Piles move as wholes, so a G costs
/// the same few instructions whether ten are started at a time or ten thousand, and
/// between two visits to the store there is at least a pile's worth of Gs.
pub(crate) struct Free<K: 'static> {
    at_hand: Pile<K>,
    /// Full or empty.
    behind: Pile<K>,
}

impl<K: Sync + 'static> Free<K> {
    const NONE: Pile<K> = Pile { top: None, len: 0 };

    pub(crate) const fn new() -> Self {
        Free { at_hand: Self::NONE, behind: Self::NONE }
    }

    /// How many Gs both piles hold.
    pub(crate) fn len(&self) -> usize {
        self.at_hand.len + self.behind.len
    }

    /// Pops the G that was pushed last, else one from the store (Go: gfget).
    #[inline(always)]
    pub(crate) fn pop(&mut self, store: &Store<K>) -> Option<&'static G<K>> {
        if self.at_hand.top.is_none() {
            self.refill(store);
        }
        let g = self.at_hand.top?;
        self.at_hand.top = g.next.load(Relaxed);
        self.at_hand.len -= 1;
        Some(g)
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, store: &Store<K>) {
        self.at_hand = core::mem::replace(&mut self.behind, Self::NONE);
        if self.at_hand.len == 0 {
            self.at_hand = store.take().unwrap_or(Self::NONE);
        }
    }

    /// Puts `g`, which no queue holds, on top (Go: gfput).
    #[inline(always)]
    pub(crate) fn push(&mut self, store: &Store<K>, g: &'static G<K>) {
        if self.at_hand.len == FREE_PILE {
            self.make_room(store);
        }
        g.next.store(self.at_hand.top, Relaxed);
        self.at_hand.top = Some(g);
        self.at_hand.len += 1;
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, store: &Store<K>) {
        let full = core::mem::replace(&mut self.at_hand, Self::NONE);
        if let Some(top) = core::mem::replace(&mut self.behind, full).top {
            store.put(top);
        }
    }
}

/// Full piles of dead Gs, for all Ps. Callers: any CPU, interrupts off.
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

    fn put(&self, top: &'static G<K>) {
        self.lock.with(|| {
            top.pile.store(self.newest.load(Relaxed), Relaxed);
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
            self.newest.store(top.pile.load(Relaxed), Relaxed);
            self.len.store(self.len.load(Relaxed) - 1, Release);
            Some(Pile { top: Some(top), len: FREE_PILE })
        })
    }
}

/// A small generator (SplitMix64), from any seed: this is its state.
pub struct Random(pub u64);

impl Random {
    /// The increment of the state for each number.
    pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The next number: the upper half of the next word before its last step.
    pub(crate) fn next(&mut self) -> u32 {
        (self.mix() >> 32) as u32
    }

    /// The next word.
    pub fn next_word(&mut self) -> u64 {
        let word = self.mix();
        word ^ (word >> 31)
    }

    fn mix(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
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
    fn slots_of_two_ps_and_fields_of_two_writers_share_no_cache_line() {
        use core::mem::offset_of;
        type Slot = PSlot<()>;
        assert!(offset_of!(Slot, stolen) < 128 && size_of::<Slot>().is_multiple_of(128));
        let [runq, inbox] = [offset_of!(Slot, runq), offset_of!(Slot, inbox)];
        assert_eq!((align_of::<Slot>(), runq % 128, inbox % 128), (128, 0, 0));
        assert!(runq >= 128 && inbox >= runq + size_of::<RunQueue<()>>());
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
