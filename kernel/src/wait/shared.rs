//! A reference-counted pointer.
//!
//! The part of `Arc` that channel ends need, with a constructor that can fail: `Arc` panics if
//! there is no memory, and a channel must return that to its caller.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// The value first: so what is first in it has the address that an owner has.
#[repr(C)]
struct Inner<T> {
    value: T,
    owners: AtomicUsize,
}

/// A value on the heap with several owners, freed by the last.
pub struct Shared<T> {
    inner: NonNull<Inner<T>>,
}

// SAFETY: as for `Arc`: owners on several CPUs share `&T` (Sync), and any of them drops it (Send).
unsafe impl<T: Sync + Send> Send for Shared<T> {}
// SAFETY: as above; `&Shared` gives `&T` and clones.
unsafe impl<T: Sync + Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves `value` to the heap, or returns it if there is no memory.
    #[inline]
    pub fn try_new(value: T) -> Result<Self, T> {
        // SAFETY: `Inner` holds a counter, so its size is not zero.
        let raw = unsafe { alloc(Layout::new::<Inner<T>>()) };
        let Some(inner) = NonNull::new(raw.cast::<Inner<T>>()) else { return Err(value) };
        // SAFETY: fresh memory of the layout of `Inner<T>`, with no other reference to it.
        unsafe { inner.write(Inner { value, owners: AtomicUsize::new(1) }) };
        Ok(Shared { inner })
    }
}

impl<T> Shared<T> {
    #[inline(always)]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: valid as long as there is an owner, and `self` is one.
        unsafe { self.inner.as_ref() }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // Relaxed: `self` is an owner, so the value is not freed meanwhile.
        self.inner().owners.fetch_add(1, Ordering::Relaxed);
        Shared { inner: self.inner }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Release: what this owner did with the value is done; pairs with the last owner's fence.
        if self.inner().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: the last owner frees it, once. `try_new` has allocated it as a box does.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Count(Arc<AtomicUsize>);

    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_value_is_dropped_once_by_the_last_owner() {
        let count = Arc::new(AtomicUsize::new(0));
        let a = Shared::try_new(Count(count.clone())).ok().expect("memory");
        let b = a.clone();
        drop((a.clone(), a));
        assert_eq!(count.load(Ordering::Relaxed), 0);
        std::thread::spawn(move || drop(b)).join().expect("no panic");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
