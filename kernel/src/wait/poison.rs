//! Errors of locks: poisoned, abandoned, held by another G.
//!
//! What `Mutex` and `RwLock` share. A lock is *poisoned* if a holder panicked: its value may be
//! half changed, so the guard comes inside the error. As in std, a guard poisons the lock if it
//! existed when the panic began and is dropped while it unwinds; a lock taken and freed by a
//! destructor meanwhile is not poisoned. A lock is *abandoned* if a holder ended without dropping
//! its guard: it never opens again, and there is no guard to return. See `held`.

use super::held::{NotTaken, Poisoned};

/// The result of taking a lock: a guard, or [`LockError`].
pub type LockResult<G> = Result<G, LockError<G>>;
/// The result of taking a lock without waiting.
pub(super) type TryResult<G> = Result<G, TryLockError<G>>;
/// The result of taking a lock with a limit.
pub(super) type TimeoutResult<G> = Result<G, LockTimeoutError<G>>;

/// Why [`Mutex::lock`](super::mutex::Mutex::lock) and the like give no plain guard.
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
    /// The lock was not taken and never will be: a G that held it ended without dropping its guard.
    Abandoned,
}

impl<G> LockError<G> {
    /// The guard in spite of the poisoning.
    ///
    /// # Panics
    /// If the lock was [abandoned](Self::Abandoned): there is no guard.
    pub fn into_inner(self) -> G {
        self.guard().unwrap_or_else(|| panic!("{ABANDONED}"))
    }

    /// The guard in spite of the poisoning; `None` if the lock was abandoned.
    pub fn guard(self) -> Option<G> {
        match self {
            LockError::Poisoned(error) => Some(error.into_inner()),
            LockError::Abandoned => None,
        }
    }
}

/// The lock was taken, but a G panicked while it held it.
pub struct PoisonError<G>(G);

impl<G> PoisonError<G> {
    /// Wraps a guard.
    pub fn new(guard: G) -> Self {
        PoisonError(guard)
    }

    /// The guard in spite of the poisoning.
    pub fn into_inner(self) -> G {
        self.0
    }

    /// A shared reference to the guard.
    pub fn get_ref(&self) -> &G {
        &self.0
    }

    /// A mutable reference to the guard.
    pub fn get_mut(&mut self) -> &mut G {
        &mut self.0
    }
}

/// Why a lock was not taken at once.
pub enum TryLockError<G> {
    /// It was taken, but a G panicked while it held it.
    Poisoned(PoisonError<G>),
    /// It was not taken and never will be: see [`LockError::Abandoned`].
    Abandoned,
    /// Another G holds it.
    WouldBlock,
}

/// Why a lock was not taken in time.
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

/// `Display` by a text for each variant; and of an error with a guard or value, `Debug` without it.
macro_rules! describe {
    ($error:ident<$t:ident> { $($variant:pat => $debug:literal, $text:expr;)+ }) => {
        impl<$t> core::fmt::Debug for $error<$t> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $($variant => $debug),+ })
            }
        }
        $crate::wait::poison::describe!($error<$t> { $($variant => $text;)+ });
    };
    ($error:ident $(<$t:ident>)? { $($variant:pat => $text:expr;)+ }) => {
        impl$(<$t>)? core::fmt::Display for $error$(<$t>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $($variant => $text),+ })
            }
        }
        impl$(<$t>)? core::error::Error for $error$(<$t>)? {}
    };
}

pub(crate) use describe;

describe!(PoisonError<G> { PoisonError(_) => "PoisonError { .. }", POISONED; });
describe!(LockError<G> {
    LockError::Poisoned(_) => "Poisoned(..)", POISONED;
    LockError::Abandoned => "Abandoned", ABANDONED;
});
describe!(TryLockError<G> {
    TryLockError::Poisoned(_) => "Poisoned(..)", POISONED;
    TryLockError::Abandoned => "Abandoned", ABANDONED;
    TryLockError::WouldBlock => "WouldBlock", "the lock is held by another G";
});
describe!(LockTimeoutError<G> {
    LockTimeoutError::Poisoned(_) => "Poisoned(..)", POISONED;
    LockTimeoutError::Abandoned => "Abandoned", ABANDONED;
    LockTimeoutError::TimedOut => "TimedOut", "the lock was held by another G all the time";
});

/// The guard; as an error if the lock is poisoned.
#[inline]
pub(super) fn check<G>(guard: G, poisoned: Poisoned) -> Result<G, PoisonError<G>> {
    if poisoned.0 { Err(PoisonError::new(guard)) } else { Ok(guard) }
}

/// The guard of a lock that was taken, or why it was not.
#[inline]
pub(super) fn taken<G>(
    taken: Result<Poisoned, NotTaken>,
    guard: impl FnOnce() -> G,
) -> TryResult<G> {
    match taken {
        Ok(poisoned) => check(guard(), poisoned).map_err(TryLockError::Poisoned),
        Err(NotTaken::Abandoned) => Err(TryLockError::Abandoned),
        Err(NotTaken::Held) => Err(TryLockError::WouldBlock),
    }
}

impl<G> TryLockError<G> {
    #[cold]
    pub(super) fn without_limit(self) -> LockError<G> {
        match self {
            TryLockError::Poisoned(error) => LockError::Poisoned(error),
            TryLockError::Abandoned => LockError::Abandoned,
            TryLockError::WouldBlock => {
                unreachable!("a wait without a limit ended without the lock")
            }
        }
    }

    pub(super) fn in_time(self) -> LockTimeoutError<G> {
        match self {
            TryLockError::Poisoned(error) => LockTimeoutError::Poisoned(error),
            TryLockError::Abandoned => LockTimeoutError::Abandoned,
            TryLockError::WouldBlock => LockTimeoutError::TimedOut,
        }
    }

    /// As the error of a call that does not wait. If the calling G was killed, it ends here.
    pub(super) fn at_once(self) -> Self {
        if matches!(self, TryLockError::WouldBlock) {
            crate::run::door::check_kill();
        }
        self
    }
}

/// What `Mutex` and `RwLock` share: a `value` and its `lock`; `$try_lock` does not wait.
macro_rules! lock_type {
    ($lock:ident, $raw:ident, $try_lock:ident) => {
        impl<T> $lock<T> {
            const_fn! {
                /// A free lock around `value`.
                pub fn new(value: T) -> Self {
                    $lock { lock: $raw::new(), value: UnsafeCell::new(value) }
                }
            }

            /// The value, without the lock.
            ///
            /// # Errors
            /// The value with a warning, if a G panicked while it could change the value, or the
            /// lock was abandoned.
            pub fn into_inner(self) -> Result<T, PoisonError<T>> {
                let poisoned = self.lock.is_poisoned();
                check(self.value.into_inner(), poisoned)
            }
        }

        impl<T: ?Sized> $lock<T> {
            /// Whether a G panicked while it could change the value, or the lock was abandoned.
            pub fn is_poisoned(&self) -> bool {
                self.lock.is_poisoned().0
            }

            /// Declares the value consistent again. An abandoned lock stays abandoned.
            pub fn clear_poison(&self) {
                self.lock.word.fetch_and(!POISONED, Relaxed);
            }

            /// The value, without taking the lock: `&mut self` excludes all other holders.
            ///
            /// # Errors
            /// As for [`into_inner`](Self::into_inner).
            pub fn get_mut(&mut self) -> Result<&mut T, PoisonError<&mut T>> {
                let poisoned = self.lock.is_poisoned();
                check(self.value.get_mut(), poisoned)
            }
        }

        impl $raw {
            fn poisoned(&self) -> Poisoned {
                Poisoned(self.word.load(Relaxed) & POISONED != 0)
            }

            /// Whether a holder panicked, or is gone.
            fn is_poisoned(&self) -> Poisoned {
                Poisoned(self.poisoned().0 || self.why_not() == NotTaken::Abandoned)
            }

            /// Why the lock is not free, if it is not.
            #[cold]
            fn why_not(&self) -> NotTaken {
                let is_abandoned = note_if_abandoned(&self.word, owner_in);
                if is_abandoned { NotTaken::Abandoned } else { NotTaken::Held }
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

        impl<T: ?Sized + core::fmt::Debug> core::fmt::Debug for $lock<T> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let guard = match self.$try_lock() {
                    Ok(guard) => Some(guard),
                    Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
                    Err(_) => None,
                };
                let mut out = f.debug_struct(stringify!($lock));
                match &guard {
                    Some(guard) => out.field("value", &&**guard),
                    None => out.field("value", &format_args!("<locked>")),
                };
                out.field("poisoned", &self.is_poisoned()).finish()
            }
        }
    };
}

pub(super) use lock_type;
