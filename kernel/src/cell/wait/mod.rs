//! Waiting in line: nodes on the stacks of those who wait, under one lock.
//!
//! A [`WaitQueue`] is a lock around a state of its owner, with one or more FIFO
//! lists of those who wait for that state to change. To wait allocates nothing:
//! the node is in the frame of the G that waits. Everything that a program can
//! wait for, waits here: channels, `select!`, and all of `sync`; what a wake-up
//! means is said there.
//!
//! A node has a slot for a value. In a channel it is what is handed over; for a
//! lock it is what the other side wants to know of the first in the list (how
//! many permits, waiting since when).
//!
//! # How a wait ends
//!
//! The other side, with the lock held, may
//!
//! - *give* a value to the first of a list, or *take* its value: channels;
//! - *grant*: end the wait of the first, who has then what it waited for, or is
//!   told that it never will;
//! - *nudge*: let the first look for itself, keeping its place.
//!
//! Or the waiter's time is up. All but a nudge compete for one word, the
//! *ticket*: one compare-exchange from "open" to the address of the node wins
//! it. One G that waits in several queues (`select!`) has one ticket for all of
//! its nodes, so that one of them wins. Who waits in one queue only
//! ([`WaitQueue::wait`]) gives up under the lock, so the first in a list that
//! somebody has looked at is still to be had while the lock is held; who
//! selects gives up without any lock, and whoever finds its node passes it over.
//!
//! # Who may touch what
//!
//! > A node in a list is alive, and so is its ticket. Its links belong to the
//! > holder of the lock. Its slot belongs to the holder of the lock from the time
//! > it is enlisted until the ticket is won for it or its owner has taken it out;
//! > else to its owner.
//!
//! The other side, with the lock held: takes the node out of the list, moves the
//! value in or out, copies the handle, and then *wins the ticket*. That is its
//! last touch: from there on the owner may return and its frame is gone.
//! Whoever loses undoes what it did to the slot, still with the lock held, which
//! a losing node's owner must take before its frame goes.
//!
//! # Why a forgotten waiter does no harm
//!
//! [`WaitQueue::wait`] neither returns nor unwinds before its node is out. In a
//! [`Selection`], node and ticket are pinned, so neither's memory is used again before its destructor has run; a waiter's
//! leaves the list, and the selection's stops the machine if one of its nodes is
//! still enlisted, which takes a leaked waiter.

mod node;
mod selection;

pub use node::Wake;
pub use selection::{Selection, Waiter};

use crate::cell::sys::{IrqGuard, IrqLock, Reason, Wait, begin_park, const_fn};
use core::ops::{Deref, DerefMut};
use node::{Enlisted, List, Node, Ticket};

/// How many are granted under one hold of the lock, which is held with
/// interrupts off: a few hundred instructions.
const BATCH: usize = 8;

/// A lock around a state `S`, and `LISTS` lists of those who wait for it to
/// change, each with a `T` or a place for one.
pub struct WaitQueue<S = (), T = (), const LISTS: usize = 1> {
    inner: IrqLock<Inner<S>>,
    lists: [List<T>; LISTS],
}

struct Inner<S> {
    state: S,
    /// How many have waited here: the number of the next.
    numbers: u64,
}

/// Where and how one waits.
#[derive(Clone, Copy)]
pub struct Place<T> {
    /// Why.
    pub reason: Reason,
    /// In which list.
    pub list: usize,
    /// What is in the slot.
    pub value: Option<T>,
    /// Until when at most.
    pub deadline_ns: Option<u64>,
}

/// How waiting ended.
#[must_use]
pub enum Waited<'a, S, T, const LISTS: usize> {
    /// The other side ended it; this is in the slot now.
    Granted(Option<T>),
    /// The waiter took what it waited for when it looked. It has left the list;
    /// the lock is held.
    Took(Locked<'a, S, T, LISTS>),
    /// The deadline came first. It has left the list; the lock is held, and what
    /// was in the slot is given back.
    TimedOut(Locked<'a, S, T, LISTS>, Option<T>),
}

impl<S, T, const LISTS: usize> WaitQueue<S, T, LISTS> {
    const_fn! {
        /// A free lock that nobody waits at.
        pub fn new(state: S) -> Self {
            let inner = IrqLock::new(Inner { state, numbers: 0 });
            WaitQueue { inner, lists: [const { List::new() }; LISTS] }
        }
    }

    /// Takes the lock.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_, S, T, LISTS> {
        Locked { inner: self.inner.lock(), queue: self }
    }

    /// Whether anybody seems to wait in that list, at a glance without the lock.
    #[inline(always)]
    pub fn looks_waited_for(&self, list: usize) -> bool {
        !self.lists[list].is_empty()
    }

    /// Waits at the end of a list until the other side ends it or the deadline
    /// comes.
    ///
    /// `locked` is the lock under which the caller saw that it must wait;
    /// `between` runs when the wait has begun and the lock is free. `look` is
    /// called under the lock when the G was woken for no other reason, and once
    /// more at the deadline: true if it took what is waited for.
    #[inline]
    pub fn wait<'a>(
        &'a self,
        mut locked: Locked<'a, S, T, LISTS>,
        place: Place<T>,
        between: impl FnOnce(),
        mut look: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        let Place { reason, list, value, deadline_ns } = place;
        let wait = Wait::at(reason, self);
        let ticket = Ticket::new();
        ticket.begin(wait);
        let node = Node::new(&ticket, value);
        let if_unwound = Leave { queue: self, list, node: &node };
        // SAFETY: the node is new. It is out of the list at each return: who
        // granted has taken it out, else we do; if this is unwound, `Leave` does.
        unsafe { locked.push(list, &node) };
        drop(locked);
        between();
        let waited = loop {
            let in_time = ticket.park(deadline_ns);
            if ticket.is_won() {
                break None;
            }
            let mut locked = self.lock();
            if ticket.is_won() {
                break None;
            }
            let took = look(&mut locked);
            if took || !in_time {
                // SAFETY: we hold the lock, and nobody has taken it out.
                unsafe { self.lists[list].remove(&node) };
                break Some((locked, took));
            }
            // Who nudges or grants from here on finds us parking, because this
            // is still under the lock.
            begin_park(wait);
        };
        core::mem::forget(if_unwound);
        // SAFETY: it is out of the list, so the slot is ours again.
        let value = unsafe { node.replace(None) };
        match waited {
            None => Waited::Granted(value),
            Some((locked, true)) => Waited::Took(locked),
            Some((locked, false)) => Waited::TimedOut(locked, value),
        }
    }

    /// Grants to all who wait in `list` now; who comes meanwhile is not meant.
    /// Returns how many that were.
    pub fn grant_all(&self, list: usize) -> usize {
        let locked = self.lock();
        if locked.is_empty(list) {
            return 0;
        }
        let limit = locked.next_number();
        drop(locked);
        self.grant_while(|locked| {
            locked.front_number(list).filter(|&number| number < limit).map(|_| list)
        })
    }

    /// Grants to the first of the list that `choose` names, again and again,
    /// until it names none. Returns how often. `choose` runs under the lock, and
    /// is not under the same hold of it each time.
    pub fn grant_while(
        &self,
        mut choose: impl FnMut(&mut Locked<'_, S, T, LISTS>) -> Option<usize>,
    ) -> usize {
        let mut granted = 0;
        loop {
            let mut batch = [const { None }; BATCH];
            let mut locked = self.lock();
            for slot in &mut batch {
                *slot = choose(&mut locked).and_then(|list| locked.grant(list));
                if slot.is_none() {
                    break;
                }
            }
            drop(locked);
            let before = granted;
            for wake in batch.into_iter().flatten() {
                granted += 1;
                wake.ready();
            }
            if granted < before + BATCH {
                return granted;
            }
        }
    }
}

/// The lock, held: with interrupts off, so for few instructions. Gives access
/// to the state and to those who wait.
pub struct Locked<'a, S = (), T = (), const LISTS: usize = 1> {
    inner: IrqGuard<'a, Inner<S>>,
    queue: &'a WaitQueue<S, T, LISTS>,
}

impl<S, T, const LISTS: usize> Locked<'_, S, T, LISTS> {
    /// Whether nobody waits in `list`.
    #[inline(always)]
    pub fn is_empty(&self, list: usize) -> bool {
        self.queue.lists[list].is_empty()
    }

    /// What is in the slot of the first in `list`.
    pub fn front(&self, list: usize) -> Option<T>
    where
        T: Copy,
    {
        let first = self.queue.lists[list].head()?;
        // SAFETY: in the list, and we hold the lock, so it is alive.
        unsafe { first.peek() }
    }

    /// How many came before the first in `list`, ever.
    pub fn front_number(&self, list: usize) -> Option<u64> {
        let first = self.queue.lists[list].head()?;
        // SAFETY: in the list, and we hold the lock, so it is alive.
        Some(unsafe { first.number() })
    }

    /// The number of the next who waits, in whatever list.
    pub fn next_number(&self) -> u64 {
        self.inner.numbers
    }

    /// Puts `value` into the slot of the first in `list`, or gives it back if
    /// nobody waits there.
    #[inline(always)]
    pub fn give(&mut self, list: usize, mut value: T) -> Result<Wake, T> {
        while let Some(node) = self.pop(list) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            if !unsafe { node.is_open() } {
                continue;
            }
            // SAFETY: as above, and the slot is the lock holder's.
            unsafe { node.set(Some(value)) };
            // SAFETY: as above; on success we do not touch the node any more.
            match unsafe { node.win() } {
                Some(wake) => return Ok(wake),
                // SAFETY: as above; it was not won, so its owner must take
                // the lock before it is gone.
                None => match unsafe { node.set(None) } {
                    Some(back) => value = back,
                    None => unreachable!("we put it there"),
                },
            }
        }
        Err(value)
    }

    /// Takes the value out of the slot of the first in `list`.
    #[inline(always)]
    pub fn take(&mut self, list: usize) -> Option<(T, Wake)> {
        while let Some(node) = self.pop(list) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            if !unsafe { node.is_open() } {
                continue;
            }
            // SAFETY: as above, and the slot is the lock holder's.
            let Some(value) = (unsafe { node.set(None) }) else { continue };
            // SAFETY: as above; on success we do not touch the node any more.
            match unsafe { node.win() } {
                Some(wake) => return Some((value, wake)),
                // SAFETY: as above; it was not won, so its owner must take
                // the lock before it is gone.
                None => drop(unsafe { node.set(Some(value)) }),
            }
        }
        None
    }

    /// Ends the wait of the first in `list` and leaves its slot as it is.
    #[inline]
    pub fn grant(&mut self, list: usize) -> Option<Wake> {
        while let Some(node) = self.pop(list) {
            // SAFETY: popped under the lock, which we hold, so it is alive;
            // on success we do not touch the node any more.
            if let Some(wake) = unsafe { node.win() } {
                return Some(wake);
            }
        }
        None
    }

    /// Lets the first in `list` look. It keeps its place.
    pub fn nudge(&mut self, list: usize) -> Option<Wake> {
        let first = self.queue.lists[list].head()?;
        // SAFETY: in the list, and we hold the lock, so it is alive.
        unsafe { first.nudge() }
    }

    /// Whether anybody waits there who can be had, other than by `mine`.
    pub fn is_waited_for(&self, list: usize, mine: &Selection) -> bool {
        self.nodes(list).any(|node| {
            // SAFETY: in the list, and we hold the lock, so it is alive.
            let is_mine = unsafe { node.has_ticket(mine.ticket()) };
            // SAFETY: as above.
            !is_mine && unsafe { node.is_open() }
        })
    }

    /// How many are in that list.
    #[cfg(test)]
    pub(crate) fn waiting(&self, list: usize) -> usize {
        self.nodes(list).count()
    }

    /// Those in that list, first to last; they stay there while this is used.
    fn nodes(&self, list: usize) -> impl Iterator<Item = Enlisted<T>> {
        // SAFETY: in the list, and we hold the lock, so it is alive.
        core::iter::successors(self.queue.lists[list].head(), |node| unsafe { node.next() })
    }

    /// Puts a node at the end of a list.
    ///
    /// # Safety
    /// The node is in no list, its ticket has begun, and both stay alive and where
    /// they are until it is taken out.
    #[inline(always)]
    unsafe fn push(&mut self, list: usize, node: &Node<T>) {
        let number = self.inner.numbers;
        self.inner.numbers = number + 1;
        // SAFETY: we hold the lock; the rest is the caller's promise.
        unsafe { self.queue.lists[list].push(node, number) };
    }

    #[inline(always)]
    fn pop(&mut self, list: usize) -> Option<Enlisted<T>> {
        // SAFETY: we hold the lock.
        unsafe { self.queue.lists[list].pop() }
    }
}

impl<S, T, const LISTS: usize> Deref for Locked<'_, S, T, LISTS> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        &self.inner.state
    }
}

impl<S, T, const LISTS: usize> DerefMut for Locked<'_, S, T, LISTS> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.inner.state
    }
}

/// Takes a node out if its wait is unwound; forgotten where all is well.
struct Leave<'a, S, T, const LISTS: usize> {
    queue: &'a WaitQueue<S, T, LISTS>,
    list: usize,
    node: &'a Node<T>,
}

impl<S, T, const LISTS: usize> Drop for Leave<'_, S, T, LISTS> {
    #[inline(always)]
    fn drop(&mut self) {
        let locked = self.queue.lock();
        if self.node.is_linked() {
            // SAFETY: we hold the lock, and it is in this list.
            unsafe { self.queue.lists[self.list].remove(self.node) };
        }
        drop(locked);
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
        crate::arch::irq_save();
        panic!("waiter leaked");
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
