//! What the lock-free parts of this folder stand on, by one name each.
//!
//! `waitq`, `mutex` and `rwlock`, and `sync::WaitGroup`, name nothing of the
//! kernel but what is here. So `tests/loom_sync.rs` can compile the very same files with a `sys` of its
//! own, in which loom watches every access and every wait.

pub(crate) use crate::arch::relax;
pub(crate) use crate::lock::{IrqGuard, IrqLock};
pub(crate) use crate::park::{GHandle, begin_park, now_ns, park, park_until, ready};
pub(crate) use core::sync::atomic::{AtomicU32, AtomicUsize};

/// How often one looks again for a lock, a pause apart, before one queues: as
/// long as a short critical section on another CPU takes.
pub(crate) const SPINS: u32 = 16;

/// Makes a function `const`; loom's `sys` does not, as its atomics are
/// registered with the running model when they are made.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis const fn $name($($args)*) -> $ret $body
    };
}

pub(crate) use const_fn;
