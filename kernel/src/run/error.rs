//! Why a G could not be started, and why one gave no result.

use alloc::string::String;
use core::fmt;

/// Why a G could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no memory for the G, its packet or its stack.
    NoMemory,
    /// The stack asked for is larger than [`crate::mem::stack::MAX_SIZE`].
    StackTooLarge,
    /// There is no CPU of this number to pin it to.
    NoSuchCpu,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpawnError::NoMemory => "no memory for a new G",
            SpawnError::StackTooLarge => "the stack asked for is too large",
            SpawnError::NoSuchCpu => "no such CPU to pin a G to",
        })
    }
}

impl core::error::Error for SpawnError {}

/// Why a G gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// It panicked, with this message.
    Panicked(String),
    /// Its stack was full.
    StackOverflow,
    /// There was no memory for another page of its stack, or none for it to panic.
    NoMemory,
    /// It was killed, or its program has ended.
    Killed,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Panicked(message) => write!(f, "panicked: {message}"),
            JoinError::StackOverflow => f.write_str("its stack was full"),
            JoinError::NoMemory => f.write_str("no memory for it to go on"),
            JoinError::Killed => f.write_str("killed"),
        }
    }
}

impl core::error::Error for JoinError {}

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
