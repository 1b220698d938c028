//! Gs on a string: one link, and a first-in first-out list of Gs.
//!
//! A G has one `next` link, and whoever holds the G owns the link: a queue, an
//! inbox, a free list, a batch on its way. So a G is in at most one of them,
//! and putting it there never allocates. Used by every queue but the ring.
//!
//! The crate's only `unsafe` block is here, in [`Link`].

use crate::g::G;
use crate::sync::{AcqRel, Acquire, AtomicPtr, Relaxed, const_fn};
use core::ptr;
use core::sync::atomic::Ordering;

/// A place that names a G or nobody, readable and writable by all CPUs.
pub(crate) struct Link<K: 'static>(AtomicPtr<G<K>>);

impl<K: 'static> Link<K> {
    const_fn! {
        pub(crate) fn null() -> Self {
            Link(AtomicPtr::new(ptr::null_mut()))
        }
    }
}

impl<K: Sync + 'static> Link<K> {
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static G<K>> {
        as_g(self.0.load(order))
    }

    pub(crate) fn store(&self, g: Option<&'static G<K>>, order: Ordering) {
        self.0.store(as_ptr(g), order);
    }

    /// Puts `g` here and gives back who was here before.
    pub(crate) fn swap(&self, g: Option<&'static G<K>>) -> Option<&'static G<K>> {
        as_g(self.0.swap(as_ptr(g), AcqRel))
    }

    /// Empties the place. Looks before it takes: an empty place, the common
    /// case, costs a plain load and leaves the cache line shared.
    pub(crate) fn take(&self) -> Option<&'static G<K>> {
        self.load(Relaxed)?;
        self.swap(None)
    }

    /// Puts `new` here if `old` is still here (by address).
    pub(crate) fn replace(&self, old: Option<&'static G<K>>, new: &'static G<K>) -> bool {
        self.0.compare_exchange_weak(as_ptr(old), as_ptr(Some(new)), AcqRel, Relaxed).is_ok()
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.load(Acquire).is_null()
    }
}

fn as_ptr<K: 'static>(g: Option<&'static G<K>>) -> *mut G<K> {
    g.map_or(ptr::null_mut(), |g| ptr::from_ref(g).cast_mut())
}

fn as_g<K: 'static>(p: *mut G<K>) -> Option<&'static G<K>> {
    // SAFETY: a `Link` is written in this file only, and only with null or with
    // a pointer made by `as_ptr` from a `&'static G<K>`: (1) it is null or
    // valid for reads for ever, as Gs are never freed; (2) nobody makes a
    // `&mut G<K>` of it, as `as_ptr` had a shared reference to begin with;
    // (3) it may be read on any CPU, as all methods that store or load ask for
    // `K: Sync`, hence `G<K>: Sync`.
    unsafe { p.as_ref() }
}

/// A first-in first-out list of Gs that one CPU holds by itself.
///
/// ```
/// use sched::{G, List};
/// static A: G<()> = G::new(());
/// static B: G<()> = G::new(());
/// let mut list = List::new();
/// list.push(&A);
/// list.push(&B);
/// assert!(core::ptr::eq(list.pop().unwrap(), &A));
/// assert_eq!(list.len(), 1);
/// ```
pub struct List<K: 'static> {
    // Both or neither; the links from `head` to `tail` are ours, `tail`'s own
    // link is not looked at.
    ends: Option<(&'static G<K>, &'static G<K>)>,
    len: usize,
}

impl<K: Sync + 'static> List<K> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        List { ends: None, len: 0 }
    }

    /// Appends `g`, which no queue holds.
    pub fn push(&mut self, g: &'static G<K>) {
        match &mut self.ends {
            Some((_, tail)) => {
                tail.next().store(Some(g), Relaxed);
                *tail = g;
            }
            None => self.ends = Some((g, g)),
        }
        self.len += 1;
    }

    /// Puts `g`, which no queue holds, before all others.
    pub fn push_front(&mut self, g: &'static G<K>) {
        match &mut self.ends {
            Some((head, _)) => {
                g.next().store(Some(*head), Relaxed);
                *head = g;
            }
            None => self.ends = Some((g, g)),
        }
        self.len += 1;
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<&'static G<K>> {
        let (head, tail) = self.ends?;
        self.len -= 1;
        self.ends = if self.len == 0 {
            None
        } else {
            Some((head.next().load(Relaxed).expect("broken list"), tail))
        };
        Some(head)
    }

    /// The oldest, which stays.
    #[must_use]
    pub fn front(&self) -> Option<&'static G<K>> {
        self.ends.map(|(head, _)| head)
    }

    /// Appends all of `other`, in order, in one step.
    pub fn append(&mut self, other: List<K>) {
        let Some((other_head, other_tail)) = other.ends else { return };
        match &mut self.ends {
            Some((_, tail)) => {
                tail.next().store(Some(other_head), Relaxed);
                *tail = other_tail;
            }
            None => self.ends = other.ends,
        }
        self.len += other.len;
    }

    /// From a queue's own fields, as [`List::into_ends`] gave them.
    pub(crate) fn from_ends(
        head: Option<&'static G<K>>,
        tail: Option<&'static G<K>>,
        len: usize,
    ) -> Self {
        List { ends: head.zip(tail), len }
    }

    /// For a queue that keeps its list in fields of its own.
    pub(crate) fn into_ends(self) -> (Option<&'static G<K>>, Option<&'static G<K>>, usize) {
        (self.ends.map(|(head, _)| head), self.ends.map(|(_, tail)| tail), self.len)
    }

    /// How many Gs are on it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody is on it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
