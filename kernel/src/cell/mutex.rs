//! A value that one G at a time may touch: the word, the queue, the access.
//!
//! The lock of `sync::Mutex`. Guards that poison as std's do, and timeouts by
//! duration, are left to that file; this one is here because the right to touch
//! the value rests on the word below, and on nothing else.
//!
//! # The word
//!
//! ```text
//!        (1) lock          (4) enqueue                   (6) unlock, nudge
//!    0 ───────────▶ LOCKED ───────────▶ LOCKED|QUEUED ─────────────────▶ QUEUED
//!      ◀───────────        ◀───────────   │       ▲   ◀─────────────────
//!       (2) unlock         (7) queue      └───────┘    (3) barge, or look
//!                              is empty  (5) unlock, grant
//! ```
//!
//! LOCKED: somebody has the value. QUEUED: the queue may not be empty. (3) to
//! (7) are under the queue's lock, but for (3) by one who does not wait.
//! POISONED stands aside: it is set by a holder and changes nothing of the rest,
//! but it keeps callers off (1) and (2), so the short way need not ask for it.
//!
//! # Who is next
//!
//! To let whoever comes take a free lock (to barge) is much faster than to pass
//! it on to a G that must first be woken; but it may starve those who wait. So,
//! as in Go: while the first in the queue has waited for less than
//! [`PATIENCE_NS`], unlock frees the lock and nudges it (6): it looks, keeping its
//! place, and may be too late. If it is, and has lost its patience, it says so
//! (HUNGRY); then, and whenever an unlock comes to the queue and finds it so, the
//! lock is granted (5): LOCKED stays, and the first in the queue has it.
//!
//! # One at a time is on its way
//!
//! A nudge costs more than all the rest, and one is enough: NUDGED says that
//! somebody is awake who will look, so that unlock need not come to the queue.
//! It is set by a nudge, and by one who spins while others wait; and cleared by
//! whoever takes the lock, or finds that it must wait (again). While it is set
//! the lock goes from one running G to the next by one locked operation each.
//!
//! No wake-up is lost: who begins to wait, or to wait again, does so under the
//! queue's lock by one compare-exchange that finds LOCKED, sets QUEUED and clears
//! NUDGED (4). So there is a holder whose unlock must fail at (2) and come to the
//! queue, unless somebody sets NUDGED again; and whoever does that will take the
//! lock, or come to the same place.
//!
//! # Spinning
//!
//! Who finds the lock taken looks again for a while, if its holder can run
//! meanwhile and nobody waits for this CPU: by Go's rule, and about as long.

use super::sys::{AtomicU32, Reason, SPINS, const_fn, may_spin, now_ns, relax};
use super::wait::{IfUnwound, Locked, Place, WaitQueue, Waited};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const POISONED: u32 = 4;
const NUDGED: u32 = 8;
const HUNGRY: u32 = 16;

/// How long a waiter lets others barge: 1 ms, as in Go.
pub(crate) const PATIENCE_NS: u64 = 1_000_000;

/// A value, and the lock that guards it.
pub(crate) struct Guarded<T: ?Sized> {
    word: AtomicU32,
    /// With the time at which each began to wait.
    queue: WaitQueue<(), u64>,
    value: UnsafeCell<T>,
}

// SAFETY: `&Guarded` lets one G after the other have `&mut T`, which it may
// also move out of: that is sending it.
unsafe impl<T: ?Sized + Send> Sync for Guarded<T> {}

/// The right to touch the value; the lock is free again when this is dropped.
pub(crate) struct Held<'a, T: ?Sized> {
    lock: &'a Guarded<T>,
    // As std's guard, not `Send`: whoever holds the lock frees it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: `&Held` gives `&T` and nothing more.
unsafe impl<T: ?Sized + Sync> Sync for Held<'_, T> {}

/// Whether a holder panicked; what comes with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poisoned(pub(crate) bool);

impl<T> Guarded<T> {
    const_fn! {
        /// A free lock around `value`.
        pub(crate) fn new(value: T) -> Self {
            let word = AtomicU32::new(0);
            Guarded { word, queue: WaitQueue::new(()), value: UnsafeCell::new(value) }
        }
    }

    /// The value; nobody else has the lock, as it is ours to take apart.
    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Guarded<T> {
    /// (1) Takes the lock if nothing at all is against it: it is free, not
    /// poisoned, and nobody waits. What nearly every `lock` comes to.
    #[inline]
    pub(crate) fn lock_at_once(&self) -> Option<Held<'_, T>> {
        // Acquire pairs with the Release of whoever freed the lock.
        self.word.compare_exchange(0, LOCKED, Acquire, Relaxed).ok().map(|_| self.held())
    }

    /// Takes the lock, however long that takes.
    pub(crate) fn lock(&self) -> (Held<'_, T>, Poisoned) {
        let poisoned = self.lock_slow(None).expect("no deadline");
        (self.held(), poisoned)
    }

    /// Takes the lock if that can be done until `deadline_ns`.
    pub(crate) fn lock_until(&self, deadline_ns: u64) -> Option<(Held<'_, T>, Poisoned)> {
        let poisoned = self.lock_slow(Some(deadline_ns))?;
        Some((self.held(), poisoned))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<(Held<'_, T>, Poisoned)> {
        let poisoned = self.barge()?;
        Some((self.held(), poisoned))
    }

    /// Whether a holder panicked.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.word.load(Relaxed) & POISONED != 0
    }

    /// Forgets that a holder panicked.
    pub(crate) fn clear_poison(&self) {
        self.word.fetch_and(!POISONED, Relaxed);
    }

    /// How many Gs have ever queued here.
    #[cfg(test)]
    pub(crate) fn queued_ever(&self) -> u64 {
        self.queue.lock().queued_ever()
    }

    /// The value: nobody else has even a reference to the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Only for who has just got the lock.
    fn held(&self) -> Held<'_, T> {
        Held { lock: self, not_send: PhantomData }
    }

    /// (1), (3) Takes the lock if it is free, past all who wait.
    fn barge(&self) -> Option<Poisoned> {
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            // Acquire pairs with the Release of whoever freed the lock.
            match self.word.compare_exchange_weak(word, word | LOCKED, Acquire, Relaxed) {
                Ok(_) => return Some(Poisoned(word & POISONED != 0)),
                Err(now) => word = now,
            }
        }
        None
    }

    fn lock_slow(&self, deadline_ns: Option<u64>) -> Option<Poisoned> {
        let mine = match self.spin() {
            Ok(poisoned) => return Some(poisoned),
            Err(mine) => mine,
        };
        let since_ns = now_ns();
        let locked = self.queue.lock();
        if let Some(poisoned) = self.barge_or_wait(mine, QUEUED) {
            return Some(poisoned);
        }
        let reason = Reason::MutexLock;
        let place = Place { reason, list: 0, value: Some(since_ns), deadline_ns };
        // As when it is time: one who is killed has looked once more, too.
        let if_killed = IfUnwound(|| self.tell_if_empty(&self.queue.lock()));
        let waited = self.queue.wait(locked, place, |()| self.look(since_ns));
        core::mem::forget(if_killed);
        match waited {
            Waited::Granted(_) => Some(Poisoned(self.is_poisoned())),
            Waited::Took(locked) => {
                self.tell_if_empty(&locked);
                Some(Poisoned(self.is_poisoned()))
            }
            // If we were nudged in vain, we have said so when we looked for the
            // last time: nothing to pass on.
            Waited::TimedOut(locked, _) => {
                self.tell_if_empty(&locked);
                None
            }
        }
    }

    /// Looks for a while, if that is of use. If it was not: NUDGED, if we have set
    /// it and must clear it.
    fn spin(&self) -> Result<Poisoned, u32> {
        let mut mine = 0;
        let spins = if may_spin() { SPINS } else { 1 };
        for _ in 0..spins {
            let word = self.word.load(Relaxed);
            if word & LOCKED == 0 {
                let taken = (word | LOCKED) & !mine;
                // Acquire pairs with the Release of whoever freed the lock.
                if self.word.compare_exchange(word, taken, Acquire, Relaxed).is_ok() {
                    return Ok(Poisoned(word & POISONED != 0));
                }
            } else if word & HUNGRY != 0 {
                break; // it is passed on
            } else if word & (QUEUED | NUDGED) == QUEUED && spins > 1 {
                // We look, so nobody need be woken for that.
                let nudged = self.word.compare_exchange(word, word | NUDGED, Relaxed, Relaxed);
                mine = if nudged.is_ok() { NUDGED } else { mine };
            }
            relax();
        }
        Err(mine)
    }

    /// (3) by one who was nudged. Under the queue's lock.
    fn look(&self, since_ns: u64) -> bool {
        let set = if is_over(since_ns) { HUNGRY } else { 0 };
        self.barge_or_wait(NUDGED, set).is_some()
    }

    /// (3) or (4), whichever the word allows: `clear` is cleared in any case, `set`
    /// is set if one must wait. Under the queue's lock.
    fn barge_or_wait(&self, clear: u32, set: u32) -> Option<Poisoned> {
        loop {
            let word = self.word.load(Relaxed);
            let is_free = word & LOCKED == 0;
            let next = (word | if is_free { LOCKED } else { set }) & !clear;
            // Acquire pairs with the Release of whoever freed the lock. What is
            // said to who unlocks is ordered by the queue's lock, to which that
            // one comes.
            if self.word.compare_exchange(word, next, Acquire, Relaxed).is_ok() {
                return is_free.then_some(Poisoned(word & POISONED != 0));
            }
        }
    }

    /// (7) After the last was granted, looked with success, or gave up. Under
    /// the queue's lock.
    fn tell_if_empty(&self, locked: &Locked<'_, (), u64>) {
        if locked.is_empty(0) {
            self.word.fetch_and(!QUEUED, Relaxed);
        }
    }

    /// Frees the lock, or passes it on. Only for the holder.
    #[inline]
    fn unlock(&self) {
        // (2) Release: what was done to the value is done before the next has it.
        if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        // While somebody is on its way, or nobody waits: the lock is just free.
        let mut word = self.word.load(Relaxed);
        while word & HUNGRY == 0 && word & (QUEUED | NUDGED) != QUEUED {
            // Release as in (2).
            match self.word.compare_exchange(word, word & !LOCKED, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        let mut locked = self.queue.lock();
        let next = match locked.front(0) {
            None => {
                self.word.fetch_and(!(LOCKED | QUEUED | HUNGRY), Release);
                None
            }
            Some(since_ns) if is_over(since_ns) => {
                let next = locked.grant(0); // (5)
                // Nobody else is to be served before those who have lost patience.
                let is_hungry = locked.front(0).is_some_and(is_over);
                self.word.fetch_and(if is_hungry { !NUDGED } else { !(NUDGED | HUNGRY) }, Relaxed);
                self.tell_if_empty(&locked);
                next
            }
            Some(_) => {
                // In this order: who sees it free sees that it was nudged for.
                self.word.fetch_or(NUDGED, Relaxed);
                self.word.fetch_and(!(LOCKED | HUNGRY), Release); // (6)
                locked.nudge(0)
            }
        };
        locked.ready_if(next);
    }
}

/// Whether the patience of one who waits since then is over.
fn is_over(since_ns: u64) -> bool {
    now_ns().saturating_sub(since_ns) > PATIENCE_NS
}

impl<'a, T: ?Sized> Held<'a, T> {
    /// Marks the value as left in the middle of a change.
    #[cold]
    pub(crate) fn poison(&self) {
        self.lock.word.fetch_or(POISONED, Relaxed);
    }

    /// The lock that this holds.
    pub(crate) fn lock(&self) -> &'a Guarded<T> {
        self.lock
    }
}

impl<T: ?Sized> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock: nobody else has the value, and `&mut` of it
        // is given out by `&mut self` only.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
