//! `WaitGroup`: wait until all counted work is done.
//!
//! The count is one atomic; the queue is touched only by waiters, and by the `done` that brings the
//! count to zero. `add` and `done` are one locked addition each, inlined; everything else is out of
//! line.
//!
//! # Misuse
//!
//! The addition comes before the check, so one `done` too many makes the count -1, and restores it
//! before it panics. A count below zero counts as zero, so no G waits for ever meanwhile; but a
//! correct `done` of another G may find it one too low, and panic as well. Checking first would
//! cost every correct call a loop.
#![forbid(unsafe_code)]

use crate::run::sys::{AtomicUsize, Reason, const_fn};
use crate::wait::limit::Limit;
use crate::wait::queue::{Place, TimedOut, WaitQueue};
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::Ordering;

/// Counts work that is under way; waits until there is none.
///
/// As Go's: [`add`](Self::add) before the work is started, [`done`](Self::done) when it is over,
/// [`wait`](Self::wait) for all of it, and again. A [`Ticket`] counts by itself, also in a panic.
///
/// ```
/// use runnext::{prelude::*, sync::WaitGroup};
/// static GROUP: WaitGroup = WaitGroup::new();
/// for _ in 0..3 {
///     GROUP.add(1);
///     let _detached = go(|| GROUP.done());
/// }
/// GROUP.wait();
/// assert_eq!(GROUP.count(), 0);
/// ```
#[derive(Default)]
pub struct WaitGroup {
    count: AtomicUsize,
    pub(super) queue: WaitQueue,
}

impl WaitGroup {
    const_fn! {
        /// Nothing is under way.
        pub fn new() -> Self {
            WaitGroup { count: AtomicUsize::new(0), queue: WaitQueue::new(()) }
        }
    }

    /// Counts `n` more as under way. Call it before they are started: a waiter might see none.
    ///
    /// # Panics
    /// When the count would pass `isize::MAX`; it stays as it is.
    #[inline(always)]
    pub fn add(&self, n: usize) {
        // Relaxed: it publishes nothing; waiters synchronize with `done`.
        let before = self.count.fetch_add(n, Ordering::Relaxed);
        if n.cast_signed() < 0 || before.wrapping_add(n).cast_signed() < 0 {
            self.added_much(before, n);
        }
    }

    /// Too much was added; or the count is below zero until another G has undone a `done` too many.
    #[cold]
    fn added_much(&self, before: usize, n: usize) {
        if before.cast_signed() >= 0 || n.cast_signed() < 0 {
            self.count.fetch_sub(n, Ordering::Relaxed);
            panic!("WaitGroup: more than isize::MAX under way");
        }
    }

    /// Counts one as done.
    ///
    /// # Panics
    /// When none was under way; the count stays at zero.
    #[inline(always)]
    pub fn done(&self) {
        // Release: the work happens before the count says so. Acquire: the `done` that makes it
        // zero passes on what the others did. Pairs with `is_over`.
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        if before.cast_signed() <= 1 {
            self.none_left(before);
        }
    }

    /// The last one is done, or `done` was called too often.
    #[inline(never)]
    fn none_left(&self, before: usize) {
        if before != 1 {
            self.count.fetch_add(1, Ordering::Relaxed);
            panic!("WaitGroup: done without add");
        }
        self.queue.grant_all(0);
    }

    /// Waits until nothing is under way. If work is added as soon as the count is zero, Gs that
    /// waited for the zero continue nevertheless.
    pub fn wait(&self) {
        let _in_time = self.wait_by(None);
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), TimedOut> {
        limit.into().during(|deadline_ns| self.wait_by(Some(deadline_ns)))
    }

    fn wait_by(&self, deadline_ns: Option<u64>) -> Result<(), TimedOut> {
        crate::run::door::might_park();
        if self.is_over() {
            return Ok(());
        }
        let locked = self.queue.lock_in_g();
        // Again: a `done` that makes it zero later gets the lock later and finds this G queued.
        if self.is_over() {
            return Ok(());
        }
        let place = Place { reason: Reason::WaitGroup, list: 0, value: None, deadline_ns };
        locked.wait(place, |()| false).in_time()
    }

    fn is_over(&self) -> bool {
        self.count.load(Ordering::Acquire).cast_signed() <= 0 // pairs with `done`
    }

    /// How many are under way at this instant.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
    }

    /// Adds one, which is done when the ticket is dropped. `group` may be a reference or an `Arc`.
    ///
    /// ```
    /// use runnext::{prelude::*, sync::WaitGroup};
    /// use std::sync::Arc;
    /// let group = Arc::new(WaitGroup::new());
    /// for _ in 0..3 {
    ///     let ticket = WaitGroup::ticket(group.clone());
    ///     let _detached = go(move || drop(ticket));
    /// }
    /// group.wait();
    /// ```
    pub fn ticket<R: Deref<Target = WaitGroup>>(group: R) -> Ticket<R> {
        group.add(1);
        Ticket { group }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup").field("count", &self.count()).finish()
    }
}

/// One unit of work that a [`WaitGroup`] waits for, until this is dropped; a clone is one more.
#[must_use = "a ticket that is dropped is done"]
pub struct Ticket<R: Deref<Target = WaitGroup>> {
    group: R,
}

impl<R: Deref<Target = WaitGroup> + Clone> Clone for Ticket<R> {
    fn clone(&self) -> Self {
        WaitGroup::ticket(self.group.clone())
    }
}

impl<R: Deref<Target = WaitGroup>> Drop for Ticket<R> {
    fn drop(&mut self) {
        self.group.done();
    }
}
