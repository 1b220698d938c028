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
    const MAX: usize = (1 << (usize::BITS - Self::ADDRESS_BITS - 1)) - 1;
    /// Above the length: the name will be freed.
    const OWNED: usize = Self::MAX + 1;

    const_fn! {
        pub fn new() -> Self {
            Name(AtomicPtr::new(ptr::null_mut()))
        }
    }

    /// A reader that sees this name sees what was done before; no instruction on x86.
    #[inline]
    pub fn set(&self, name: &'static str) {
        self.store(name, 0);
    }

    /// As [`set`](Self::set), for a name that will be freed: [`get`](Self::get) does not read it.
    pub fn set_owned(&self, name: &str) {
        self.store(name, Self::OWNED);
    }

    #[inline(always)]
    fn store(&self, name: &str, flag: usize) {
        let kept = &name[..name.floor_char_boundary(Self::MAX)];
        let above = (kept.len() | flag) << Self::ADDRESS_BITS;
        self.0.store(kept.as_ptr().cast_mut().wrapping_byte_add(above), Release);
    }

    /// The name; `None` if it will be freed.
    pub fn get(&self) -> Option<&'static str> {
        let word = self.0.load(Acquire); // pairs with `store`
        let is_owned = word.addr() >> Self::ADDRESS_BITS & Self::OWNED != 0;
        // SAFETY: then it is a `&'static str`.
        (!is_owned).then(|| unsafe { Self::text(word) })
    }

    /// The name, whichever it is.
    ///
    /// # Safety
    /// A name that will be freed is not, meanwhile and as long as the result is used.
    pub unsafe fn read<'a>(&self) -> &'a str {
        // SAFETY: the caller's promise.
        unsafe { Self::text(self.0.load(Acquire)) } // pairs with `store`
    }

    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn text<'a>(word: *mut u8) -> &'a str {
        if word.is_null() {
            return "";
        }
        let unused = usize::BITS - Self::ADDRESS_BITS;
        let at = ((word.addr() << unused).cast_signed() >> unused).cast_unsigned();
        let above = word.addr().wrapping_sub(at);
        let len = above >> Self::ADDRESS_BITS & Self::MAX;
        let bytes = word.wrapping_byte_sub(above);
        // SAFETY: `store` has put both together, of one name; the caller's promise.
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
        assert_eq!(name.get(), Some(""));
        for set in ["worker", "", "übermäßig"] {
            name.set(set);
            assert_eq!(name.get(), Some(set));
        }
        let long = "ü".repeat(Name::MAX);
        let kept = "ü".repeat(Name::MAX / 2);
        name.set_owned(&long);
        assert_eq!(name.get(), None, "it will be freed");
        // SAFETY: not yet.
        assert_eq!(unsafe { name.read() }, kept, "as much as fits");
        name.set(String::leak(long));
        assert_eq!(name.get(), Some(&*kept));
    }
}
