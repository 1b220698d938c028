//! The ticket: one word for which several channels compete.
//!
//! Also the only place of this folder that parks and readies. Lock-free; its loom
//! model is `tests/loom_chan.rs`.

use crate::park::{self, GHandle};
use core::cell::{Cell, OnceCell};
use core::marker::PhantomPinned;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

#[cfg(not(loom))]
use core::sync::atomic::AtomicPtr as Word;
#[cfg(loom)]
use loom::sync::atomic::AtomicPtr as Word;

/// One wait of one G, for any number of things: the first of them wins it.
///
/// The word is null while the ticket is open, the address of the node that won
/// it, or `CLOSED` when its owner gave up.
pub struct Ticket {
    word: Word<()>,
    /// Set by the owner before the first node is enlisted, read by others ever
    /// after: the queue's lock is between the two.
    handle: OnceCell<GHandle>,
    /// Owner only: nodes that are enlisted with it.
    enlisted: Cell<usize>,
    _pinned: PhantomPinned,
}

/// The word of a ticket that nobody can win any more.
const CLOSED: *mut () = ptr::without_provenance_mut(1);

impl Ticket {
    /// A ticket that nobody waits with yet.
    #[inline(always)]
    #[expect(clippy::new_without_default, reason = "a default ticket means nothing")]
    pub fn new() -> Self {
        Ticket {
            word: Word::new(ptr::null_mut()),
            handle: OnceCell::new(),
            enlisted: Cell::new(0),
            _pinned: PhantomPinned,
        }
    }

    /// Opens it and begins to park: the caller must [`wait`](Self::wait) or
    /// [`call_off`](Self::call_off).
    #[inline]
    pub fn begin(&self) {
        assert!(self.enlisted.get() == 0, "ticket in use");
        self.word.store(ptr::null_mut(), Relaxed); // no node is enlisted: nobody looks
        let handle = park::begin_park();
        // The second time it is the same life of the same G.
        let _ = self.handle.set(handle);
    }

    /// Waits until the ticket is won, or until `deadline_ns`; false if that came
    /// first, and then nobody can win it any more.
    #[inline]
    pub fn wait(&self, deadline_ns: Option<u64>) -> bool {
        loop {
            let in_time = match deadline_ns {
                None => {
                    park::park();
                    true
                }
                Some(deadline) => park::park_until(deadline),
            };
            if self.is_won() {
                return true;
            }
            if !in_time {
                return !self.close();
            }
            self.begin_again();
        }
    }

    /// Ends the wait before it began: leaves the state that [`begin`](Self::begin)
    /// put the G in. False if the ticket was won meanwhile.
    pub fn call_off(&self) -> bool {
        let closed = self.close();
        self.ready_self();
        park::park();
        closed
    }

    /// Somebody with an old handle woke us: park once more. Whoever wins the
    /// ticket readies us after that; if it was won before we began, its
    /// `ready` may have found us running and be lost, so we see to it ourselves.
    #[cold]
    fn begin_again(&self) {
        let _ = park::begin_park();
        // A swap of null for null, not a load: if it comes before the winner's
        // compare-exchange, that one reads from it, so that our `begin_park`
        // is before their `ready`.
        if self.word.compare_exchange(ptr::null_mut(), ptr::null_mut(), AcqRel, Acquire).is_err() {
            self.ready_self();
        }
    }

    fn ready_self(&self) {
        park::ready(self.handle.get().expect("begun before").clone());
    }

    /// True if it was still open; nobody can win it from here on.
    fn close(&self) -> bool {
        // Acquire on failure: what the winner put into the slot.
        self.word.compare_exchange(ptr::null_mut(), CLOSED, Relaxed, Acquire).is_ok()
    }

    fn is_won(&self) -> bool {
        let word = self.word.load(Acquire); // pairs with `win`
        !word.is_null() && word != CLOSED
    }

    /// Owner only: whether it was won for this node, by its address.
    #[inline]
    pub(super) fn is_won_for(&self, node: *const ()) -> bool {
        self.word.load(Acquire).cast_const() == node // pairs with `win`
    }

    /// Owner only: whether it has ever begun, so that others may read the handle.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.handle.get().is_some()
    }

    /// Owner only: notes one enlisted node more.
    #[inline]
    pub(super) fn count_in(&self) {
        self.enlisted.set(self.enlisted.get() + 1);
    }

    /// Owner only: notes one enlisted node less.
    #[inline]
    pub(super) fn count_out(&self) {
        self.enlisted.set(self.enlisted.get() - 1);
    }

    /// Whether nobody seems to have won it yet: a hint, `win` decides.
    ///
    /// # Safety
    /// The ticket is alive.
    #[inline]
    pub(super) unsafe fn is_open(this: *const Ticket) -> bool {
        // SAFETY: alive, and atomic.
        unsafe { &(*this).word }.load(Relaxed).is_null()
    }

    /// Wins it for a node, unless somebody else did: then `None`.
    ///
    /// # Safety
    /// The ticket is alive and has begun. On success it may be gone when this
    /// returns, and the node too.
    #[inline]
    pub(super) unsafe fn win(this: *const Ticket, node: *mut ()) -> Option<Wake> {
        // SAFETY: alive, and set before others could see the ticket.
        let handle = unsafe { &(*this).handle }.get()?.clone();
        // SAFETY: alive; and it is all in an `UnsafeCell`, so it may go while we
        // still have this reference.
        let word = unsafe { &(*this).word };
        // Release: what we did to the slot, for `is_won` and `close`. Acquire:
        // see `begin_again`.
        word.compare_exchange(ptr::null_mut(), node, AcqRel, Relaxed)
            .is_ok()
            .then_some(Wake(handle))
    }
}

impl Drop for Ticket {
    #[inline(always)]
    fn drop(&mut self) {
        if self.enlisted.get() != 0 {
            stop();
        }
    }
}

/// A queue would hold pointers into a frame that goes: no way on from here.
#[cold]
fn stop() -> ! {
    #[cfg(not(target_os = "none"))]
    std::process::abort();
    #[cfg(target_os = "none")]
    {
        // With interrupts off a panic does not unwind.
        crate::arch::irq_save();
        panic!("waiter leaked");
    }
}

/// A G that must be readied, once the lock is free.
#[must_use = "somebody waits for this"]
pub struct Wake(GHandle);

impl Wake {
    /// Readies it.
    #[inline]
    pub fn ready(self) {
        park::ready(self.0);
    }
}
