//! A value that many Gs may read or one may change: word, queues, access.
//!
//! The lock of `sync::RwLock`, without guards that poison and timeouts by
//! duration. It is here for the same reason as `mutex`.
//!
//! # The word
//!
//! Readers are counted from bit [`READER`] on. WRITER: a G changes the
//! value, and its name stands where the count would ([`held`](super::held)); readers are not
//! known by name. QUEUED: a G may wait; set and cleared under the queue's lock.
//! A panic of the writer is found as in `mutex`.
//!
//! ```text
//!               (1) read                  (3) write
//!   n readers ◀────────────▶ free ◀────────────────────▶ WRITER
//!     │   ▲     (2) unread               (4) unwrite      │   ▲
//! (5) │   │ (7)                                       (5) │   │ (7)
//!     ▼   │                                               ▼   │
//!   n readers, ◀────────────(6) next phase────────────▶ WRITER,
//!    QUEUED                                              QUEUED
//! ```
//!
//! (5) to (7) are under the queue's lock.
//!
//! # Phases
//!
//! While QUEUED is set, (1) and (3) fail for all callers: a writer that waits
//! keeps new readers out. The G that frees the lock then begins the next phase under
//! the queue's lock (6): after a writer all readers that wait now, after the
//! last reader the first writer. So a reader waits for one writer at most, a
//! writer for the writers before it and one phase of readers between each.
//! There is no barging: a waiter that is let in is counted in the word before it is
//! woken.
//!
//! Many readers are let in in several batches (see `wait`); `phase` is the
//! number that says which readers belong to the phase, so that a batch that has come and
//! gone does not end it.
//!
//! # A writer or reader that is gone
//!
//! If the writer ended without unwinding, the lock is *abandoned*: its phase never ends, and
//! every call and every waiter is told so ([`held`](super::held)). A reader that is gone
//! stays counted, as readers have no names here: other readers enter, writers wait for ever.

use super::held::{
    NotTaken, OWNER, PANICKING, Poisoned, guard, guard_mut, is_abandoned, is_mine, is_same,
    note_if_abandoned, watch_wait,
};
use super::queue::{IfUnwound, Locked, Place, WaitQueue, Waited};
use crate::run::sys::{AtomicU64, Reason, const_fn, me};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const QUEUED: u64 = 1;
const WRITER: u64 = 2;
const POISONED: u64 = 4;
const READER: u64 = 16;
/// The count of readers, or the name of the writer, all of it.
const READERS: u64 = OWNER;
const _: () = assert!(READERS == !(READER - 1));

/// The lists of the queue.
const READING: usize = 0;
const WRITING: usize = 1;

/// Under the queue's lock.
pub(super) struct Phase {
    /// Readers with a number below this are let in before the next writer.
    readers_before: u64,
}

/// With the name of each, for the word.
type Queue = WaitQueue<Phase, u64, 2>;

/// A value, and the lock that guards it.
pub(crate) struct GuardedRw<T: ?Sized> {
    lock: LockRw,
    value: UnsafeCell<T>,
}

/// The lock itself, whatever it guards.
#[repr(C)] // `held` computes the address of the word from that of the queue
pub(super) struct LockRw {
    pub(super) word: AtomicU64,
    pub(super) queue: Queue,
}

// SAFETY: `&GuardedRw` lets one G after the other have `&mut T` (hence Send),
// and several at once `&T` (hence Sync).
unsafe impl<T: ?Sized + Send + Sync> Sync for GuardedRw<T> {}

guard! {
    /// The right to read the value of a `RwLock`, until this is dropped. A
    /// reader that panics poisons nothing.
    RwLockReadGuard, GuardedRw, leave_read
}

guard_mut! {
    /// The right to change the value of a `RwLock`, until this is dropped;
    /// the lock is poisoned if that is by a panic.
    RwLockWriteGuard, GuardedRw, leave_write
}

/// What taking the lock gives.
pub(crate) type Taken<G> = Result<(G, Poisoned), NotTaken>;

impl<T> GuardedRw<T> {
    const_fn! {
        /// A free lock around `value`.
        pub(crate) fn new(value: T) -> Self {
            let queue = WaitQueue::new(Phase { readers_before: 0 });
            let lock = LockRw { word: AtomicU64::new(0), queue };
            GuardedRw { lock, value: UnsafeCell::new(value) }
        }
    }

    /// The value; `self` is the only reference to the lock.
    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> GuardedRw<T> {
    /// Waits until it may read, or until the deadline.
    #[inline]
    pub(crate) fn read(&self, deadline_ns: Option<u64>) -> Taken<RwLockReadGuard<'_, T>> {
        if !self.lock.enter_read() {
            self.lock.wait_to_enter(READING, deadline_ns)?;
        }
        Ok((RwLockReadGuard { lock: self, not_send: PhantomData }, self.lock.poisoned()))
    }

    /// Reads if that is possible at once.
    pub(crate) fn try_read(&self) -> Taken<RwLockReadGuard<'_, T>> {
        if !self.lock.enter_read() {
            return Err(self.lock.why_not());
        }
        Ok((RwLockReadGuard { lock: self, not_send: PhantomData }, self.lock.poisoned()))
    }

    /// Waits until it may write, or until the deadline.
    #[inline]
    pub(crate) fn write(&self, deadline_ns: Option<u64>) -> Taken<RwLockWriteGuard<'_, T>> {
        if !self.lock.enter_write() {
            self.lock.wait_to_enter(WRITING, deadline_ns)?;
        }
        Ok((RwLockWriteGuard { lock: self, not_send: PhantomData }, self.lock.poisoned()))
    }

    /// Writes if that is possible at once.
    pub(crate) fn try_write(&self) -> Taken<RwLockWriteGuard<'_, T>> {
        if !self.lock.enter_write() {
            return Err(self.lock.why_not());
        }
        Ok((RwLockWriteGuard { lock: self, not_send: PhantomData }, self.lock.poisoned()))
    }

    /// Whether a writer panicked, or is gone.
    pub(crate) fn is_poisoned(&self) -> Poisoned {
        Poisoned(self.lock.poisoned().0 || self.lock.why_not() == NotTaken::Abandoned)
    }

    /// Forgets that a writer panicked.
    pub(crate) fn clear_poison(&self) {
        self.lock.word.fetch_and(!POISONED, Relaxed);
    }

    /// The value; `self` is the only reference to the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The name in the word, for models.
    #[cfg(loom)]
    pub(crate) fn owner(&self) -> u64 {
        owner_in(self.lock.word.load(Relaxed))
    }

    /// Queues to write, while others are inside, as a G that is abandoned before it parks.
    #[cfg(any(test, loom))]
    pub(crate) fn vanish(&self) {
        let locked = self.lock.queue.lock();
        assert!(!self.lock.enter_or_mark(WRITING), "it is free");
        let reason = Reason::RwLockWrite;
        let place = Place { reason, list: WRITING, value: Some(me()), deadline_ns: None };
        self.lock.queue.enlist_for_ever(locked, place);
    }

    /// What `abandon_locks` does for the lock that the G `name` waited for.
    #[cfg(any(test, loom))]
    pub(crate) fn forget_waiter(&self, name: u64) {
        self.lock.forget_waiter(name);
    }

    /// How many Gs have ever queued here.
    #[cfg(test)]
    pub(crate) fn queued_ever(&self) -> u64 {
        self.lock.queue.lock().queued_ever()
    }
}

impl LockRw {
    fn poisoned(&self) -> Poisoned {
        Poisoned(self.word.load(Relaxed) & POISONED != 0)
    }

    /// (1)
    #[inline]
    fn enter_read(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & (WRITER | QUEUED) == 0 {
            let Some(more) = word.checked_add(READER) else { return false };
            // Acquire pairs with the Release of the last writer.
            match self.word.compare_exchange_weak(word, more, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// (3)
    #[inline]
    fn enter_write(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & (READERS | WRITER | QUEUED) == 0 {
            // Acquire pairs with the Release of the last writer or reader.
            match self.word.compare_exchange_weak(word, word | WRITER | me(), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Enters, or waits to be let in.
    #[cold]
    fn wait_to_enter(&self, list: usize, deadline_ns: Option<u64>) -> Result<(), NotTaken> {
        if is_abandoned(owner_in(self.word.load(Relaxed))) {
            return Err(self.why_not());
        }
        let locked = self.queue.lock();
        // Where others wait, this G does too: the G that frees the lock, or has just
        // freed it, comes to the queue because of them.
        if self.tell_if_empty(&locked) && self.enter_or_mark(list) {
            return Ok(());
        }
        let reason = if list == READING { Reason::RwLockRead } else { Reason::RwLockWrite };
        let place = Place { reason, list, value: Some(me()), deadline_ns };
        let _ = core::ptr::from_ref(self).expose_provenance(); // for `held::forget_waiter`
        let if_killed = IfUnwound(|| self.next_phase()); // as when it is time
        let is_own = deadline_ns.is_none() && is_mine(owner_in(self.word.load(Relaxed)));
        let begun = || watch_wait(is_own, || owner_in(self.word.load(Relaxed)));
        // A G that waits here looks only for this: the unlock grants it the lock.
        let waited = self
            .queue
            .wait_watching(locked, place, begun, |_| note_if_abandoned(&self.word, owner_in));
        core::mem::forget(if_killed);
        let (locked, why_not) = match waited {
            Waited::Granted(_) => return Ok(()),
            Waited::Took(locked) => (locked, NotTaken::Abandoned),
            Waited::TimedOut(locked, _) => (locked, NotTaken::Held),
        };
        drop(locked);
        // If this was the writer that kept readers out, they may enter now.
        self.next_phase();
        Err(why_not)
    }

    /// The G `name` is gone, and may have a node in a queue: takes it out. If there is none, the
    /// G was let in, and stays inside.
    pub(super) fn forget_waiter(&self, name: u64) {
        let mut locked = self.queue.lock();
        let is_it = |waiting| is_same(waiting, name);
        if locked.take_out(READING, is_it) || locked.take_out(WRITING, is_it) {
            drop(locked);
            self.next_phase(); // as when it is time
        }
    }

    /// Why the lock could not be entered.
    #[cold]
    fn why_not(&self) -> NotTaken {
        match note_if_abandoned(&self.word, owner_in) {
            true => NotTaken::Abandoned,
            false => NotTaken::Held,
        }
    }

    /// (1), (3) or (5), whichever the word allows. Under the queue's lock, when
    /// no G waits.
    fn enter_or_mark(&self, list: usize) -> bool {
        loop {
            let entered = if list == READING { self.enter_read() } else { self.enter_write() };
            if entered {
                return true;
            }
            // (5) Only as long as a G is inside, which must then come to the
            // queue. Relaxed: the queue's lock orders the rest.
            let word = self.word.load(Relaxed);
            if word & (READERS | WRITER) != 0
                && self.word.compare_exchange(word, word | QUEUED, Relaxed, Relaxed).is_ok()
            {
                return false;
            }
        }
    }

    /// (7) Under the queue's lock. True if no G waits.
    fn tell_if_empty(&self, locked: &Locked<'_, Phase, u64, 2>) -> bool {
        let is_empty = locked.is_empty(READING) && locked.is_empty(WRITING);
        if is_empty {
            self.word.fetch_and(!QUEUED, Relaxed);
        }
        is_empty
    }

    /// (2) Only for a reader.
    #[inline]
    fn leave_read(&self) {
        // Release: our reads are done before a writer writes.
        let word = self.word.fetch_sub(READER, Release);
        if word & READERS == READER && word & QUEUED != 0 {
            self.next_phase();
        }
    }

    /// (4) Only for the writer.
    #[inline]
    fn leave_write(&self) {
        // Release: what was written is written before the next one looks.
        if self.word.compare_exchange(WRITER | me(), 0, Release, Relaxed).is_err() {
            self.leave_write_slow();
        }
    }

    #[cold]
    fn leave_write_slow(&self) {
        // The panic that unwinds now, if any, began since.
        if me() & !self.word.load(Relaxed) & PANICKING != 0 {
            self.word.fetch_or(POISONED, Relaxed);
        }
        let mut locked = self.queue.lock();
        locked.readers_before = locked.new_number();
        self.word.fetch_and(!(OWNER | WRITER), Release);
        drop(locked);
        self.next_phase();
    }

    /// Lets in the waiters that may enter now.
    #[cold]
    fn next_phase(&self) {
        self.queue.grant_while(|locked| {
            let next = self.next(locked);
            if next.is_none() {
                self.tell_if_empty(locked);
            }
            next
        });
    }

    /// (6) The list whose first may enter now; it is counted in already. Under
    /// the queue's lock: while a G waits, QUEUED is set and none enters
    /// meanwhile; those inside may leave.
    fn next(&self, locked: &Locked<'_, Phase, u64, 2>) -> Option<usize> {
        // Acquire: what the Gs that left have done is passed on by the grant.
        let word = self.word.load(Acquire);
        if word & WRITER != 0 {
            return None;
        }
        let writer = locked.front(WRITING);
        if let Some(first) = locked.front_number(READING)
            && (first < locked.readers_before || writer.is_none())
        {
            self.word.fetch_add(READER, Relaxed);
            return Some(READING);
        }
        let writer = writer.filter(|_| word & READERS == 0)?;
        self.word.fetch_or(WRITER | writer, Relaxed);
        Some(WRITING)
    }
}

/// The name of the writer; 0 if there is none.
pub(super) fn owner_in(word: u64) -> u64 {
    if word & WRITER != 0 { word & OWNER } else { 0 }
}
