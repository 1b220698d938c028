//! Who holds a lock: the name of a G, in the word of the lock itself.
//!
//! `mutex` and `rwlock` take a lock by putting the name of the G into its word
//! ([`me`]), and give it back by taking the name out. So a lock knows
//! its owner and pays no second store for it. Here is what the two have in common:
//! the shape of the name, what one who begins to wait does for others
//! ([`watch_wait`]), and what becomes of the locks of a G that is gone
//! ([`poison_all`]). Who is behind a name is `schedule`'s to say; what chains of
//! owners are good for, `deadlock`'s.
//!
//! # The name
//!
//! ```text
//!     63      48 47                     6   5      4       3    0
//!    ┌──────────┬────────────────────────┬───┬───────────┬───────┐
//!    │  epoch   │ where the record is    │   │ PANICKING │ flags │
//!    └──────────┴────────────────────────┴───┴───────────┴───────┘
//! ```
//!
//! The flags are the lock's own. PANICKING is part of the name: set while the G
//! unwinds. So the lock remembers whether it was taken by one that unwound already,
//! and who gives it back sees by the same comparison that frees it whether a panic
//! began since. Records of Gs are used for one life after another, and the epoch
//! does not tell these apart; it tells whether a life of it was *abandoned* since.
//! A G that ends as it should holds nothing, and pays nothing for this when it is
//! started.
//!
//! # The locks of a G that is gone
//!
//! One that ends without unwinding leaves its locks taken. [`poison_all`] moves the
//! epoch of its record on: from there on its name is nobody's ([`is_gone`]), in
//! whatever word it stands. Whoever comes to such a lock takes it over, poisoned.
//! Those who wait already must be woken for that: all Gs are looked at, and who
//! waits for such a lock is readied. So that none is missed, each side says first
//! and looks then, with a fence between:
//!
//! > who waits: says what it waits for · fence · is the owner gone? then wakes itself
//! > [`poison_all`]: moves the epoch on · fence · who waits for the owner? wakes it
//!
//! What cannot be mended: a reader of a `RwLock` is a count and no name, so the lock
//! of a reader that is gone stays read. Ends of channels that it had are not dropped,
//! so its peers see no disconnect. And a program that leaked a guard and gave the
//! reference away that comes of it has lent out the value for ever: if its G is then
//! abandoned, the value has two users. Safe code can do this; nobody could tell it
//! from a guard that lies in the frames of the dead.

use super::mutex::Lock;
use super::rwlock::{self, LockRw};
use super::sys::{Reason, fence, is_gone, look_for_cycle, me, ready, this};
use core::mem::offset_of;
use core::sync::atomic::Ordering::SeqCst;

/// The name in a word, PANICKING included; the rest is flags.
pub(crate) const OWNER: u64 = !15;
/// Of a name: the G unwinds.
pub(crate) const PANICKING: u64 = 16;

/// How far before a queue that Gs wait in the word of its lock is.
pub(crate) const WORD_BEFORE_QUEUE: usize = offset_of!(Lock, queue);
const _: () = assert!(WORD_BEFORE_QUEUE == offset_of!(LockRw, queue));
const _: () = assert!(offset_of!(Lock, word) == 0 && offset_of!(LockRw, word) == 0);

/// Whether the calling G is the owner of that lock already. Before it waits: one
/// that waits may be granted the lock at any time.
pub(super) fn is_mine(owner: u64) -> bool {
    (owner ^ me()) & !PANICKING == 0
}

/// The running G has said what it waits for, and has not left yet: sees to it that
/// it does not wait for one that is gone, and says if it waits for ever. `owner` is
/// who has the lock now, or 0; `waits_for_itself`: it [`is_mine`], and there is no
/// deadline.
pub(crate) fn watch_wait(waits_for_itself: bool, owner: impl Fn() -> u64) {
    // First said, then looked; pairs with `poison_all`, and with the same fence of
    // another who closes a cycle (`deadlock::cycle`).
    fence(SeqCst);
    // SAFETY: out of the word of a lock.
    if unsafe { is_gone(owner()) } {
        ready(this()); // it looks for itself, and finds the same
    } else {
        look_for_cycle(waits_for_itself);
    }
}

/// Who is named in the word of a lock that somebody waits for for this reason; 0 is
/// nobody, or nobody who is known.
pub(crate) fn owner_in(reason: Reason, word: u64) -> u64 {
    match reason {
        Reason::MutexLock => word & OWNER,
        Reason::RwLockRead | Reason::RwLockWrite => rwlock::owner_in(word),
        _ => 0,
    }
}

/// The G of that number ends without unwinding: each mutex that it holds, and each
/// `RwLock` that it writes, is poisoned and goes to whoever wants it next; those who
/// wait are woken for it. Gives how many of its locks somebody waited for: the
/// others are found when somebody comes. 0 also if there is no such G.
///
/// Nobody runs that G any more, or it is the caller. Allocates nothing; not for
/// interrupts.
#[cfg(not(loom))]
pub fn poison_all(g: u64) -> usize {
    crate::park::disown(g)
}
