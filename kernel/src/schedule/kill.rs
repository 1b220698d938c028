//! Ending a G from outside: asked first, and abandoned if it does not listen.
//!
//! A G that is to end is *asked*: its record says which life of it is meant
//! ([`Doom`]), and if it waits it is woken. A wake-up without a reason says
//! "look", so it looks whether it has what it waited for, and if not, whether it
//! is asked to end ([`is_killed`]): then it takes its node out of whatever line
//! it stands in, as if its time were up, and unwinds ([`die`]). So destructors
//! run, locks are let go of, and the join says that it was killed. One that
//! yields looks as well, and one that prints. Nobody pays for it but who yields,
//! two instructions: all other looks are where a wait was ended for no reason. A
//! G of a program that has ended is also stopped where it would start another, so
//! that Gs which do nothing else come to an end.
//!
//! # Who does not listen
//!
//! A G that was asked while it ran, and begins to wait before it has looked, has missed
//! the wake-up; so whoever kills wakes it again, a moment later, until it is gone. A G
//! that unwinds already is not asked before that is over: a second unwinding would leave
//! it behind (`panic`). And one that computes and calls nobody cannot be ended at all, as
//! it is at no place that can unwind. It can be *abandoned* ([`Doom::Abandon`]): the next
//! interrupt that finds it running takes it off its CPU for good. Its locks are poisoned
//! and go on (`cell::held`); whatever else it owned stays owned, so this is for the end
//! of a program only, and only when it has run for [`PATIENCE_NS`] since it was asked: by
//! its own time, not by the clock, as it may have to wait for a CPU among many who end.
//! Within that time it would have left any call of the kernel that it was in.
//!
//! `tasks` and `program` are what a program sees of this.

use super::roster::{self, ALL};
use super::task::{GHandle, Task};
use super::{Leaving, created, leave_now, ready, running, wake_cpu};
use crate::program::Instance;
use crate::{arch, unwind};
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use sched::{G, Status};

/// How long a G may run after it was asked, before it is abandoned: five slices.
const PATIENCE_NS: u64 = 5 * sched::SLICE_NS;

/// Gs that were taken off their CPUs for good.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// How badly a G is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Doom {
    /// Not at all.
    None = 0,
    /// When it looks.
    Ask = 1,
    /// At the next interrupt.
    Abandon = 2,
}

/// The doom of a record, with the number of the life that it is for: so a new
/// life need not be told that it is not meant.
pub(super) struct DoomWord {
    word: AtomicU64,
    /// How long that life had run when it was asked, ns.
    ran_ns: AtomicU64,
}

const DOOM_BITS: u32 = 2;

impl DoomWord {
    pub(super) const fn new() -> Self {
        DoomWord { word: AtomicU64::new(0), ran_ns: AtomicU64::new(0) }
    }

    /// Whether there is anything to look at. For who yields.
    #[inline(always)]
    pub(super) fn is_set(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// The doom of life `id`.
    pub(super) fn of(&self, id: u64) -> Doom {
        match self.word.load(Relaxed) {
            word if word >> DOOM_BITS != id => Doom::None,
            word if word & Doom::Abandon as u64 != 0 => Doom::Abandon,
            _ => Doom::Ask,
        }
    }

    /// Dooms life `id` at least so badly, if `lives` still says that it lives. True
    /// if it was not so before.
    fn set(&self, id: u64, doom: Doom, lives: impl Fn() -> bool) -> bool {
        let mut word = self.word.load(Relaxed);
        while self.of(id) < doom && lives() {
            // If it ends meanwhile, what is left says nothing to later lives;
            // and whoever dooms one of those finds the word changed, or changes it.
            let doomed = id << DOOM_BITS | doom as u64;
            match self.word.compare_exchange(word, doomed, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Forgets what was for other lives than `id`, so that nobody looks again.
    fn forget_others(&self, id: u64) {
        let word = self.word.load(Relaxed);
        if word >> DOOM_BITS != id {
            let _ = self.word.compare_exchange(word, 0, AcqRel, Relaxed);
        }
    }
}

/// Whether the running G is to end, and can: where it has taken itself out of
/// whatever it waited in, it calls [`die`].
#[cold]
pub fn is_killed() -> bool {
    running().is_some_and(|g| {
        g.kernel.doom.forget_others(g.id());
        g.kernel.doom.of(g.id()) > Doom::None && !g.kernel.is_panicking()
    })
}

/// Ends the running G if it is to end and can: for calls that do not wait, but which
/// a G may make for ever. With interrupts off, as in the kernel's own sections,
/// it does nothing.
#[cold]
pub fn end_if_killed() {
    if arch::irqs_on() && is_killed() {
        die();
    }
}

/// Whether the running G was killed; it may be unwinding for that reason.
pub fn was_killed() -> bool {
    running().is_some_and(|g| g.kernel.doom.of(g.id()) > Doom::None)
}

/// The running G ends here, by unwinding; or, if it unwinds already, is abandoned.
#[cold]
pub fn die() -> ! {
    let g = running().expect("no G to end");
    let me = g.handle();
    g.kernel.doom.set(g.id(), Doom::Ask, || me.get().is_some());
    if !g.kernel.is_panicking() {
        unwind::killed();
    }
    arch::probe_stack();
    assert!(arch::irq_save(), "irqs off");
    abandon(g)
}

/// Takes the running G off its CPU for good: see `full`. Interrupts off.
#[cold]
pub(super) fn abandon(g: &'static G<Task>) -> ! {
    leave_now(g, Leaving::Abandon);
    unreachable!("an abandoned G runs")
}

/// Whether the running G is to be abandoned now. Not if it unwinds: it listens.
pub(super) fn is_abandoned(g: &G<Task>) -> bool {
    let doom = &g.kernel.doom;
    doom.is_set() && doom.of(g.id()) == Doom::Abandon && !g.kernel.is_panicking()
}

/// The running G would start another, and its program has ended.
#[cold]
pub(super) fn end_of_program() {
    let g = running().expect("no G to end");
    if !g.kernel.is_panicking() {
        die();
    }
}

/// One more was abandoned.
pub(super) fn note_abandoned() {
    ABANDONED.fetch_add(1, Relaxed);
}

/// How many Gs were abandoned.
pub fn abandoned() -> usize {
    ABANDONED.load(Relaxed)
}

/// The G of this number, if it lives.
pub fn find(id: u64) -> Option<GHandle> {
    let g = ALL.iter().find(|g| g.id() == id)?;
    let (handle, status) = g.look();
    (status != Status::Dead && g.id() == id).then_some(handle)
}

/// The program of that G.
pub fn program_of(handle: &GHandle) -> Option<&'static Instance> {
    Some(handle.get()?.kernel.program())
}

/// Dooms that life of a G, and wakes it if it waits. False if it has ended. To be
/// called again, a moment later, until it is false.
pub fn kill(handle: &GHandle, doom: Doom) -> bool {
    let Some((g, status)) = doomed(handle, doom) else { return false };
    match status {
        Status::Running if doom == Doom::Abandon => {
            if let Some(cpu) = roster::cpu_of(g) {
                wake_cpu(cpu); // it may run without a timer
            }
        }
        _ => ready(handle.clone()),
    }
    true
}

/// Dooms that life of a G, and does not wake it. The G and what it does, if it has not
/// ended.
fn doomed(handle: &GHandle, doom: Doom) -> Option<(&'static G<Task>, Status)> {
    let lives = || handle.get().is_some();
    let g = handle.get()?;
    let id = g.id();
    if !lives() {
        return None; // the number was perhaps another's
    }
    let status = g.look().1;
    if g.kernel.doom.set(id, doom, lives) && doom == Doom::Ask {
        g.kernel.doom.ran_ns.store(g.kernel.account.times(status).cpu_ns, Relaxed);
    }
    Some((g, status))
}

/// [`kill`]s all Gs of a program, which has ended; those that have run on for too
/// long since they were asked are abandoned. True if there was none; not if one may
/// have been started meanwhile, where this had looked already.
pub fn kill_all(of: &'static Instance) -> bool {
    let before = created();
    let is_of = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.look();
        // Asked again, as it is known to live now.
        (status != Status::Dead && is_of(&g)).then_some(handle)
    };
    let end =
        |handle: &GHandle| kill(handle, if is_deaf(handle) { Doom::Abandon } else { Doom::Ask });
    // All are doomed before the first ends: nobody is to see what became of another.
    ALL.iter().filter(is_of).filter_map(lives).for_each(|handle| {
        let _ = doomed(&handle, Doom::Ask);
    });
    let killed = ALL.iter().filter(is_of).filter_map(lives).filter(end);
    killed.count() == 0 && created() == before
}

/// Whether that G has run for [`PATIENCE_NS`] since it was asked to end.
fn is_deaf(handle: &GHandle) -> bool {
    let Some(g) = handle.get() else { return false };
    let (task, id) = (&g.kernel, g.id());
    let ran_ns = task.account.times(g.look().1).cpu_ns;
    let is_deaf = task.doom.of(id) > Doom::None
        && ran_ns.saturating_sub(task.doom.ran_ns.load(Relaxed)) > PATIENCE_NS;
    if is_deaf && task.doom.of(id) == Doom::Ask {
        log::warn!("G {id} computes on and calls nobody: it is abandoned");
    }
    is_deaf
}
