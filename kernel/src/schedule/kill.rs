//! Ending a G from outside: asked first, and abandoned if it does not listen.
//!
//! A G that is to end is *asked*: its record says which life of it is meant
//! ([`Doom`]), and if it waits it is woken. A wake-up without a reason says
//! "look", so it looks whether it has what it waited for, and if not, whether it
//! is asked to end ([`is_killed`]): then it takes its node out of whatever line
//! it stands in, as if its time were up, and unwinds ([`die`]). So destructors
//! run, locks are let go of, and the join says that it was killed. One that
//! yields looks as well; one that prints does not, so that printing never unwinds. Only
//! a G that yields pays for it, two instructions: all other looks are where a wait was
//! ended for no reason or its time was up, where something was tried and was not possible,
//! and where a G starts another, which while somebody kills is done the long way
//! ([`Vigil`]). A G of a program that has ended is also stopped where it would start
//! another, so that Gs which do nothing else come to an end.
//!
//! # Who does not listen
//!
//! A G that was asked while it ran, and begins to wait before it has looked, has missed
//! the wake-up; so whoever kills wakes it again, a moment later, until it is gone. That
//! may be long after it was asked, if it computes first: who kills one G does not stand
//! by for ever, but leaves it to a G of the kernel's own, one for each that is asked
//! (`tasks`; [`begin_tending`]). A G
//! that unwinds already is not asked before that is over: a second unwinding would leave
//! it behind (`panic`). And one that computes and calls nobody cannot be ended at all, as
//! it is at no place that can unwind. It can be *abandoned* ([`Doom::Abandon`]): the next
//! interrupt that finds it running takes it off its CPU for good. Its locks are abandoned
//! (`cell::held`), and whatever else it owned stays owned, so this is for the end
//! of a program only, and only when it has run for [`PATIENCE_NS`] since it was asked: by
//! its own time, not by the clock, as it may have to wait for a CPU among many who end.
//! Under an emulator even its own time may pass without a single instruction, while the
//! host runs something else; so that many interrupts must have found it running, too
//! ([`CHANCES`]), which takes a CPU that really runs.
//! Within that time it would have left any call of the kernel that it was in. However
//! many they are, each of them gets that far, as each gets its share of a CPU; so whoever
//! ends a program gives up on those that wait, never on those that can run ([`Left`]).
//!
//! A G that unwinds has listened, and what it owns goes with it. But a destructor may
//! compute for ever, too: after much longer ([`UNWIND_NS`]) it is abandoned as well
//! ([`Doom::Forsake`]). One whose destructor *waits* for ever takes nobody's time, and is
//! left where it is.
//!
//! `tasks` and `program` are what a program sees of this.

use super::index;
use super::roster::{self, ALL};
use super::task::{GHandle, Task};
use super::watch::{ask_for_attention, spare_attention};
use super::{Leaving, created, leave_now, ready, running, wake_cpu};
use crate::lock::IrqLock;
use crate::preempt::Attention;
use crate::program::Instance;
use crate::{arch, unwind};
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use sched::{G, Status};

/// How long a G may run after it was asked, before it is abandoned: five slices.
const PATIENCE_NS: u64 = 5 * sched::SLICE_NS;

/// How often an interrupt must have found it running by then: as often as there are
/// slices in that.
const CHANCES: u64 = PATIENCE_NS / sched::SLICE_NS;

/// How long a G may run on that was asked and unwinds. Its destructors are a program's,
/// and to find one frame's takes an emulator a millisecond: in a call that is deep in
/// the stack of its M, two thousand of them.
const UNWIND_NS: u64 = 10_000_000_000;

/// How long one that was asked has run at least, of which is said that it computes.
const HEARD_NS: u64 = sched::SLICE_NS / 2;

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
    /// At the next interrupt, unless it unwinds.
    Abandon = 2,
    /// At the next interrupt.
    Forsake = 3,
}

/// The doom of a record, with the number of the life that it is for: so a new
/// life need not be told that it is not meant.
pub(super) struct DoomWord {
    word: AtomicU64,
    /// How long that life had run when it was asked, ns.
    ran_ns: AtomicU64,
}

/// Of the word: how badly, then [`TENDED`], then [`SEEN`], then which life.
const DOOM_BITS: u32 = 8;
/// A [`Doom`].
const HOW_BADLY: u64 = 3;
/// Somebody asks that life until it is over.
const TENDED: u64 = 1 << 2;
/// How often an interrupt has found that life running since it was asked: a number of
/// five bits that stays at its highest.
const SEEN: u64 = MOST_SEEN * SEEN_ONCE;
const MOST_SEEN: u64 = 31;
const SEEN_ONCE: u64 = 1 << 3;

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
        // Acquire: pairs with `set`; what it had run by then is there.
        let word = self.word.load(Acquire);
        match word & HOW_BADLY {
            _ if word >> DOOM_BITS != id => Doom::None,
            how if how == Doom::Forsake as u64 => Doom::Forsake,
            how if how == Doom::Abandon as u64 => Doom::Abandon,
            _ => Doom::Ask,
        }
    }

    /// Dooms life `id` at least so badly, if `lives` still says that it lives; `ran_ns`
    /// is how long it has run.
    fn set(&self, id: u64, doom: Doom, ran_ns: u64, lives: impl Fn() -> bool) {
        let mut word = self.word.load(Relaxed);
        while self.of(id) < doom && lives() {
            if self.of(id) == Doom::None {
                // First, so that nobody finds it doomed with what its last life had run.
                self.ran_ns.store(ran_ns, Relaxed);
            }
            // If it ends meanwhile, what is left says nothing to later lives;
            // and whoever dooms one of those finds the word changed, or changes it.
            let kept = if word >> DOOM_BITS == id { word & (TENDED | SEEN) } else { 0 };
            let doomed = id << DOOM_BITS | doom as u64 | kept;
            match self.word.compare_exchange(word, doomed, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// How long a life that is doomed has run since, if it has run for `ran_ns`.
    fn ran_since(&self, ran_ns: u64) -> u64 {
        let then = self.ran_ns.load(Relaxed);
        if then > ran_ns {
            // Of an earlier life, by one who came late with it.
            self.ran_ns.store(ran_ns, Relaxed);
        }
        ran_ns.saturating_sub(then)
    }

    /// An interrupt has found life `id` running.
    fn see(&self, id: u64) {
        let once_more = |word: u64| {
            let counts = word >> DOOM_BITS == id && word & SEEN != SEEN;
            counts.then_some(word + SEEN_ONCE)
        };
        let _ = self.word.try_update(Relaxed, Relaxed, once_more);
    }

    /// How often [`see`](Self::see) was called for the life that is doomed.
    fn seen(&self) -> u64 {
        (self.word.load(Relaxed) & SEEN) / SEEN_ONCE
    }

    /// Notes whether somebody asks life `id`, which is doomed; true if that is a change.
    fn tend(&self, id: u64, begins: bool) -> bool {
        let change = |word: u64| {
            let is_news = word >> DOOM_BITS == id && (word & TENDED == 0) == begins;
            is_news.then_some(word ^ TENDED)
        };
        self.word.try_update(AcqRel, Relaxed, change).is_ok()
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
    if arch::irq::enabled() && is_killed() {
        die();
    }
}

/// As [`end_if_killed`], where it is to cost little if nobody is killed: where a G has
/// tried something that was not possible, or its time was up.
#[inline]
pub fn heed_kill() {
    if running().is_some_and(|g| g.kernel.doom.is_set()) {
        end_if_killed();
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
    let ran_ns = g.kernel.account.cpu_ns();
    g.kernel.doom.set(g.id(), Doom::Ask, ran_ns, || me.get().is_some());
    if !g.kernel.is_panicking() {
        unwind::killed();
    }
    arch::probe_stack();
    assert!(arch::irq::disable().were_on(), "irqs off");
    abandon(g)
}

/// Takes the running G off its CPU for good: see `full`. Interrupts off.
#[cold]
pub(super) fn abandon(g: &'static G<Task>) -> ! {
    leave_now(g, Leaving::Abandon);
    unreachable!("an abandoned G runs")
}

/// An interrupt has found that G running, and may let it go on: it has had a chance to
/// look.
#[inline]
pub(super) fn note_chance(g: &G<Task>) {
    if g.kernel.doom.is_set() {
        g.kernel.doom.see(g.id());
    }
}

/// Whether the running G is to be abandoned now. Not if it unwinds: it has listened; but
/// its destructors may go on for ever.
pub(super) fn is_abandoned(g: &G<Task>) -> bool {
    let doom = &g.kernel.doom;
    doom.is_set()
        && match doom.of(g.id()) {
            Doom::None | Doom::Ask => false,
            Doom::Abandon => !g.kernel.is_panicking(),
            Doom::Forsake => true,
        }
}

/// The running G would start another of its own program: not if that has ended, or if
/// it is to end itself.
#[cold]
pub(super) fn end_instead() {
    let Some(g) = running() else { return };
    if g.kernel.program().is_ending() && !g.kernel.is_panicking() {
        die();
    }
    heed_kill();
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
    let g = index::find(id)?;
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
        // It may run without a timer, and an interrupt is a chance ([`note_chance`]).
        Status::Running => {
            if let Some(cpu) = roster::cpu_of(g) {
                wake_cpu(cpu);
            }
        }
        // It does not look before that is over; and each time that it is woken for
        // nothing hides a deadlock that it is in (`deadlock::beside`).
        _ if g.kernel.unwinds() => {}
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
    g.kernel.doom.set(id, doom, g.kernel.account.times(status).cpu_ns, lives);
    Some((g, status))
}

/// Whether that G, which was asked to end, only computes: it has run since, is not at
/// any place where it would look, and does not unwind.
pub fn computes(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| can_run(g) && ran_since_asked(g) > HEARD_NS)
}

/// Whether that G is to end, and will as soon as it looks.
pub fn ends_when_woken(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.ends_when_woken(g.id()))
}

/// Whether it is on a CPU or waits for one, and does not unwind.
fn can_run(g: &'static G<Task>) -> bool {
    is_ready(g) && !g.kernel.unwinds()
}

/// Whether it is on a CPU or waits for one.
fn is_ready(g: &'static G<Task>) -> bool {
    matches!(g.look().1, Status::Running | Status::Runnable)
}

/// How long it has run since it was asked to end, ns; 0 if it was not.
fn ran_since_asked(g: &'static G<Task>) -> u64 {
    let (task, id) = (&g.kernel, g.id());
    match task.doom.of(id) {
        Doom::None => 0,
        _ => task.doom.ran_since(task.account.times(g.look().1).cpu_ns),
    }
}

/// The caller goes on asking that G to end, which was asked: true unless somebody else
/// does, or it has ended.
pub fn begin_tending(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.doom.tend(g.id(), true))
}

/// The caller does not go on with that after all.
pub fn end_tending(handle: &GHandle) {
    if let Some(g) = handle.get() {
        g.kernel.doom.tend(g.id(), false);
    }
}

/// As long as there is one, Gs start others the long way, where they look whether they
/// are to end. So those who do nothing else listen, and nobody pays when nobody kills.
pub struct Vigil(());

/// How many there are.
static VIGILS: IrqLock<usize> = IrqLock::new(0);

impl Vigil {
    /// From now on.
    pub fn new() -> Self {
        let mut vigils = VIGILS.lock();
        *vigils += 1;
        if *vigils == 1 {
            ask_for_attention(Attention::DOOM);
        }
        Vigil(())
    }
}

impl Drop for Vigil {
    fn drop(&mut self) {
        let mut vigils = VIGILS.lock();
        *vigils -= 1;
        if *vigils == 0 {
            spare_attention(Attention::DOOM);
        }
    }
}

/// Who is left of a program that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nobody.
    Nobody,
    /// Some, and they wait; or one may have been started meanwhile.
    Waiting,
    /// Some that can run. Each of them ends when it looks, or has run for long enough.
    Running,
}

/// [`kill`]s all Gs of a program, which has ended; those that have run on for too
/// long since they were asked are abandoned. Says who was left.
pub fn kill_all(of: &'static Instance) -> Left {
    let before = created();
    let is_of = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.look();
        // Asked again, as it is known to live now.
        (status != Status::Dead && is_of(&g)).then_some(handle)
    };
    let end = |handle: GHandle| {
        let left = handle.get().is_some_and(is_ready);
        let doom = sentence(&handle);
        kill(&handle, doom).then_some(if left { Left::Running } else { Left::Waiting })
    };
    // All are doomed before the first ends: nobody is to see what became of another.
    ALL.iter().filter(is_of).filter_map(lives).for_each(|handle| {
        let _ = doomed(&handle, Doom::Ask);
    });
    let left = ALL.iter().filter(is_of).filter_map(lives).filter_map(end).max();
    // One may have been started where this had looked already.
    left.unwrap_or(if created() == before { Left::Nobody } else { Left::Waiting })
}

/// What becomes of a G that was asked to end: it is asked again, unless it has run for
/// long enough since, and an interrupt has found it at it often enough.
fn sentence(handle: &GHandle) -> Doom {
    let Some(g) = handle.get() else { return Doom::Ask };
    let (doom, patience_ns, chances, why) = match g.kernel.unwinds() {
        false => (Doom::Abandon, PATIENCE_NS, CHANCES, "computes on and calls nobody"),
        true => (Doom::Forsake, UNWIND_NS, MOST_SEEN, "has a destructor that does not end"),
    };
    if ran_since_asked(g) <= patience_ns || g.kernel.doom.seen() < chances {
        return Doom::Ask;
    }
    let id = g.id();
    if g.kernel.doom.of(id) < doom {
        log::warn!("G {id} {why}: it is abandoned");
    }
    doom
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_counted_for_the_life_that_is_doomed_and_kept_when_that_gets_worse() {
        let word = DoomWord::new();
        word.see(7);
        assert_eq!(word.seen(), 0, "nobody is doomed");
        word.set(7, Doom::Ask, 0, || true);
        word.see(6);
        assert_eq!(word.seen(), 0, "another life");
        (0..3).for_each(|_| word.see(7));
        word.set(7, Doom::Abandon, 0, || true);
        assert_eq!((word.seen(), word.of(7)), (3, Doom::Abandon));
        (0..99).for_each(|_| word.see(7));
        assert_eq!((word.seen(), word.of(7)), (31, Doom::Abandon), "nothing overflows");
        word.set(8, Doom::Ask, 0, || true);
        assert_eq!((word.seen(), word.of(8)), (0, Doom::Ask), "a new life begins anew");
    }

    #[test]
    fn a_doom_only_gets_worse_and_is_for_one_life() {
        let word = DoomWord::new();
        for doom in [Doom::Ask, Doom::Abandon, Doom::Forsake] {
            word.set(7, doom, 0, || true);
            assert_eq!((word.of(7), word.of(8)), (doom, Doom::None));
        }
        word.set(7, Doom::Ask, 0, || true);
        assert_eq!(word.of(7), Doom::Forsake);
        assert!(word.tend(7, true));
        assert_eq!(word.of(7), Doom::Forsake, "what else the word says is no doom");
    }
}
