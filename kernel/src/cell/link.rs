//! A word that names something immortal, or nothing.
//!
//! Structures that thread records together without allocating (`timer::heap`)
//! keep these in the records. A record that is never freed, as a G, is reached
//! by `&'static`; so a link can be followed by anybody at any time, and who may
//! *change* it is a matter of the structure's lock, not of memory safety.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

/// Names a `T` that lives for ever, or nobody.
///
/// ```
/// use runnext::cell::Link;
/// static SEVEN: u32 = 7;
/// let link = Link::new();
/// assert_eq!(link.get(), None);
/// link.set(Some(&SEVEN));
/// assert_eq!(link.get(), Some(&7));
/// ```
pub struct Link<T: 'static>(AtomicPtr<T>);

impl<T: 'static> Link<T> {
    /// Names nobody.
    #[must_use]
    pub const fn new() -> Self {
        Link(AtomicPtr::new(ptr::null_mut()))
    }
}

// `T: Sync`, as what is put in on one CPU comes out on another.
impl<T: Sync + 'static> Link<T> {
    /// Who is named.
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: who finds a `T` here sees it
        // as it was made. Users hold a lock and could do without, but then this
        // file would not be sound by itself; on x86 it costs nothing.
        let to = self.0.load(Acquire);
        // SAFETY: written by `set` alone, so it is (1) null or made from a
        // `&'static T`, hence valid for reads for ever and never lent as `&mut`;
        // (2) followed on any CPU, which `T: Sync` allows.
        unsafe { to.as_ref() }
    }

    /// Names another.
    #[inline]
    pub fn set(&self, to: Option<&'static T>) {
        let to = to.map_or(ptr::null_mut(), |to| ptr::from_ref(to).cast_mut());
        self.0.store(to, Release); // pairs with `get`
    }
}

impl<T: 'static> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
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
