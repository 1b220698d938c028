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
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
pub use order::Level;

/// A spin lock that is held with interrupts off. Its word is first.
#[repr(C)]
pub struct IrqLock<T: ?Sized> {
    is_held: AtomicU32,
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
            is_held: AtomicU32::new(0),
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
        let irqs = self.hold(arch::irq::disable_probed);
        IrqGuard { lock: self, irqs, _here: core::marker::PhantomData }
    }

    /// As [`lock`](Self::lock), in an interrupt handler: they are off, and stay off.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_in_handler(&self) -> IrqGuard<'_, T> {
        debug_assert!(!arch::irq::state().were_on(), "irqs on");
        let irqs = self.hold(|| IrqState::OFF);
        IrqGuard { lock: self, irqs, _here: core::marker::PhantomData }
    }

    /// Takes the lock if it is free at this instant.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let irqs = arch::irq::disable_probed();
        if try_take(&self.is_held) {
            #[cfg(debug_assertions)]
            order::taken(self.taken());
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
        self.is_held.store(0, Ordering::Release);
    }

    /// Takes the lock after `disable`, which turns interrupts off, and returns what that returns.
    /// Without a guard, for `wait::queue`, which has its own: the value is at
    /// [`as_ptr`](Self::as_ptr), and the caller owes an [`open`](Self::open), and then the interrupts
    /// as they were.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn hold(&self, disable: impl FnOnce() -> IrqState) -> IrqState {
        let irqs = disable();
        // Checked before the wait: afterwards it would be too late.
        #[cfg(debug_assertions)]
        order::check(self.taken());
        if !try_take(&self.is_held) {
            self.spin();
        }
        #[cfg(debug_assertions)]
        order::taken(self.taken());
        irqs
    }

    /// Frees the lock, and leaves interrupts off.
    ///
    /// # Safety
    /// The caller has taken it by [`hold`](Self::hold), and does not use the value any more.
    #[inline(always)]
    pub(crate) unsafe fn open(&self) {
        open(&self.is_held);
    }

    /// Its word, for [`open_word`].
    #[inline(always)]
    pub(crate) fn word(&self) -> usize {
        (&raw const self.is_held).expose_provenance()
    }

    /// The address of the value, for the holder of the lock.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.value.get()
    }

    #[cfg(debug_assertions)]
    #[track_caller]
    fn taken(&self) -> order::TakenLock {
        let (name, site) = (core::any::type_name::<T>(), core::panic::Location::caller());
        order::TakenLock { lock: self.address(), level: self.level, name, site }
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

/// As [`IrqLock::open`], by the lock's word: for code that frees it on another stack.
///
/// # Safety
/// As there, and it is [`IrqLock::word`] of that lock, which is not gone.
#[inline(always)]
pub(crate) unsafe fn open_word(word: usize) {
    // SAFETY: the lock is there, says the caller.
    open(unsafe { &*core::ptr::with_exposed_provenance::<AtomicU32>(word) });
}

#[inline(always)]
fn open(is_held: &AtomicU32) {
    #[cfg(debug_assertions)]
    order::freed((&raw const *is_held).addr());
    // Release: publishes the changes under the lock; pairs with `try_take`.
    is_held.store(0, Ordering::Release);
}

#[inline(always)]
fn try_take(is_held: &AtomicU32) -> bool {
    // Acquire: sees what the last holder did. One instruction (bts) and a jump, without a register.
    is_held.fetch_or(1, Ordering::Acquire) & 1 == 0
}

/// Waits with plain loads, which leave the cache line with its holder, and takes the lock whose
/// word that is. `name` is a function that names the guarded type.
extern "C" fn spin_for(is_held: *const (), name: *const ()) {
    // SAFETY: `spin`, the only caller, has made it from a reference that it still has.
    let is_held = unsafe { &*is_held.cast::<AtomicU32>() };
    let mine = &SPINNING[arch::cpu_index()];
    mine.name.store(name.cast_mut(), Ordering::Relaxed);
    mine.lock.store((&raw const *is_held).addr(), Ordering::Release); // pairs with `spun_on`
    loop {
        while is_held.load(Ordering::Relaxed) != 0 {
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
        struct Wanted;
        let lock = IrqLock::new(Wanted);
        let is_named = || spun_on(0).is_some_and(|lock| lock.to_string().contains("Wanted at 0x"));
        let is_seen = |_| {
            std::thread::scope(|scope| {
                let held = lock.lock();
                let waits = scope.spawn(|| drop(lock.lock()));
                let is_seen = (0..100).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    is_named()
                });
                assert!(!waits.is_finished());
                drop(held);
                is_seen
            })
        };
        // All threads are CPU 0 here, and share its record: a test that spins at the same time
        // overwrites it, and the waiter does not write it again.
        assert!((0..100).any(is_seen));
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
