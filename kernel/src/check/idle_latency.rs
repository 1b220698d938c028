//! The idle latency: how long a runnable G has waited while a P was idle.
//!
//! A check from outside cannot tell an idle P from one whose wake-up is on its way. But when a G
//! begins to run, it has waited for a CPU since the stamp of its
//! [`Account`](crate::run::task::Account), and each P records from when until when it last
//! halted. The overlap of the two is time for which the P could have run the G, and did not. The
//! longest overlap is kept, with the G and the P.
//!
//! If the halt that counts still lasts, another P ran the G; if it is over, this very P has run it,
//! late. Only the last halt of a P is known; that is enough, as a P that resumes checks all queues
//! before it halts again. The halt need not have begun before the G was queued: a P that halts
//! though there is a G has failed to recheck. A G that still waits is not seen that way; so
//! `invariant::longest_idle_latency` examines all Gs that are queued now.
//!
//! In builds without `debug_assertions` the functions that the scheduler calls are empty.
//!
//! # In a correct machine it is not zero
//!
//! - **A wake-up takes time**: the interrupt comes, its handler ends, and the P looks for Gs. A G
//!   that an interrupt has readied on an idle P waits for the end of that interrupt.
//! - **One P is woken at a time** (essay of `sched`, "Spinning"). A G that is submitted while a P
//!   spins, or was woken and has not come yet, wakes no P: the spinning P wakes the next one when
//!   it has found a G. Of Gs that are started at once, the last waits for as many such steps as
//!   there are Ps.
//! - **The run-next G is left alone for a moment**: `NEXT_GRACE_SPINS` spin hints of each thief
//!   that finds nothing else.
//! - **A P that was woken may have other work first**: memory's upkeep, a deadlock scan. It is not
//!   idle then, but the others are.
//!
//! Each of these takes microseconds. A lost wake-up is repaired only by a P that looks for Gs for
//! another reason: when a slice ends, which is 10 ms, when a sleeper wakes, or never. The bound
//! between the two is asserted under virtual time only, where the host cannot keep a CPU waiting
//! (`tests/guest/src/beside.rs`): Gs that have readied another G compute for 2 ms, so that no P
//! looks for Gs meanwhile. The longest time was 26 µs for one G and 90 µs for many, on 8 CPUs which
//! take turns; the bound is 500 µs. With one P it was 0.6 µs, and the bound is 2 µs.
//!
//! What it does not find: a race that virtual time does not show, as its CPUs take turns and few
//! interleavings occur. A P that does not recheck before it halts is found by the models, not here.
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

pub fn halts(now: u64) {
    if cfg!(debug_assertions) {
        LAST_HALT[arch::cpu_index()].begin(now);
    }
}

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

static LAST_HALT: [Halt; arch::MAX_CPUS] = [const { Halt::new() }; arch::MAX_CPUS];
/// The longest overlap since boot, or since it was reset.
pub(super) static LONGEST: IrqLock<Option<IdleLatency>> = IrqLock::new(None);

/// Keeps the overlap of `g`, which is queued since `since`, with an idle P, if that is longer than
/// all before.
pub(super) fn record(g: &'static G<Task>, since: u64, now: u64, ran_on: Option<usize>) {
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
