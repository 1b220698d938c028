//! Snapshots: one type each for a G, an M, a P and the machine.
//!
//! No CPU is stopped for a snapshot, so two values may be of two moments. (The census of
//! `invariant` has all values of one moment: all CPUs stand still for it.)
//!
//! - **A G**: records of Gs are never freed, so they can be read whatever the Gs do. A snapshot
//!   reads the state word, then the fields, then the state word again; if the life ended meanwhile
//!   the snapshot is discarded, and if the state changed it is retried. So all fields are of one
//!   life: never one G's name with another's state. Each was true at some moment during the call.
//! - **An M**: Ms are never freed. State and G are one word each, which the CPU of the M writes.
//!   Where the G of an M in a call waits is in its backtrace (`calls`).
//! - **A P** and its CPU stay together and have the same number. Each CPU counts for itself with
//!   plain loads and stores, so that counting costs an instruction or two where Gs are switched.
//! - **The machine**: the counters of all CPUs, added up; never more Gs ended than were created.

use super::holder;
use crate::arch;
use crate::run::account;
use crate::run::m::{self, MState};
use crate::run::near::{self, LEVELS};
use crate::run::roster::{ALL, cpu_of};
use crate::run::task::Times;
use crate::run::task::{GHandle, Task};
use crate::run::waiting::{Reason, Wait};
use crate::run::{CPUS, ProgramId, SCHED, TIMERS, door, present};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::panic::Location;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Priority, Share, Status};

/// How many times a G that keeps changing its state is read.
pub(super) const TRIES: usize = 4;

/// A snapshot of one G.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GInfo {
    /// Its number, unique in this boot.
    pub id: u64,
    /// Its name, or "".
    pub name: Cow<'static, str>,
    /// Its state.
    pub state: GState,
    /// What it waits for, if it does.
    pub wait: Option<Wait>,
    /// The number of the G that holds the lock it waits for, if that is a mutex, or a `RwLock` that
    /// is written.
    pub holder: Option<u64>,
    /// Where it was started.
    pub site: Option<&'static Location<'static>>,
    /// Its program.
    pub program: ProgramId,
    /// The share of the CPUs that its program has; `None` outside the shares (`sched::share`).
    pub share: Option<Share>,
    /// The CPU that it runs on.
    pub cpu: Option<usize>,
    /// The CPU that it must run on.
    pub pin: Option<usize>,
    /// The priority that its program gave it.
    pub priority: Priority,
    /// The priority that counts: its own, or a higher one of a G that waits for it.
    pub rank: Priority,
    /// The M that it runs on, or on which it waits in a call.
    pub m: Option<u32>,
    /// Nanoseconds that it was on a CPU.
    pub cpu_ns: u64,
    /// Nanoseconds that it waited for a CPU; with full accounting (`FullAccounting`).
    pub queued_ns: Option<u64>,
    /// Nanoseconds that it was parked; with full accounting.
    pub waiting_ns: Option<u64>,
    /// How often it has left a CPU.
    pub switches: u64,
}

/// The state of a G.
///
/// ```
/// assert_eq!(runnext::tasks::GState::InCall.to_string(), "in a call");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GState {
    /// It is on a CPU.
    #[default]
    Running,
    /// It waits for a CPU.
    Runnable,
    /// It is parked.
    Waiting,
    /// It is parked in a blocking call, on the stack of an M.
    InCall,
}

impl fmt::Display for GState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            GState::Running => "running",
            GState::Runnable => "runnable",
            GState::Waiting => "waiting",
            GState::InCall => "in a call",
        })
    }
}

/// All live Gs, by number.
///
/// ```
/// for g in runnext::tasks::gs() {
///     runnext::println!("{} {:?} {}", g.id, g.name, g.state);
/// }
/// ```
#[must_use]
pub fn gs() -> Vec<GInfo> {
    let mut gs: Vec<_> = ALL.iter().filter_map(of_record).collect();
    gs.sort_unstable_by_key(|g| g.id);
    gs
}

/// A snapshot of that life of a G, if it is not over.
pub fn info(handle: &GHandle) -> Option<GInfo> {
    of_record(handle.get()?).filter(|_| handle.get().is_some())
}

/// All live Gs of a program.
pub fn members(of: ProgramId) -> impl Iterator<Item = (GHandle, GInfo)> {
    let info = |g: &'static G<Task>| Some((g.handle_and_status().0, of_record(g)?));
    // The cheap test first; the record may be another program's by the time the snapshot is taken.
    let belongs = move |g: &&'static G<Task>| g.kernel.program().id() == of;
    ALL.iter().filter(belongs).filter_map(info).filter(move |(_, info)| info.program == of)
}

/// A snapshot of `g`; `None` if it is dead.
pub fn of_record(g: &'static G<Task>) -> Option<GInfo> {
    let mut info = None;
    for _ in 0..TRIES {
        let (handle, status) = g.handle_and_status();
        info = Some(of_life(g, &handle, status)?);
        if g.handle_and_status().1 == status {
            break;
        }
    }
    info
}

/// As [`of_record`], of that life; `None` also if it ends meanwhile.
fn of_life(g: &'static G<Task>, handle: &GHandle, status: Status) -> Option<GInfo> {
    let task = &g.kernel;
    let on_m = task.m.get();
    let state = match status {
        Status::Dead => return None,
        Status::Runnable => GState::Runnable,
        Status::Parked if on_m.is_some() => GState::InCall,
        Status::Parked => GState::Waiting,
        Status::Running | Status::Parking | Status::Woken => GState::Running,
    };
    let cpu = if state == GState::Running { cpu_of(g) } else { None };
    let wait = (status == Status::Parked).then(|| wait_of(g));
    let Times { cpu_ns, queued_ns, waiting_ns } = task.account.times(status);
    let info = GInfo {
        id: g.id(),
        name: Cow::Borrowed(""),
        state,
        wait,
        holder: wait.and_then(|_| holder::holder_of(g)),
        site: None,
        program: task.program().id(),
        share: task.program().share(),
        cpu,
        pin: g.pin(),
        priority: g.priority(),
        rank: g.rank(),
        m: on_m.or_else(|| CPUS[cpu?].m.get()).map(|m| m.id() as u32),
        cpu_ns,
        queued_ns,
        waiting_ns,
        switches: task.account.switches(),
    };
    // Last: if the life is not over here, all fields above are of this life, too.
    let (name, site) = task.label(|| handle.get().is_some())?;
    Some(GInfo { name, site, ..info })
}

/// What `g` waits for, or has waited for last; if that is a join, with the number of the joined G,
/// 0 if it does not wait any more.
pub fn wait_of(g: &'static G<Task>) -> Wait {
    let wait = Wait::unpack(g.kernel.waiting.load(Relaxed));
    if wait.reason != Reason::Join {
        return wait;
    }
    let number = holder::joined(g).map_or(0, |(_, worker)| worker.id());
    Wait { object: number as usize, ..wait }
}

/// A snapshot of one M.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MInfo {
    /// Its number, from 0.
    pub id: usize,
    /// What it does.
    pub state: MState,
    /// The addresses of its stack.
    pub stack: Range<u64>,
    /// The number of the G that has left its CPU with it, in a call, or did so last.
    pub g: u64,
}

/// All Ms, newest first.
pub fn ms() -> Vec<MInfo> {
    let info = |m: &'static m::M| MInfo {
        id: m.id(),
        state: m.state(),
        stack: m.stack(),
        g: m.g.get().map_or(0, G::id),
    };
    m::all().map(info).collect()
}

/// A snapshot of one P and its CPU: its state, and what it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PInfo {
    /// The P is idle.
    pub is_idle: bool,
    /// Gs in its queue, without those pinned to it.
    pub queued: usize,
    /// Gs that sleep on it, and answers of simulated devices that it awaits.
    pub sleepers: usize,
    /// The number of its M.
    pub m: u32,
    /// The number of the G that it runs.
    pub g: Option<u64>,
    /// Slices that began on it, wrapping.
    pub slices: u32,
    /// How often it switched to a G.
    pub switches: u64,
    /// How often a G had to leave because its slice was over.
    pub preemptions: u64,
    /// Timer interrupts.
    pub ticks: u64,
    /// How often it found nothing to run, and halted.
    pub halts: u64,
    /// How often it woke or interrupted another CPU.
    pub wakes: u64,
    /// How often a G lent its slice to one that an interrupt had readied.
    pub displacements: u64,
    /// How often a spare M took over, because a call had to wait.
    pub handoffs: u64,
    /// How many of these the monitor of `handoff=sysmon` caused.
    pub retakes: u64,
    /// How often it stole from another P.
    pub steals: u64,
    /// How many Gs it stole in all.
    pub stolen: u64,
    /// How often it stole over each distance (`inspect::Distance::ALL`); all 0 on a flat machine.
    pub steals_at: [u64; LEVELS],
    /// How often it woke a CPU over each distance, for a G that any CPU may run; the same.
    pub wakes_at: [u64; LEVELS],
    /// How many rings of Ms it has searched, under `system=distributed`.
    pub scanned: u64,
    /// How often it took the lock of the one queue, under the systems that have one.
    pub locked: u64,
    /// Nanoseconds for which Gs ran on it, the present run included.
    pub run_ns: u64,
    /// Nanoseconds for which it was halted.
    pub idle_ns: u64,
}

impl PInfo {
    /// The P of that CPU. Allocates nothing.
    pub(crate) fn of(index: usize) -> Self {
        let (cpu, slot) = (&CPUS[index], &SCHED.slots()[index]);
        let [ticks, preemptions, displacements] = cpu.slices.counters();
        let (m, g) = present(index);
        let [steals_at, wakes_at] = near::counts(index);
        PInfo {
            is_idle: SCHED.is_idle(index),
            queued: slot.ring().len(),
            sleepers: TIMERS.waiting(index),
            m,
            g,
            slices: slot.tick(),
            switches: cpu.times.switches.get(),
            preemptions,
            ticks,
            halts: cpu.counters.halts.get(),
            wakes: cpu.counters.wakes.get(),
            displacements,
            handoffs: cpu.counters.handoffs.get(),
            retakes: cpu.counters.retakes.get(),
            steals: slot.steals(),
            stolen: slot.stolen(),
            steals_at,
            wakes_at,
            scanned: slot.scanned(),
            locked: slot.queue_locks(),
            run_ns: cpu.times.run_ns(),
            idle_ns: cpu.times.idle_ns(),
        }
    }
}

/// The scheduler at about one moment, and its counters so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Gs that were started.
    pub created: u64,
    /// Gs that have ended.
    pub ended: u64,
    /// Ps that may run Gs.
    pub gomaxprocs: usize,
    /// Ps that look for work in the queues of others.
    pub spinning: usize,
    /// Gs in the global queue.
    pub global: usize,
    /// How often a CPU found the lock of that queue taken: spin hints while it waited.
    pub lock_spins: u64,
    /// The Ms.
    pub ms: MStats,
    /// How long runnable Gs waited until they ran; with full accounting (`FullAccounting`).
    pub queue_wait: Option<Vec<Bucket>>,
    /// How long Gs ran before they left their CPU; with full accounting.
    pub on_cpu: Option<Vec<Bucket>>,
    /// Each CPU and its P, by index.
    pub cpus: Vec<PInfo>,
}

impl Stats {
    /// Gs that run, are runnable, or wait.
    pub fn alive(&self) -> u64 {
        self.created.saturating_sub(self.ended)
    }
}

/// How many Ms there are, and their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MStats {
    /// All Ms that there are: those ever created, less those that `system=1to1` has freed.
    pub created: u64,
    /// How many were ever made.
    pub made: u64,
    /// Ms that wait to be used again.
    pub spare: u64,
    /// Ms that are away from all CPUs, each with a G in a blocking call.
    pub blocked: u64,
}

/// Takes a snapshot of the machine.
pub fn stats() -> Stats {
    let (created, ended) = door::created_and_ended();
    let (ms, spare, blocked) = m::count();
    let (mut queue_wait, mut on_cpu) = (Vec::new(), Vec::new());
    for cpu in &CPUS[..arch::num_cpus()] {
        cpu.times.queue_wait.for_each(|from_ns, count| add(&mut queue_wait, from_ns, count));
        cpu.times.on_cpu.for_each(|from_ns, count| add(&mut on_cpu, from_ns, count));
    }
    let counts = SCHED.counts();
    Stats {
        created,
        ended,
        gomaxprocs: SCHED.limit().min(arch::num_cpus()),
        spinning: counts.spinning,
        global: counts.global,
        lock_spins: SCHED.lock_spins(),
        ms: MStats { created: ms, made: m::made(), spare, blocked },
        queue_wait: account::is_full().then_some(queue_wait),
        on_cpu: account::is_full().then_some(on_cpu),
        cpus: (0..arch::num_cpus()).map(PInfo::of).collect(),
    }
}

/// A bucket of a histogram: counts times from `from_ns` to less than twice that. Lists of buckets
/// are sorted by time and have no empty ones.
///
/// ```
/// use runnext::prelude::*;
/// let _full = runnext::stats::FullAccounting::begin();
/// go(yield_now).join().unwrap();
/// for bucket in stats().on_cpu.unwrap_or_default() {
///     runnext::println!("{:>10} ns and more: {}", bucket.from_ns, bucket.count);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// The shortest time that is counted here.
    pub from_ns: u64,
    /// The number of times.
    pub count: u64,
}

fn add(buckets: &mut Vec<Bucket>, from_ns: u64, count: u64) {
    match buckets.binary_search_by_key(&from_ns, |bucket| bucket.from_ns) {
        Ok(at) => buckets[at].count += count,
        Err(at) if count != 0 => buckets.insert(at, Bucket { from_ns, count }),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_all_cpus_are_added_up_in_order() {
        let mut buckets = Vec::new();
        for (from_ns, count) in [(8, 1), (2, 5), (8, 2), (4, 0)] {
            add(&mut buckets, from_ns, count);
        }
        let rows = buckets.iter().map(|bucket| (bucket.from_ns, bucket.count));
        assert!(rows.eq([(2, 5), (8, 3)]));
    }
}
