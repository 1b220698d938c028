//! Why a G could not be started, and why one gave no result.

use super::payload::Panic;
use crate::arch::text_enum;

text_enum! {
    /// Why a G could not be started.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error SpawnError {
        NoMemory => "no memory for a new G",
        /// (Larger than [`crate::mem::stack::MAX_SIZE`].)
        StackTooLarge => "the stack asked for is too large",
        NoSuchCpu => "no such CPU to pin a G to",
        /// (Under a system in which every G has an M: there are as many as there may be.)
        TooManyMs => "no M for a new G: there are as many as there may be",
    }
}

text_enum! {
    /// Why a G gave no result.
    #[derive(Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error JoinError {
        Panicked(panic: Panic) => "{panic}",
        StackOverflow => "its stack was full",
        /// (For another page of its stack, or for it to panic.)
        NoMemory => "no memory for it to go on",
        /// (Or its program has ended.)
        Killed => "killed",
        Exited => "called goexit",
    }
}

/// Why a stack has no room: it is as large as it may be, or there is no memory for its next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Overflow,
    NoMemory,
}

impl From<Full> for JoinError {
    fn from(full: Full) -> Self {
        match full {
            Full::Overflow => JoinError::StackOverflow,
            Full::NoMemory => JoinError::NoMemory,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    pub(crate) why: Full,
    /// Its own stack, not only that of the M under a call.
    pub(crate) is_own: bool,
}
