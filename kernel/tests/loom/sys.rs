//! `run::sys` with loom behind it: every atomic, every lock and every wait.

use irq::IrqState;
use loom::sync::{Mutex, MutexGuard};
use std::mem::transmute;

pub(crate) use crate::run::door::{
    GHandle, Reason, Wait, begin_park, begin_wait, cancel_park, die, end_limit, is_gone, is_killed,
    is_urgent, look_for_cycle, me, now_ns, park, park_unlock, park_until, passed_on, ready,
    ready_from, stop_lending, taken_over, this,
};
pub(crate) use loom::cell::{Cell, UnsafeCell};
pub(crate) use loom::hint::spin_loop as relax;
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

/// Why work came to nothing.
#[derive(PartialEq, Eq)]
pub enum JoinError {
    Killed,
}

/// Nobody's stack is ever full here.
pub(crate) fn probe_stack() {}

pub(crate) const PANICKING: u64 = 16;
pub(crate) const TRIES: u32 = 2;
pub(crate) const PAUSES: u32 = 1;

pub(crate) fn may_spin() -> bool {
    true
}

/// Keeps loom's guard itself, so that it can be held without one.
pub struct IrqLock<T> {
    mutex: Mutex<()>,
    guard: std::cell::Cell<Option<MutexGuard<'static, ()>>>,
    value: std::cell::UnsafeCell<T>,
}

// SAFETY: guard and value are touched by whoever has the mutex.
unsafe impl<T: Send> Sync for IrqLock<T> {}
// SAFETY: it is moved when nobody has the mutex, so there is no guard.
unsafe impl<T: Send> Send for IrqLock<T> {}

impl<T> IrqLock<T> {
    pub(crate) fn new(value: T) -> Self {
        let (guard, value) = (std::cell::Cell::new(None), std::cell::UnsafeCell::new(value));
        IrqLock { mutex: Mutex::new(()), guard, value }
    }

    pub(crate) fn hold(&self, disable: impl FnOnce() -> IrqState) -> IrqState {
        let guard = self.mutex.lock().unwrap();
        // SAFETY: `open` drops it, and whoever holds the lock has a reference to us.
        self.guard.set(Some(unsafe { transmute::<MutexGuard<'_, ()>, MutexGuard<'_, ()>>(guard) }));
        disable()
    }

    pub(crate) unsafe fn open(&self) {
        drop(self.guard.take());
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

/// There are no interrupts in a model.
pub(crate) mod irq {
    pub(crate) use crate::run::door::IrqState;

    pub(crate) fn disable() -> IrqState {
        IrqState
    }

    pub(crate) fn restore(_: IrqState) {}

    pub(crate) fn enabled() -> bool {
        true
    }
}

macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis fn $name($($args)*) -> $ret $body
    };
}

pub(crate) use const_fn;
