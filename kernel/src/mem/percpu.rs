//! A value for each CPU, reached with interrupts off and without a lock.
//!
//! [`Here`] is the proof that the code stays on its CPU: interrupts are off for as long as
//! it lives. [`CpuLocal::with`] lends this CPU's value to a closure. The closures in `mem`
//! take no lock and touch no new stack page, so neither an interrupt nor a page fault can
//! find a value half changed.

use crate::arch::{self, MAX_CPUS, irq::IrqState};
use arrayvec::ArrayVec;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

/// Proof that the code stays on this CPU: interrupts are off until this is dropped.
pub struct Here {
    index: usize,
    irqs: IrqState,
    // Another CPU's interrupts are not off: the proof must not be sent.
    _here: PhantomData<*mut ()>,
}

impl Here {
    /// Turns interrupts off, after a probe of the stack: a page fault must not come while a
    /// value is in_use.
    #[inline]
    pub fn enter() -> Here {
        let irqs = arch::irq::disable_probed();
        Here { index: arch::cpu_index(), irqs, _here: PhantomData }
    }

    /// The index of this CPU.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// A test acts as CPU `index`. Sound, because on the host a spinning flag guards the
    /// values against any thread.
    #[cfg(test)]
    pub fn pretend(index: usize) -> Here {
        Here { index, irqs: arch::irq::disable(), _here: PhantomData }
    }
}

impl Drop for Here {
    #[inline]
    fn drop(&mut self) {
        arch::irq::restore(self.irqs);
    }
}

/// A type whose first value is known when the kernel is built.
pub trait Empty {
    /// That value.
    const EMPTY: Self;
}

impl<T, const N: usize> Empty for ArrayVec<T, N> {
    const EMPTY: Self = ArrayVec::new_const();
}

/// One `T` for each CPU, each on cache lines of its own.
pub struct CpuLocal<T> {
    slots: [Slot<T>; MAX_CPUS],
}

#[repr(align(128))]
struct Slot<T> {
    in_use: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lends a slot to one closure at a time: on the bare machine to code of that
// CPU only, with interrupts off; on the host to the thread that wins `in_use`. `T: Send`
// because the value is made on one CPU and used on another.
unsafe impl<T: Send> Sync for CpuLocal<T> {}

impl<T: Empty> CpuLocal<T> {
    /// An empty value for every CPU.
    pub const fn new() -> Self {
        CpuLocal {
            slots: [const { Slot { in_use: AtomicBool::new(false), value: UnsafeCell::new(T::EMPTY) } };
                MAX_CPUS],
        }
    }
}

impl<T> CpuLocal<T> {
    /// Lends this CPU's value to `f`.
    ///
    /// # Panics
    ///
    /// On the bare machine, when the value is in_use already: a page fault or an exception
    /// came inside a closure, and its handler uses the same value.
    #[inline]
    pub fn with<R>(&self, here: &Here, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = &self.slots[here.index];
        slot.take();
        // SAFETY: `take` returned, so no other code has this slot until `in_use` is false again,
        // which is after `f` is done with it; if `f` unwinds, it stays in_use for ever.
        let result = f(unsafe { &mut *slot.value.get() });
        slot.in_use.store(false, Ordering::Release); // pairs with `take`
        result
    }

    /// Reads the value of CPU `cpu`.
    ///
    /// # Safety
    ///
    /// That CPU is not in [`with`](Self::with), and does not enter it while the value is
    /// read.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub unsafe fn peek(&self, cpu: usize) -> &T {
        // SAFETY: no other code has the slot, by our caller's promise.
        unsafe { &*self.slots[cpu].value.get() }
    }
}

impl<T> Slot<T> {
    #[cfg(target_os = "none")]
    #[inline]
    fn take(&self) {
        // Only this CPU touches its flag, with interrupts off: no locked instruction is
        // needed to detect re-entry.
        assert!(!self.in_use.load(Ordering::Relaxed), "percpu re-entered");
        self.in_use.store(true, Ordering::Relaxed);
    }

    #[cfg(not(target_os = "none"))]
    fn take(&self) {
        // Threads of a test may act as the same CPU: here the flag is a lock.
        while self.in_use.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
