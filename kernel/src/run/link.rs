//! A word that names something immortal, or nothing.
//!
//! Structures that thread records together without allocating (`timer::heap`)
//! keep these in the records. A record that is never freed, as a G, is reached
//! by `&'static`; so any CPU can follow a link at any time, and which one may *change* it
//! is a matter of the structure's lock, not of memory safety.

use super::sys::{AtomicPtr, const_fn};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// A reference to a `T` that lives for ever, or none.
pub struct Link<T: 'static>(AtomicPtr<T>);

impl<T: 'static> Link<T> {
    const_fn! {
        /// No reference.
        #[must_use]
        pub fn new() -> Self {
            Link(AtomicPtr::new(ptr::null_mut()))
        }
    }
}

// `T: Sync`, as what is put in on one CPU comes out on another.
impl<T: Sync + 'static> Link<T> {
    /// The reference.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: the `T` that is found here is seen
        // as it was made. Users hold a lock and could do without, but then this
        // file would not be sound by itself; on x86 it costs nothing.
        let to = self.0.load(Acquire);
        // SAFETY: written by `set` and `replace` alone, so it is (1) null or made from a
        // `&'static T`, hence valid for reads for ever and never lent as `&mut`;
        // (2) followed on any CPU, which `T: Sync` allows.
        unsafe { to.as_ref() }
    }

    /// Sets the reference.
    #[inline]
    pub fn set(&self, to: Option<&'static T>) {
        self.0.store(address(to), Release); // pairs with `get`
    }

    /// Sets the reference if it still is `from`; else returns what it is.
    #[inline]
    pub fn replace(
        &self,
        from: Option<&'static T>,
        to: &'static T,
    ) -> Result<(), Option<&'static T>> {
        // Orders as in `set`, and as in `get`.
        let named = self.0.compare_exchange(address(from), address(Some(to)), AcqRel, Acquire);
        // SAFETY: as in `get`: written by `set` and here alone.
        named.map(drop).map_err(|now| unsafe { now.as_ref() })
    }
}

fn address<T>(to: Option<&'static T>) -> *mut T {
    to.map_or(ptr::null_mut(), |to| ptr::from_ref(to).cast_mut())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_seen_whole_on_another_cpu() {
        static LINK: Link<[u64; 4]> = Link::new();
        let reader = std::thread::spawn(|| {
            loop {
                if let Some(found) = LINK.get() {
                    return *found;
                }
                std::thread::yield_now();
            }
        });
        // Made at run time, so that there is something to be seen half done.
        LINK.set(Some(Box::leak(Box::new([1, 2, 3, 4]))));
        assert_eq!(reader.join().unwrap(), [1, 2, 3, 4]);
    }
}
