//! The lock of a queue, held: the state, the lists, and both sides of a wait.
//!
//! The nodes are here too; the rules of their ownership are in `mod.rs`.

use super::{Inner, Place, Selection, WaitQueue, Waited, park_by};
use crate::run::sys::irq::{self, IrqState};
use crate::run::sys::{
    AtomicU64, Cell, GHandle, UnsafeCell, Wait, begin_park, begin_wait, die, end_limit, is_killed,
    park_unlock, ready, ready_from,
};
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The lock, held, with interrupts off, so for few instructions: the state and the waiting Gs.
pub struct Locked<'a, S = (), T = (), const LISTS: usize = 1> {
    queue: &'a WaitQueue<S, T, LISTS>,
    /// As they were before.
    irqs: IrqState,
    // Interrupts are off on this CPU and on no other.
    _here: PhantomData<*const ()>,
}

impl<'a, S, T, const LISTS: usize> Locked<'a, S, T, LISTS> {
    /// The lock of `queue` was taken.
    #[inline(always)]
    pub(super) fn new(queue: &'a WaitQueue<S, T, LISTS>, irqs: IrqState) -> Self {
        Locked { queue, irqs, _here: PhantomData }
    }

    /// Waits at the end of a list until the other side ends it or the deadline comes.
    ///
    /// This is the lock under which the caller saw that it must wait. `check` is called under the
    /// lock when the G was woken for no other reason, and once more at the deadline: true if it
    /// took what is waited for. A G that is killed leaves the list and unwinds from here. What a
    /// caller does for the Gs behind it after a time-out it then does by an
    /// [`IfUnwound`](super::IfUnwound).
    #[inline(always)]
    pub fn wait(
        self,
        place: Place<T>,
        check: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        self.wait_watching(place, None::<fn()>, check)
    }

    /// As [`wait`](Self::wait); `begun` runs each time that the wait has begun, or begun again, and
    /// the lock is free: others can see by then that it waits.
    ///
    /// Without `begun` and deadline the G keeps the lock until it is parked; else it waits in two
    /// steps, and a wake-up may come between.
    #[inline(always)]
    pub fn wait_watching(
        mut self,
        Place { reason, list, value, deadline_ns }: Place<T>,
        mut begun: Option<impl FnMut()>,
        check: impl FnMut(&mut S) -> bool,
    ) -> Waited<'a, S, T, LISTS> {
        let queue = self.queue;
        // From the beginning: a limited wait is no link of a cycle (`fail::deadlock::cycle`).
        let wait = Wait::at(reason, queue).by(deadline_ns);
        let is_one_step = begun.is_none() && deadline_ns.is_none();
        let g = if is_one_step { begin_wait(wait) } else { begin_park(wait) };
        let node = Node::new(Who::Alone(g.clone()), value);
        // SAFETY: the node is new. It is out of the list at each return: the G that granted has
        // taken it out, else `check_again`, or [`IfUnwound`]. (A refused park stops the machine.)
        unsafe { self.push(list, &node) };
        let mut in_time = true;
        if is_one_step {
            let this = ManuallyDrop::new(self);
            // SAFETY: we hold it, and `this` is not dropped; the queue is borrowed by the G that
            // waits.
            unsafe { park_unlock(this.irqs, g, reason, &queue.inner) };
        } else {
            in_time = self.park(list, &node, deadline_ns, &mut begun);
        }
        let waited = match node.is_enlisted() {
            true => queue.check_again(&node, list, (wait, deadline_ns), in_time, begun, check),
            false => None,
        };
        // SAFETY: it is out of the list, so the slot is ours again.
        let value = unsafe { node.replace(None) };
        match waited {
            None => Waited::Granted(value),
            Some((locked, true)) => Waited::Took(locked),
            Some((locked, false)) => Waited::TimedOut(locked, value),
        }
    }

    /// The second step of a wait: frees the lock, runs `begun`, and parks, until `deadline_ns` at
    /// most; false if that came first. Takes the node out if `begun` unwinds.
    fn park(
        self,
        list: usize,
        node: &Node<T>,
        deadline_ns: Option<u64>,
        begun: &mut Option<impl FnMut()>,
    ) -> bool {
        let if_unwound = self.queue.leaves_if_unwound(list, node);
        drop(self);
        if let Some(begun) = begun {
            begun();
        }
        core::mem::forget(if_unwound);
        park_by(deadline_ns)
    }

    /// Begins to wait as [`wait`](Self::wait) does, and returns without parking. The node
    /// stays in its list for ever, as that of a G that was abandoned in between.
    #[cfg(loom)]
    pub fn enlist_for_ever(mut self, Place { reason, list, value, .. }: Place<T>)
    where
        T: 'static,
    {
        let g = begin_park(Wait::at(reason, self.queue));
        let node = alloc::boxed::Box::leak(alloc::boxed::Box::new(Node::new(Who::Alone(g), value)));
        // SAFETY: the node is new, and lives for ever.
        unsafe { self.push(list, node) };
    }

    /// Frees the lock and readies a G, with interrupts off in between: a CPU that takes the lock
    /// next does not wait for an interrupt handler here.
    #[inline(always)]
    pub fn ready(self, wake: ToReady) {
        let this = ManuallyDrop::new(self);
        // SAFETY: we hold it, and `this` is not dropped.
        unsafe { this.queue.inner.open() };
        ready_from(this.irqs, wake.0);
    }

    /// Frees the lock, and readies a G if there is one.
    #[inline(always)]
    pub fn ready_if(self, wake: Option<ToReady>) {
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
        Some(self.first(list)?.node().state.load(Relaxed))
    }

    /// A number for the nodes that are enlisted from here on; those enlisted now have lower ones.
    pub fn new_number(&mut self) -> u64 {
        let inner = self.inner();
        inner.number += 1;
        inner.number
    }

    /// Puts `value` into the slot of the first in `list` and ends its wait; or returns the value.
    #[inline(always)]
    pub fn give(&mut self, list: usize, mut value: T) -> Result<ToReady, T> {
        while let Some(first) = self.first(list) {
            value = match first.give(value) {
                Ok(wake) => return Ok(wake),
                Err(value) => value,
            };
        }
        Err(value)
    }

    /// Takes the value out of the slot of the first in `list` and ends its wait.
    #[inline(always)]
    pub fn take(&mut self, list: usize) -> Option<(T, ToReady)> {
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

    /// Ends the wait of the first in `list` and leaves its slot as it is.
    #[inline]
    pub fn grant(&mut self, list: usize) -> Option<ToReady> {
        while let Some(node) = self.pop(list) {
            if let Ok(wake) = node.end() {
                return Some(wake);
            }
        }
        None
    }

    /// Ends the wait of the first in `list`, and of no other; `None` if it has lost its selection:
    /// then it is out of the list.
    pub fn grant_first(&mut self, list: usize) -> Option<ToReady> {
        self.pop(list)?.end().ok()
    }

    /// Lets the first in `list`, which does not select, check for itself. It keeps its place.
    pub fn nudge(&mut self, list: usize) -> Option<ToReady> {
        self.first(list)?.alone()
    }

    /// Takes out the first node of `list` that `is_it` accepts, for a G that never runs again.
    pub fn take_out(&mut self, list: usize, is_it: impl Fn(T) -> bool) -> bool
    where
        T: Copy,
    {
        let found = self.nodes(list).find(|node| node.peek().is_some_and(&is_it));
        found.inspect(Enlisted::leave).is_some()
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
        let head = &self.queue.heads[list];
        let first = head.load(Relaxed);
        core::iter::successors(self.first(list), move |node| {
            let next = NonNull::new(node.node().next.get()).filter(|next| next.as_ptr() != first);
            // SAFETY: in the list, and we hold the lock as long as `self` is borrowed.
            next.map(|next| unsafe { Enlisted::new(head, next) })
        })
    }

    #[inline(always)]
    pub fn first(&self, list: usize) -> Option<Enlisted<'_, T>> {
        let head = &self.queue.heads[list];
        let first = NonNull::new(head.load(Relaxed))?;
        // SAFETY: in the list, and we hold the lock as long as `self` is borrowed.
        Some(unsafe { Enlisted::new(head, first) })
    }

    /// Takes the first out of `list`. Its state still says that it is in: the caller owes it an
    /// [`end`](Enlisted::end) or [`set_out`](Enlisted::set_out).
    #[inline(always)]
    fn pop(&mut self, list: usize) -> Option<Enlisted<'_, T>> {
        self.first(list).inspect(Enlisted::unlink)
    }

    /// Takes out `node`, if it is in `list`.
    ///
    /// # Safety
    /// It is in no other list.
    #[inline(always)]
    pub(super) unsafe fn remove(&self, list: usize, node: &Node<T>) {
        if node.is_enlisted() {
            // SAFETY: it is in this list, says the caller, and we hold the lock.
            unsafe { Enlisted::new(&self.queue.heads[list], NonNull::from(node)) }.leave();
        }
    }

    /// Puts a node at the end of a list.
    ///
    /// # Safety
    /// The node is in no list and its links are null, its selection has begun, and both stay alive
    /// and where they are until it is taken out.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, list: usize, node: &Node<T>) {
        let inner = self.inner();
        #[cfg(test)]
        (inner.queued += 1);
        node.state.store(inner.number, Relaxed); // the lock orders it
        let head = &self.queue.heads[list];
        match self.first(list) {
            None => head.store(ptr::from_ref(node).cast_mut(), Relaxed),
            Some(first) => first.link_last(node),
        }
    }

    #[inline(always)]
    fn inner(&mut self) -> &mut Inner<S> {
        // SAFETY: we hold the lock, and this is the one way to what is in it.
        unsafe { &mut *self.queue.inner.as_ptr() }
    }
}

impl<S, T, const LISTS: usize> WaitQueue<S, T, LISTS> {
    /// The G of `node` was woken, and its wait was not ended: it checks for itself, and waits on,
    /// in two steps. `None` if its wait was ended; else the node is out of the list, and whether
    /// `check` took.
    #[cold]
    fn check_again<'a>(
        &'a self,
        node: &Node<T>,
        list: usize,
        (wait, deadline_ns): (Wait, Option<u64>),
        mut in_time: bool,
        mut begun: Option<impl FnMut()>,
        mut check: impl FnMut(&mut S) -> bool,
    ) -> Option<(Locked<'a, S, T, LISTS>, bool)> {
        let if_unwound = self.leaves_if_unwound(list, node);
        let waited = loop {
            let mut locked = self.lock();
            if !node.is_enlisted() {
                break None;
            }
            let took = check(&mut locked);
            if took || !in_time || is_killed() {
                // SAFETY: it is in this list.
                unsafe { locked.remove(list, node) };
                if !took && is_killed() {
                    drop(locked);
                    die();
                }
                break Some((locked, took));
            }
            // Still under the lock: a nudge or grant from here on finds this G parking.
            let _ = begin_park(wait);
            in_time = locked.park(list, node, deadline_ns, &mut begun);
        };
        core::mem::forget(if_unwound);
        waited
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
pub struct ToReady(pub(super) GHandle);

impl ToReady {
    /// Ends the limit of its wait, before it is readied: see `wait::limit`.
    pub(crate) fn end_limit(&self) {
        end_limit(&self.0);
    }

    /// Readies it.
    #[inline]
    pub fn ready(self) {
        ready(self.0);
    }
}

/// A waiting G. `who` does not change while it is enlisted; all else is in cells, so that a node
/// may go while a reference to a cell exists.
pub(super) struct Node<T> {
    /// The neighbours, where the last node of a list is before the first. If it is the only one, as
    /// it is most often, `next` is null, and `prev` is not looked at.
    next: Cell<*mut Node<T>>,
    prev: Cell<MaybeUninit<*mut Node<T>>>,
    /// The queue's number when the node was enlisted ([`Locked::new_number`]); [`OUT`] if it is in
    /// no list. The G that ends the wait stores `OUT`; the waiting G loads it without the lock.
    state: AtomicU64,
    who: Who,
    slot: UnsafeCell<Option<T>>,
}

const OUT: u64 = 0;

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
            prev: Cell::new(MaybeUninit::uninit()),
            state: AtomicU64::new(OUT),
            who,
            slot: UnsafeCell::new(value),
        }
    }

    /// Whether it is in a list. For the lock holder; or for the owner, if it is alone.
    #[inline(always)]
    pub(super) fn is_enlisted(&self) -> bool {
        self.state.load(Acquire) != OUT // pairs with `set_out`
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
pub struct Enlisted<'lock, T> {
    /// The first of its list.
    head: &'lock AtomicPtr<Node<T>>,
    node: NonNull<Node<T>>,
}

impl<'lock, T> Enlisted<'lock, T> {
    /// # Safety
    /// The node is in the list that begins with `head`, whose lock is held during the lifetime of
    /// this; there is no other value for this node that was taken out of the list.
    #[inline(always)]
    unsafe fn new(head: &'lock AtomicPtr<Node<T>>, node: NonNull<Node<T>>) -> Self {
        Enlisted { head, node }
    }

    /// Takes the node out of the list, puts `value` into its slot and ends the wait of its G.
    ///
    /// # Errors
    /// The value, if another node has won the selection that this node belongs to.
    #[inline(always)]
    pub fn give(self, value: T) -> Result<ToReady, T> {
        self.unlink();
        self.fill(value);
        self.end().map_err(|node| node.take().expect("it was put there"))
    }

    /// Takes the value out of its slot and ends its wait, if it waits in this list only: the
    /// common, fast case.
    #[inline(always)]
    pub fn take_alone(self) -> Option<(T, ToReady)> {
        let wake = self.alone()?;
        self.unlink();
        let value = self.take();
        self.set_out();
        value.map(|value| (value, wake))
    }

    /// Takes it out of its list, for a G that waits no longer.
    #[inline(always)]
    fn leave(&self) {
        self.unlink();
        self.set_out();
    }

    /// Unlinks it from its neighbours.
    #[inline(always)]
    fn unlink(&self) {
        match NonNull::new(self.node().next.get()) {
            None => self.head.store(ptr::null_mut(), Relaxed), // it was the only one
            Some(next) => self.unlink_from(next),
        }
    }

    /// As a part of [`unlink`](Self::unlink), not as a call, for which all callers would save
    /// registers.
    #[inline(always)]
    fn unlink_from(&self, next: NonNull<Node<T>>) {
        // SAFETY: it is not the only one, so it was set.
        let prev = unsafe { self.node().prev.get().assume_init() };
        self.node().next.set(ptr::null_mut());
        if ptr::eq(self.head.load(Relaxed), self.node.as_ptr()) {
            self.head.store(next.as_ptr(), Relaxed);
        }
        let is_only = ptr::eq(prev, next.as_ptr());
        // SAFETY: in the list and so alive.
        let before = unsafe { &*prev };
        // SAFETY: the same.
        let after = unsafe { next.as_ref() };
        before.next.set(if is_only { ptr::null_mut() } else { next.as_ptr() });
        after.prev.set(MaybeUninit::new(prev));
    }

    /// Puts `node` at the end of the list that begins with this one.
    #[inline(always)]
    fn link_last(&self, node: &Node<T>) {
        let (first, this) = (self.node.as_ptr(), ptr::from_ref(node).cast_mut());
        let last = match self.node().next.get().is_null() {
            true => first,
            // SAFETY: it is not the only one, so it was set.
            false => unsafe { self.node().prev.get().assume_init() },
        };
        node.prev.set(MaybeUninit::new(last));
        node.next.set(first);
        self.node().prev.set(MaybeUninit::new(this));
        // SAFETY: in the list and so alive.
        unsafe { &*last }.next.set(this);
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
    fn alone(&self) -> Option<ToReady> {
        match &self.node().who {
            Who::Alone(g) => Some(ToReady(g.clone())),
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
    fn end(self) -> Result<ToReady, Self> {
        let alone = self.alone();
        self.set_out(); // the owner of one that selects reads this under the lock only
        alone.or_else(|| self.selection()?.win(self.node.as_ptr().cast())).ok_or(self)
    }

    /// Says that it was taken out of its list. If it is alone, that ends its wait.
    #[inline(always)]
    fn set_out(&self) {
        // SAFETY: alive. Only this reference to an atomic exists while the node may go.
        let state = unsafe { &(*self.node.as_ptr()).state };
        state.store(OUT, Release); // what we did to the slot; pairs with `is_enlisted`
    }
}
