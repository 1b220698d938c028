//! Records that are never freed, as Gs: links between them, the list of all, their labels.
//!
//! Any CPU can follow a [`Link`] to such a record at any time; which CPU may *change* the link is a
//! matter of the structure's lock, not of memory safety. Loom models: `tests/loom_records.rs`.

use super::sys::{AtomicPtr, AtomicUsize, const_fn, fence};
use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

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
    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: the `T` is seen as it was made. Users hold a lock
        // and could do without, but then this file would not be sound by itself.
        let to = self.0.load(Acquire);
        // SAFETY: written by `set` and `replace` alone, so it is (1) null or made from a `&'static T`,
        // hence valid for ever and never lent as `&mut`; (2) followed on any CPU: `T: Sync`.
        unsafe { to.as_ref() }
    }

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

/// A record of a [`Registry`].
pub trait Record: Sync + Sized + 'static {
    /// The link to the record that was added before it.
    fn older(&self) -> &Link<Self>;
}

/// A list of all records of a kind that only grows: any CPU adds, any CPU walks.
///
/// The link to the older record is written before the record can be found and never again. So a walk
/// needs no lock, can begin in any context, and meets every record that was added before it began.
pub struct Registry<T: 'static> {
    newest: Link<T>,
}

impl<T: 'static> Registry<T> {
    const_fn! {
        pub fn new() -> Self {
            Registry { newest: Link::new() }
        }
    }
}

impl<T: Record> Registry<T> {
    /// Adds records, the newest last; once for each, or walks go in a circle. Any context.
    pub fn add(&self, records: &[&'static T]) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        for pair in records.windows(2) {
            pair[1].older().set(Some(pair[0]));
        }
        let mut newest = self.newest.get();
        loop {
            first.older().set(newest);
            // Publishes the words above along with the records.
            match self.newest.replace(newest, last) {
                Ok(()) => return,
                Err(now) => newest = now,
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        core::iter::successors(self.newest.get(), |record| record.older().get())
    }
}

/// The name of a G and where it was started, readable while the next life is set up.
///
/// A label is several words. Its owner writes them between two lives, when the G's state says that
/// it is dead; all others may read at any time, and must never put together the address of one name
/// and the length of another. So a reader checks the state before and after, as with a sequence lock
/// whose sequence is the state word: the writer pays for the words and nothing else.
///
/// > The end of a life comes before `set`, and `set` before the begin of the next (a Release).
///
/// A reader that sees a life begun (Acquire) sees the words of that life or later ones. If it reads
/// a later one, its fence pairs with that of `set`, so that it then sees the earlier life ended, and
/// discards what it has.
pub struct Label {
    name: AtomicPtr<u8>,
    bytes: AtomicUsize,
    site: AtomicPtr<Location<'static>>,
}

impl Label {
    const_fn! {
        pub fn new() -> Self {
            Label {
                name: AtomicPtr::new(ptr::null_mut()),
                bytes: AtomicUsize::new(0),
                site: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    /// Writes it. One writer at a time: see above.
    #[inline]
    pub fn set(&self, name: &'static str, site: &'static Location<'static>) {
        fence(Release); // pairs with that of `get`; no instruction on x86
        self.name.store(name.as_ptr().cast_mut(), Relaxed);
        self.bytes.store(name.len(), Relaxed);
        self.site.store(ptr::from_ref(site).cast_mut(), Relaxed);
    }

    /// Reads it; `None` if `is_whole`, asked after all words were read, denies that.
    ///
    /// # Safety
    /// `is_whole` is true only if no other `set` has begun since the one whose life the caller saw
    /// begun before it called; or none can have.
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
        // SAFETY: all words are of one `set`, says the caller: these two are a `&'static str`'s.
        let name = unsafe { core::slice::from_raw_parts(name, bytes) };
        // SAFETY: as above.
        Some((unsafe { core::str::from_utf8_unchecked(name) }, site))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Task(u32, Link<Task>);

    impl Record for Task {
        fn older(&self) -> &Link<Self> {
            &self.1
        }
    }

    #[test]
    fn all_records_are_listed_newest_first() {
        static ALL: Registry<Task> = Registry::new();
        static ONE: Task = Task(1, Link::new());
        static TWO: Task = Task(2, Link::new());
        static THREE: Task = Task(3, Link::new());
        ALL.add(&[&ONE]);
        ALL.add(&[&TWO, &THREE]);
        ALL.add(&[]);
        assert!(ALL.iter().map(|task| task.0).eq([3, 2, 1]));
    }

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
