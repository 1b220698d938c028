//! `Mutex`: a value for one G at a time.
//!
//! The right to touch the value rests on one word, and on nothing else.
//!
//! # The word
//!
//! ```text
//!        (1) lock         (4) enqueue                  (6) unlock, nudge
//!    0 ───────────▶ owner ───────────▶ owner, QUEUED ─────────────────▶ QUEUED
//!      ◀───────────       ◀───────────   │       ▲   ◀─────────────────
//!       (2) unlock        (7) queue      └───────┘    (3) barge
//!                             is empty  (5) unlock, grant: another owner
//! ```
//!
//! The upper bits name the G that holds the lock ([`held`](super::held)); zero means free. QUEUED:
//! the queue may not be empty. (3) to (7) are under the queue's lock, except (3) by a G that does
//! not wait. POISONED is independent of the rest, but keeps callers off (1) and (2), so the fast
//! paths need not check it. Nor do they check whether a panic began since: then the G's name has
//! changed, (2) does not find the one that it expects, and the slow path checks. If the owner is
//! gone, the lock is *abandoned*: it stays so for ever, and every call and waiter is told.
//!
//! # Which G is next
//!
//! To let a running G take a free lock (to barge) is much faster than to pass the lock to a G that
//! must first be woken; but it may starve waiters. So, as in Go: while the first in the queue has
//! waited for less than [`PATIENCE_NS`], unlock frees the lock and nudges it (6): it checks,
//! keeping its place, and may be too late. If it is, and has waited too long, it sets HUNGRY; then,
//! and whenever an unlock comes to the queue and finds it so, the lock is granted (5): it is never
//! free, and the first in the queue has it.
//!
//! # One waiter at a time is on its way
//!
//! A nudge costs more than all the rest, and one is enough: while a waiter is awake and will check
//! the lock, unlock need not come to the queue. CALLS says that it must: a G is queued, and none is
//! on its way. It is cleared by a nudge, and by a G that spins while others wait; and set again by
//! that G when it takes the lock, or finds that it must wait (again). While it is not set the lock
//! goes from one running G to the next by one locked operation each. A free lock has it not.
//!
//! No wake-up is lost: a G that begins to wait, or to wait again, does so under the queue's lock by
//! one compare-exchange that finds an owner and sets QUEUED and CALLS (4), unless another is on its
//! way. So there is a holder whose unlock must fail at (2) and come to the queue, unless a G clears
//! CALLS again; and that G will take the lock, or come to the same place. If the owner is gone, no
//! unlock comes: `abandon_locks` readies the waiters, and a G that begins to wait checks the owner.
//!
//! # The fast paths
//!
//! Where several CPUs want one lock, a G waits nearly always, and is on its way: of 800,000 turns
//! of 8 Gs on 4 CPUs, in all but a few; and on one CPU, once a G was preempted with the lock. So
//! QUEUED alone may not keep the lock off the fast paths, and neither of them may often try what
//! must fail: a locked instruction costs the same if it fails. Lock loads the word first, and both
//! expect the flag that it has seen there: with no owner, so that an owner makes it fail; with this
//! G, so that any other flag does, which is when there is more to do anyway. That is one locked
//! instruction for each, also with a G in the queue, where Go has three for both.
//!
//! # Spinning
//!
//! A G that finds the lock taken tries again for a while, if the holder can run meanwhile and no
//! other G waits for this CPU: by Go's rule, four times. A G that tried after every pause would
//! take the lock at each of the holder's unlocks, and its cache line would go to and fro for every
//! operation; four tries let the holder have many turns in its own cache.

use super::held::{
    OWNER, PANICKING, disown, guard, is_abandoned, is_mine, is_same, note_if_abandoned,
    owned_guard, watch_wait,
};
use super::limit::Limit;
use super::poison::{LockError, LockResult, check, lock_type, taken, with_guard};
use super::queue::{IfUnwound, Locked, Place, WaitQueue, Waited};
use crate::run::door::might_park;
use crate::run::sys::{
    AtomicU64, PAUSES, Reason, TRIES, const_fn, fence, is_urgent, may_spin, me, now_ns, passed_on,
    probe_stack, relax, stop_lending, taken_over,
};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

const QUEUED: u64 = 1;
const POISONED: u64 = 2;
const CALLS: u64 = 4;
const HUNGRY: u64 = 8;

/// How long a waiter lets others barge: 1 ms, as in Go.
pub(crate) const PATIENCE_NS: u64 = 1_000_000;

/// A value that one G at a time may touch.
///
/// A G that finds it taken waits and leaves its CPU to others. A free lock goes to the first G that
/// comes, as in Go; but once the first waiter is woken, finds the lock taken again and has waited
/// for more than 1 ms, it is served next, and after it, in order, all that have waited that long.
///
/// ```
/// use runnext::{prelude::*, sync::Mutex};
/// static SUM: Mutex<u64> = Mutex::new(0);
/// let adders: Vec<_> = (1..=4).map(|n| go(move || *SUM.lock().unwrap() += n)).collect();
/// adders.into_iter().for_each(|adder| adder.join().unwrap());
/// assert_eq!(*SUM.lock().unwrap(), 10);
/// ```
pub struct Mutex<T: ?Sized> {
    pub(crate) lock: Lock,
    value: UnsafeCell<T>,
}

/// The lock itself, whatever it guards.
#[repr(C)] // `held` computes the address of the word from that of the queue
pub(crate) struct Lock {
    pub(crate) word: AtomicU64,
    pub(crate) queue: WaitQueue<(), LockWaiter>,
}

/// What an unlock reads of a waiter.
#[derive(Clone, Copy)]
pub(crate) struct LockWaiter {
    since_ns: u64,
    /// Its name, for the word.
    me: u64,
}

// SAFETY: `&Mutex` gives `&mut T` to one G after the other, which may also move out of it: sending.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

guard! {
    /// The right to touch the value of a `Mutex`; a panic that drops this poisons the lock.
    mut MutexGuard, Mutex, unlock, queued
}

owned_guard! {
    /// The right to touch the value of a `Mutex` in an `Arc`, bound to no G: it may move into
    /// another one and be dropped there.
    ///
    /// ```
    /// use runnext::{prelude::*, sync::Mutex};
    /// use std::sync::Arc;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let mut held = log.lock_owned().unwrap();
    /// go(move || held.push("from another G")).join().unwrap();
    /// assert_eq!(*log.lock().unwrap(), ["from another G"]);
    /// ```
    mut OwnedMutexGuard, Mutex, unlock_slow
}

lock_type!(Mutex, Lock, try_lock);

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock, waiting for it if need be. A G that holds it already waits for ever.
    ///
    /// # Errors
    /// [`LockError`]: the guard with a warning, if a G panicked while it
    /// held the lock; or no guard, if a G that held the lock was abandoned.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        might_park();
        if let Ok(queued) = self.lock.take_free() {
            return Ok(self.guard(queued));
        }
        core::hint::cold_path();
        self.lock_by(None)
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn try_lock(&self) -> LockResult<MutexGuard<'_, T>> {
        taken(self.lock.barge(), || self.guard(self.lock.queued()))
    }

    /// Takes the lock, waiting for it until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn lock_until<'l>(&self, limit: impl Into<Limit<'l>>) -> LockResult<MutexGuard<'_, T>> {
        might_park();
        if let Ok(queued) = self.lock.take_free() {
            return Ok(self.guard(queued)); // without reading the clock
        }
        limit.into().during(|deadline_ns| self.lock_by(Some(deadline_ns)))
    }

    #[inline(always)]
    pub(crate) fn lock_by(&self, deadline_ns: Option<u64>) -> LockResult<MutexGuard<'_, T>> {
        taken(self.lock.lock(deadline_ns), || self.guard(self.lock.queued()))
    }

    /// As [`lock`](Self::lock), for a guard that is bound to no G. Reports name no holder then, and
    /// if the G that has the guard is abandoned, the lock stays taken: waiters wait on.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub fn lock_owned(self: &Arc<Self>) -> LockResult<OwnedMutexGuard<T>> {
        self.owned(self.lock())
    }

    /// As [`lock_owned`](Self::lock_owned), if the lock is free.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn try_lock_owned(self: &Arc<Self>) -> LockResult<OwnedMutexGuard<T>> {
        self.owned(self.try_lock())
    }

    /// As [`lock_owned`](Self::lock_owned), waiting until `limit` at most.
    ///
    /// # Errors
    /// [`LockError`] says why not, or warns.
    pub fn lock_owned_until<'l>(
        self: &Arc<Self>,
        limit: impl Into<Limit<'l>>,
    ) -> LockResult<OwnedMutexGuard<T>> {
        self.owned(self.lock_until(limit))
    }

    fn owned(
        self: &Arc<Self>,
        locked: LockResult<MutexGuard<'_, T>>,
    ) -> LockResult<OwnedMutexGuard<T>> {
        taken(with_guard(locked, core::mem::forget), || {
            disown(&self.lock.word);
            OwnedMutexGuard { lock: self.clone(), value: PhantomData }
        })
    }

    /// Only for a caller that has just taken the lock, when `queued` was in the word.
    fn guard(&self, queued: u64) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, queued, not_send: PhantomData }
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(crate) fn mutex(this: &Self) -> &'a Mutex<T> {
        this.lock
    }
}

impl Lock {
    const_fn! {
        fn new() -> Self {
            Lock { word: AtomicU64::new(0), queue: WaitQueue::new(()) }
        }
    }

    /// (1), (3) Takes the lock if it is free and not poisoned, and returns QUEUED if it is set. See
    /// "The fast paths".
    #[inline]
    fn take_free(&self) -> Result<u64, u64> {
        let queued = self.queued();
        // Acquire pairs with the Release of the G that freed the lock.
        self.word.compare_exchange(queued, queued | me(), Acquire, Relaxed)
    }

    /// QUEUED, if it is set.
    #[inline]
    fn queued(&self) -> u64 {
        self.word.load(Relaxed) & QUEUED
    }

    /// (1), (3) Takes the lock if it is free, past all waiters.
    fn barge(&self) -> LockResult<()> {
        let mut word = self.word.load(Relaxed);
        while word & OWNER == 0 {
            // Acquire pairs with the Release of the G that freed the lock.
            match self.word.compare_exchange_weak(word, word | me(), Acquire, Relaxed) {
                Ok(_) => return check((), word & POISONED != 0),
                Err(now) => word = now,
            }
        }
        Err(self.not_at_once())
    }

    #[cold]
    #[inline(never)]
    fn lock(&self, deadline_ns: Option<u64>) -> LockResult<()> {
        // As the queue's lock does, but before we may say that we are on our way.
        probe_stack();
        let mine = match self.spin() {
            Ok(taken) => return taken,
            Err(mine) => mine,
        };
        let since_ns = now_ns();
        // An unlock must end what an urgent G lends to the holder.
        let calls = if is_urgent() { CALLS } else { mine };
        let locked = self.queue.lock();
        match self.barge_or_wait(mine, |word| begins_to_wait(word, calls)) {
            Err(LockError::Held) => {}
            done => {
                drop(locked);
                self.lent_to_owner();
                return done;
            }
        }
        let is_own = deadline_ns.is_none() && is_mine(self.word.load(Relaxed) & OWNER);
        let place = place(since_ns, deadline_ns);
        let _ = core::ptr::from_ref(self).expose_provenance(); // for `held::forget_waiter`
        // As after a timeout: a G that is killed has checked once more, too.
        let if_killed = IfUnwound(|| {
            self.tell_if_empty(&self.queue.lock());
            stop_lending();
            self.lent_to_owner();
        });
        let begun = || {
            self.lent_to_owner();
            watch_wait(is_own, || self.word.load(Relaxed) & OWNER);
        };
        let mut tried = Err(LockError::Held);
        let waited = locked.wait_watching(place, Some(begun), |()| {
            // (3) by a G that was nudged, or readied because the owner is gone.
            let hungry = if is_over(since_ns) { HUNGRY } else { 0 };
            tried = self.barge_or_wait(CALLS, |_| CALLS | hungry);
            !matches!(tried, Err(LockError::Held))
        });
        core::mem::forget(if_killed);
        let (Waited::Took(locked) | Waited::TimedOut(locked, _)) = waited else {
            stop_lending();
            self.lent_to_owner();
            return self.poisoned();
        };
        // If it was nudged in vain, it has set CALLS at its last try: nothing to pass on.
        self.tell_if_empty(&locked);
        drop(locked);
        stop_lending();
        self.lent_to_owner();
        tried
    }

    /// Takes out the node of the G `name`, which is gone, if it was not granted the lock before.
    pub(crate) fn forget_waiter(&self, name: u64) {
        let mut locked = self.queue.lock();
        if !locked.take_out(0, |waiting| is_same(waiting.me, name)) {
            return;
        }
        self.tell_if_empty(&locked);
        // It may have been on its way: a G behind it is called in its place.
        let mut word = self.word.load(Relaxed);
        while word & OWNER != 0 && word & QUEUED != 0 {
            // An unlock comes to the queue. Relaxed, as the queue's lock orders the rest.
            match self.word.compare_exchange(word, word | CALLS, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        let next = locked.nudge(0);
        locked.ready_if(next);
    }

    /// Tries for a while, if that is of use. If in vain: CALLS, if we must set it again, else 0.
    pub(crate) fn spin(&self) -> Result<LockResult<()>, u64> {
        let mut mine = 0;
        let (tries, pauses) = if may_spin() { (TRIES, PAUSES) } else { (1, 0) };
        for _ in 0..tries {
            let word = self.word.load(Relaxed);
            if word & OWNER == 0 {
                let taken = word | me() | called(word, mine);
                // Acquire pairs with the Release of the G that freed the lock.
                if self.word.compare_exchange(word, taken, Acquire, Relaxed).is_ok() {
                    self.lent_to_owner();
                    return Ok(check((), word & POISONED != 0));
                }
            } else if word & HUNGRY != 0 {
                break; // it is passed on
            } else if word & CALLS != 0 && tries > 1 {
                // This G checks the lock, so none need be woken for that.
                let answered = self.word.compare_exchange(word, word & !CALLS, Relaxed, Relaxed);
                mine = if answered.is_ok() { CALLS } else { mine };
            }
            (0..pauses).for_each(|_| relax());
        }
        Err(mine)
    }

    /// (3) or (4), whichever the word allows: sets `mine` if we take the lock and others wait, and
    /// what `waits` says if we must wait. Under the queue's lock.
    pub(crate) fn barge_or_wait(&self, mine: u64, waits: impl Fn(u64) -> u64) -> LockResult<()> {
        loop {
            let word = self.word.load(Relaxed);
            let (next, taken) = match word & OWNER {
                0 => (word | me() | called(word, mine), check((), word & POISONED != 0)),
                owner if is_abandoned(owner) => return Err(self.why_not()),
                _ => (word | waits(word), Err(LockError::Held)),
            };
            // Acquire pairs with the Release of the G that freed the lock. The flags for the unlock
            // are ordered by the queue's lock, to which it comes.
            if self.word.compare_exchange(word, next, Acquire, Relaxed).is_ok() {
                return taken;
            }
        }
    }

    /// (7) After the last was granted, looked with success, or gave up. Under the queue's lock.
    fn tell_if_empty(&self, locked: &Locked<'_, (), LockWaiter>) {
        if locked.is_empty(0) {
            self.word.fetch_and(!(QUEUED | CALLS), Relaxed);
        }
    }

    /// Frees the lock, or passes it on. Only for the holder, which found `queued` in the word.
    #[inline]
    fn unlock(&self, queued: u64) {
        // (2) Release: what was done to the value is done before the next has it.
        if self.word.compare_exchange(queued | me(), queued, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    /// A waiter must be told, a panic began, the lock was poisoned, or the word has changed.
    #[cold]
    fn unlock_slow(&self) {
        let mut word = self.word.load(Relaxed);
        // The panic that unwinds now, if any, began since.
        if me() & !word & PANICKING != 0 {
            word = self.word.fetch_or(POISONED, Relaxed) | POISONED;
        }
        // While a waiter is on its way, or none waits, it is just freed.
        while word & (HUNGRY | CALLS) == 0 {
            // Release as in (2).
            match self.word.compare_exchange(word, word & !OWNER, Release, Relaxed) {
                Ok(_) => return self.passed_on(0),
                Err(now) => word = now,
            }
        }
        let mut locked = self.queue.lock();
        let first = locked.front(0);
        let next = match first {
            None => {
                self.word.fetch_and(!(OWNER | QUEUED | CALLS | HUNGRY), Release);
                None
            }
            Some(first) if is_over(first.since_ns) => {
                // (5) The lock is never free meanwhile. Before the G is told, as it may unlock
                // then; only the owner's bits, as a G that spins may clear CALLS.
                let owner = self.word.load(Relaxed) & OWNER;
                self.word.fetch_xor(owner ^ first.me, Relaxed);
                let next = locked.grant(0);
                // One locked operation sets both flags: a G that spins may clear CALLS at any
                // time, and HUNGRY alone must then bring the next unlock to the queue.
                let is_hungry = locked.front(0).is_some_and(|next| is_over(next.since_ns));
                self.word.fetch_or(if is_hungry { CALLS | HUNGRY } else { CALLS }, Relaxed);
                if !is_hungry {
                    self.word.fetch_and(!HUNGRY, Relaxed);
                }
                self.tell_if_empty(&locked);
                next
            }
            Some(_) => {
                // In one step: a G that sees it free sees that a waiter is on its way.
                self.word.fetch_and(!(OWNER | CALLS | HUNGRY), Release); // (6)
                locked.nudge(0)
            }
        };
        locked.ready_if(next);
        self.passed_on(first.map_or(0, |first| first.me));
    }

    /// What waiters lend at this lock is lent to the G that has it, whichever had it when they began to
    /// wait (`run::priority`). If it is free, a waiter is on its way, and comes here.
    fn lent_to_owner(&self) {
        loop {
            let owner = self.word.load(Relaxed) & OWNER;
            let queue = core::ptr::from_ref(&self.queue).addr();
            if owner == 0 || is_abandoned(owner) || !taken_over(queue, owner) {
                return;
            }
            // Lent, and read again: pairs with the unlock, which stores the owner, and looks for loans.
            fence(SeqCst);
            if self.word.load(Relaxed) & OWNER == owner {
                return;
            }
        }
    }

    /// What waiters have lent to this G, which has freed the lock, is lent to the next: that has the
    /// lock, or is called.
    fn passed_on(&self, next: u64) {
        passed_on(core::ptr::from_ref(&self.queue).addr(), next);
    }
}

pub(super) fn owner_in(word: u64) -> u64 {
    word & OWNER
}

pub(crate) fn place(since_ns: u64, deadline_ns: Option<u64>) -> Place<LockWaiter> {
    let value = Some(LockWaiter { since_ns, me: me() });
    Place { reason: Reason::MutexLock, list: 0, value, deadline_ns }
}

/// What a G sets that begins to wait: CALLS if it is first, else `mine`.
pub(crate) fn begins_to_wait(word: u64, mine: u64) -> u64 {
    if word & QUEUED == 0 { QUEUED | CALLS } else { mine }
}

/// What a G that was on its way sets when it takes the lock: nothing if no G waits.
fn called(word: u64, mine: u64) -> u64 {
    if word & QUEUED == 0 { 0 } else { mine }
}

fn is_over(since_ns: u64) -> bool {
    now_ns().saturating_sub(since_ns) > PATIENCE_NS
}
