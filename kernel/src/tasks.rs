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

use crate::attendants;
use crate::park;
use crate::program::ProgramId;
use crate::schedule::{self, Doom, GHandle, Vigil};
use crate::time::{Duration, sleep};
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
    let mut gs = schedule::gs();
    gs.sort_unstable_by_key(|g| g.id);
    gs
}

/// The calls that a G which does not run is in, innermost first: where it will
/// go on. If it is in a blocking call, the frames of the call come first, which
/// are on the stack of an M, and then its own. Waits a little for one that runs.
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
        // It may be about to wait; but not who asks for its own.
        if calls != Err(NoBacktrace::Running) || park::current_id() == id {
            break;
        }
        sleep(Duration::from_millis(1));
        calls = schedule::calls(id);
    }
    let frame = |(number, address)| Frame::new(number, address);
    calls.map(|calls| calls.into_iter().enumerate().map(frame).collect())
}

/// Ends a G: it unwinds at its next wait or yield, where it starts another, or
/// where it tries something that is not possible. So its destructors run, and its join
/// gives [`JoinError::Killed`](crate::go::JoinError::Killed). Waits a little for that; if
/// it takes longer, a G of the kernel's own goes on asking until it is so.
///
/// # Errors
/// [`KillError`] when there is no such G, or it is the kernel's.
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
    let _vigil = Vigil::new();
    let mut rounds = 0;
    while schedule::kill(&handle, Doom::Ask) {
        // Without memory for one who asks on, this one does.
        if rounds >= YIELDS + ROUNDS && is_asked_on(&handle) {
            let computes = schedule::computes(&handle);
            return Ok(if computes { Killed::Computing } else { Killed::Pending });
        }
        rounds += 1;
        // One that waits ends as soon as it has a CPU: it is next in line here.
        if rounds <= YIELDS {
            park::yield_now();
        } else {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(Killed::Ended)
}

/// Has a G of the kernel's own ask that G to end until it has; one is enough. False if
/// there is no memory for it.
fn is_asked_on(handle: &GHandle) -> bool {
    if !schedule::begin_tending(handle) {
        return true;
    }
    let told = handle.clone();
    let ask = move || {
        let _vigil = Vigil::new();
        while schedule::kill(&told, Doom::Ask) {
            sleep(ASK_AGAIN);
        }
    };
    let asks = attendants::spawn_for_a_while("killer", ask).is_ok();
    if !asks {
        schedule::end_tending(handle);
    }
    asks
}

/// Between two times that a G is asked, if it did not end at once.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// How often a G that kills another yields before it sleeps between two looks.
const YIELDS: usize = 4;

/// How often one looks whether a G has ended or left its CPU, a millisecond apart.
const ROUNDS: usize = 100;

/// What came of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// The G has ended.
    Ended,
    /// It was told, but has not ended yet: it has not run since, or unwinds, or its
    /// destructors wait.
    Pending,
    /// It was told, has run since, and has called nobody: there is no place to unwind
    /// from. It ends if it ever waits or yields; else only its program's end ends it.
    Computing,
}

/// Why a G was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KillError {
    /// There is no G of this number, or no more.
    NoSuchG,
    /// It is one of the kernel's own.
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
#[derive(Clone, Debug, Default)]
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
    /// The number of the G that holds what it waits for, if that is a mutex, or a
    /// `RwLock` that is written.
    pub holder: Option<u64>,
    /// Where it was started.
    pub site: Option<&'static Location<'static>>,
    /// The program that it is of.
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
    /// Nanoseconds that it waited for something else.
    pub waiting_ns: u64,
    /// How often it has left a CPU.
    pub switches: u64,
}

#[cfg(test)]
impl GInfo {
    /// One of which nothing else is known.
    pub(crate) fn for_tests(id: u64, name: &'static str, state: GState) -> Self {
        GInfo { id, name, state, ..GInfo::default() }
    }
}

/// What a G does.
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
