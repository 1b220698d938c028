//! Programs that are deadlocked while others run: scanned once a second.
//!
//! The scan of `deadlock` runs when the machine has nothing to do. A G of another program that
//! computes for an hour would delay it for an hour. So as soon as a program was started beside the
//! booted one, a service G of the kernel, the *watcher*, checks one program after the other while
//! they run.
//!
//! # Why a program that was found is deadlocked
//!
//! All member Gs of a program are examined twice ([`sight`]). If each was in the same wait both
//! times (the same life, which has not left a CPU since), all of them waited at the moment between.
//! There was no other member then: the G that starts a member is a member itself and runs, and so
//! was not seen to wait; unless it began to wait in the middle of the first scan, and the new G was
//! put where the scan had been already. Then the second scan sees the new G, or it has ended; and
//! so the result counts only if no G began or ended on the whole machine
//! ([`schedule::lives_changed`]). From that moment on only a G of another program can wake any of
//! them.
//!
//! That may be: a lock in a static has an owner, and if that G is of another program the wait is no
//! deadlock ([`schedule::waits_for_another`]). A channel has none (see above). So a program is
//! given a second: it must be seen twice in the very same state.
//!
//! # No unnecessary tick
//!
//! After a scan that suspects no program the watcher *rests*, without a deadline: until a timer
//! fires on any CPU, or a CPU halts while another one is busy ([`stir`]). Then it waits for a
//! second, and scans. The last G of a program to wait leaves its CPU either with no G to run or to
//! another G. In the first case that CPU halts; in the second that G had waited for a CPU, here or
//! elsewhere, so there was a timer for it, which fires within a slice. So the last wait of a
//! deadlock is followed by a scan. A machine on which nothing happens takes no tick, and there the
//! scan for idle machines has run.
//!
//! Two events do not count, or the watcher would keep itself awake: the tick of a watchdog CPU, and
//! a CPU that halts while only the watcher runs. The watcher then leaves an idle machine, which
//! scans for itself.
//!
//! [`stir`] costs a load where a timer interrupt is handled, and where a CPU is about to halt.
#![forbid(unsafe_code)]

use super::watcher::{Seen, Watcher, look_twice, stamp_of};
use super::{is_external, report};
use crate::attendants;
use crate::go::SpawnError;
use crate::park::{self, GHandle, Reason, Wait};
use crate::program::{self, Ended, Instance};
use crate::schedule;
use crate::tasks::GState;
use crate::time::{Duration, Instant, sleep};

/// Between two scans.
const PERIOD: Duration = Duration::from_secs(1);
/// The watcher uses at most one part in so many of its time for scans: there may be many Gs.
const SHARE: u32 = 20;

static WATCHER: Watcher<GHandle> = Watcher::new();

/// A program is being started, and counts as running: ensures that there is a watcher.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn begin() -> Result<(), SpawnError> {
    if cfg!(not(target_os = "none")) {
        return Ok(()); // the host does not know what a thread waits for
    }
    if WATCHER.set_there(true) {
        if let Some(watcher) = WATCHER.wake() {
            park::ready(watcher);
        }
        return Ok(());
    }
    attendants::spawn("deadlocks", watch).inspect_err(|_| {
        WATCHER.set_there(false);
    })
}

/// An event happens on the machine: makes the watcher scan, a little later. True if it is in the
/// inbox of this CPU. Any context, interrupts off.
#[inline]
pub fn stir() -> bool {
    WATCHER.stir().map(park::ready_from_interrupt).is_some()
}

/// As [`stir`], for a CPU that is about to halt while so many CPUs run Gs.
pub fn stir_from_halt(busy: usize) -> bool {
    WATCHER.stir_from_halt(busy).map(park::ready_from_interrupt).is_some()
}

/// The watcher's main loop.
fn watch() {
    let mut took = Duration::ZERO;
    loop {
        sleep(PERIOD.max(took * SHARE));
        WATCHER.begin_look(program::running().any(Instance::is_started));
        let began = Instant::now();
        let seen = program::running().map(judge).max().unwrap_or(Seen::Nothing);
        took = began.elapsed();
        let begin_park = || park::begin_park(Wait::new(Reason::Poll, 0));
        if seen < Seen::Suspect && WATCHER.begin_rest(begin_park) {
            park::park();
        }
        WATCHER.end_look();
    }
}

/// Scans one program, and ends it if it has been deadlocked since the last scan.
fn judge(instance: &'static Instance) -> Seen {
    let id = instance.id();
    let stamp = look_twice(|| sight(instance), schedule::lives_changed).unwrap_or(0);
    let seen = Seen::of(stamp, instance.suspect(stamp));
    if seen < Seen::Deadlock {
        return seen;
    }
    if !instance.is_started() {
        crate::panic::deadlock(|out| report(out, instance));
    }
    instance.end(id, Ended::Deadlock, park::ready);
    Seen::Nothing
}

/// A stamp of the waits of all its Gs, if there are any and each of them waits for another of them,
/// as far as is known.
fn sight(instance: &'static Instance) -> Option<u64> {
    stamp_of(schedule::members(instance.id()).map(|(handle, info)| {
        let waits = matches!(info.state, GState::Waiting | GState::InCall);
        let wait = info.wait.filter(|_| waits)?;
        let goes_on = is_external(wait)
            || schedule::ends_when_woken(&handle)
            || schedule::waits_for_another(&handle, instance);
        (!goes_on).then(|| [info.id, info.switches, wait.pack()])
    }))
}
