//! Ending a G from outside: a kill is requested, and forced if the G does not heed it.
//!
//! A kill first *requests* that a G ends: the G's record says which life is meant (`run::kill`),
//! and if the G waits it is woken. A wake-up without a reason means "check again", so the G checks
//! whether it has what it waited for, and if not, whether it is to end (`is_killed`): then it takes
//! its node out of the wait queue, as on a timeout, and unwinds (`die`). So destructors run, locks
//! are released, and the join reports that the G was killed. A G that yields or starts another
//! checks as well, which costs it two instructions; a G that prints does not, so that printing
//! never unwinds. A G of a program that has ended is also stopped where it would start another.
//!
//! # Gs that do not heed the request
//!
//! A G that was running when the request came, and begins to wait before it has checked, has missed
//! the wake-up; so the killer wakes it again, a moment later, until it is gone. If the G computes
//! first, that may be long after the request: the killer of one G leaves that to a service G of the
//! kernel (`tasks`; [`begin_repeating`]). A G that unwinds already does not check before that is
//! over: a second unwinding would abandon it (`panic`).
//!
//! A G that computes and calls no kernel function cannot be unwound, as it is at no place that has
//! tables for it. When its program ends, and only then, its kill is *forced*: the next interrupt
//! that finds it running abandons it (`abandon`). It is given `PATIENCE_NS` of its own CPU time, as
//! it may have to wait for a CPU among many Gs that end. Under an emulator even its own CPU time
//! may pass without a single instruction; so as many interrupts must have found it running, too.
//! Within that time the G would have left any kernel call that it was in. Each such G gets that
//! far, as each gets its share of a CPU; so the end of a program gives up on Gs that wait, never on
//! Gs that can run ([`Left`]).
//!
//! A G that unwinds has heeded the request. But a destructor may compute for ever: so it is given
//! much more time (`UNWIND_NS`). A G whose destructor *waits* for ever is left where it is.

use crate::run::error::JoinError;
use crate::run::kill::{KillLevel, is_overdue, ran_since_request, request};
use crate::run::roster::ALL;
use crate::run::task::{GHandle, Task};
use crate::run::unwind;
use crate::run::{Instance, created, ready, roster, running, wake_cpu};
use sched::{G, Status};

/// How long a G must have run at least since the request to count as computing.
const HEARD_NS: u64 = sched::SLICE_NS / 2;

/// The live G of this number.
pub fn find(id: u64) -> Option<GHandle> {
    let g = roster::find(id)?;
    let (handle, status) = g.handle_and_status();
    (status != Status::Dead && g.id() == id).then_some(handle)
}

pub fn program_of(handle: &GHandle) -> Option<&'static Instance> {
    Some(handle.get()?.kernel.program())
}

/// Requests the end of that life of a G, and wakes it if it waits. False if it has ended. To be
/// called again, a moment later, until it is false.
pub fn kill(handle: &GHandle) -> bool {
    kill_at(handle, KillLevel::Requested)
}

fn kill_at(handle: &GHandle, level: KillLevel) -> bool {
    let Some((g, status, _)) = request(handle, level) else { return false };
    match status {
        // It may run without a timer, and each interrupt is a chance to check.
        Status::Running => roster::cpu_of(g).into_iter().for_each(wake_cpu),
        // It does not check before that is over; and each wake-up for nothing hides a deadlock that
        // it is in.
        _ if g.kernel.unwinds() => {}
        _ => ready(handle.clone()),
    }
    true
}

/// Whether that G, whose end was requested, only computes: it has run since, has reached no place
/// where it would check, and does not unwind.
pub fn computes(handle: &GHandle) -> bool {
    let computes = |g| is_ready(g) && !g.kernel.unwinds() && ran_since_request(g) > HEARD_NS;
    handle.get().is_some_and(computes)
}

/// Whether the end of that G was requested, and it will end as soon as it checks.
pub fn ends_when_woken(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.ends_when_woken(g.id()))
}

fn is_ready(g: &'static G<Task>) -> bool {
    matches!(g.handle_and_status().1, Status::Running | Status::Runnable)
}

/// The caller takes over repeating the request to that G: true unless another G does already, or it
/// has ended.
pub fn begin_repeating(handle: &GHandle) -> bool {
    request(handle, KillLevel::Repeated).is_some_and(|(.., is_raised)| is_raised)
}

/// Which Gs are left of a program that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    Nobody,
    /// Some Gs, and they wait; or one may have been started meanwhile.
    Waiting,
    /// Some Gs that can run. Each of them ends when it checks, or has run for long enough.
    Running,
}

/// [`kill`]s all Gs of a program, which has ended; those that have run for too long since the
/// request are abandoned. Returns which Gs were left.
pub fn kill_all(of: &'static Instance) -> Left {
    let before = created();
    let belongs = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.handle_and_status();
        // Checked again, as it is known to live now.
        (status != Status::Dead && belongs(&g)).then_some(handle)
    };
    let members = || ALL.iter().filter(belongs).filter_map(lives);
    // All requests are set before the first G ends: no G may observe the end of another.
    members().for_each(|handle| _ = request(&handle, KillLevel::Requested));
    let end = |handle: GHandle| {
        let can_run = handle.get().is_some_and(is_ready);
        let left = if can_run { Left::Running } else { Left::Waiting };
        kill_at(&handle, level_due(&handle)).then_some(left)
    };
    // A G may have been started behind the walk.
    let none = || if created() == before { Left::Nobody } else { Left::Waiting };
    members().filter_map(end).max().unwrap_or_else(none)
}

/// The level of the next request to a G; says so when it is forced.
fn level_due(handle: &GHandle) -> KillLevel {
    let Some(g) = handle.get().filter(|&g| is_overdue(g)) else { return KillLevel::Requested };
    let id = g.id();
    if g.kernel.kill.level(id) < KillLevel::Forced {
        let why = match g.kernel.unwinds() {
            false => "computes without a call of the kernel",
            true => "is in a destructor that does not end",
        };
        log::warn!("G {id} was killed, but {why}: abandoned");
    }
    KillLevel::Forced
}

/// Unwinds the running G to its end; if it unwinds already, abandons it. The hook `die`.
#[cold]
pub fn die() -> ! {
    let g = running().expect("no G to end");
    let _ = request(&g.handle(), KillLevel::Requested);
    if !g.kernel.is_panicking() {
        // For want of memory, or because the end of its program was asked for.
        let full = g.kernel.full.get();
        unwind::resume(full.map_or(JoinError::Killed, |full| full.why.into()));
    }
    super::abandon()
}
