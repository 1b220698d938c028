//! What wait queues, locks and result cells need of the kernel, by one name each. They name nothing
//! of the kernel but what is here, so the models in `tests/` can compile the very same files with a
//! `sys` of their own, in which loom watches every access and every wait.

pub(crate) use super::door::{
    GHandle, Reason, Wait, begin_park, begin_wait, cancel_park, die, end_limit, is_gone, is_killed,
    is_urgent, look_for_cycle, may_spin, me, now_ns, park, park_unlock, park_until, passed_on,
    ready, ready_from, stop_lending, taken_over, this,
};
pub(crate) use super::error::JoinError;
pub(crate) use crate::arch::lock::IrqLock;
pub(crate) use crate::arch::{irq, probe_stack, relax};
pub(crate) use core::cell::Cell;
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

/// In the name of a G, as lock words have it: the G unwinds.
pub(crate) const PANICKING: u64 = 16;

/// How often a G tries to take a lock before it queues, as in Go.
pub(crate) const TRIES: u32 = 4;
/// How many pauses after each try, as in Go.
pub(crate) const PAUSES: u32 = 30;

/// An `UnsafeCell` that is opened as loom's is.
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    #[inline(always)]
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Shows where the value is; what may be done there is the caller's argument.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Makes a function `const`; loom's `sys` does not, as its atomics are
/// registered with the running model when they are made.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis const fn $name($($args)*) -> $ret $body
    };
}

pub(crate) use const_fn;
