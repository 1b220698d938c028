//! Linked Gs: one link, a list, the inbox of a CPU, the global queue.
//!
//! A G has one `next` link, and the holder of the G owns the link: a queue, an
//! inbox, a free list, a batch in transit. So a G is in at most one of them, and
//! inserting it never allocates. Used by every queue but the ring.
//!
//! The crate's `unsafe` code is here, in [`Link`], and where `runq` takes a G from a slot.

use crate::g::G;
use crate::priority::{self, Lanes};
use crate::share::Shares;
use crate::sync::{
    AcqRel, Acquire, AtomicPtr, AtomicUsize, Relaxed, Release, SeqCst, SpinLock, const_fn,
    spin_loop,
};
use core::ptr;
use core::sync::atomic::Ordering;

/// An atomic pointer to a G, or null, readable and writable by all CPUs.
pub(crate) struct Link<K: 'static>(AtomicPtr<G<K>>);

impl<K: 'static> Link<K> {
    const_fn! {
        pub(crate) fn null() -> Self {
            Link(AtomicPtr::new(ptr::null_mut()))
        }
    }
}

/// In models the line of the caller is told (`told`).
impl<K: Sync + 'static> Link<K> {
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static G<K>> {
        as_g(self.0.load(order))
    }

    /// The G, without a test.
    ///
    /// # Safety
    /// There is one.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(crate) unsafe fn load_some(&self, order: Ordering) -> &'static G<K> {
        let g = self.load(order);
        debug_assert!(g.is_some(), "empty slot");
        // SAFETY: the caller's promise.
        unsafe { g.unwrap_unchecked() }
    }

    #[cfg_attr(loom, track_caller)]
    pub(crate) fn store(&self, g: Option<&'static G<K>>, order: Ordering) {
        self.0.store(as_ptr(g), order);
    }

    /// Stores `g` and returns the G that was here before.
    /// SeqCst for `Sched::submit`; on x86 it costs nothing more.
    #[cfg_attr(loom, track_caller)]
    #[inline(always)]
    pub(crate) fn swap(&self, g: Option<&'static G<K>>) -> Option<&'static G<K>> {
        as_g(self.0.swap(as_ptr(g), SeqCst))
    }

    /// Takes the G. Loads before it swaps: an empty link, the common case, costs a
    /// plain load and leaves the cache line shared.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn take(&self) -> Option<&'static G<K>> {
        self.load(Relaxed)?;
        self.swap(None)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.load(Acquire).is_null()
    }

    /// Whether both are null, in one test.
    #[inline(always)]
    pub(crate) fn are_null(&self, other: &Link<K>) -> bool {
        self.0.load(Acquire).addr() | other.0.load(Acquire).addr() == 0
    }
}

fn as_ptr<K: 'static>(g: Option<&'static G<K>>) -> *mut G<K> {
    g.map_or(ptr::null_mut(), |g| ptr::from_ref(g).cast_mut())
}

fn as_g<K: 'static>(p: *mut G<K>) -> Option<&'static G<K>> {
    // SAFETY: a `Link` is written in this file only, and only with null or with a
    // pointer made by `as_ptr` from a `&'static G<K>`: (1) it is null or valid for
    // reads for ever, as Gs are never freed; (2) no `&mut G<K>` is made of it, as
    // `as_ptr` had a shared reference to begin with; (3) it may be read on any CPU,
    // as all methods that store or load ask for `K: Sync`, hence `G<K>: Sync`.
    unsafe { p.as_ref() }
}

/// A first-in first-out list of Gs that one CPU holds by itself.
pub struct List<K: 'static> {
    /// First and last; the list owns the links between them, and never reads the
    /// last one's.
    ends: Option<(&'static G<K>, &'static G<K>)>,
    len: usize,
}

impl<K: Sync + 'static> List<K> {
    pub(crate) const fn new() -> Self {
        List { ends: None, len: 0 }
    }

    /// Appends `g`, which no queue holds.
    pub(crate) fn push(&mut self, g: &'static G<K>) {
        if let Some((_, tail)) = self.ends {
            tail.next.store(Some(g), Relaxed);
        }
        self.ends = Some((self.front().unwrap_or(g), g));
        self.len += 1;
    }

    /// Inserts `g`, which no queue holds, at the head.
    pub(crate) fn push_front(&mut self, g: &'static G<K>) {
        let (head, tail) = self.ends.unzip();
        g.next.store(head, Relaxed);
        self.ends = Some((g, tail.unwrap_or(g)));
        self.len += 1;
    }

    /// Takes the oldest G.
    pub fn pop(&mut self) -> Option<&'static G<K>> {
        let (head, tail) = self.ends?;
        self.len -= 1;
        let second = || head.next.load(Relaxed).expect("broken list");
        self.ends = (self.len > 0).then(|| (second(), tail));
        Some(head)
    }

    /// The oldest G, without taking it.
    pub(crate) fn front(&self) -> Option<&'static G<K>> {
        self.ends.map(|(head, _)| head)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Gs on their way to one CPU: an interrupt, or another CPU, pushes them here.
///
/// Lock-free, so it may be used in any context: a handler must not touch a run
/// queue (it may have interrupted the owner in the middle of a push) and must not
/// wait for a lock. It also brings a pinned G to its CPU, as thieves cannot steal
/// from an inbox.
///
/// It is a stack of links that is emptied by one swap and reversed. A single G is
/// never popped off it, so a G that returns to the same place (ABA) does no harm.
///
/// ```
/// use sched::{G, Inbox};
/// static INBOX: Inbox<()> = Inbox::new();
/// static A: G<()> = G::new(());
/// static B: G<()> = G::new(());
/// assert!(INBOX.push(&A)); // was empty: its CPU must be told
/// assert!(!INBOX.push(&B)); // it will be, or was, told for A
/// assert!(core::ptr::eq(INBOX.take_all().pop().unwrap(), &A));
/// ```
pub struct Inbox<K: 'static> {
    /// Its link leads to the next older one.
    pub(crate) newest: Link<K>,
}

impl<K: Sync + 'static> Inbox<K> {
    const_fn! {
        /// An empty inbox.
        #[must_use]
        pub fn new() -> Self {
            Inbox { newest: Link::null() }
        }
    }

    /// Pushes `g`. True if the inbox was empty: then the caller must make the
    /// inbox's CPU check it (essay, "The inbox").
    ///
    /// Callers: any CPU, in any context.
    #[must_use = "its CPU must be told"]
    pub fn push(&self, g: &'static G<K>) -> bool {
        loop {
            let newest = self.newest.load(Relaxed);
            g.next.store(newest, Relaxed);
            // Release publishes the G and its link; pairs with the swap in
            // `take_all`.
            let Link(place) = &self.newest;
            let (old, new) = (as_ptr(newest), as_ptr(Some(g)));
            if place.compare_exchange_weak(old, new, AcqRel, Relaxed).is_ok() {
                return newest.is_none();
            }
            spin_loop();
        }
    }

    /// Takes all Gs, oldest first. Caller: the CPU that owns the inbox.
    pub fn take_all(&self) -> List<K> {
        let mut list = List::new();
        let mut newest = self.newest.take();
        while let Some(g) = newest {
            newest = g.next.load(Relaxed);
            list.push_front(g);
        }
        list
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_null()
    }
}

/// The global queue, for Gs that no P holds: a list under a spin lock. Callers: any CPU,
/// interrupts off.
///
/// It gets the Gs that did not fit in a ring, the Gs whose slice ran out, and the Gs of
/// Ps beyond the limit. All Ps take from it, by the rules in `proc`.
///
/// **Batches.** A batch saves locks, but it deals Gs out unevenly: the P that took
/// four runs each of them a quarter as often as the P that took one. That is soon
/// over for a burst of new Gs and lasts for ever for Gs that never stop. So a G
/// whose slice ran out is taken alone: a batch ends before it. All hogs then go
/// round in one circle, whichever P they began on.
pub(crate) struct GlobalQueue<K: 'static> {
    pub(crate) lock: SpinLock,
    // Written under the lock only.
    pub(crate) head: Link<K>,
    tail: Link<K>,
    /// The Gs of the ranks other than normal.
    pub(crate) lanes: Lanes<K>,
    /// The Gs of programs, while their shares are in force.
    pub(crate) shares: Shares<K>,
    // Written under the lock, read by any CPU.
    /// How many Gs of the normal rank wait that have no lane, and which lanes have some (`priority`,
    /// `share`): 0 if none waits at all.
    pub(crate) len: AtomicUsize,
}

impl<K: Sync + 'static> GlobalQueue<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            GlobalQueue {
                lock: SpinLock::new(),
                head: Link::null(),
                tail: Link::null(),
                lanes: Lanes::new(),
                shares: Shares::new(),
                len: AtomicUsize::new(0),
            }
        }
    }

    /// Appends one G (Go: globrunqput).
    pub(crate) fn push(&self, g: &'static G<K>) {
        self.push_list(List { ends: Some((g, g)), len: 1 });
    }

    /// Appends a list, in order (Go: globrunqputbatch).
    pub(crate) fn push_list(&self, list: List<K>) {
        let Some((first, last)) = list.ends else { return };
        self.lock.with(|| {
            match self.tail.load(Relaxed) {
                Some(tail) => tail.next.store(Some(first), Relaxed),
                None => self.head.store(Some(first), Relaxed),
            }
            self.tail.store(Some(last), Relaxed);
            self.len.store(self.len.load(Relaxed) + list.len, Release);
        });
    }

    /// Inserts one G at the head: it is taken first.
    pub(crate) fn push_front(&self, g: &'static G<K>) {
        self.lock.with(|| {
            let head = self.head.load(Relaxed);
            g.next.store(head, Relaxed);
            self.head.store(Some(g), Relaxed);
            if head.is_none() {
                self.tail.store(Some(g), Relaxed);
            }
            self.len.store(self.len.load(Relaxed) + 1, Release);
        });
    }

    /// Takes the oldest G and, unless its slice ran out, the Gs behind it up to
    /// `limit` in all, or up to one whose slice ran out (Go: globrunqgetbatch). An empty
    /// queue costs one load and no lock.
    pub(crate) fn pop_batch(&self, limit: usize) -> List<K> {
        if self.is_empty() {
            return List::new();
        }
        self.lock.with(|| {
            let Some(first) = self.head.load(Relaxed) else { return List::new() };
            let after = |g: &'static G<K>| g.next.load(Relaxed).expect("broken list");
            let most = if first.is_expired() { 1 } else { limit.min(self.len()) };
            first.set_expired(false);
            // A walk and one cut: the Gs stay linked.
            let (mut last, mut len) = (first, 1);
            while len < most && !after(last).is_expired() {
                (last, len) = (after(last), len + 1);
            }
            let left = self.len() - len;
            self.head.store((left > 0).then(|| after(last)), Relaxed);
            if left == 0 {
                self.tail.store(None, Relaxed);
            }
            self.len.store(self.len.load(Relaxed) - len, Release);
            List { ends: Some((first, last)), len }
        })
    }

    /// Appends `g`, whose slice has run out, and takes the oldest G, if that G's slice ran out too and
    /// no G of another rank waits. Otherwise returns None and changes nothing. It does what `push` and `pop_batch` do, with the
    /// lock taken once, and no CPU sees the queue empty in between.
    #[inline(always)]
    pub(crate) fn rotate(&self, g: &'static G<K>) -> Option<&'static G<K>> {
        // Negative if a G waits in a lane.
        if self.len.load(Acquire).cast_signed() <= 0 {
            return None;
        }
        self.lock.with(|| {
            let first = self.head.load(Relaxed).filter(|first| first.is_expired())?;
            let tail = self.tail.load(Relaxed)?;
            g.stop(); // before another CPU can take it
            g.set_expired(true);
            tail.next.store(Some(g), Relaxed); // before the next line: both may be one G
            self.head.store(first.next.load(Relaxed), Relaxed);
            self.tail.store(Some(g), Relaxed);
            first.set_expired(false);
            Some(first)
        })
    }

    /// Cuts the G between these two neighbours out. Under the lock.
    pub(crate) fn cut(&self, before: Option<&'static G<K>>, next: Option<&'static G<K>>) {
        match before {
            Some(before) => before.next.store(next, Relaxed),
            None => self.head.store(next, Relaxed),
        }
        if next.is_none() {
            self.tail.store(before, Relaxed);
        }
        self.len.store(self.len.load(Relaxed) - 1, Release);
    }

    /// How many Gs of the normal rank wait here, those in lanes not counted. Without the lock: it may be stale at once. A CPU that
    /// sees a G gone also sees what its taker did before (Acquire, Release): for
    /// example, that it put the G that yielded into its ring.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Acquire) & priority::NORMAL_LEN
    }

    /// Whether the queue is empty, of Gs of every rank. Without the lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Acquire) == 0
    }
}
