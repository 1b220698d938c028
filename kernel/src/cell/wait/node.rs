//! Nodes, the lists that they stand in, and the word for which they compete.
//!
//! Who may touch what is said at the head of the folder.

use crate::cell::sys::{
    AtomicPtr as Word, AtomicU32, Cell, GHandle, IrqLock, UnsafeCell, Wait, begin_park, park,
    park_until, ready,
};
use core::cell::OnceCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// One wait of one G in several lists: who it is, and what the wait came to.
///
/// The word is null while the ticket is open, the address of the node that won
/// it, or `CLOSED` when its owner gave up.
pub(super) struct Ticket {
    word: Word<()>,
    /// Set by the owner before the first node is enlisted, read by others ever
    /// after: the queue's lock is between the two.
    handle: OnceCell<GHandle>,
}

/// The word of a ticket that nobody can win any more.
const CLOSED: *mut () = ptr::without_provenance_mut(1);

impl Ticket {
    /// A ticket that nobody waits with yet.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Ticket { word: Word::new(ptr::null_mut()), handle: OnceCell::new() }
    }

    /// Opens it and begins to park. No node is enlisted.
    #[inline(always)]
    pub(super) fn begin(&self, wait: Wait) {
        self.word.store(ptr::null_mut(), Relaxed); // no node is enlisted: nobody looks
        // The second time it is the same life of the same G.
        let _ = self.handle.set(begin_park(wait));
    }

    /// Parks, until `deadline_ns` at most; false if that came first. A true says
    /// "look".
    #[inline(always)]
    pub(super) fn park(&self, deadline_ns: Option<u64>) -> bool {
        match deadline_ns {
            None => {
                park();
                true
            }
            Some(deadline_ns) => park_until(deadline_ns),
        }
    }

    /// Somebody with an old handle woke us: begin to park once more. False if it
    /// was won meanwhile: the winner's `ready` may have found us running and be
    /// lost.
    #[cold]
    pub(super) fn begin_again(&self, wait: Wait) -> bool {
        let _ = begin_park(wait);
        // A swap of null for null, not a load: if it comes before the winner's
        // compare-exchange, that one reads from it, so that our `begin_park`
        // is before their `ready`.
        self.word.compare_exchange(ptr::null_mut(), ptr::null_mut(), AcqRel, Acquire).is_ok()
    }

    /// True if it was still open; nobody can win it from here on.
    pub(super) fn close(&self) -> bool {
        // Acquire on failure: what the winner put into the slot.
        self.word.compare_exchange(ptr::null_mut(), CLOSED, Relaxed, Acquire).is_ok()
    }

    /// Owner only: whether anybody won it.
    #[inline]
    pub(super) fn is_won(&self) -> bool {
        let word = self.word.load(Acquire); // pairs with `win`
        !word.is_null() && word != CLOSED
    }

    /// Owner only: whether it was won for this node.
    #[inline]
    pub(super) fn is_won_for<T>(&self, node: &Node<T>) -> bool {
        self.word.load(Acquire).cast_const() == ptr::from_ref(node).cast() // pairs with `win`
    }
}

/// A G that must be readied, once the lock is free.
#[must_use = "somebody waits for this"]
pub struct Wake(pub(super) GHandle);

impl Wake {
    /// Readies it.
    #[inline]
    pub fn ready(self) {
        ready(self.0);
    }
}

/// What a queue sees of one who waits. `who` does not change while it is
/// enlisted; all else is in cells, so that a node may go while somebody still has
/// a reference to one.
pub(super) struct Node<T> {
    next: Cell<*mut Node<T>>,
    prev: Cell<*mut Node<T>>,
    /// `ENLISTED` from when it is in a list until it is out again; that of one who
    /// is alone, until its wait was ended, which its owner sees without the lock.
    state: AtomicU32,
    number: Cell<u64>,
    who: Who,
    slot: UnsafeCell<Option<T>>,
}

const OUT: u32 = 0;
const ENLISTED: u32 = 1;

/// Whose node it is.
enum Who {
    /// That G's, which waits in this list only: whoever takes the node out under
    /// the lock has it, and there is no ticket.
    Alone(GHandle),
    /// One of several that compete for this ticket.
    Selecting(*const Ticket),
}

impl<T> Node<T> {
    /// A node of a G that waits in one list.
    #[inline(always)]
    pub(super) fn alone(g: GHandle, value: Option<T>) -> Self {
        Node::new(Who::Alone(g), value)
    }

    /// A node of one that waits in several.
    #[inline(always)]
    pub(super) fn selecting(ticket: &Ticket, value: Option<T>) -> Self {
        Node::new(Who::Selecting(ptr::from_ref(ticket)), value)
    }

    #[inline(always)]
    fn new(who: Who, value: Option<T>) -> Self {
        Node {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            state: AtomicU32::new(OUT),
            number: Cell::new(0),
            who,
            slot: UnsafeCell::new(value),
        }
    }

    /// Whether it is in a list. For the holder of the lock; or for the owner, if
    /// it is alone: if not, its wait was ended.
    #[inline(always)]
    pub(super) fn is_enlisted(&self) -> bool {
        self.state.load(Acquire) == ENLISTED // pairs with `end`
    }

    /// Exchanges what is in the slot.
    ///
    /// # Safety
    /// The slot is the caller's.
    #[inline(always)]
    pub(super) unsafe fn replace(&self, value: Option<T>) -> Option<T> {
        // SAFETY: nobody else touches it, says the caller.
        self.slot.with_mut(|slot| unsafe { slot.replace(value) })
    }
}

/// A node in a list whose lock the caller holds.
///
/// > It is alive, and so is its ticket, which has begun; until [`end`](Self::end)
/// > or [`win`](Self::win) is told to be the last, or the lock is free.
pub(super) struct Enlisted<T>(NonNull<Node<T>>);

impl<T> Clone for Enlisted<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Enlisted<T> {}

impl<T> Enlisted<T> {
    /// Its G, if that waits here only; else its ticket.
    ///
    /// # Safety
    /// The node is alive.
    #[inline(always)]
    unsafe fn who<'a>(self) -> Result<&'a GHandle, &'a Ticket> {
        // SAFETY: alive, says the caller.
        match unsafe { &(*self.0.as_ptr()).who } {
            Who::Alone(g) => Ok(g),
            // SAFETY: a ticket lives as long as its enlisted nodes.
            Who::Selecting(ticket) => Err(unsafe { &**ticket }),
        }
    }

    /// Its G, if that waits here only.
    ///
    /// # Safety
    /// The node is alive.
    #[inline(always)]
    pub(super) unsafe fn alone(self) -> Option<Wake> {
        // SAFETY: alive, says the caller.
        unsafe { self.who() }.ok().cloned().map(Wake)
    }

    /// Whether it can still be had: a hint, `win` decides.
    ///
    /// # Safety
    /// The node is alive.
    #[inline(always)]
    pub(super) unsafe fn is_open(self) -> bool {
        // SAFETY: alive, says the caller.
        unsafe { self.who() }.map_or_else(|ticket| ticket.word.load(Relaxed).is_null(), |_| true)
    }

    /// Whether it competes for that ticket.
    ///
    /// # Safety
    /// The node is alive.
    #[inline]
    pub(super) unsafe fn has_ticket(self, ticket: &Ticket) -> bool {
        // SAFETY: alive, says the caller.
        unsafe { self.who() }.is_err_and(|own| ptr::eq(own, ticket))
    }

    /// Exchanges what is in its slot.
    ///
    /// # Safety
    /// The node is alive, and the caller holds the lock of its queue.
    #[inline(always)]
    pub(super) unsafe fn set(self, value: Option<T>) -> Option<T> {
        // SAFETY: alive.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: the slot is the lock holder's.
        unsafe { node.replace(value) }
    }

    /// Puts a value into its slot, which is empty.
    ///
    /// # Safety
    /// The node is alive, and the caller holds the lock of its queue.
    #[inline(always)]
    pub(super) unsafe fn fill(self, value: T) {
        // SAFETY: alive.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: the slot is the lock holder's. Nothing is dropped by this: it is
        // empty, says the caller.
        node.slot.with_mut(|slot| unsafe { slot.write(Some(value)) });
    }

    /// What is in its slot.
    ///
    /// # Safety
    /// The node is alive, and the caller holds the lock of its queue.
    pub(super) unsafe fn peek(self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: alive.
        let node = unsafe { self.0.as_ref() };
        // SAFETY: the slot is the lock holder's.
        node.slot.with_mut(|slot| unsafe { *slot })
    }

    /// The number under which it was enlisted.
    ///
    /// # Safety
    /// The node is alive, and the caller holds the lock of its queue.
    pub(super) unsafe fn number(self) -> u64 {
        // SAFETY: alive.
        unsafe { self.0.as_ref() }.number.get()
    }

    /// The next in its list.
    ///
    /// # Safety
    /// The node is alive, and the caller holds the lock of its queue.
    #[inline]
    pub(super) unsafe fn next(self) -> Option<Enlisted<T>> {
        // SAFETY: alive.
        NonNull::new(unsafe { self.0.as_ref() }.next.get()).map(Enlisted)
    }

    /// Whom to ready so that it looks.
    ///
    /// # Safety
    /// The node is alive.
    pub(super) unsafe fn nudge(self) -> Option<Wake> {
        // SAFETY: alive, says the caller.
        match unsafe { self.who() } {
            Ok(g) => Some(Wake(g.clone())),
            Err(ticket) => ticket.handle.get().cloned().map(Wake),
        }
    }

    /// Says that it is in no list any more. The wait of one who is alone has ended
    /// by that; one who selects looks at this under the lock only.
    ///
    /// # Safety
    /// The node is alive and in no list, and the caller holds the lock of the
    /// queue where it was. If it is alone, it may be gone when this returns.
    #[inline(always)]
    pub(super) unsafe fn end(self) {
        // SAFETY: alive. An atomic may go while there is still a reference.
        let state = unsafe { &(*self.0.as_ptr()).state };
        // What we did to the slot; pairs with `is_enlisted`.
        state.store(OUT, Release);
    }

    /// Wins the ticket of one who selects for this node, unless somebody else
    /// did: then `None`.
    ///
    /// # Safety
    /// The node is alive and in no list, which it has been [told](Self::end), and
    /// the caller holds the lock of the queue where it was. On success node and ticket may be gone when this
    /// returns.
    #[inline(always)]
    pub(super) unsafe fn win(self) -> Option<Wake> {
        // SAFETY: alive. What is changed below is in an `UnsafeCell`, so it may
        // go while we still have this reference.
        let ticket = unsafe { self.who() }.err()?;
        let handle = ticket.handle.get()?.clone();
        // Release: what we did to the slot, for `is_won` and `close`. Acquire:
        // see `begin_again`.
        ticket
            .word
            .compare_exchange(ptr::null_mut(), self.0.as_ptr().cast(), AcqRel, Relaxed)
            .is_ok()
            .then_some(Wake(handle))
    }
}

/// Nodes, first come first served. All of it belongs to the holder of the lock
/// beside it; atomics only so that anybody may glance at the head.
pub(super) struct List<T> {
    head: AtomicPtr<Node<T>>,
    tail: AtomicPtr<Node<T>>,
    /// Values go from CPU to CPU through the nodes: as a lock's content would.
    _values: PhantomData<IrqLock<T>>,
}

impl<T> List<T> {
    pub(super) const fn new() -> Self {
        List {
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicPtr::new(ptr::null_mut()),
            _values: PhantomData,
        }
    }

    /// Whether nobody is in it; without the lock, at a glance.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }

    /// Not 0 if somebody is in it; without the lock, at a glance.
    #[inline(always)]
    pub(super) fn glance(&self) -> usize {
        self.head.load(Relaxed).addr()
    }

    /// The one that has waited longest. Alive while the lock is held.
    #[inline(always)]
    pub(super) fn head(&self) -> Option<Enlisted<T>> {
        NonNull::new(self.head.load(Relaxed)).map(Enlisted)
    }

    /// Puts a node last.
    ///
    /// # Safety
    /// The caller holds the lock. The node is in no list, its ticket has begun,
    /// and both stay alive and where they are until it is taken out of this one.
    #[inline(always)]
    pub(super) unsafe fn push(&self, node: &Node<T>, number: u64) {
        let this = ptr::from_ref(node).cast_mut();
        let last = self.tail.load(Relaxed);
        node.prev.set(last);
        node.next.set(ptr::null_mut());
        node.state.store(ENLISTED, Relaxed); // the lock orders it
        node.number.set(number);
        // SAFETY: null, or in the list and so alive.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(this),
            None => self.head.store(this, Relaxed),
        }
        self.tail.store(this, Relaxed);
    }

    /// Takes out the one that has waited longest. It does not know yet: the caller
    /// owes it an [`end`](Enlisted::end).
    ///
    /// # Safety
    /// The caller holds the lock.
    #[inline(always)]
    pub(super) unsafe fn pop(&self) -> Option<Enlisted<T>> {
        let first = self.head()?;
        // SAFETY: the caller holds the lock, and it is the first.
        unsafe { self.pop_first(first) };
        Some(first)
    }

    /// As [`pop`](Self::pop), for who has looked at the first already.
    ///
    /// # Safety
    /// The caller holds the lock, and `first` is the head of this list.
    #[inline(always)]
    pub(super) unsafe fn pop_first(&self, first: Enlisted<T>) {
        // SAFETY: in the list and so alive.
        let node = unsafe { first.0.as_ref() };
        let next = node.next.get();
        self.head.store(next, Relaxed);
        // SAFETY: null, or in the list and so alive.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(ptr::null_mut()),
            None => self.tail.store(ptr::null_mut(), Relaxed),
        }
    }

    /// As [`remove`](Self::remove), for a G other than the node's own.
    ///
    /// # Safety
    /// As for `remove`.
    pub(super) unsafe fn take_out(&self, node: Enlisted<T>) {
        // SAFETY: in the list and so alive.
        let node = unsafe { node.0.as_ref() };
        // SAFETY: the caller's promise.
        unsafe { self.remove(node) };
    }

    /// Takes out a node, wherever it is.
    ///
    /// # Safety
    /// The caller holds the lock, and the node is in this list.
    pub(super) unsafe fn remove(&self, node: &Node<T>) {
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: null, or in the list and so alive.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head.store(next, Relaxed),
        }
        // SAFETY: null, or in the list and so alive.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail.store(prev, Relaxed),
        }
        node.state.store(OUT, Relaxed); // the owner's, or under the lock
    }
}
