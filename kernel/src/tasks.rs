//! Every G there is, from outside: what it is called, what it does.
//!
//! Anybody may look at any G at any time; nobody is stopped for it. So what is
//! said of a G was true at one moment or another while the call lasted, and is
//! of one life of it: never one G's name with another's state. How that is done
//! is in `schedule`'s `roster`; here are the words for it.
//!
//! On the host, where threads stand in for Gs, there are none.
#![forbid(unsafe_code)]

pub use crate::backtrace::Frame;

use crate::waiting::Wait;
use alloc::vec::Vec;
use core::fmt;
use core::panic::Location;

/// All Gs that live, by number.
///
/// ```
/// for g in runnext::tasks::gs() {
///     runnext::println!("{} {:?} {}", g.id, g.name, g.state);
/// }
/// ```
#[must_use]
pub fn gs() -> Vec<GInfo> {
    let mut gs = crate::schedule::gs();
    gs.sort_unstable_by_key(|g| g.id);
    gs
}

/// The calls that a G which does not run is in, innermost first: where it will
/// go on. If it is in a blocking call, the frames of the call come first, which
/// are on the stack of an M, and then its own.
///
/// # Errors
/// [`NoBacktrace`] when there is no such G, or it runs.
///
/// ```
/// use runnext::tasks::{self, NoBacktrace};
/// assert_eq!(tasks::backtrace(0), Err(NoBacktrace::NoSuchG));
/// ```
pub fn backtrace(id: u64) -> Result<Vec<Frame>, NoBacktrace> {
    let calls = crate::schedule::calls(id)?;
    Ok(calls.iter().enumerate().map(|(number, &address)| Frame::new(number, address)).collect())
}

/// Why there are no frames of a G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoBacktrace {
    /// There is no G of this number, or no more.
    NoSuchG,
    /// It runs, so its frames change while one looks.
    Running,
}

impl fmt::Display for NoBacktrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoBacktrace::NoSuchG => "there is no such G",
            NoBacktrace::Running => "it runs: its frames change while one looks",
        })
    }
}

impl core::error::Error for NoBacktrace {}

/// What one G is and does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GInfo {
    /// Its number, unique in this boot.
    pub id: u64,
    /// Its name, or "".
    pub name: &'static str,
    /// What it does.
    pub state: GState,
    /// What it waits for, if it does.
    pub wait: Option<Wait>,
    /// Where it was started.
    pub site: Option<&'static Location<'static>>,
    /// The CPU that it runs on.
    pub cpu: Option<usize>,
    /// The CPU that it must run on.
    pub pin: Option<usize>,
    /// The M that it runs on, or on which it waits in a call.
    pub m: Option<u32>,
}

/// What a G does.
///
/// ```
/// assert_eq!(runnext::tasks::GState::InCall.to_string(), "in a call");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GState {
    /// It is on a CPU.
    Running,
    /// It waits for a CPU.
    Runnable,
    /// It waits for something else.
    Waiting,
    /// It waits for something else in a blocking call, on the stack of an M.
    InCall,
}

impl fmt::Display for GState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GState::Running => "running",
            GState::Runnable => "runnable",
            GState::Waiting => "waiting",
            GState::InCall => "in a call",
        })
    }
}
