//! A snapshot of one G, whichever CPU holds it.
//!
//! Records of Gs are never freed, so they can be read whatever the Gs do. A snapshot reads the
//! state word, then the fields, then the state word again; if the life ended meanwhile the snapshot
//! is discarded, and if the state changed it is retried. So all fields are of one life: never one
//! G's name with another's state. Each was true at some moment during the call.

use crate::run::account::Times;
use crate::run::roster::{ALL, cpu_of};
use crate::run::task::{GHandle, Task};
use crate::run::waiting::{Reason, Wait};
use crate::run::{CPUS, ProgramId};
use crate::watch::holder;
use alloc::vec::Vec;
use core::fmt;
use core::panic::Location;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Status};

/// How many times a G that keeps changing its state is read.
const TRIES: usize = 4;

/// A snapshot of one G.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GInfo {
    /// Its number, unique in this boot.
    pub id: u64,
    /// Its name, or "".
    pub name: &'static str,
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
    /// The CPU that it runs on.
    pub cpu: Option<usize>,
    /// The CPU that it must run on.
    pub pin: Option<usize>,
    /// The M that it runs on, or on which it waits in a call.
    pub m: Option<u32>,
    /// Nanoseconds that it was on a CPU.
    pub cpu_ns: u64,
    /// Nanoseconds that it waited for a CPU.
    pub queued_ns: u64,
    /// Nanoseconds that it was parked.
    pub waiting_ns: u64,
    /// How often it has left a CPU.
    pub switches: u64,
}

#[cfg(test)]
impl GInfo {
    /// A G with nothing else set.
    pub(crate) fn for_tests(id: u64, name: &'static str, state: GState) -> Self {
        GInfo { id, name, state, ..GInfo::default() }
    }
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

/// All Gs that live, in no order.
pub fn gs() -> Vec<GInfo> {
    ALL.iter().filter_map(of_record).collect()
}

/// A snapshot of that life of a G, if it is not over.
pub fn info(handle: &GHandle) -> Option<GInfo> {
    of_record(handle.get()?).filter(|_| handle.get().is_some())
}

/// All live Gs of a program.
pub fn members(of: ProgramId) -> impl Iterator<Item = (GHandle, GInfo)> {
    let info = |g: &'static G<Task>| Some((g.handle_and_status().0, of_record(g)?));
    // The cheap test first; the record may be another program's by the time the snapshot is taken.
    let is_of = move |g: &&'static G<Task>| g.kernel.program().id() == of;
    ALL.iter().filter(is_of).filter_map(info).filter(move |(_, info)| info.program == of)
}

/// A snapshot of `g`; `None` if it is dead.
pub fn of_record(g: &'static G<Task>) -> Option<GInfo> {
    let mut tries = TRIES;
    loop {
        let (handle, status) = g.handle_and_status();
        let info = of_life(g, &handle, status)?;
        tries -= 1;
        if tries == 0 || g.handle_and_status().1 == status {
            return Some(info);
        }
    }
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
        name: "",
        state,
        wait,
        holder: wait.and_then(|_| holder::holder_of(g)),
        site: None,
        program: task.program().id(),
        cpu,
        pin: g.pin(),
        m: on_m.or_else(|| CPUS[cpu?].m.get()).map(|m| m.id() as u32),
        cpu_ns,
        queued_ns,
        waiting_ns,
        switches: task.account.switches(),
    };
    // Last: if the life is not over here, all fields above are of this life, too.
    // SAFETY: `look` has seen that this life has begun; the closure is true only if it is not over.
    let (name, site) = unsafe { task.label.get(|| handle.get().is_some()) }?;
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
