//! The kernel's one lock: a spin lock held with interrupts off.
//!
//! A plain spin lock must never guard what preemptible code reaches: its
//! holder could be preempted, and everybody else would spin for a slice. So
//! the only lock of the kernel turns interrupts off first, and probes its stack
//! before it is taken, because a page fault under a lock is a kernel bug. The
//! outermost lock does that; so what runs under locks, nested or not, has
//! [`arch::PROBE_BYTES`] of stack.
//!
//! To take it when it is free is one locked operation, to free it a plain store.
//! There is no queue: who holds it does so for a few hundred instructions.

use crate::arch::{self, Irqs};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// A spin lock that is held with interrupts off.
///
/// ```
/// use runnext::lock::IrqLock;
/// static COUNT: IrqLock<u32> = IrqLock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// ```
pub struct IrqLock<T: ?Sized> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: as for a mutex: one CPU at a time has `&mut T`, and may move out of it.
unsafe impl<T: ?Sized + Send> Sync for IrqLock<T> {}

/// What [`IrqLock::lock`] gives: the lock is free again when this is dropped.
///
/// Not `Send`: interrupts are off on the CPU that took it.
pub struct IrqGuard<'a, T: ?Sized> {
    lock: &'a IrqLock<T>,
    irqs: Irqs,
    _here: core::marker::PhantomData<*const ()>,
}

// SAFETY: `&IrqGuard` gives `&T` and nothing more.
unsafe impl<T: ?Sized + Sync> Sync for IrqGuard<'_, T> {}

impl<T> IrqLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        IrqLock { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> IrqLock<T> {
    /// Takes the lock, spinning with `pause` until it is free.
    #[inline]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let irqs = arch::irqs_off_probed();
        self.take();
        IrqGuard { lock: self, irqs, _here: core::marker::PhantomData }
    }

    /// Takes the lock if it is free at this instant.
    #[inline]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let irqs = arch::irqs_off_probed();
        if self.try_take() {
            return Some(IrqGuard { lock: self, irqs, _here: core::marker::PhantomData });
        }
        arch::irqs_back(irqs);
        None
    }

    /// Makes the lock free, whoever holds it.
    ///
    /// # Safety
    ///
    /// The holder, if there is one, must never use its guard again: it is a CPU
    /// that has stopped, or code that this CPU will not return to.
    pub unsafe fn break_open(&self) {
        self.is_held.store(false, Ordering::Release);
    }

    /// Takes the lock without a guard, for `cell::wait`, whose own guard is two
    /// words so. What is in it is at [`as_ptr`](Self::as_ptr); the caller owes an
    /// [`open`](Self::open), and then the interrupts as they were.
    ///
    /// It is the outermost lock, or taken on the stack of an M, which is all there:
    /// so the stack is probed without asking.
    #[inline(always)]
    pub(crate) fn hold(&self) -> Irqs {
        arch::probe_stack();
        let irqs = arch::irqs_off();
        self.take();
        irqs
    }

    /// As [`hold`](Self::hold), for who knows that interrupts are on, and need not
    /// ask now and again at the end: 4 instructions less.
    #[inline(always)]
    pub(crate) fn hold_with_irqs_on(&self) -> Irqs {
        arch::probe_stack();
        arch::irq_off();
        self.take();
        Irqs::ON
    }

    /// Makes the lock free, and leaves interrupts off.
    ///
    /// # Safety
    /// The caller has taken it by [`hold`](Self::hold), and this is its end.
    #[inline(always)]
    pub(crate) unsafe fn open(&self) {
        // Release: what was done under the lock; pairs with `try_take`.
        self.is_held.store(false, Ordering::Release);
    }

    /// Where the value is; whoever has the lock may touch it.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    #[inline(always)]
    fn take(&self) {
        if !self.try_take() {
            self.spin();
        }
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        // Acquire: what the last holder did.
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits with plain loads, which leave the line with its holder.
    #[cold]
    fn spin(&self) {
        loop {
            while self.is_held.load(Ordering::Relaxed) {
                arch::relax();
            }
            if self.try_take() {
                return;
            }
        }
    }
}

impl<T: ?Sized> Deref for IrqGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock, and `&mut` is given out by `&mut self` only.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for IrqGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock, so nobody else has a reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for IrqGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: we hold the lock, and are gone after this.
        unsafe { self.lock.open() };
        arch::irqs_back(self.irqs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_value() {
        static COUNT: IrqLock<[u64; 2]> = IrqLock::new([0; 2]);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut count = COUNT.lock();
                        assert_eq!(count[0], count[1]);
                        count[0] += 1;
                        count[1] += 1;
                    }
                });
            }
        });
        assert_eq!(COUNT.lock()[0], 4 * rounds);
    }

    #[test]
    fn a_lock_that_is_held_is_not_given_again() {
        let lock = IrqLock::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_lock_whose_holder_is_gone_can_be_broken_open() {
        let lock = IrqLock::new(1);
        core::mem::forget(lock.lock());
        // SAFETY: the guard is forgotten.
        unsafe { lock.break_open() };
        assert_eq!(*lock.lock(), 1);
    }
}
