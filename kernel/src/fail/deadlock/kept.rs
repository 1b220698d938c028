//! Calls that wait keep all CPUs: the deadlock of schedulers with a fixed number of threads.
//!
//! With `handoff=never`, and under `system=n1`, a CPU halts while a call waits on it, and its P
//! runs no other G. If that is so on all CPUs, and each of the calls waits for an event that only
//! another G can cause, no G ever runs again. The G that could end a wait may be runnable, the
//! holder of the lock that all of them want: it has no M to run on. The scan for programs that are
//! asleep does not find that, because a runnable G is none that waits.
//!
//! Every CPU that halts so looks ([`find`]), and so does each interrupt of it: the last of them
//! sees the waits of all others, which were published before its own was. Two walks in a row must
//! see the same waits, so all CPUs were in them at the moment between. From then on no G runs: an
//! interrupt may ready some, but takes no CPU from a call. Not judged is a machine with a G that is
//! pinned to a CPU beyond the limit, which would run it.
//!
//! With `handoff=immediate` and `handoff=sysmon` no CPU comes here.

use super::{MAX_TOLD, describe, is_external};
use crate::fail::end::EXIT_DEADLOCK;
use crate::fail::panic;
use crate::run::{self, program};
use crate::watch::{self, GInfo, GState, WaitingG, holder};
use core::fmt::{self, Write};

/// This CPU halts for a call that waits: ends the machine if all do, for good. Interrupts off.
pub fn find() {
    let ps = run::gomaxprocs();
    if let Some(first) = stamp(ps)
        && stamp(ps) == Some(first)
        && !all_gs().any(|g| g.pin.is_some_and(|cpu| cpu >= ps))
    {
        panic::stop_with(EXIT_DEADLOCK, |out| report(out, ps));
    }
}

/// A stamp of the waits that keep the CPUs of all Ps, if there are such waits and only Gs end them.
fn stamp(ps: usize) -> Option<u64> {
    (0..ps).try_fold(0, |stamp, cpu| {
        let (seen, wait) = WaitingG::that_keeps(cpu)?.wait()?;
        (!is_external(wait)).then(|| holder::mix(stamp, [seen]))
    })
}

/// All Gs of programs.
fn all_gs() -> impl Iterator<Item = GInfo> {
    let members = |instance: &'static run::Instance| watch::members(instance.id());
    program::running().flat_map(members).map(|(_, info)| info)
}

fn report(out: &mut dyn Write, ps: usize) -> fmt::Result {
    let kept = || (0..ps).filter_map(WaitingG::that_keeps).filter_map(WaitingG::info);
    match ps {
        1 => {
            writeln!(out, "fatal error: an M waits in a call, which keeps the only P - deadlock!")?
        }
        _ => writeln!(out, "fatal error: {ps} Ms wait in calls, which keep all Ps - deadlock!")?,
    }
    for g in kept().take(MAX_TOLD) {
        writeln!(out, "\n{}", describe(&g))?;
    }
    writeln!(out)?;
    let runnable = || all_gs().filter(|g| g.state == GState::Runnable);
    let holds = |g: &GInfo| kept().any(|waiting| waiting.holder == Some(g.id));
    for g in runnable().filter(holds) {
        writeln!(out, "goroutine {} holds the lock, is runnable and has no M", g.id)?;
    }
    let others = runnable().filter(|g| !holds(g)).count();
    if others > 0 {
        writeln!(out, "{others} other goroutines are runnable and have no M")?;
    }
    Ok(())
}
