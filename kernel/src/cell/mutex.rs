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
//! it on to a G that must first be woken; but it may starve those who wait. So:
//! while the first in the queue has waited for less than [`PATIENCE_NS`], unlock
//! frees the lock and nudges it (6): it looks, keeping its place, and may be too
//! late. When it has waited for longer, unlock grants (5): LOCKED stays, and the
//! first in the queue has the lock. Go gets the same from a mode that waiters
//! switch on and off; here each unlock sees for itself, so nobody waits for
//! longer than his patience and those before him in the queue.
//!
//! No wake-up is lost: QUEUED is set, under the queue's lock, only while LOCKED
//! is (4), so there is somebody whose unlock must fail at (2) and come to the
//! queue. A nudged waiter that finds the lock taken again (3) is in the same
//! place as one that enqueues.

use super::sys::{AtomicU32, Reason, SPINS, const_fn, now_ns, relax};
use super::wait::{IfUnwound, Locked, Place, WaitQueue, Waited};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const POISONED: u32 = 4;

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
        if let Some(poisoned) = self.spin() {
            return Some(poisoned);
        }
        let since_ns = now_ns();
        let locked = self.queue.lock();
        if let Some(poisoned) = self.barge_or_enqueue() {
            return Some(poisoned);
        }
        let place =
            Place { reason: Reason::MutexLock, list: 0, value: Some(since_ns), deadline_ns };
        let if_killed = IfUnwound(|| self.tell_if_empty(&self.queue.lock())); // as when it is time
        let waited = self.queue.wait(locked, place, |()| self.barge().is_some());
        core::mem::forget(if_killed);
        match waited {
            Waited::Granted(_) => Some(Poisoned(self.is_poisoned())),
            Waited::Took(locked) => {
                self.tell_if_empty(&locked);
                Some(Poisoned(self.is_poisoned()))
            }
            // If we were nudged in vain, there is a holder again, and its unlock
            // will nudge whoever is first now: nothing to pass on.
            Waited::TimedOut(locked, _) => {
                self.tell_if_empty(&locked);
                None
            }
        }
    }

    /// Looks a few times, while nobody else waits.
    fn spin(&self) -> Option<Poisoned> {
        for _ in 0..SPINS {
            if let Some(poisoned) = self.barge() {
                return Some(poisoned);
            }
            if self.word.load(Relaxed) & QUEUED != 0 {
                break;
            }
            relax();
        }
        None
    }

    /// (3) or (4), whichever the word allows. Under the queue's lock.
    fn barge_or_enqueue(&self) -> Option<Poisoned> {
        loop {
            if let Some(poisoned) = self.barge() {
                return Some(poisoned);
            }
            let word = self.word.load(Relaxed);
            // Relaxed: it says nothing about the value. Whoever meets QUEUED at
            // its unlock comes to the queue, whose lock orders the rest.
            if word & LOCKED != 0
                && self.word.compare_exchange(word, word | QUEUED, Relaxed, Relaxed).is_ok()
            {
                return None;
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
        let mut locked = self.queue.lock();
        let next = match locked.front(0) {
            None => {
                self.word.fetch_and(!(LOCKED | QUEUED), Release);
                None
            }
            Some(since_ns) if now_ns().saturating_sub(since_ns) > PATIENCE_NS => {
                let next = locked.grant(0); // (5)
                self.tell_if_empty(&locked);
                next
            }
            Some(_) => {
                self.word.fetch_and(!LOCKED, Release); // (6)
                locked.nudge(0)
            }
        };
        if let Some(next) = next {
            locked.ready(next);
        }
    }
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
