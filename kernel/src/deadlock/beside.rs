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

use super::{is_external, report};
use crate::attendants;
use crate::go::SpawnError;
use crate::lock::IrqLock;
use crate::park::{self, GHandle, Reason, Wait};
use crate::program::{self, Ended, Instance};
use crate::schedule;
use crate::tasks::GState;
use crate::time::{Duration, Instant, sleep};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Of its time, the watcher looks for one part in so many at most: there may be many Gs.
const SHARE: u32 = 20;
/// How often a look is repeated because Gs began or ended meanwhile.
const TRIES: usize = 16;

/// The watcher rests, or is about to: somebody must stir it.
static RESTS: AtomicBool = AtomicBool::new(false);

/// The watcher looks.
static LOOKS: AtomicBool = AtomicBool::new(false);

static WATCHER: IrqLock<Watcher> =
    IrqLock::new(Watcher { is_there: false, is_stirred: false, resting: None });

struct Watcher {
    is_there: bool,
    /// Something has happened since it began to look.
    is_stirred: bool,
    resting: Option<GHandle>,
}

/// A program is being started, and counts as running: sees to it that there is a watcher.
///
/// # Errors
/// [`SpawnError`] when there is no memory for it.
pub fn begin() -> Result<(), SpawnError> {
    if cfg!(not(target_os = "none")) {
        return Ok(()); // of threads nobody knows what they wait for
    }
    let mut watcher = WATCHER.lock();
    let was_there = core::mem::replace(&mut watcher.is_there, true);
    drop(watcher);
    if was_there {
        wake(park::ready);
        return Ok(());
    }
    attendants::spawn("deadlocks", watch).inspect_err(|_| WATCHER.lock().is_there = false)
}

/// Something happens on the machine: the watcher is to look, a little later. True if it
/// is in the inbox of this CPU. Any context, interrupts off.
#[inline]
pub fn stir() -> bool {
    RESTS.load(Relaxed) && wake(park::ready_from_interrupt)
}

/// As [`stir`], for a CPU that is about to halt while so many run Gs.
pub fn stir_from_halt(busy: usize) -> bool {
    let is_watcher = busy <= 1 && LOOKS.load(Relaxed);
    !is_watcher && stir()
}

/// Wakes the watcher by `ready`, if it rests.
#[cold]
fn wake(ready: impl FnOnce(GHandle)) -> bool {
    let mut watcher = WATCHER.lock();
    watcher.is_stirred = true;
    RESTS.store(false, Relaxed);
    let resting = watcher.resting.take();
    drop(watcher);
    resting.map(ready).is_some()
}

/// What the watcher does.
fn watch() {
    let mut took = Duration::ZERO;
    loop {
        sleep(PERIOD.max(took * SHARE));
        LOOKS.store(true, Relaxed);
        // From here on whatever happens is a reason to look again.
        WATCHER.lock().is_stirred = false;
        // With nobody beside the booted program, an idle machine's look is enough.
        RESTS.store(program::running().any(Instance::is_started), Relaxed);
        let began = Instant::now();
        let seen = program::running().map(judge).max().unwrap_or(Seen::Nothing);
        took = began.elapsed();
        if seen < Seen::Suspect {
            rest();
        }
        LOOKS.store(false, Relaxed);
    }
}

/// What came of a look at one program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    Suspect,
}

/// Parks until something happens, unless something has.
fn rest() {
    let mut watcher = WATCHER.lock();
    if watcher.is_stirred {
        return;
    }
    LOOKS.store(false, Relaxed); // a moment early, which is a look too many at most
    watcher.resting = Some(park::begin_park(Wait::new(Reason::Poll, 0)));
    drop(watcher);
    park::park();
}

/// Looks at one program, and sees to it that it ends if it has been deadlocked since the
/// last look.
fn judge(instance: &'static Instance) -> Seen {
    let id = instance.id();
    let stamp = stuck(instance).unwrap_or(0);
    let is_same = instance.suspect(stamp) == stamp;
    match stamp {
        0 => return Seen::Nothing,
        _ if !is_same => return Seen::Suspect,
        _ if !instance.is_started() => crate::panic::deadlock(|out| report(out, instance)),
        _ => {}
    }
    instance.end(id, Ended::Deadlock, park::ready);
    Seen::Nothing
}

/// A stamp of all its Gs, if they wait for each other now; not 0.
fn stuck(instance: &'static Instance) -> Option<u64> {
    for _ in 0..TRIES {
        let before = schedule::lives_changed();
        let first = sight(instance)?;
        if sight(instance)? == first && schedule::lives_changed() == before {
            return Some(first);
        }
    }
    None
}

/// A stamp of the waits of all its Gs, if each of them waits for another of them, as far
/// as one can see, and there is one.
fn sight(instance: &'static Instance) -> Option<u64> {
    let mut stamp = 0_u64;
    for (handle, info) in schedule::members(instance.id()) {
        let waits = matches!(info.state, GState::Waiting | GState::InCall);
        let wait = info.wait.filter(|_| waits)?;
        let goes_on = is_external(wait)
            || schedule::ends_when_woken(&handle)
            || schedule::waits_for_another(&handle, instance);
        if goes_on {
            return None;
        }
        for part in [info.id, info.switches, wait.pack()] {
            stamp = (stamp ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    (stamp != 0).then_some(stamp)
}
