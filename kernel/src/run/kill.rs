//! The kill request in a G's record, and where a G checks for it.
//!
//! A killer (see `fail::kill`) sets the request for one life of a G and wakes it. The G ends where
//! it checks; if it does not for long, an interrupt has it abandoned.

use super::task::{GHandle, Task};
use super::{hooks, running, running_or_none};
use crate::arch;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use sched::{G, Status};

/// How long a G may compute after the request before its kill is forced: five slices.
const PATIENCE_NS: u64 = 5 * sched::SLICE_NS;

/// The same for a G that unwinds. Its destructors are the program's, and finding the landing pad of
/// one frame takes an emulator a millisecond: in a call that is deep in the stack of its M, there
/// are two thousand of them.
const UNWIND_NS: u64 = 10_000_000_000;

/// How many interrupts must have found a G running by then: one for each slice in that time, or for
/// a G that unwinds, which takes seconds, a few more.
const CHANCES: u32 = (PATIENCE_NS / sched::SLICE_NS) as u32;
const UNWIND_CHANCES: u32 = 31;

/// How far the kill of a G has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum KillLevel {
    None = 0,
    Requested = 1,
    /// A service G repeats the request.
    Repeated = 2,
    /// The G is abandoned at the next interrupt, unless it has begun to unwind.
    Forced = 3,
}

pub(crate) struct KillRequest {
    /// The life that it is for, so that a new life need not clear it, and a [`KillLevel`] below.
    word: AtomicU64,
    /// How long that life had run at the request, ns.
    ran_ns: AtomicU64,
    /// How many interrupts have found it running since.
    chances: AtomicU32,
}

const LEVEL_BITS: u32 = 2;

impl KillRequest {
    pub(crate) const fn new() -> Self {
        let [word, ran_ns] = [const { AtomicU64::new(0) }; 2];
        KillRequest { word, ran_ns, chances: AtomicU32::new(0) }
    }

    /// For what is no G: always set, for a life that never was.
    pub(crate) const fn of_no_g() -> Self {
        KillRequest { word: AtomicU64::new(1), ..KillRequest::new() }
    }

    /// Whether there is any request to check.
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.word() != 0
    }

    /// Not 0 if [`is_set`](Self::is_set).
    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Relaxed)
    }

    /// An interrupt has found the G running, with a request set: the G has had a chance to check.
    pub(crate) fn count_chance(&self) {
        self.chances.fetch_add(1, Relaxed);
    }

    pub(crate) fn is_for(&self, id: u64) -> bool {
        self.level(id) > KillLevel::None
    }

    pub(crate) fn level(&self, id: u64) -> KillLevel {
        // Acquire: pairs with `raise`; makes the other fields visible.
        let word = self.word.load(Acquire);
        match word & !(u64::MAX << LEVEL_BITS) {
            _ if word >> LEVEL_BITS != id => KillLevel::None,
            level if level == KillLevel::Forced as u64 => KillLevel::Forced,
            level if level == KillLevel::Repeated as u64 => KillLevel::Repeated,
            _ => KillLevel::Requested,
        }
    }

    /// Raises the request for life `id` to `level`, if `lives` still says that it lives; `ran_ns`
    /// is how long it has run. True if it was raised.
    fn raise(&self, id: u64, level: KillLevel, ran_ns: u64, lives: impl Fn() -> bool) -> bool {
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
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
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
/// not possible, or has timed out. Does nothing with interrupts off.
#[inline]
pub fn check_kill() {
    // It seems to be set where no G runs, so one word says both.
    let may_be_killed = running_or_none().kernel.kill.is_set();
    if may_be_killed && arch::irq::enabled() && is_killed() {
        die();
    }
}

/// As [`check_kill`], for a G that starts another: it ends as well if its program has ended.
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

/// Ends the running G here, by unwinding if it can.
#[cold]
pub fn die() -> ! {
    (hooks::get().die)()
}

/// Whether the running G, for which there is a request, is to be abandoned now.
#[cold]
pub(crate) fn is_forced(g: &'static G<Task>) -> bool {
    g.kernel.kill.level(g.id()) == KillLevel::Forced && is_overdue(g)
}

pub(crate) fn is_overdue(g: &'static G<Task>) -> bool {
    let (patience_ns, chances) = match g.kernel.unwinds() {
        false => (PATIENCE_NS, CHANCES),
        true => (UNWIND_NS, UNWIND_CHANCES),
    };
    ran_since_request(g) > patience_ns && g.kernel.kill.chances.load(Relaxed) >= chances
}

/// How long a G has run since the request, ns; 0 if there is none.
pub(crate) fn ran_since_request(g: &'static G<Task>) -> u64 {
    let kill = &g.kernel.kill;
    if !kill.is_for(g.id()) {
        return 0;
    }
    let ran_ns = g.kernel.account.times(g.handle_and_status().1).cpu_ns;
    // A late killer of an earlier life may have stored more than this one has run.
    ran_ns.saturating_sub(kill.ran_ns.fetch_min(ran_ns, Relaxed))
}

/// Sets the request for that life of a G, without a wake-up. Returns the G, its status, and whether
/// the request was raised to that level.
pub(crate) fn request(
    handle: &GHandle,
    level: KillLevel,
) -> Option<(&'static G<Task>, Status, bool)> {
    let lives = || handle.get().is_some();
    let g = handle.get()?;
    let id = g.id();
    if !lives() {
        return None; // the number was perhaps that of another life
    }
    let status = g.handle_and_status().1;
    let is_raised = g.kernel.kill.raise(id, level, g.kernel.account.times(status).cpu_ns, lives);
    Some((g, status, is_raised))
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
        let (ran_ns, chances) = (kill.ran_ns.load(Relaxed), kill.chances.load(Relaxed));
        assert_eq!((ran_ns, chances, kill.level(7)), (100, 3, KillLevel::Forced));
        kill.raise(8, KillLevel::Requested, 50, || true);
        let (ran_ns, chances) = (kill.ran_ns.load(Relaxed), kill.chances.load(Relaxed));
        assert_eq!((ran_ns, chances, kill.level(8)), (50, 0, KillLevel::Requested));
    }

    #[test]
    fn a_request_is_only_raised_and_is_for_one_life() {
        let kill = KillRequest::new();
        for level in [KillLevel::Requested, KillLevel::Repeated, KillLevel::Forced] {
            assert!(kill.raise(7, level, 0, || true));
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
