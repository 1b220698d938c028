//! Nodes, the lists that they stand in, and the word for which they compete.
//!
//! Who may touch what is said at the head of the folder.

use crate::cell::sys::{
    AtomicPtr as Word, Cell, GHandle, IrqLock, UnsafeCell, Wait, begin_park, park, park_until,
    ready,
};
use core::cell::OnceCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// One wait of one G: who it is, and what the wait came to.
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

    /// Owner only: whether it has ever begun, so that others may read the handle.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.handle.get().is_some()
    }
}

/// A G that must be readied, once the lock is free.
#[must_use = "somebody waits for this"]
pub struct Wake(GHandle);

impl Wake {
    /// Readies it.
    #[inline]
    pub fn ready(self) {
        ready(self.0);
    }
}

/// What a queue sees of one who waits. `ticket` and `number` do not change while
/// it is enlisted; all else is in cells, so that a node may go while somebody
/// still has a reference to one.
pub(super) struct Node<T> {
    next: Cell<*mut Node<T>>,
    prev: Cell<*mut Node<T>>,
    linked: Cell<bool>,
    number: Cell<u64>,
    ticket: *const Ticket,
    slot: UnsafeCell<Option<T>>,
}

impl<T> Node<T> {
    /// A node that is in no list.
    #[inline(always)]
    pub(super) fn new(ticket: &Ticket, value: Option<T>) -> Self {
        Node {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            linked: Cell::new(false),
            number: Cell::new(0),
            ticket: ptr::from_ref(ticket),
            slot: UnsafeCell::new(value),
        }
    }

    /// Whether it is in a list. For the holder of the lock.
    #[inline]
    pub(super) fn is_linked(&self) -> bool {
        self.linked.get()
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
/// > It is alive, and so is its ticket, which has begun; until [`win`](Self::win)
/// > is told to be the last, or the lock is free.
pub(super) struct Enlisted<T>(NonNull<Node<T>>);

impl<T> Clone for Enlisted<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Enlisted<T> {}

impl<T> Enlisted<T> {
    /// # Safety
    /// The node is alive.
    #[inline(always)]
    unsafe fn ticket<'a>(self) -> &'a Ticket {
        // SAFETY: alive, says the caller.
        let ticket = unsafe { (*self.0.as_ptr()).ticket };
        // SAFETY: a ticket lives as long as its enlisted nodes.
        unsafe { &*ticket }
    }

    /// Whether nobody seems to have won its ticket yet: a hint, `win` decides.
    ///
    /// # Safety
    /// The node is alive.
    #[inline(always)]
    pub(super) unsafe fn is_open(self) -> bool {
        // SAFETY: alive, says the caller.
        unsafe { self.ticket() }.word.load(Relaxed).is_null()
    }

    /// Whether it competes for that ticket.
    ///
    /// # Safety
    /// The node is alive.
    #[inline]
    pub(super) unsafe fn has_ticket(self, ticket: &Ticket) -> bool {
        // SAFETY: alive, says the caller.
        ptr::eq(unsafe { self.ticket() }, ticket)
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

    /// How many came before it.
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
        unsafe { self.ticket() }.handle.get().cloned().map(Wake)
    }

    /// Wins the node's ticket for it, unless somebody else did: then `None`.
    ///
    /// # Safety
    /// The node is alive and in no list, and the caller holds the lock of the
    /// queue where it was. On success node and ticket may be gone when this
    /// returns.
    #[inline(always)]
    pub(super) unsafe fn win(self) -> Option<Wake> {
        // SAFETY: alive. What is changed below is in an `UnsafeCell`, so it may
        // go while we still have this reference.
        let ticket = unsafe { self.ticket() };
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

    /// The one that has waited longest. Alive while the lock is held.
    #[inline(always)]
    pub(super) fn head(&self) -> Option<Enlisted<T>> {
        NonNull::new(self.head.load(Relaxed)).map(Enlisted)
    }

    /// Puts a node last; `number` came before it.
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
        node.linked.set(true);
        node.number.set(number);
        // SAFETY: null, or in the list and so alive.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(this),
            None => self.head.store(this, Relaxed),
        }
        self.tail.store(this, Relaxed);
    }

    /// Takes out the one that has waited longest.
    ///
    /// # Safety
    /// The caller holds the lock.
    #[inline(always)]
    pub(super) unsafe fn pop(&self) -> Option<Enlisted<T>> {
        let first = self.head()?;
        // SAFETY: in the list and so alive.
        let node = unsafe { first.0.as_ref() };
        let next = node.next.get();
        self.head.store(next, Relaxed);
        // SAFETY: null, or in the list and so alive.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(ptr::null_mut()),
            None => self.tail.store(ptr::null_mut(), Relaxed),
        }
        node.linked.set(false);
        Some(first)
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
        node.linked.set(false);
    }
}
