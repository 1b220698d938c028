//! The global queue, for Gs that no P holds: one lock, one list, in order.
//!
//! It gets the Gs that did not fit in a ring, the Gs whose slice ran out, and the
//! Gs whose call is over while all CPUs are busy. All Ps take from it, by the rules
//! in `find`.
//!
//! **Batches.** A batch saves locks, but it deals Gs out unevenly: the P that took
//! four runs each of them a quarter as often as the P that took one. That is soon
//! over for a burst of new Gs and lasts for ever for Gs that never stop. So a G
//! whose slice ran out is taken alone: a batch ends before it. All hogs then go
//! round in one circle, whichever P they began on.

use crate::census;
use crate::g::G;
use crate::list::{Link, List};
use crate::sync::{Acquire, AtomicUsize, Relaxed, Release, SpinLock, const_fn};

/// A list of Gs under a spin lock. Callers: any CPU, interrupts off.
pub(crate) struct GlobalQueue<K: 'static> {
    lock: SpinLock,
    // Written under the lock only.
    head: Link<K>,
    tail: Link<K>,
    // Written under the lock, read by any CPU.
    len: AtomicUsize,
}

impl<K: Sync + 'static> GlobalQueue<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            GlobalQueue {
                lock: SpinLock::new(),
                head: Link::null(),
                tail: Link::null(),
                len: AtomicUsize::new(0),
            }
        }
    }

    /// Appends one G.
    pub(crate) fn push(&self, g: &'static G<K>) {
        let mut list = List::new();
        list.push(g);
        self.push_list(list);
    }

    /// Appends a list, in order, under one lock.
    pub(crate) fn push_list(&self, list: List<K>) {
        if !list.is_empty() {
            self.change(|all| all.append(list));
        }
    }

    /// Takes the oldest G. An empty queue costs one load and no lock.
    pub(crate) fn pop(&self) -> Option<&'static G<K>> {
        self.pop_batch(1).pop()
    }

    /// Takes the oldest G and, unless its slice ran out, the Gs behind it up to
    /// `limit` in all, or up to one whose slice ran out.
    pub(crate) fn pop_batch(&self, limit: usize) -> List<K> {
        let mut batch = List::new();
        if !self.is_empty() {
            self.change(|all| batch = cut(all, limit));
        }
        batch
    }

    /// How many Gs wait here. Without the lock: it may be stale at once. A CPU that
    /// sees a G gone also sees what its taker did before (Acquire, Release): for
    /// example, that it put the G that yielded into its ring.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    /// Whether the queue is empty. Without the lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` for each G, oldest first. For a census.
    pub(crate) fn walk(&self, f: impl FnMut(&'static G<K>)) {
        self.lock.with(|| census::walk(self.head.load(Relaxed), self.len(), f));
    }

    /// Changes the list under the lock.
    fn change(&self, f: impl FnOnce(&mut List<K>)) {
        self.lock.with(|| {
            let ends = self.head.load(Relaxed).zip(self.tail.load(Relaxed));
            let mut all = List { ends, len: self.len() };
            f(&mut all);
            self.head.store(all.ends.map(|(head, _)| head), Relaxed);
            self.tail.store(all.ends.map(|(_, tail)| tail), Relaxed);
            self.len.store(all.len, Release);
        });
    }
}

/// Takes the first `limit` Gs off a list, or fewer by the rule of
/// [`GlobalQueue::pop_batch`]. A walk and one cut: the Gs stay linked.
fn cut<K: Sync + 'static>(all: &mut List<K>, limit: usize) -> List<K> {
    let Some((first, tail)) = all.ends else { return List::new() };
    let after = |g: &'static G<K>| g.next().load(Relaxed).expect("broken list");
    let most = if first.is_expired() { 1 } else { limit.min(all.len) };
    let (mut last, mut len) = (first, 1);
    while len < most {
        let next = after(last);
        if next.is_expired() {
            break;
        }
        (last, len) = (next, len + 1);
    }
    all.len -= len;
    all.ends = (all.len > 0).then(|| (after(last), tail));
    List { ends: Some((first, last)), len }
}
