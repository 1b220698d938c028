//! Ending a G from outside: a kill is requested, and forced if the G does not heed it.
//!
//! A kill first *requests* that a G ends: the G's record says which life is meant
//! ([`KillRequest`]), and if the G waits it is woken. A wake-up without a reason means "check
//! again", so the G checks whether it has what it waited for, and if not, whether it is to end
//! ([`is_killed`]): then it takes its node out of the wait queue, as on a timeout, and unwinds
//! ([`die`]). So destructors run, locks are released, and the join reports that the G was killed. A
//! G that yields checks as well; a G that prints does not, so that printing never unwinds. Only a
//! yield pays for it, two instructions: all other checks are where a wait ended without a reason or
//! timed out, where an operation was tried and was not possible, and where a G starts another,
//! which takes the slow path while a kill is under way ([`KillWatch`]). A G of a program that has
//! ended is also stopped where it would start another, so that Gs which only start Gs come to an
//! end.
//!
//! # Gs that do not heed the request
//!
//! A G that was running when the request came, and begins to wait before it has checked, has missed
//! the wake-up; so the killer wakes it again, a moment later, until it is gone. If the G computes
//! first, that may be long after the request: the killer of one G does not poll for ever but leaves
//! that to a service G of the kernel, one for each such G (`tasks`; [`begin_repeating`]). A G that
//! unwinds already does not check before that is over: a second unwinding would abandon it
//! (`panic`).
//!
//! A G that computes and calls no kernel function cannot be unwound, as it is at no place that has
//! tables for it. When its program ends, and only then, its kill is *forced*: the next interrupt
//! that finds it running abandons it (`abandon`). It is given [`PATIENCE_NS`], of its own CPU time
//! and not of wall time, as it may have to wait for a CPU among many Gs that end. Under an emulator
//! even its own CPU time may pass without a single instruction, while the host runs something else;
//! so as many interrupts must have found it running, too, which takes a CPU that really runs.
//! Within that time the G would have left any kernel call that it was in. However many such Gs
//! there are, each of them gets that far, as each gets its share of a CPU; so the end of a program
//! gives up on Gs that wait, never on Gs that can run ([`Left`]).
//!
//! A G that unwinds has heeded the request, and what it owns is dropped. But a destructor may
//! compute for ever, too: so it is given much more time ([`UNWIND_NS`]). A G whose destructor
//! *waits* for ever uses no CPU time, and is left where it is.
//!
//! `tasks` and `program` are the programs' interface to this.

use super::index;
use super::roster::{self, ALL};
use super::task::{GHandle, Task};
use super::view::{ask_for_attention, spare_attention};
use super::{created, ready, running, wake_cpu};
use crate::arch::lock::IrqLock;
use crate::preempt::Attention;
use crate::program::Instance;
use crate::{arch, unwind};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use sched::{G, Status};

/// How long a G may compute after the request before its kill is forced: five slices.
const PATIENCE_NS: u64 = 5 * sched::SLICE_NS;

/// The same for a G that unwinds. Its destructors are the program's, and finding the landing pad of
/// one frame takes an emulator a millisecond: in a call that is deep in the stack of its M, there
/// are two thousand of them.
const UNWIND_NS: u64 = 10_000_000_000;

/// How many interrupts must have found a G running by then: as many as there are slices in that
/// time, or for a G that unwinds, which takes seconds, a few more.
const CHANCES: u64 = PATIENCE_NS / sched::SLICE_NS;
const UNWIND_CHANCES: u64 = 31;

/// How long a G must have run at least since the request to count as computing.
const HEARD_NS: u64 = sched::SLICE_NS / 2;

/// How far the kill of a G has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
enum KillLevel {
    /// There is no request.
    None = 0,
    /// The G ends when it checks.
    Requested = 1,
    /// The G is abandoned at the next interrupt, unless it has begun to unwind.
    Forced = 2,
}

/// The kill request in a G's record.
pub(super) struct KillRequest {
    /// The number of the life that it is for, so that a new life need not clear it, and a
    /// [`KillLevel`] in the lowest bits.
    word: AtomicU64,
    /// How long that life had run at the request, ns.
    ran_ns: AtomicU64,
    /// How many interrupts have found it running since.
    chances: AtomicU64,
    /// The life for which a service G repeats the request.
    repeated: AtomicU64,
}

const LEVEL_BITS: u32 = 2;

impl KillRequest {
    pub(super) const fn new() -> Self {
        let [word, ran_ns, chances, repeated] = [const { AtomicU64::new(0) }; 4];
        KillRequest { word, ran_ns, chances, repeated }
    }

    /// Whether there is any request to check. The yield path calls it.
    #[inline(always)]
    pub(super) fn is_set(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// Whether there is one for life `id`.
    pub(super) fn is_for(&self, id: u64) -> bool {
        self.level(id) > KillLevel::None
    }

    /// The level for life `id`.
    fn level(&self, id: u64) -> KillLevel {
        // Acquire: pairs with `raise`; makes the other fields visible.
        let word = self.word.load(Acquire);
        match word & !(u64::MAX << LEVEL_BITS) {
            _ if word >> LEVEL_BITS != id => KillLevel::None,
            level if level == KillLevel::Forced as u64 => KillLevel::Forced,
            _ => KillLevel::Requested,
        }
    }

    /// Raises the request for life `id` to `level`, if `lives` still says that it lives; `ran_ns` is
    /// how long it has run.
    fn raise(&self, id: u64, level: KillLevel, ran_ns: u64, lives: impl Fn() -> bool) {
        let mut word = self.word.load(Relaxed);
        while self.level(id) < level && lives() {
            if word >> LEVEL_BITS != id {
                // First, so that no reader finds the request with the fields of an earlier life.
                self.ran_ns.store(ran_ns, Relaxed);
                self.chances.store(0, Relaxed);
            }
            // If the life ends meanwhile, the stale word means nothing to later lives; and a killer
            // of a later life finds the word changed, or changes it.
            let raised = id << LEVEL_BITS | level as u64;
            match self.word.compare_exchange(word, raised, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Clears a request for a life other than `id`, so that `is_set` is false again.
    fn forget_others(&self, id: u64) {
        let word = self.word.load(Relaxed);
        if word >> LEVEL_BITS != id {
            let _ = self.word.compare_exchange(word, 0, AcqRel, Relaxed);
        }
    }
}

/// Whether the running G is to end, and can: the caller takes the G's node out of every wait queue
/// and then calls [`die`].
#[cold]
pub fn is_killed() -> bool {
    running().is_some_and(|g| {
        g.kernel.kill.forget_others(g.id());
        g.kernel.kill.is_for(g.id()) && !g.kernel.is_panicking()
    })
}

/// Ends the running G if it is to end and can: for places where a G has tried an operation that was
/// not possible, or has timed out. With interrupts off, as in the kernel's own sections, it does
/// nothing.
#[inline]
pub fn check_kill() {
    if running().is_some_and(|g| g.kernel.kill.is_set()) {
        check_kill_now();
    }
}

/// As [`check_kill`], for a caller that has found a request.
#[cold]
pub(super) fn check_kill_now() {
    if arch::irq::enabled() && is_killed() {
        die();
    }
}

/// As [`check_kill`], for a G that is about to start another of its own program: it ends as well if
/// that program has ended.
#[cold]
pub fn check_kill_at_spawn() {
    let Some(g) = running() else { return };
    if arch::irq::enabled() && g.kernel.program().is_ending() && !g.kernel.is_panicking() {
        die();
    }
    check_kill();
}

/// Whether the running G was killed; it may be unwinding for that reason.
pub fn was_killed() -> bool {
    running().is_some_and(|g| g.kernel.kill.is_for(g.id()))
}

/// Ends the running G here by unwinding; if it unwinds already, abandons it.
#[cold]
pub fn die() -> ! {
    let g = running().expect("no G to end");
    let _ = request(&g.handle(), KillLevel::Requested);
    if !g.kernel.is_panicking() {
        unwind::killed();
    }
    super::abandon()
}

/// An interrupt has found that G running, and may let it continue: the G has had a chance to check.
pub fn note_chance(g: &'static G<Task>) {
    if g.kernel.kill.is_set() {
        g.kernel.kill.chances.fetch_add(1, Relaxed);
    }
}

/// Whether the running G is to be abandoned now.
pub fn is_forced(g: &'static G<Task>) -> bool {
    let kill = &g.kernel.kill;
    kill.is_set() && kill.level(g.id()) == KillLevel::Forced && is_overdue(g)
}

/// Whether a G has run for too long since the request.
fn is_overdue(g: &'static G<Task>) -> bool {
    let (patience_ns, chances) = match g.kernel.unwinds() {
        false => (PATIENCE_NS, CHANCES),
        true => (UNWIND_NS, UNWIND_CHANCES),
    };
    ran_since_request(g) > patience_ns && g.kernel.kill.chances.load(Relaxed) >= chances
}

/// How long a G has run since the request, ns; 0 if there is none.
fn ran_since_request(g: &'static G<Task>) -> u64 {
    let kill = &g.kernel.kill;
    if !kill.is_for(g.id()) {
        return 0;
    }
    let ran_ns = g.kernel.account.times(g.look().1).cpu_ns;
    // A late killer of an earlier life may have stored more than this one has run.
    ran_ns.saturating_sub(kill.ran_ns.fetch_min(ran_ns, Relaxed))
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
pub fn kill(handle: &GHandle) -> bool {
    kill_at(handle, KillLevel::Requested)
}

fn kill_at(handle: &GHandle, level: KillLevel) -> bool {
    let Some((g, status)) = request(handle, level) else { return false };
    match status {
        // It may run without a timer, and each interrupt is a chance to check.
        Status::Running => {
            if let Some(cpu) = roster::cpu_of(g) {
                wake_cpu(cpu);
            }
        }
        // It does not check before that is over; and each wake-up for nothing hides a deadlock that
        // it is in.
        _ if g.kernel.unwinds() => {}
        _ => ready(handle.clone()),
    }
    true
}

/// Sets the request for that life of a G, without a wake-up. Gives the G and its status, if it has
/// not ended.
fn request(handle: &GHandle, level: KillLevel) -> Option<(&'static G<Task>, Status)> {
    let lives = || handle.get().is_some();
    let g = handle.get()?;
    let id = g.id();
    if !lives() {
        return None; // the number was perhaps that of another life
    }
    let status = g.look().1;
    g.kernel.kill.raise(id, level, g.kernel.account.times(status).cpu_ns, lives);
    Some((g, status))
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

/// Whether it runs or is runnable.
fn is_ready(g: &'static G<Task>) -> bool {
    matches!(g.look().1, Status::Running | Status::Runnable)
}

/// The caller takes over repeating the request to that G: true unless another G does already, or it
/// has ended.
pub fn begin_repeating(handle: &GHandle) -> bool {
    handle.get().is_some_and(|g| g.kernel.kill.repeated.swap(g.id(), Relaxed) != g.id())
}

/// The caller stops repeating the request.
pub fn end_repeating(handle: &GHandle) {
    if let Some(g) = handle.get() {
        let _ = g.kernel.kill.repeated.compare_exchange(g.id(), 0, Relaxed, Relaxed);
    }
}

/// While one exists, Gs start other Gs on the slow path, which checks for a kill request. So Gs
/// that only start Gs heed it, and the check costs nothing while no kill is under way.
pub struct KillWatch(());

/// How many [`KillWatch`]es exist.
static WATCHES: IrqLock<usize> = IrqLock::new(0);

impl KillWatch {
    /// Sets the attention bit on all CPUs, if this is the first.
    pub fn new() -> Self {
        let mut watches = WATCHES.lock();
        *watches += 1;
        if *watches == 1 {
            ask_for_attention(Attention::KILL);
        }
        KillWatch(())
    }
}

impl Drop for KillWatch {
    fn drop(&mut self) {
        let mut watches = WATCHES.lock();
        *watches -= 1;
        if *watches == 0 {
            spare_attention(Attention::KILL);
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

/// [`kill`]s all Gs of a program, which has ended; those that have run for too long since the
/// request are abandoned. Returns which Gs were left.
pub fn kill_all(of: &'static Instance) -> Left {
    let before = created();
    let is_of = |g: &&'static G<Task>| core::ptr::eq(g.kernel.program(), of);
    let lives = |g: &'static G<Task>| {
        let (handle, status) = g.look();
        // Checked again, as it is known to live now.
        (status != Status::Dead && is_of(&g)).then_some(handle)
    };
    let members = || ALL.iter().filter(is_of).filter_map(lives);
    // All requests are set before the first G ends: no G may observe the end of another.
    members().for_each(|handle| _ = request(&handle, KillLevel::Requested));
    let end = |handle: GHandle| {
        let can_run = handle.get().is_some_and(is_ready);
        kill_at(&handle, level_due(&handle)).then_some(match can_run {
            true => Left::Running,
            false => Left::Waiting,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_kept_when_the_kill_is_forced_and_begin_anew_with_a_life() {
        let kill = KillRequest::new();
        assert!(!kill.is_set());
        kill.raise(7, KillLevel::Requested, 100, || true);
        kill.chances.fetch_add(3, Relaxed);
        kill.raise(7, KillLevel::Forced, 900, || true);
        let [ran_ns, chances] = [&kill.ran_ns, &kill.chances].map(|field| field.load(Relaxed));
        assert_eq!((ran_ns, chances, kill.level(7)), (100, 3, KillLevel::Forced));
        kill.raise(8, KillLevel::Requested, 50, || true);
        let [ran_ns, chances] = [&kill.ran_ns, &kill.chances].map(|field| field.load(Relaxed));
        assert_eq!((ran_ns, chances, kill.level(8)), (50, 0, KillLevel::Requested));
    }

    #[test]
    fn a_request_is_only_raised_and_is_for_one_life() {
        let kill = KillRequest::new();
        for level in [KillLevel::Requested, KillLevel::Forced] {
            kill.raise(7, level, 0, || true);
            assert_eq!((kill.level(7), kill.level(8)), (level, KillLevel::None));
        }
        kill.raise(7, KillLevel::Requested, 0, || true);
        assert_eq!(kill.level(7), KillLevel::Forced);
        kill.raise(9, KillLevel::Requested, 0, || false);
        assert_eq!(kill.level(9), KillLevel::None, "its life is over");
        kill.forget_others(7);
        assert!(kill.is_set());
        kill.forget_others(8);
        assert!(!kill.is_set());
    }
}
