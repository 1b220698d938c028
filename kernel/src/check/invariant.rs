//! Checks the invariants of the whole machine: each G in one place, none lost.
//!
//! # Which check finds what
//!
//! - **Each step of a G**, in the profile `checked`: `sched::G` refuses a transition that its state
//!   does not allow, so a G that two CPUs took, or that was queued twice, stops the kernel when the
//!   second CPU runs it.
//! - **Each halt of a CPU**, in the profile `checked`: its P holds no G.
//! - **The protocol of parking**, that no G waits while a P idles, and the bound of spinning, at
//!   every step: in `sched`'s models (`loom_park`, all interleavings) and its simulation
//!   (`tests/sim`, seeded, with planted mistakes that must be found). That the counters are true is
//!   here: with one P too many counted as spinning, or one too few as idle, the submitter of a G
//!   wakes no CPU. What can be checked afterwards is in [`idle_latency`].
//! - **The end of every stack**: by its guard page, so an overflow is a fault at that instant. That
//!   the guard is there, and that each G at rest still continues at code, is here.
//! - **The top of every stack**, where no guard can be, as the next slot begins there: by a canary
//!   (`mem::stack`), in the profile `checked`. Here, packed or not, and when a G ends.
//! - **The whole**, here ([`check`]): errors that no single step sees, such as a G that has dropped
//!   out of every queue.
//!
//! # How
//!
//! All CPUs stand still, each in a G that is pinned to it and has turned interrupts off. So no CPU
//! is in the middle of an operation, no lock is held, no P is idle and none spins: a [`Census`] is
//! taken, and must add up to the last G. A CPU that stands still answers no shootdown, and another
//! CPU may wait for one: so they stand still only when all have arrived, and give up, to try again,
//! when one of them takes long.
//!
//! What was rejected: **stopping the others by NMI**. They would stop in the middle of moving a G,
//! and every count would be off by those Gs.

pub use super::idle_latency::IdleLatency;

use super::idle_latency;
use crate::api::go::{Go, SpawnError};
use crate::arch;
use crate::arch::lock::IrqLock;
use crate::arch::paging::{self, Flags};
use crate::fail::{abandon, overflow::slot_of};
use crate::mem::stack::{self, slot};
use crate::run::door::yield_now;
use crate::run::roster::ALL;
use crate::run::task::Task;
use crate::run::{CPUS, SCHED, m, running_on};
use crate::wait::mutex::Mutex;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sched::{G, QueueName, Status};

/// All Gs, queues and counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Gs that were started, and Gs that have ended.
    created: u64,
    ended: u64,
    /// Gs by their status; `parking` is between running and parked.
    runnable: usize,
    running: usize,
    parking: usize,
    pub parked: usize,
    /// Ps that are marked as idle, Ps that are counted so, which `wake_p` uses, Ps that are counted
    /// as spinning, and Ps whose own flag says that they idle or spin.
    idle: usize,
    counted_idle: usize,
    spinning: usize,
    without_g: usize,
    /// The number of the G that each CPU runs.
    on_cpus: Vec<u64>,
    /// Stacks without an owner: neither of a G that lives or was abandoned, nor of an M, nor with a
    /// dead G that is to be used again, nor in the pool. While Gs are being started there may be
    /// some; otherwise none.
    pub adrift: usize,
    /// What is wrong with the stack of some G or M: the text before and after its number.
    stack: Option<(&'static str, u64, &'static str)>,
    /// The Gs that are in queues, each with its queue and its status.
    pub queued: Vec<(u64, QueueName, Status)>,
    /// There was no memory for all of them.
    is_cut: bool,
}

/// Stops all CPUs for a moment and checks all invariants; the inner error is the first that is
/// violated. By a G; waits until every CPU has arrived.
pub fn check() -> Result<Result<Census, String>, SpawnError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().expect("a check is never abandoned");
    *PAPER.lock() = Some(Census {
        on_cpus: Vec::with_capacity(arch::num_cpus()),
        queued: Vec::with_capacity(2 * ALL.iter().count() + 1024), // more Gs may come
        ..Census::default()
    });
    ARRIVED.store(0, Ordering::Relaxed);
    STANDING.store(0, Ordering::Relaxed);
    IS_DONE.store(false, Ordering::Release);
    let spawn = |cpu| Go::new().name("invariant").pin(cpu).spawn(stand_still);
    let held: Result<Vec<_>, _> = (0..arch::num_cpus()).map(spawn).collect();
    // On failure the Gs that wait need not.
    let held = held.inspect_err(|_| IS_DONE.store(true, Ordering::Release))?;
    held.into_iter().for_each(|g| drop(g.join()));
    let census = PAPER.lock().take().unwrap_or_default();
    Ok(census.add_up(arch::num_cpus()))
}

static PAPER: IrqLock<Option<Census>> = IrqLock::new(None);
/// CPUs whose G has arrived, and CPUs that stand still. When all do, none may give up any more.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
static STANDING: AtomicUsize = AtomicUsize::new(0);
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// For how many spin hints a CPU stands still and waits for the others: some milliseconds.
const PATIENCE: usize = 20_000;

fn stand_still() {
    ARRIVED.fetch_add(1, Ordering::AcqRel);
    while ARRIVED.load(Ordering::Acquire) < arch::num_cpus() && !is_done() {
        yield_now();
    }
    while !is_done() {
        let irqs = arch::irq::disable_probed();
        if STANDING.fetch_add(1, Ordering::AcqRel) + 1 == arch::num_cpus() {
            // Without its lock: `take` takes other locks.
            let paper = PAPER.lock().take();
            *PAPER.lock() = paper.map(Census::take);
            IS_DONE.store(true, Ordering::Release);
        } else {
            wait_for_the_last();
        }
        arch::irq::restore(irqs);
    }
}

fn wait_for_the_last() {
    for _ in 0..PATIENCE {
        if is_done() {
            return;
        }
        arch::relax();
    }
    let all = arch::num_cpus();
    let one_less = |standing: usize| (standing < all).then(|| standing - 1);
    if STANDING.try_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_err() {
        // All are here after all, and the last one takes the census.
        while !is_done() {
            arch::relax();
        }
    }
}

fn is_done() -> bool {
    IS_DONE.load(Ordering::Acquire) // pairs with `stand_still`
}

impl Census {
    /// Counts, while all CPUs stand still. Allocates nothing.
    fn take(mut self) -> Census {
        let all = || CPUS[..arch::num_cpus()].iter();
        self.created = all().map(|cpu| cpu.counters.created.get()).sum();
        self.ended = all().map(|cpu| cpu.counters.ended.get()).sum();
        self.spinning = SCHED.counts().spinning;
        self.counted_idle = SCHED.counted_idle();
        self.idle = (0..arch::num_cpus()).filter(|&cpu| SCHED.is_idle(cpu)).count();
        self.on_cpus.extend((0..arch::num_cpus()).filter_map(running_on).map(G::id));
        for g in ALL.iter() {
            match g.status() {
                Status::Dead => {}
                Status::Runnable => self.runnable += 1,
                Status::Running => self.running += 1,
                Status::Parking | Status::Woken => self.parking += 1,
                Status::Parked => self.parked += 1,
            }
            let wrong = check_stack(g).map(|(before, after)| (before, g.id(), after));
            self.stack = self.stack.or(wrong);
        }
        let m = m::overrun().map(|m| ("the top of the stack of M", m as u64, WRITTEN_OVER));
        self.stack = self.stack.or(m);
        SCHED.census(&mut |g, place| self.find(g, place));
        let mut kept = SCHED.stored_dead();
        for cpu in all() {
            // SAFETY: every CPU has its P, and stands still with interrupts off in code that does
            // not touch it; no other CPU touches it.
            let p = unsafe { &*cpu.p.get() };
            // SAFETY: a CPU that runs Gs has been through `init_cpu`.
            let p = unsafe { p.assume_init_ref() };
            p.census(&mut |g, place| self.find(g, place));
            self.without_g += usize::from(p.idles() || p.spins());
            kept += p.kept_dead();
        }
        let had = self.alive() + self.parking + abandon::abandoned() + m::count().0 as usize;
        self.adrift = stack::POOL.in_use().saturating_sub(had + kept);
        self
    }

    fn find(&mut self, g: &'static G<Task>, place: QueueName) {
        if self.queued.len() < self.queued.capacity() {
            self.queued.push((g.id(), place, g.status()));
        } else {
            self.is_cut = true;
        }
    }

    fn alive(&self) -> usize {
        self.runnable + self.running + self.parked
    }

    /// Whether it is the census of a sound machine with so many CPUs; if not, the first violated
    /// invariant.
    fn add_up(mut self, cpus: usize) -> Result<Census, String> {
        self.queued.sort_unstable_by_key(|&(g, place, _)| (g, place));
        for &[(g, one, _), (other_g, other, _)] in self.queued.array_windows() {
            if g == other_g {
                return Err(format!("G {g} is in two places: {one:?}, {other:?}"));
            }
        }
        let is_wrong = |queued: &&(_, _, Status)| queued.2 != Status::Runnable;
        if let Some((g, place, status)) = self.queued.iter().find(is_wrong) {
            return Err(format!("G {g} is in {place:?} and {status:?}"));
        }
        let Census { runnable, running, parking, created, ended, .. } = self;
        // All are distinct and runnable: if the numbers are equal, the sets are.
        let queued = self.queued.len();
        if !self.is_cut && runnable != queued {
            return Err(format!("{runnable} Gs wait for a CPU, {queued} are in queues"));
        }
        self.on_cpus.sort_unstable();
        self.on_cpus.dedup();
        let on_cpus = self.on_cpus.len();
        if (running, on_cpus, parking) != (cpus, cpus, 0) {
            return Err(format!("{} Gs run on {on_cpus} CPUs", running + parking));
        }
        let alive = self.alive() as u64;
        if created != ended + alive {
            return Err(format!("{created} Gs created, {ended} ended, {alive} alive"));
        }
        let Census { spinning, idle, counted_idle, without_g, .. } = self;
        if (spinning, idle, counted_idle, without_g) != (0, 0, 0, 0) {
            return Err(format!(
                "all Ps run a G, but {spinning} count as spinning, {idle} are marked as idle, \
                 {counted_idle} count so, and {without_g} have a flag of their own set"
            ));
        }
        match self.stack {
            None => Ok(self),
            Some((before, number, after)) => Err(format!("{before} {number} {after}")),
        }
    }
}

const WRITTEN_OVER: &str = "was written over";

/// What is wrong with the stack of `g`, if anything: its guard page is mapped, its top or its saved
/// context was overwritten. The text before and after its number.
fn check_stack(g: &'static G<Task>) -> Option<(&'static str, &'static str)> {
    // A G is the record of its stack. In a call it is on the stack of its M.
    let (slot, sp) = (slot_of(g), g.kernel.sp.get());
    let is_in = |slot: slot::Slot| (slot.base()..slot.start()).contains(&(sp as u64));
    let is_at_rest = matches!(g.status(), Status::Runnable | Status::Parked);
    if slot.is_none_or(|slot| paging::translate(slot.base()).is_some()) {
        Some(("the stack of G", "has no guard"))
    } else if slot.is_some_and(|slot| !stack::is_whole(slot)) {
        Some(("the top of the stack of G", WRITTEN_OVER))
    } else if is_at_rest && g.kernel.m.get().is_none() && !slot.is_some_and(is_in) {
        Some(("the stack pointer of G", "is not in its stack"))
    } else if is_at_rest && !goes_on_with_code(sp) {
        Some(("what G", "goes on with was written over"))
    } else {
        None
    }
}

/// Whether the context saved at `sp` continues at an instruction.
fn goes_on_with_code(sp: usize) -> bool {
    let address = stack::pack::peek(sp as u64);
    address.and_then(paging::translate).is_some_and(|found| found.flags == Flags::CODE)
}

/// The longest idle latency since boot or since it was reset, of Gs that wait now as well; `None` if
/// there was none, and in builds without `debug_assertions`. Caller: a G.
pub fn longest_idle_latency() -> Option<IdleLatency> {
    if cfg!(debug_assertions) {
        ALL.iter().for_each(record_queued);
    }
    *idle_latency::LONGEST.lock()
}

pub fn reset_idle_latency() {
    *idle_latency::LONGEST.lock() = None;
}

/// Records the idle latency of `g` if it is queued. It is read twice, some spin hints apart: a G
/// that is just being readied counts as runnable before its stamp is updated.
fn record_queued(g: &'static G<Task>) {
    let read = || (g.status(), g.id(), g.kernel.account.since());
    let (seen, now) = (read(), arch::cycles());
    if seen.0 == Status::Runnable {
        (0..16).for_each(|_| arch::relax());
        if read() == seen {
            idle_latency::record(g, seen.2, now, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Two CPUs that run G 1 and G 2; G 3 and G 4 are runnable, G 5 is parked.
    fn sound() -> Census {
        let queued = |g, place| (g, place, Status::Runnable);
        Census {
            created: 9,
            ended: 4,
            runnable: 2,
            running: 2,
            parked: 1,
            on_cpus: vec![1, 2],
            queued: vec![queued(4, QueueName::Global), queued(3, QueueName::Ring(1))],
            ..Census::default()
        }
    }

    fn broken(change: impl FnOnce(&mut Census)) -> String {
        let mut census = sound();
        change(&mut census);
        census.add_up(2).expect_err("broken")
    }

    #[test]
    fn sound_machine_is_sound() {
        assert_eq!(sound().add_up(2).map(|census| census.queued.len()), Ok(2));
    }

    #[test]
    fn g_in_two_places_is_found() {
        let found = broken(|census| census.queued.push((3, QueueName::Inbox(0), Status::Runnable)));
        assert_eq!(found, "G 3 is in two places: Inbox(0), Ring(1)");
    }

    #[test]
    fn g_in_no_place_is_found() {
        let found = broken(|census| census.queued.truncate(1));
        assert_eq!(found, "2 Gs wait for a CPU, 1 are in queues");
    }

    #[test]
    fn queued_g_that_does_not_wait_for_a_cpu_is_found() {
        let found = broken(|census| census.queued[0].2 = Status::Parked);
        assert_eq!(found, "G 4 is in Global and Parked");
    }

    #[test]
    fn g_on_two_cpus_is_found() {
        assert_eq!(broken(|census| census.on_cpus = vec![1, 1]), "2 Gs run on 1 CPUs");
        assert_eq!(broken(|census| census.running = 3), "3 Gs run on 2 CPUs");
        assert_eq!(broken(|census| census.parking = 1), "3 Gs run on 2 CPUs");
    }

    #[test]
    fn counts_that_do_not_add_up_are_found() {
        let found = broken(|census| census.ended = 3);
        assert_eq!(found, "9 Gs created, 3 ended, 5 alive");
    }

    #[test]
    fn spinner_or_idler_that_nobody_is_is_found() {
        assert!(broken(|census| census.spinning = 1).contains("but 1 count as spinning"));
        assert!(broken(|census| census.idle = 1).contains("1 are marked as idle, 0 count so"));
        assert!(broken(|census| census.counted_idle = 1).contains("0 are marked as idle, 1 count"));
        assert!(broken(|census| census.without_g = 2).contains("and 2 have a flag"));
    }

    #[test]
    fn stack_that_is_not_as_its_g_left_it_is_found() {
        let found = broken(|census| census.stack = Some(("the stack of G", 4, "has no guard")));
        assert_eq!(found, "the stack of G 4 has no guard");
    }
}
