//! `cell::sys` with loom behind it: every atomic, every lock and every wait.

use loom::sync::Mutex;
use std::sync::atomic::Ordering;

pub(crate) use crate::park::{
    GHandle, Reason, Wait, begin_park, cancel_park, now_ns, park, park_until, ready,
};
pub(crate) use loom::cell::{Cell, UnsafeCell};
pub(crate) use loom::hint::spin_loop as relax;
pub(crate) use loom::sync::MutexGuard as IrqGuard;
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

pub(crate) const SPINS: u32 = 1;

pub(crate) struct IrqLock<T>(Mutex<T>);

impl<T> IrqLock<T> {
    pub(crate) fn new(value: T) -> Self {
        IrqLock(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> IrqGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Loom's, by the names of today's `core`.
pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn new(value: usize) -> Self {
        AtomicUsize(loom::sync::atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> usize {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: usize, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn try_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        f: impl FnMut(usize) -> Option<usize>,
    ) -> Result<usize, usize> {
        self.0.fetch_update(set, fetch, f)
    }
}

macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($args:tt)*) -> $ret:ty $body:block) => {
        $(#[$meta])*
        $vis fn $name($($args)*) -> $ret $body
    };
}

pub(crate) use const_fn;
