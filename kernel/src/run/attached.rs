//! What a G has attached to its record: one list, one word of the record.
//!
//! A few things belong to one life of a G, and most lives have none of them: the scopes that it has
//! open ([`scope`](super::scope)), the scope that it is a member of, its locals
//! ([`local`](super::local)). A field in the record for each would cost every G its memory. So each
//! of them has a node in one list instead, and the record has the head of that list, one word. The
//! node is the first field of its thing: of a scope it is on the stack of the owner, of a local on
//! the heap.
//!
//! The list belongs to the G's holder, as most of a record does: the G itself changes it while it
//! runs, and the M that finishes it when it was abandoned reads it. An interrupt may abandon the G
//! between any two instructions; so head and links are stored in such an order that a reader finds
//! a whole list at each of them. They are atomic for that, and for nothing else.
//!
//! What was rejected: **a block on the heap for each G that has such things**: a scope, which is the
//! most frequent of them, would have to allocate, though it ends before its frame does.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A scope that is open.
    Scope,
    /// The scope that the G is a member of.
    Member,
    /// A local.
    Local,
    /// The name that the G has given itself.
    Name,
}

/// A node: the first field of what is attached (`repr(C)`).
pub struct Attachment {
    kind: Kind,
    /// The node that was attached before. Written by the G, read by its holder.
    older: AtomicPtr<Attachment>,
}

impl Attachment {
    pub const fn new(kind: Kind) -> Self {
        Attachment { kind, older: AtomicPtr::new(ptr::null_mut()) }
    }
}

/// All that is attached to one G, the newest first.
pub struct Attached(AtomicPtr<Attachment>);

impl Attached {
    pub const fn new() -> Self {
        Attached(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Attaches `node`, which is the first field of what it stands for.
    ///
    /// # Safety
    /// 1. This is the list of the calling G, and `node` is in none. 2. It stays where it is until
    ///    [`remove`](Self::remove), or for ever.
    pub unsafe fn push(&self, node: NonNull<Attachment>) {
        // SAFETY: the caller's promise.
        unsafe { node.as_ref() }.older.store(self.0.load(Relaxed), Relaxed);
        self.0.store(node.as_ptr(), Release); // after the link: see the head of this file
    }

    /// Takes `node` out, if it is there. The calling G's list.
    pub fn remove(&self, node: NonNull<Attachment>) {
        let mut link = &self.0;
        while let Some(at) = NonNull::new(link.load(Relaxed)) {
            // SAFETY: in the list, so it is where it was attached, says `push`.
            let older = &unsafe { at.as_ref() }.older;
            if at == node {
                return link.store(older.load(Relaxed), Release);
            }
            link = older;
        }
    }

    /// All nodes of that kind, the newest first. Each is read before the last was used, so that may
    /// be removed. For the G's holder.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = NonNull<Attachment>> {
        let mut next = self.0.load(Relaxed);
        core::iter::from_fn(move || {
            while let Some(at) = NonNull::new(next) {
                // SAFETY: in the list, as in `remove`.
                let node = unsafe { at.as_ref() };
                next = node.older.load(Relaxed);
                if node.kind == kind {
                    return Some(at);
                }
            }
            None
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_by_kind_newest_first_until_they_are_removed() {
        let nodes = [Kind::Scope, Kind::Member, Kind::Scope].map(Attachment::new);
        let [first, member, last] = [0, 1, 2].map(|index| NonNull::from(&nodes[index]));
        let list = Attached::new();
        // SAFETY: this test's own list, which is gone before the nodes.
        [first, member, last].into_iter().for_each(|node| unsafe { list.push(node) });
        assert!(list.of_kind(Kind::Scope).eq([last, first]));
        assert!(list.of_kind(Kind::Member).eq([member]));
        list.remove(first); // from the middle, or the end
        list.remove(member);
        assert!(list.of_kind(Kind::Scope).eq([last]) && list.of_kind(Kind::Member).eq([]));
        list.remove(member); // it is not there any more
        list.remove(last);
        assert!(list.of_kind(Kind::Scope).eq([]));
    }
}
