//! Errors of locks: poisoned, abandoned, held by another G.
//!
//! The errors of `Mutex` and `RwLock`, and what the two share. A lock is *poisoned* if a holder
//! panicked: its value may be half changed, so the guard comes inside the error. As in std, a guard
//! poisons the lock if it existed when the panic began and is dropped while it unwinds; a lock
//! taken and freed by a destructor meanwhile is not poisoned. A lock is *abandoned* if a holder
//! ended without dropping its guard: it never opens again, and there is no guard to return. How the
//! two are detected is in `wait::held`.

use crate::wait::held::{NotTaken, Poisoned};
use core::fmt;

/// The result of taking a lock: a guard, or [`LockError`].
pub type LockResult<G> = Result<G, LockError<G>>;
/// The result of taking a lock without waiting.
pub(super) type TryResult<G> = Result<G, TryLockError<G>>;
/// The result of taking a lock with a limit.
pub(super) type TimeoutResult<G> = Result<G, LockTimeoutError<G>>;
/// The result of taking a lock in `wait`.
pub(super) type Taken<G> = Result<(G, Poisoned), NotTaken>;

/// Why [`Mutex::lock`](super::Mutex::lock) and the like give no plain guard.
///
/// [`into_inner`](Self::into_inner) gives the guard, poisoned or not:
///
/// ```
/// use runnext::{prelude::*, sync::Mutex};
/// static COUNT: Mutex<u32> = Mutex::new(0);
/// let half_done = go(|| {
///     let _count = COUNT.lock();
///     panic!("in the middle");
/// });
/// assert!(half_done.join().is_err());
/// let count = COUNT.lock().unwrap_or_else(|error| error.into_inner());
/// assert_eq!(*count, 0);
/// ```
pub enum LockError<G> {
    /// The lock was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// The lock was not taken and never will be: a G that held it ended without its
    /// destructors, so its guard was never dropped.
    Abandoned,
}

impl<G> LockError<G> {
    /// The guard in spite of the poisoning.
    ///
    /// # Panics
    /// If the lock was [abandoned](Self::Abandoned): there is no guard.
    pub fn into_inner(self) -> G {
        match self.guard() {
            Some(guard) => guard,
            None => panic!("{ABANDONED}"),
        }
    }

    /// The guard in spite of the poisoning; `None` if the lock was abandoned.
    pub fn guard(self) -> Option<G> {
        match self {
            LockError::Poisoned(error) => Some(error.into_inner()),
            LockError::Abandoned => None,
        }
    }

    /// The same error with another guard.
    pub(super) fn map<H>(self, f: impl FnOnce(G) -> H) -> LockError<H> {
        self.guard()
            .map_or(LockError::Abandoned, |guard| LockError::Poisoned(PoisonError::new(f(guard))))
    }
}

/// The lock was taken, but a G panicked while it held it.
pub struct PoisonError<G> {
    guard: G,
}

impl<G> PoisonError<G> {
    /// Wraps a guard.
    pub fn new(guard: G) -> Self {
        PoisonError { guard }
    }

    /// The guard in spite of the poisoning.
    pub fn into_inner(self) -> G {
        self.guard
    }

    /// A shared reference to the guard.
    pub fn get_ref(&self) -> &G {
        &self.guard
    }

    /// A mutable reference to the guard.
    pub fn get_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

/// Why a lock was not taken at once.
///
/// ```
/// use runnext::sync::{Mutex, TryLockError};
/// let lock = Mutex::new(());
/// let _held = lock.lock();
/// assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
/// ```
pub enum TryLockError<G> {
    /// It was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// It was not taken and never will be: see [`LockError::Abandoned`].
    Abandoned,
    /// Another G holds it.
    WouldBlock,
}

/// Why a lock was not taken in time.
///
/// ```
/// use runnext::sync::{LockTimeoutError, Mutex};
/// use std::time::Duration;
/// let lock = Mutex::new(());
/// let _held = lock.lock();
/// let second = lock.lock_timeout(Duration::from_micros(1));
/// assert!(matches!(second, Err(LockTimeoutError::TimedOut)));
/// ```
pub enum LockTimeoutError<G> {
    /// It was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// It was not taken and never will be: see [`LockError::Abandoned`].
    Abandoned,
    /// Other Gs held it all the time.
    TimedOut,
}

impl<G> From<PoisonError<G>> for LockError<G> {
    fn from(error: PoisonError<G>) -> Self {
        LockError::Poisoned(error)
    }
}

const POISONED: &str = "poisoned lock: a G panicked while it held it";
const ABANDONED: &str = "abandoned lock: a G ended without freeing it";

/// `Debug` without the guard, and `Display` by a text for each variant.
macro_rules! describe {
    ($error:ident { $($variant:pat => $debug:literal, $text:expr;)+ }) => {
        impl<G> fmt::Debug for $error<G> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($variant => $debug),+ })
            }
        }
        impl<G> fmt::Display for $error<G> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($variant => $text),+ })
            }
        }
        impl<G> core::error::Error for $error<G> {}
    };
}

describe!(PoisonError { PoisonError { .. } => "PoisonError { .. }", POISONED; });
describe!(LockError {
    LockError::Poisoned(_) => "Poisoned(..)", POISONED;
    LockError::Abandoned => "Abandoned", ABANDONED;
});
describe!(TryLockError {
    TryLockError::Poisoned(_) => "Poisoned(..)", POISONED;
    TryLockError::Abandoned => "Abandoned", ABANDONED;
    TryLockError::WouldBlock => "WouldBlock", "the lock is held by another G";
});
describe!(LockTimeoutError {
    LockTimeoutError::Poisoned(_) => "Poisoned(..)", POISONED;
    LockTimeoutError::Abandoned => "Abandoned", ABANDONED;
    LockTimeoutError::TimedOut => "TimedOut", "the lock was held by another G all the time";
});

/// The guard; as an error if the lock is poisoned.
#[inline]
pub(super) fn check<G>(guard: G, poisoned: Poisoned) -> Result<G, PoisonError<G>> {
    if poisoned.0 { Err(PoisonError::new(guard)) } else { Ok(guard) }
}

/// The result of a call that waits without a limit.
#[inline]
pub(super) fn locked<G>(taken: Taken<G>) -> LockResult<G> {
    let (guard, poisoned) = taken.map_err(not_locked)?;
    Ok(check(guard, poisoned)?)
}

/// Why a lock was not taken, by a call that waits without a limit.
#[cold]
pub(super) fn not_locked<G>(why: NotTaken) -> LockError<G> {
    match why {
        NotTaken::Abandoned => LockError::Abandoned,
        NotTaken::Held => unreachable!("a wait without a limit ended without the lock"),
    }
}

/// The result of a call that waits for a while.
pub(super) fn locked_in_time<G>(taken: Taken<G>) -> TimeoutResult<G> {
    match taken {
        Ok((guard, poisoned)) => check(guard, poisoned).map_err(LockTimeoutError::Poisoned),
        Err(NotTaken::Abandoned) => Err(LockTimeoutError::Abandoned),
        Err(NotTaken::Held) => Err(LockTimeoutError::TimedOut),
    }
}

/// The result of a call that does not wait. If the calling G was killed, it ends here.
pub(super) fn locked_at_once<G>(taken: Taken<G>) -> TryResult<G> {
    match taken {
        Ok((guard, poisoned)) => check(guard, poisoned).map_err(TryLockError::Poisoned),
        Err(NotTaken::Abandoned) => Err(TryLockError::Abandoned),
        Err(NotTaken::Held) => {
            crate::run::door::check_kill();
            Err(TryLockError::WouldBlock)
        }
    }
}

/// What `Mutex` and `RwLock` share: a lock around an `inner` one of `wait`, which `$peek` tries to
/// take without waiting.
macro_rules! lock_type {
    ($lock:ident, $inner:ident, $peek:expr) => {
        impl<T> $lock<T> {
            /// A free lock around `value`.
            pub const fn new(value: T) -> Self {
                $lock { inner: $inner::new(value) }
            }

            /// The value, without the lock.
            ///
            /// # Errors
            /// The value with a warning, if a G panicked while it could change the value, or the
            /// lock was abandoned.
            pub fn into_inner(self) -> Result<T, PoisonError<T>> {
                let poisoned = self.inner.is_poisoned();
                check(self.inner.into_inner(), poisoned)
            }
        }

        impl<T: ?Sized> $lock<T> {
            /// Whether a G panicked while it could change the value, or the lock was abandoned.
            pub fn is_poisoned(&self) -> bool {
                self.inner.is_poisoned().0
            }

            /// Declares the value consistent again. An abandoned lock stays abandoned.
            pub fn clear_poison(&self) {
                self.inner.clear_poison();
            }

            /// The value, without taking the lock: `&mut self` excludes all other holders.
            ///
            /// # Errors
            /// The value with a warning, if a G panicked while it could change the value, or the
            /// lock was abandoned.
            pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
                let poisoned = self.inner.is_poisoned();
                check(self.inner.get_mut(), poisoned)
            }

            /// How many Gs have ever queued here.
            #[cfg(test)]
            pub(super) fn queued_ever(&self) -> u64 {
                self.inner.queued_ever()
            }
        }

        impl<T: Default> Default for $lock<T> {
            fn default() -> Self {
                $lock::new(T::default())
            }
        }

        impl<T> From<T> for $lock<T> {
            fn from(value: T) -> Self {
                $lock::new(value)
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $lock<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut out = f.debug_struct(stringify!($lock));
                match $peek(&self.inner) {
                    Ok((guard, _)) => out.field("value", &&*guard),
                    Err(_) => out.field("value", &format_args!("<locked>")),
                };
                out.field("poisoned", &self.is_poisoned()).finish()
            }
        }
    };
}

pub(super) use lock_type;
