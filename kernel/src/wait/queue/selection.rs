//! One G that waits in several queues: the ticket that they compete for.
//!
//! [`Selection`] is the ticket with its owner's side, [`Waiter`] a place in one
//! list. Both live in the frame of the G that selects; `select!` puts them
//! there. Its loom model is `tests/loom_chan.rs`.

use super::node::{Node, Ticket};
use super::{Locked, WaitQueue, park_by, stop};
use crate::run::sys::{Reason, Wait, cancel_park, die, irq, is_killed};
use core::cell::Cell;
use core::marker::{PhantomData, PhantomPinned};
use core::pin::Pin;

/// For no one thing, so without an object.
const WAIT: Wait = Wait::new(Reason::Select, 0);

/// One wait of one G, for any number of things: the first of them wins it.
pub struct Selection {
    ticket: Ticket,
    /// Owner only: nodes that are enlisted with it.
    enlisted: Cell<usize>,
    /// Owner only: it has begun, and is not over; nodes may be enlisted.
    is_open: Cell<bool>,
    _pinned: PhantomPinned,
    /// Not `Send`: once it has begun, it is that G's.
    _mine: PhantomData<*const ()>,
}

impl Selection {
    /// A wait that has not begun.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "a default selection means nothing")]
    pub fn new() -> Self {
        let (ticket, enlisted, is_open) = (Ticket::new(), Cell::new(0), Cell::new(false));
        Selection { ticket, enlisted, is_open, _pinned: PhantomPinned, _mine: PhantomData }
    }

    /// Opens it and begins to park: the caller must [`wait`](Self::wait) or
    /// [`call_off`](Self::call_off).
    ///
    /// Interrupts are on, and are so whenever a waiter of this selection is touched:
    /// else one could not park. Its waiters count on it.
    #[inline]
    pub(crate) fn begin(&self) {
        assert!(irq::enabled(), "irqs off");
        assert!(self.enlisted.get() == 0, "selection in use");
        self.is_open.set(true);
        self.ticket.begin(WAIT);
    }

    /// Waits until it is won, or until `deadline_ns`; false if that came first,
    /// and then it cannot be won any more.
    #[inline]
    pub(crate) fn wait(&self, deadline_ns: Option<u64>) -> bool {
        self.is_open.set(false);
        loop {
            let in_time = park_by(deadline_ns);
            if self.ticket.is_won() {
                return true;
            }
            let killed = is_killed();
            if !in_time || killed {
                if !self.ticket.close() {
                    return true; // it has what it waited for
                }
                if killed {
                    die();
                }
                return false;
            }
            if !self.ticket.begin_again(WAIT) {
                cancel_park();
                return true;
            }
        }
    }

    /// Ends the wait before it began: leaves the state that [`begin`](Self::begin)
    /// put the G in. False if it was won meanwhile.
    pub(crate) fn call_off(&self) -> bool {
        self.is_open.set(false);
        let closed = self.ticket.close();
        cancel_park();
        closed
    }

    pub(super) fn ticket(&self) -> &Ticket {
        &self.ticket
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

/// One G's place in the list `LIST` of a queue, with a slot for a value, and an
/// `X` of its owner's.
///
/// Of the G that made it alone (it is neither `Send` nor `Sync`); others reach
/// its node through the list.
pub struct Waiter<'a, S, T, const LISTS: usize, const LIST: usize, X> {
    queue: &'a WaitQueue<S, T, LISTS>,
    selection: Pin<&'a Selection>,
    node: Node<T>,
    /// Owner only: enlisted, and the owner has not looked how it ended.
    enlisted: Cell<bool>,
    extra: X,
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
        let node = Node::selecting(&selection.get_ref().ticket, None);
        Waiter { queue, selection, node, enlisted: Cell::new(false), extra, _pinned: PhantomPinned }
    }

    /// What its owner keeps with it.
    #[inline(always)]
    pub(crate) fn extra(&self) -> &X {
        &self.extra
    }

    /// Goes to the end of its list, with `value` in its slot, unless it need not:
    /// then false. That is, if `is_possible` says so, under the lock; or if a G whose wait can be
    /// ended is in the list `other`. The selection has [begun](Selection::begin).
    ///
    /// # Panics
    /// When it is in a list already, or its selection is not open.
    #[inline(always)]
    pub(crate) fn enlist_unless(
        self: Pin<&Self>,
        other: usize,
        is_possible: impl FnOnce() -> bool,
        value: impl FnOnce() -> Option<T>,
    ) -> bool {
        let this = self.get_ref();
        // Others will read the handle; and a node that has won would look, to
        // its owner, as if it had left the list.
        assert!(this.selection.is_open.get() && !this.enlisted.get(), "no begin");
        let locked = Locked::with_irqs_on(this.queue); // see `begin`
        if is_possible() {
            return false;
        }
        if !locked.is_empty(other) {
            return this.enlist_beside(locked, other, value);
        }
        this.push(locked, value());
        true
    }

    /// The rest of `enlist_unless`: the other list is not empty. A G that selects there may have
    /// been won, or be this one.
    #[inline(never)]
    fn enlist_beside(
        &self,
        locked: Locked<'_, S, T, LISTS>,
        other: usize,
        value: impl FnOnce() -> Option<T>,
    ) -> bool {
        let need_not = locked.is_waited_for(other, &self.selection);
        if !need_not {
            self.push(locked, value());
        }
        !need_not
    }

    /// Goes to the end of its list, and frees the lock.
    #[inline(always)]
    fn push(&self, mut locked: Locked<'_, S, T, LISTS>, value: Option<T>) {
        self.enlisted.set(true);
        self.selection.enlisted.update(|n| n + 1);
        if let Some(value) = value {
            // SAFETY: not enlisted, so the slot is ours.
            drop(unsafe { self.node.replace(Some(value)) });
        }
        // SAFETY: 1. The node is in no list: it leaves it before `enlisted` is
        // false. 2. It is pinned, and `drop` takes it out; its selection is
        // pinned and does not go before that (see the head).
        unsafe { locked.push(LIST, &self.node) };
    }

    /// Leaves the list, if it is still in it. True if the selection was won for
    /// it.
    #[inline(always)]
    pub(crate) fn withdraw(&self) -> bool {
        // The winner took the node out before it won, and is done with it. Else another G may be
        // reading it at this instant, with the lock held.
        let is_won = self.selection.ticket.is_won_for(&self.node);
        if self.enlisted.get() {
            if !is_won {
                self.leave();
            }
            self.enlisted.set(false);
            self.selection.enlisted.update(|n| n - 1);
        }
        is_won
    }

    #[inline(always)]
    fn leave(&self) {
        // With interrupts on: see `Selection::begin`.
        // SAFETY: it is pushed to this list, and to no other.
        unsafe { Locked::with_irqs_on(self.queue).remove(LIST, &self.node) };
    }

    /// Takes what is in the slot.
    ///
    /// # Panics
    /// While it is in the list.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<T> {
        assert!(!self.enlisted.get(), "slot in use");
        // SAFETY: not enlisted, so the slot is its owner's: ours, as a waiter is
        // not `Sync`.
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
