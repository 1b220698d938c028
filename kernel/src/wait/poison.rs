//! Errors of locks: poisoned, abandoned, held by another G.
//!
//! What `Mutex` and `RwLock` share. A lock is *poisoned* if a holder panicked: its value may be
//! half changed, so the guard comes inside the error. As in std, a guard poisons the lock if it
//! existed when the panic began and is dropped while it unwinds; a lock taken and freed by a
//! destructor meanwhile is not poisoned. A lock is *abandoned* if a holder ended without dropping
//! its guard: it never opens again, and there is no guard to return. See `held`.

/// The result of taking a lock: a guard, or [`LockError`].
pub type LockResult<G> = Result<G, LockError<G>>;

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
    Poisoned(G),
    /// The lock was not taken and never will be: a G that held it ended without dropping its guard.
    Abandoned,
    /// The lock was not taken: another G holds it, or held it until the limit. A call without a
    /// limit waits instead.
    Held,
}

impl<G> LockError<G> {
    /// The guard in spite of the poisoning.
    ///
    /// # Panics
    /// If the lock was not taken: there is no guard.
    pub fn into_inner(self) -> G {
        match self {
            LockError::Poisoned(guard) => guard,
            error => panic!("{error}"),
        }
    }

    /// The guard in spite of the poisoning; `None` if the lock was not taken.
    pub fn guard(self) -> Option<G> {
        if let LockError::Poisoned(guard) = self { Some(guard) } else { None }
    }

    pub(crate) fn map<H>(self, f: impl FnOnce(G) -> H) -> LockError<H> {
        match self {
            LockError::Poisoned(guard) => LockError::Poisoned(f(guard)),
            LockError::Abandoned => LockError::Abandoned,
            LockError::Held => LockError::Held,
        }
    }
}

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

describe!(LockError<G> {
    LockError::Poisoned(_) => "Poisoned(..)", "poisoned lock: a G panicked while it held it";
    LockError::Abandoned => "Abandoned", "abandoned lock: a G ended without freeing it";
    LockError::Held => "Held", "the lock is held by another G";
});

/// `taken`; as an error if the lock is poisoned.
#[inline]
pub(super) fn check<G>(taken: G, is_poisoned: bool) -> LockResult<G> {
    if is_poisoned { Err(LockError::Poisoned(taken)) } else { Ok(taken) }
}

/// The guard of a lock that was taken, or why it was not.
#[inline]
pub(super) fn taken<G>(taken: LockResult<()>, guard: impl FnOnce() -> G) -> LockResult<G> {
    with_guard(taken, |()| guard())
}

/// As [`taken`], by way of a guard of another kind.
#[inline]
pub(super) fn with_guard<G, H>(taken: LockResult<G>, guard: impl FnOnce(G) -> H) -> LockResult<H> {
    match taken {
        Ok(taken) => Ok(guard(taken)),
        Err(error) => Err(error.map(guard)),
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
            pub fn into_inner(self) -> LockResult<T> {
                let poisoned = self.lock.is_poisoned();
                check(self.value.into_inner(), poisoned)
            }
        }

        impl<T: ?Sized> $lock<T> {
            /// Whether a G panicked while it could change the value, or the lock was abandoned.
            pub fn is_poisoned(&self) -> bool {
                self.lock.is_poisoned()
            }

            /// Declares the value consistent again. An abandoned lock stays abandoned.
            pub fn clear_poison(&self) {
                self.lock.word.fetch_and(!POISONED, Relaxed);
            }

            /// The value, without taking the lock: `&mut self` excludes all other holders.
            ///
            /// # Errors
            /// As for [`into_inner`](Self::into_inner).
            pub fn get_mut(&mut self) -> LockResult<&mut T> {
                let poisoned = self.lock.is_poisoned();
                check(self.value.get_mut(), poisoned)
            }
        }

        impl $raw {
            /// Of a lock that was taken.
            pub(super) fn poisoned(&self) -> LockResult<()> {
                check((), self.word.load(Relaxed) & POISONED != 0)
            }

            /// Whether a holder panicked, or is gone.
            fn is_poisoned(&self) -> bool {
                self.poisoned().is_err() || matches!(self.why_not(), LockError::Abandoned)
            }

            /// Why the lock is not free, if it is not.
            #[cold]
            fn why_not(&self) -> LockError<()> {
                let is_abandoned = note_if_abandoned(&self.word, owner_in);
                if is_abandoned { LockError::Abandoned } else { LockError::Held }
            }

            /// As [`why_not`](Self::why_not), for a call that does not wait. If the calling G was
            /// killed, it ends here.
            #[cold]
            fn not_at_once(&self) -> LockError<()> {
                let why_not = self.why_not();
                if matches!(why_not, LockError::Held) {
                    crate::run::door::check_kill();
                }
                why_not
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
                let guard = self.$try_lock().map_or_else(LockError::guard, Some);
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
