//! Entries by deadline: a heap that is threaded through its entries.
//!
//! Pure: no clock, no CPU, no lock. [`Heap`] orders records by deadline; records of one deadline
//! are first come, first served. The links are in their [`Node`]s: nothing is allocated.
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
use crate::run::task::GHandle;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use spin::Once;

/// A record that waits for a deadline. It lives for ever.
pub trait Timed: Sync {
    /// The node in this record. Always the same, and no other record's; else deadlines get lost
    /// (but memory stays safe).
    fn timer(&'static self) -> &'static Node;

    /// Its deadline has come: returns the G that is to be readied, if any. Called in the timer
    /// interrupt of the CPU that armed it, under the lock of the heap: it must not wait, allocate,
    /// or call `timer`.
    fn due(&'static self, now_ns: u64) -> Option<GHandle>;
}

/// The heap node of a record, in at most one heap at a time.
///
/// The words are guarded by the lock of the heap that the record is in, and belong to the holder of
/// the record while it is in none. They are atomics so that no cell needs a SAFETY argument: reads
/// and writes are plain moves.
pub struct Node {
    deadline_ns: AtomicU64,
    ticket: AtomicU64,
    left: Link<Node>,
    right: Link<Node>,
    up: Link<Node>,
    /// The heap it was last inserted into, or [`NOWHERE`](super::NOWHERE); for users of heaps.
    pub(super) home: AtomicU32,
    /// At least 1 in a heap, 0 outside.
    rank: AtomicU8,
    pub(super) record: Once<&'static dyn Timed>,
}

impl Node {
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
            record: Once::new(),
        }
    }
}

pub struct Heap {
    root: Option<&'static Node>,
    tickets: u64,
    len: usize,
}

impl Heap {
    #[must_use]
    pub const fn new() -> Self {
        Heap { root: None, tickets: 0, len: 0 }
    }

    /// Inserts `node`. True if it is the first now.
    ///
    /// # Panics
    /// If it is in a heap already.
    pub fn insert(&mut self, node: &'static Node, deadline_ns: u64) -> bool {
        assert!(node.rank.load(Relaxed) == 0, "timer armed");
        node.deadline_ns.store(deadline_ns, Relaxed);
        node.ticket.store(self.tickets, Relaxed);
        [&node.left, &node.right, &node.up].into_iter().for_each(|link| link.set(None));
        node.rank.store(1, Relaxed);
        self.tickets += 1;
        self.len += 1;
        self.root = meld(self.root, Some(node));
        self.root.is_some_and(|first| ptr::eq(first, node))
    }

    /// Removes `node`; false if it is not in. It must not be in another heap.
    pub fn remove(&mut self, node: &'static Node) -> bool {
        if node.rank.load(Relaxed) == 0 {
            return false;
        }
        let rest = meld(node.left.get(), node.right.get());
        match node.up.get() {
            None => self.root = rest,
            Some(above) => {
                let is_left = above.left.get().is_some_and(|left| ptr::eq(left, node));
                let link = if is_left { &above.left } else { &above.right };
                link.set(rest);
                if let Some(rest) = rest {
                    rest.up.set(Some(above));
                }
                // Up to where the rank does not change.
                let mut next = Some(above);
                while let Some(above) = next.filter(|above| rank_anew(above)) {
                    next = above.up.get();
                }
            }
        }
        self.forget(node);
        true
    }

    /// `node` is out of the tree.
    fn forget(&mut self, node: &'static Node) {
        node.rank.store(0, Relaxed);
        self.len -= 1;
    }

    /// Removes the first, if its deadline is not after `now_ns`.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<&'static Node> {
        let first = self.root.filter(|first| first.deadline_ns.load(Relaxed) <= now_ns)?;
        self.root = meld(first.left.get(), first.right.get());
        self.forget(first);
        Some(first)
    }

    #[must_use]
    pub fn first_deadline(&self) -> Option<u64> {
        self.root.map(|first| first.deadline_ns.load(Relaxed))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Merges two trees, and returns the root, which has no parent.
///
/// A loop and not a recursion: it runs with interrupts off, on a stack with only one page known to
/// be committed.
fn meld(mut a: Option<&'static Node>, mut b: Option<&'static Node>) -> Option<&'static Node> {
    if b.is_none() {
        put_right(None, a);
        return a;
    }
    // Down: merge the two right-hand paths; `last` is the end of the merged one.
    let mut root = None;
    let mut last: Option<&'static Node> = None;
    let rest = loop {
        let (Some(x), Some(y)) = (a, b) else { break a.or(b) };
        let (first, second) = if key(x) < key(y) { (x, y) } else { (y, x) };
        put_right(last, Some(first));
        root = root.or(Some(first));
        last = Some(first);
        (a, b) = (first.right.get(), Some(second));
    };
    put_right(last, rest);
    // Up again: all entries on the path have new right children.
    while let Some(entry) = last {
        rank_anew(entry);
        last = entry.up.get();
    }
    root.or(rest)
}

/// The deadline, and the order among entries with that deadline.
fn key(node: &Node) -> (u64, u64) {
    (node.deadline_ns.load(Relaxed), node.ticket.load(Relaxed))
}

fn put_right(above: Option<&'static Node>, below: Option<&'static Node>) {
    if let Some(above) = above {
        above.right.set(below);
    }
    if let Some(below) = below {
        below.up.set(above);
    }
}

/// Puts the child of lower rank to the right and ranks the node by it. True if its rank has
/// changed.
fn rank_anew(node: &'static Node) -> bool {
    #[cfg(test)]
    tests::count_a_step();
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
fn rank(tree: Option<&'static Node>) -> u8 {
    tree.map_or(0, |root| root.rank.load(Relaxed))
}

#[cfg(test)]
pub(crate) mod tests;
