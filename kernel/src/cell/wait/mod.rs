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
//! Or the waiter's time is up. Who waits in one queue only ([`WaitQueue::wait`])
//! is *alone* in its node, and gives up under the lock: whoever takes the node out
//! under the lock has it, and says so by one store. One G that waits in several
//! queues (`select!`) has one word for all of its nodes, the *ticket*: one
//! compare-exchange from "open" to the address of the node wins it. Who selects
//! gives up without any lock, and whoever finds its node then passes it over.
//!
//! # Who may touch what
//!
//! > A node in a list is alive, and so is its ticket. Its links belong to the
//! > holder of the lock. Its slot belongs to the holder of the lock from the time
//! > it is enlisted until its wait was ended, the ticket is won for it or its owner
//! > has taken it out; else to its owner.
//!
//! The other side, with the lock held: takes the node out of the list, copies the
//! handle, moves the value in or out, and then *ends the wait*, or *wins the
//! ticket*. That is its last touch: from there on the owner may return and its frame is gone.
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

use crate::cell::sys::{
    GHandle, IrqLock, Irqs, Reason, Wait, begin_park, const_fn, die, irqs_back, is_killed, park,
    park_from, park_until, ready_from,
};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use node::{Enlisted, List, Node};

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
    /// The number of those who come now.
    number: u64,
    /// How many have come.
    #[cfg(test)]
    queued: u64,
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
            let inner = Inner {
                state,
                number: 0,
                #[cfg(test)]
                queued: 0,
            };
            WaitQueue { inner: IrqLock::new(inner), lists: [const { List::new() }; LISTS] }
        }
    }

    /// Takes the lock.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_, S, T, LISTS> {
        Locked { queue: self, irqs: self.inner.hold(), _here: PhantomData }
    }

    /// Whether anybody seems to wait in that list, at a glance without the lock.
    #[inline(always)]
    pub fn looks_waited_for(&self, list: usize) -> bool {
        !self.lists[list].is_empty()
    }

    /// Waits at the end of a list until the other side ends it or the deadline
    /// comes.
    ///
    /// `locked` is the lock under which the caller saw that it must wait. `look` is
    /// called under the lock when the G was woken for no other reason, and once
    /// more at the deadline: true if it took what is waited for.
    ///
    /// A G that is killed leaves the list and unwinds from here. What a caller
    /// does for those behind it after a time-out it then does by an [`IfUnwound`].
    #[inline(always)]
    pub fn wait<'a>(
        &'a self,
        locked: Locked<'a, S, T, LISTS>,
        place: Place<T>,
        look: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        let deadline_ns = place.deadline_ns;
        self.wait_by(locked, place, |locked, g, _| locked.park(g, deadline_ns), look)
    }

    /// As [`wait`](Self::wait); `between` runs when the wait has begun and the lock
    /// is free.
    pub fn wait_after<'a>(
        &'a self,
        locked: Locked<'a, S, T, LISTS>,
        place: Place<T>,
        between: impl FnOnce(),
        look: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        let (list, deadline_ns) = (place.list, place.deadline_ns);
        let leave = |locked, _, node: &Node<T>| {
            drop(locked);
            let if_unwound = Leave { queue: self, list, node };
            between();
            core::mem::forget(if_unwound);
            park_by(deadline_ns)
        };
        self.wait_by(locked, place, leave, look)
    }

    /// `leave` frees the lock and parks; false if the deadline came first.
    #[inline(always)]
    fn wait_by<'a>(
        &'a self,
        mut locked: Locked<'a, S, T, LISTS>,
        place: Place<T>,
        leave: impl FnOnce(Locked<'a, S, T, LISTS>, GHandle, &Node<T>) -> bool,
        look: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        let Place { reason, list, value, deadline_ns } = place;
        let wait = Wait::at(reason, self);
        let g = begin_park(wait);
        let node = Node::alone(g.clone(), value);
        let place = Place { reason, list, value: None, deadline_ns };
        // SAFETY: the node is new. It is out of the list at each return: who
        // granted has taken it out, else `look` has. What may unwind is guarded
        // by `Leave`: in `look`, and in `leave` where that calls anybody. (A park
        // that is refused stops the machine.)
        unsafe { locked.push(list, &node) };
        let in_time = leave(locked, g, &node);
        let waited = if node.is_enlisted() { self.look(&node, place, in_time, look) } else { None };
        // SAFETY: it is out of the list, so the slot is ours again.
        let value = unsafe { node.replace(None) };
        match waited {
            None => Waited::Granted(value),
            Some((locked, true)) => Waited::Took(locked),
            Some((locked, false)) => Waited::TimedOut(locked, value),
        }
    }

    /// The G whose node that is was woken, and nobody has ended its wait: it looks
    /// for itself, and waits on. `None` if its wait was ended; else the node is out
    /// of the list, and it is said whether `look` has taken.
    #[cold]
    fn look<'a>(
        &'a self,
        node: &Node<T>,
        place: Place<T>,
        mut in_time: bool,
        mut look: impl FnMut(&mut S) -> bool,
    ) -> Option<(Locked<'a, S, T, LISTS>, bool)> {
        let if_unwound = Leave { queue: self, list: place.list, node };
        let waited = loop {
            let mut locked = self.lock();
            if !node.is_enlisted() {
                break None;
            }
            let took = look(&mut locked);
            let killed = !took && in_time && is_killed();
            if took || !in_time || killed {
                // SAFETY: we hold the lock, and nobody has taken it out.
                unsafe { self.lists[place.list].remove(node) };
                if killed {
                    drop(locked);
                    die();
                }
                break Some((locked, took));
            }
            // Who nudges or grants from here on finds us parking, because this
            // is still under the lock.
            let g = begin_park(Wait::at(place.reason, self));
            in_time = locked.park(g, place.deadline_ns);
            if !node.is_enlisted() {
                break None;
            }
        };
        core::mem::forget(if_unwound);
        waited
    }

    /// Grants to all who wait in `list` now; who comes meanwhile is not meant.
    /// Returns how many that were.
    pub fn grant_all(&self, list: usize) -> usize {
        let mut locked = self.lock();
        if locked.is_empty(list) {
            return 0;
        }
        let limit = locked.new_number();
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
    queue: &'a WaitQueue<S, T, LISTS>,
    irqs: Irqs,
    // Interrupts are off on this CPU and on no other.
    _here: PhantomData<*const ()>,
}

impl<S, T, const LISTS: usize> Locked<'_, S, T, LISTS> {
    /// Frees the lock and readies somebody, with interrupts off from the one to the
    /// other: whoever takes the lock next on another CPU does not wait for us.
    #[inline(always)]
    pub fn ready(self, wake: Wake) {
        let this = ManuallyDrop::new(self);
        // SAFETY: we hold it, and `this` is not dropped.
        unsafe { this.queue.inner.open() };
        ready_from(this.irqs, wake.0);
    }

    /// Frees the lock, and readies somebody if there is one.
    #[inline(always)]
    pub fn ready_if(self, wake: Option<Wake>) {
        if let Some(wake) = wake {
            self.ready(wake);
        }
    }

    /// Frees the lock and parks `g`, which is the running G and has begun to; until
    /// `deadline_ns` at most, false if that came first. Without a deadline
    /// interrupts are off from the lock to the switch.
    #[inline(always)]
    fn park(self, g: GHandle, deadline_ns: Option<u64>) -> bool {
        if deadline_ns.is_some() {
            drop(self);
            return park_by(deadline_ns);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: we hold it, and `this` is not dropped.
        unsafe { this.queue.inner.open() };
        park_from(this.irqs, g);
        true
    }

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

    /// The number of the first in `list`: see [`new_number`](Self::new_number).
    pub fn front_number(&self, list: usize) -> Option<u64> {
        let first = self.queue.lists[list].head()?;
        // SAFETY: in the list, and we hold the lock, so it is alive.
        Some(unsafe { first.number() })
    }

    /// A number for those who come from here on, in whatever list; all who wait
    /// now have lower ones.
    pub fn new_number(&mut self) -> u64 {
        let inner = self.inner();
        inner.number += 1;
        inner.number
    }

    /// How many have ever waited here.
    #[cfg(test)]
    pub(crate) fn queued_ever(&mut self) -> u64 {
        self.inner().queued
    }

    /// Puts `value` into the slot of the first in `list`, or gives it back if
    /// nobody waits there.
    pub fn give(&mut self, list: usize, mut value: T) -> Result<Wake, T> {
        loop {
            value = match self.give_alone(list, value) {
                Ok(wake) => return Ok(wake),
                Err(value) => value,
            };
            let Some(node) = self.pop(list) else { return Err(value) };
            // SAFETY: popped under the lock, which we hold; it selects.
            value = match unsafe { give_selecting(node, value) } {
                Ok(wake) => return Ok(wake),
                Err(value) => value,
            };
        }
    }

    /// The short way of [`give`](Self::give): if the first in the list is alone.
    #[inline(always)]
    pub fn give_alone(&mut self, list: usize, value: T) -> Result<Wake, T> {
        let Some((node, wake)) = self.pop_alone(list) else { return Err(value) };
        // SAFETY: popped under the lock, which we hold, so it is alive, and the
        // slot is the lock holder's.
        unsafe { node.fill(value) };
        // SAFETY: as above; we do not touch the node any more.
        unsafe { node.end() };
        Ok(wake)
    }

    /// Takes the value out of the slot of the first in `list`.
    pub fn take(&mut self, list: usize) -> Option<(T, Wake)> {
        loop {
            if let Some(taken) = self.take_alone(list) {
                return Some(taken);
            }
            let node = self.pop(list)?;
            // SAFETY: popped under the lock, which we hold; it selects, as one
            // who is alone has a value.
            if let Some(taken) = unsafe { take_selecting(node) } {
                return Some(taken);
            }
        }
    }

    /// The short way of [`take`](Self::take): if the first in the list is alone.
    #[inline(always)]
    pub fn take_alone(&mut self, list: usize) -> Option<(T, Wake)> {
        let (node, wake) = self.pop_alone(list)?;
        // SAFETY: popped under the lock, which we hold, so it is alive, and the
        // slot is the lock holder's.
        let value = unsafe { node.set(None) };
        // SAFETY: as above; we do not touch the node any more.
        unsafe { node.end() };
        value.map(|value| (value, wake))
    }

    /// Ends the wait of the first in `list` and leaves its slot as it is.
    #[inline]
    pub fn grant(&mut self, list: usize) -> Option<Wake> {
        while let Some(node) = self.pop(list) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            let alone = unsafe { node.alone() };
            // SAFETY: as above; if it is alone, we do not touch it any more.
            unsafe { node.end() };
            // SAFETY: as above; on success we do not touch the node any more.
            if let Some(wake) = alone.or_else(|| unsafe { node.win() }) {
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
    #[inline(always)]
    pub fn is_waited_for(&self, list: usize, mine: &Selection) -> bool {
        !self.is_empty(list) && self.is_waited_for_by_others(list, mine)
    }

    #[inline(never)]
    fn is_waited_for_by_others(&self, list: usize, mine: &Selection) -> bool {
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
        let inner = self.inner();
        let number = inner.number;
        #[cfg(test)]
        (inner.queued += 1);
        // SAFETY: we hold the lock; the rest is the caller's promise.
        unsafe { self.queue.lists[list].push(node, number) };
    }

    /// Takes out the first in `list`, if it is alone.
    #[inline(always)]
    fn pop_alone(&mut self, list: usize) -> Option<(Enlisted<T>, Wake)> {
        let first = self.queue.lists[list].head()?;
        // SAFETY: in the list, and we hold the lock, so it is alive.
        let wake = unsafe { first.alone() }?;
        // SAFETY: as above, and it is the first.
        unsafe { self.queue.lists[list].pop_first(first) };
        Some((first, wake))
    }

    #[inline(always)]
    fn pop(&mut self, list: usize) -> Option<Enlisted<T>> {
        // SAFETY: we hold the lock.
        unsafe { self.queue.lists[list].pop() }
    }

    #[inline(always)]
    fn inner(&mut self) -> &mut Inner<S> {
        // SAFETY: we hold the lock, and this is the one way to what is in it.
        unsafe { &mut *self.queue.inner.as_ptr() }
    }
}

/// Puts `value` into the slot of one who selects, or gives it back if somebody
/// else was faster.
///
/// # Safety
/// The node selects, was popped under the lock, and the lock is held.
#[inline(never)]
unsafe fn give_selecting<T>(node: Enlisted<T>, value: T) -> Result<Wake, T> {
    // SAFETY: alive, as its owner needs the lock to be gone.
    unsafe { node.end() };
    // SAFETY: as above.
    if !unsafe { node.is_open() } {
        return Err(value);
    }
    // SAFETY: as above, and the slot is the lock holder's.
    unsafe { node.fill(value) };
    // SAFETY: as above; on success we do not touch the node any more.
    match unsafe { node.win() } {
        Some(wake) => Ok(wake),
        // SAFETY: it was not won, so its owner must take the lock before it is gone.
        None => match unsafe { node.set(None) } {
            Some(back) => Err(back),
            None => unreachable!("we put it there"),
        },
    }
}

/// Takes the value of one who selects, unless somebody else was faster.
///
/// # Safety
/// As for [`give_selecting`].
#[inline(never)]
unsafe fn take_selecting<T>(node: Enlisted<T>) -> Option<(T, Wake)> {
    // SAFETY: alive, as its owner needs the lock to be gone.
    unsafe { node.end() };
    // SAFETY: as above.
    if !unsafe { node.is_open() } {
        return None;
    }
    // SAFETY: as above, and the slot is the lock holder's.
    let value = unsafe { node.set(None) }?;
    // SAFETY: as above; on success we do not touch the node any more.
    match unsafe { node.win() } {
        Some(wake) => Some((value, wake)),
        None => {
            // SAFETY: it was not won, so its owner must take the lock before it
            // is gone; and the slot is empty.
            unsafe { node.fill(value) };
            None
        }
    }
}

/// Parks, until `deadline_ns` at most; false if that came first.
fn park_by(deadline_ns: Option<u64>) -> bool {
    match deadline_ns {
        Some(deadline_ns) => park_until(deadline_ns),
        None => {
            park();
            true
        }
    }
}

impl<S, T, const LISTS: usize> Drop for Locked<'_, S, T, LISTS> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: we hold it, and are gone after this.
        unsafe { self.queue.inner.open() };
        irqs_back(self.irqs);
    }
}

impl<S, T, const LISTS: usize> Deref for Locked<'_, S, T, LISTS> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        // SAFETY: we hold the lock, and `&mut` to what is in it is given out by
        // `&mut self` only.
        unsafe { &(*self.queue.inner.as_ptr()).state }
    }
}

impl<S, T, const LISTS: usize> DerefMut for Locked<'_, S, T, LISTS> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.inner().state
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
        if self.node.is_enlisted() {
            // SAFETY: we hold the lock, and it is in this list.
            unsafe { self.queue.lists[self.list].remove(self.node) };
        }
        drop(locked);
    }
}

/// Calls `F` if it is unwound; forgotten where all is well.
pub(crate) struct IfUnwound<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for IfUnwound<F> {
    fn drop(&mut self) {
        (self.0)();
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
