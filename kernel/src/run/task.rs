//! What the kernel keeps with each G, and how reports show the running G.
//!
//! Nearly all of it belongs to the G's holder: the CPU that sets it up, runs it, or recycles it
//! (see `sched::Status`). Fields that other CPUs may read are atomic.

use super::account::{CpuTimes, add, at, is_full, sub, to_ns};
use super::attached::Attached;
use super::error::Filled;
use super::kill::KillRequest;
use super::m::M;
use super::sys::PANICKING;
use super::timer::{self, Timed};
use super::waiting::Wait;
use super::{
    BOOT, InlineCell, Instance, Link, Name, Permit, Record, Work, running, running_or_none,
};
use crate::arch;
use crate::arch::lock::IrqLock;
use crate::mem::stack::Stack;
use alloc::borrow::Cow;
use alloc::string::String;
use core::cell::Cell;
use core::fmt;
use core::panic::Location;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};
use sched::{G, Status};

/// Names one life of a G.
pub type GHandle = sched::Handle<Task>;

/// The name of a G, and where it was spawned.
pub(crate) type Label = (Cow<'static, str>, Option<&'static Location<'static>>);

/// Of a name that the G has given itself, so many bytes are shown to others.
const SHOWN: usize = 64;

/// Held to read such a name from outside, and to change it: it is freed afterwards.
static NAMES: IrqLock<()> = IrqLock::new(());

pub struct Task {
    /// Where its stack pointer was when it left its CPU.
    pub(crate) sp: Cell<usize>,
    pub(crate) stack: Cell<Option<Stack>>,
    pub(crate) work: Cell<Option<Work>>,
    /// Holds the work of one life after another, if it is small. A result that was not joined or
    /// dropped yet stays here beyond its life, and the next life uses the heap.
    pub(crate) place: InlineCell,
    /// The M on whose stack it is: it is in a blocking call.
    pub(crate) m: Link<M>,
    /// Its name and spawn site, for reports; set between two lives, read by any CPU
    /// ([`Task::label`]).
    label: Name,
    site: Link<Location<'static>>,
    /// How many of its panics are under way, and the flags from [`REPORTS`] on.
    panics: Cell<u32>,
    /// Its stack, or that of its M, has been full, in this life.
    pub(crate) full: Cell<Option<Filled>>,
    pub(crate) slices: Cell<u64>,
    /// Where its time goes. Atomic: any CPU reads it.
    pub(crate) account: Account,
    /// Its name in lock words (`wait::held`). Atomic: read by itself, or from outside; changed when
    /// it panics, or is abandoned.
    pub(crate) name: AtomicU64,
    /// Guarded by the lock of the sleepers.
    timer: timer::Node,
    /// Left by an unpark. Atomic: any G gives it.
    pub(crate) permit: Permit,
    /// Its place among all Gs. Constant since it was made.
    older: Link<G<Task>>,
    /// The next record of its chain (`roster`). Written under the lock there, read by any CPU.
    pub(crate) same_chain: Link<G<Task>>,
    /// Its last [`Wait`], packed. Written by the G itself, read by any CPU.
    pub waiting: AtomicU64,
    /// Its program, if not the booted one; set between two lives, or by the G itself.
    pub(crate) program: Link<Instance>,
    pub(crate) kill: KillRequest,
    pub(crate) attached: Attached,
    /// The limit of its wait has ended before its deadline (`wait::limit`). Atomic: set by the G
    /// that cancels.
    limit_over: AtomicBool,
}

// SAFETY: the cells are touched by the holder of the G only, and ownership of a G moves through the
// queues and the state word of `sched`, which order what the old holder did before what the new one
// does.
unsafe impl Sync for Task {}

impl Task {
    /// For a new G; `name` is its name in lock words.
    pub(crate) const fn new(name: u64) -> Self {
        Task {
            sp: Cell::new(0),
            stack: Cell::new(None),
            work: Cell::new(None),
            place: InlineCell::new(),
            m: Link::new(),
            label: Name::new(),
            site: Link::new(),
            panics: Cell::new(0),
            full: Cell::new(None),
            slices: Cell::new(0),
            account: Account::new(),
            name: AtomicU64::new(name),
            timer: timer::Node::new(),
            permit: Permit::new(),
            older: Link::new(),
            same_chain: Link::new(),
            waiting: AtomicU64::new(0),
            program: Link::new(),
            kill: KillRequest::new(),
            attached: Attached::new(),
            limit_over: AtomicBool::new(false),
        }
    }

    /// For `NO_G`, which no code runs as: it is unusual.
    pub(crate) const fn no_g(name: u64) -> Self {
        let mut task = Task::new(name);
        task.kill = KillRequest::of_no_g();
        task
    }

    /// Whether a yield has more to do than to switch, in one test: a kill was requested, the G is
    /// in a call, or there is no G.
    #[inline(always)]
    pub(crate) fn is_unusual(&self) -> bool {
        self.kill.word() | self.m.addr() as u64 != 0
    }

    /// A life begins: sets its work, name, spawn site and program. It is queued `since` then.
    #[inline(always)]
    pub(crate) fn init_g(
        &self,
        work: Work,
        name: &'static str,
        site: &'static Location<'static>,
        program: Option<&'static Instance>,
        since: u64,
    ) {
        // A dead G has no work; so the old value is not checked for one to be dropped.
        core::mem::forget(self.work.replace(Some(work)));
        self.label.set(name);
        self.site.set(Some(site));
        self.program.set(program);
        self.panics.set(0);
        self.full.set(None);
        self.slices.set(0);
        self.waiting.store(0, Relaxed);
        let Account { cpu, queued, waiting, switches, .. } = &self.account;
        for word in [cpu, queued, waiting, switches] {
            word.store(0, Relaxed);
        }
        self.account.since.store(since, Relaxed);
    }

    /// Name and spawn site of a life that the caller has seen begun; `None` if `is_same`, which is
    /// asked after both were read, says that it is over. If one of them is of a later life, the end
    /// of the earlier is seen: each is stored after that, by a Release, and read by an Acquire.
    pub(crate) fn label(&self, is_same: impl FnOnce() -> bool) -> Option<Label> {
        let name = match self.label.get() {
            Some(name) => Cow::Borrowed(name),
            None => self.copy_name(),
        };
        let site = self.site.get();
        is_same().then_some((name, site))
    }

    /// The beginning of a name that will be freed. Of no letters where there is no memory for a copy: a
    /// scan for deadlocks, on an M, must not fail for a name. A CPU that has stopped all others needs
    /// neither copy nor lock, which one of them may hold.
    fn copy_name(&self) -> Cow<'static, str> {
        let shown = |name: &'static str| &name[..name.floor_char_boundary(SHOWN)];
        if arch::has_stopped_others() {
            // SAFETY: no CPU frees it any more.
            return Cow::Borrowed(shown(unsafe { self.label.read() }));
        }
        let mut copy = String::new();
        if copy.try_reserve_exact(SHOWN).is_ok() {
            let _names = NAMES.lock();
            // SAFETY: it is freed only after the lock was taken to set another.
            copy.push_str(shown(unsafe { self.label.read() }));
        }
        Cow::Owned(copy)
    }

    /// Name and spawn site as its holder sees them.
    ///
    /// # Safety
    /// The caller holds the G, or runs as it, as long as the name is used: nothing else changes it.
    pub(crate) unsafe fn own_label<'a>(&self) -> (&'a str, Option<&'static Location<'static>>) {
        // SAFETY: the caller's promise.
        (unsafe { self.label.read() }, self.site.get())
    }

    #[inline(always)]
    pub(crate) fn count_slice(&self) {
        self.slices.set(self.slices.get() + 1);
    }

    pub(crate) fn program(&self) -> &'static Instance {
        self.program.get().unwrap_or(&BOOT)
    }

    /// The number of the reason for which it waits, or has waited last.
    #[inline(always)]
    pub(crate) fn reason(&self) -> u8 {
        Wait::reason_number(self.waiting.load(Relaxed))
    }

    /// Whether a kill of life `id` was requested, and it will end when it is woken: it does not
    /// unwind.
    pub(crate) fn ends_when_woken(&self, id: u64) -> bool {
        self.kill.is_for(id) && !self.unwinds()
    }

    /// Whether a panic of it is under way. Any CPU may ask.
    pub(crate) fn unwinds(&self) -> bool {
        self.name.load(Relaxed) & PANICKING != 0
    }

    /// Whether a panic of it is under way. The G itself only.
    pub(crate) fn is_panicking(&self) -> bool {
        self.panics.get() > 0
    }

    /// Whether [`end_limit`] was called since its limited wait began. The G itself only.
    pub(crate) fn is_limit_over(&self) -> bool {
        self.limit_over.load(SeqCst)
    }

    /// The wait that it has begun has a deadline. The G itself only.
    pub(crate) fn waits_until_some_time(&self) {
        let wait = Wait::unpack(self.waiting.load(Relaxed)).with_deadline();
        self.waiting.store(wait.pack(), Relaxed);
    }
}

/// Where the time of one life of a G went. Written by its holder (see `sched::Status`), read by any
/// CPU: each word is whole, two of them may be of two moments.
pub struct Account {
    /// The cycle counter when it last began to wait for a CPU, or wait.
    pub(super) since: AtomicU64,
    /// How many cycles it has run; while it runs, less the counter when it began, which is below
    /// zero: so a begin and an end are one addition each, and one word says whether it runs.
    pub(super) cpu: AtomicU64,
    // In cycles, up to `since`.
    pub(super) queued: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) switches: AtomicU64,
}

impl Account {
    pub(crate) const fn new() -> Self {
        let [since, cpu, queued, waiting, switches] = [const { AtomicU64::new(0) }; 5];
        Account { since, cpu, queued, waiting, switches }
    }

    /// The G begins to run.
    #[inline(always)]
    pub(crate) fn begins(&self, now: u64) {
        sub(&self.cpu, now);
    }

    /// The G has left its CPU; returns when.
    #[inline(always)]
    pub(crate) fn left(&self, now: u64) -> u64 {
        self.since.store(now, Relaxed);
        add(&self.cpu, now);
        add(&self.switches, 1);
        now
    }

    /// Full accounting: the G was queued, and begins to run on that CPU.
    pub(crate) fn was_queued(&self, cpu: &CpuTimes, now: u64) {
        let cycles = self.lap(now);
        add(&self.queued, cycles);
        cpu.queue_wait.count(cycles);
    }

    /// Full accounting: the G was parked, and is queued from now on.
    pub(crate) fn has_waited(&self, now: u64) {
        add(&self.waiting, self.lap(now));
    }

    /// The cycles since the last change of its state.
    fn lap(&self, now: u64) -> u64 {
        let cycles = now.wrapping_sub(self.since.load(Relaxed));
        self.since.store(now, Relaxed);
        cycles
    }

    pub(crate) fn since(&self) -> u64 {
        self.since.load(Relaxed)
    }

    pub fn switches(&self) -> u64 {
        self.switches.load(Relaxed)
    }

    /// All times up to this moment, if the G's status is `status`. If the G changes its state
    /// meanwhile, one column or two are a little off.
    pub fn times(&self, status: Status) -> Times {
        let [cpu_ns, queued_ns, waiting_ns] = self.cycles_at(status, arch::cycles()).map(to_ns);
        let full = |ns| is_full().then_some(ns);
        Times { cpu_ns, queued_ns: full(queued_ns), waiting_ns: full(waiting_ns) }
    }

    pub(super) fn cycles_at(&self, status: Status, now: u64) -> [u64; 3] {
        let [queued, waiting] = [&self.queued, &self.waiting].map(|word| word.load(Relaxed));
        let cpu = at(&self.cpu, now);
        let under_way = now.wrapping_sub(self.since.load(Relaxed));
        match status {
            Status::Runnable => [cpu, queued.wrapping_add(under_way), waiting],
            Status::Parked => [cpu, queued, waiting.wrapping_add(under_way)],
            Status::Dead | Status::Running | Status::Parking | Status::Woken => {
                [cpu, queued, waiting]
            }
        }
    }
}

/// Where the time of a G went, including its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// On a CPU.
    pub cpu_ns: u64,
    /// Runnable, and waiting for a CPU; with full accounting.
    pub queued_ns: Option<u64>,
    /// Waiting for something else; with full accounting.
    pub waiting_ns: Option<u64>,
}

/// Ends the limited wait of a G, or its next: [`park_until`](super::park_until) returns false. Then
/// the caller readies it.
pub fn end_limit(g: &GHandle) {
    g.parts().0.kernel.limit_over.store(true, SeqCst);
    fence(SeqCst); // stored before `ready` reads the G's state: see `park_until`
}

/// The running G begins or ends a limited wait, which is over already or not.
pub fn set_limit_over(is_over: bool) {
    running().expect("no G to wait").kernel.limit_over.store(is_over, SeqCst);
}

/// Whether the limited wait of the running G was ended ([`end_limit`]).
pub fn is_limit_over() -> bool {
    running().is_some_and(|g| g.kernel.is_limit_over())
}

impl Record for G<Task> {
    fn older(&self) -> &Link<Self> {
        &self.kernel.older
    }
}

impl Timed for G<Task> {
    fn timer(&'static self) -> &'static timer::Node {
        &self.kernel.timer
    }

    fn due(&'static self, _: u64) -> Option<GHandle> {
        Some(self.handle())
    }
}

/// The G that runs on this CPU, for reports.
pub fn current() -> Option<Running> {
    running().map(Running)
}

/// Gives the running G a name that will be freed.
///
/// # Safety
/// It is there until another name was set, or the G was abandoned.
#[cfg_attr(not(target_os = "none"), expect(unused_variables, reason = "threads have no record"))]
pub unsafe fn set_own_name(name: &str) {
    #[cfg(target_os = "none")]
    {
        let _names = NAMES.lock();
        running().expect("no G to name").kernel.label.set_owned(name);
    }
}

/// Takes that name from the running G, if it has one.
pub fn clear_own_name() {
    #[cfg(target_os = "none")]
    if let Some(g) = running().filter(|g| g.kernel.label.get().is_none()) {
        let _names = NAMES.lock();
        g.kernel.label.set("");
    }
}

/// What is attached to the running G. The G itself only.
pub fn attached<R>(f: impl FnOnce(&Attached) -> R) -> R {
    f(&running().expect("no G to attach to").kernel.attached)
}

/// Whether anything is.
#[inline(always)]
pub fn has_attached() -> bool {
    !running_or_none().kernel.attached.is_empty()
}

/// Whether the running G is in a blocking call, on the stack of an M.
pub fn is_in_call() -> bool {
    running().is_some_and(|g| g.kernel.m.get().is_some())
}

pub struct Running(pub(crate) &'static G<Task>);

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running(g) = self;
        write!(f, "G {}", g.id())?;
        // SAFETY: the G runs here, or this CPU finishes it.
        let (name, site) = unsafe { g.kernel.own_label() };
        if !name.is_empty() {
            write!(f, " \"{name}\"")?;
        }
        site.map_or(Ok(()), |site| write!(f, " (spawned at {site})"))
    }
}

/// Which panic of its G one is, of those under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichPanic {
    First,
    /// In a destructor that an unwinding runs, or in a hook.
    Nested,
    /// While the one before is reported.
    InReport,
    /// While that is reported.
    InLastReport,
}

/// In [`Task::panics`], above their number: which report is under way.
const REPORTS: u32 = 1 << 31;
const REPORTS_LAST: u32 = 1 << 30;
/// Likewise: its program's hook runs.
const IN_HOOK: u32 = 1 << 29;

/// Records that the running G panics. `None` if a G may not unwind here.
pub fn begin_panic() -> Option<WhichPanic> {
    let g = running().filter(|_| arch::irq::enabled())?;
    let panics = g.kernel.panics.get();
    g.kernel.panics.set(panics + 1);
    g.kernel.name.fetch_or(PANICKING, Relaxed);
    Some(match panics {
        0 => WhichPanic::First,
        _ if panics & REPORTS_LAST != 0 => WhichPanic::InLastReport,
        _ if panics & REPORTS != 0 => WhichPanic::InReport,
        _ => WhichPanic::Nested,
    })
}

/// The panic that has begun is reported by `report`, which does not unwind.
pub fn report_panic(report: impl FnOnce()) {
    flagged(REPORTS, report);
}

/// As [`report_panic`], where the G is abandoned afterwards.
pub fn report_last_panic(report: impl FnOnce()) {
    flagged(REPORTS_LAST, report);
}

/// The panic that has begun is given to `hook`, which does not unwind: it catches what does.
pub fn during_hook<R>(hook: impl FnOnce() -> R) -> R {
    flagged(IN_HOOK, hook)
}

/// Whether the running G is in [`during_hook`].
pub fn is_in_hook() -> bool {
    panics().is_some_and(|panics| panics.get() & IN_HOOK != 0)
}

fn flagged<R>(flag: u32, f: impl FnOnce() -> R) -> R {
    let Some(panics) = panics() else { return f() };
    panics.set(panics.get() | flag);
    let result = f();
    panics.set(panics.get() & !flag);
    result
}

/// [`Task::panics`] of the running G. (On the host, threads have no record.)
fn panics() -> Option<&'static Cell<u32>> {
    if cfg!(target_os = "none") { running().map(|g| &g.kernel.panics) } else { None }
}

pub fn is_panicking() -> bool {
    running().is_some_and(|g| g.kernel.is_panicking())
}

pub fn end_panic() {
    if let Some(g) = running() {
        g.kernel.panics.set(g.kernel.panics.get().saturating_sub(1));
        if !g.kernel.is_panicking() {
            g.kernel.name.fetch_and(!PANICKING, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::pair;
    use crate::run::unwind::Caught;

    #[test]
    fn a_new_life_begins_with_its_label_and_no_times() {
        let (task, here) = (Task::new(0), Location::caller());
        let begin = |name, since| {
            let Ok((work, joiner)) = pair(Caught(|| ())) else { panic!("no memory") };
            task.init_g(work, name, here, None, since);
            drop((task.work.take(), joiner));
        };
        begin("first", 5);
        task.account.has_waited(7);
        task.account.begins(8);
        task.account.left(9);
        assert_eq!(task.account.cycles_at(Status::Dead, 9), [1, 0, 2]);
        assert_eq!(task.label(|| true), Some(("first".into(), Some(here))));
        begin("second", 100);
        assert_eq!(task.account.cycles_at(Status::Runnable, 103), [0, 3, 0]);
        assert_eq!((task.account.switches(), task.account.since()), (0, 100));
        assert_eq!(task.label(|| true), Some(("second".into(), Some(here))));
        assert_eq!(task.label(|| false), None);
        let long = String::from("ü").repeat(SHOWN);
        task.label.set_owned(&long);
        assert_eq!(task.label(|| true), Some(("ü".repeat(SHOWN / 2).into(), Some(here))));
    }
}
