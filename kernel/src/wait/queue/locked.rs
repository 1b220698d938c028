//! The lock of a queue, held: the state, and the waker's side of a wait.
//!
//! [`Locked`] gives, takes, grants, nudges. How a G waits is in the folder's own file; what a node
//! is, in `node`.

use super::node::{Enlisted, Node, Wake};
use super::{Inner, Selection, WaitQueue, park_by};
use crate::run::sys::irq::IrqState;
use crate::run::sys::{GHandle, irq, park_from, ready_from};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

/// The lock, held: with interrupts off, so for few instructions. Gives access to the state and to
/// the waiting Gs.
pub struct Locked<'a, S = (), T = (), const LISTS: usize = 1> {
    pub(super) queue: &'a WaitQueue<S, T, LISTS>,
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

    /// As [`new`](Self::new), for callers that know that interrupts are on.
    #[inline(always)]
    pub(super) fn with_irqs_on(queue: &'a WaitQueue<S, T, LISTS>) -> Self {
        Locked { queue, irqs: queue.inner.hold_with_irqs_on(), _here: PhantomData }
    }

    /// Frees the lock and readies a G, with interrupts off from the one to the other: a CPU that
    /// takes the lock next does not wait for an interrupt handler here.
    #[inline(always)]
    pub fn ready(self, wake: Wake) {
        let this = ManuallyDrop::new(self);
        // SAFETY: we hold it, and `this` is not dropped.
        unsafe { this.queue.inner.open() };
        ready_from(this.irqs, wake.0);
    }

    /// Frees the lock, and readies a G if there is one.
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

    /// Whether no G waits in `list`.
    #[inline(always)]
    pub fn is_empty(&self, list: usize) -> bool {
        self.queue.lists[list].is_empty()
    }

    /// What is in the slot of the first in `list`.
    pub fn front(&self, list: usize) -> Option<T>
    where
        T: Copy,
    {
        self.first(list)?.peek()
    }

    /// The number of the first in `list`: see [`new_number`](Self::new_number).
    pub fn front_number(&self, list: usize) -> Option<u64> {
        Some(self.first(list)?.number())
    }

    /// A number for the nodes that are enlisted from here on, in whatever list; all that are
    /// enlisted now have lower ones.
    pub fn new_number(&mut self) -> u64 {
        let inner = self.inner();
        inner.number += 1;
        inner.number
    }

    /// How many Gs have ever waited here.
    #[cfg(test)]
    pub(crate) fn queued_ever(&mut self) -> u64 {
        self.inner().queued
    }

    /// Puts `value` into the slot of the first in `list` and ends its wait; or returns the value if
    /// no G waits there.
    #[inline(always)]
    pub fn give(&mut self, list: usize, mut value: T) -> Result<Wake, T> {
        while let Some(node) = self.pop(list) {
            if !node.is_open() {
                node.pass_over();
                continue;
            }
            node.fill(value);
            value = match node.end() {
                Ok(wake) => return Ok(wake),
                Err(node) => node.take().expect("it was put there"),
            };
        }
        Err(value)
    }

    /// As [`give`](Self::give), if the first in `list` waits there only: the common case, in few
    /// instructions.
    #[inline(always)]
    pub fn give_alone(&mut self, list: usize, value: T) -> Result<Wake, T> {
        let first = self.first(list).and_then(|node| Some((node.alone()?, node)));
        let Some((wake, node)) = first else { return Err(value) };
        // SAFETY: we hold the lock, and it is the first.
        unsafe { self.queue.lists[list].unlink_first(&node) };
        node.fill(value);
        node.pass_over();
        Ok(wake)
    }

    /// Takes the value out of the slot of the first in `list` and ends its wait.
    #[inline(always)]
    pub fn take(&mut self, list: usize) -> Option<(T, Wake)> {
        while let Some(node) = self.pop(list) {
            if !node.is_open() {
                node.pass_over();
                continue;
            }
            let Some(value) = node.take() else {
                node.pass_over(); // a case that is in two lines has its value in one
                continue;
            };
            match node.end() {
                Ok(wake) => return Some((value, wake)),
                Err(node) => node.fill(value),
            }
        }
        None
    }

    /// As [`take`](Self::take), if the first in `list` waits there only: the common case, in few
    /// instructions.
    #[inline(always)]
    pub fn take_alone(&mut self, list: usize) -> Option<(T, Wake)> {
        let node = self.first(list)?;
        let wake = node.alone()?;
        // SAFETY: we hold the lock, and it is the first.
        unsafe { self.queue.lists[list].unlink_first(&node) };
        let value = node.take();
        node.pass_over();
        value.map(|value| (value, wake))
    }

    /// Ends the wait of the first in `list` and leaves its slot as it is.
    #[inline]
    pub fn grant(&mut self, list: usize) -> Option<Wake> {
        while let Some(node) = self.pop(list) {
            if let Ok(wake) = node.end() {
                return Some(wake);
            }
        }
        None
    }

    /// Lets the first in `list` check for itself. It keeps its place.
    pub fn nudge(&mut self, list: usize) -> Option<Wake> {
        self.first(list)?.nudge()
    }

    /// Takes the first node out of `list` whose slot `is_it` accepts, for a G that never runs
    /// again. False if there is none.
    pub fn take_out(&mut self, list: usize, is_it: impl Fn(T) -> bool) -> bool
    where
        T: Copy,
    {
        let found = self.nodes(list).find(|node| node.peek().is_some_and(&is_it));
        // SAFETY: we hold the lock, and it is in this list.
        found.map(|node| unsafe { self.queue.lists[list].remove(node.node()) }).is_some()
    }

    /// Whether a G waits in `list` whose wait can be ended, other than by `mine`.
    pub fn is_waited_for(&self, list: usize, mine: &Selection) -> bool {
        self.nodes(list).any(|node| !node.has_ticket(mine.ticket()) && node.is_open())
    }

    /// How many are in that list.
    #[cfg(test)]
    pub(crate) fn waiting(&self, list: usize) -> usize {
        self.nodes(list).count()
    }

    /// The nodes of that list, first to last; they stay there while this is used.
    fn nodes(&self, list: usize) -> impl Iterator<Item = Enlisted<'_, T>> {
        core::iter::successors(self.first(list), Enlisted::next)
    }

    /// The first in `list`.
    #[inline(always)]
    fn first(&self, list: usize) -> Option<Enlisted<'_, T>> {
        // SAFETY: we hold the lock as long as `self` is borrowed.
        unsafe { self.queue.lists[list].head() }
    }

    /// Takes the first out of `list`.
    #[inline(always)]
    fn pop(&mut self, list: usize) -> Option<Enlisted<'_, T>> {
        // SAFETY: we hold the lock as long as `self` is borrowed.
        unsafe { self.queue.lists[list].pop() }
    }

    /// Takes out `node`, if it is in `list`.
    ///
    /// # Safety
    /// It is in no other list.
    #[inline(always)]
    pub(super) unsafe fn remove(&mut self, list: usize, node: &Node<T>) {
        if node.is_enlisted() {
            // SAFETY: we hold the lock, and it is in this list, says the caller.
            unsafe { self.queue.lists[list].remove(node) };
        }
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

    #[inline(always)]
    fn inner(&mut self) -> &mut Inner<S> {
        // SAFETY: we hold the lock, and this is the one way to what is in it.
        unsafe { &mut *self.queue.inner.as_ptr() }
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
