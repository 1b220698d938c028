//! Wait queues whose nodes live on the waiters' own stacks.
//!
//! A queue is a lock with FIFO lists of waiters behind it, and with whatever
//! state of its owner (`S`) must change together with the lists. To wait
//! allocates nothing: the node is a local of [`WaitQueue::wait`]. Everything
//! in `sync` that waits, waits here; what a wake-up means is said there.
//!
//! # Why a node on a stack is sound
//!
//! > A node is reached by others only through its list, only under the queue's
//! > lock, and never after its state became `GRANTED` or it left the list.
//!
//! 1. `wait` does not return, and its frame does not go away, before the node is
//!    off the list: either somebody granted (takes it off, then marks it), or
//!    the waiter took it off itself, under the lock. If `wait` unwinds, the
//!    destructor of [`Linked`] does that.
//! 2. The mark is the last access of the one who grants. What else it needs of
//!    the node, the links and the handle, it has taken before.
//! 3. The node is shared (`&Node`) from the moment it is linked; all that
//!    changes in it is in cells, guarded by the lock, and one atomic.
//!
//! # The state of a node
//!
//! ```text
//!                  (1) wait          (2) nudge_front
//!        nothing ───────────▶ WAITING ─────────────▶ NUDGED
//!                              │  │ ▲   (3) looked,     │ │
//!                              │  │ └──── in vain ──────┘ │
//!          (4) grant_front     │  │                       │
//!        GRANTED ◀─────────────┴──┼───────────────────────┤
//!                                 │  (5) took it, or      │
//!                                 └──── timed out ───────▶ LEFT
//! ```
//!
//! (2) and (4) are the other side's, (3) and (5) the waiter's; all of them happen
//! under the lock, so a waiter is granted or leaves, never both. In WAITING and
//! NUDGED the node is on its list, in the others it is not.

use super::sys::{
    AtomicU32, GHandle, IrqGuard, IrqLock, begin_park, const_fn, park, park_until, ready,
};
use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const WAITING: u32 = 0;
const NUDGED: u32 = 1;
const GRANTED: u32 = 2;
const LEFT: u32 = 3;

/// How many are granted under one hold of the lock, which is held with
/// interrupts off: a few hundred instructions.
const BATCH: usize = 8;

/// `LISTS` lists of waiters, and the state that changes together with them.
pub(crate) struct WaitQueue<S, const LISTS: usize = 1> {
    inner: IrqLock<Inner<S, LISTS>>,
}

struct Inner<S, const LISTS: usize> {
    state: S,
    lists: [List; LISTS],
    /// How many have waited here: the ticket of the next.
    tickets: u64,
}

/// First and last of a list; both or none.
#[derive(Clone, Copy)]
struct List {
    ends: Option<(NonNull<Node>, NonNull<Node>)>,
}

// SAFETY: the nodes behind the pointers may be touched by any CPU that holds
// the queue's lock (the block quote at the head), and a `List` is nowhere else.
unsafe impl Send for List {}

/// Where and how one waits.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// In which list.
    pub(crate) list: usize,
    /// What the other side shall know: how many, since when.
    pub(crate) tag: u64,
    /// Until when at most.
    pub(crate) deadline_ns: Option<u64>,
}

/// What the other side may know of the first in a list.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    /// The tag of its place.
    pub(crate) tag: u64,
    /// How many came before it, ever.
    pub(crate) ticket: u64,
}

/// One who waits.
struct Node {
    // Constant while it is linked.
    handle: GHandle,
    place: Place,
    ticket: u64,
    // Written under the lock; the waiter reads it without.
    state: AtomicU32,
    // Under the lock.
    prev: Cell<Option<NonNull<Node>>>,
    next: Cell<Option<NonNull<Node>>>,
}

/// How waiting ended.
#[must_use]
pub(crate) enum Waited<'a, S, const LISTS: usize> {
    /// The other side gave what was waited for.
    Granted,
    /// The waiter took it when it looked. It has left the list; the lock is held.
    Took(Locked<'a, S, LISTS>),
    /// The deadline came first. It has left the list; the lock is held.
    TimedOut(Locked<'a, S, LISTS>),
}

impl<S> WaitQueue<S> {
    const_fn! {
        /// One empty list.
        pub(crate) fn new(state: S) -> Self {
            Self::with_lists(state)
        }
    }
}

impl<S, const LISTS: usize> WaitQueue<S, LISTS> {
    const_fn! {
        /// Empty lists.
        pub(crate) fn with_lists(state: S) -> Self {
            let lists = [List { ends: None }; LISTS];
            WaitQueue { inner: IrqLock::new(Inner { state, lists, tickets: 0 }) }
        }
    }

    /// Takes the lock.
    pub(crate) fn lock(&self) -> Locked<'_, S, LISTS> {
        Locked { inner: self.inner.lock() }
    }

    /// Waits at the end of a list until somebody grants or the deadline comes.
    ///
    /// `locked` is the lock under which the caller saw that it must wait;
    /// `between` runs when the wait has begun and the lock is free. `look` is
    /// called under the lock after a nudge, and once more at the deadline: true
    /// if it took what is waited for.
    pub(crate) fn wait<'a>(
        &'a self,
        mut locked: Locked<'a, S, LISTS>,
        place: Place,
        between: impl FnOnce(),
        mut look: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, LISTS> {
        let node = Node::new(begin_park(), place, locked.next_ticket());
        locked.push(&node);
        let linked = Linked { queue: self, node: &node };
        drop(locked);
        between();
        loop {
            let in_time = match place.deadline_ns {
                None => {
                    park();
                    true
                }
                Some(deadline_ns) => park_until(deadline_ns),
            };
            // Acquire pairs with `grant_front`: what was done before the grant
            // is done before we go on.
            if node.state.load(Acquire) == GRANTED {
                return Waited::Granted;
            }
            let mut locked = self.lock();
            let state = node.state.load(Acquire);
            if state == GRANTED {
                return Waited::Granted;
            }
            if (state == NUDGED || !in_time) && look(&mut locked) {
                locked.leave(linked.node);
                return Waited::Took(locked);
            }
            if !in_time {
                locked.leave(linked.node);
                return Waited::TimedOut(locked);
            }
            // (3) Woken in vain. Who nudges or grants from here on finds us
            // parking, because this is still under the lock.
            node.state.store(WAITING, Relaxed);
            begin_park();
        }
    }

    /// Grants to all who wait in `list` now; who comes meanwhile is not meant.
    /// Returns how many that were.
    pub(crate) fn grant_all(&self, list: usize) -> usize {
        let locked = self.lock();
        if locked.is_empty(list) {
            return 0;
        }
        let limit = locked.next_ticket();
        drop(locked);
        self.grant_while(|locked| {
            locked.front(list).filter(|front| front.ticket < limit).map(|_| list)
        })
    }

    /// Grants to the first of the list that `choose` names, again and again,
    /// until it names none. Returns how often. `choose` runs under the lock, and
    /// is not under the same hold of it each time.
    pub(crate) fn grant_while(
        &self,
        mut choose: impl FnMut(&mut Locked<'_, S, LISTS>) -> Option<usize>,
    ) -> usize {
        let mut granted = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut locked = self.lock();
            for slot in &mut batch {
                *slot = choose(&mut locked).and_then(|list| locked.grant_front(list));
                if slot.is_none() {
                    break;
                }
            }
            drop(locked);
            let before = granted;
            for g in batch.into_iter().flatten() {
                granted += 1;
                ready(g);
            }
            if granted < before + BATCH {
                return granted;
            }
        }
    }
}

/// The lock of a queue, held: with interrupts off, so for few instructions.
pub(crate) struct Locked<'a, S, const LISTS: usize = 1> {
    inner: IrqGuard<'a, Inner<S, LISTS>>,
}

impl<S, const LISTS: usize> Deref for Locked<'_, S, LISTS> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.inner.state
    }
}

impl<S, const LISTS: usize> DerefMut for Locked<'_, S, LISTS> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.inner.state
    }
}

impl<S, const LISTS: usize> Locked<'_, S, LISTS> {
    /// Whether nobody waits in `list`.
    pub(crate) fn is_empty(&self, list: usize) -> bool {
        self.inner.lists[list].ends.is_none()
    }

    /// Who waits first in `list`.
    pub(crate) fn front(&self, list: usize) -> Option<Front> {
        let (first, _) = self.inner.lists[list].ends?;
        // SAFETY: it is on a list and we hold the lock, so it is there.
        let first = unsafe { first.as_ref() };
        Some(Front { tag: first.place.tag, ticket: first.ticket })
    }

    /// The ticket of the next who waits, in whatever list.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.inner.tickets
    }

    /// (4) Ends the wait of the first in `list`: it has what it waited for. The
    /// caller readies the G, when the lock is free again.
    #[must_use = "a G that is granted and not readied sleeps for ever"]
    pub(crate) fn grant_front(&mut self, list: usize) -> Option<GHandle> {
        let (first, _) = self.inner.lists[list].ends?;
        // SAFETY: it is on a list and we hold the lock, so it is there.
        let node = unsafe { first.as_ref() };
        let handle = node.handle.clone();
        self.unlink(node);
        // The last access: from here on the node may be gone. Release: what we
        // did is done before the waiter goes on; pairs with the loads in `wait`.
        node.state.store(GRANTED, Release);
        Some(handle)
    }

    /// (2) Lets the first in `list` look, if it was not told to already. The
    /// caller readies the G, when the lock is free again.
    #[must_use = "a G that is nudged and not readied sleeps for ever"]
    pub(crate) fn nudge_front(&mut self, list: usize) -> Option<GHandle> {
        let (first, _) = self.inner.lists[list].ends?;
        // SAFETY: it is on a list and we hold the lock, so it is there.
        let node = unsafe { first.as_ref() };
        if node.state.load(Relaxed) == NUDGED {
            return None;
        }
        node.state.store(NUDGED, Relaxed); // read under the lock
        Some(node.handle.clone())
    }

    /// (1) Puts a node at the end of its list. It must stay where it is until
    /// it is off: `wait` sees to that.
    fn push(&mut self, node: &Node) {
        self.inner.tickets += 1;
        let list = &mut self.inner.lists[node.place.list];
        let this = NonNull::from(node);
        let first = match list.ends {
            None => this,
            Some((first, last)) => {
                node.prev.set(Some(last));
                // SAFETY: it is on a list and we hold the lock, so it is there.
                unsafe { last.as_ref() }.next.set(Some(this));
                first
            }
        };
        list.ends = Some((first, this));
    }

    /// (5) The waiter leaves by itself.
    fn leave(&mut self, node: &Node) {
        self.unlink(node);
        node.state.store(LEFT, Relaxed); // read by the waiter only, that is us
    }

    /// Takes a node off its list, which it is on.
    fn unlink(&mut self, node: &Node) {
        let list = &mut self.inner.lists[node.place.list];
        let (prev, next) = (node.prev.get(), node.next.get());
        if let Some(prev) = prev {
            // SAFETY: it is on a list and we hold the lock, so it is there.
            unsafe { prev.as_ref() }.next.set(next);
        }
        if let Some(next) = next {
            // SAFETY: as above.
            unsafe { next.as_ref() }.prev.set(prev);
        }
        list.ends = list.ends.and_then(|(first, last)| {
            let first = if prev.is_none() { next } else { Some(first) };
            let last = if next.is_none() { prev } else { Some(last) };
            first.zip(last)
        });
    }
}

impl Node {
    fn new(handle: GHandle, place: Place, ticket: u64) -> Self {
        let (prev, next) = (Cell::new(None), Cell::new(None));
        Node { handle, place, ticket, state: AtomicU32::new(WAITING), prev, next }
    }
}

/// A node that may be on a list; made sure not to be when this is dropped.
struct Linked<'a, S, const LISTS: usize> {
    queue: &'a WaitQueue<S, LISTS>,
    node: &'a Node,
}

impl<S, const LISTS: usize> Drop for Linked<'_, S, LISTS> {
    fn drop(&mut self) {
        // Only if `wait` unwinds is the node still on its list here. (When it
        // returns with the lock held, the node has left: no second lock.)
        let is_linked = || matches!(self.node.state.load(Acquire), WAITING | NUDGED);
        if is_linked() {
            let mut locked = self.queue.lock();
            if is_linked() {
                locked.leave(self.node);
            }
        }
    }
}
