//! Ending a G from outside: a kill request, then abandonment if it is ignored.
//!
//! A kill first *asks* a G to end: the G's record says which life is meant ([`Doom`]), and if the G
//! waits it is woken. A wake-up without a reason means "check again", so the G checks whether it
//! has what it waited for, and if not, whether it is asked to end ([`is_killed`]): then it takes
//! its node out of the wait queue, as on a timeout, and unwinds ([`die`]). So destructors run,
//! locks are released, and the join reports that the G was killed. A G that yields checks as well;
//! a G that prints does not, so that printing never unwinds. Only a yield pays for it, two
//! instructions: all other checks are where a wait ended without a reason or timed out, where an
//! operation was tried and was not possible, and where a G starts another, which takes the slow
//! path while a kill is under way ([`Vigil`]). A G of a program that has ended is also stopped
//! where it would start another, so that Gs which only start Gs come to an end.
//!
//! # Gs that ignore the request
//!
//! A G that was asked while it ran, and begins to wait before it has checked, has missed the
//! wake-up; so the killer wakes it again, a moment later, until it is gone. If the G computes
//! first, that may be long after it was asked: the killer of one G does not poll for ever but
//! leaves that to a service G of the kernel, one for each G that is asked (`tasks`;
//! [`begin_tending`]). A G that unwinds already is not asked before that is over: a second
//! unwinding would abandon it (`panic`). A G that computes and calls no kernel function cannot be
//! ended by a request, as it is at no place that can unwind. It can be *abandoned*
//! ([`Doom::Abandon`]): the next interrupt that finds it running takes it off its CPU for good. Its
//! locks are abandoned (`cell::held`), and everything else it owned stays owned, so this is for the
//! end of a program only, and only when the G has run for [`PATIENCE_NS`] since it was asked:
//! measured in its own CPU time, not wall time, as it may have to wait for a CPU among many Gs that
//! end. Under an emulator even its own CPU time may pass without a single instruction, while the
//! host runs something else; so that many interrupts must have found it running, too ([`CHANCES`]),
//! which takes a CPU that really runs.
//! Within that time the G would have left any kernel call that it was in. However many such Gs
//! there are, each of them gets that far, as each gets its share of a CPU; so the end of a program
//! gives up on Gs that wait, never on Gs that can run ([`Left`]).
//!
//! A G that unwinds has obeyed, and what it owns is dropped. But a destructor may compute for ever,
//! too: after much longer ([`UNWIND_NS`]) it is abandoned as well ([`Doom::Forsake`]). A G whose
//! destructor *waits* for ever uses no CPU time, and is left where it is.
//!
//! `tasks` and `program` are the programs' interface to this.

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

/// How many interrupts must have found it running by then: as many as there are slices in that
/// time.
const CHANCES: u64 = PATIENCE_NS / sched::SLICE_NS;

/// How long a G that was asked and unwinds may run on. Its destructors are the program's, and
/// finding the landing pad of one frame takes an emulator a millisecond: in a call that is deep in
/// the stack of its M, there are two thousand of them.
const UNWIND_NS: u64 = 10_000_000_000;

/// How long a G that was asked must have run at least to count as computing.
const HEARD_NS: u64 = sched::SLICE_NS / 2;

/// Gs that were taken off their CPUs for good.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// The severity of a kill request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Doom {
    /// No request.
    None = 0,
    /// The G ends when it checks.
    Ask = 1,
    /// The G is abandoned at the next interrupt, unless it unwinds.
    Abandon = 2,
    /// The G is abandoned at the next interrupt.
    Forsake = 3,
}

/// The kill request of a record, with the number of the life that it is for: so a new life need not
/// clear it.
pub(super) struct DoomWord {
    word: AtomicU64,
    /// How long that life had run when it was asked, ns.
    ran_ns: AtomicU64,
}

/// Layout of the word: severity, then [`TENDED`], then [`SEEN`], then the life's number.
const DOOM_BITS: u32 = 8;
/// A [`Doom`].
const HOW_BADLY: u64 = 3;
/// A service G or a killer repeats the request until that life is over.
const TENDED: u64 = 1 << 2;
/// How many interrupts have found that life running since it was asked: a saturating number of five
/// bits.
const SEEN: u64 = MOST_SEEN * SEEN_ONCE;
const MOST_SEEN: u64 = 31;
const SEEN_ONCE: u64 = 1 << 3;

impl DoomWord {
    pub(super) const fn new() -> Self {
        DoomWord { word: AtomicU64::new(0), ran_ns: AtomicU64::new(0) }
    }

    /// Whether there is any request to check. The yield path calls it.
    #[inline(always)]
    pub(super) fn is_set(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// The kill request for life `id`.
    pub(super) fn of(&self, id: u64) -> Doom {
        // Acquire: pairs with `set`; makes `ran_ns` visible.
        let word = self.word.load(Acquire);
        match word & HOW_BADLY {
            _ if word >> DOOM_BITS != id => Doom::None,
            how if how == Doom::Forsake as u64 => Doom::Forsake,
            how if how == Doom::Abandon as u64 => Doom::Abandon,
            _ => Doom::Ask,
        }
    }

    /// Raises the request for life `id` to `doom`, if `lives` still says that it lives; `ran_ns` is
    /// how long it has run.
    fn set(&self, id: u64, doom: Doom, ran_ns: u64, lives: impl Fn() -> bool) {
        let mut word = self.word.load(Relaxed);
        while self.of(id) < doom && lives() {
            if self.of(id) == Doom::None {
                // First, so that no reader finds the request with the `ran_ns` of an earlier life.
                self.ran_ns.store(ran_ns, Relaxed);
            }
            // If the life ends meanwhile, the stale word means nothing to later lives; and a killer
            // of a later life finds the word changed, or changes it.
            let kept = if word >> DOOM_BITS == id { word & (TENDED | SEEN) } else { 0 };
            let doomed = id << DOOM_BITS | doom as u64 | kept;
            match self.word.compare_exchange(word, doomed, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// How long a life with a request has run since then, if it has run for `ran_ns` in all.
    fn ran_since(&self, ran_ns: u64) -> u64 {
        let then = self.ran_ns.load(Relaxed);
        if then > ran_ns {
            // Stored by a late killer of an earlier life.
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

    /// How often [`see`](Self::see) was called for the life that the request is for.
    fn seen(&self) -> u64 {
        (self.word.load(Relaxed) & SEEN) / SEEN_ONCE
    }

    /// Sets or clears [`TENDED`] for life `id`, which has a request; true if that is a change.
    fn tend(&self, id: u64, begins: bool) -> bool {
        let change = |word: u64| {
            let is_news = word >> DOOM_BITS == id && (word & TENDED == 0) == begins;
            is_news.then_some(word ^ TENDED)
        };
        self.word.try_update(AcqRel, Relaxed, change).is_ok()
    }

    /// Clears a request for a life other than `id`, so that `is_set` is false again.
    fn forget_others(&self, id: u64) {
        let word = self.word.load(Relaxed);
        if word >> DOOM_BITS != id {
            let _ = self.word.compare_exchange(word, 0, AcqRel, Relaxed);
        }
    }
}

/// Whether the running G was asked to end, and can: the caller takes the G's node out of every wait
/// queue and then calls [`die`].
#[cold]
pub fn is_killed() -> bool {
    running().is_some_and(|g| {
        g.kernel.doom.forget_others(g.id());
        g.kernel.doom.of(g.id()) > Doom::None && !g.kernel.is_panicking()
    })
}

/// Ends the running G if it was asked to end and can: for calls that do not wait, but which a G may
/// make for ever. With interrupts off, as in the kernel's own sections, it does nothing.
#[cold]
pub fn end_if_killed() {
    if arch::irq::enabled() && is_killed() {
        die();
    }
}

/// As [`end_if_killed`], but cheap if there is no request: for places where a G has tried an
/// operation that was not possible, or has timed out.
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

/// Ends the running G here by unwinding; if it unwinds already, abandons it.
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

/// An interrupt has found that G running, and may let it continue: the G has had a chance to check.
pub fn note_chance(g: &'static G<Task>) {
    if g.kernel.doom.is_set() {
        g.kernel.doom.see(g.id());
    }
}

/// Whether the running G is to be abandoned now. With [`Doom::Abandon`] not if it unwinds, as then
/// it has obeyed; with [`Doom::Forsake`] even then, as its destructors may run for ever.
pub fn is_abandoned(g: &'static G<Task>) -> bool {
    let doom = &g.kernel.doom;
    doom.is_set()
        && match doom.of(g.id()) {
            Doom::None | Doom::Ask => false,
            Doom::Abandon => !g.kernel.is_panicking(),
            Doom::Forsake => true,
        }
}

/// The running G is about to start another G of its own program: ends it instead if that program
/// has ended, or if the G itself was asked to end.
#[cold]
pub fn end_instead() {
    let Some(g) = running() else { return };
    if arch::irq::enabled() && g.kernel.program().is_ending() && !g.kernel.is_panicking() {
        die();
    }
    heed_kill();
}

/// Counts one more abandoned G.
pub(super) fn note_abandoned() {
    ABANDONED.fetch_add(1, Relaxed);
}

/// How many Gs were abandoned.
pub fn abandoned() -> usize {
    ABANDONED.load(Relaxed)
}

/// The live G of this number.
pub fn find(id: u64) -> Option<GHandle> {
    let g = index::find(id)?;
    let (handle, status) = g.look();
    (status != Status::Dead && g.id() == id).then_some(handle)
}

/// The program of that G.
pub fn program_of(handle: &GHandle) -> Option<&'static Instance> {
    Some(handle.get()?.kernel.program())
}

/// Requests the end of that life of a G, and wakes it if it waits. False if it has ended. To be
/// called again, a moment later, until it is false.
pub fn kill(handle: &GHandle, doom: Doom) -> bool {
    let Some((g, status)) = doomed(handle, doom) else { return false };
    match status {
        // It may run without a timer, and each interrupt is a chance to check ([`note_chance`]).
        Status::Running => {
            if let Some(cpu) = roster::cpu_of(g) {
                wake_cpu(cpu);
            }
        }
        // It does not check before that is over; and each wake-up for nothing hides a deadlock that
        // it is in (`deadlock::beside`).
        _ if g.kernel.unwinds() => {}
        _ => ready(handle.clone()),
    }
    true
}

/// Sets the request for that life of a G, without a wake-up. Gives the G and its status, if it has
/// not ended.
fn doomed(handle: &GHandle, doom: Doom) -> Option<(&'static G<Task>, Status)> {
    let lives = || handle.get().is_some();
    let g = handle.get()?;
    let id = g.id();
    if !lives() {
        return None; // the number was perhaps that of another life
    }
    let status = g.look().1;
    g.kernel.doom.set(id, doom, g.kernel.account.times(status).cpu_ns, lives);
    Some((g, status))
}

/// Whether that G, which was asked to end, only computes: it has run since, has reached no place
/// where it would check, and does not unwind.
pub fn computes(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| can_run(g) && ran_since_asked(g) > HEARD_NS)
}

/// Whether that G was asked to end, and will as soon as it checks.
pub fn ends_when_woken(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.ends_when_woken(g.id()))
}

/// Whether it runs or is runnable, and does not unwind.
fn can_run(g: &'static G<Task>) -> bool {
    is_ready(g) && !g.kernel.unwinds()
}

/// Whether it runs or is runnable.
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

/// The caller takes over repeating the request to that G, which was asked: true unless another G
/// does already, or it has ended.
pub fn begin_tending(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.doom.tend(g.id(), true))
}

/// The caller stops repeating the request.
pub fn end_tending(handle: &GHandle) {
    if let Some(g) = handle.get() {
        g.kernel.doom.tend(g.id(), false);
    }
}

/// While one exists, Gs start other Gs on the slow path, which checks for a kill request. So Gs
/// that only start Gs obey, and the check costs nothing while no kill is under way.
pub struct Vigil(());

/// How many [`Vigil`]s exist.
static VIGILS: IrqLock<usize> = IrqLock::new(0);

impl Vigil {
    /// Sets the attention bit on all CPUs, if this is the first.
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

/// Which Gs are left of a program that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// No G.
    Nobody,
    /// Some Gs, and they wait; or one may have been started meanwhile.
    Waiting,
    /// Some Gs that can run. Each of them ends when it checks, or has run for long enough.
    Running,
}

/// [`kill`]s all Gs of a program, which has ended; Gs that have run on for too long since they were
/// asked are abandoned. Returns which Gs were left.
pub fn kill_all(of: &'static Instance) -> Left {
    let before = created();
    let is_of = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.look();
        // Checked again, as it is known to live now.
        (status != Status::Dead && is_of(&g)).then_some(handle)
    };
    let end = |handle: GHandle| {
        let left = handle.get().is_some_and(is_ready);
        let doom = sentence(&handle);
        kill(&handle, doom).then_some(if left { Left::Running } else { Left::Waiting })
    };
    // All requests are set before the first G ends: no G may observe the end of another.
    ALL.iter().filter(is_of).filter_map(lives).for_each(|handle| {
        let _ = doomed(&handle, Doom::Ask);
    });
    let left = ALL.iter().filter(is_of).filter_map(lives).filter_map(end).max();
    // A G may have been started behind the walk.
    left.unwrap_or(if created() == before { Left::Nobody } else { Left::Waiting })
}

/// The next request for a G that was asked to end: it is asked again, unless it has run for long
/// enough since, and enough interrupts have found it running.
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
