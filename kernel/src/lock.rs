//! The kernel's one lock: a spin lock held with interrupts off.
//!
//! A plain spin lock must never guard what preemptible code reaches: its
//! holder could be preempted, and everybody else would spin for a slice. So
//! the only lock of the kernel turns interrupts off first, and probes its stack
//! before it is taken, because a page fault under a lock is a kernel bug.

use crate::arch;
use core::ops::{Deref, DerefMut};

/// A spin lock that is held with interrupts off.
///
/// ```
/// use runnext::lock::IrqLock;
/// static COUNT: IrqLock<u32> = IrqLock::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// ```
pub struct IrqLock<T: ?Sized> {
    inner: spin::mutex::SpinMutex<T>,
}

/// What [`IrqLock::lock`] gives: the lock is free again when this is dropped.
pub struct IrqGuard<'a, T: ?Sized> {
    // Dropped by hand, before interrupts come back.
    inner: core::mem::ManuallyDrop<spin::mutex::SpinMutexGuard<'a, T>>,
    were_on: bool,
}

impl<T> IrqLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        IrqLock { inner: spin::mutex::SpinMutex::new(value) }
    }
}

impl<T: ?Sized> IrqLock<T> {
    /// Takes the lock, spinning with `pause` until it is free.
    #[inline]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let were_on = probe_and_save();
        let inner = core::mem::ManuallyDrop::new(self.inner.lock());
        IrqGuard { inner, were_on }
    }

    /// Takes the lock if it is free at this instant.
    #[inline]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let were_on = probe_and_save();
        match self.inner.try_lock() {
            Some(inner) => Some(IrqGuard { inner: core::mem::ManuallyDrop::new(inner), were_on }),
            None => {
                arch::irq_restore(were_on);
                None
            }
        }
    }

    /// Makes the lock free, whoever holds it.
    ///
    /// # Safety
    ///
    /// The holder, if there is one, must never use its guard again: it is a CPU
    /// that has stopped, or code that this CPU will not return to.
    pub unsafe fn break_open(&self) {
        // SAFETY: the caller says that nobody uses the guard that this makes void.
        unsafe { self.inner.force_unlock() };
    }
}

/// Interrupts off, and the stack probed by the outermost lock only. So what runs
/// under locks, nested or not, has [`arch::PROBE_BYTES`] of stack.
#[inline(always)]
fn probe_and_save() -> bool {
    arch::irq_save_probed()
}

impl<T: ?Sized> Deref for IrqGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for IrqGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for IrqGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else.
        unsafe { core::mem::ManuallyDrop::drop(&mut self.inner) };
        arch::irq_restore(self.were_on);
    }
}
