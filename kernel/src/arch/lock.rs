//! The kernel's one lock: a spin lock held with interrupts off.
//!
//! A plain spin lock must never guard data that preemptible code reaches: its holder could be
//! preempted, and all other CPUs would spin for a slice. So the only lock of the kernel turns
//! interrupts off first, and probes its stack before it is taken, because a page fault under a lock
//! is a kernel bug. The outermost lock does that; so code under locks, nested or not, has 2 KiB of
//! stack ([`arch::probe_stack`]).
//!
//! Taking a free lock is one locked operation, freeing it a plain store. There is no queue: a
//! holder keeps it for a few hundred instructions. A CPU that has to spin records the lock
//! ([`spun_on`]), for `watchdog`.
//!
//! The lock order is declared, and checked, in [`order`].

pub mod order;

use crate::arch::{self, irq::IrqState};
use core::cell::UnsafeCell;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
pub use order::Level;

/// A spin lock that is held with interrupts off.
pub struct IrqLock<T: ?Sized> {
    is_held: AtomicBool,
    #[cfg(debug_assertions)]
    level: Level,
    value: UnsafeCell<T>,
}

// SAFETY: as for a mutex: one CPU at a time has `&mut T`, and may move out of it.
unsafe impl<T: ?Sized + Send> Sync for IrqLock<T> {}

/// The guard from [`IrqLock::lock`]: the lock is free again when this is dropped.
///
/// Not `Send`: interrupts are off on the CPU that took it.
pub struct IrqGuard<'a, T: ?Sized> {
    lock: &'a IrqLock<T>,
    irqs: IrqState,
    _here: core::marker::PhantomData<*const ()>,
}

// SAFETY: `&IrqGuard` gives `&T` and nothing more.
unsafe impl<T: ?Sized + Sync> Sync for IrqGuard<'_, T> {}

impl<T> IrqLock<T> {
    /// A free lock around `value`, of [`Level::Plain`]: of these a CPU holds one at a time.
    pub const fn new(value: T) -> Self {
        Self::at(Level::Plain, value)
    }

    /// A free lock around `value`, with its own level in the lock order.
    pub const fn at(level: Level, value: T) -> Self {
        let _ = level; // a release build does not check it
        IrqLock {
            is_held: AtomicBool::new(false),
            #[cfg(debug_assertions)]
            level,
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> IrqLock<T> {
    /// Takes the lock, spinning with `pause` until it is free.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let irqs = arch::irq::disable_probed();
        self.take();
        IrqGuard { lock: self, irqs, _here: core::marker::PhantomData }
    }

    /// Takes the lock if it is free at this instant.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let irqs = arch::irq::disable_probed();
        if try_take(&self.is_held) {
            #[cfg(debug_assertions)]
            order::taken(self.place());
            return Some(IrqGuard { lock: self, irqs, _here: core::marker::PhantomData });
        }
        arch::irq::restore(irqs);
        None
    }

    /// Frees the lock, whichever CPU holds it.
    ///
    /// # Safety
    /// The holder, if there is one, never uses its guard again: it is a CPU that has stopped, or
    /// code that this CPU will not return to.
    pub unsafe fn break_open(&self) {
        #[cfg(debug_assertions)]
        order::freed(self.address()); // it may have been held by this CPU
        self.is_held.store(false, Ordering::Release);
    }

    /// Takes the lock without a guard, for `wait::queue`, whose own guard is two words so. The value
    /// is at [`as_ptr`](Self::as_ptr); the caller owes an [`open`](Self::open), and then the
    /// interrupts as they were.
    ///
    /// It is the outermost lock, or taken on the stack of an M, whose pages are all committed: so
    /// the stack is probed unconditionally.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn hold(&self) -> IrqState {
        arch::probe_stack();
        let irqs = arch::irq::disable();
        self.take();
        irqs
    }

    /// As [`hold`](Self::hold), for a caller that knows that interrupts are on, and need not check
    /// now and again at the end: 4 instructions less.
    #[inline(always)]
    pub(crate) fn hold_with_irqs_on(&self) -> IrqState {
        arch::probe_stack();
        arch::irq::disable();
        self.take();
        IrqState::ON
    }

    /// Frees the lock, and leaves interrupts off.
    ///
    /// # Safety
    /// The caller has taken it by [`hold`](Self::hold), and does not use the value any more.
    #[inline(always)]
    pub(crate) unsafe fn open(&self) {
        #[cfg(debug_assertions)]
        order::freed(self.address());
        // Release: publishes the changes under the lock; pairs with `try_take`.
        self.is_held.store(false, Ordering::Release);
    }

    /// The address of the value, for the holder of the lock.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn take(&self) {
        // Checked before the wait: afterwards it would be too late.
        #[cfg(debug_assertions)]
        order::check(self.place());
        if !try_take(&self.is_held) {
            self.spin();
        }
        #[cfg(debug_assertions)]
        order::taken(self.place());
    }

    #[cfg(debug_assertions)]
    #[track_caller]
    fn place(&self) -> order::Place {
        let (name, site) = (core::any::type_name::<T>(), core::panic::Location::caller());
        order::Place { lock: self.address(), level: self.level, name, site }
    }

    #[cfg(debug_assertions)]
    fn address(&self) -> usize {
        (&raw const self.is_held).addr()
    }

    /// Without a register: else all callers that take a lock would save some first.
    #[inline(always)]
    fn spin(&self) {
        let name: fn() -> &'static str = core::any::type_name::<T>;
        arch::call_rarely(spin_for, (&raw const self.is_held).cast(), name as *const ());
    }
}

#[inline(always)]
fn try_take(is_held: &AtomicBool) -> bool {
    // Acquire: sees what the last holder did.
    is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Waits with plain loads, which leave the cache line with its holder, and takes the lock whose
/// word that is. `name` is a function that names the guarded type.
extern "C" fn spin_for(is_held: *const (), name: *const ()) {
    // SAFETY: `spin`, the only caller, has made it from a reference that it still has.
    let is_held = unsafe { &*is_held.cast::<AtomicBool>() };
    let mine = &SPINNING[arch::cpu_index()];
    mine.name.store(name.cast_mut(), Ordering::Relaxed);
    mine.lock.store((&raw const *is_held).addr(), Ordering::Release); // pairs with `spun_on`
    loop {
        while is_held.load(Ordering::Relaxed) {
            arch::relax();
        }
        if try_take(is_held) {
            break;
        }
    }
    mine.lock.store(0, Ordering::Relaxed);
}

/// The lock that a CPU spins for. Its own to write, with interrupts off.
struct Spinning {
    /// The address of the lock; 0 if it spins for none.
    lock: AtomicUsize,
    /// A function that names the guarded type; null if it never had to spin.
    name: AtomicPtr<()>,
}

static SPINNING: [Spinning; arch::MAX_CPUS] =
    [const { Spinning { lock: AtomicUsize::new(0), name: AtomicPtr::new(core::ptr::null_mut()) } };
        arch::MAX_CPUS];

/// The lock that CPU `cpu` spins for, if it does. It may have taken it at the next instant.
pub fn spun_on(cpu: usize) -> Option<SpunOn> {
    let spinning = &SPINNING[cpu];
    let lock = spinning.lock.load(Ordering::Acquire); // pairs with `spin`
    let name = spinning.name.load(Ordering::Relaxed);
    if lock == 0 || name.is_null() {
        return None;
    }
    // SAFETY: not null, so `spin` has stored such a function.
    let name = unsafe { core::mem::transmute::<*mut (), fn() -> &'static str>(name) };
    Some(SpunOn { lock, name: name() })
}

/// A lock that is spun for. Prints as the guarded type, the address, and the holder.
#[derive(Clone, Copy, Debug)]
pub struct SpunOn {
    lock: usize,
    name: &'static str,
}

impl fmt::Display for SpunOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock of {} at {:#x}", self.name, self.lock)?;
        #[cfg(debug_assertions)]
        if let Some(cpu) = order::holder(self.lock) {
            return write!(f, ", which CPU {cpu} has");
        }
        Ok(())
    }
}

impl<T: ?Sized> Deref for IrqGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, and `&mut` is given out by `&mut self` only.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for IrqGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, so there is no other reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for IrqGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard holds the lock, and is gone after this.
        unsafe { self.lock.open() };
        arch::irq::restore(self.irqs);
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
    #[should_panic(expected = "lock order: Plain lock of u8")]
    fn two_plain_locks_are_never_held_at_once() {
        let (first, second) = (IrqLock::new(1_u16), IrqLock::new(2_u8));
        let _held = first.lock();
        let _ = second.lock();
    }

    #[test]
    #[should_panic(expected = "is taken under the Frames lock of u16")]
    fn an_outer_lock_is_not_taken_under_an_inner_one() {
        let (inner, outer) = (IrqLock::at(Level::Frames, 1_u16), IrqLock::at(Level::Heap, 2_u8));
        let _held = inner.lock();
        let _ = outer.lock();
    }

    #[test]
    fn an_inner_lock_is_taken_under_an_outer_one_and_any_is_tried_for() {
        let (inner, outer) = (IrqLock::at(Level::Console, ()), IrqLock::new(()));
        let held = outer.lock();
        drop((inner.lock(), IrqLock::new(()).try_lock()));
        // In the other order, as locks need not be freed in the order in which they were taken.
        let tried = inner.lock();
        drop(held);
        drop(tried);
        drop(IrqLock::new(()).lock());
    }

    #[test]
    fn a_lock_that_is_waited_for_is_named() {
        // All threads are CPU 0 here; no other test names this type.
        struct Wanted;
        let lock = IrqLock::new(Wanted);
        let named = || spun_on(0).map(|lock| lock.to_string()).unwrap_or_default();
        std::thread::scope(|scope| {
            let held = lock.lock();
            let waits = scope.spawn(|| drop(lock.lock()));
            while !waits.is_finished() && !named().contains("Wanted at 0x") {
                std::thread::yield_now();
            }
            assert!(!waits.is_finished());
            drop(held);
        });
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
