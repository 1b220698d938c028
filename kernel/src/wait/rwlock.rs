//! `RwLock`: a value for many readers or one writer.
//!
//! # The word
//!
//! Readers are counted from bit [`READER`] on. WRITER: a G changes the value, and its name stands
//! where the count would ([`held`](super::held)); readers are not known by name. QUEUED: a G may
//! wait; set and cleared under the queue's lock. A panic of the writer is found as in `mutex`.
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
//! While QUEUED is set, (1) and (3) fail for all callers: a writer that waits keeps new readers
//! out. The G that frees the lock then begins the next phase under the queue's lock (6): after a
//! writer all readers that wait now, after the last reader the first writer. So a reader waits for
//! one writer at most, a writer for the writers before it and one phase of readers between each.
//! There is no barging: a waiter that is let in is counted in the word before it is woken.
//!
//! Many readers are let in in several batches; [`Phase`] says which readers belong to the phase, so
//! that a batch that has come and gone does not end it.
//!
//! A writer that becomes a reader (`downgrade`) ends its phase without leaving.
//!
//! A reader that becomes the writer (`upgrade`) waits in a list of its own, before all others.
//!
//! # A writer or reader that is gone
//!
//! If the writer ended without unwinding, the lock is *abandoned*: its phase never ends, and
//! every call and every waiter is told so ([`held`](super::held)). A reader that is gone
//! stays counted, as readers have no names here: other readers enter, writers wait for ever.

use super::held::{
    OWNER, PANICKING, disown, guard, is_abandoned, is_mine, is_same, note_if_abandoned,
    owned_guard, watch_wait,
};
use super::limit::Limit;
use super::mutex::Mutex;
use super::poison::{LockError, LockResult, check, lock_type, taken, with_guard};
use super::queue::{IfUnwound, Locked, Place, TimedOut, WaitQueue, Waited};
use crate::run::door::might_park;
use crate::run::sys::{AtomicU64, Reason, const_fn, me, passed_on, stop_lending};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::forget;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const QUEUED: u64 = 1;
const WRITER: u64 = 2;
const POISONED: u64 = 4;
const READER: u64 = 16;
/// The count of readers, or the name of the writer.
const READERS: u64 = OWNER;
const _: () = assert!(READERS == !(READER - 1));

/// The lists of the queue.
const READING: usize = 0;
pub(crate) const WRITING: usize = 1;
/// A reader that becomes the writer; one at most.
const UPGRADING: usize = 2;

/// Under the queue's lock.
pub(crate) struct Phase {
    /// Readers with a number below this are let in before the next writer.
    readers_before: u64,
}

/// With the name of each, for the word.
pub(crate) type Queue = WaitQueue<Phase, u64, 3>;

/// A value that many Gs may read at a time, or one may change.
///
/// Readers and writers take turns where both wait: a writer that waits keeps new readers out, and
/// when it is done lets in the readers that waited meanwhile. So a G that reads must not read again
/// meanwhile: a writer between the two would wait for the first, and the second for the writer.
///
/// ```
/// use runnext::{prelude::*, sync::RwLock};
/// static CONFIG: RwLock<u32> = RwLock::new(1);
/// let readers: Vec<_> = (0..3).map(|_| go(|| *CONFIG.read().unwrap())).collect();
/// assert!(readers.into_iter().all(|reader| reader.join() == Ok(1)));
/// *CONFIG.write().unwrap() = 2;
/// assert_eq!(*CONFIG.read().unwrap(), 2);
/// ```
pub struct RwLock<T: ?Sized> {
    pub(crate) lock: LockRw,
    value: UnsafeCell<T>,
}

/// The lock itself, whatever it guards.
#[repr(C)] // `held` computes the address of the word from that of the queue
pub(crate) struct LockRw {
    pub(crate) word: AtomicU64,
    pub(crate) queue: Queue,
    /// Held by the reader that may become a writer.
    pub(super) upgrader: Mutex<()>,
}

// SAFETY: `&RwLock` gives `&mut T` to one G after the other (Send), and `&T` to several (Sync).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

guard! {
    /// The right to read the value of a `RwLock`. A reader that panics poisons nothing.
    RwLockReadGuard, RwLock, leave_read
}

guard! {
    /// The right to change the value of a `RwLock`; a panic that drops this poisons the lock.
    mut RwLockWriteGuard, RwLock, leave_write
}

owned_guard! {
    /// The right to read the value of a `RwLock` in an `Arc`, bound to no G: it may move into
    /// another one and be dropped there.
    OwnedRwLockReadGuard, RwLock, leave_read
}

owned_guard! {
    /// The right to change the value of a `RwLock` in an `Arc`, bound to no G: it may move into
    /// another one and be dropped there.
    ///
    /// ```
    /// use runnext::{prelude::*, sync::RwLock};
    /// use std::sync::Arc;
    /// let config = Arc::new(RwLock::new(1));
    /// let mut held = config.write_owned().unwrap();
    /// go(move || *held = 2).join().unwrap();
    /// assert_eq!(*config.read_owned().unwrap(), 2);
    /// ```
    mut OwnedRwLockWriteGuard, RwLock, leave_write_slow
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    pub(super) fn lock(this: &Self) -> &'a RwLock<T> {
        this.lock
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Becomes a reader, with no other writer in between. Readers that wait enter as well.
    ///
    /// ```
    /// use runnext::sync::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut writing = lock.write().unwrap();
    /// *writing = 2;
    /// let reading = RwLockWriteGuard::downgrade(writing);
    /// assert_eq!((*reading, *lock.read().unwrap()), (2, 2));
    /// ```
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T> {
        let lock = this.lock;
        forget(this);
        lock.lock.downgrade();
        RwLockReadGuard { lock, not_send: PhantomData }
    }
}

lock_type!(RwLock, LockRw, try_read);

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading, waiting for it if need be.
    ///
    /// # Errors
    /// [`LockError`]: the guard with a warning, if a writer panicked; or
    /// no guard, if a writer was abandoned.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        might_park();
        self.reading(self.lock.enter(READING, None))
    }

    /// Takes the lock for reading if no G writes or waits to write.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn try_read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.reading(self.lock.try_enter(READING))
    }

    /// Takes the lock for reading, waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn read_until<'l>(
        &self,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<RwLockReadGuard<'_, T>> {
        might_park();
        self.reading(limit.into().during(|deadline_ns| self.lock.enter(READING, Some(deadline_ns))))
    }

    /// Takes the lock for writing, waiting for it if need be.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        might_park();
        self.writing(self.lock.enter(WRITING, None))
    }

    /// Takes the lock for writing if no G holds it or waits for it.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn try_write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.writing(self.lock.try_enter(WRITING))
    }

    /// Takes the lock for writing, waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn write_until<'l>(
        &self,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<RwLockWriteGuard<'_, T>> {
        might_park();
        self.writing(limit.into().during(|deadline_ns| self.lock.enter(WRITING, Some(deadline_ns))))
    }

    /// As [`read`](Self::read), for a guard that is bound to no G.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_owned(self: &Arc<Self>) -> LockResult<OwnedRwLockReadGuard<T>> {
        self.owned_reading(self.read())
    }

    /// As [`read_owned`](Self::read_owned), waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn read_owned_until<'l>(
        self: &Arc<Self>,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<OwnedRwLockReadGuard<T>> {
        self.owned_reading(self.read_until(limit))
    }

    /// As [`write`](Self::write), for a guard that is bound to no G. Reports name no holder then, and
    /// if the G that has the guard is abandoned, the lock stays taken: waiters wait on.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_owned(self: &Arc<Self>) -> LockResult<OwnedRwLockWriteGuard<T>> {
        self.owned_writing(self.write())
    }

    /// As [`write_owned`](Self::write_owned), waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn write_owned_until<'l>(
        self: &Arc<Self>,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<OwnedRwLockWriteGuard<T>> {
        self.owned_writing(self.write_until(limit))
    }

    fn owned_reading(
        self: &Arc<Self>,
        entered: LockResult<RwLockReadGuard<'_, T>>,
    ) -> LockResult<OwnedRwLockReadGuard<T>> {
        let own = || OwnedRwLockReadGuard { lock: self.clone(), value: PhantomData };
        taken(with_guard(entered, forget), own)
    }

    fn owned_writing(
        self: &Arc<Self>,
        entered: LockResult<RwLockWriteGuard<'_, T>>,
    ) -> LockResult<OwnedRwLockWriteGuard<T>> {
        taken(with_guard(entered, forget), || {
            disown(&self.lock.word);
            OwnedRwLockWriteGuard { lock: self.clone(), value: PhantomData }
        })
    }

    #[inline]
    fn reading(&self, entered: LockResult<()>) -> LockResult<RwLockReadGuard<'_, T>> {
        taken(entered, || RwLockReadGuard { lock: self, not_send: PhantomData })
    }

    #[inline]
    pub(super) fn writing(&self, entered: LockResult<()>) -> LockResult<RwLockWriteGuard<'_, T>> {
        taken(entered, || RwLockWriteGuard { lock: self, not_send: PhantomData })
    }
}

impl LockRw {
    const_fn! {
        fn new() -> Self {
            let queue = WaitQueue::new(Phase { readers_before: 0 });
            LockRw { word: AtomicU64::new(0), queue, upgrader: Mutex::new(()) }
        }
    }

    #[inline]
    fn enter(&self, list: usize, deadline_ns: Option<u64>) -> LockResult<()> {
        if !self.enter_at_once(list) {
            self.wait_to_enter(list, deadline_ns)?;
        }
        self.poisoned()
    }

    fn try_enter(&self, list: usize) -> LockResult<()> {
        if self.enter_at_once(list) { self.poisoned() } else { Err(self.not_at_once()) }
    }

    /// (1) or (3)
    #[inline]
    fn enter_at_once(&self, list: usize) -> bool {
        let mut word = self.word.load(Relaxed);
        loop {
            let entered = match list {
                READING if word & (WRITER | QUEUED) == 0 => word.checked_add(READER),
                WRITING if word & (READERS | WRITER | QUEUED) == 0 => Some(word | WRITER | me()),
                _ => None,
            };
            let Some(entered) = entered else { return false };
            // Acquire pairs with the Release of the last writer or reader.
            match self.word.compare_exchange_weak(word, entered, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    #[cold]
    fn wait_to_enter(&self, list: usize, deadline_ns: Option<u64>) -> LockResult<()> {
        if is_abandoned(owner_in(self.word.load(Relaxed))) {
            return Err(self.why_not());
        }
        let locked = self.queue.lock();
        // Where others wait, this G does too: the G that frees the lock comes to the queue.
        if self.tell_if_empty(&locked) && self.enter_or_mark(list) {
            return Ok(());
        }
        let reason = if list == READING { Reason::RwLockRead } else { Reason::RwLockWrite };
        let place = Place { reason, list, value: Some(me()), deadline_ns };
        let _ = core::ptr::from_ref(self).expose_provenance(); // for `held::forget_waiter`
        let if_killed = IfUnwound(|| {
            self.next_phase(); // as when it is time
            stop_lending();
        });
        let is_own = deadline_ns.is_none() && is_mine(owner_in(self.word.load(Relaxed)));
        let begun = || watch_wait(is_own, || owner_in(self.word.load(Relaxed)));
        // A G that waits here looks only for this: the unlock grants it the lock.
        let check = |_: &mut Phase| note_if_abandoned(&self.word, owner_in);
        let waited = locked.wait_watching(place, Some(begun), check);
        forget(if_killed);
        let (locked, why_not) = match waited {
            Waited::Granted(_) => {
                stop_lending();
                return Ok(());
            }
            Waited::Took(locked) => (locked, LockError::Abandoned),
            Waited::TimedOut(locked, _) => (locked, LockError::Held),
        };
        drop(locked);
        stop_lending();
        // If this was the writer that kept readers out, they may enter now.
        self.next_phase();
        Err(why_not)
    }

    /// Takes out the node of the G `name`, which is gone. If there is none, it was let in, and
    /// stays.
    pub(crate) fn forget_waiter(&self, name: u64) {
        let mut locked = self.queue.lock();
        let is_it = |waiting| is_same(waiting, name);
        if [READING, WRITING, UPGRADING].iter().any(|&list| locked.take_out(list, is_it)) {
            drop(locked);
            self.next_phase(); // as when it is time
        }
    }

    /// (1), (3) or (5), whichever the word allows. Under the queue's lock, when no G waits.
    pub(crate) fn enter_or_mark(&self, list: usize) -> bool {
        loop {
            if self.enter_at_once(list) {
                return true;
            }
            // (5) Only while a G is inside, which must then come to the queue.
            let word = self.word.load(Relaxed);
            if word & (READERS | WRITER) != 0
                && self.word.compare_exchange(word, word | QUEUED, Relaxed, Relaxed).is_ok()
            {
                return false;
            }
        }
    }

    /// (7) Under the queue's lock. True if no G waits.
    fn tell_if_empty(&self, locked: &Locked<'_, Phase, u64, 3>) -> bool {
        let is_empty = [READING, WRITING, UPGRADING].iter().all(|&list| locked.is_empty(list));
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
        // The last of them; or the last but one, as that may wait to become the writer.
        if word & READERS <= 2 * READER && word & QUEUED != 0 {
            self.next_phase();
        }
    }

    /// From writer to reader, by one step. Only for the writer.
    fn downgrade(&self) {
        let writer = self.word.load(Relaxed) & (OWNER | WRITER);
        // Release: what was written is written before other readers read.
        if self.word.fetch_add(READER.wrapping_sub(writer), Release) & QUEUED == 0 {
            return;
        }
        let mut locked = self.queue.lock();
        locked.readers_before = locked.new_number();
        drop(locked);
        self.next_phase();
    }

    /// From reader to writer. Only for the reader that holds `upgrader`, so for one at a time.
    pub(super) fn upgrade(&self, deadline_ns: Option<u64>) -> Result<(), TimedOut> {
        if self.upgrade_at_once() {
            return Ok(());
        }
        let locked = self.queue.lock();
        // (5) A reader that leaves from here on comes to the queue; one that left before is seen.
        self.word.fetch_or(QUEUED, Relaxed);
        if self.upgrade_at_once() {
            self.tell_if_empty(&locked);
            return Ok(());
        }
        let place =
            Place { reason: Reason::RwLockWrite, list: UPGRADING, value: Some(me()), deadline_ns };
        let _ = core::ptr::from_ref(self).expose_provenance(); // for `held::forget_waiter`
        let if_killed = IfUnwound(|| self.next_phase()); // as when it is time
        let waited = locked.wait(place, |_| false).in_time();
        forget(if_killed);
        waited.inspect_err(|_| self.next_phase()) // those that it kept out may enter now
    }

    /// If there is no other reader.
    fn upgrade_at_once(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & READERS == READER {
            let writer = (word - READER) | WRITER | me();
            // Acquire pairs with the Release of the readers that left.
            match self.word.compare_exchange_weak(word, writer, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
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
        // Readers have no names: nothing is lent to them.
        passed_on(core::ptr::from_ref(&self.queue).addr(), owner_in(self.word.load(Relaxed)));
    }

    /// Lets in the waiters that may enter now.
    #[cold]
    fn next_phase(&self) {
        self.queue.grant_while(|locked| {
            self.next(locked).or_else(|| {
                self.tell_if_empty(locked);
                None
            })
        });
    }

    /// (6) The list whose first may enter now; it is counted in already. Under the queue's lock.
    /// While a G waits, QUEUED is set and none enters; those inside may leave.
    fn next(&self, locked: &Locked<'_, Phase, u64, 3>) -> Option<usize> {
        // Acquire: what the Gs that left have done is passed on by the grant.
        let word = self.word.load(Acquire);
        if word & WRITER != 0 {
            return None;
        }
        if let Some(upgrader) = locked.front(UPGRADING) {
            let is_alone = word & READERS == READER;
            return is_alone.then(|| {
                self.word.fetch_add((WRITER | upgrader).wrapping_sub(READER), Relaxed);
                UPGRADING
            });
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
pub(crate) fn owner_in(word: u64) -> u64 {
    if word & WRITER != 0 { word & OWNER } else { 0 }
}
