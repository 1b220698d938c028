//! Checks the invariants of the whole machine: each G in one place, none lost.
//!
//! # Which check finds what
//!
//! - **Each step of a G**, always, in release builds too: `sched::G` refuses a transition that its
//!   state does not allow ("not runnable", "not running"), so a G that two CPUs took, or that was
//!   queued twice, stops the kernel when the second CPU runs it.
//! - **Each halt of a CPU**, in the profile `checked`: its P holds no G.
//! - **The protocol of parking**, that no G waits while a P idles, and the bound of spinning, at
//!   every step: in `sched`'s models (`loom_park`, all interleavings) and its simulation
//!   (`tests/sim`, seeded, with planted mistakes that must be found). In the machine, the part that
//!   can be checked at one moment is here: that the counters are true. With one P too many counted
//!   as spinning, or one too few as idle, the submitter of a G wakes no CPU. The part that can be
//!   checked afterwards is here, too, in the profile `checked`: "Idle latency".
//! - **The end of every stack**: by its guard page, so an overflow is a fault at that instant, and
//!   not found later. That the guard is there, and that each G at rest still continues at code, is
//!   here.
//! - **The top of every stack**, of Gs and of Ms, where no guard can be, as the record of the G is
//!   there: by a canary (`mem::stack::canary`), in the profile `checked`. Here, and when a G ends.
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
//!
//! # Idle latency
//!
//! A check from outside cannot tell an idle P from one whose wake-up is on its way. But when a G
//! begins to run, the time is known for which a P that may run it was halted while it was queued:
//! [`longest_idle_latency`]. In a correct machine that is not zero:
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
//! Each of these takes microseconds, and none of them waits for a G. A lost wake-up is repaired
//! only by a P that looks for Gs for another reason: when a slice ends, which is 10 ms, when a
//! sleeper wakes, or never. Between the two there is room for a bound. It is asserted under virtual
//! time only, where the host cannot keep a CPU waiting (`tests/guest/src/beside.rs`): Gs that have
//! readied another G compute for 2 ms, so that no P looks for Gs meanwhile; the longest time was 26
//! µs for one G and 90 µs for many, on 8 CPUs which take turns; the bound is 500 µs. With one P it
//! was 0.6 µs, the end of an interrupt, and the bound is 2 µs.
//!
//! What it does not find: a race that virtual time does not show, as its CPUs take turns and few
//! interleavings occur. A P that does not recheck before it halts is found by the models, not here.
#![forbid(unsafe_code)]

use super::Queued;
use crate::api::go::{Go, SpawnError};
use crate::arch;
use crate::arch::lock::IrqLock;
use crate::run::door::yield_now;
use crate::wait::mutex::Mutex;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use sched::{Place, Status};

pub use super::{Census, IdleLatency, longest_idle_latency, reset_idle_latency};

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// A G is in two queues, or twice in one.
    TwoPlaces(u64, Place, Place),
    /// A G in a queue does not wait for a CPU.
    NotRunnable(u64, Place, Status),
    /// So many Gs are runnable, and so many are in queues.
    Lost(usize, usize),
    /// So many Gs have the status running, on so many CPUs; or a G runs on two.
    Running(usize, usize),
    /// Created Gs are not the sum of ended and live Gs.
    Counts {
        /// Gs that were started.
        created: u64,
        /// Gs that have ended.
        ended: u64,
        /// Live Gs.
        alive: u64,
    },
    /// So many Ps count as spinning, though all run a G.
    Spinning(usize),
    /// So many Ps are marked as idle, and so many count so, though all run a G.
    Idle(usize, usize),
    /// So many Ps have their own flag set for spinning or idle, though all run a G.
    WithoutG(usize),
    /// The stack pointer of this G is outside of its stack.
    Astray(u64),
    /// The saved return address of this G is no code: it was overwritten.
    Overwritten(u64),
    /// The top of the stack of this G was overwritten.
    Overrun(u64),
    /// The top of the stack of this M was overwritten.
    OverrunM(usize),
    /// There is no guard below the stack of this G.
    Unguarded(u64),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::TwoPlaces(g, one, other) => {
                write!(f, "G {g} is in two places: {one:?}, {other:?}")
            }
            Broken::NotRunnable(g, place, status) => {
                write!(f, "G {g} is in {place:?} and {status:?}")
            }
            Broken::Lost(wait, queued) => {
                write!(f, "{wait} Gs wait for a CPU, {queued} are in queues")
            }
            Broken::Running(gs, cpus) => write!(f, "{gs} Gs run on {cpus} CPUs"),
            Broken::Counts { created, ended, alive } => {
                write!(f, "{created} Gs created, {ended} ended, {alive} alive")
            }
            Broken::Spinning(ps) => write!(f, "{ps} Ps spin, and all run a G"),
            Broken::Idle(marked, counted) => {
                write!(f, "{marked} Ps are idle, {counted} count so, and all run a G")
            }
            Broken::WithoutG(ps) => write!(f, "{ps} Ps believe that they run no G, and all do"),
            Broken::Astray(g) => write!(f, "the stack pointer of G {g} is not in its stack"),
            Broken::Overwritten(g) => write!(f, "what G {g} goes on with was written over"),
            Broken::Overrun(g) => write!(f, "the top of the stack of G {g} was written over"),
            Broken::OverrunM(m) => write!(f, "the top of the stack of M {m} was written over"),
            Broken::Unguarded(g) => write!(f, "the stack of G {g} has no guard"),
        }
    }
}

/// Stops all CPUs for a moment and checks all invariants. By a G; waits until every CPU has
/// arrived.
///
/// # Errors
/// [`SpawnError`] when there is no memory for a G on each CPU.
pub fn check() -> Result<Result<Census, Broken>, SpawnError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().expect("a check is never abandoned");
    *PAPER.lock() = Some(Census::with_memory());
    ARRIVED.store(0, Ordering::Relaxed);
    STANDING.store(0, Ordering::Relaxed);
    IS_DONE.store(false, Ordering::Release);
    let mut held = Vec::new();
    for cpu in 0..arch::num_cpus() {
        match Go::new().name("invariant").pin(cpu).spawn(stand_still) {
            Ok(g) => held.push(g),
            Err(error) => {
                IS_DONE.store(true, Ordering::Release); // the Gs that wait need not
                return Err(error);
            }
        }
    }
    held.into_iter().for_each(|g| drop(g.join()));
    let census = PAPER.lock().take().unwrap_or_default();
    Ok(check_census(&census).map(|()| census))
}

/// The census that is being taken.
static PAPER: IrqLock<Option<Census>> = IrqLock::new(None);
/// CPUs whose G has arrived.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
/// CPUs that stand still. When all do, none may give up any more.
static STANDING: AtomicUsize = AtomicUsize::new(0);
/// The census was taken.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// For how many spin hints a CPU stands still and waits for the others: some
/// milliseconds.
const PATIENCE: usize = 20_000;

/// The work of the G on each CPU.
fn stand_still() {
    ARRIVED.fetch_add(1, Ordering::AcqRel);
    while ARRIVED.load(Ordering::Acquire) < arch::num_cpus() && !is_done() {
        yield_now();
    }
    while !is_done() {
        let irqs = arch::irq::disable_probed();
        if STANDING.fetch_add(1, Ordering::AcqRel) + 1 == arch::num_cpus() {
            // Without its lock: `take` takes other locks.
            let mut paper = PAPER.lock().take();
            if let Some(census) = &mut paper {
                census.take();
            }
            *PAPER.lock() = paper;
            IS_DONE.store(true, Ordering::Release);
        } else {
            wait_for_the_last();
        }
        arch::irq::restore(irqs);
    }
}

/// Waits until the census was taken, or for a while.
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

/// Whether a census adds up.
///
/// # Errors
/// [`Broken`]: the first violated invariant.
fn check_census(census: &Census) -> Result<(), Broken> {
    let mut queued: Vec<Queued> = census.queued.clone();
    queued.sort_unstable_by_key(|found| (found.g, found.place));
    for pair in queued.windows(2) {
        if pair[0].g == pair[1].g {
            return Err(Broken::TwoPlaces(pair[0].g, pair[0].place, pair[1].place));
        }
    }
    if let Some(found) = queued.iter().find(|found| found.status != Status::Runnable) {
        return Err(Broken::NotRunnable(found.g, found.place, found.status));
    }
    // All are distinct and runnable: if the numbers are equal, the sets are.
    if !census.is_cut && census.runnable != queued.len() {
        return Err(Broken::Lost(census.runnable, queued.len()));
    }
    let mut on_cpus = census.on_cpus.clone();
    on_cpus.sort_unstable();
    on_cpus.dedup();
    if census.running != census.cpus || on_cpus.len() != census.cpus || census.parking != 0 {
        return Err(Broken::Running(census.running + census.parking, on_cpus.len()));
    }
    let alive = (census.runnable + census.running + census.parked) as u64;
    let (created, ended) = (census.created, census.ended);
    if created != ended + alive {
        return Err(Broken::Counts { created, ended, alive });
    }
    if census.spinning != 0 {
        return Err(Broken::Spinning(census.spinning));
    }
    if (census.idle, census.counted_idle) != (0, 0) {
        return Err(Broken::Idle(census.idle, census.counted_idle));
    }
    if census.without_g != 0 {
        return Err(Broken::WithoutG(census.without_g));
    }
    let stacks = [
        census.astray.map(Broken::Astray),
        census.overwritten.map(Broken::Overwritten),
        census.overrun.map(Broken::Overrun),
        census.m_overrun.map(Broken::OverrunM),
        census.unguarded.map(Broken::Unguarded),
    ];
    stacks.into_iter().flatten().next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Two CPUs that run G 1 and G 2; G 3 and G 4 are runnable, G 5 is parked.
    fn sound() -> Census {
        let queued = |g, place| Queued { g, place, status: Status::Runnable };
        Census {
            cpus: 2,
            created: 9,
            ended: 4,
            runnable: 2,
            running: 2,
            parked: 1,
            on_cpus: vec![1, 2],
            queued: vec![queued(4, Place::Global), queued(3, Place::Ring(1))],
            ..Census::default()
        }
    }

    fn broken(change: impl FnOnce(&mut Census)) -> Broken {
        let mut census = sound();
        change(&mut census);
        check_census(&census).expect_err("broken")
    }

    #[test]
    fn sound_machine_is_sound() {
        assert_eq!(check_census(&sound()), Ok(()));
    }

    #[test]
    fn g_in_two_places_is_found() {
        let found = broken(|census| {
            census.queued.push(Queued { place: Place::Inbox(0), ..census.queued[1] })
        });
        assert_eq!(found, Broken::TwoPlaces(3, Place::Inbox(0), Place::Ring(1)));
    }

    #[test]
    fn g_in_no_place_is_found() {
        assert_eq!(broken(|census| census.queued.truncate(1)), Broken::Lost(2, 1));
    }

    #[test]
    fn queued_g_that_does_not_wait_for_a_cpu_is_found() {
        let found = broken(|census| census.queued[0].status = Status::Parked);
        assert_eq!(found, Broken::NotRunnable(4, Place::Global, Status::Parked));
    }

    #[test]
    fn g_on_two_cpus_is_found() {
        assert_eq!(broken(|census| census.on_cpus = vec![1, 1]), Broken::Running(2, 1));
        assert_eq!(broken(|census| census.running = 3), Broken::Running(3, 2));
    }

    #[test]
    fn counts_that_do_not_add_up_are_found() {
        let found = broken(|census| census.ended = 3);
        assert_eq!(found, Broken::Counts { created: 9, ended: 3, alive: 5 });
    }

    #[test]
    fn spinner_or_idler_that_nobody_is_is_found() {
        assert_eq!(broken(|census| census.spinning = 1), Broken::Spinning(1));
        assert_eq!(broken(|census| census.idle = 1), Broken::Idle(1, 0));
        assert_eq!(broken(|census| census.counted_idle = 1), Broken::Idle(0, 1));
        assert_eq!(broken(|census| census.without_g = 2), Broken::WithoutG(2));
    }

    #[test]
    fn stack_that_is_not_as_its_g_left_it_is_found() {
        assert_eq!(broken(|census| census.astray = Some(5)), Broken::Astray(5));
        assert_eq!(broken(|census| census.overwritten = Some(3)), Broken::Overwritten(3));
        assert_eq!(broken(|census| census.overrun = Some(5)), Broken::Overrun(5));
        assert_eq!(broken(|census| census.m_overrun = Some(0)), Broken::OverrunM(0));
        assert_eq!(broken(|census| census.unguarded = Some(4)), Broken::Unguarded(4));
    }
}
