//! Entries by deadline: a heap that is threaded through its entries.
//!
//! Pure: no clock, no CPU, no lock. [`Heap`] orders records by deadline; records of one deadline
//! are first come, first served. Its links are in the records ([`Node`]), so nothing is allocated.
//! `timer` keeps one heap for each CPU and documents the callers.
//!
//! # Why this heap
//!
//! It is a leftist tree (Crane, 1972): every entry is due before its children, and of two children
//! the right one has the lower rank, where the rank is the length of the path down that always goes
//! right. A tree of rank *r* has at least 2^r − 1 entries; so with *n* entries that path is at most
//! log2(*n* + 1) long, and all work is done along it:
//!
//! - two trees are merged along their right-hand paths ([`meld`]); insert melds with a tree of one,
//!   pop melds the children of the root;
//! - to remove an entry from the middle, its children are melded into its place, and ranks are
//!   corrected upwards until one does not change. While ranks fall, each new one is greater by one
//!   than the one below; while they rise, each old one was: so that takes at most log2(*n* + 1)
//!   steps too.
//!
//! So *every* operation is O(log n), not only on average, as work with interrupts off requires.
//! Rejected: a **pairing heap**, with fewer links, whose pop after 100,000 inserts visits all
//! 100,000; **an array** of entries, which must grow; **a wheel**, with no order within a slot;
//! **marking** the entries that are cancelled (as Go does), which keeps a record that its owner may
//! want to use again.

use crate::run::Link;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A record that can wait for a deadline: it carries a [`Node`].
///
/// Records live for ever. `timer` must always return the same node, and no other record's; else
/// deadlines get lost (but memory stays safe).
pub trait Timed: Sync + Sized + 'static {
    /// The node in this record.
    fn timer(&self) -> &Node<Self>;
}

/// The heap node of a record: 48 bytes, in at most one heap at a time.
///
/// The words are guarded by the lock of the heap that the record is in, and belong to the holder of
/// the record while it is in none. They are atomics so that no cell needs a SAFETY argument: reads
/// and writes are plain moves.
pub struct Node<T: 'static> {
    deadline_ns: AtomicU64,
    /// Orders entries of one deadline.
    ticket: AtomicU64,
    left: Link<T>,
    right: Link<T>,
    up: Link<T>,
    /// The heap it was last inserted into; for the user of the heaps.
    pub(crate) home: AtomicU32,
    /// At least 1 in a heap, 0 outside.
    rank: AtomicU8,
}

impl<T: 'static> Node<T> {
    /// A node of a record that is in no heap.
    #[must_use]
    pub const fn new() -> Self {
        Node {
            deadline_ns: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            left: Link::new(),
            right: Link::new(),
            up: Link::new(),
            home: AtomicU32::new(0),
            rank: AtomicU8::new(0),
        }
    }
}

impl<T: 'static> Default for Node<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Records by deadline.
pub struct Heap<T: 'static> {
    root: Option<&'static T>,
    tickets: u64,
    len: usize,
}

impl<T: Timed> Heap<T> {
    /// An empty heap.
    #[must_use]
    pub const fn new() -> Self {
        Heap { root: None, tickets: 0, len: 0 }
    }

    /// Inserts `entry`. True if it is the first now.
    ///
    /// # Panics
    /// If it is in a heap already.
    pub fn insert(&mut self, entry: &'static T, deadline_ns: u64) -> bool {
        let node = entry.timer();
        assert!(node.rank.load(Relaxed) == 0, "timer armed");
        node.deadline_ns.store(deadline_ns, Relaxed);
        node.ticket.store(self.tickets, Relaxed);
        node.rank.store(1, Relaxed);
        self.tickets += 1;
        self.len += 1;
        self.root = meld(self.root, Some(entry));
        self.root.is_some_and(|first| ptr::eq(first, entry))
    }

    /// Removes `entry`; false if it is not in. It must not be in another heap.
    pub fn remove(&mut self, entry: &'static T) -> bool {
        let node = entry.timer();
        if node.rank.load(Relaxed) == 0 {
            return false;
        }
        let rest = meld(node.left.get(), node.right.get());
        match node.up.get() {
            None => self.root = rest,
            Some(above) => {
                put_in_place(above, entry, rest);
                mend_upwards(above);
            }
        }
        node.left.set(None);
        node.right.set(None);
        node.up.set(None);
        node.rank.store(0, Relaxed);
        self.len -= 1;
        true
    }

    /// Removes the first, if its deadline is not after `now_ns`.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<&'static T> {
        let first = self.root.filter(|first| first.timer().deadline_ns.load(Relaxed) <= now_ns)?;
        self.remove(first);
        Some(first)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn first_deadline(&self) -> Option<u64> {
        self.root.map(|first| first.timer().deadline_ns.load(Relaxed))
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[cfg(test)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Timed> Default for Heap<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Merges two trees, and returns the root, which has no parent.
///
/// A loop and not a recursion: it runs with interrupts off, on a stack with only one page known to
/// be committed.
fn meld<T: Timed>(mut a: Option<&'static T>, mut b: Option<&'static T>) -> Option<&'static T> {
    // Down: merge the two right-hand paths; `last` is the end of the merged one.
    let mut root = None;
    let mut last: Option<&'static T> = None;
    let rest = loop {
        let (Some(x), Some(y)) = (a, b) else { break a.or(b) };
        let (first, second) = if key(x) < key(y) { (x, y) } else { (y, x) };
        put_right(last, Some(first));
        root = root.or(Some(first));
        last = Some(first);
        (a, b) = (first.timer().right.get(), Some(second));
    };
    put_right(last, rest);
    // Up again: all entries on the path have new right children.
    while let Some(entry) = last {
        rank_anew(entry);
        last = entry.timer().up.get();
    }
    root.or(rest)
}

/// The deadline, and the order among entries with that deadline.
fn key<T: Timed>(entry: &T) -> (u64, u64) {
    let node = entry.timer();
    (node.deadline_ns.load(Relaxed), node.ticket.load(Relaxed))
}

fn put_right<T: Timed>(above: Option<&'static T>, below: Option<&'static T>) {
    if let Some(above) = above {
        above.timer().right.set(below);
    }
    if let Some(below) = below {
        below.timer().up.set(above);
    }
}

/// Replaces `old` by `new` as a child of `above`.
fn put_in_place<T: Timed>(above: &'static T, old: &'static T, new: Option<&'static T>) {
    let node = above.timer();
    let is_left = node.left.get().is_some_and(|left| ptr::eq(left, old));
    if is_left {
        node.left.set(new);
    } else {
        node.right.set(new);
    }
    if let Some(new) = new {
        new.timer().up.set(Some(above));
    }
}

/// Corrects ranks after a change below `entry`. Ends where the rank does not change.
fn mend_upwards<T: Timed>(mut entry: &'static T) {
    while rank_anew(entry) {
        match entry.timer().up.get() {
            Some(above) => entry = above,
            None => return,
        }
    }
}

/// Puts the child of lower rank to the right and ranks the entry by it. True if its rank has
/// changed.
fn rank_anew<T: Timed>(entry: &'static T) -> bool {
    #[cfg(test)]
    tests::count_a_step();
    let node = entry.timer();
    let (left, right) = (node.left.get(), node.right.get());
    if rank(left) < rank(right) {
        node.left.set(right);
        node.right.set(left);
    }
    let new = rank(left).min(rank(right)) + 1;
    let old = node.rank.load(Relaxed);
    node.rank.store(new, Relaxed);
    new != old
}

/// The rank of a tree; 0 for the empty one.
fn rank<T: Timed>(tree: Option<&'static T>) -> u8 {
    tree.map_or(0, |root| root.timer().rank.load(Relaxed))
}

#[cfg(test)]
pub(crate) mod tests;
