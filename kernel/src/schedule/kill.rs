//! Ending a G from outside: asked first, and abandoned if it does not listen.
//!
//! A G that is to end is *asked*: its record says which life of it is meant
//! ([`Doom`]), and if it waits it is woken. A wake-up without a reason says
//! "look", so it looks whether it has what it waited for, and if not, whether it
//! is asked to end ([`is_killed`]): then it takes its node out of whatever line
//! it stands in, as if its time were up, and unwinds ([`die`]). So destructors
//! run, locks are let go of, and the join says that it was killed. One that
//! yields looks as well, and one that prints. Nobody pays for it but who yields,
//! two instructions: all other looks are where a wait was ended for no reason.
//!
//! # Who does not listen
//!
//! A G that was asked while it ran, and begins to wait before it has looked, has
//! missed the wake-up; so whoever kills wakes it again, a moment later, until it
//! is gone. A G that unwinds already is not asked before that is over: a second
//! unwinding would end the machine. And one that computes and calls nobody cannot
//! be ended at all, as it is at no place that can unwind. It can be *abandoned*
//! ([`Doom::Abandon`]): the next interrupt that finds it running takes it off its
//! CPU for good. What it owned stays owned, so this is for the end of a program
//! only, after it was asked for [`PATIENCE_NS`]. Within that time it would have
//! left any call of the kernel that it was in.
//!
//! `tasks` and `program` are what a program sees of this.

use super::roster::{self, ALL};
use super::task::{GHandle, Task};
use super::{Leaving, created, leave_now, ready, running, wake_cpu};
use crate::program::{Instance, KERNEL};
use crate::waiting::Wait;
use crate::{arch, unwind};
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use sched::{G, Status};

/// How long a G is asked before it is abandoned: five slices.
pub const PATIENCE_NS: u64 = 5 * sched::SLICE_NS;

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
pub(super) struct DoomWord(AtomicU64);

const DOOM_BITS: u32 = 2;

impl DoomWord {
    pub(super) const fn new() -> Self {
        DoomWord(AtomicU64::new(0))
    }

    /// Whether there is anything to look at. For who yields.
    #[inline(always)]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// The doom of life `id`.
    fn of(&self, id: u64) -> Doom {
        match self.0.load(Relaxed) {
            word if word >> DOOM_BITS != id => Doom::None,
            word if word & Doom::Abandon as u64 != 0 => Doom::Abandon,
            _ => Doom::Ask,
        }
    }

    /// Dooms life `id` at least so badly, if `lives` still says that it lives.
    fn set(&self, id: u64, doom: Doom, lives: impl Fn() -> bool) {
        let mut word = self.0.load(Relaxed);
        while self.of(id) < doom && lives() {
            // If it ends meanwhile, what is left says nothing to later lives;
            // and whoever dooms one of those finds the word changed, or changes it.
            match self.0.compare_exchange(word, id << DOOM_BITS | doom as u64, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Forgets what was for other lives than `id`, so that nobody looks again.
    fn forget_others(&self, id: u64) {
        let word = self.0.load(Relaxed);
        if word >> DOOM_BITS != id {
            let _ = self.0.compare_exchange(word, 0, AcqRel, Relaxed);
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

/// Takes the running G off its CPU for good. Interrupts off.
#[cold]
pub(super) fn abandon(g: &'static G<Task>) -> ! {
    g.kernel.program.set(Some(&KERNEL));
    ABANDONED.fetch_add(1, Relaxed);
    loop {
        // Whoever has an old handle may wake it, but it does nothing then.
        g.kernel.waiting.store(Wait::default().pack(), Relaxed);
        g.begin_park();
        leave_now(g, Leaving::Park);
    }
}

/// Whether the running G is to be abandoned now.
pub(super) fn is_abandoned(g: &G<Task>) -> bool {
    g.kernel.doom.is_set() && g.kernel.doom.of(g.id()) == Doom::Abandon
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
    let lives = || handle.get().is_some();
    let Some(g) = handle.get() else { return false };
    let id = g.id();
    if !lives() {
        return false; // the number was perhaps another's
    }
    g.kernel.doom.set(id, doom, lives);
    match g.look().1 {
        Status::Running if doom == Doom::Abandon => {
            if let Some(cpu) = roster::cpu_of(g) {
                wake_cpu(cpu); // it may run without a timer
            }
        }
        _ => ready(handle.clone()),
    }
    true
}

/// [`kill`]s all Gs of a program. True if there was none; not if one may have been
/// started meanwhile, where this had looked already.
pub fn kill_all(of: &'static Instance, doom: Doom) -> bool {
    let before = created();
    let is_of = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.look();
        // Asked again, as it is known to live now.
        (status != Status::Dead && is_of(&g)).then_some(handle)
    };
    let killed = ALL.iter().filter(is_of).filter_map(lives).filter(|handle| kill(handle, doom));
    killed.count() == 0 && created() == before
}
