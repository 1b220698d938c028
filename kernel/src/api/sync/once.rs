//! `Once`, `OnceLock` and `LazyLock`: initialized by the first caller.
//!
//! The state is one word that all but the first few callers only read. A caller that finds it
//! running waits; the running closure wakes all waiters when it ends, by returning or by a panic.
#![forbid(unsafe_code)]

use super::Mutex;
use crate::run::door::{Reason, might_park};
use crate::wait::limit::Limit;
use crate::wait::queue::{IfUnwound, Place, TimedOut, WaitQueue};
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

// The states of the closure.
const NEW: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const POISONED: u32 = 3;

/// An action that is run once, by the first caller.
///
/// ```
/// use runnext::sync::Once;
/// static SETUP: Once = Once::new();
/// let mut runs = 0;
/// SETUP.call_once(|| runs += 1);
/// SETUP.call_once(|| runs += 1);
/// assert_eq!(runs, 1);
/// ```
#[derive(Default)]
pub struct Once {
    // Changes under the queue's lock; `DONE` is final.
    state: AtomicU32,
    pub(super) queue: WaitQueue,
}

impl Once {
    /// Not done yet.
    pub const fn new() -> Self {
        Once { state: AtomicU32::new(NEW), queue: WaitQueue::new(()) }
    }

    /// Runs `f`, unless another call did already; when this returns it is done. `f` must not call
    /// it again: it would wait for itself.
    ///
    /// # Panics
    /// When the closure of the first caller has panicked.
    #[inline]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            let _done = self.run_or_wait(Some(f), false, None);
        }
    }

    /// As [`call_once`](Self::call_once), but runs `f` also if earlier closures have panicked.
    #[inline]
    pub fn call_once_force(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            let _done = self.run_or_wait(Some(f), true, None);
        }
    }

    /// Waits until another call has run it, without running it.
    ///
    /// # Panics
    /// When the closure has panicked.
    pub fn wait(&self) {
        let _done = self.run_or_wait(None::<fn()>, false, None);
    }

    /// As [`wait`](Self::wait), until `limit` at most.
    ///
    /// # Panics
    /// When the closure has panicked.
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Result<(), TimedOut> {
        limit.into().during(|by_ns| self.run_or_wait(None::<fn()>, false, Some(by_ns)))
    }

    /// Whether it is done.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: makes the initialization visible; pairs with `end`.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Whether the last closure has panicked.
    pub fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == POISONED
    }

    /// Runs `f`, if there is one and no other call runs; else waits for that call.
    #[cold]
    fn run_or_wait(
        &self,
        mut f: Option<impl FnOnce()>,
        is_forced: bool,
        deadline_ns: Option<u64>,
    ) -> Result<(), TimedOut> {
        might_park();
        loop {
            let locked = self.queue.lock();
            let state = self.state.load(Ordering::Acquire);
            if state == DONE {
                return Ok(());
            }
            if state == POISONED && !is_forced {
                drop(locked);
                panic!("Once: the closure of the first caller has panicked");
            }
            if state != RUNNING
                && let Some(f) = f.take()
            {
                self.state.store(RUNNING, Ordering::Relaxed); // read under the lock
                drop(locked);
                let if_unwound = IfUnwound(|| self.end(POISONED));
                f();
                core::mem::forget(if_unwound);
                self.end(DONE);
                return Ok(());
            }
            let place = Place { reason: Reason::Once, list: 0, value: None, deadline_ns };
            locked.wait(place, |()| false).in_time()?;
        }
    }

    /// The closure has ended: stores its outcome, and wakes all waiters.
    fn end(&self, state: u32) {
        let locked = self.queue.lock();
        self.state.store(state, Ordering::Release); // pairs with `is_completed`
        drop(locked);
        self.queue.grant_all(0);
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("completed", &self.is_completed()).finish()
    }
}

/// A value that is initialized once, by the first caller; if that panics, by the next.
///
/// ```
/// use runnext::sync::OnceLock;
/// static TABLE: OnceLock<Vec<u32>> = OnceLock::new();
/// assert_eq!(TABLE.get_or_init(|| vec![1, 2, 3]).len(), 3);
/// assert_eq!(TABLE.get(), Some(&vec![1, 2, 3]));
/// ```
pub struct OnceLock<T> {
    once: Once,
    // Only set while `once` runs, so no caller ever spins for it.
    value: spin::Once<T>,
}

impl<T> OnceLock<T> {
    /// No value yet.
    pub const fn new() -> Self {
        OnceLock { once: Once::new(), value: spin::Once::new() }
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value; made by `f` if it is not there, waited for if another caller makes it. `f` must
    /// not request it: it would wait for itself.
    #[inline]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        self.once.call_once_force(|| {
            let value = f(); // outside the `spin::Once`, which its panic would poison
            self.value.call_once(|| value);
        });
        self.value.get().expect("done means that it is there")
    }

    /// Sets the value; returns it as an error if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.once.call_once_force(|| {
            if let Some(value) = value.take() {
                self.value.call_once(|| value);
            }
        });
        value.map_or(Ok(()), Err)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// A value that its first use makes, in a static most often.
///
/// ```
/// use runnext::sync::LazyLock;
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
/// assert_eq!(SQUARES[3], 9);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    init: Mutex<Option<F>>,
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// The value will be made by `init`, which must not use it: it would wait for itself.
    pub const fn new(init: F) -> Self {
        LazyLock { value: OnceLock::new(), init: Mutex::new(Some(init)) }
    }

    /// The value, made now if need be; other Gs that want it wait meanwhile.
    ///
    /// # Panics
    /// When `init` has panicked.
    #[inline]
    pub fn force(this: &Self) -> &T {
        this.value.get_or_init(|| {
            let init = this.init.lock().ok().and_then(|mut init| init.take());
            init.expect("LazyLock: making its value has panicked")()
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
