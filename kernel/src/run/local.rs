//! Locals of a G: values that each G has of its own, and its own name.
//!
//! A local is made when its G first asks for it, is attached to the record (`attached`), and is
//! dropped on that G when all else of it is over: the closure was run or unwound, and the result is
//! not yet told ([`end`], called at the root). So after a join the locals are gone. An abandoned G
//! leaks them, as all that it owns.
//!
//! A destructor may use other locals, and make them: they are dropped as well, the newest first,
//! until none is left. A local that was dropped, or is being dropped, is an error
//! ([`AccessError`]); what was moved out of a G when it ended (its result, dropped on it because no
//! handle is left) runs before another such end, so no local is made after the last.
//!
//! # Which local is meant
//!
//! The address of its [`LocalKey`] says so, and the type beside it: constants, which a program may
//! promote to statics, need not have addresses of their own.
//!
//! # A name that is freed
//!
//! Other CPUs read names at any time (`ps`). A name that lives for ever is read without a lock. One
//! that [`set_name`] has made is read, and cleared before it is freed, under a lock (`task`,
//! `NAMES`).

use super::attached::{Attached, Attachment, Kind};
use super::door::attached;
use super::error::JoinError;
use super::unwind;
use crate::arch::text_enum;
use alloc::boxed::Box;
use alloc::string::String;
use core::any::TypeId;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

text_enum! {
    /// A local was asked for that its G has dropped, or drops now.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error AccessError {
        Dropped => "this local of the G was dropped already",
    }
}

/// A value of which each G has its own (Go: none; std: `LocalKey`). Made by
/// [`g_local!`](crate::g_local).
pub struct LocalKey<T: 'static> {
    init: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    /// For [`g_local!`](crate::g_local).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(init: fn() -> T) -> Self {
        LocalKey { init }
    }

    /// Calls `f` with the calling G's value, which is made if there is none yet.
    ///
    /// # Panics
    /// If the G has dropped it already, at its end.
    ///
    /// ```
    /// use core::cell::Cell;
    /// use runnext::prelude::*;
    /// runnext::g_local! {
    ///     static COUNT: Cell<u32> = Cell::new(0);
    /// }
    /// COUNT.with(|count| count.set(5));
    /// let other = go(|| COUNT.with(Cell::get)).join();
    /// assert_eq!((other, COUNT.with(Cell::get)), (Ok(0), 5));
    /// ```
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`with`](Self::with); an error if the G has dropped it already: `f` was not called.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let local = match self.find() {
            Some(local) => local,
            None => {
                let value = (self.init)();
                // That may have used this very local: the value that is there stays.
                self.find().unwrap_or_else(|| self.make(value))
            }
        };
        // SAFETY: found under this type. It is this G's, and stays until the root of this G.
        let local = unsafe { local.as_ref() };
        if local.head.is_dropped.get() {
            return Err(AccessError::Dropped);
        }
        Ok(f(&local.value))
    }

    fn address(&'static self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    fn find(&'static self) -> Option<NonNull<Local<T>>> {
        let is_this = |head: &NonNull<Head>| {
            // SAFETY: attached, so it is there; this G's.
            let head = unsafe { head.as_ref() };
            head.key == self.address() && head.type_id == TypeId::of::<T>()
        };
        attached(|list| heads(list).find(is_this).map(NonNull::cast))
    }

    fn make(&'static self, value: T) -> NonNull<Local<T>> {
        let head = Head {
            node: Attachment::new(Kind::Local),
            key: self.address(),
            type_id: TypeId::of::<T>(),
            is_dropped: Cell::new(false),
            drop_value: drop_value::<T>,
            free: free::<T>,
        };
        let local = Box::new(Local { head, value: ManuallyDrop::new(value) });
        let local = NonNull::from(Box::leak(local));
        // SAFETY: 1. This G's list, and a new node. 2. Freed by `end`, which takes it out.
        attached(|list| unsafe { list.push(local.cast()) });
        local
    }
}

/// A local, whatever its type.
#[repr(C)] // the node first
struct Head {
    node: Attachment,
    key: usize,
    type_id: TypeId,
    is_dropped: Cell<bool>,
    drop_value: unsafe fn(NonNull<Head>),
    free: unsafe fn(NonNull<Head>),
}

#[repr(C)] // the head first
struct Local<T> {
    head: Head,
    value: ManuallyDrop<T>,
}

/// # Safety
/// The head of a `Local<T>`, whose value was not dropped and is not used again.
unsafe fn drop_value<T>(head: NonNull<Head>) {
    // SAFETY: the caller's promise.
    let value = unsafe { &mut (*head.cast::<Local<T>>().as_ptr()).value };
    // SAFETY: the caller's promise.
    unsafe { ManuallyDrop::drop(value) };
}

/// # Safety
/// The head of a `Local<T>`, which is not used again.
unsafe fn free<T>(head: NonNull<Head>) {
    // SAFETY: from the box that `make` has leaked.
    drop(unsafe { Box::from_raw(head.cast::<Local<T>>().as_ptr()) });
}

fn heads(list: &Attached) -> impl Iterator<Item = NonNull<Head>> {
    list.of_kind(Kind::Local).map(NonNull::cast)
}

/// The name that the G has given itself.
#[repr(C)] // the node first
struct OwnName {
    node: Attachment,
    text: String,
}

/// Names the calling G, for reports; of a longer name 64 bytes are shown. It is freed when the G
/// ends.
///
/// ```no_run
/// use runnext::prelude::*;
/// let workers = (0..4).map(|n| {
///     go(move || {
///         runnext::go::set_name(format!("worker {n}"));
///         sleep(Duration::from_secs(1));
///     })
/// });
/// workers.for_each(|worker| worker.join().unwrap());
/// ```
pub fn set_name(name: impl Into<String>) {
    let name = Box::new(OwnName { node: Attachment::new(Kind::Name), text: name.into() });
    let name = Box::leak(name);
    // SAFETY: its text stays until `free_names`, which comes after another name was set.
    unsafe { super::task::set_own_name(&name.text) };
    free_names();
    // SAFETY: 1. This G's list, and a new node. 2. Freed by `free_names`, which takes it out.
    attached(|list| unsafe { list.push(NonNull::from(name).cast()) });
}

/// Frees the names that are attached; the record has none of them any more.
fn free_names() {
    attached(|list| {
        for node in list.of_kind(Kind::Name) {
            list.remove(node);
            // SAFETY: from the box that `set_name` has leaked.
            drop(unsafe { Box::from_raw(node.cast::<OwnName>().as_ptr()) });
        }
    });
}

/// The calling G is at its root: drops its locals, and frees its name. Returns why the first
/// destructor failed that did.
#[cold]
pub fn end() -> Option<JoinError> {
    let mut failed = None;
    // SAFETY: attached, so it is there; this G's.
    let is_left = |head: &NonNull<Head>| !unsafe { head.as_ref() }.is_dropped.get();
    while let Some(local) = attached(|list| heads(list).find(is_left)) {
        // SAFETY: as above.
        let Head { is_dropped, drop_value, .. } = unsafe { local.as_ref() };
        is_dropped.set(true);
        // SAFETY: not dropped before, and from here on `try_with` gives an error.
        let dropped = unwind::catch(|| unsafe { drop_value(local) });
        failed = failed.or(dropped.err());
    }
    attached(|list| {
        for local in heads(list) {
            list.remove(local.cast());
            // SAFETY: attached until now.
            let free = unsafe { local.as_ref() }.free;
            // SAFETY: taken out.
            unsafe { free(local) };
        }
    });
    super::task::clear_own_name();
    free_names();
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Notes when it is dropped, and what it finds of the others then.
    struct Noted(Option<Arc<AtomicUsize>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            if let Some(dropped) = &self.0 {
                assert_eq!(FIRST.try_with(|_| ()), Err(AccessError::Dropped));
                dropped.fetch_add(1, Relaxed);
            }
        }
    }

    crate::g_local! {
        static FIRST: Cell<Noted> = Cell::new(Noted(None));
        static COUNT: Cell<u32> = Cell::new(7);
    }

    #[test]
    fn a_local_is_each_g_s_own_and_gone_when_it_is_joined() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let gs: Vec<_> = (0..4)
            .map(|n| {
                let dropped = dropped.clone();
                go(move || {
                    FIRST.with(|first| drop(first.replace(Noted(Some(dropped)))));
                    COUNT.with(|count| count.set(count.get() + n));
                    assert!(n != 2, "it unwinds");
                    COUNT.with(Cell::get)
                })
            })
            .collect();
        let ended = gs.into_iter().map(|g| g.join().ok()).collect::<Vec<_>>();
        assert_eq!(ended, [Some(7), Some(8), None, Some(10)]);
        assert_eq!(dropped.load(Relaxed), 4);
        assert_eq!(COUNT.with(Cell::get), 7, "this thread's");
    }

    #[test]
    fn locals_that_destructors_make_are_dropped_too() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Makes(u32);
        impl Drop for Makes {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Relaxed);
                if self.0 == 0 {
                    SECOND.with(|second| assert_eq!(second.0, 1));
                }
            }
        }
        crate::g_local! {
            static MAKER: Makes = Makes(0);
            static SECOND: Makes = Makes(1);
        }
        assert_eq!(go(|| MAKER.with(|maker| maker.0)).join(), Ok(0));
        assert_eq!(DROPPED.load(Relaxed), 2);
        // In the destructor of a result without a handle as well.
        let (tx, rx) = chan::bounded(1);
        drop(go(move || {
            let rx = rx;
            let _ = rx.recv();
            struct Last(chan::Receiver<()>);
            impl Drop for Last {
                fn drop(&mut self) {
                    MAKER.with(|_| ());
                }
            }
            Last(rx)
        }));
        drop(tx);
        while DROPPED.load(Relaxed) < 4 {
            yield_now();
        }
    }

    #[test]
    fn a_destructor_that_panics_is_the_error_of_the_join() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("a local");
            }
        }
        crate::g_local! {
            static BOMB: Panics = Panics;
        }
        let joined = go(|| BOMB.with(|_| 1)).join();
        assert_eq!(joined, Err(JoinError::Panicked("a local".into())));
        let joined = go(|| BOMB.with(|_| -> u32 { panic!("first") })).join();
        assert_eq!(joined, Err(JoinError::Panicked("first".into())));
    }

    #[test]
    fn a_local_that_its_own_value_asks_for_is_made_once() {
        crate::g_local! {
            static SELF: Cell<u32> = Cell::new({
                if DEPTH.with(|depth| depth.replace(1)) == 0 { SELF.with(Cell::get) + 1 } else { 5 }
            });
            static DEPTH: Cell<u32> = Cell::new(0);
        }
        assert_eq!(SELF.with(Cell::get), 5, "the first value that was made stays");
    }

    #[test]
    fn constants_of_several_types_are_not_one_local() {
        const A: LocalKey<u64> = LocalKey::new(|| 1);
        const B: LocalKey<f64> = LocalKey::new(|| 2.5);
        let (a, b): (&'static LocalKey<u64>, &'static LocalKey<f64>) = (&A, &B);
        assert_eq!((a.with(|a| *a), b.with(|b| *b)), (1, 2.5));
    }
}
