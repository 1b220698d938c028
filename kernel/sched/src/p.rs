//! P: the right to run Gs, and the state that comes with it.
//!
//! A P is two structs, split by access: [`PSlot`] lies in a static array and is
//! what other CPUs see (thieves, senders to the inbox, diagnosis); [`P`] is the
//! right itself, a value that one M holds and that is moved, not shared. Its plain
//! fields need neither atomics nor a lock, and operations of the holder alone take
//! `&mut P`.
//!
//! What a P does with Gs is in `proc`; parking and waking are in `idle`.

use crate::Lines;
use crate::g::G;
use crate::list::{Inbox, List};
use crate::near::Row;
use crate::proc::{Found, Free, Store};
use crate::runq::{Owner, RunQueue};
use crate::share::Purse;
use crate::sync::{Acquire, AtomicPtr, AtomicU32, AtomicU64, Relaxed, Release, const_fn};
use crate::system::Places;
use core::ptr;

/// The part of a P that other CPUs see.
///
/// All zeroes at first, so that an array of them costs nothing in the image. Grouped
/// by writer, each group on cache lines of its own: a G that is sent here does not take
/// away the line that the owner writes at every slice.
#[repr(C, align(128))]
pub struct PSlot<K: 'static> {
    // The owner writes, any CPU reads.
    steals: AtomicU64,
    stolen: AtomicU64,
    pub(crate) scanned: AtomicU64,
    pub(crate) queue_locks: AtomicU64,
    /// How often it was asked to look through its queues (`raise`). Any CPU adds, the owner takes.
    pub(crate) asked: AtomicU32,
    /// The ring that the P has now, if that is not `runq` (`system::distributed`).
    other_ring: AtomicPtr<RunQueue<K>>,
    // The owner pushes, any CPU steals.
    pub(crate) runq: Lines<RunQueue<K>>,
    // Any CPU pushes, the owner takes.
    pub(crate) inbox: Lines<Inbox<K>>,
    /// Dead Gs of all Ps of a node, in the slot of its lowest P. Written under its lock, when a P
    /// has too many dead Gs or none.
    pub(crate) free: Lines<Store<K>>,
}

impl<K: Sync + 'static> PSlot<K> {
    const_fn! {
        /// A slot for a P that is not acquired yet.
        #[must_use]
        pub fn new() -> Self {
            PSlot {
                steals: AtomicU64::new(0),
                stolen: AtomicU64::new(0),
                scanned: AtomicU64::new(0),
                queue_locks: AtomicU64::new(0),
                asked: AtomicU32::new(0),
                other_ring: AtomicPtr::new(ptr::null_mut()),
                runq: Lines(RunQueue::new()),
                inbox: Lines(Inbox::new()),
                free: Lines(Store::new()),
            }
        }
    }

    /// The ring that the P has now. Any CPU; for diagnosis, and for models.
    #[must_use]
    pub fn ring(&self) -> &RunQueue<K> {
        // SAFETY: written in `came_with` alone, with a ring that lives for ever, and `&mut` of
        // which does not exist; `RunQueue<K>: Sync` as `K: Sync`.
        unsafe { self.other_ring.load(Acquire).as_ref() }.unwrap_or(&self.runq)
    }

    /// The P goes on with that ring, which lives for ever.
    pub(crate) fn came_with(&self, ring: &RunQueue<K>) {
        self.other_ring.store(ptr::from_ref(ring).cast_mut(), Release); // pairs with `ring`
    }

    /// How many slices began here, wrapping. Any CPU; for diagnosis.
    #[must_use]
    pub fn tick(&self) -> u32 {
        self.ring().tick.load(Relaxed)
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
    pub(crate) resumes_pinned: bool,
    /// Urgent Gs that are pinned here, which `pinned` does not have. [`Marks::RANKED`] is set while
    /// there are any.
    pub(crate) urgent: List<K>,
    /// See [`P::set_lends`].
    pub(crate) lends: bool,
    /// Dead Gs to be recycled, most recent first.
    pub(crate) free: Free<K>,
    /// Unused ids of this P's batch, each less one.
    pub(crate) ids: core::ops::Range<u64>,
    pub(crate) random: Random,
    /// Victim of the last steal and how many Gs, until `take_stolen`.
    pub(crate) stolen: Option<(usize, u32)>,
    /// Where ready Gs wait, if not as in Go. [`Marks::GUIDED`] is set then, for ever.
    pub(crate) places: Option<&'static dyn Places<K>>,
    /// What this P knows of near and far; none where all CPUs are equally far (`near`).
    pub(crate) row: Option<&'static Row>,
    /// It searches otherwise than in Go's flat order: it has a row, or is guided.
    pub(crate) searches_specially: bool,
    /// What it pays for the G that it runs, while shares are in force (`share`).
    pub(crate) purse: Purse,
}

impl<K: Sync + 'static> P<K> {
    /// None if the P of `slot` is acquired already.
    /// `store`: where its dead Gs go that it does not keep.
    pub(crate) fn new(
        index: usize,
        slot: &'static PSlot<K>,
        store: &'static Store<K>,
        seed: u64,
    ) -> Option<Self> {
        Some(P {
            index,
            slot,
            runq: slot.runq.own()?,
            marks: Marks(0),
            pinned: List::new(),
            resumes_pinned: false,
            urgent: List::new(),
            lends: true,
            free: Free::new(store),
            ids: 0..0,
            random: Random(seed ^ (index as u64) << 32),
            stolen: None,
            places: None,
            row: None,
            searches_specially: false,
            purse: Purse::new(),
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
        self.runq.len() + self.pinned.len() + self.urgent.len()
    }

    /// Whether no G waits on this P (its inbox not counted).
    #[must_use]
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.runq.is_empty() && self.pinned.is_empty()
    }

    /// Victim and number of Gs of the steal since the last call: for diagnosis,
    /// after [`Sched::find_runnable`](crate::Sched::find_runnable).
    #[must_use]
    pub fn take_stolen(&mut self) -> Option<(usize, u32)> {
        self.stolen.take()
    }

    pub(crate) fn tick(&self) -> u32 {
        self.runq.tick.load(Relaxed) // written by the owner alone
    }

    /// Counts a slice that begins.
    pub fn count_slice(&mut self) {
        self.runq.tick.store(self.tick().wrapping_add(1), Relaxed);
    }

    /// A G that was taken from a queue is to be run, on that slice (Go: execute).
    #[inline(always)]
    pub(crate) fn execute(&mut self, (g, slice): Found<K>) -> Found<K> {
        g.execute();
        if slice == Slice::New {
            self.count_slice();
        }
        (g, slice)
    }

    /// Counts a steal of so many Gs from `victim`.
    pub(crate) fn count_steal(&mut self, victim: usize, stolen: u32) {
        self.stolen = Some((victim, stolen));
        self.slot.steals.store(self.slot.steals() + 1, Relaxed);
        self.slot.stolen.store(self.slot.stolen() + u64::from(stolen), Relaxed);
    }

    /// Whether only the P's own queue matters now: the P does not return from a
    /// halt, owes no wake-up, has no pinned and no displaced G, is not guided (`system`) and
    /// is below the limit.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.marks.0 == 0
    }

    /// Whether a displaced G waits to resume.
    #[must_use]
    pub fn has_displaced(&self) -> bool {
        // A mark is set wherever one of the two may be: nearly always that is all to be read.
        self.marks.has(Marks::DISPLACED | Marks::PINNED)
            && (self.resumes_pinned || self.runq.has_displaced())
    }

    /// Takes any G: the ring and the pinned Gs by turns while both have some.
    pub(crate) fn pop(&mut self) -> Option<Found<K>> {
        // A P that looks elsewhere comes by here first. Not under loom: more loads to explore.
        let has_no_mark = !self.marks.has(Marks::DISPLACED | Marks::PINNED);
        if !cfg!(loom) && has_no_mark && self.runq.is_empty() {
            return None;
        }
        let odd_slice = !self.tick().is_multiple_of(2);
        let pinned_has_turn = self.runq.front_len() == 0
            && (self.resumes_pinned || odd_slice && !self.pinned.is_empty());
        if pinned_has_turn {
            // A G that has just yielded to this one is one more in the ring.
            self.marks.set(Marks::OWES_WAKE);
        } else if let Some(found) = self.get() {
            return Some(found);
        }
        self.pop_pinned()
    }

    /// Takes the G of its own queue that is to run next, and says on which slice: the run-next G,
    /// the displaced G, or the oldest G of the ring.
    pub(crate) fn get(&mut self) -> Option<Found<K>> {
        if let Some(g) = self.runq.take_next() {
            return Some((g, Slice::Inherited));
        }
        self.marks.take(Marks::DISPLACED); // it is taken now, or a thief has taken it
        let displaced = self.runq.take_displaced().map(|g| (g, Slice::Resumed));
        displaced.or_else(|| self.runq.pop().map(|g| (g, Slice::New)))
    }

    /// Takes the first of the pinned Gs.
    pub(crate) fn pop_pinned(&mut self) -> Option<Found<K>> {
        let resumes = core::mem::take(&mut self.resumes_pinned);
        let slice = if resumes { Slice::Resumed } else { Slice::New };
        let first = self.pinned.pop();
        if self.pinned.is_empty() {
            self.marks.take(Marks::PINNED);
        }
        first.inspect(|g| g.set_expired(false)).map(|g| (g, slice))
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
    /// The P is beyond the limit, or was when it saw the limit last.
    pub(crate) const LIMITED: u32 = 1 << 4;
    /// The only G of the P's queues is one that has just yielded, and the global queue comes
    /// before it.
    pub(crate) const ALONE: u32 = 1 << 5;
    /// The P has put a G into the displaced slot, and has not checked that since.
    pub(crate) const DISPLACED: u32 = 1 << 6;
    /// The system is asked where a G waits.
    pub(crate) const GUIDED: u32 = 1 << 7;
    /// A ring has left this P with Gs in it (`system::distributed`), and they may wait there still.
    pub(crate) const LEFT_GS: u32 = 1 << 8;
    /// An urgent G waits here or in its lane, or did when the P looked last (`priority`).
    pub(crate) const RANKED: u32 = 1 << 9;
    /// An urgent G has run on what the next slice lends: that begins in the slow way, where the
    /// kernel ends the loan.
    pub(crate) const LENT: u32 = 1 << 10;

    /// Whether any other bit is set.
    pub(crate) fn has_other(&self, bit: u32) -> bool {
        self.0 & !bit != 0
    }

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
    /// What the next normal G lends of the slice that it begins then (`priority`).
    Lent,
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

    #[test]
    fn slots_of_two_ps_and_fields_of_two_writers_share_no_cache_line() {
        use core::mem::offset_of;
        type Slot = PSlot<()>;
        assert!(offset_of!(Slot, other_ring) < 128 && size_of::<Slot>().is_multiple_of(128));
        let [runq, inbox] = [offset_of!(Slot, runq), offset_of!(Slot, inbox)];
        assert_eq!((align_of::<Slot>(), runq % 128, inbox % 128), (128, 0, 0));
        assert!(runq >= 128 && inbox >= runq + size_of::<RunQueue<()>>());
    }
}
