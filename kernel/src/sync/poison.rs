//! Errors of locks: poisoned, abandoned, held by another G.
//!
//! The errors of `Mutex` and `RwLock`. A lock is *poisoned* if a holder panicked: its value may be
//! half changed, so the guard comes inside the error. As in std, a guard poisons the lock if it
//! existed when the panic began and is dropped while it unwinds; a lock taken and freed by a
//! destructor meanwhile is not poisoned. A lock is *abandoned* if a holder ended without dropping
//! its guard: it never opens again, and there is no guard to return. How the two are detected is in
//! `cell::held`.

use crate::cell::held::NotTaken;
use core::fmt;

/// The result of taking a lock: a guard, or [`LockError`].
pub type LockResult<G> = Result<G, LockError<G>>;

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
        match self {
            LockError::Poisoned(error) => error.into_inner(),
            LockError::Abandoned => panic!("{ABANDONED}"),
        }
    }

    /// The guard in spite of the poisoning; `None` if the lock was abandoned.
    ///
    /// ```
    /// use runnext::sync::LockError;
    /// assert_eq!(LockError::<u32>::Abandoned.guard(), None);
    /// ```
    pub fn guard(self) -> Option<G> {
        match self {
            LockError::Poisoned(error) => Some(error.into_inner()),
            LockError::Abandoned => None,
        }
    }

    /// The same error with another guard.
    pub(super) fn map<H>(self, f: impl FnOnce(G) -> H) -> LockError<H> {
        match self {
            LockError::Poisoned(error) => LockError::Poisoned(PoisonError::new(f(error.guard))),
            LockError::Abandoned => LockError::Abandoned,
        }
    }
}

/// The message for an abandoned lock.
const ABANDONED: &str = "abandoned lock: a G ended without freeing it";

impl<G> From<PoisonError<G>> for LockError<G> {
    fn from(error: PoisonError<G>) -> Self {
        LockError::Poisoned(error)
    }
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockError::Poisoned(_) => "Poisoned(..)",
            LockError::Abandoned => "Abandoned",
        })
    }
}

impl<G> fmt::Display for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Poisoned(error) => error.fmt(f),
            LockError::Abandoned => f.write_str(ABANDONED),
        }
    }
}

impl<G> core::error::Error for LockError<G> {}

/// The lock was taken, but a G panicked while it held it.
///
/// ```
/// use runnext::sync::PoisonError;
/// assert_eq!(PoisonError::new(7).into_inner(), 7);
/// ```
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

impl<G> fmt::Debug for PoisonError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoisonError").finish_non_exhaustive()
    }
}

impl<G> fmt::Display for PoisonError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("poisoned lock: a G panicked while it held it")
    }
}

impl<G> core::error::Error for PoisonError<G> {}

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

impl<G> fmt::Debug for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryLockError::Poisoned(_) => "Poisoned(..)",
            TryLockError::Abandoned => "Abandoned",
            TryLockError::WouldBlock => "WouldBlock",
        })
    }
}

impl<G> fmt::Display for TryLockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryLockError::Poisoned(error) => error.fmt(f),
            TryLockError::Abandoned => f.write_str(ABANDONED),
            TryLockError::WouldBlock => f.write_str("the lock is held by another G"),
        }
    }
}

impl<G> core::error::Error for TryLockError<G> {}

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

impl<G> fmt::Debug for LockTimeoutError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockTimeoutError::Poisoned(_) => "Poisoned(..)",
            LockTimeoutError::Abandoned => "Abandoned",
            LockTimeoutError::TimedOut => "TimedOut",
        })
    }
}

impl<G> fmt::Display for LockTimeoutError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockTimeoutError::Poisoned(error) => error.fmt(f),
            LockTimeoutError::Abandoned => f.write_str(ABANDONED),
            LockTimeoutError::TimedOut => {
                f.write_str("the lock was held by another G all the time")
            }
        }
    }
}

impl<G> core::error::Error for LockTimeoutError<G> {}

/// The guard; as an error if the lock is poisoned.
#[inline]
pub(super) fn warn<G>(guard: G, is_poisoned: bool) -> Result<G, PoisonError<G>> {
    if is_poisoned { Err(PoisonError::new(guard)) } else { Ok(guard) }
}

/// Why a lock was not taken, by a call that waits without a limit.
#[cold]
pub(super) fn not_locked<G>(why: NotTaken) -> LockError<G> {
    match why {
        NotTaken::Abandoned => LockError::Abandoned,
        NotTaken::Held => unreachable!("a wait without a limit ended without the lock"),
    }
}

/// The same, by a call that waits for a while.
#[cold]
pub(super) fn not_in_time<G>(why: NotTaken) -> LockTimeoutError<G> {
    match why {
        NotTaken::Abandoned => LockTimeoutError::Abandoned,
        NotTaken::Held => LockTimeoutError::TimedOut,
    }
}

/// The same, by a call that does not wait. If the calling G was killed, it ends here.
#[cold]
pub(super) fn not_at_once<G>(why: NotTaken) -> TryLockError<G> {
    match why {
        NotTaken::Abandoned => TryLockError::Abandoned,
        NotTaken::Held => {
            crate::park::check_kill();
            TryLockError::WouldBlock
        }
    }
}
