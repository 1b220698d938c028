//! One G that waits in several queues: the ticket that they compete for.
//!
//! [`Selection`] is the ticket with its owner's side, [`Waiter`] a place in one
//! list. Both live in the frame of the G that selects; `select!` puts them
//! there. Its loom model is `tests/loom_chan.rs`.

use super::node::{Node, Ticket};
use super::{Locked, WaitQueue, stop};
use crate::cell::sys::{Reason, Wait, cancel_park, die, is_killed};
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr;

/// For no one thing, so without an object.
const WAIT: Wait = Wait::new(Reason::Select, 0);

/// One wait of one G, for any number of things: the first of them wins it.
pub struct Selection {
    ticket: Ticket,
    /// Owner only: nodes that are enlisted with it.
    enlisted: Cell<usize>,
    _pinned: PhantomPinned,
}

impl Selection {
    /// A wait that has not begun.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "a default selection means nothing")]
    pub fn new() -> Self {
        Selection { ticket: Ticket::new(), enlisted: Cell::new(0), _pinned: PhantomPinned }
    }

    /// Opens it and begins to park: the caller must [`wait`](Self::wait) or
    /// [`call_off`](Self::call_off).
    #[inline]
    pub fn begin(&self) {
        assert!(self.enlisted.get() == 0, "selection in use");
        self.ticket.begin(WAIT);
    }

    /// Waits until it is won, or until `deadline_ns`; false if that came first,
    /// and then nobody can win it any more.
    #[inline]
    pub fn wait(&self, deadline_ns: Option<u64>) -> bool {
        loop {
            let in_time = self.ticket.park(deadline_ns);
            if self.ticket.is_won() {
                return true;
            }
            if !in_time {
                return !self.ticket.close();
            }
            if is_killed() {
                if !self.ticket.close() {
                    return true; // it has what it waited for
                }
                die();
            }
            if !self.ticket.begin_again(WAIT) {
                cancel_park();
                return true;
            }
        }
    }

    /// Ends the wait before it began: leaves the state that [`begin`](Self::begin)
    /// put the G in. False if it was won meanwhile.
    pub fn call_off(&self) -> bool {
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

/// One G's place in one list, with a slot for a value.
///
/// Of the G that made it alone (it is neither `Send` nor `Sync`); others reach
/// its node through the list.
pub struct Waiter<'a, S, T, const LISTS: usize> {
    queue: &'a WaitQueue<S, T, LISTS>,
    list: usize,
    selection: Pin<&'a Selection>,
    /// Owner only: enlisted, and the owner has not looked how it ended.
    enlisted: Cell<bool>,
    node: Node<T>,
    /// A list points here: not to be moved, and `&mut` to it is not unique.
    _pinned: PhantomPinned,
}

impl<'a, S, T, const LISTS: usize> Waiter<'a, S, T, LISTS> {
    /// A place that is not in the list yet, with `value` in its slot.
    #[inline(always)]
    pub fn new(
        queue: &'a WaitQueue<S, T, LISTS>,
        list: usize,
        selection: Pin<&'a Selection>,
        value: Option<T>,
    ) -> Self {
        let node = Node::selecting(&selection.get_ref().ticket, value);
        let enlisted = Cell::new(false);
        Waiter { queue, list, selection, enlisted, node, _pinned: PhantomPinned }
    }

    /// Goes to the end of its list. The selection has [begun](Selection::begin).
    ///
    /// # Panics
    /// When it is in a list already, `locked` is another lock, or its selection
    /// has not begun.
    pub fn enlist(self: Pin<&Self>, locked: &mut Locked<'_, S, T, LISTS>) {
        let this = self.get_ref();
        assert!(ptr::eq(locked.queue, this.queue), "wrong lock");
        assert!(!this.enlisted.get(), "enlisted twice");
        // Others will read the handle; and a node that has won would look, to
        // its owner, as if it had left the list.
        assert!(this.selection.ticket.has_begun() && !this.is_won(), "no begin");
        this.enlisted.set(true);
        this.selection.enlisted.update(|n| n + 1);
        // SAFETY: 1. The node is in no list: it leaves it before `enlisted` is
        // false. 2. It is pinned, and `drop` takes it out; its selection is
        // pinned and does not go before that (see the head).
        unsafe { locked.push(this.list, &this.node) };
    }

    /// Leaves the list, if it is still in it.
    #[inline(always)]
    pub fn withdraw(&self) {
        if self.enlisted.get() {
            self.leave();
        }
    }

    fn leave(&self) {
        // The winner took the node out before it won, and is done with it. Else
        // somebody may be looking at it at this instant, with the lock held.
        if !self.is_won() {
            let locked = self.queue.lock();
            if self.node.is_enlisted() {
                // SAFETY: we hold the lock, and it is in this list.
                unsafe { self.queue.lists[self.list].remove(&self.node) };
            }
            drop(locked);
        }
        self.enlisted.set(false);
        self.selection.enlisted.update(|n| n - 1);
    }

    /// What it waits with.
    pub fn selection(&self) -> &Selection {
        self.selection.get_ref()
    }

    /// Whether the selection was won for it.
    #[inline]
    pub fn is_won(&self) -> bool {
        self.selection.ticket.is_won_for(&self.node)
    }

    /// Exchanges what is in the slot.
    ///
    /// # Panics
    /// While it is in the list.
    #[inline]
    pub fn replace(&self, value: Option<T>) -> Option<T> {
        assert!(!self.enlisted.get() || self.is_won(), "slot in use");
        // SAFETY: not enlisted or won, so the slot is its owner's: ours, as a
        // waiter is not `Sync`.
        unsafe { self.node.replace(value) }
    }
}

impl<S, T, const LISTS: usize> Drop for Waiter<'_, S, T, LISTS> {
    #[inline(always)]
    fn drop(&mut self) {
        self.withdraw();
    }
}
