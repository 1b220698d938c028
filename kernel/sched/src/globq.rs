//! The global queue: for what no P holds. One lock, one list, first in first out.
//!
//! Here come the Gs that did not fit in a ring, those that were made ready
//! where no P was at hand, and those whose slice ran out. All Ps take from it,
//! by the rules in `find`. The same structure keeps the dead Gs that no P has
//! in its cache.
//!
//! **Who is taken alone.** A batch saves locks, but it deals Gs out unevenly:
//! the P that took four runs each of them a quarter as often as the P that
//! took one. That is soon over for a burst of new Gs and lasts for ever for Gs
//! that never stop. So a G whose slice ran out is taken alone: a batch ends
//! before it. All hogs then go round in one circle, whichever P they began on.

use crate::g::G;
use crate::list::{Link, List};
use crate::sync::{AtomicUsize, Relaxed, SpinLock, const_fn};

/// A list of Gs under a spin lock. Callers: any CPU, interrupts off.
pub struct GlobalQueue<K: 'static> {
    lock: SpinLock,
    // Written under the lock only.
    head: Link<K>,
    tail: Link<K>,
    // Written under the lock, read by anyone.
    len: AtomicUsize,
}

impl<K: 'static> GlobalQueue<K> {
    const_fn! {
        /// An empty queue.
        #[must_use]
        pub fn new() -> Self {
            GlobalQueue {
                lock: SpinLock::new(),
                head: Link::null(),
                tail: Link::null(),
                len: AtomicUsize::new(0),
            }
        }
    }
}

impl<K: Sync + 'static> GlobalQueue<K> {
    /// Appends one.
    pub fn push(&self, g: &'static G<K>) {
        let mut list = List::new();
        list.push(g);
        self.push_list(list);
    }

    /// Appends a list, in order, under one lock.
    pub fn push_list(&self, list: List<K>) {
        if list.is_empty() {
            return;
        }
        let _guard = self.lock.lock();
        let mut all = self.take_out();
        all.append(list);
        self.put_back(all);
    }

    /// Takes the oldest. An empty queue costs one load and no lock.
    pub fn pop(&self) -> Option<&'static G<K>> {
        self.pop_batch(1).pop()
    }

    /// Takes the oldest and, unless its slice ran out, those behind it up to
    /// `limit` in all, or up to one whose slice ran out.
    pub fn pop_batch(&self, limit: usize) -> List<K> {
        let mut batch = List::new();
        if self.is_empty() {
            return batch;
        }
        let _guard = self.lock.lock();
        let mut all = self.take_out();
        while batch.len() < limit {
            let alone = all.front().is_some_and(G::is_expired);
            if alone && !batch.is_empty() {
                break;
            }
            let Some(g) = all.pop() else { break };
            batch.push(g);
            if alone {
                break;
            }
        }
        self.put_back(all);
        batch
    }

    /// How many wait here. Without the lock: it may be over at once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether nobody waits here. Without the lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Under the lock.
    fn take_out(&self) -> List<K> {
        List::from_ends(self.head.load(Relaxed), self.tail.load(Relaxed), self.len.load(Relaxed))
    }

    /// Under the lock.
    fn put_back(&self, list: List<K>) {
        let (head, tail, len) = list.into_ends();
        self.head.store(head, Relaxed);
        self.tail.store(tail, Relaxed);
        self.len.store(len, Relaxed);
    }
}
