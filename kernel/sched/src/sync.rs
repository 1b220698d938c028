//! Atomics, spin hint and spin lock: the machine's, loom's, or the simulator's.
//!
//! No other file of the crate names an atomic, so one line here decides which
//! atomics run: the machine's (the kernel), loom's (all interleavings of a small
//! model) or the simulator's (seeded interleavings of a large one). The spin hint
//! is shimmed for the same reason: for loom it is the point where another thread
//! must get its turn.

pub(crate) use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(not(any(loom, feature = "sim")))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence},
};

#[cfg(loom)]
pub(crate) use crate::told::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence, spin_loop,
};

#[cfg(all(feature = "sim", not(loom)))]
pub(crate) use crate::sim::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence, spin_loop,
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

/// Whether the simulation planted this mistake, one of `sim::Planted`, to check
/// that it finds it. In the kernel: false, at no cost.
macro_rules! planted {
    ($mistake:ident) => {{
        #[cfg(feature = "sim")]
        {
            crate::sim::planted(crate::sim::Planted::$mistake)
        }
        #[cfg(not(feature = "sim"))]
        {
            false
        }
    }};
}

pub(crate) use {array_of, const_fn, planted};

/// A spin lock that guards atomics beside it, not a value inside it.
///
/// The atomics that it guards are read and written `Relaxed` under the lock. That
/// costs nothing on any machine, keeps some of them readable without the lock (a
/// queue's length), and needs no `UnsafeCell`.
///
/// It is taken with interrupts off only, so its holder is never preempted and a
/// waiter spins for a few list operations at most.
pub(crate) struct SpinLock {
    locked: AtomicBool,
    /// Spin hints of all CPUs that have waited for it; not counted in models and simulations.
    pub(crate) spins: core::sync::atomic::AtomicU64,
}

impl SpinLock {
    const_fn! {
        pub(crate) fn new() -> Self {
            SpinLock {
                locked: AtomicBool::new(false),
                spins: core::sync::atomic::AtomicU64::new(0),
            }
        }
    }

    /// Calls `f` with the lock held. `f` panics only if the kernel cannot go on.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        // Not a swap: loom would see a waiter's store overwrite the unlock.
        let mut spins = 0;
        while self.locked.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            // Read until it seems free: the line stays shared meanwhile.
            while self.locked.load(Relaxed) {
                spins += 1;
                spin_loop();
            }
        }
        if spins > 0 {
            self.spins.store(self.spins.load(Relaxed) + spins, Relaxed); // under the lock
        }
        let result = f();
        self.locked.store(false, Release); // pairs with the Acquire above
        result
    }
}
