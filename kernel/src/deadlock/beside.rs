//! Programs that are deadlocked while others run: looked for once a second.
//!
//! The look of the file above is taken when the machine has nothing to do. Somebody
//! else's G that computes for an hour would put that off for an hour. So as soon as a
//! program was started beside the one that was booted, a G of the kernel's own, the
//! *watcher*, judges one program after the other while they run.
//!
//! # Why it is one, if it is seen
//!
//! All members of a program are looked at twice ([`sight`]). If each was seen in the same
//! wait both times (the same life, which has not left a CPU since), all of them waited at
//! the moment between. Nobody else can have been a member then: who starts one is a
//! member, and runs, and so was not seen to wait; unless it began to wait in the middle
//! of the first look, and the new one was put where that had been already. The second
//! look sees the new one, or it has ended; and so what was seen counts only if no G began
//! or ended on the whole machine ([`schedule::lives_changed`]). From that moment on only
//! somebody of another program can wake any of them.
//!
//! That may be: a lock in a static has an owner, and if that is another program's the
//! wait is no deadlock ([`schedule::waits_for_another`]). A channel has none (see above).
//! So a program is given a second: it must be seen twice in the very same state.
//!
//! # No tick that nobody needs
//!
//! After a look that suspects nobody the watcher *rests*, without a deadline: until a
//! timer fires somewhere, or a CPU halts while another one is busy ([`stir`]). Then it
//! waits for a second, and looks. Whoever is the last of a program to wait leaves its CPU
//! to somebody else or to nobody. If to nobody, that CPU halts; if to somebody, who had
//! waited for it here or elsewhere, there was a timer for that, and it fires within a
//! slice. So the last wait of a deadlock is followed by a look. A machine on which
//! nothing happens takes no tick, and there the look for idle machines has been.
//!
//! Two things are no news, or the watcher would keep itself awake: the tick of a guard,
//! and a CPU that halts while nobody but the watcher runs. What it leaves behind then is
//! an idle machine, which looks for itself.
//!
//! Whoever stirs pays a load where a timer interrupt is handled, and where a CPU is
//! about to halt.
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

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Of its time, the watcher looks for one part in so many at most: there may be many Gs.
const SHARE: u32 = 20;

static WATCHER: Watcher<GHandle> = Watcher::new();

/// A program is being started, and counts as running: sees to it that there is a watcher.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn begin() -> Result<(), SpawnError> {
    if cfg!(not(target_os = "none")) {
        return Ok(()); // of threads nobody knows what they wait for
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

/// Something happens on the machine: the watcher is to look, a little later. True if it
/// is in the inbox of this CPU. Any context, interrupts off.
#[inline]
pub fn stir() -> bool {
    WATCHER.stir().map(park::ready_from_interrupt).is_some()
}

/// As [`stir`], for a CPU that is about to halt while so many run Gs.
pub fn stir_from_halt(busy: usize) -> bool {
    WATCHER.stir_from_halt(busy).map(park::ready_from_interrupt).is_some()
}

/// What the watcher does.
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

/// Looks at one program, and sees to it that it ends if it has been deadlocked since the
/// last look.
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

/// A stamp of the waits of all its Gs, if each of them waits for another of them, as far
/// as one can see, and there is one.
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
