//! A list of all records of a kind that only grows: any CPU adds, any CPU walks.
//!
//! For records that are never freed, as Gs: each has a word for the one that was
//! added before it ([`Older`]), which is written before the record can be found
//! and never again. So a walk needs no lock, can begin at any time and in any
//! context, and meets every record that was added before it began. What the
//! records mean is their owner's; this file links them. Its loom model is
//! `tests/loom_records.rs`.
#![forbid(unsafe_code)]

use super::Link;
use super::sys::const_fn;

/// What has a place in a [`Registry`].
pub trait Record: Sync + Sized + 'static {
    /// Its place.
    fn older(&self) -> &Older<Self>;
}

/// The place of a record: a link to the one that was added before it.
pub struct Older<T: 'static>(Link<T>);

impl<T: 'static> Older<T> {
    const_fn! {
        /// In no registry.
        pub fn new() -> Self {
            Older(Link::new())
        }
    }
}

impl<T: Sync + 'static> Older<T> {
    /// The record that was added before this one, which is in a registry.
    pub fn get(&self) -> Option<&'static T> {
        self.0.get()
    }
}

/// All records that were ever added.
pub struct Registry<T: 'static> {
    newest: Link<T>,
}

impl<T: 'static> Registry<T> {
    const_fn! {
        /// Holds none.
        pub fn new() -> Self {
            Registry { newest: Link::new() }
        }
    }
}

impl<T: Record> Registry<T> {
    /// Adds a record; once for each, or walks go in a circle. Any context.
    pub fn add(&self, record: &'static T) {
        let mut newest = self.newest.get();
        loop {
            record.older().0.set(newest);
            // Publishes the word above along with the record.
            match self.newest.replace(newest, record) {
                Ok(()) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// All of them, newest first. Any context.
    pub fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        core::iter::successors(self.newest.get(), |record| record.older().0.get())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Task(u32, Older<Task>);

    impl Record for Task {
        fn older(&self) -> &Older<Self> {
            &self.1
        }
    }

    #[test]
    fn all_records_are_listed_newest_first() {
        static ALL: Registry<Task> = Registry::new();
        static ONE: Task = Task(1, Older::new());
        static TWO: Task = Task(2, Older::new());
        ALL.add(&ONE);
        ALL.add(&TWO);
        assert!(ALL.iter().map(|task| task.0).eq([2, 1]));
    }
}
