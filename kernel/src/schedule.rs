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

mod view;

pub use view::{num_goroutines, permit, random, stats, take_permit, this};

use crate::arch;
use crate::cell::{Run as Work, Shared};
use crate::drivers::simulated;
use crate::go::SpawnError;
use crate::gref::Permit;
use crate::mem::percpu::Here;
use crate::mem::{self, stack::Stack};
use crate::park::Birth;
use crate::preempt;
use crate::stats::Counters;
use crate::timer::{self, Timed, Timers};
use crate::trace::{self, Kind};
use alloc::vec::Vec;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::panic::Location;
use sched::{G, List, Next, Order, P, PSlot, Run, Sched, Slice, Status, Wake};

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
    /// How many slices of its own it has begun.
    slices: Cell<u64>,
    /// Its place among the sleepers, guarded by their lock.
    timer: timer::Node<G<Task>>,
    /// Left by an unpark. Atomic: anybody gives it.
    permit: Permit,
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
            slices: Cell::new(0),
            timer: timer::Node::new(),
            permit: Permit::new(),
        }
    }
}

impl Timed for G<Task> {
    fn timer(&self) -> &timer::Node<Self> {
        &self.kernel.timer
    }
}

/// Names one life of a G.
pub type GHandle = sched::Handle<Task>;

/// The execution context of a CPU. In this house an M never leaves its CPU.
struct M {
    /// Where its stack pointer was when it switched to a G.
    sp: Cell<usize>,
    /// Why the G that ran has come back.
    leaving: Cell<Leaving>,
    /// The slice under way on this CPU.
    slices: preempt::Slices,
    /// The P of this CPU; there from `init_cpu` on, which also names this M in
    /// its CPU's [`M_SLOT`].
    p: UnsafeCell<MaybeUninit<P<Task>>>,
    /// The state of `view::random`.
    random: Cell<u64>,
    /// Read by anybody.
    counters: Counters,
}

// SAFETY: touched by its own CPU only, with interrupts off; but for what is
// atomic.
unsafe impl Sync for M {}

impl M {
    const fn new() -> Self {
        M {
            sp: Cell::new(0),
            leaving: Cell::new(Leaving::Exit),
            slices: preempt::Slices::new(),
            p: UnsafeCell::new(MaybeUninit::uninit()),
            random: Cell::new(0),
            counters: Counters::new(),
        }
    }

    /// Calls `f` with the P that this M holds.
    ///
    /// # Safety
    /// This is the M that [`this_m`] or [`try_this_m`] gave, interrupts are off
    /// since, and `f` calls nothing that comes here again: so there is no
    /// second borrow.
    #[inline(always)]
    unsafe fn with_p<R>(&self, f: impl FnOnce(&mut P<Task>) -> R) -> R {
        // SAFETY: the caller's promise.
        let p = unsafe { &mut *self.p.get() };
        // SAFETY: an M that `this_m` gives has its P.
        f(unsafe { p.assume_init_mut() })
    }
}

/// The M of this CPU.
///
/// # Safety
/// On a CPU that has been through [`init_cpu`]: every CPU that runs Gs.
#[inline(always)]
unsafe fn this_m() -> &'static M {
    // SAFETY: `init_cpu` has put a pointer to a static there.
    unsafe { &*(arch::slot::<M_SLOT>() as *const M) }
}

/// The M of this CPU, if it is that far. Interrupts off.
fn try_this_m() -> Option<&'static M> {
    // SAFETY: null until `init_cpu` has put a pointer to a static there.
    unsafe { (arch::slot::<M_SLOT>() as *const M).as_ref() }
}

/// The slice under way on this CPU, if it runs Gs yet. Interrupts off.
pub(crate) fn slices() -> Option<&'static preempt::Slices> {
    try_this_m().map(|m| &m.slices)
}

/// Why a G has switched to its M.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It lets others run.
    Yield,
    /// Its slice is over.
    Expire,
    /// It has called `begin_park` and told somebody.
    Park,
    /// Its work is done.
    Exit,
}

impl Leaving {
    fn kind(self) -> Kind {
        match self {
            Leaving::Yield => Kind::Yield,
            Leaving::Expire => Kind::Expire,
            Leaving::Park => Kind::Park,
            Leaving::Exit => Kind::Exit,
        }
    }
}

static SLOTS: [PSlot<Task>; arch::MAX_CPUS] = [const { PSlot::new() }; arch::MAX_CPUS];
static SCHED: Sched<Task> = Sched::new(&SLOTS);
static TIMERS: Timers<G<Task>> = Timers::new();
static MS: [M; arch::MAX_CPUS] = [const { M::new() }; arch::MAX_CPUS];

/// Seeds the order of stealing unless the command line does.
const DEFAULT_SEED: u64 = 1;

/// The per-CPU word that names the running G, 0 if none runs.
const G_SLOT: usize = 0;
/// The per-CPU word that says that memory needs upkeep.
const UPKEEP_SLOT: usize = 1;
/// The per-CPU word that points to its M, 0 before it has one.
const M_SLOT: usize = 2;

/// Says how many Ps there are, and where they look for Gs; once, before any CPU
/// calls [`init_cpu`].
pub fn init(ps: Option<usize>, order: Order) {
    SCHED.set_order(order);
    // No CPU schedules yet that would have to notice.
    let _ = SCHED.set_limit(ps.unwrap_or(usize::MAX).min(arch::num_cpus()));
}

/// Gives this CPU its P.
pub fn init_cpu(seed: Option<u64>) {
    let cpu = arch::cpu_index();
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let p = SCHED.acquire(cpu, seed).expect("P taken");
    let m = &MS[cpu];
    m.random.set(seed ^ (cpu as u64) << 32);
    // SAFETY: this CPU's own M, and nobody looks at it before the next line.
    unsafe { (*m.p.get()).write(p) };
    m.slices.begin();
    arch::set_slot::<M_SLOT>(core::ptr::from_ref(m).addr());
}

/// The loop of an M, on the stack that the CPU came up on. Interrupts off.
pub fn mstart() -> ! {
    assert!(!arch::irqs_on(), "irqs on");
    // SAFETY: `init_cpu` came before.
    let m = unsafe { this_m() };
    loop {
        schedule(m);
    }
}

/// One round: finds a G and runs it until it comes back, or halts.
#[inline(always)]
fn schedule(m: &'static M) {
    if arch::slot::<UPKEEP_SLOT>() != 0 {
        upkeep();
    }
    let find_local = |p: &mut P<Task>| {
        let run = SCHED.find_local(p)?;
        begin(m, p, &run);
        Some(run)
    };
    // SAFETY: this CPU's own M, interrupts off.
    match unsafe { m.with_p(find_local) } {
        Some(run) => execute(m, run.g),
        None => schedule_any(m),
    }
}

/// As [`schedule`], for a P whose own queue has nothing, or not the next turn.
#[inline(never)]
fn schedule_any(m: &'static M) {
    let find = |p: &mut P<Task>| {
        let next = SCHED.find_runnable(p, List::new);
        if let Next::Run(run) = &next {
            begin(m, p, run);
        }
        next
    };
    // SAFETY: this CPU's own M, interrupts off.
    match unsafe { m.with_p(find) } {
        Next::Run(run) => {
            send(run.wake);
            execute(m, run.g);
        }
        Next::Park(wake) => {
            send(wake);
            m.slices.idle();
            m.counters.halts.add_one();
            trace::cpu_event(Kind::Halt, 0);
            arch::wait_for_interrupt();
            // Who runs next here does not inherit a slice from before the halt.
            m.slices.begin();
            trace::cpu_event(Kind::Resume, 0);
        }
    }
}

/// Sees to the slice of a G that is about to run.
#[inline(always)]
fn begin(m: &M, p: &mut P<Task>, run: &Run<Task>) {
    if run.slice == Slice::New {
        let slices = &run.g.kernel.slices;
        slices.set(slices.get() + 1);
        m.slices.begin();
    }
    // A timer that is armed already serves the next slice as well.
    if !m.slices.is_timed() && SCHED.needs_timer(p) {
        m.slices.arm();
    }
    trace::event(Kind::Start, || run.g.id(), u32::from(run.slice == Slice::New));
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
#[inline(always)]
fn execute(m: &'static M, g: &'static G<Task>) {
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `leave`, and `sched`
    // gives a G to one CPU only, with its context saved. 2. As 1, and this M's
    // stack is entered by its own CPU only. 3. Interrupts are off.
    unsafe { arch::switch(m.sp.as_ptr(), g.kernel.sp.get()) };
    arch::set_slot::<G_SLOT>(0);
    let why = m.leaving.get();
    trace::event(why.kind(), || g.id(), 0);
    m.counters.switches.add_one();
    // The most frequent one, and the one that does least.
    if why == Leaving::Yield {
        // SAFETY: this CPU's own M, interrupts off.
        return send(unsafe { m.with_p(|p| SCHED.yielded(p, g)) });
    }
    settle(m, g, why);
}

/// Puts a G that has left in another way than by yielding where it belongs.
fn settle(m: &'static M, g: &'static G<Task>, why: Leaving) {
    if why == Leaving::Exit {
        m.counters.ended.add_one();
        drop(g.kernel.stack.take());
        ask_for_upkeep();
    }
    let settle = |p: &mut P<Task>| match why {
        Leaving::Yield => SCHED.yielded(p, g),
        Leaving::Expire => SCHED.expired(p, g),
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
    if birth.pin.is_some_and(|cpu| cpu >= arch::num_cpus()) {
        return Err(SpawnError::NoSuchCpu);
    }
    let stack = Stack::new(birth.stack).map_err(|_| SpawnError::NoMemory)?;
    let g = match with_p(|_, p| SCHED.take_dead(p)) {
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
    task.slices.set(0);
    submit(|p| {
        let wake = SCHED.start(p, g, birth.pin);
        MS[arch::cpu_index()].counters.created.add_one();
        trace::event(Kind::Create, || g.id(), birth.pin.map_or(0, |cpu| cpu as u32 + 1));
        wake
    });
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

/// As [`park`], until `deadline_ns` at most; false if that came first.
pub fn park_until(deadline_ns: u64) -> bool {
    let g = running().expect("no G to park");
    if deadline_ns <= arch::now_ns() {
        return g.cancel_park(); // no switch; true if readied meanwhile
    }
    let here = Here::enter(); // armed and set on one CPU
    if TIMERS.arm(&here, g, deadline_ns) {
        // SAFETY: a G runs here.
        unsafe { this_m() }.slices.arm_for_sleeper(deadline_ns);
    }
    drop(here);
    park();
    TIMERS.cancel(g)
}

/// How many slices of its own the running G has begun.
pub fn slices_begun() -> u64 {
    running().map_or(0, |g| g.kernel.slices.get())
}

/// The number of the running G.
pub fn current_id() -> u64 {
    running().map_or(0, G::id)
}

/// Makes a G that waits run again; one that does not wait is left alone.
pub fn ready(g: GHandle) {
    trace::event(Kind::Ready, || g.get().map_or(0, G::id), 0);
    submit(|p| SCHED.ready_handle(p, g));
}

/// Switches from the running G to its M; returns when the G runs again.
fn leave(why: Leaving) {
    let g = running().expect("no G to leave");
    arch::probe_stack();
    // A G that left with a lock held or interrupts off would take both along.
    assert!(arch::irq_save(), "irqs off");
    // SAFETY: a G runs here.
    let m = unsafe { this_m() };
    m.leaving.set(why);
    // SAFETY: 1. `sp` was saved by the switch in `execute` that brought this G
    // here. 2. Nobody runs this G before the M has told `sched`, which is after
    // the switch. 3. Interrupts are off.
    unsafe { arch::switch(g.kernel.sp.as_ptr(), m.sp.get()) };
    arch::irq_restore(true);
}

/// Makes a G runnable by `f`: sends the wake-up, and sees to it that the G that
/// does this is preempted in time.
fn submit(f: impl FnOnce(&mut P<Task>) -> Wake) {
    arch::probe_stack();
    // Off until the wake-up is sent: `sched` counts on a CPU that it has claimed
    // to come, and a G that is preempted in between would take the wake-up along.
    let were_on = arch::irq_save();
    // SAFETY: what calls this comes after `init_cpu`.
    let m = unsafe { this_m() };
    let ready = |p: &mut P<Task>| {
        let wake = f(p);
        if is_running() && !m.slices.is_timed() && SCHED.needs_timer(p) {
            m.slices.arm();
        }
        wake
    };
    // SAFETY: this CPU's own M, interrupts off.
    send(unsafe { m.with_p(ready) });
    arch::irq_restore(were_on);
}

/// Calls `f` with the P of this CPU, interrupts off.
#[inline(always)]
fn with_p<R>(f: impl FnOnce(&M, &mut P<Task>) -> R) -> R {
    arch::probe_stack();
    let were_on = arch::irq_save();
    // SAFETY: what calls this comes after `init_cpu`.
    let m = unsafe { this_m() };
    // SAFETY: this CPU's own M, interrupts off.
    let result = unsafe { m.with_p(|p| f(m, p)) };
    arch::irq_restore(were_on);
    result
}

/// Carries out a wake-up, and tells those who run a G without a timer if there
/// is somebody now who waits for them.
#[inline(always)]
fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        wake_cpu(cpu);
    }
    while let Some(cpu) = SCHED.take_untimed() {
        // This one has asked itself: before it called, or when it runs a G next.
        if cpu != arch::cpu_index() {
            wake_cpu(cpu);
        }
    }
}

/// Interrupts a CPU, so that it looks.
#[cold]
fn wake_cpu(cpu: usize) {
    let here = Here::enter(); // counted where it is done
    MS[here.index()].counters.wakes.add_one();
    trace::cpu_event(Kind::WakeSent, cpu as u32);
    arch::wake(cpu);
}

/// The G that runs on this CPU.
fn running() -> Option<&'static G<Task>> {
    let g = arch::slot::<G_SLOT>() as *const G<Task>;
    // SAFETY: null, or set by `execute` from a G, which lives for ever.
    unsafe { g.as_ref() }
}

/// Whether a G runs on this CPU; if not, its M does.
pub fn is_running() -> bool {
    arch::slot::<G_SLOT>() != 0
}

/// Whether a G runs here that may be made to leave: not one that is about to park,
/// whose state is no longer its CPU's alone. Interrupts off.
pub fn may_be_preempted() -> bool {
    running().is_some_and(|g| g.status() == Status::Running)
}

/// Whether the G that runs here, or is about to, needs a timer for its slice:
/// somebody waits for it to end. Interrupts off.
pub fn needs_timer() -> bool {
    with_p(|_, p| SCHED.needs_timer(p))
}

/// Whether this CPU's P may run Gs no more, and the running one must leave.
/// Interrupts off.
pub fn must_leave() -> bool {
    let pinned = running().is_some_and(|g| g.pin().is_some());
    !pinned && arch::cpu_index() >= SCHED.limit()
}

/// Moves what others left in this CPU's inbox to its queue. Interrupts off. A
/// CPU that is still coming up has neither.
pub fn drain_inbox() {
    if let Some(m) = try_this_m() {
        // SAFETY: this CPU's own M, interrupts off.
        send(unsafe { m.with_p(|p| SCHED.drain(p)) });
    }
}

/// Readies the sleepers of this CPU whose time has come, and lets simulated
/// devices answer. Interrupts off.
pub fn wake_sleepers(now_ns: u64) {
    simulated::on_tick(now_ns);
    let here = Here::enter();
    TIMERS.on_tick(&here, now_ns, |g| {
        trace::event(Kind::Fire, || g.id(), 0);
        ready_from_interrupt(g.handle());
    });
}

/// As [`ready`], by an interrupt handler: the G is left in the inbox of this CPU,
/// or of that which it is pinned to. The handler calls [`drain_inbox`] before it
/// returns.
pub fn ready_from_interrupt(g: GHandle) {
    let cpu = arch::cpu_index();
    match SCHED.ready_from_interrupt(cpu, g) {
        Wake::Cpu(other) if other != cpu => wake_cpu(other),
        _ => {}
    }
}

/// When the next sleeper or simulated answer of this CPU is due. Interrupts off.
pub fn next_deadline() -> Option<u64> {
    let cpu = arch::cpu_index();
    let due = [TIMERS.next_deadline(cpu), simulated::next_deadline(cpu)];
    due.into_iter().flatten().min()
}

/// The `preempt` of [`arch::Handlers`]: the running G leaves, as its slice is
/// over.
pub fn expire() {
    leave(Leaving::Expire);
}

/// Timer interrupts that `cpu` took since Gs run, and Gs that it preempted.
pub fn slice_counters(cpu: usize) -> (u64, u64) {
    MS[cpu].slices.counters()
}

/// How many Ps run Gs.
pub fn gomaxprocs() -> usize {
    SCHED.limit()
}

/// Lets `n` Ps run Gs, at least one and at most one for each CPU, and says how
/// many did before.
pub fn set_gomaxprocs(n: usize) -> usize {
    let before = SCHED.limit();
    for cpu in SCHED.set_limit(n.clamp(1, arch::num_cpus())) {
        if cpu < arch::num_cpus() {
            wake_cpu(cpu);
        }
    }
    before
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

/// Whether the running G panics and has not been caught yet.
pub fn is_panicking() -> bool {
    running().is_some_and(|g| g.kernel.panics.get() > 0)
}

/// Notes that a panic of the running G was caught.
pub fn end_panic() {
    if let Some(g) = running() {
        g.kernel.panics.set(g.kernel.panics.get().saturating_sub(1));
    }
}
