//! The Gs of one scope, counted: what each leaves last, and what the owner waits for.
//!
//! Why, and what happens when the owner is stopped for good, is said in [`scope`](super::scope).
//! This file is the word that both sides share. Its loom model is `tests/loom_scope.rs`.
//!
//! # The word
//!
//! In its upper bits is the number of members that have not ended; below that are flags. A member
//! is counted before its G is started, by a G that is counted itself or by the owner: so the number
//! comes to 0 only when no G can count another, and stays there once the owner waits.
//!
//! The owner begins to park, then sets [`WAITS`]; a member leaves by one subtraction, and if it was
//! the last and saw that flag, readies the owner. Both are read-modify-writes of one word, so one
//! of them comes first: a wake-up is not lost. **With the subtraction the member has let go**: the
//! record is on the owner's stack and may be gone at once, so the member has copied the owner's
//! handle before. A handle that is used late does no harm (`door`).
//!
//! If the last member sees [`ORPHANED`], there is no owner any more, and its stack stays for ever.

use super::attached::{Attachment, Kind};
use super::sys::{
    AtomicU32, Cell, GHandle, JoinError, Reason, UnsafeCell, Wait, begin_park, cancel_park,
    const_fn, irq, park, ready_from,
};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The owner parks, or did: the last member readies it.
const WAITS: u32 = 1;
/// A member has failed, and its reason is there or being stored.
const FAILED: u32 = 2;
/// The owner was abandoned, and its heir is stored.
const ORPHANED: u32 = 4;
/// One member.
const ONE: u32 = 8;

/// The record of a scope.
#[repr(C)] // the node first
pub struct Members {
    node: Attachment,
    word: AtomicU32,
    owner: GHandle,
    /// Written by the member that has set [`FAILED`], read by the owner when no member is left.
    failure: UnsafeCell<Option<JoinError>>,
    /// Written before [`ORPHANED`], used up by the G that finds no member left after it.
    heir: Cell<Option<Member>>,
}

// SAFETY: failure and heir go from writer to reader by the word: see the fields.
unsafe impl Sync for Members {}

impl Members {
    const_fn! {
        /// For a scope that this G opens.
        pub fn new(owner: GHandle) -> Self {
            Members {
                node: Attachment::new(Kind::Scope),
                word: AtomicU32::new(0),
                owner,
                failure: UnsafeCell::new(None),
                heir: Cell::new(None),
            }
        }
    }

    /// Its node, as an address that leads to all of it.
    pub fn node(&self) -> NonNull<Attachment> {
        NonNull::from(self).cast()
    }

    /// Waits until no member is left. Returns only then; `on_wake` is called whenever the owner was
    /// woken, and may unwind. The owner only.
    pub fn wait(&self, on_wake: impl Fn()) {
        while self.word.load(Acquire) >= ONE {
            begin_park(Wait::at(Reason::Scope, self));
            if self.word.fetch_or(WAITS, AcqRel) < ONE {
                cancel_park();
                return;
            }
            park();
            on_wake();
        }
    }

    /// Counts one more member.
    ///
    /// # Panics
    /// If there are too many to count: 536,870,911.
    pub fn join(&self) -> Member {
        let before = self.word.fetch_add(ONE, Relaxed);
        assert!(before < u32::MAX - (ONE - 1), "too many Gs in one scope");
        Member(NonNull::from(self))
    }

    /// The first failure that is told stays. A member tells before it leaves, or the owner does.
    pub fn fail(&self, why: JoinError) {
        if self.word.fetch_or(FAILED, AcqRel) & FAILED == 0 {
            // SAFETY: this caller has set the flag, and the owner reads when all have left.
            self.failure.with_mut(|failure| unsafe { *failure = Some(why) });
        }
    }

    /// The failure that was told first. The owner only, when no member is left.
    pub fn take_failure(&self) -> Option<JoinError> {
        if self.word.load(Acquire) & FAILED == 0 {
            return None;
        }
        // SAFETY: the writer has left, and `wait` has seen that.
        self.failure.with_mut(|failure| unsafe { (*failure).take() })
    }

    /// The owner was abandoned: its frames stay for ever, and `heir`, its own place in the scope
    /// that it is a member of, is kept until no member of this one is left. For the owner's holder.
    pub fn orphan(&self, heir: Option<Member>) {
        self.heir.set(heir);
        if self.word.fetch_or(ORPHANED, AcqRel) < ONE {
            drop(self.heir.take());
        }
    }
}

/// One member's place in a scope. To drop it is the last that the member does with what it may have
/// borrowed; interrupts are on or off.
pub struct Member(NonNull<Members>);

// SAFETY: it is a count, and what it leads to is `Sync` and there while it counts.
unsafe impl Send for Member {}

impl Member {
    /// Its scope, which is there as long as this is.
    pub fn scope(&self) -> &Members {
        // SAFETY: the owner's frame stays until no member is left, and this one is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut next = Some(self.0);
        // An heir may be the last of its scope, too. A loop: scopes may be nested deeply.
        while let Some(scope) = next {
            next = leave(scope).map(|heir| core::mem::ManuallyDrop::new(heir).0);
        }
    }
}

/// A member leaves. If it was the last and there is no owner any more, returns the owner's place.
fn leave(scope: NonNull<Members>) -> Option<Member> {
    // SAFETY: there, as the caller is counted; not used after the subtraction.
    let Members { word, owner, .. } = unsafe { scope.as_ref() };
    let owner = owner.clone();
    // Release: what this G did with what it borrowed. Acquire: of the last, what the others did.
    let before = word.fetch_sub(ONE, AcqRel);
    if before >= 2 * ONE {
        return None;
    }
    if before & ORPHANED != 0 {
        // SAFETY: the frames of an abandoned G stay for ever.
        return unsafe { scope.as_ref() }.heir.take();
    }
    if before & WAITS != 0 {
        ready_from(irq::disable(), owner);
    }
    None
}
