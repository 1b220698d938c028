//! One G that waits in several queues.
//!
//! [`Selection`] is the wait, for which its nodes compete; [`Waiter`] is a place in one list. Both
//! live in the frame of the G that selects (`select!`). The loom model is `tests/loom_chan.rs`.

use super::locked::{Node, ToReady, Who};
use super::{Locked, WaitQueue, park_by};
use crate::run::sys::{
    AtomicPtr, GHandle, Reason, Wait, begin_park, cancel_park, die, irq, is_killed,
};
use core::cell::{Cell, OnceCell};
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// For no one thing, so without an object.
const WAIT: Wait = Wait::new(Reason::Select, 0);

/// The word of a selection that cannot be won any more.
const CLOSED: *mut () = ptr::without_provenance_mut(1);

/// One wait of one G, for any number of things: the first of them wins it.
///
/// Nodes in lists point here: `word` and `handle` are for all CPUs, the rest is its owner's.
pub struct Selection {
    /// Null while it is open, the address of the node that won it, or [`CLOSED`].
    pub(super) word: AtomicPtr<()>,
    /// Set by the owner before a node is enlisted, read by others after, ordered by the lock.
    handle: OnceCell<GHandle>,
    /// The number of nodes that are in lists.
    enlisted: Cell<usize>,
    phase: Cell<Phase>,
    _pinned: PhantomPinned,
    /// Not `Send`: once it has begun, it is that G's.
    _mine: PhantomData<*const ()>,
}

/// Where a wait is, between [`Selection::begin`] and [`Selection::wait`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before, or after: no node may be enlisted.
    Over,
    /// Nodes may be enlisted.
    Open,
    /// The same, and any wake-up ends the wait: [`Selection::wait_once`].
    Limited,
}

impl Selection {
    /// A wait that has not begun.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "a default selection means nothing")]
    pub fn new() -> Self {
        Selection {
            word: AtomicPtr::new(ptr::null_mut()),
            handle: OnceCell::new(),
            enlisted: Cell::new(0),
            phase: Cell::new(Phase::Over),
            _pinned: PhantomPinned,
            _mine: PhantomData,
        }
    }

    /// Opens it and begins to park: the caller must [`wait`](Self::wait) or
    /// [`call_off`](Self::call_off). Interrupts are on, and are so whenever a waiter of this
    /// selection is touched: else one could not park. Its waiters count on it.
    #[inline]
    pub(crate) fn begin(&self) {
        debug_assert!(irq::enabled(), "irqs off");
        assert!(self.enlisted.get() == 0, "selection in use");
        self.phase.set(Phase::Open);
        self.word.store(ptr::null_mut(), Relaxed); // no node is enlisted: no other reader
        let _ = self.handle.set(begin_park(WAIT)); // the second time it is the same life of a G
    }

    /// Waits until it is won, or until `deadline_ns`; false if that came first, and it is closed.
    #[inline]
    pub(crate) fn wait(&self, deadline_ns: Option<u64>) -> bool {
        self.phase.set(Phase::Over);
        loop {
            let in_time = park_by(deadline_ns);
            if !self.word.load(Acquire).is_null() {
                return true; // pairs with `win`
            }
            let killed = is_killed();
            if !in_time || killed {
                if !self.close() {
                    return true; // it has what it waited for
                }
                if killed {
                    die();
                }
                return false;
            }
            // An old handle woke this G. If it is won meanwhile, the winner's `ready` may find it
            // running and be lost. So this is a swap of null for null, not a load: if it comes
            // before the winner's compare-exchange, that one reads from it, so that our
            // `begin_park` is before their `ready`.
            let _ = begin_park(WAIT);
            let null = ptr::null_mut();
            if self.word.compare_exchange(null, null, AcqRel, Acquire).is_err() {
                cancel_park();
                return true;
            }
        }
    }

    /// As [`begin`](Self::begin), for a wait that also ends for other reasons than a node:
    /// [`wait_once`](Self::wait_once) follows.
    pub(crate) fn begin_limited(&self) {
        self.begin();
        self.phase.set(Phase::Limited);
    }

    /// Whether it was begun by [`begin_limited`](Self::begin_limited).
    pub(crate) fn is_limited(&self) -> bool {
        self.phase.get() == Phase::Limited
    }

    /// Waits until it is won, or the G is readied by any other means, or until `deadline_ns`: in
    /// each case it cannot be won from here on.
    pub(crate) fn wait_once(&self, deadline_ns: Option<u64>) {
        self.phase.set(Phase::Over);
        park_by(deadline_ns);
        if self.close() && is_killed() {
            die();
        }
    }

    /// Ends the wait before it began: undoes [`begin`](Self::begin). False if it was won meanwhile.
    pub(crate) fn call_off(&self) -> bool {
        self.phase.set(Phase::Over);
        let closed = self.close();
        cancel_park();
        closed
    }

    /// Wins it for that node, whose slot is set. The caller holds the lock of the node's list.
    #[inline(never)]
    pub(super) fn win(&self, node: *mut ()) -> Option<ToReady> {
        let g = self.handle.get().cloned()?;
        // Release: what we did to the slot, for the owner's loads. Acquire: see `wait`.
        let won = self.word.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed);
        won.ok().map(|_| ToReady(g))
    }

    /// True if it was still open; it cannot be won from here on.
    fn close(&self) -> bool {
        // Acquire on failure: what the winner put into the slot.
        self.word.compare_exchange(ptr::null_mut(), CLOSED, Relaxed, Acquire).is_ok()
    }
}

impl Drop for Selection {
    #[inline(always)]
    fn drop(&mut self) {
        if self.enlisted.get() != 0 {
            stop();
        }
    }
}

/// A list would hold pointers into a frame that goes: no way on from here.
#[cold]
fn stop() -> ! {
    #[cfg(not(target_os = "none"))]
    std::process::abort();
    #[cfg(target_os = "none")]
    {
        // With interrupts off a panic does not unwind.
        crate::arch::irq::disable();
        panic!("waiter leaked");
    }
}

/// One G's place in the list `LIST` of a queue, with a slot for a value, and an `X` of its owner's.
///
/// Of the G that made it (neither `Send` nor `Sync`); others reach its node through the list.
pub struct Waiter<'a, S, T, const LISTS: usize, const LIST: usize, X> {
    queue: &'a WaitQueue<S, T, LISTS>,
    selection: Pin<&'a Selection>,
    node: Node<T>,
    /// Owner only: enlisted, and the owner has not looked how it ended.
    enlisted: Cell<bool>,
    pub(crate) extra: X,
    /// A list points here: not to be moved, and `&mut` to it is not unique.
    _pinned: PhantomPinned,
}

impl<'a, S, T, const LISTS: usize, const LIST: usize, X> Waiter<'a, S, T, LISTS, LIST, X> {
    /// A place that is not in the list yet, with nothing in its slot.
    #[inline(always)]
    pub(crate) fn new(
        queue: &'a WaitQueue<S, T, LISTS>,
        selection: Pin<&'a Selection>,
        extra: X,
    ) -> Self {
        let node = Node::new(Who::Selecting(&raw const *selection), None);
        Waiter { queue, selection, node, enlisted: Cell::new(false), extra, _pinned: PhantomPinned }
    }

    /// Goes to the end of its list, with `value` in its slot. False, and it does not, if
    /// `is_possible` says so, under the lock; or if a G whose wait can be ended is in the list
    /// `other`. The selection has [begun](Selection::begin).
    ///
    /// # Panics
    /// When it is in a list already, or its selection is not open.
    #[inline(always)]
    pub(crate) fn enlist_unless(
        self: Pin<&Self>,
        other: usize,
        is_possible: impl FnOnce(&mut S) -> bool,
        value: impl FnOnce() -> Option<T>,
    ) -> bool {
        // Others will read the handle; and a node that has won would seem to have left the list.
        let selection = self.selection; // as in `withdraw`
        assert!(selection.phase.get() != Phase::Over && !self.enlisted.get(), "no begin");
        let mut locked = self.queue.lock_in_g(); // see `begin`
        if is_possible(&mut locked) {
            return false;
        }
        if !locked.is_empty(other) {
            return self.enlist_beside(locked, other, value);
        }
        self.push(&selection, locked, value);
        true
    }

    /// Goes to the end of its list, with `value` in its slot, if `must_wait` says so, under the
    /// lock. For queues with one list; else as [`enlist_unless`](Self::enlist_unless).
    pub(crate) fn enlist_if(
        self: Pin<&Self>,
        must_wait: impl FnOnce(&mut Locked<'_, S, T, LISTS>) -> bool,
        value: T,
    ) -> bool {
        let selection = self.selection;
        assert!(selection.phase.get() != Phase::Over && !self.enlisted.get(), "no begin");
        let mut locked = self.queue.lock_in_g();
        let waits = must_wait(&mut locked);
        if waits {
            self.push(&selection, locked, || Some(value));
        }
        waits
    }

    /// The rest of [`enlist_unless`](Self::enlist_unless) if the other list has nodes. They may all
    /// be of no use: a node of a selection that was won elsewhere, or of the running G's own.
    #[cold]
    #[inline(never)]
    fn enlist_beside(
        self: Pin<&Self>,
        locked: Locked<'_, S, T, LISTS>,
        other: usize,
        value: impl FnOnce() -> Option<T>,
    ) -> bool {
        let is_met = locked.is_waited_for(other, &self.selection);
        if !is_met {
            self.push(&self.selection, locked, value);
        }
        !is_met
    }

    #[inline(always)]
    fn push(
        self: Pin<&Self>,
        selection: &Selection,
        mut locked: Locked<'_, S, T, LISTS>,
        value: impl FnOnce() -> Option<T>,
    ) {
        self.set_enlisted(selection, true);
        if let Some(value) = value() {
            // SAFETY: not enlisted, so the slot is ours.
            drop(unsafe { self.node.replace(Some(value)) });
        }
        // SAFETY: 1. The node is in no list: it leaves it before `enlisted` is false. 2. It is
        // pinned, and `drop` takes it out; so is its selection, which does not go before that.
        unsafe { locked.push(LIST, &self.node) };
    }

    /// The selection that it competes for.
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Whether it was enlisted, and has not looked how that ended.
    pub(crate) fn is_enlisted(&self) -> bool {
        self.enlisted.get()
    }

    /// Leaves the list, if it is still in it. True if the selection was won for it.
    #[inline(always)]
    pub(crate) fn withdraw(&self) -> bool {
        // The winner took the node out before it won, and is done with it. Else another G may be
        // reading it at this instant, with the lock held.
        let selection = self.selection; // read once: a lock is taken between its uses
        let winner = selection.word.load(Acquire); // pairs with `win`
        let is_won = winner.cast_const() == (&raw const self.node).cast();
        if self.enlisted.get() {
            if !is_won {
                // With interrupts on: see `Selection::begin`.
                // SAFETY: it is pushed to this list, and to no other.
                unsafe { self.queue.lock_in_g().remove(LIST, &self.node) };
                self.set_enlisted(&selection, false);
                return false;
            }
            self.set_enlisted(&selection, false);
        }
        is_won
    }

    /// Notes that it is in its list, or not any more; the selection counts its waiters.
    #[inline(always)]
    fn set_enlisted(&self, selection: &Selection, is_in: bool) {
        self.enlisted.set(is_in);
        selection.enlisted.update(|n| if is_in { n + 1 } else { n - 1 });
    }

    /// Takes what is in the slot.
    ///
    /// # Panics
    /// While it is in the list.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<T> {
        assert!(!self.enlisted.get(), "slot in use");
        // SAFETY: not enlisted, so the slot is its owner's: ours, as a waiter is not `Sync`.
        unsafe { self.node.replace(None) }
    }
}

impl<S, T, const LISTS: usize, const LIST: usize, X> Drop for Waiter<'_, S, T, LISTS, LIST, X> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.enlisted.get() {
            self.withdraw();
        }
    }
}
