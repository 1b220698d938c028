//! Loom's atomics, which note what they did.
//!
//! Loom says that a model fails, and not what its threads saw on the way. So in models each access
//! is noted: thread, line, values. When a model panics, and the environment has `RUNNEXT_STORY`,
//! the steps of that interleaving are printed as one line of JSON, `STORY {…}`, in the form of the
//! simulator's (`tests/sim/story.rs`): the grader (`labs/`) makes a table of either.
//!
//! The models of the kernel (`kernel/tests/loom`) take this file, too, and [`note`] their own steps.
#![allow(dead_code, reason = "each crate uses a part of it")]

extern crate std;

use core::panic::Location;
use core::sync::atomic::Ordering;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::string::{String, ToString};
use std::sync::Once;
use std::vec::Vec;
use std::{format, println};

/// Steps that are kept of an interleaving: the last ones.
const KEPT: usize = 400;

#[derive(Clone, Copy)]
enum What {
    Reads(u64),
    Stores(u64),
    Changes(u64, u64),
    /// It found this and expected that.
    Finds(u64, u64),
    Fence,
    Spins,
    Note(&'static str),
}

#[derive(Clone, Copy)]
struct Step {
    thread: usize,
    at: &'static Location<'static>,
    what: What,
    order: Option<Ordering>,
    is_pointer: bool,
}

std::thread_local! {
    // Loom runs all threads of a model on one thread of the host.
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    /// Whether the story was told: what panics after that only follows.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
}

loom::thread_local! {
    static ME: usize = begin();
}

/// A thread of a model begins; the first one begins an interleaving.
fn begin() -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(tell_at_panic);
    let name = format!("{:?}", loom::thread::current().id());
    let number = name.chars().filter(char::is_ascii_digit).collect::<String>();
    let me = number.parse().unwrap_or(0);
    if me == 0 {
        STEPS.with_borrow_mut(Vec::clear);
    }
    me
}

#[track_caller]
fn step(what: What, order: Option<Ordering>, is_pointer: bool) {
    let at = Location::caller();
    // Not while the thread ends.
    let Ok(thread) = ME.try_with(|me| *me) else { return };
    STEPS.with_borrow_mut(|steps| {
        if steps.len() == 2 * KEPT {
            steps.drain(..KEPT);
        }
        steps.push(Step { thread, at, what, order, is_pointer });
    });
}

/// A step of another kind: a G parks, a lock is taken.
#[track_caller]
pub(crate) fn note(said: &'static str) {
    step(What::Note(said), None, false);
}

#[track_caller]
pub(crate) fn fence(order: Ordering) {
    step(What::Fence, Some(order), false);
    loom::sync::atomic::fence(order);
}

#[track_caller]
pub(crate) fn spin_loop() {
    step(What::Spins, None, false);
    loom::hint::spin_loop();
}

trait Shown: Copy {
    const IS_POINTER: bool = false;
    fn shown(self) -> u64;
}

macro_rules! shown {
    ($($t:ty),*) => {$(
        impl Shown for $t {
            fn shown(self) -> u64 {
                self as u64
            }
        }
    )*};
}

shown!(bool, u32, u64, usize);

impl<T> Shown for *mut T {
    const IS_POINTER: bool = true;
    fn shown(self) -> u64 {
        self.addr() as u64
    }
}

macro_rules! atomic {
    ($name:ident $(<$g:ident>)?, $v:ty) => {
        /// As loom's.
        pub(crate) struct $name $(<$g>)? (loom::sync::atomic::$name $(<$g>)?);

        impl $(<$g>)? $name $(<$g>)? {
            #[track_caller]
            pub(crate) fn new(value: $v) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $v {
                let value = self.0.load(order);
                step(What::Reads(value.shown()), Some(order), <$v>::IS_POINTER);
                value
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $v, order: Ordering) {
                self.0.store(value, order);
                step(What::Stores(value.shown()), Some(order), <$v>::IS_POINTER);
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $v, order: Ordering) -> $v {
                let old = self.0.swap(value, order);
                step(What::Changes(old.shown(), value.shown()), Some(order), <$v>::IS_POINTER);
                old
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                old: $v,
                new: $v,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$v, $v> {
                let result = self.0.compare_exchange(old, new, success, failure);
                let (what, order) = match result {
                    Ok(old) => (What::Changes(old.shown(), new.shown()), success),
                    Err(found) => (What::Finds(found.shown(), old.shown()), failure),
                };
                step(what, Some(order), <$v>::IS_POINTER);
                result
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                old: $v,
                new: $v,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$v, $v> {
                self.compare_exchange(old, new, success, failure)
            }
        }
    };
}

macro_rules! fetch {
    ($name:ident, $v:ty: $($fetch:ident $with:expr),*) => {
        impl $name {$(
            #[track_caller]
            pub(crate) fn $fetch(&self, by: $v, order: Ordering) -> $v {
                let old = self.0.$fetch(by, order);
                let with: fn($v, $v) -> $v = $with;
                step(What::Changes(old.shown(), with(old, by).shown()), Some(order), false);
                old
            }
        )*}
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);

macro_rules! all_fetch {
    ($($name:ident, $v:ty;)*) => {$(
        fetch!($name, $v: fetch_add |a, b| a.wrapping_add(b), fetch_sub |a, b| a.wrapping_sub(b),
            fetch_or |a, b| a | b, fetch_and |a, b| a & b, fetch_max |a, b| a.max(b));
    )*};
}

all_fetch! {
    AtomicU32, u32;
    AtomicU64, u64;
    AtomicUsize, usize;
}

fn tell_at_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(std::boxed::Box::new(move |info| {
        // Loom ends threads that are left over by a panic without words.
        if let Some(said) = info.payload_as_str()
            && std::env::var_os("RUNNEXT_STORY").is_some()
            && !IS_TOLD.replace(true)
        {
            let at = info.location().map(ToString::to_string).unwrap_or_default();
            let steps = STEPS.with_borrow(|steps| steps.clone());
            println!("STORY {}", story(said, &at, &steps));
        }
        before(info);
    }));
}

fn story(said: &str, at: &str, steps: &[Step]) -> String {
    let mut pointers: Vec<u64> = Vec::new();
    let threads = steps.iter().map(|step| step.thread + 1).max().unwrap_or(1);
    let mut out = format!("{{\"threads\":{threads},\"said\":{said:?},\"at\":{at:?},\"steps\":[");
    let last = &steps[steps.len().saturating_sub(KEPT)..];
    for (i, Step { thread, at, what, order, is_pointer }) in last.iter().enumerate() {
        let mut show = |value: u64| match (is_pointer, value) {
            (false, value) => value.to_string(),
            (true, 0) => "null".into(),
            (true, value) => {
                let known = pointers.iter().position(|known| *known == value);
                let at = known.unwrap_or_else(|| {
                    pointers.push(value);
                    pointers.len() - 1
                });
                format!("pointer {}", at + 1)
            }
        };
        let (kind, said) = match *what {
            What::Reads(value) => ("read", format!("reads {}", show(value))),
            What::Stores(value) => ("store", format!("stores {}", show(value))),
            What::Changes(old, new) if old == new => ("change", format!("leaves {}", show(old))),
            What::Changes(old, new) => {
                ("change", format!("changes {} to {}", show(old), show(new)))
            }
            What::Finds(found, old) => {
                ("refused", format!("finds {}, not {}: nothing is changed", show(found), show(old)))
            }
            What::Fence => ("fence", "fence".into()),
            What::Spins => ("spin", "waits in spin_loop".into()),
            What::Note(said) => ("note", said.into()),
        };
        let order = order.map(|order| format!(" ({order:?})")).unwrap_or_default();
        let comma = if i == 0 { "" } else { "," };
        let (_, file) = at.file().rsplit_once('/').unwrap_or(("", at.file()));
        let _ = write!(
            out,
            "{comma}{{\"cpu\":{thread},\"kind\":\"{kind}\",\"said\":{:?},\"object\":\"\",\
             \"calls\":[[{file:?},{}]]}}",
            said + &order,
            at.line(),
        );
    }
    out + "]}"
}
