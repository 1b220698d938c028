//! The name of a G and where it was started, readable while the next life is set up.
//!
//! A label is several words. Its owner writes them between two lives, when the
//! G's state says that it is dead; all others may read at any time, and must
//! never put together the address of one name and the length of another. So a
//! reader looks at the state before and after, as with a sequence lock, and the
//! state word that there is already serves as the sequence: the writer pays for
//! the words and nothing else. Its loom model is `tests/loom_records.rs`.
//!
//! # Why it is whole
//!
//! > The end of a life comes before `set`, and `set` before the begin of the
//! > next (which is a Release).
//!
//! A reader that sees a life begun (Acquire) sees the words of that life or later ones. If
//! it reads a later one, its fence pairs with that of `set`, so that it then
//! sees the earlier life ended, and reads no more into what it has.

use super::sys::{AtomicPtr, AtomicUsize, const_fn, fence};
use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A name and a place in the source.
pub struct Label {
    name: AtomicPtr<u8>,
    bytes: AtomicUsize,
    site: AtomicPtr<Location<'static>>,
}

impl Label {
    const_fn! {
        /// No name, no site.
        pub fn new() -> Self {
            Label {
                name: AtomicPtr::new(ptr::null_mut()),
                bytes: AtomicUsize::new(0),
                site: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// Writes it. One writer at a time, as the top of this file has it.
    #[inline]
    pub fn set(&self, name: &'static str, site: &'static Location<'static>) {
        fence(Release); // pairs with that of `get`; no instruction on x86
        self.name.store(name.as_ptr().cast_mut(), Relaxed);
        self.bytes.store(name.len(), Relaxed);
        self.site.store(ptr::from_ref(site).cast_mut(), Relaxed);
    }

    /// Reads it; `None` if `is_whole`, asked after all words were read, denies it.
    ///
    /// # Safety
    /// `is_whole` is true only if no other `set` has begun since the one whose
    /// life the caller saw begun before it called; or none can have.
    pub unsafe fn get(
        &self,
        is_whole: impl FnOnce() -> bool,
    ) -> Option<(&'static str, Option<&'static Location<'static>>)> {
        let name = self.name.load(Relaxed);
        let bytes = self.bytes.load(Relaxed);
        let site = self.site.load(Relaxed);
        fence(Acquire); // pairs with that of `set`
        if !is_whole() {
            return None;
        }
        // SAFETY: null, or from a reference in `set`.
        let site = unsafe { site.as_ref() };
        if name.is_null() {
            return Some(("", site));
        }
        // SAFETY: all words are of one `set`, says the caller: these two are
        // those of a `&'static str`.
        let name = unsafe { core::slice::from_raw_parts(name, bytes) };
        // SAFETY: as above.
        Some((unsafe { core::str::from_utf8_unchecked(name) }, site))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_set_or_not_at_all() {
        let (label, here) = (Label::new(), Location::caller());
        label.set("worker", here);
        // SAFETY: nothing sets it meanwhile.
        assert_eq!(unsafe { label.get(|| true) }, Some(("worker", Some(here))));
        // SAFETY: as above.
        assert_eq!(unsafe { label.get(|| false) }, None);
    }
}
