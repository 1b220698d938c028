//! The local queue: a ring and two slots before it. The owner pushes, any CPU steals.
//!
//! [`RunQueue`] is for all CPUs, to read and to steal; [`Owner`] is the one handle
//! that pushes and pops. The two types enforce "single producer": there is one
//! `Owner` for a queue, it is not `Clone`, and its methods take `&mut self`.
//!
//! Order is first in, first out; the run-next slot comes first, then the displaced
//! slot. Gs that do not fit are returned as a batch for the global queue, which
//! this file does not know. `proc` decides when to push where.
//!
//! # The ring
//!
//! `head` and `tail` run freely and wrap; `tail - head` is the length, the
//! slot of index `i` is `i % RUNQ_CAPACITY`.
//!
//! - Only the owner writes `tail` and the slots. So it needs no claim to push,
//!   and after it has claimed slots from the head, no other CPU writes them.
//! - All CPUs move `head`, by compare-exchange only: that is the claim. A thief
//!   reads slots *before* its claim; if `head` has not moved since, they cannot
//!   have been reused, because the owner reuses a slot only after `head` has
//!   passed it.
//! - `head` could wrap to the same value, 2³² pops later, while a thief is
//!   between load and claim. A thief has interrupts off; it would have to stall
//!   for half a minute at least.

use crate::g::G;
use crate::list::{Link, List};
use crate::sync::{
    AcqRel, Acquire, AtomicBool, AtomicU32, Relaxed, Release, array_of, const_fn, planted,
    spin_loop,
};
use crate::{RUNQ_CAPACITY, RUNQ_HALF, STEAL_MAX};

const CAPACITY: u32 = RUNQ_CAPACITY as u32;

/// The memory of one local queue.
pub struct RunQueue<K: 'static> {
    /// How many slices began here, wrapping. Written by the owner alone: it writes this line at
    /// every switch.
    pub(crate) tick: AtomicU32,
    /// Index of the oldest G. Claimed by the owner and by thieves.
    head: AtomicU32,
    /// One past the newest. Written by the owner alone.
    tail: AtomicU32,
    /// Runs before the ring. Filled by the owner, emptied by any CPU.
    next: Link<K>,
    /// As `next`, and after it: a G that was displaced in the middle of its slice.
    displaced: Link<K>,
    /// Written by the owner alone, before the `tail` that publishes them.
    slots: [Link<K>; RUNQ_CAPACITY],
    /// Whether the owner's handle was given out.
    owned: AtomicBool,
    /// Whether the owner has left the CPUs with it (`system::distributed`). Written by the CPU that
    /// it leaves or comes to.
    pub(crate) is_away: AtomicBool,
}

impl<K: Sync + 'static> RunQueue<K> {
    const_fn! {
        /// An empty queue without an owner.
        #[must_use]
        pub fn new() -> Self {
            RunQueue {
                tick: AtomicU32::new(0),
                head: AtomicU32::new(0),
                tail: AtomicU32::new(0),
                next: Link::null(),
                displaced: Link::null(),
                slots: array_of![Link::null(); RUNQ_CAPACITY],
                owned: AtomicBool::new(false),
                is_away: AtomicBool::new(false),
            }
        }
    }

    /// The owner's handle: the first caller gets it, for ever.
    pub fn own(&'static self) -> Option<Owner<K>> {
        (!self.owned.swap(true, AcqRel)).then_some(Owner { q: self })
    }

    /// Takes a G from before the ring. The displaced one first: it has lost its
    /// CPU, while a run-next G that waits with it is about to get it.
    pub fn take_front(&self) -> Option<&'static G<K>> {
        self.displaced.take().or_else(|| self.next.take())
    }

    /// Whether a displaced G waits here at this instant.
    #[must_use]
    pub fn has_displaced(&self) -> bool {
        !self.displaced.is_null()
    }

    /// How many Gs wait before the ring at this instant.
    #[must_use]
    pub fn front_len(&self) -> usize {
        usize::from(!self.next.is_null()) + usize::from(self.has_displaced())
    }

    /// How many Gs are in the ring and before it. Read in this order: run-next
    /// slot, displaced slot, ring. The owner fills a later one before it empties an
    /// earlier one (it pushes the G that yields, then takes the run-next G), so a
    /// queue that is never empty is never seen empty.
    #[must_use]
    pub fn len(&self) -> usize {
        let front = self.front_len();
        let head = self.head.load(Acquire);
        let tail = self.tail.load(Acquire);
        front + tail.wrapping_sub(head).min(CAPACITY) as usize
    }

    /// Whether no G is in the ring or before it; see [`RunQueue::len`].
    #[must_use]
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next.are_null(&self.displaced) && self.head.load(Acquire) == self.tail.load(Acquire)
    }

    /// All Gs, in the order in which they run. For a census.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static G<K>> {
        let before = [self.next.load(Acquire), self.displaced.load(Acquire)];
        let (head, tail) = (self.head.load(Acquire), self.tail.load(Acquire));
        let len = tail.wrapping_sub(head).min(CAPACITY);
        let ring = (0..len).map(move |i| self.slot(head.wrapping_add(i)).load(Relaxed));
        before.into_iter().chain(ring).flatten()
    }

    fn slot(&self, index: u32) -> &Link<K> {
        &self.slots[index as usize % RUNQ_CAPACITY]
    }

    /// Copies `n` slots of `victim`, from index `from` on, to the slots from `to` on: in runs, each
    /// up to the end of one of the two arrays.
    fn copy(&self, mut to: u32, victim: &Self, mut from: u32, mut n: u32) {
        while n > 0 {
            let [mine, theirs] = [(self, to), (victim, from)]
                .map(|(q, index)| &q.slots[index as usize % RUNQ_CAPACITY..]);
            let run = mine.len().min(theirs.len()).min(n as usize);
            for (mine, theirs) in mine[..run].iter().zip(&theirs[..run]) {
                mine.store(theirs.load(Relaxed), Relaxed);
            }
            let run = run as u32;
            (to, from, n) = (to.wrapping_add(run), from.wrapping_add(run), n - run);
        }
    }
}

/// Why a G that yields was not exchanged for the oldest G of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the G would be lost"]
pub enum Unrotated {
    /// Nothing was done: the G is in no queue yet.
    Kept,
    /// The G is in the ring, and thieves took all that was there, perhaps the G too.
    Queued,
}

/// The right to push to a queue and to pop from it. One for each queue.
///
/// ```
/// use sched::{G, RunQueue};
/// static QUEUE: RunQueue<()> = RunQueue::new();
/// static A: G<()> = G::new(());
/// static B: G<()> = G::new(());
/// let mut owner = QUEUE.own().expect("no owner yet");
/// assert!(owner.push(&A).is_none());
/// assert!(owner.swap_next(&B).is_none());
/// assert!(core::ptr::eq(owner.take_next().unwrap(), &B));
/// assert!(core::ptr::eq(owner.pop().unwrap(), &A));
/// ```
pub struct Owner<K: 'static> {
    q: &'static RunQueue<K>,
}

impl<K: 'static> core::ops::Deref for Owner<K> {
    type Target = RunQueue<K>;

    fn deref(&self) -> &RunQueue<K> {
        self.q
    }
}

impl<K: Sync + 'static> Owner<K> {
    /// Appends `g`. If the ring was full, returns its older half and `g`: the
    /// caller must push them to the global queue.
    #[must_use = "what did not fit must go to the global queue"]
    pub fn push(&mut self, g: &'static G<K>) -> Option<List<K>> {
        // If a thief steals between the two, there is room now.
        while !self.try_push(g) {
            if let Some(mut batch) = self.take_half() {
                batch.push(g);
                return Some(batch);
            }
        }
        None
    }

    /// Appends `g` if there is room.
    #[must_use = "g may still be yours"]
    #[inline(always)]
    pub fn try_push(&mut self, g: &'static G<K>) -> bool {
        // lab 2 begin: push
        let q = self.q; // read once: the compiler cannot know that no atomic changes it
        let tail = q.tail.load(Relaxed); // written by the owner alone
        let head = q.head.load(Acquire); // pairs with the claim in `steal`
        if tail.wrapping_sub(head) >= CAPACITY {
            return false;
        }
        if planted!(PublishFirst) {
            q.tail.store(tail.wrapping_add(1), Release);
        }
        q.slot(tail).store(Some(g), Relaxed);
        q.tail.store(tail.wrapping_add(1), Release); // publishes the slot; pairs with `steal`
        true
        // lab 2 end
    }

    /// Appends Gs of a list in order while there is room, and publishes them at
    /// once.
    pub fn push_some(&mut self, list: &mut List<K>) {
        // lab 2 begin: push_some
        let tail = self.q.tail.load(Relaxed); // written by the owner alone
        let head = self.q.head.load(Acquire); // pairs with the claim in `steal`
        let room = CAPACITY.saturating_sub(tail.wrapping_sub(head));
        let mut end = tail;
        while end.wrapping_sub(tail) < room
            && let Some(g) = list.pop()
        {
            self.q.slot(end).store(Some(g), Relaxed);
            end = end.wrapping_add(1);
        }
        self.q.tail.store(end, Release); // publishes the slots; pairs with `steal`
        // lab 2 end
    }

    /// Puts `g` into the run-next slot; the caller holds the returned old G.
    #[must_use = "the old G would be lost"]
    #[inline(always)]
    pub fn swap_next(&mut self, g: &'static G<K>) -> Option<&'static G<K>> {
        // A swap, not load and store: a thief may be taking the old one.
        self.q.next.swap(Some(g))
    }

    /// Takes the run-next G.
    #[inline]
    pub fn take_next(&mut self) -> Option<&'static G<K>> {
        self.q.next.take()
    }

    /// Puts `g` into the displaced slot, from which it resumes before the ring. The
    /// slot must be empty: check [`RunQueue::has_displaced`] first. Only the owner
    /// fills it, so it stays empty.
    pub fn displace(&mut self, g: &'static G<K>) {
        let old = self.q.displaced.swap(Some(g));
        assert!(old.is_none(), "displaced twice");
    }

    /// Takes the displaced G.
    #[inline]
    pub fn take_displaced(&mut self) -> Option<&'static G<K>> {
        self.q.displaced.take()
    }

    /// Appends `g`, which runs and yields, and takes the oldest G, whose slice begins: push and pop
    /// in one. The ring is never shorter than before: a P that parks may check it at any time.
    /// No G is displaced.
    ///
    /// # Errors
    /// [`Unrotated::Kept`] if there is no other G in the ring, or no room, or a run-next G.
    #[inline(always)]
    pub fn rotate(&mut self, g: &'static G<K>) -> Result<&'static G<K>, Unrotated> {
        // lab 2 begin: rotate
        let q = self.q; // as in `try_push`
        if !q.next.is_null() {
            return Err(Unrotated::Kept);
        }
        let tail = q.tail.load(Relaxed); // written by the owner alone
        let mut head = q.head.load(Acquire); // pairs with the claim in `steal`
        // One comparison for "not empty" and "not full".
        if tail.wrapping_sub(head).wrapping_sub(1) >= CAPACITY - 1 {
            return Err(Unrotated::Kept);
        }
        g.stop(); // before a thief can take it
        let end = tail.wrapping_add(1);
        if planted!(PublishFirst) {
            q.tail.store(end, Release);
        }
        q.slot(tail).store(Some(g), Relaxed);
        q.tail.store(end, Release); // publishes the slot; pairs with `steal`
        loop {
            // As in `pop`.
            match q.head.compare_exchange_weak(head, head.wrapping_add(1), AcqRel, Relaxed) {
                Ok(_) => {
                    q.tick.store(q.tick.load(Relaxed).wrapping_add(1), Relaxed);
                    // SAFETY: between `head` and `tail` each slot has its G: `tail` moves after it.
                    return Ok(unsafe { q.slot(head).load_some(Relaxed) });
                }
                Err(now) => head = now,
            }
            core::hint::cold_path();
            if head == end {
                return Err(Unrotated::Queued);
            }
            spin_loop();
        }
        // lab 2 end
    }

    /// Takes the oldest G of the ring.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<&'static G<K>> {
        // lab 2 begin: pop
        let tail = self.q.tail.load(Relaxed); // written by the owner alone
        let mut head = self.q.head.load(Relaxed);
        while head != tail {
            // Release: no store of the owner precedes it that a thief could miss,
            // but `head` stays one release sequence, whichever CPU moves it.
            match self.q.head.compare_exchange_weak(head, head.wrapping_add(1), AcqRel, Relaxed) {
                // Claimed; only the owner could overwrite the slot.
                // SAFETY: as in `rotate`.
                Ok(_) => return Some(unsafe { self.q.slot(head).load_some(Relaxed) }),
                Err(now) => head = now,
            }
            spin_loop();
        }
        None
        // lab 2 end
    }

    /// Steals the older half (rounded up) of `victim`'s ring: returns the oldest G,
    /// to be run, and the number stolen; the other Gs are pushed here, in order.
    ///
    /// Go runs the newest of the stolen Gs; the oldest costs the same and keeps the
    /// order. At most [`STEAL_MAX`]: a thief has interrupts off. The thief's ring must have
    /// room for them: a thief's ring is empty.
    pub fn steal(&mut self, victim: &RunQueue<K>) -> Option<(&'static G<K>, u32)> {
        // lab 4 begin: steal
        loop {
            let head = victim.head.load(Acquire); // before `tail`: else tail < head
            let len = victim.tail.load(Acquire).wrapping_sub(head); // pairs with `push`
            if len == 0 {
                return None;
            }
            let n = (len - len / 2).min(STEAL_MAX as u32);
            if len > CAPACITY {
                // `head` moved between the two loads: more than a ring.
                spin_loop();
                continue;
            }
            let tail = self.q.tail.load(Relaxed); // written by the owner alone
            debug_assert!(
                tail.wrapping_sub(self.q.head.load(Acquire)) <= CAPACITY - STEAL_MAX as u32,
                "thief full"
            );
            let claim = || {
                // Release: the thief's reads are done; pairs with `head` in `push`.
                victim.head.compare_exchange(head, head.wrapping_add(n), AcqRel, Relaxed).is_ok()
            };
            let claimed_first = planted!(ClaimFirst) && claim();
            // Copy before the claim: after it the victim may reuse the slots.
            let oldest = victim.slot(head).load(Relaxed);
            self.q.copy(tail, victim, head.wrapping_add(1), n - 1);
            if claimed_first || claim() {
                debug_assert!(oldest.is_some(), "empty slot");
                self.q.tail.store(tail.wrapping_add(n - 1), Release); // publishes the slots
                return oldest.map(|g| (g, n));
            }
            spin_loop();
        }
        // lab 4 end
    }

    /// Claims the older half of a full ring. None if it is not full any more.
    #[cold]
    fn take_half(&mut self) -> Option<List<K>> {
        // lab 2 begin: take_half
        let half = RUNQ_HALF as u32;
        let head = self.q.tail.load(Relaxed).wrapping_sub(CAPACITY);
        self.q.head.compare_exchange(head, head.wrapping_add(half), AcqRel, Relaxed).ok()?;
        let mut batch = List::new();
        for i in 0..half {
            // Claimed; only the owner could overwrite the slots.
            batch.push(self.q.slot(head.wrapping_add(i)).load(Relaxed).expect("empty slot"));
        }
        Some(batch)
        // lab 2 end
    }
}
