//! Snapshots of all Gs: name, state, wait, times; and killing a G.
//!
//! No G is stopped for a snapshot (`watch::snapshot` says what holds of it). On the host, where
//! threads stand in for Gs, there are none.
#![forbid(unsafe_code)]

pub use crate::watch::backtrace::Frame;
pub use crate::watch::{GInfo, GState, NoBacktrace, gs};

use crate::api::go::Priority;
use crate::arch::text_enum;
use crate::run::time::{Duration, sleep};
use crate::run::{GHandle, ProgramId, door, service};
use crate::{fail, run, watch};
use alloc::vec::Vec;

/// The backtrace of a G that does not run, innermost first: where it will continue. If it is in a
/// blocking call, the frames of the call come first, which are on the stack of an M, and then its
/// own. Waits a little for a G that runs.
pub fn backtrace(id: u64) -> Result<Vec<Frame>, NoBacktrace> {
    let frame = |(number, address)| Frame::new(number, address);
    let mut rounds = 0;
    loop {
        match watch::calls(id) {
            Ok(calls) => return Ok(calls.enumerate().map(frame).collect()),
            // It may be about to wait; but not if the caller is that G.
            Err(NoBacktrace::Running) if rounds < ROUNDS && door::current_id() != id => {
                rounds += 1;
                sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Ends a G: it unwinds at its next wait or yield, where it starts another, or where it tries an
/// operation that is not possible. So its destructors run, and its join gives
/// [`JoinError::Killed`](crate::api::go::JoinError::Killed). Waits a little for that; if it takes
/// longer, a service G of the kernel repeats the request until the G has ended.
///
/// ```
/// use runnext::tasks::{self, KillError};
/// assert_eq!(tasks::kill(0), Err(KillError::NoSuchG));
/// ```
pub fn kill(id: u64) -> Result<Killed, KillError> {
    let handle = fail::find(id).ok_or(KillError::NoSuchG)?;
    let program = fail::program_of(&handle).ok_or(KillError::NoSuchG)?;
    if program.id() == ProgramId::KERNEL {
        return Err(KillError::Kernel);
    }
    if door::current_id() == id {
        door::die();
    }
    let (mut rounds, mut is_mine) = (0, false);
    while fail::kill(&handle) {
        // Without memory for a service G, the caller repeats the request itself.
        if rounds >= YIELDS + ROUNDS && is_asked_on(&handle, &mut is_mine) {
            let computes = fail::computes(&handle);
            return Ok(if computes { Killed::Computing } else { Killed::Pending });
        }
        rounds += 1;
        // A G that waits ends as soon as it has a CPU: it is the run-next G here.
        if rounds <= YIELDS {
            door::yield_now();
        } else {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(Killed::Ended)
}

/// Sets the priority of the calling G.
///
/// ```no_run
/// use runnext::{prelude::*, tasks};
/// tasks::set_priority(Priority::Background); // the rest can wait
/// ```
pub fn set_priority(priority: Priority) {
    run::priority::set_own(priority);
}

/// Sets the priority of another G, by its number; false if there is no such G, or it is one of the
/// kernel's own: these wait for no program.
///
/// ```
/// use runnext::{prelude::*, tasks};
/// assert!(!tasks::nice(0, Priority::Background), "no G has the number 0");
/// ```
pub fn nice(id: u64, priority: Priority) -> bool {
    let is_kernels = |g: &GHandle| fail::program_of(g).is_some_and(|p| p.id() == ProgramId::KERNEL);
    let g = fail::find(id).filter(|g| !is_kernels(g));
    g.is_some_and(|g| run::priority::set(&g, priority))
}

/// Has a service G repeat the request until that G has ended, unless another caller does; false if
/// there is no memory for it. `is_mine`: it is this caller's to repeat, since an earlier try.
fn is_asked_on(handle: &GHandle, is_mine: &mut bool) -> bool {
    *is_mine |= fail::begin_repeating(handle);
    if !*is_mine {
        return true;
    }
    let target = handle.clone();
    let ask = move || {
        while fail::kill(&target) {
            sleep(Duration::from_millis(10));
        }
    };
    service::spawn("killer", ask).is_ok()
}

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

text_enum! {
    /// Why a G was not killed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error KillError {
        NoSuchG => "there is no such G",
        Kernel => "it is one of the kernel's own",
    }
}
