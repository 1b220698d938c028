//! Waiting in line: nodes on the stacks of those who wait, under one lock.
//!
//! Holds what channels and `select!` need and safe code cannot write: a lock
//! with two queues of [`Waiter`]s that live in the frames of the waiting Gs, so
//! that no wait allocates; and the [`Ticket`], one word for which several
//! channels compete when one G waits for all of them. What the values mean is
//! `chan`'s business, whom to wait for is `select`'s.
//!
//! # Who may touch what
//!
//! > A node in a queue is alive, and so is its ticket. Its links belong to the
//! > holder of the lock. Its slot belongs to the holder of the lock from `enlist`
//! > until the ticket is won for it or its owner has withdrawn it; else to its
//! > owner.
//!
//! The other side, with the lock held: takes the node out of the queue, moves the
//! value in or out, copies the handle, and then *wins the ticket*: one
//! compare-exchange from "open" to the address of the node. That is its last
//! touch: from there on the owner may return and its frame is gone. Whoever loses
//! undoes what it did to the slot, still with the lock held, which a losing
//! node's owner must take before its frame goes.
//!
//! # Why a forgotten waiter does no harm
//!
//! Node and ticket are pinned, so neither's memory is used again before its
//! destructor has run. A waiter's destructor leaves the queue. A ticket's stops
//! the machine if one of its nodes is still enlisted, which takes a leaked
//! waiter.

mod queue;
mod ticket;

pub use ticket::{Ticket, Wake};

use crate::lock::{IrqGuard, IrqLock};
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use queue::{Node, Queue, is_open, set, win};

/// The two lines before a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those who have a value in their slot.
    Senders,
    /// Those who want one.
    Receivers,
}

/// A lock around a state, and the two lines of those who wait for it to change.
pub struct WaitLock<S, T> {
    state: IrqLock<S>,
    senders: Queue<T>,
    receivers: Queue<T>,
}

impl<S, T> WaitLock<S, T> {
    /// A free lock that nobody waits at.
    pub fn new(state: S) -> Self {
        WaitLock { state: IrqLock::new(state), senders: Queue::new(), receivers: Queue::new() }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Locked<'_, S, T> {
        Locked { state: self.state.lock(), lock: self }
    }

    /// Whether anybody seems to wait there, at a glance without the lock.
    #[inline]
    pub fn looks_waited_for(&self, side: Side) -> bool {
        self.queue(side).head().is_some()
    }

    #[inline]
    fn queue(&self, side: Side) -> &Queue<T> {
        match side {
            Side::Senders => &self.senders,
            Side::Receivers => &self.receivers,
        }
    }
}

/// The lock, held. Gives access to the state and to those who wait.
pub struct Locked<'a, S, T> {
    state: IrqGuard<'a, S>,
    lock: &'a WaitLock<S, T>,
}

impl<S, T> Locked<'_, S, T> {
    /// Puts `value` into the slot of the receiver that has waited longest, or
    /// gives it back.
    #[inline]
    pub fn give(&mut self, mut value: T) -> Result<Wake, T> {
        while let Some(node) = self.pop(Side::Receivers) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            if !unsafe { is_open(node) } {
                continue;
            }
            // SAFETY: as above, and the slot is the lock holder's.
            unsafe { set(node, Some(value)) };
            // SAFETY: as above; on success we do not touch the node any more.
            match unsafe { win(node) } {
                Some(wake) => return Ok(wake),
                // SAFETY: as above; it was not won, so its owner must take
                // the lock before it is gone.
                None => match unsafe { set(node, None) } {
                    Some(back) => value = back,
                    None => unreachable!("we put it there"),
                },
            }
        }
        Err(value)
    }

    /// Takes the value out of the slot of the sender that has waited longest.
    #[inline]
    pub fn take(&mut self) -> Option<(T, Wake)> {
        while let Some(node) = self.pop(Side::Senders) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            if !unsafe { is_open(node) } {
                continue;
            }
            // SAFETY: as above, and the slot is the lock holder's.
            let Some(value) = (unsafe { set(node, None) }) else { continue };
            // SAFETY: as above; on success we do not touch the node any more.
            match unsafe { win(node) } {
                Some(wake) => return Some((value, wake)),
                // SAFETY: as above; it was not won, so its owner must take
                // the lock before it is gone.
                None => drop(unsafe { set(node, Some(value)) }),
            }
        }
        None
    }

    /// Ends the wait of the one that has waited longest and leaves its slot as it
    /// is. Call it until there is nobody left.
    pub fn dismiss(&mut self, side: Side) -> Option<Wake> {
        while let Some(node) = self.pop(side) {
            // SAFETY: popped under the lock, which we hold, so it is alive;
            // we do not touch the node any more.
            if let Some(wake) = unsafe { win(node) } {
                return Some(wake);
            }
        }
        None
    }

    /// Whether anybody waits there whose ticket is open, other than with `mine`.
    pub fn is_waited_for(&self, side: Side, mine: Pin<&Ticket>) -> bool {
        let mut next = self.lock.queue(side).head();
        while let Some(node) = next {
            // SAFETY: in the queue, and we hold the lock, so it is alive.
            let ticket = unsafe { (*node.as_ptr()).ticket };
            // SAFETY: as above.
            if !ptr::eq(ticket, Pin::get_ref(mine)) && unsafe { is_open(node) } {
                return true;
            }
            // SAFETY: as above.
            next = NonNull::new(unsafe { (*node.as_ptr()).next.get() });
        }
        false
    }

    /// How many are in that line.
    #[cfg(test)]
    pub(crate) fn waiting(&self, side: Side) -> usize {
        let mut next = self.lock.queue(side).head();
        let mut count = 0;
        while let Some(node) = next {
            count += 1;
            // SAFETY: in the queue, and we hold the lock, so it is alive.
            next = NonNull::new(unsafe { (*node.as_ptr()).next.get() });
        }
        count
    }

    #[inline]
    fn pop(&mut self, side: Side) -> Option<NonNull<Node<T>>> {
        let queue = self.lock.queue(side);
        let node = queue.head()?;
        // SAFETY: we hold the lock, and it is the head of this queue.
        unsafe { queue.remove(node) };
        Some(node)
    }
}

impl<S, T> Deref for Locked<'_, S, T> {
    type Target = S;
    #[inline]
    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S, T> DerefMut for Locked<'_, S, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// One G's place in one line, with a slot for a value.
///
/// Of the G that made it alone (it is neither `Send` nor `Sync`); others reach
/// its node through the queue.
pub struct Waiter<'a, S, T> {
    lock: &'a WaitLock<S, T>,
    ticket: Pin<&'a Ticket>,
    side: Side,
    /// Owner only: enlisted, and the owner has not looked how it ended.
    enlisted: Cell<bool>,
    node: Node<T>,
    /// A queue points here: not to be moved, and `&mut` to it is not unique.
    _pinned: PhantomPinned,
}

impl<'a, S, T> Waiter<'a, S, T> {
    /// A place that is not in the line yet, with `value` in its slot.
    #[inline(always)]
    pub fn new(
        lock: &'a WaitLock<S, T>,
        side: Side,
        ticket: Pin<&'a Ticket>,
        value: Option<T>,
    ) -> Self {
        let node = Node::new(ptr::from_ref(Pin::get_ref(ticket)), value);
        Waiter { lock, ticket, side, enlisted: Cell::new(false), node, _pinned: PhantomPinned }
    }

    /// Goes to the end of its line. The ticket has [begun](Ticket::begin).
    ///
    /// # Panics
    /// When it is in a line already, `locked` is another lock, or its ticket has
    /// not begun.
    #[inline]
    pub fn enlist(self: Pin<&Self>, locked: &mut Locked<'_, S, T>) {
        let this = self.get_ref();
        assert!(ptr::eq(locked.lock, this.lock), "wrong lock");
        assert!(!this.enlisted.get(), "enlisted twice");
        // Others will read the handle; and a node that has won would look, to
        // its owner, as if it had left the line.
        assert!(this.ticket.has_begun() && !this.is_won(), "no begin");
        this.enlisted.set(true);
        this.ticket.count_in();
        // SAFETY: 1. We hold the lock. 2. The node is in no queue: it leaves it
        // before `enlisted` is false. 3. It is pinned, and `drop` takes it out;
        // its ticket is pinned and does not go before that (see the head).
        unsafe { this.lock.queue(this.side).push(NonNull::from_ref(&this.node)) };
    }

    /// Leaves the line, if it is still in it.
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
            let locked = self.lock.lock();
            if self.node.linked.get() {
                // SAFETY: we hold the lock, and it is in this queue.
                unsafe { self.lock.queue(self.side).remove(NonNull::from_ref(&self.node)) };
            }
            drop(locked);
        }
        self.enlisted.set(false);
        self.ticket.count_out();
    }

    /// Whether its ticket was won for it.
    #[inline]
    pub fn is_won(&self) -> bool {
        self.ticket.is_won_for(ptr::from_ref(&self.node).cast())
    }

    /// Exchanges what is in the slot.
    ///
    /// # Panics
    /// While it is in the line.
    #[inline]
    pub fn replace(&self, value: Option<T>) -> Option<T> {
        assert!(!self.enlisted.get() || self.is_won(), "slot in use");
        // SAFETY: not enlisted or won, so the slot is its owner's: ours, as a
        // waiter is not `Sync`.
        unsafe { self.node.slot.replace(value) }
    }
}

impl<S, T> Drop for Waiter<'_, S, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
