//! The idle latency: how long a runnable G has waited while a P was idle.
//!
//! Each P records from when until when it last halted. When a G begins to run, it has waited for a
//! CPU since the stamp of its [`Account`](crate::run::account::Account). The overlap of the two is time
//! for which the P could have run the G, and did not. The longest overlap is kept, with the G and
//! the P.
//!
//! The halt that counts may still last: then another P ran the G. Or it may be over: then this very
//! P has run it, late. Only the last halt of a P is known; that is enough, as a P that resumes
//! checks all queues before it halts again. The halt need not have begun before the G was queued: a
//! P that halts though there is a G has failed to recheck.
//!
//! A G that still waits is not seen that way; so [`longest`] examines all Gs that are queued now.
//!
//! In builds with `debug_assertions` only. In others the functions that the scheduler calls are
//! empty.
#![forbid(unsafe_code)]

use crate::arch;
use crate::arch::lock::IrqLock;
use crate::run::SCHED;
use crate::run::task::Task;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};
use sched::G;

/// A G that has waited for a CPU while a P that could have run it was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLatency {
    /// The overlap, in nanoseconds.
    pub ns: u64,
    /// The number of the G.
    pub g: u64,
    /// The P that was idle.
    pub p: usize,
    /// The P that finally ran the G; `None` if it still waits.
    pub ran_on: Option<usize>,
}

/// A P halts. Interrupts off.
pub fn halts(now: u64) {
    if cfg!(debug_assertions) {
        LAST_HALT[arch::cpu_index()].begin(now);
    }
}

/// A P resumes. Interrupts off.
pub fn resumes(now: u64) {
    if cfg!(debug_assertions) {
        LAST_HALT[arch::cpu_index()].end(now);
    }
}

/// `g` begins to run on this P; its account still holds the time when it was queued.
pub fn begins(g: &'static G<Task>, now: u64) {
    if cfg!(debug_assertions) {
        record(g, g.kernel.account.since(), now, Some(arch::cpu_index()));
    }
}

/// The longest overlap since boot or [`reset`], Gs that wait now included; `None` if there was none,
/// and in builds without `debug_assertions`. By a G.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn longest() -> Option<IdleLatency> {
    if cfg!(debug_assertions) {
        crate::run::roster::ALL.iter().for_each(check_queued);
    }
    *LONGEST.lock()
}

/// Restarts the measurement.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn reset() {
    *LONGEST.lock() = None;
}

static LAST_HALT: [Halt; arch::MAX_CPUS] = [const { Halt::new() }; arch::MAX_CPUS];
static LONGEST: IrqLock<Option<IdleLatency>> = IrqLock::new(None);

/// Spin hints between the two readings of a G.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
const MOMENT: usize = 16;

/// As [`begins`], for a G that still waits. It is read twice: a G that is just being readied counts
/// as runnable before its stamp is updated.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
fn check_queued(g: &'static G<Task>) {
    let read = || (g.status(), g.id(), g.kernel.account.since());
    let (seen, now) = (read(), arch::cycles());
    if seen.0 == sched::Status::Runnable {
        (0..MOMENT).for_each(|_| arch::relax());
        if read() == seen {
            record(g, seen.2, now, None);
        }
    }
}

/// Keeps the overlap of `g`, which is queued since `since`, with an idle P, if that is longer than
/// all before.
fn record(g: &'static G<Task>, since: u64, now: u64, ran_on: Option<usize>) {
    let may_run = |p: &usize| g.pin().is_none_or(|pin| pin == *p);
    let overlap = |p: usize| (LAST_HALT[p].overlap(since, now), p);
    let Some((cycles, p)) = (0..SCHED.limit()).filter(may_run).map(overlap).max() else { return };
    let ns = arch::cycles_to_ns(cycles);
    let mut longest = LONGEST.lock();
    if ns > longest.map_or(0, |longest| longest.ns) {
        *longest = Some(IdleLatency { ns, g: g.id(), p, ran_on });
    }
}

/// From when until when a P halted last. Written by its CPU.
struct Halt {
    from: AtomicU64,
    /// `u64::MAX` while it lasts.
    until: AtomicU64,
}

impl Halt {
    const fn new() -> Self {
        Halt { from: AtomicU64::new(0), until: AtomicU64::new(0) }
    }

    /// In this order: in between, the halt ends before it begins, and is empty.
    fn begin(&self, now: u64) {
        self.from.store(now, Release);
        self.until.store(u64::MAX, Release); // pairs with `overlap`
    }

    fn end(&self, now: u64) {
        self.until.store(now, Release);
    }

    /// The overlap of the halt and the time from `since` to `now`, which is not in the future.
    fn overlap(&self, since: u64, now: u64) -> u64 {
        // The end first: if another halt begins meanwhile, it begins after `now`.
        let until = self.until.load(Acquire); // pairs with `begin`
        let from = self.from.load(Acquire);
        until.min(now).saturating_sub(from.max(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_from_the_later_beginning_to_the_earlier_end() {
        let halt = Halt::new();
        assert_eq!(halt.overlap(0, 1_000), 0, "it never halted");
        halt.begin(100);
        assert_eq!(halt.overlap(150, 180), 30, "halted before and after");
        assert_eq!(halt.overlap(50, 180), 80, "halted though one was queued");
        halt.end(200);
        assert_eq!(halt.overlap(150, 900), 50, "resumed meanwhile");
        assert_eq!(halt.overlap(200, 900), 0, "resumed before");
        assert_eq!(halt.overlap(20, 90), 0, "ran before it halted");
    }

    #[test]
    fn halt_that_is_being_noted_is_empty() {
        let halt = Halt::new();
        halt.begin(100);
        halt.end(200);
        halt.from.store(300, Release);
        assert_eq!(halt.overlap(0, 1_000), 0);
    }
}
