//! One run of a program: what its Gs have in common.
//!
//! Every G belongs to one [`Instance`], and the Gs that it starts belong to the same. How it ends
//! is decided once ([`Instance::end`]), and its supervisor, which waits for it, does the rest
//! (`run`). Two always exist: the kernel's own ([`KERNEL`]) and that of the booted program
//! ([`BOOT`]); neither has a supervisor, and when the second ends, so does the machine. The others
//! are used for one run after another and never freed, as Gs are.
#![forbid(unsafe_code)]

use super::payload::Hook;
use super::poller::PollDesc;
use super::share::{Share, ShareError, Shared};
use super::{GHandle, Link, Record, Registry, door};
use crate::arch::lock::IrqLock;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use sched::ShareLane;

/// Names one run of a program; unique in this boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(u32);

impl ProgramId {
    /// The kernel's own Gs.
    pub const KERNEL: ProgramId = ProgramId(0);
    /// The program that was booted.
    pub const BOOT: ProgramId = ProgramId(1);

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Its main returned (0), or one of its Gs called `exit`.
    Code(u32),
    /// Its main panicked.
    Panicked,
    /// All of its Gs waited for each other.
    Deadlock,
    /// Another G stopped it.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "exit {code}"),
            Ended::Panicked => f.write_str("panicked"),
            Ended::Deadlock => f.write_str("deadlock"),
            Ended::Stopped => f.write_str("stopped"),
        }
    }
}

/// The kernel's service Gs: they belong to no program, may wait for any G, and are never killed.
pub static KERNEL: Instance = Instance::new(ProgramId::KERNEL);

/// The booted program. Code that runs on no G belongs to it.
pub static BOOT: Instance = Instance::new(ProgramId::BOOT);

static ALL: Registry<Instance> = Registry::new();

static NEXT: AtomicU32 = AtomicU32::new(ProgramId::BOOT.0 + 1);

/// In [`Instance::main`].
const EXITED: u64 = u64::MAX;

/// One run of a program; or none, and free for the next.
pub struct Instance {
    /// The number of the current run, or of the last.
    id: AtomicU32,
    /// Mirrors the phase, for the path that starts Gs.
    is_ending: AtomicBool,
    /// The number of main's G, 0 before it has begun, [`EXITED`] when it has called `goexit`.
    main: AtomicU64,
    /// A stamp of its Gs when the watcher (`deadlock`) last saw them wait for each other; else 0.
    pub(crate) last_stamp: AtomicU64,
    shared: Shared,
    run: IrqLock<Run>,
    /// Readied when the end is decided; its supervisor waits for it.
    decided: PollDesc,
    older: Link<Instance>,
}

struct Run {
    name: &'static str,
    args: &'static [String],
    phase: Phase,
    /// A G of it that waited for the clock or a device at the last scan: while it does, there is no
    /// deadlock.
    outside_wait: Option<GHandle>,
    /// Called when one of its Gs panics.
    hook: Option<Hook>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Free,
    Running,
    /// Its end is decided; some of its Gs may not have ended yet.
    Ending(Ended),
}

impl Record for Instance {
    fn older(&self) -> &Link<Self> {
        &self.older
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}", self.id())
    }
}

impl Instance {
    const fn new(id: ProgramId) -> Self {
        let phase = if id.0 <= ProgramId::BOOT.0 { Phase::Running } else { Phase::Free };
        let run = Run { name: "", args: &[], phase, outside_wait: None, hook: None };
        Instance {
            id: AtomicU32::new(id.0),
            is_ending: AtomicBool::new(false),
            main: AtomicU64::new(0),
            last_stamp: AtomicU64::new(0),
            shared: Shared::new(),
            run: IrqLock::new(run),
            decided: PollDesc::new(),
            older: Link::new(),
        }
    }

    /// A free instance, for a run of the program called `name`. `None`: no memory.
    pub(crate) fn take(name: &'static str, args: &'static [String]) -> Option<&'static Instance> {
        let id = NEXT.fetch_add(1, Relaxed);
        // Phase and number change together: a stop of the last run must not find this one under its
        // number.
        let claim = |instance: &Instance| {
            let mut run = instance.run.lock();
            let is_free = run.phase == Phase::Free;
            if is_free {
                (run.phase, run.name, run.args) = (Phase::Running, name, args);
                instance.id.store(id, Relaxed);
                instance.main.store(0, Relaxed);
            }
            is_free
        };
        ALL.iter().find(|instance| claim(instance)).or_else(|| {
            let new = for_ever(Instance::new(ProgramId(id)))?;
            claim(new);
            ALL.add(&[new]);
            Some(new)
        })
    }

    /// It gets that share of the CPUs from now on. Before its first G is started; that of a booted
    /// program that is given none is outside the shares.
    pub(crate) fn set_share(&self, share: Share) -> Result<(), ShareError> {
        self.shared.begin(share)
    }

    /// Its share of the CPUs; `None` for a program outside the shares.
    pub fn share(&self) -> Option<Share> {
        self.shared.share()
    }

    pub(crate) fn lane(&self) -> Option<ShareLane> {
        self.shared.lane()
    }

    /// Some of its Gs are left behind, and wait for ever.
    pub(crate) fn leave_shares(&self) {
        self.shared.end();
    }

    /// Its Gs are to end, and should not wait for CPUs.
    pub(crate) fn hurry(&self) {
        self.shared.hurry();
    }

    /// Its run is over and no G of it is left.
    pub(crate) fn free(&self) {
        self.shared.end();
        let mut run = self.run.lock();
        run.outside_wait = None;
        run.phase = Phase::Free;
        self.is_ending.store(false, Relaxed);
    }

    pub fn id(&self) -> ProgramId {
        ProgramId(self.id.load(Relaxed))
    }

    pub fn name(&self) -> &'static str {
        self.run.lock().name
    }

    /// Its arguments; those of the booted program are in the options.
    pub fn args(&self) -> &'static [String] {
        self.run.lock().args
    }

    /// Whether it was started by another program: then its end does not end the machine.
    pub fn is_started(&self) -> bool {
        self.id() > ProgramId::BOOT
    }

    pub(crate) fn set_booted(&self, name: &'static str, args: &'static [String]) {
        let mut run = self.run.lock();
        (run.name, run.args) = (name, args);
    }

    /// The calling G runs its main function.
    pub(crate) fn main_begins(&self) {
        self.main.store(door::current_id(), Relaxed);
    }

    /// Its main has called `goexit`: the other Gs go on.
    pub(crate) fn main_exits(&self) {
        self.main.store(EXITED, Relaxed);
    }

    pub(crate) fn has_no_main(&self) -> bool {
        self.main.load(Relaxed) == EXITED
    }

    pub(crate) fn is_main(&self, g: u64) -> bool {
        self.main.load(Relaxed) == g
    }

    /// Whether its end is decided, and it is not over yet. One load.
    #[inline(always)]
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    pub fn is_running(&self) -> bool {
        self.run.lock().phase == Phase::Running
    }

    /// Decides how run `id` ends, unless that is decided, and wakes its supervisor. True if this
    /// was the decision. Any context.
    pub(crate) fn end(&self, id: ProgramId, how: Ended) -> bool {
        let mut run = self.run.lock();
        if self.id() != id || run.phase != Phase::Running {
            return false;
        }
        run.phase = Phase::Ending(how);
        self.is_ending.store(true, Relaxed);
        drop(run);
        self.decided.ready();
        true
    }

    /// Waits until the end is decided. The supervisor only.
    pub(crate) fn wait_for_end(&self) -> Ended {
        loop {
            if let Phase::Ending(how) = self.run.lock().phase {
                return how;
            }
            let _ = self.decided.wait(None); // an edge may be that of an earlier run
        }
    }

    pub(crate) fn hook(&self) -> Option<Hook> {
        self.run.lock().hook.clone()
    }

    /// Returns the old one, whose destructor is the program's.
    pub(crate) fn set_hook(&self, hook: Option<Hook>) -> Option<Hook> {
        core::mem::replace(&mut self.run.lock().hook, hook)
    }

    pub(crate) fn outside_wait(&self) -> Option<GHandle> {
        self.run.lock().outside_wait.clone()
    }

    pub(crate) fn set_outside_wait(&self, outside_wait: Option<GHandle>) {
        self.run.lock().outside_wait = outside_wait;
    }
}

/// Allocates a record that is never freed. `None`: no memory.
pub(crate) fn for_ever<T>(record: T) -> Option<&'static T> {
    let mut place = Vec::new();
    place.try_reserve_exact(1).ok()?;
    place.push(record);
    Some(&place.leak()[0])
}

/// All runs that are under way, without the kernel's.
pub(crate) fn running() -> impl Iterator<Item = &'static Instance> {
    ALL.iter().chain(core::iter::once(&BOOT)).filter(|instance| instance.is_running())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_counts_and_only_for_its_own_run() {
        let instance = Instance::take("a", &[]).expect("memory");
        let id = instance.id();
        assert!(instance.is_running() && instance.is_started());
        assert!(!instance.end(ProgramId::BOOT, Ended::Stopped), "another run's");
        assert!(instance.end(id, Ended::Code(3)));
        assert!(!instance.end(id, Ended::Stopped), "decided already");
        assert_eq!(instance.wait_for_end(), Ended::Code(3));
        assert!(!instance.is_running());
        instance.free();
        assert!(!instance.end(id, Ended::Stopped), "it is over");
    }

    #[test]
    fn whoever_waits_for_the_end_is_told() {
        let instance = Instance::take("b", &[]).expect("memory");
        let waiter = std::thread::spawn(|| instance.wait_for_end());
        std::thread::yield_now();
        assert!(instance.end(instance.id(), Ended::Deadlock));
        assert_eq!(waiter.join().unwrap(), Ended::Deadlock);
        instance.free();
    }

    #[test]
    fn no_two_runs_have_the_same_instance_or_number() {
        let words: &'static [String] = vec![String::from("word")].leak();
        let one = Instance::take("c", words).expect("memory");
        let two = Instance::take("c", words).expect("memory");
        assert!(!core::ptr::eq(one, two));
        assert_ne!(one.id(), two.id());
        assert_eq!((one.name(), one.args()), ("c", words));
        assert!(two.end(two.id(), Ended::Stopped));
        assert!(one.is_running(), "the other's end is not its own");
        two.free();
        assert!(one.end(one.id(), Ended::Stopped));
        one.free();
    }
}
