//! Snapshots of all Gs: name, state, wait, times; and killing a G.
//!
//! Any G may read about any G at any time; no G is stopped for it. So each field was true at some
//! moment during the call, and all are of one life of the G: never one G's name with another's
//! state. How that is done is in `schedule`'s `roster`; this is the public interface to it.
//!
//! On the host, where threads stand in for Gs, there are none.
#![forbid(unsafe_code)]

pub use crate::backtrace::Frame;

use crate::attendants;
use crate::park;
use crate::program::ProgramId;
use crate::schedule::{self, GHandle, KillWatch};
use crate::time::{Duration, sleep};
use crate::waiting::Wait;
use alloc::vec::Vec;
use core::fmt;
use core::panic::Location;

/// All live Gs, by number.
///
/// ```
/// for g in runnext::tasks::gs() {
///     runnext::println!("{} {:?} {}", g.id, g.name, g.state);
/// }
/// ```
#[must_use]
pub fn gs() -> Vec<GInfo> {
    let mut gs = schedule::gs();
    gs.sort_unstable_by_key(|g| g.id);
    gs
}

/// The backtrace of a G that does not run, innermost first: where it will continue. If it is in a
/// blocking call, the frames of the call come first, which are on the stack of an M, and then its
/// own. Waits a little for a G that runs.
///
/// # Errors
/// [`NoBacktrace`] when there is no such G, or it runs.
///
/// ```
/// use runnext::tasks::{self, NoBacktrace};
/// assert_eq!(tasks::backtrace(0), Err(NoBacktrace::NoSuchG));
/// ```
pub fn backtrace(id: u64) -> Result<Vec<Frame>, NoBacktrace> {
    let mut calls = schedule::calls(id);
    for _ in 0..ROUNDS {
        // It may be about to wait; but not if the caller is that G.
        if calls != Err(NoBacktrace::Running) || park::current_id() == id {
            break;
        }
        sleep(Duration::from_millis(1));
        calls = schedule::calls(id);
    }
    let frame = |(number, address)| Frame::new(number, address);
    calls.map(|calls| calls.into_iter().enumerate().map(frame).collect())
}

/// Ends a G: it unwinds at its next wait or yield, where it starts another, or where it tries an
/// operation that is not possible. So its destructors run, and its join gives
/// [`JoinError::Killed`](crate::go::JoinError::Killed). Waits a little for that; if it takes
/// longer, a service G of the kernel repeats the request until the G has ended.
///
/// # Errors
/// [`KillError`] when there is no such G, or it is a service G of the kernel.
///
/// ```
/// use runnext::tasks::{self, KillError};
/// assert_eq!(tasks::kill(0), Err(KillError::NoSuchG));
/// ```
pub fn kill(id: u64) -> Result<Killed, KillError> {
    let handle = schedule::find(id).ok_or(KillError::NoSuchG)?;
    let program = schedule::program_of(&handle).ok_or(KillError::NoSuchG)?;
    if program.id() == ProgramId::KERNEL {
        return Err(KillError::Kernel);
    }
    if park::current_id() == id {
        park::die();
    }
    let _watch = KillWatch::new();
    let mut rounds = 0;
    while schedule::kill(&handle) {
        // Without memory for a service G, the caller repeats the request itself.
        if rounds >= YIELDS + ROUNDS && is_asked_on(&handle) {
            let computes = schedule::computes(&handle);
            return Ok(if computes { Killed::Computing } else { Killed::Pending });
        }
        rounds += 1;
        // A G that waits ends as soon as it has a CPU: it is the run-next G here.
        if rounds <= YIELDS {
            park::yield_now();
        } else {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(Killed::Ended)
}

/// Has a service G repeat the request until that G has ended; one is enough. False if there is no
/// memory for it.
fn is_asked_on(handle: &GHandle) -> bool {
    if !schedule::begin_repeating(handle) {
        return true;
    }
    let told = handle.clone();
    let ask = move || {
        let _watch = KillWatch::new();
        while schedule::kill(&told) {
            sleep(ASK_AGAIN);
        }
    };
    let asks = attendants::spawn_for_a_while("killer", ask).is_ok();
    if !asks {
        schedule::end_repeating(handle);
    }
    asks
}

/// Between two requests to a G that did not end at once.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// How often a killer yields before it sleeps between two checks.
const YIELDS: usize = 4;

/// How often to check whether a G has ended or left its CPU, a millisecond apart.
const ROUNDS: usize = 100;

/// The result of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// The G has ended.
    Ended,
    /// It was asked, but has not ended yet: it has not run since, or unwinds, or its destructors
    /// wait.
    Pending,
    /// It was asked, has run since, and has made no kernel call: there is no place to unwind from.
    /// It ends if it ever waits or yields; else only its program's end ends it.
    Computing,
}

/// Why a G was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillError {
    /// There is no G of this number, or no more.
    NoSuchG,
    /// It is a service G of the kernel.
    Kernel,
}

impl fmt::Display for KillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KillError::NoSuchG => "there is no such G",
            KillError::Kernel => "it is one of the kernel's own",
        })
    }
}

impl core::error::Error for KillError {}

/// Why there is no backtrace of a G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoBacktrace {
    /// There is no G of this number, or no more.
    NoSuchG,
    /// It runs, so its frames change during the walk.
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

/// A snapshot of one G.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GInfo {
    /// Its number, unique in this boot.
    pub id: u64,
    /// Its name, or "".
    pub name: &'static str,
    /// Its state.
    pub state: GState,
    /// What it waits for, if it does.
    pub wait: Option<Wait>,
    /// The number of the G that holds the lock it waits for, if that is a mutex, or a `RwLock` that
    /// is written.
    pub holder: Option<u64>,
    /// Where it was started.
    pub site: Option<&'static Location<'static>>,
    /// Its program.
    pub program: ProgramId,
    /// The CPU that it runs on.
    pub cpu: Option<usize>,
    /// The CPU that it must run on.
    pub pin: Option<usize>,
    /// The M that it runs on, or on which it waits in a call.
    pub m: Option<u32>,
    /// Nanoseconds that it was on a CPU.
    pub cpu_ns: u64,
    /// Nanoseconds that it waited for a CPU.
    pub queued_ns: u64,
    /// Nanoseconds that it was parked.
    pub waiting_ns: u64,
    /// How often it has left a CPU.
    pub switches: u64,
}

#[cfg(test)]
impl GInfo {
    /// A G with nothing else set.
    pub(crate) fn for_tests(id: u64, name: &'static str, state: GState) -> Self {
        GInfo { id, name, state, ..GInfo::default() }
    }
}

/// The state of a G.
///
/// ```
/// assert_eq!(runnext::tasks::GState::InCall.to_string(), "in a call");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GState {
    /// It is on a CPU.
    #[default]
    Running,
    /// It waits for a CPU.
    Runnable,
    /// It is parked.
    Waiting,
    /// It is parked in a blocking call, on the stack of an M.
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
