//! `blocking`: a call that may block its M, and keeps no other G waiting.
//!
//! A G that waits in a channel, a lock or for a device costs no M: it is off its CPU and blocks no
//! other G. A *call* is for code that needs an M under it while it waits, as a system call does
//! under an operating system. It runs on the stack of its M. If it does not wait, it costs a few
//! instructions. If it does, M and G leave the CPU together, and a spare M continues with the other
//! Gs at that instant.
//!
//! A call waits for whatever a G outside of a call waits for, or for its turn when its slice is
//! over. The stack of an M has 512 KiB of addresses, guard included. See `run::call`.
#![forbid(unsafe_code)]

use crate::run::{door, unwind};

pub use crate::run::{BlockingError, Handoff, MState};
pub use crate::watch::{MInfo, ms};

/// Runs `f` as a call that may block, and returns its result (Go: entersyscall, exitsyscall).
///
/// # Panics
/// When there is no M for it ([`try_blocking`] gives an error instead); and with the panic of `f`.
///
/// ```
/// use runnext::prelude::*;
/// let answer = blocking(|| {
///     sleep(Duration::from_millis(1)); // the M waits, other Gs do not
///     42
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    try_blocking(f).unwrap_or_else(|error| panic!("blocking: {error}"))
}

/// As [`blocking`], with an error if there is no M for it: `f` was not run then.
pub fn try_blocking<T>(f: impl FnOnce() -> T) -> Result<T, BlockingError> {
    door::might_park();
    match door::call(|| unwind::catch(f))? {
        Ok(value) => Ok(value),
        Err(why) => unwind::resume(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    #[test]
    fn a_call_gives_what_it_returns() {
        let mut n = 1;
        assert_eq!(try_blocking(|| core::mem::replace(&mut n, 2)), Ok(1));
        assert_eq!(blocking(|| n), 2);
    }

    #[test]
    fn a_panic_in_a_call_is_its_callers() {
        let joined = go(|| blocking(|| -> u32 { panic!("inside") })).join();
        assert_eq!(joined, Err(JoinError::Panicked("inside".into())));
    }

    #[test]
    fn errors_say_what_is_missing() {
        assert_eq!(
            BlockingError::TooMany.to_string(),
            "there are 10000 Ms, and a call waits on each of them"
        );
        assert_eq!(BlockingError::NoMemory.to_string(), "no memory for another M");
    }
}
