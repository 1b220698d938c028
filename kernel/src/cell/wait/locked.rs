//! The lock of a queue, held: the state, and what may be done to those who wait.
//!
//! [`Locked`] is what the other side has in hand: it gives, takes, grants, nudges.
//! How one waits is in the folder's own file; what a node is, in `node`.

use super::node::{Enlisted, Node, Wake};
use super::{Inner, Selection, WaitQueue, park_by};
use crate::cell::sys::irq::{self, IrqState};
use crate::cell::sys::{GHandle, park_from, ready_from};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// The lock, held: with interrupts off, so for few instructions. Gives access
/// to the state and to those who wait.
pub struct Locked<'a, S = (), T = (), const LISTS: usize = 1> {
    queue: &'a WaitQueue<S, T, LISTS>,
    irqs: IrqState,
    // Interrupts are off on this CPU and on no other.
    _here: PhantomData<*const ()>,
}

impl<'a, S, T, const LISTS: usize> Locked<'a, S, T, LISTS> {
    /// Takes the lock of `queue`.
    #[inline(always)]
    pub(super) fn new(queue: &'a WaitQueue<S, T, LISTS>) -> Self {
        Locked { queue, irqs: queue.inner.hold(), _here: PhantomData }
    }

    /// As [`new`](Self::new), for who knows that interrupts are on.
    #[inline(always)]
    pub(super) fn with_irqs_on(queue: &'a WaitQueue<S, T, LISTS>) -> Self {
        Locked { queue, irqs: queue.inner.hold_with_irqs_on(), _here: PhantomData }
    }

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
    pub(super) fn park(self, g: GHandle, deadline_ns: Option<u64>) -> bool {
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
    #[inline(always)]
    pub fn give(&mut self, list: usize, mut value: T) -> Result<Wake, T> {
        while let Some(node) = self.pop(list) {
            // SAFETY: popped under the lock, which we hold, so it is alive.
            if let Some(wake) = unsafe { node.alone() } {
                // SAFETY: as above, and the slot is the lock holder's.
                unsafe { node.fill(value) };
                // SAFETY: as above; we do not touch the node any more.
                unsafe { node.end() };
                return Ok(wake);
            }
            // SAFETY: as above; it selects.
            value = match unsafe { give_selecting(node, value) } {
                Ok(wake) => return Ok(wake),
                Err(value) => value,
            };
        }
        Err(value)
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

    /// Takes the first node out of `list` whose slot `is_it` accepts, for a G that never runs
    /// again. False if there is none.
    pub fn take_out(&mut self, list: usize, is_it: impl Fn(T) -> bool) -> bool
    where
        T: Copy,
    {
        let mut nodes = self.nodes(list);
        // SAFETY: in the list, and we hold the lock, so it is alive.
        let Some(node) = nodes.find(|node| unsafe { node.peek() }.is_some_and(&is_it)) else {
            return false;
        };
        // SAFETY: we hold the lock, and it is in this list.
        unsafe { self.queue.lists[list].take_out(node) };
        true
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
    pub(super) unsafe fn push(&mut self, list: usize, node: &Node<T>) {
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
#[inline(always)]
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

impl<S, T, const LISTS: usize> Drop for Locked<'_, S, T, LISTS> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: we hold it, and are gone after this.
        unsafe { self.queue.inner.open() };
        irq::restore(self.irqs);
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
