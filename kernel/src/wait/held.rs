//! Which G holds a lock: the name of the G, in the word of the lock itself.
//!
//! `mutex` and `rwlock` take a lock by storing the name of the running G ([`me`]) in the lock's
//! word, and free it by removing the name. So a lock knows its owner without a second store. Here
//! is what the two share: the layout of the name, what a G does when it begins to wait
//! ([`watch_wait`]), and how a lock whose owner is gone is recognized ([`note_if_abandoned`]).
//!
//! # The name
//!
//! ```text
//!     63      48 47                     6   5      4       3    0
//!    ┌──────────┬────────────────────────┬───┬───────────┬───────┐
//!    │  epoch   │ address of the G       │   │ PANICKING │ flags │
//!    └──────────┴────────────────────────┴───┴───────────┴───────┘
//! ```
//!
//! The flags belong to the lock. PANICKING is part of the name, set while the G unwinds: so the
//! lock remembers whether its owner was unwinding when it took the lock, and the compare-exchange
//! that frees the lock also detects a panic that began since.
//!
//! A record of a G serves one G after another. All have the same name, until one is abandoned,
//! which the epoch counts: a G that ends normally holds no lock, unless the program leaked a guard;
//! so starting a G need not change the name.
//!
//! # Abandoned locks
//!
//! A G may end without dropping a guard that it has: it is *abandoned* (it is taken off its CPU for
//! good, or panics while it unwinds, or has no stack left to unwind on), or its full stack was
//! unwound past a guard that no unwind table lists (`overflow`). `abandon_locks` then advances the
//! epoch of the record; from there on the old name means "gone" ([`is_gone`]) in every word.
//!
//! > A lock whose owner is gone is never taken again. Every call that wants it, and every
//! > G that waits for it, gets [`LockError::Abandoned`](super::poison::LockError).
//!
//! To free such a lock would be unsound: safe code may have leaked the guard before, and the
//! reference that came of it may be in use by another G; a guard in a lost stack frame looks the
//! same. Only `get_mut` and `into_inner` reach the value: no guard can exist then.
//!
//! The epoch has 16 bits and wraps. So the first call that finds the owner gone replaces the name
//! by [`ABANDONED`], which stays ([`note_if_abandoned`]). Gs that wait already must be woken. Each
//! side stores first and looks afterwards, with a fence in between, so one of them sees the other:
//!
//! > waiter: stores what it waits for · fence · owner gone? then readies itself
//! > `abandon_locks`: advances the epoch · fence · readies each G that waits for the owner
//!
//! A G may also be abandoned after it has queued for a lock and before it has parked. An unlock
//! could call this G instead of the one behind it. So `abandon_locks` takes its node out
//! ([`forget_waiter`]) between the two steps above. An unlock that granted the lock to the G before
//! that has made it the owner, which is what the second step looks for.
//!
//! # Owned guards
//!
//! A guard that may move into another G (`lock_owned`) names no G: its G takes the lock as any other,
//! and then replaces its name by [`OWNED`] ([`disown`]), which frees the lock wherever it is dropped.
//! So such a lock is no link of a cycle and has no holder in reports; and if the G that has the
//! guard is abandoned, the lock stays taken, as permits do.
//!
//! Not covered: a reader of a `RwLock` is a count, not a name. The lock of an abandoned reader
//! stays read-locked, and writers wait. The same is true of permits, ends of channels, and whatever
//! else the G owned: see docs/failures.md.

use super::mutex::{self, Lock};
use super::rwlock::{self, LockRw};
pub(crate) use crate::run::sys::PANICKING;
use crate::run::sys::{AtomicU64, Reason, fence, is_gone, look_for_cycle, me, ready, this};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The name in a word, PANICKING included; the rest is flags.
pub(crate) const OWNER: u64 = !15;
/// In place of the name of an owner that is gone. No G has this name: the address is 0.
pub(crate) const ABANDONED: u64 = 1 << 48;
#[cfg(not(loom))]
const _: () = assert!(crate::run::roster::is_no_name(ABANDONED));

/// In place of the name of an owner: a guard that no G is bound to. No G has this name either.
pub(crate) const OWNED: u64 = 2 << 48;
#[cfg(not(loom))]
const _: () = assert!(crate::run::roster::is_no_name(OWNED));

/// How far before a queue that Gs wait in the word of its lock is.
pub(crate) const WORD_BEFORE_QUEUE: usize = offset_of!(Lock, queue);
const _: () = assert!(WORD_BEFORE_QUEUE == offset_of!(LockRw, queue));
const _: () = assert!(offset_of!(Lock, word) == 0 && offset_of!(LockRw, word) == 0);

/// A guard of a lock: access to its `value` until the guard is dropped, which calls `$unlock` of
/// the lock, with `$found`, which the guard keeps; with `mut`, to write as well. Not `Send`, as
/// std's guards: the G that took the lock frees it.
macro_rules! guard {
    ($(#[$meta:meta])* mut $guard:ident, $lock:ident, $unlock:ident $(, $found:ident)?) => {
        $crate::wait::held::guard!($(#[$meta])* $guard, $lock, $unlock $(, $found)?);
        $crate::wait::held::access!(mut $guard<'_, T>);
    };
    ($(#[$meta:meta])* $guard:ident, $lock:ident, $unlock:ident $(, $found:ident)?) => {
        $(#[$meta])*
        #[must_use = "the lock is free again at once if its guard is not kept"]
        pub struct $guard<'a, T: ?Sized> {
            lock: &'a $lock<T>,
            $($found: u64,)?
            not_send: core::marker::PhantomData<*const ()>,
        }

        // SAFETY: `&` of a guard gives `&T` and nothing more.
        unsafe impl<T: ?Sized + Sync> Sync for $guard<'_, T> {}

        impl<T: ?Sized> Drop for $guard<'_, T> {
            #[inline]
            fn drop(&mut self) {
                self.lock.lock.$unlock($(self.$found)?);
            }
        }

        $crate::wait::held::access!($guard<'_, T>);
    };
}

/// A guard that owns a part of its lock and may move into another G, and be dropped there.
macro_rules! owned_guard {
    ($(#[$meta:meta])* mut $guard:ident, $lock:ident, $unlock:ident) => {
        $crate::wait::held::owned_guard!($(#[$meta])* $guard, $lock, $unlock);
        $crate::wait::held::access!(mut $guard<T>);
    };
    ($(#[$meta:meta])* $guard:ident, $lock:ident, $unlock:ident) => {
        $(#[$meta])*
        #[must_use = "the lock is free again at once if its guard is not kept"]
        pub struct $guard<T: ?Sized> {
            lock: alloc::sync::Arc<$lock<T>>,
            /// `&` of a guard gives `&T`, which `&` of the lock alone does not.
            value: PhantomData<T>,
        }

        impl<T: ?Sized> Drop for $guard<T> {
            fn drop(&mut self) {
                self.lock.lock.$unlock();
            }
        }

        $crate::wait::held::access!($guard<T>);
    };
}

/// What a guard gives: the value, and with `mut` the right to change it.
macro_rules! access {
    (mut $guard:ty) => {
        impl<T: ?Sized> core::ops::DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: this is the only guard of the lock, and it is borrowed as `&mut`.
                unsafe { &mut *self.lock.value.get() }
            }
        }
    };
    ($guard:ty) => {
        impl<T: ?Sized> core::ops::Deref for $guard {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the lock is held, so no other G changes the value; `&mut` of it comes
                // only from `&mut` of the one guard that may write.
                unsafe { &*self.lock.value.get() }
            }
        }

        impl<T: ?Sized + core::fmt::Debug> core::fmt::Debug for $guard {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + core::fmt::Display> core::fmt::Display for $guard {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

pub(super) use {access, guard, owned_guard};

/// The calling G, which has taken the lock of this word, is not its owner any more: an owned guard
/// is. PANICKING stays, so that a panic that began later is recognized, as by any other guard.
pub(super) fn disown(word: &AtomicU64) {
    let owner = word.load(Relaxed) & OWNER;
    // The owner's bits are the holder's; other CPUs change flags. Relaxed: who has the guard next
    // is ordered by what hands it over.
    word.fetch_xor(owner ^ (OWNED | owner & PANICKING), Relaxed);
}

#[inline]
pub(super) fn is_abandoned(owner: u64) -> bool {
    // SAFETY: out of the word of a lock.
    owner == ABANDONED || unsafe { is_gone(owner) }
}

/// Whether the owner in the word is gone. If so, it is [`ABANDONED`] from here on.
#[cold]
pub(super) fn note_if_abandoned(word: &AtomicU64, owner_in: impl Fn(u64) -> u64) -> bool {
    let mut now = word.load(Relaxed);
    while is_abandoned(owner_in(now)) {
        // Relaxed: the value is out of reach. Other CPUs change only the flags of such a word.
        match word.compare_exchange(now, now & !OWNER | ABANDONED, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(changed) => now = changed,
        }
    }
    false
}

/// The G `name` is gone, and waited at `queue`: takes its node out, if it waited for a lock.
///
/// # Safety
/// `queue` is the object that the G gave with this reason when it began to wait, and it has not
/// returned from that wait: so the lock is there, as the frame of the G refers to it.
pub(crate) unsafe fn forget_waiter(reason: Reason, queue: usize, name: u64) {
    let lock = queue.wrapping_sub(WORD_BEFORE_QUEUE);
    match reason {
        Reason::MutexLock => {
            // SAFETY: a mutex waits with the address of its queue, says the caller.
            let lock = unsafe { &*core::ptr::with_exposed_provenance::<Lock>(lock) };
            lock.forget_waiter(name);
        }
        Reason::RwLockRead | Reason::RwLockWrite => {
            // SAFETY: as above, and so does a `RwLock`.
            let lock = unsafe { &*core::ptr::with_exposed_provenance::<LockRw>(lock) };
            lock.forget_waiter(name);
        }
        _ => {}
    }
}

/// Whether both are names of the same G, whether or not it panicked meanwhile.
pub(super) fn is_same(one: u64, other: u64) -> bool {
    (one ^ other) & !PANICKING == 0
}

/// Whether the calling G is the owner. Only before it waits: then it may be granted the lock.
pub(super) fn is_mine(owner: u64) -> bool {
    is_same(owner, me())
}

/// The running G has stored what it waits for, and has not parked yet: it readies itself if the
/// owner is gone, and reports if it waits for ever. `owner` gives the name in the lock now, or 0;
/// `waits_for_itself`: it [`is_mine`], and there is no deadline.
pub(crate) fn watch_wait(waits_for_itself: bool, owner: impl Fn() -> u64) {
    // Pairs with `abandon_locks`, and with a G that closes a cycle (`fail::deadlock::cycle`).
    fence(SeqCst);
    if is_abandoned(owner()) {
        ready(this()); // its `look` finds the same, and ends the wait
    } else {
        look_for_cycle(waits_for_itself);
    }
}

/// The owner in the word of a lock that a G waits for for this reason; 0 if it has no name.
pub(crate) fn owner_in(reason: Reason, word: u64) -> u64 {
    match reason {
        Reason::MutexLock => mutex::owner_in(word),
        Reason::RwLockRead | Reason::RwLockWrite => rwlock::owner_in(word),
        _ => 0,
    }
}
