//! Records that are never freed, as Gs: links between them, the list of all, their names.
//!
//! Any CPU can follow a [`Link`] to such a record at any time; which CPU may *change* the link is a
//! matter of the structure's lock, not of memory safety. Loom models: `tests/loom_records.rs`.

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
    /// Where it points to; 0 if nowhere.
    #[inline(always)]
    pub fn addr(&self) -> usize {
        self.0.load(Acquire).addr()
    }

    #[inline]
    pub fn get(&self) -> Option<&'static T> {
        // Acquire pairs with the Release in `set`: the `T` is seen as it was made. Users hold a
        // lock and could do without, but then this file would not be sound by itself.
        let to = self.0.load(Acquire);
        // SAFETY: written by `set` and `replace` alone, so it is (1) null or made from a
        // `&'static T`, hence valid for ever and never lent as `&mut`; (2) read on any CPU:
        // `T: Sync`.
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
/// The link to the older record is written before the record can be found and never again. So a
/// walk needs no lock, can begin in any context, and meets every record that was added before it
/// began.
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

/// A name in one word, its address and above that its length: so any CPU may read it while another
/// sets it, and never puts together the address of one name and the length of another.
pub struct Name(AtomicPtr<u8>);

impl Name {
    /// The bits of an address that say where; those above repeat the highest of them.
    const ADDRESS_BITS: u32 = 48;
    /// The longest name; of a longer one this many bytes are kept.
    const MAX: usize = (1 << (usize::BITS - Self::ADDRESS_BITS)) - 1;

    const_fn! {
        pub fn new() -> Self {
            Name(AtomicPtr::new(ptr::null_mut()))
        }
    }

    /// A reader that sees this name sees what was done before; no instruction on x86.
    #[inline]
    pub fn set(&self, name: &'static str) {
        let kept = &name[..name.floor_char_boundary(Self::MAX)];
        let above = kept.len() << Self::ADDRESS_BITS;
        self.0.store(kept.as_ptr().cast_mut().wrapping_byte_add(above), Release);
    }

    pub fn get(&self) -> &'static str {
        let word = self.0.load(Acquire); // pairs with `set`
        if word.is_null() {
            return "";
        }
        let unused = usize::BITS - Self::ADDRESS_BITS;
        let at = ((word.addr() << unused).cast_signed() >> unused).cast_unsigned();
        let above = word.addr().wrapping_sub(at);
        let (bytes, len) = (word.wrapping_byte_sub(above), above >> Self::ADDRESS_BITS);
        // SAFETY: `set` has put both together, of one `&'static str`.
        let name = unsafe { core::slice::from_raw_parts(bytes, len) };
        // SAFETY: as above.
        unsafe { core::str::from_utf8_unchecked(name) }
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
    fn a_name_is_read_as_it_was_set() {
        let name = Name::new();
        assert_eq!(name.get(), "");
        for set in ["worker", "", "übermäßig"] {
            name.set(set);
            assert_eq!(name.get(), set);
        }
        name.set(String::leak("ü".repeat(Name::MAX)));
        assert_eq!(name.get(), "ü".repeat(Name::MAX / 2), "as much as fits");
    }
}
