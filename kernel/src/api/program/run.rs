//! A program inside the machine: started by another, waited for, stopped.
//!
//! [`start`] makes two Gs: main's, and a supervisor, which is a service G of the kernel. It waits
//! until the end of the program is decided (main returned or panicked, `exit`, a deadlock,
//! [`Run::stop`]), and then ends its other Gs (`fail::kill`): it asks them, repeatedly, and
//! abandons Gs that ignore the request. When none is left, it wakes the G in [`Run::wait`].
#![forbid(unsafe_code)]

use super::{Program, all};
use crate::api::go::{Go, SpawnError};
use crate::arch::lock::IrqLock;
use crate::arch::text_enum;
use crate::fail::{self, Left, deadlock, end};
use crate::run::door::GHandle;
use crate::run::error::JoinError;
use crate::run::program::{Ended, Instance, ProgramId};
use crate::run::share::{Share, ShareError};
use crate::run::time::{Duration, Instant, sleep};
use crate::run::unwind;
use crate::run::waiting::{Reason, Wait};
use crate::run::{door, service};
use crate::wait::limit::Limit;
use crate::wait::mutex::Mutex;
use crate::wait::{Shared, queue};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// How long Gs that all wait are given to end, before the program counts as ended without them:
/// some may wait in a destructor for ever.
const LIMIT: Duration = Duration::from_secs(10);
/// Minimum time between two rounds of kill requests.
const ROUND: Duration = Duration::from_millis(1);
/// The pause after a round is at least so many times as long as the round.
const PAUSE: u32 = 4;

/// Starts the program called `name`. Its Gs carry the run's number, and when it ends, only they do.
///
/// ```no_run
/// use runnext::program::{Ended, start};
/// let run = start("hello", Vec::new())?;
/// assert_eq!(run.wait(), Ended::Code(0));
/// # Ok::<(), runnext::program::StartError>(())
/// ```
pub fn start(name: &str, args: Vec<String>) -> Result<Run, StartError> {
    start_with_share(name, args, Share::DEFAULT)
}

/// As [`start`], with another share of the CPUs than 100: of two programs that always have Gs to run,
/// one with 300 and one with 100, the first gets three times the CPU time of the second, whatever
/// their Gs are and do. `sched::share` says what is promised.
///
/// ```no_run
/// use runnext::program::{Share, start, start_with_share};
/// let much = start_with_share("hog", Vec::new(), Share::new(300).unwrap())?;
/// let less = start("hog", Vec::new())?;
/// # Ok::<(), runnext::program::StartError>(())
/// ```
///
/// # Errors
/// As [`start`]; and [`StartError::Share`] if the program cannot get that share.
pub fn start_with_share(name: &str, args: Vec<String>, share: Share) -> Result<Run, StartError> {
    let program =
        *all().iter().find(|program| program.name() == name).ok_or(StartError::Unknown)?;
    start_program(program, args, share)
}

/// As [`start_with_share`], for a program that need not be in the image's list.
pub(super) fn start_program(
    program: Program,
    args: Vec<String>,
    share: Share,
) -> Result<Run, StartError> {
    let args = keep_args(args).ok_or(SpawnError::NoMemory)?;
    let instance = Instance::take(program.name(), args).ok_or(SpawnError::NoMemory)?;
    let id = instance.id();
    instance.set_share(share).inspect_err(|_| instance.free())?;
    let over = Shared::try_new(Over(IrqLock::new((None, None)))).map_err(|_| SpawnError::NoMemory);
    let over = over.and_then(|over| {
        let told = over.clone();
        deadlock::begin_watching()?;
        service::spawn("supervisor", move || supervise(instance, &told))?;
        Ok(over)
    });
    let over = over.inspect_err(|_| instance.free())?;
    let main = Go::new().name(program.name()).stack_size(program.stack_size()).of(instance);
    if let Err(error) = main.spawn(move || run_main(program, instance, id)).map(drop) {
        instance.end(id, Ended::Stopped); // the supervisor does the rest
        return Err(error.into());
    }
    Ok(Run { id, instance, over })
}

/// The first G of a run. When it returns, the program has ended, or the machine.
pub(crate) fn run_main(program: Program, instance: &'static Instance, id: ProgramId) {
    instance.main_begins();
    let how = match unwind::catch_at_root(|| program.run()) {
        Ok(()) => Ended::Code(0),
        // If it was killed because the end was decided, this decides nothing.
        Err(_) if door::was_killed() => Ended::Stopped,
        Err(JoinError::Exited) => return instance.main_exits(),
        Err(_) => Ended::Panicked,
    };
    // With the run's number: on the host Gs are not killed, so the record may be reused by now.
    end::end_program(instance, id, how);
}

fn supervise(instance: &'static Instance, over: &Over) {
    let how = instance.wait_for_end();
    if how == Ended::Deadlock {
        deadlock::log_report(instance);
    }
    instance.hurry();
    let mut is_empty = end_all(instance);
    if is_empty && let Some(hook) = instance.set_hook(None) {
        // What it owns is the program's: so it is dropped by a G of it.
        drop(Go::new().name("panic hook").of(instance).spawn(move || drop(hook)));
        is_empty = end_all(instance);
    }
    over.complete(how);
    if is_empty {
        instance.free();
    } else {
        instance.leave_shares();
        ::log::warn!("{}: some Gs do not end; they are left behind", instance.name());
    }
}

/// Ends all Gs of a program; false if some are left that have waited for a while.
fn end_all(instance: &'static Instance) -> bool {
    let mut limit = Instant::now() + LIMIT;
    loop {
        let began = Instant::now();
        let left = fail::kill_all(instance);
        let took = Instant::now() - began;
        match left {
            Left::Nobody => return true,
            // They end when they have had their share of a CPU.
            Left::Running => limit = Instant::now() + LIMIT,
            Left::Waiting if Instant::now() >= limit => return false,
            Left::Waiting => {}
        }
        // The Gs need the time to end: rounds take only a part of it, however many Gs there are.
        sleep(ROUND.max(took * PAUSE));
    }
}

/// A program that was started. Dropping this does not stop the program.
pub struct Run {
    id: ProgramId,
    instance: &'static Instance,
    over: Shared<Over>,
}

impl Run {
    /// Its number, which its Gs carry.
    #[must_use]
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// Waits until it has ended and none of its Gs is left. Blocks this G only.
    #[must_use]
    pub fn wait(self) -> Ended {
        self.over.wait(self.id, None).expect("there is no limit")
    }

    /// As [`wait`](Self::wait), until `limit` at most. One G at a time.
    #[must_use]
    pub fn wait_until<'l>(&self, limit: impl Into<Limit<'l>>) -> Option<Ended> {
        limit.into().during(|deadline_ns| self.over.wait(self.id, Some(deadline_ns)))
    }

    /// How it has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.over.how()
    }

    /// Ends it, if its end is not decided yet. Does not wait for it.
    pub fn stop(&self) {
        self.instance.end(self.id, Ended::Stopped);
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}: {:?}", self.id, self.ended())
    }
}

/// The outcome, from the supervisor to the G that waits.
struct Over(IrqLock<(Option<Ended>, Option<GHandle>)>);

impl Over {
    fn complete(&self, how: Ended) {
        let mut over = self.0.lock();
        over.0 = Some(how);
        let waiter = over.1.take();
        drop(over);
        waiter.into_iter().for_each(door::ready);
    }

    fn how(&self) -> Option<Ended> {
        self.0.lock().0
    }

    /// For one G at a time.
    fn wait(&self, id: ProgramId, deadline_ns: Option<u64>) -> Option<Ended> {
        let (wait, mut in_time) = (Wait::new(Reason::ProgramEnd, id.number() as usize), true);
        loop {
            let mut over = self.0.lock();
            if over.0.is_some() || !in_time {
                return over.0;
            }
            over.1 = Some(door::begin_park(wait));
            drop(over);
            in_time = queue::park_by(deadline_ns);
            if self.how().is_none() && door::is_killed() {
                door::die();
            }
        }
    }
}

/// The arguments of all programs. A program may keep its own for ever, so they are never freed; but
/// each distinct list is kept once.
static ALL_ARGS: Mutex<Vec<&'static [String]>> = Mutex::new(Vec::new());

/// The same words, never freed. `None`: no memory.
fn keep_args(words: Vec<String>) -> Option<&'static [String]> {
    if words.is_empty() {
        return Some(&[]);
    }
    // A G that failed here has left the list as it was.
    let mut all = ALL_ARGS.lock().or_else(|error| error.guard().ok_or(())).ok()?;
    if let Some(known) = all.iter().find(|args| **args == words) {
        return Some(known);
    }
    all.try_reserve(1).ok()?;
    all.push(words.leak());
    all.last().copied()
}

text_enum! {
    /// Why a program was not started.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub error StartError {
        Unknown => "no program of this name in this image",
        Spawn(error: SpawnError) => "{error}",
        Share(error: ShareError) => "{error}",
    }
}

impl From<ShareError> for StartError {
    fn from(error: ShareError) -> Self {
        StartError::Share(error)
    }
}

impl From<SpawnError> for StartError {
    fn from(error: SpawnError) -> Self {
        StartError::Spawn(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn run(main: fn()) -> Ended {
        let run =
            start_program(Program::new("test", main), Vec::new(), Share::DEFAULT).expect("memory");
        assert!(run.id() > ProgramId::BOOT);
        run.wait()
    }

    #[test]
    fn a_program_ends_as_its_main_does() {
        assert_eq!(run(|| ()), Ended::Code(0));
        assert_eq!(run(|| panic!("no")), Ended::Panicked);
    }

    #[test]
    fn a_program_that_is_stopped_is_over() {
        static GATE: sync::Semaphore = sync::Semaphore::new(0);
        let waits = Program::new("waits", || GATE.acquire(1));
        let run = start_program(waits, Vec::new(), Share::DEFAULT).expect("memory");
        assert_eq!(run.ended(), None);
        run.stop();
        run.stop();
        assert_eq!(run.wait_until(Duration::from_secs(600)), Some(Ended::Stopped));
        assert_eq!(run.wait(), Ended::Stopped);
        GATE.release(1); // threads are not killed
    }

    #[test]
    fn what_is_said_again_is_kept_once_whoever_is_told() {
        let words = |last: &str| vec![String::from("again"), String::from(last)];
        let (one, two) =
            (keep_args(words("1")).expect("memory"), keep_args(words("2")).expect("memory"));
        assert_eq!((one, two), (&words("1")[..], &words("2")[..]));
        for _ in 0..3 {
            assert!(core::ptr::eq(one, keep_args(words("1")).expect("memory")));
            assert!(core::ptr::eq(two, keep_args(words("2")).expect("memory")));
        }
    }

    #[test]
    fn a_wait_with_a_limit_ends() {
        static GATE: sync::Semaphore = sync::Semaphore::new(0);
        let waits = Program::new("waits", || GATE.acquire(1));
        let run = start_program(waits, Vec::new(), Share::DEFAULT).expect("memory");
        assert_eq!(run.wait_until(Duration::from_millis(1)), None);
        GATE.release(1);
        assert_eq!(run.wait(), Ended::Code(0));
    }

    #[test]
    fn an_unknown_program_is_not_started() {
        assert_eq!(start("nobody", Vec::new()).map(drop), Err(StartError::Unknown));
    }
}
