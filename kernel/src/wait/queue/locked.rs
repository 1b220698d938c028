//! The lock of a queue, held: the state, the lists, and the waker's side of a wait.
//!
//! The nodes are here too; the rules of their ownership, and how a G waits, are in `mod.rs`.

use super::{Inner, Selection, WaitQueue, park_by};
use crate::run::sys::irq::IrqState;
use crate::run::sys::{AtomicU32, Cell, GHandle, UnsafeCell, irq, park_from, ready, ready_from};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The lock, held, with interrupts off, so for few instructions: the state and the waiting Gs.
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

    /// Frees the lock, and leaves interrupts off; what they were before.
    #[inline(always)]
    fn open(self) -> IrqState {
        let this = ManuallyDrop::new(self);
        // SAFETY: we hold it, and `this` is not dropped.
        unsafe { this.queue.inner.open() };
        this.irqs
    }

    /// Frees the lock and readies a G, with interrupts off in between: a CPU that takes the lock
    /// next does not wait for an interrupt handler here.
    #[inline(always)]
    pub fn ready(self, wake: Wake) {
        ready_from(self.open(), wake.0);
    }

    /// Frees the lock and parks `g`, which is the running G and has begun to; until `deadline_ns`
    /// at most, false if that came first. Without a deadline interrupts are off up to the switch.
    #[inline(always)]
    pub(super) fn park(self, g: GHandle, deadline_ns: Option<u64>) -> bool {
        if deadline_ns.is_some() {
            drop(self);
            return park_by(deadline_ns);
        }
        park_from(self.open(), g);
        true
    }

    /// Frees the lock, and readies a G if there is one.
    #[inline(always)]
    pub fn ready_if(self, wake: Option<Wake>) {
        if let Some(wake) = wake {
            self.ready(wake);
        }
    }

    /// Whether no G waits in `list`.
    #[inline(always)]
    pub fn is_empty(&self, list: usize) -> bool {
        !self.queue.looks_waited_for(list)
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
        Some(self.first(list)?.node().number.get())
    }

    /// A number for the nodes that are enlisted from here on; those enlisted now have lower ones.
    pub fn new_number(&mut self) -> u64 {
        let inner = self.inner();
        inner.number += 1;
        inner.number
    }

    /// Puts `value` into the slot of the first in `list` and ends its wait; or returns the value.
    #[inline(always)]
    pub fn give(&mut self, list: usize, mut value: T) -> Result<Wake, T> {
        while let Some(node) = self.pop(list) {
            node.fill(value);
            value = match node.end() {
                Ok(wake) => return Ok(wake),
                Err(node) => node.take().expect("it was put there"),
            };
        }
        Err(value)
    }

    /// Takes the value out of the slot of the first in `list` and ends its wait.
    #[inline(always)]
    pub fn take(&mut self, list: usize) -> Option<(T, Wake)> {
        while let Some(node) = self.pop(list) {
            let Some(value) = node.take() else {
                node.set_out(); // a case that is in two lines has its value in one
                continue;
            };
            match node.end() {
                Ok(wake) => return Some((value, wake)),
                Err(node) => node.fill(value),
            }
        }
        None
    }

    /// As [`take`](Self::take), if the first in `list` waits there only: the common, fast case.
    #[inline(always)]
    pub fn take_alone(&mut self, list: usize) -> Option<(T, Wake)> {
        let node = self.first(list)?;
        let wake = node.alone()?;
        // SAFETY: it is in this list.
        unsafe { self.unlink(list, node.node()) };
        let value = node.take();
        node.set_out();
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

    /// Lets the first in `list`, which does not select, check for itself. It keeps its place.
    pub fn nudge(&mut self, list: usize) -> Option<Wake> {
        self.first(list)?.alone()
    }

    /// Takes out the first node of `list` that `is_it` accepts, for a G that never runs again.
    pub fn take_out(&mut self, list: usize, is_it: impl Fn(T) -> bool) -> bool
    where
        T: Copy,
    {
        let found = self.nodes(list).find(|node| node.peek().is_some_and(&is_it));
        // SAFETY: it is in this list.
        found.map(|node| unsafe { self.remove(list, node.node()) }).is_some()
    }

    /// Whether a G waits in `list` whose wait can be ended, other than by `mine`.
    #[inline(never)]
    pub(super) fn is_waited_for(&self, list: usize, mine: &Selection) -> bool {
        self.nodes(list).any(|node| {
            let is_open = |own: &Selection| own.word.load(Relaxed).is_null();
            node.selection().is_none_or(|own| !ptr::eq(own, mine) && is_open(own))
        })
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self, list: usize) -> usize {
        self.nodes(list).count()
    }

    #[cfg(test)]
    pub(crate) fn queued_ever(&mut self) -> u64 {
        self.inner().queued
    }

    /// The nodes of that list, first to last; they stay there while this is used.
    fn nodes(&self, list: usize) -> impl Iterator<Item = Enlisted<'_, T>> {
        let head = self.queue.heads[list].load(Relaxed);
        core::iter::successors(self.first(list), move |node| {
            let next = NonNull::new(node.node().next.get()).filter(|next| next.as_ptr() != head);
            // SAFETY: in the list, and we hold the lock as long as `self` is borrowed.
            next.map(|next| unsafe { Enlisted::new(next) })
        })
    }

    #[inline(always)]
    fn first(&self, list: usize) -> Option<Enlisted<'_, T>> {
        let first = NonNull::new(self.queue.heads[list].load(Relaxed))?;
        // SAFETY: in the list, and we hold the lock as long as `self` is borrowed.
        Some(unsafe { Enlisted::new(first) })
    }

    /// Takes the first out of `list`. Its state still says ENLISTED: the caller owes it an
    /// [`end`](Enlisted::end) or [`set_out`](Enlisted::set_out).
    #[inline(always)]
    fn pop(&mut self, list: usize) -> Option<Enlisted<'_, T>> {
        let first = self.first(list)?;
        // SAFETY: it is in this list.
        unsafe { self.unlink(list, first.node()) };
        Some(first)
    }

    /// Takes out `node`, if it is in `list`.
    ///
    /// # Safety
    /// It is in no other list.
    #[inline(always)]
    pub(super) unsafe fn remove(&self, list: usize, node: &Node<T>) {
        if node.is_enlisted() {
            // SAFETY: it is in this list, says the caller.
            unsafe { self.unlink(list, node) };
            node.state.store(OUT, Relaxed); // the owner's, or under the lock
        }
    }

    /// Puts a node at the end of a list.
    ///
    /// # Safety
    /// The node is in no list, its selection has begun, and both stay alive and where
    /// they are until it is taken out.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, list: usize, node: &Node<T>) {
        let inner = self.inner();
        #[cfg(test)]
        (inner.queued += 1);
        node.number.set(inner.number);
        node.state.store(ENLISTED, Relaxed); // the lock orders it
        let this = ptr::from_ref(node).cast_mut();
        let head = self.queue.heads[list].load(Relaxed);
        // SAFETY: null, or in the list and so alive.
        let Some(first) = (unsafe { head.as_ref() }) else {
            node.prev.set(this);
            node.next.set(this);
            self.queue.heads[list].store(this, Relaxed);
            return;
        };
        let last = first.prev.get();
        node.prev.set(last);
        node.next.set(head);
        first.prev.set(this);
        // SAFETY: in the list and so alive.
        unsafe { &*last }.next.set(this);
    }

    /// Unlinks a node from its neighbours.
    ///
    /// # Safety
    /// It is in this list.
    #[inline(always)]
    unsafe fn unlink(&self, list: usize, node: &Node<T>) {
        let head = &self.queue.heads[list];
        let (prev, next) = (node.prev.get(), node.next.get());
        if ptr::eq(next, node) {
            head.store(ptr::null_mut(), Relaxed); // it was the only one
            return;
        }
        // SAFETY: in the list and so alive.
        unsafe { &*prev }.next.set(next);
        // SAFETY: the same.
        unsafe { &*next }.prev.set(prev);
        if ptr::eq(head.load(Relaxed), node) {
            head.store(next, Relaxed);
        }
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
        // SAFETY: we hold the lock, and `&mut` to what is in it is given out by `&mut self` only.
        unsafe { &(*self.queue.inner.as_ptr()).state }
    }
}

impl<S, T, const LISTS: usize> DerefMut for Locked<'_, S, T, LISTS> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut S {
        &mut self.inner().state
    }
}

/// A G that must be readied, once the lock is free.
#[must_use = "a G waits for this"]
pub struct Wake(GHandle);

impl Wake {
    /// Readies it.
    #[inline]
    pub fn ready(self) {
        ready(self.0);
    }
}

/// A waiting G. `who` does not change while it is enlisted; all else is in cells, so that a node
/// may go while a reference to a cell exists.
pub(super) struct Node<T> {
    /// The neighbours: the last node of a list is before the first.
    next: Cell<*mut Node<T>>,
    prev: Cell<*mut Node<T>>,
    /// `ENLISTED` while it is in a list; of a node that is alone, until its wait was ended, which
    /// its owner sees without the lock.
    state: AtomicU32,
    number: Cell<u64>,
    who: Who,
    slot: UnsafeCell<Option<T>>,
}

const OUT: u32 = 0;
const ENLISTED: u32 = 1;

/// The G of a node.
pub(super) enum Who {
    /// It waits in this list only: the lock holder that takes the node out ends the wait.
    Alone(GHandle),
    /// It waits in several: their nodes compete for this selection.
    Selecting(*const Selection),
}

impl<T> Node<T> {
    #[inline(always)]
    pub(super) fn new(who: Who, value: Option<T>) -> Self {
        Node {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            state: AtomicU32::new(OUT),
            number: Cell::new(0),
            who,
            slot: UnsafeCell::new(value),
        }
    }

    /// Whether it is in a list. For the lock holder; or for the owner, if it is alone.
    #[inline(always)]
    pub(super) fn is_enlisted(&self) -> bool {
        self.state.load(Acquire) == ENLISTED // pairs with `set_out`
    }

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
/// > The lock is held during `'lock`. So the node is alive and so is its selection, which has
/// > begun; links and slot are the caller's. [`end`](Self::end) and [`set_out`](Self::set_out) are
/// > the last touch: the owner may return from there on, and its frame is gone.
struct Enlisted<'lock, T> {
    node: NonNull<Node<T>>,
    _lock: PhantomData<&'lock Node<T>>,
}

impl<T> Enlisted<'_, T> {
    /// # Safety
    /// The node is in a list, and its lock is held during the lifetime of this; there is no other
    /// value for this node that was taken out of the list.
    #[inline(always)]
    unsafe fn new(node: NonNull<Node<T>>) -> Self {
        Enlisted { node, _lock: PhantomData }
    }

    /// What of the node is in cells, or does not change.
    #[inline(always)]
    fn node(&self) -> &Node<T> {
        // SAFETY: alive, as the type says.
        unsafe { self.node.as_ref() }
    }

    /// The selection that it competes for, if it is not alone.
    #[inline(always)]
    fn selection(&self) -> Option<&Selection> {
        match self.node().who {
            Who::Alone(_) => None,
            // SAFETY: a selection lives as long as its enlisted nodes.
            Who::Selecting(selection) => Some(unsafe { &*selection }),
        }
    }

    /// Its G, if that waits in this list only.
    #[inline(always)]
    fn alone(&self) -> Option<Wake> {
        match &self.node().who {
            Who::Alone(g) => Some(Wake(g.clone())),
            Who::Selecting(_) => None,
        }
    }

    #[inline(always)]
    fn take(&self) -> Option<T> {
        // SAFETY: the slot is the lock holder's.
        unsafe { self.node().replace(None) }
    }

    /// Puts a value into its slot, which is empty.
    #[inline(always)]
    fn fill(&self, value: T) {
        // SAFETY: the slot is the lock holder's. It is empty: `replace` would check that.
        self.node().slot.with_mut(|slot| unsafe { slot.write(Some(value)) });
    }

    fn peek(&self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: the slot is the lock holder's.
        self.node().slot.with_mut(|slot| unsafe { *slot })
    }

    /// Ends the wait of a node that was taken out of its list; fails if its selection is over.
    #[inline(always)]
    fn end(self) -> Result<Wake, Self> {
        let alone = self.alone();
        self.set_out(); // the owner of one that selects reads this under the lock only
        alone.map_or_else(|| self.win(), Ok)
    }

    /// The rest of `end`: wins the selection.
    #[inline(never)]
    fn win(self) -> Result<Wake, Self> {
        let Some(selection) = self.selection() else { return Err(self) };
        let Some(g) = selection.handle.get().cloned() else { return Err(self) };
        // Release: what we did to the slot, for the owner's loads. Acquire: see `Selection::wait`.
        let node = self.node.as_ptr().cast();
        match selection.word.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed) {
            Ok(_) => Ok(Wake(g)),
            Err(_) => Err(self),
        }
    }

    /// Says that it was taken out of its list. If it is alone, that ends its wait.
    #[inline(always)]
    fn set_out(&self) {
        // SAFETY: alive. Only this reference to an atomic exists while the node may go.
        let state = unsafe { &(*self.node.as_ptr()).state };
        state.store(OUT, Release); // what we did to the slot; pairs with `is_enlisted`
    }
}
