//! Nodes, the lists that they are in, and the word for which they compete.
//!
//! The rules of ownership are at the head of the folder.

use crate::run::sys::{
    AtomicPtr as Word, AtomicU32, Cell, GHandle, IrqLock, UnsafeCell, Wait, begin_park, ready,
};
use core::cell::OnceCell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// One wait of one G in several lists: its handle, and how the wait ended.
///
/// The word is null while the ticket is open, the address of the node that won
/// it, or `CLOSED` when its owner gave up.
pub(super) struct Ticket {
    word: Word<()>,
    /// Set by the owner before the first node is enlisted, read by others ever
    /// after: the queue's lock is between the two.
    handle: OnceCell<GHandle>,
}

/// The word of a ticket that cannot be won any more.
const CLOSED: *mut () = ptr::without_provenance_mut(1);

impl Ticket {
    /// A ticket whose wait has not begun.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Ticket { word: Word::new(ptr::null_mut()), handle: OnceCell::new() }
    }

    /// Opens it and begins to park. No node is enlisted.
    #[inline(always)]
    pub(super) fn begin(&self, wait: Wait) {
        self.word.store(ptr::null_mut(), Relaxed); // no node is enlisted: no other reader
        // The second time it is the same life of the same G.
        let _ = self.handle.set(begin_park(wait));
    }

    /// An old handle woke this G: begins to park once more. False if the ticket
    /// was won meanwhile: the winner's `ready` may have found this G running and be
    /// lost.
    #[cold]
    pub(super) fn begin_again(&self, wait: Wait) -> bool {
        let _ = begin_park(wait);
        // A swap of null for null, not a load: if it comes before the winner's
        // compare-exchange, that one reads from it, so that our `begin_park`
        // is before their `ready`.
        self.word.compare_exchange(ptr::null_mut(), ptr::null_mut(), AcqRel, Acquire).is_ok()
    }

    /// True if it was still open; it cannot be won from here on.
    pub(super) fn close(&self) -> bool {
        // Acquire on failure: what the winner put into the slot.
        self.word.compare_exchange(ptr::null_mut(), CLOSED, Relaxed, Acquire).is_ok()
    }

    /// Owner only: whether it was won.
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

/// What a queue sees of a waiting G. `who` does not change while it is enlisted; all else is in
/// cells, so that a node may go while a reference to a cell exists.
pub(super) struct Node<T> {
    next: Cell<*mut Node<T>>,
    prev: Cell<*mut Node<T>>,
    /// `ENLISTED` from when it is in a list until it is out again; of a node that is alone, until
    /// its wait was ended, which its owner sees without the lock.
    state: AtomicU32,
    number: Cell<u64>,
    who: Who,
    slot: UnsafeCell<Option<T>>,
}

const OUT: u32 = 0;
const ENLISTED: u32 = 1;

/// The G of a node.
enum Who {
    /// It waits in this list only: the lock holder that takes the node out ends the wait, and there
    /// is no ticket.
    Alone(GHandle),
    /// It waits in several: their nodes compete for this ticket.
    Selecting(*const Ticket),
}

impl<T> Node<T> {
    /// A node of a G that waits in one list.
    #[inline(always)]
    pub(super) fn alone(g: GHandle, value: Option<T>) -> Self {
        Node::new(Who::Alone(g), value)
    }

    /// A node of a G that waits in several lists.
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
        // SAFETY: the caller's promise.
        self.slot.with_mut(|slot| unsafe { slot.replace(value) })
    }
}

/// A node that is in a list, or was just taken out of one, for the holder of the list's lock.
///
/// > The lock is held during `'lock`. So the node is alive and so is its ticket, which has begun;
/// > links and slot are the caller's. [`end`](Self::end), [`win`](Self::win) and
/// > [`pass_over`](Self::pass_over) use this up: the owner may return from there on, and its frame
/// > is gone.
pub(super) struct Enlisted<'lock, T> {
    node: NonNull<Node<T>>,
    _lock: PhantomData<&'lock Node<T>>,
}

impl<'lock, T> Enlisted<'lock, T> {
    /// # Safety
    /// The node is in a list, and its lock is held during `'lock`; there is no other value for this
    /// node that was taken out of the list.
    #[inline(always)]
    unsafe fn new(node: NonNull<Node<T>>) -> Self {
        Enlisted { node, _lock: PhantomData }
    }

    /// What of the node is in cells, or does not change.
    #[inline(always)]
    pub(super) fn node(&self) -> &Node<T> {
        // SAFETY: alive, as the type says.
        unsafe { self.node.as_ref() }
    }

    /// Its ticket, if it has one.
    #[inline(always)]
    fn ticket(&self) -> Option<&Ticket> {
        match self.node().who {
            Who::Alone(_) => None,
            // SAFETY: a ticket lives as long as its enlisted nodes.
            Who::Selecting(ticket) => Some(unsafe { &*ticket }),
        }
    }

    /// Its G, if that waits in this list only.
    #[inline(always)]
    pub(super) fn alone(&self) -> Option<Wake> {
        match &self.node().who {
            Who::Alone(g) => Some(Wake(g.clone())),
            Who::Selecting(_) => None,
        }
    }

    /// Whether its wait can still be ended: a hint, `end` decides.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.ticket().is_none_or(|ticket| ticket.word.load(Relaxed).is_null())
    }

    /// Whether it competes for that ticket.
    pub(super) fn has_ticket(&self, ticket: &Ticket) -> bool {
        self.ticket().is_some_and(|own| ptr::eq(own, ticket))
    }

    /// Takes what is in its slot.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<T> {
        // SAFETY: the slot is the lock holder's.
        unsafe { self.node().replace(None) }
    }

    /// Puts a value into its slot, which is empty.
    #[inline(always)]
    pub(super) fn fill(&self, value: T) {
        // SAFETY: the slot is the lock holder's. It is empty, so nothing is leaked; `replace` would
        // check that.
        self.node().slot.with_mut(|slot| unsafe { slot.write(Some(value)) });
    }

    /// A copy of what is in its slot.
    pub(super) fn peek(&self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: the slot is the lock holder's.
        self.node().slot.with_mut(|slot| unsafe { *slot })
    }

    /// The number under which it was enlisted.
    pub(super) fn number(&self) -> u64 {
        self.node().number.get()
    }

    /// The next in its list.
    pub(super) fn next(&self) -> Option<Self> {
        // SAFETY: linked to a node that is in a list, and its lock is held.
        NonNull::new(self.node().next.get()).map(|next| unsafe { Enlisted::new(next) })
    }

    /// The G to ready so that it checks for itself.
    pub(super) fn nudge(&self) -> Option<Wake> {
        match &self.node().who {
            Who::Alone(g) => Some(Wake(g.clone())),
            Who::Selecting(_) => self.ticket()?.handle.get().cloned().map(Wake),
        }
    }

    /// Ends the wait of a node that was taken out of its list. If it selects, for this node; fails
    /// if its ticket is won or closed.
    #[inline(always)]
    pub(super) fn end(self) -> Result<Wake, Self> {
        let alone = self.alone();
        self.set_out(); // the owner of one that selects reads this under the lock only
        alone.map_or_else(|| self.win(), Ok)
    }

    /// The rest of `end`: by the ticket.
    #[inline(never)]
    fn win(self) -> Result<Wake, Self> {
        let Some(ticket) = self.ticket() else { return Err(self) };
        let Some(handle) = ticket.handle.get().cloned() else { return Err(self) };
        // Release: what we did to the slot, for `is_won` and `close`. Acquire: see `begin_again`.
        let node = self.node.as_ptr().cast();
        match ticket.word.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed) {
            Ok(_) => Ok(Wake(handle)),
            Err(_) => Err(self),
        }
    }

    /// Says that it was taken out of its list, and no more.
    #[inline(always)]
    pub(super) fn pass_over(self) {
        self.set_out();
    }

    /// If the node is alone, its wait has ended: the G may return.
    #[inline(always)]
    fn set_out(&self) {
        // SAFETY: alive. Only this reference to an atomic exists while the node may go.
        let state = unsafe { &(*self.node.as_ptr()).state };
        state.store(OUT, Release); // what we did to the slot; pairs with `is_enlisted`
    }
}

/// Nodes, first come first served. All of it belongs to the holder of the lock
/// beside it; atomics only so that the head can be read without it.
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

    /// Whether it is empty; a hint for callers without the lock.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Relaxed).is_null()
    }

    /// Not 0 if a G is in it: a hint for callers without the lock.
    #[inline(always)]
    pub(super) fn head_address(&self) -> usize {
        self.head.load(Relaxed).addr()
    }

    /// The node that has waited longest.
    ///
    /// # Safety
    /// The caller holds the lock during `'lock`.
    #[inline(always)]
    pub(super) unsafe fn head<'lock>(&self) -> Option<Enlisted<'lock, T>> {
        // SAFETY: in the list; the rest is the caller's promise.
        NonNull::new(self.head.load(Relaxed)).map(|node| unsafe { Enlisted::new(node) })
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

    /// Takes out the node that has waited longest. Its state still says ENLISTED: the caller owes
    /// it an [`end`](Enlisted::end) or [`pass_over`](Enlisted::pass_over).
    ///
    /// # Safety
    /// The caller holds the lock during `'lock`.
    #[inline(always)]
    pub(super) unsafe fn pop<'lock>(&self) -> Option<Enlisted<'lock, T>> {
        // SAFETY: the caller's promise.
        let first = unsafe { self.head() }?;
        // SAFETY: the caller's promise, and it is the first.
        unsafe { self.unlink_first(&first) };
        Some(first)
    }

    /// The rest of [`pop`](Self::pop).
    ///
    /// # Safety
    /// The caller holds the lock, and `first` is the head of this list.
    #[inline(always)]
    pub(super) unsafe fn unlink_first(&self, first: &Enlisted<'_, T>) {
        let next = first.node().next.get();
        self.head.store(next, Relaxed);
        // SAFETY: null, or in the list and so alive.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(ptr::null_mut()),
            None => self.tail.store(ptr::null_mut(), Relaxed),
        }
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
