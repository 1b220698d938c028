//! Atomics, spin hint and spin lock: the machine's, loom's, or the simulator's.
//!
//! Nothing else in the crate names an atomic of its own, so that one line here
//! decides who watches every access: nobody (the kernel), loom (all
//! interleavings of a small model) or the simulator (seeded interleavings of a
//! large one). The spin hint is shimmed for the same reason: loom takes it as
//! the point where another thread must get its turn.

pub(crate) use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(not(any(loom, feature = "sim")))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence},
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence},
};

#[cfg(all(feature = "sim", not(loom)))]
pub(crate) use crate::sim::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence, planted, spin_loop,
};

/// Makes a function `const`, except under loom, whose atomics are registered
/// with the running model when they are made.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($args)*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($args)*) -> $ret $body
    };
}

/// An array whose every element is a fresh `$value`; `const` where
/// [`const_fn`] is.
macro_rules! array_of {
    ($value:expr; $len:expr) => {{
        #[cfg(not(loom))]
        {
            [const { $value }; $len]
        }
        #[cfg(loom)]
        {
            core::array::from_fn::<_, { $len }, _>(|_| $value)
        }
    }};
}

pub(crate) use {array_of, const_fn};

/// A spin lock that guards what lies beside it, not inside it.
///
/// What it guards are atomics that are read and written `Relaxed` under the
/// lock. That costs nothing on any machine, keeps some of them readable
/// without the lock (a queue's length), and needs no `UnsafeCell`.
///
/// It is taken with interrupts off only, so its holder is never preempted and
/// the wait is as long as a few list operations.
pub(crate) struct SpinLock {
    locked: AtomicBool,
}

/// The lock is free again when this is dropped.
pub(crate) struct Guard<'a> {
    lock: &'a SpinLock,
}

impl SpinLock {
    const_fn! {
        pub(crate) fn new() -> Self {
            SpinLock { locked: AtomicBool::new(false) }
        }
    }

    #[must_use]
    pub(crate) fn lock(&self) -> Guard<'_> {
        // Acquire pairs with the Release in `Guard::drop`. Not a swap: loom
        // would see who waits store over who unlocks.
        while self.locked.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            // Read until it looks free: the line stays shared meanwhile.
            while self.locked.load(Relaxed) {
                spin_loop();
            }
        }
        Guard { lock: self }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.lock.locked.store(false, Release); // pairs with `lock`
    }
}

/// Mistakes that the simulation plants, to see that it finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A parking P does not look again.
    NoLookAgain,
    /// A submitter has no fence.
    NoFence,
    /// A wake-up is decided and not sent.
    NoInterrupt,
    /// A ring's slot is published before it is written.
    PublishFirst,
    /// A G that was readied can be readied again.
    ReadyTwice,
}

/// Whether the simulation planted this mistake. In the kernel: no, at no cost.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn planted(_: Planted) -> bool {
    false
}
