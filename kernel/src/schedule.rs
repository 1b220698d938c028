//! What every M runs: find a G, switch to it, deal with how it came back.
//!
//! `sched` decides, this file acts: it switches stacks, sends the wake-ups and
//! halts. Each CPU has one [`M`], whose stack is the one it came up on; the
//! M holds the CPU's P. A G leaves its CPU by switching to the M's stack with a
//! word that says why ([`Leaving`]); the M, off the G's stack, tells `sched`.
//!
//! Interrupts are off on the M's stack and during every switch. A G runs with
//! interrupts on; it turns them off to touch the P of its CPU ([`with_p`]), so
//! that it stays on that CPU meanwhile.

use crate::arch;
use crate::cell::{Run as Work, Shared};
use crate::go::SpawnError;
use crate::mem::{self, stack::Stack};
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::panic::Location;
use sched::{G, List, Next, P, PSlot, Sched, Wake};

/// What the kernel keeps with each G. All of it belongs to the G's holder: the
/// CPU that sets it up, runs it, or lays it to rest (see `sched::Status`).
pub struct Task {
    /// Where its stack pointer was when it left its CPU.
    sp: Cell<usize>,
    stack: Cell<Option<Stack>>,
    work: Cell<Option<Shared<dyn Work>>>,
    name: Cell<&'static str>,
    site: Cell<Option<&'static Location<'static>>>,
    /// How many panics of it are under way.
    panics: Cell<u32>,
}

// SAFETY: the cells are touched by the holder of the G only, and a G changes
// hands through the queues and the state word of `sched`, which order what the
// old holder did before what the new one does. Reports read name and site of
// the G that runs on their own CPU, whose holder they are.
unsafe impl Sync for Task {}

impl Task {
    const fn new() -> Self {
        Task {
            sp: Cell::new(0),
            stack: Cell::new(None),
            work: Cell::new(None),
            name: Cell::new(""),
            site: Cell::new(None),
            panics: Cell::new(0),
        }
    }
}

/// Names one life of a G.
pub type GHandle = sched::Handle<Task>;

/// How a G is born: what its reports will say, and how large its stack may be.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Its name, or "".
    pub name: &'static str,
    /// Who started it.
    pub site: &'static Location<'static>,
    /// Bytes of addresses for its stack.
    pub stack: usize,
}

/// The execution context of a CPU. In this house an M never leaves its CPU.
struct M {
    /// Where its stack pointer was when it switched to a G.
    sp: Cell<usize>,
    /// Why the G that ran has come back.
    leaving: Cell<Leaving>,
    /// The P of this CPU, from `init_cpu` on.
    p: UnsafeCell<Option<P<Task>>>,
}

// SAFETY: touched by its own CPU only, with interrupts off.
unsafe impl Sync for M {}

impl M {
    /// Calls `f` with the P that this M holds.
    ///
    /// # Safety
    /// This is the M of the calling CPU, and interrupts are off. `f` does
    /// nothing but call `sched`, which calls nothing of ours: so there is no
    /// second borrow.
    unsafe fn with_p<R>(&self, f: impl FnOnce(&mut P<Task>) -> R) -> R {
        // SAFETY: the caller's promise.
        f(unsafe { &mut *self.p.get() }.as_mut().expect("no P here"))
    }
}

/// Why a G has switched to its M.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It lets others run.
    Yield,
    /// It has called `begin_park` and told somebody.
    Park,
    /// Its work is done.
    Exit,
}

static SLOTS: [PSlot<Task>; arch::MAX_CPUS] = [const { PSlot::new() }; arch::MAX_CPUS];
static SCHED: Sched<Task> = Sched::new(&SLOTS);
static MS: [M; arch::MAX_CPUS] =
    [const { M { sp: Cell::new(0), leaving: Cell::new(Leaving::Exit), p: UnsafeCell::new(None) } };
        arch::MAX_CPUS];

/// Seeds the order of stealing unless the command line does.
const DEFAULT_SEED: u64 = 1;

/// The per-CPU word that names the running G, 0 if none runs.
const G_SLOT: usize = 0;
/// The per-CPU word that says that memory needs upkeep.
const UPKEEP_SLOT: usize = 1;

/// Says how many Ps there are; once, before any CPU calls [`init_cpu`].
pub fn init(ps: Option<usize>) {
    // No CPU schedules yet that would have to notice.
    let _ = SCHED.set_limit(ps.unwrap_or(usize::MAX).min(arch::num_cpus()));
}

/// Gives this CPU its P.
pub fn init_cpu(seed: Option<u64>) {
    let cpu = arch::cpu_index();
    let p = SCHED.acquire(cpu, seed.unwrap_or(DEFAULT_SEED));
    assert!(p.is_some(), "P taken");
    // SAFETY: this CPU's own M, and nobody else looks at it yet.
    unsafe { *MS[cpu].p.get() = p };
}

/// The loop of an M, on the stack that the CPU came up on. Interrupts off.
pub fn mstart() -> ! {
    assert!(!arch::irqs_on(), "irqs on");
    let m = &MS[arch::cpu_index()];
    loop {
        schedule(m);
    }
}

/// One round: finds a G and runs it until it comes back, or halts.
fn schedule(m: &'static M) {
    if arch::slot::<UPKEEP_SLOT>() != 0 {
        upkeep();
    }
    // SAFETY: this CPU's own M, interrupts off.
    match unsafe { m.with_p(|p| SCHED.find_runnable(p, List::new)) } {
        Next::Run(run) => {
            send(run.wake);
            execute(m, run.g);
        }
        Next::Park(wake) => {
            send(wake);
            arch::wait_for_interrupt();
        }
    }
}

/// Gives memory its upkeep: the fault reserve, stacks nobody uses. With
/// interrupts on, as it may wait for the other CPUs; on the M's stack, so that
/// nobody takes us off this CPU meanwhile.
#[cold]
fn upkeep() {
    arch::set_slot::<UPKEEP_SLOT>(0);
    arch::irq_restore(true);
    mem::maintain();
    arch::irq_save();
}

/// Asks for [`mem::maintain`] at the next round of this CPU's M: a page fault has
/// drawn on the reserve. Any context.
pub fn ask_for_upkeep() {
    arch::set_slot::<UPKEEP_SLOT>(1);
}

/// Switches to `g`; when it has come back, puts it where it now belongs.
fn execute(m: &'static M, g: &'static G<Task>) {
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `leave`, and `sched`
    // gives a G to one CPU only, with its context saved. 2. As 1, and this M's
    // stack is entered by its own CPU only. 3. Interrupts are off.
    unsafe { arch::switch(m.sp.as_ptr(), g.kernel.sp.get()) };
    arch::set_slot::<G_SLOT>(0);
    let why = m.leaving.get();
    if why == Leaving::Exit {
        drop(g.kernel.stack.take());
        ask_for_upkeep();
    }
    let settle = |p: &mut P<Task>| match why {
        Leaving::Yield => SCHED.yielded(p, g),
        Leaving::Park => SCHED.parked(p, g),
        Leaving::Exit => {
            SCHED.exited(p, g);
            Wake::Nobody
        }
    };
    // SAFETY: this CPU's own M, interrupts off.
    send(unsafe { m.with_p(settle) });
}

/// Starts a G that does `work`.
///
/// # Errors
/// [`SpawnError`] when there is no memory for the G or its stack.
pub fn spawn(birth: Birth, work: Shared<dyn Work>) -> Result<(), SpawnError> {
    if birth.stack > mem::stack::MAX_SIZE {
        return Err(SpawnError::StackTooLarge);
    }
    let stack = Stack::new(birth.stack).map_err(|_| SpawnError::NoMemory)?;
    let g = match with_p(|p| SCHED.take_dead(p)) {
        Some(g) => g,
        None => new_g()?,
    };
    // SAFETY: the top of a stack that is this G's alone; its highest page is
    // committed by this first touch.
    let sp = unsafe { arch::prepare(stack.top() as usize, g_main, core::ptr::from_ref(g).addr()) };
    let task = &g.kernel;
    task.sp.set(sp);
    task.stack.set(Some(stack));
    task.work.set(Some(work));
    task.name.set(birth.name);
    task.site.set(Some(birth.site));
    task.panics.set(0);
    send(with_p(|p| SCHED.start(p, g, None)));
    Ok(())
}

/// A G that never was before. Never freed.
fn new_g() -> Result<&'static G<Task>, SpawnError> {
    let mut place = Vec::new();
    place.try_reserve_exact(1).map_err(|_| SpawnError::NoMemory)?;
    place.push(G::new(Task::new()));
    Ok(&place.leak()[0])
}

/// The root of every G.
extern "C" fn g_main(g: usize) -> ! {
    // SAFETY: `spawn` passed the address of this very G, which lives for ever.
    let g = unsafe { &*(g as *const G<Task>) };
    arch::irq_restore(true);
    if let Some(work) = g.kernel.work.take() {
        work.run();
    }
    leave(Leaving::Exit);
    unreachable!("an ended G runs")
}

/// Lets the other Gs of this P run first.
///
/// ```no_run
/// runnext::yield_now();
/// ```
pub fn yield_now() {
    leave(Leaving::Yield);
}

/// The first half of waiting: from here on [`ready`] is not lost. Call it
/// before letting others know that this G waits, and then [`park`].
pub fn begin_park() -> GHandle {
    let g = running().expect("no G to park");
    g.begin_park();
    g.handle()
}

/// The second half of waiting: leaves the CPU until somebody calls [`ready`].
pub fn park() {
    leave(Leaving::Park);
}

/// Makes a G that waits run again; one that does not wait is left alone.
pub fn ready(g: GHandle) {
    send(with_p(|p| SCHED.ready_handle(p, g)));
}

/// Switches from the running G to its M; returns when the G runs again.
fn leave(why: Leaving) {
    // A G that left with a lock held or interrupts off would take both along.
    assert!(arch::irqs_on(), "irqs off");
    let g = running().expect("no G to leave");
    arch::probe_stack();
    arch::irq_save();
    let m = &MS[arch::cpu_index()];
    m.leaving.set(why);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G
    // here. 2. Nobody runs this G before the M has told `sched`, which is after
    // the switch. 3. Interrupts are off.
    unsafe { arch::switch(g.kernel.sp.as_ptr(), m.sp.get()) };
    arch::irq_restore(true);
}

/// Calls `f` with the P of this CPU, interrupts off.
fn with_p<R>(f: impl FnOnce(&mut P<Task>) -> R) -> R {
    arch::probe_stack();
    let were_on = arch::irq_save();
    // SAFETY: this CPU's own M, interrupts off.
    let result = unsafe { MS[arch::cpu_index()].with_p(f) };
    arch::irq_restore(were_on);
    result
}

/// Carries out a wake-up.
fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        arch::wake(cpu);
    }
}

/// The G that runs on this CPU.
fn running() -> Option<&'static G<Task>> {
    let g = arch::slot::<G_SLOT>() as *const G<Task>;
    // SAFETY: null, or set by `execute` from a G, which lives for ever.
    unsafe { g.as_ref() }
}

/// The G that runs on this CPU, for reports.
pub fn current() -> Option<Running> {
    running().map(Running)
}

/// Shows a G by number, name and spawn site.
pub struct Running(&'static G<Task>);

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Running(g) = self;
        write!(f, "G {}", g.id())?;
        match g.kernel.name.get() {
            "" => {}
            name => write!(f, " \"{name}\"")?,
        }
        match g.kernel.site.get() {
            Some(site) => write!(f, " (spawned at {site})"),
            None => Ok(()),
        }
    }
}

/// Notes that the running G panics: how many of its panics are under way now.
/// `None` if this is no place where a G may unwind.
pub fn begin_panic() -> Option<u32> {
    let g = running().filter(|_| arch::irqs_on())?;
    g.kernel.panics.set(g.kernel.panics.get() + 1);
    Some(g.kernel.panics.get())
}

/// Notes that a panic of the running G was caught.
pub fn end_panic() {
    if let Some(g) = running() {
        g.kernel.panics.set(g.kernel.panics.get().saturating_sub(1));
    }
}
