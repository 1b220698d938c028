//! Nodes and the line that they stand in.
//!
//! Who may touch what is said at the head of the folder.

use super::ticket::{Ticket, Wake};
use crate::lock::IrqLock;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

#[cfg(not(loom))]
use core::cell::{Cell, UnsafeCell};
#[cfg(loom)]
use loom::cell::{Cell, UnsafeCell};

/// What the queue sees of a waiter. `ticket` does not change; all else is
/// in cells, so that a node may go while somebody still has a reference to one.
pub(super) struct Node<T> {
    pub(super) next: Cell<*mut Node<T>>,
    prev: Cell<*mut Node<T>>,
    pub(super) linked: Cell<bool>,
    pub(super) ticket: *const Ticket,
    pub(super) slot: Slot<T>,
}

impl<T> Node<T> {
    /// A node that is in no queue.
    #[inline(always)]
    pub(super) fn new(ticket: *const Ticket, value: Option<T>) -> Self {
        Node {
            next: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            linked: Cell::new(false),
            ticket,
            slot: Slot::new(value),
        }
    }
}

/// Exchanges what is in the node's slot.
///
/// # Safety
/// The node is alive, and the caller holds the lock of its queue.
#[inline]
pub(super) unsafe fn set<T>(node: NonNull<Node<T>>, value: Option<T>) -> Option<T> {
    // SAFETY: alive.
    let slot = unsafe { &(*node.as_ptr()).slot };
    // SAFETY: the slot is the lock holder's.
    unsafe { slot.replace(value) }
}

/// Whether nobody seems to have won the node's ticket yet.
///
/// # Safety
/// The node is alive.
#[inline]
pub(super) unsafe fn is_open<T>(node: NonNull<Node<T>>) -> bool {
    // SAFETY: alive.
    let ticket = unsafe { (*node.as_ptr()).ticket };
    // SAFETY: it is alive as long as the node is, once that was enlisted.
    unsafe { Ticket::is_open(ticket) }
}

/// Wins the node's ticket for it, unless somebody else did: then `None`.
///
/// # Safety
/// The node is alive and in no queue, and the caller holds the lock of the queue
/// where it was. On success the node may be gone when this returns.
#[inline]
pub(super) unsafe fn win<T>(node: NonNull<Node<T>>) -> Option<Wake> {
    // SAFETY: alive.
    let ticket = unsafe { (*node.as_ptr()).ticket };
    // SAFETY: the ticket of a node that was enlisted: alive as long as the node
    // is, and begun.
    unsafe { Ticket::win(ticket, node.as_ptr().cast()) }
}

/// A line of nodes, first come first served. All of it belongs to the holder of
/// the lock beside it; atomics only so that anybody may glance at the head.
pub(super) struct Queue<T> {
    head: AtomicPtr<Node<T>>,
    tail: AtomicPtr<Node<T>>,
    /// Values go from CPU to CPU through the nodes: as a lock's content would.
    _values: PhantomData<IrqLock<T>>,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Queue {
            head: AtomicPtr::new(ptr::null_mut()),
            tail: AtomicPtr::new(ptr::null_mut()),
            _values: PhantomData,
        }
    }

    /// The one that has waited longest.
    #[inline]
    pub(super) fn head(&self) -> Option<NonNull<Node<T>>> {
        NonNull::new(self.head.load(Relaxed))
    }

    /// # Safety
    /// The caller holds the lock. The node is in no queue, and stays alive and
    /// where it is until it is taken out of this one.
    #[inline]
    pub(super) unsafe fn push(&self, node: NonNull<Node<T>>) {
        let last = self.tail.load(Relaxed);
        // SAFETY: alive.
        let new = unsafe { &*node.as_ptr() };
        new.prev.set(last);
        new.next.set(ptr::null_mut());
        new.linked.set(true);
        // SAFETY: null, or in the queue and so alive.
        match unsafe { last.as_ref() } {
            Some(last) => last.next.set(node.as_ptr()),
            None => self.head.store(node.as_ptr(), Relaxed),
        }
        self.tail.store(node.as_ptr(), Relaxed);
    }

    /// # Safety
    /// The caller holds the lock, and the node is in this queue.
    #[inline]
    pub(super) unsafe fn remove(&self, node: NonNull<Node<T>>) {
        // SAFETY: in the queue and so alive.
        let old = unsafe { &*node.as_ptr() };
        let (prev, next) = (old.prev.get(), old.next.get());
        // SAFETY: null, or in the queue and so alive.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head.store(next, Relaxed),
        }
        // SAFETY: null, or in the queue and so alive.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail.store(prev, Relaxed),
        }
        old.linked.set(false);
    }
}

/// A place for a value; who may touch it is said at the head of the file.
pub(super) struct Slot<T>(UnsafeCell<Option<T>>);

impl<T> Slot<T> {
    #[inline(always)]
    fn new(value: Option<T>) -> Self {
        Slot(UnsafeCell::new(value))
    }

    /// # Safety
    /// The slot is the caller's.
    #[inline]
    pub(super) unsafe fn replace(&self, value: Option<T>) -> Option<T> {
        #[cfg(not(loom))]
        // SAFETY: nobody else touches it, says the caller.
        return unsafe { self.0.get().replace(value) };
        #[cfg(loom)]
        // SAFETY: nobody else touches it, says the caller; loom checks.
        return self.0.with_mut(|slot| unsafe { slot.replace(value) });
    }
}
