//! What the kernel keeps with each G, and how reports show the running G.
//!
//! Nearly all of it belongs to the G's holder: the CPU that sets it up, runs it, or recycles it
//! (see `sched::Status`). Fields that other CPUs may read are atomic.

use super::account::Account;
use super::error::Filled;
use super::kill::KillRequest;
use super::m::M;
use super::sys::PANICKING;
use super::timer::{self, Timed};
use super::waiting::Wait;
use super::{
    BOOT, InlineCell, Instance, Kind, Label, Link, Permit, Record, Work, hooks,
    ready_from_interrupt, running,
};
use crate::arch;
use crate::mem::stack::Stack;
use core::cell::Cell;
use core::fmt;
use core::panic::Location;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use sched::G;

/// Names one life of a G.
pub type GHandle = sched::Handle<Task>;

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
    /// Its name and spawn site; set between two lives.
    pub(crate) label: Label,
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
            label: Label::new(),
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
        }
    }

    /// A life begins: sets its work, name, spawn site and program.
    #[inline(always)]
    pub(crate) fn init_g(
        &self,
        work: Work,
        name: &'static str,
        site: &'static Location<'static>,
        program: Option<&'static Instance>,
    ) {
        // A dead G has no work; so the old value is not checked for one to be dropped.
        core::mem::forget(self.work.replace(Some(work)));
        self.label.set(name, site);
        self.program.set(program);
        self.panics.set(0);
        self.full.set(None);
        self.slices.set(0);
        self.account.open(arch::cycles());
        self.waiting.store(0, Relaxed);
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

    /// The wait that it has begun has a deadline. The G itself only.
    pub(crate) fn waits_until_some_time(&self) {
        let wait = Wait::unpack(self.waiting.load(Relaxed)).with_deadline();
        self.waiting.store(wait.pack(), Relaxed);
    }
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

    fn due(&'static self, _: u64) {
        hooks::event(Kind::Fire, self.id(), 0);
        ready_from_interrupt(self.handle());
    }
}

/// The G that runs on this CPU, for reports.
pub fn current() -> Option<Running> {
    running().map(Running)
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
        // SAFETY: it runs on this CPU, so this life is not over.
        let (name, site) = unsafe { g.kernel.label.get(|| true) }.unwrap_or_default();
        if !name.is_empty() {
            write!(f, " \"{name}\"")?;
        }
        site.map_or(Ok(()), |site| write!(f, " (spawned at {site})"))
    }
}

/// Records that the running G panics: returns how many of its panics are under way now. `None` if a
/// G may not unwind here.
pub fn begin_panic() -> Option<u32> {
    let g = running().filter(|_| arch::irq::enabled())?;
    g.kernel.panics.set(g.kernel.panics.get() + 1);
    g.kernel.name.fetch_or(PANICKING, Relaxed);
    Some(g.kernel.panics.get())
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
