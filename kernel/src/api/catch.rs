//! `catch`: a panic as a result, without a G of its own.
#![forbid(unsafe_code)]

use crate::run::error::JoinError;
use crate::run::unwind;
use alloc::string::String;
use core::fmt;

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic(String);

impl Panic {
    /// What it said.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.0)
    }
}

impl core::error::Error for Panic {}

/// Runs `f`; a panic in it becomes the error, when it has been reported and its destructors have
/// run (Go: recover; std: `catch_unwind`). A kill, a full stack or one without memory is not caught:
/// the G goes on unwinding.
///
/// As in std, what `f` was in the middle of changing may be half changed; locks that it held are
/// poisoned.
///
/// ```
/// use runnext::prelude::*;
/// let result = catch(|| [1, 2, 3].iter().map(|n| 6 / (n - 2)).sum::<i32>());
/// assert_eq!(result.unwrap_err().message(), "attempt to divide by zero");
/// assert_eq!(catch(|| 1), Ok(1));
/// ```
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Panic> {
    match unwind::catch(f) {
        Ok(value) => Ok(value),
        Err(JoinError::Panicked(message)) => Err(Panic(message)),
        Err(why) => unwind::resume(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_caught_and_kills_are_not() {
        assert_eq!(catch(|| 1), Ok(1));
        let panicked = catch(|| -> u32 { unwind::resume(JoinError::Panicked("no".into())) });
        assert_eq!(panicked.unwrap_err().to_string(), "panicked: no");
        let killed = unwind::catch(|| catch(|| -> u32 { unwind::resume(JoinError::Killed) }));
        assert_eq!(killed, Err(JoinError::Killed));
    }
}
