//! Blocking calls: on the stack of the M, which leaves with its G if it must wait.
//!
//! A call runs where a system call would: not on the stack of the G that makes it but on that of
//! the M under it, which is empty while a G runs (`proc`). No handoff takes place when a call begins
//! or ends; it costs a change of the stack pointer.
//!
//! ```text
//!    the G's stack            its M's stack
//!   │ main           │       │                │ ← the CPU's sp
//!   │ its calls      │       │ the call       │
//!   │ blocking ──────┼──────▶│ what it calls  │ ← the G's sp, when it has left
//!   └────────────────┘       └────────────────┘
//! ```
//!
//! When the G in the call leaves its CPU, because it waits or its slice is over, it cannot leave the
//! M's stack to the scheduler, because its frames are on it. So M and G leave together, and a spare M
//! takes over CPU and P ([`leave`]; Go: handoffp); at that instant, as the kernel itself knows that
//! the call waits, where Go must guess. Queue, timers and slice are the CPU's or the P's and stay. The
//! G is *bound to its M* until the call returns: on the CPU that runs it next, that M displaces the M
//! there ([`mount`]).
//!
//! # Unwinding in a call
//!
//! A panic in a call is caught by the caller's closure, on the M's stack, because the unwinder walks
//! one stack, and continues from the G's own stack (`try_blocking`). So does the end of a G that fills
//! the M's stack: all frames from the fault up to `in_call` are that G's. The pages opened for it on
//! the M's stack are still open then, so the G retires that M ([`retire_m`]): a spare M, which a call
//! always has, takes its place under the G. A G that cannot unwind is abandoned on the M's stack, and
//! the M with it ([`hand_over`]).
//!
//! # Go's way, for study
//!
//! With `handoff=sysmon` a call that waits keeps its CPU, which halts, and its P, whose Gs wait. A
//! monitor (`sched::Sysmon`) polls after 20 µs to 10 ms, and at its second poll the P is handed off
//! as above (Go: retake). In Go the monitor is a thread of its own; here its polls fall at the same
//! times, but each CPU does only its own, from its own timer. With `handoff=never`, and under
//! `system=n1`, there is no monitor: the CPU halts until the call goes on. If all CPUs do, and none
//! of the calls can, the machine ends with a report (`fail::deadlock::kept`).
//!
//! # What was rejected
//!
//! - **Parking the G alone and calling it blocked**: then there is no call on an M, and code that
//!   may not be on a G's stack, or whose frames must stay where they are, has no stack to run on.
//! - **Handing off when a call begins** (Go's `entersyscallblock`): most calls do not wait, and
//!   would pay for two changes of M.
//! - **Creating the spare M when it is needed**: then there may be no memory at an instant at which
//!   the call can no longer be refused. See `m`.
//! - **Closing the M's stack at once**, by the G: all CPUs must flush the pages from their TLBs,
//!   and only an M can wait for that (`mem::reclaim`).

use super::m::{BlockingError, M, MState};
use super::preempt::Attention;
use super::task::Task;
use super::{
    Cpu, Kind, Leaving, OnCpu, SCHED, hooks, is_running, mcall, running, running_or_none, system,
    wait_for_memory,
};
use crate::arch;
use crate::arch::irq::IrqState;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use sched::{G, Sysmon};

/// When the P of a call that waits is handed off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Handoff {
    /// At the instant at which the call waits.
    #[default]
    Immediate,
    /// When Go's monitor would notice: 20 µs to 10 ms later.
    Sysmon,
    /// Not at all: the CPU halts until the call goes on, as with a fixed number of threads.
    Never,
}

impl core::fmt::Display for Handoff {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Handoff::Immediate => "at once",
            Handoff::Sysmon => "by sysmon",
            Handoff::Never => "never",
        })
    }
}

/// A call that waits keeps its CPU at first; and for ever.
static KEEPS_CPU: AtomicBool = AtomicBool::new(false);
static FOR_EVER: AtomicBool = AtomicBool::new(false);
static SYSMON: Sysmon = Sysmon::new();

pub(crate) fn init(handoff: Handoff) {
    KEEPS_CPU.store(handoff != Handoff::Immediate, Relaxed);
    FOR_EVER.store(handoff == Handoff::Never, Relaxed);
}

/// Runs `f` as a blocking call (Go: entersyscall); returns its result, which is an error if the call
/// was unwound. `f` must not unwind: that would be a kernel bug, and ends the machine.
///
/// # Errors
/// [`BlockingError`] when there would be no M to take over if the call waited; `f` was not run then.
#[inline(always)]
pub fn call<T, E, F>(f: F) -> Result<Result<T, E>, BlockingError>
where
    F: FnOnce() -> Result<T, E>,
{
    debug_assert!(is_running(), "no G to make a call");
    let g = running_or_none();
    if g.kernel.m.get().is_some() {
        return Ok(f()); // inside a call: on the M's stack already
    }
    let mut job = Job { f: ManuallyDrop::new(f), outcome: MaybeUninit::uninit() };
    arch::probe_stack();
    // Interrupts are on: a program cannot turn them off, and kernel code that does makes no calls.
    // If it did and had to wait, `leave` would panic.
    arch::irq::disable();
    // SAFETY: 1. Off until `in_call` begins, and it is not used after that. 2. A G runs here. 3. The
    // G has no other.
    let mut on = unsafe { OnCpu::assume() };
    if on.cpu().spare.get().is_none() {
        match find_spare(on) {
            Ok(here) => on = here,
            Err(error) => {
                // SAFETY: dropped here, and not used after.
                unsafe { ManuallyDrop::drop(&mut job.f) };
                return Err(error);
            }
        }
    }
    g.kernel.m.set(on.cpu().m.get());
    // SAFETY: 1. An M's stack is empty while a G runs; the M moves with the G until the call is over.
    // 2. `in_call` lets nothing unwind.
    unsafe { arch::call_on(on.cpu().sp.get(), &mut job) };
    // SAFETY: `in_call` has written it.
    let outcome: Result<T, E> = unsafe { job.outcome.assume_init() };
    // Perhaps on another CPU, but on the same M. Interrupts are on: a G that is preempted here, off
    // the M's stack and still bound to it, takes the M along unnecessarily; that does no harm. A call
    // that has filled the M's stack has failed.
    if outcome.is_err() {
        retire_m(g);
    }
    g.kernel.m.set(None);
    Ok(outcome)
}

/// The call of `g` has ended, and `g` is on its own stack again: retires its M, if the stack that
/// was full is the M's.
#[cold]
#[inline(never)]
fn retire_m(g: &'static G<Task>) {
    let Some(m) = g.kernel.m.get().filter(|m| m.was_full.get()) else { return };
    arch::probe_stack_again(); // within what `call` has probed
    let irqs = arch::irq::disable();
    // SAFETY: 1. See above. 2. A G runs here. 3. The G has no other.
    let on = unsafe { OnCpu::assume() };
    hand_over(on.cpu(), g);
    g.exit_call(); // it stays
    g.kernel.m.set(None); // before it can be preempted: it has no M to take along
    m.retire();
    arch::irq::restore(irqs);
}

/// The argument and the result of a call on the M's stack. (As two `Option`s they would cost a call
/// that does not wait a quarter more instructions.)
struct Job<T, F> {
    f: ManuallyDrop<F>,
    outcome: MaybeUninit<T>,
}

impl<T, F: FnOnce() -> T> arch::OnStack for Job<T, F> {
    /// The root of a call on the M's stack. Interrupts are off before and on afterwards.
    extern "C" fn in_call(job: usize) {
        let job = core::ptr::with_exposed_provenance_mut::<Self>(job);
        // SAFETY: `call` passed the address of its own job, which it does not touch meanwhile.
        let job = unsafe { &mut *job };
        arch::irq::restore(IrqState::ON);
        // SAFETY: taken here and nowhere else.
        let f = unsafe { ManuallyDrop::take(&mut job.f) };
        // A panic does not leave an `extern "C"` function: it aborts.
        job.outcome.write(f());
    }
}

/// Where the frames of the running G end that are on this stack: in a call those of the M's, without
/// the word by which `call_on` finds the G's stack.
pub(crate) fn stack_end() -> u64 {
    let m = running().and_then(|g| g.kernel.m.get());
    m.map_or(u64::MAX, |m| (m.bottom() - size_of::<usize>()) as u64)
}

/// Ensures that this CPU has a spare M. The G may be on another CPU then. If it fails, interrupts
/// are on.
#[cold]
fn find_spare(mut on: OnCpu<'_>) -> Result<OnCpu<'_>, BlockingError> {
    // lab 6 begin: find_spare
    let mut found = M::take_spare().ok_or(BlockingError::NoMemory);
    if found.is_err() {
        // With interrupts on: it allocates, and may wait. If many Ms are retired, it waits until
        // their stacks are closed, and takes one.
        on = on.open(|| {
            let may_reuse = M::are_many_retired() && wait_for_memory(1);
            let reused = if may_reuse { M::take_spare() } else { None };
            found = reused.map_or_else(M::create, Ok);
        });
    }
    let spare = found.inspect_err(|_| arch::irq::restore(IrqState::ON))?;
    keep(on.cpu(), spare);
    Ok(on)
    // lab 6 end
}

/// A G in a call leaves its CPU, and its M with it (Go: handoffp); returns when it runs again.
pub(crate) fn leave(mut on: OnCpu<'_>, g: &'static G<Task>, why: Leaving) {
    if why == Leaving::Park && KEEPS_CPU.load(Relaxed) {
        let readied;
        (on, readied) = wait_on_cpu(on, g);
        if readied {
            return;
        }
    }
    hand_over(on.cpu(), g);
    mcall(on, g, why); // of the spare M
    // SAFETY: 1, 2. A G runs again with interrupts off, on a CPU that runs Gs. 3. It gave up its own.
    let on = unsafe { OnCpu::assume() };
    mount(on, g);
}

/// The `resumed_in_call` of [`arch::Handlers`]: a G that an interrupt made leave in a call runs again.
pub fn resumed_in_call() {
    // SAFETY: as in `leave`.
    mount(unsafe { OnCpu::assume() }, running_or_none());
}

/// Detaches the M of this CPU, which `g` is bound to, and installs the spare M. Called by [`leave`];
/// for a G that an interrupt makes leave; for one that never runs again, in its page fault; and for
/// one that goes on without its M.
pub(crate) fn hand_over(cpu: &Cpu, g: &'static G<Task>) {
    // lab 6 begin: hand_over
    let next = cpu.spare.take().expect("a call runs without a spare M");
    let own = cpu.m();
    own.g.set(Some(g));
    own.set_state(MState::InCall);
    next.set_state(MState::OnCpu);
    cpu.m.set(Some(next));
    cpu.sp.set(next.bottom());
    cpu.counters.handoffs.add_one();
    if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
        handed_over(cpu, g, own, next);
    }
    g.enter_call(arch::cpu_index());
    // lab 6 end
}

#[cold]
fn handed_over(cpu: &Cpu, g: &'static G<Task>, own: &M, next: &M) {
    hooks::event(Kind::Handoff, g.id(), next.id() as u32);
    system::swap_rings(cpu, own, next);
}

/// `g` is on a CPU again, and so is its M, on whose stack this is: replaces the M of this CPU, which
/// has left its own stack and is spare from now on. Here, so that no other switch has to look whether
/// it goes to a G in a call.
fn mount(on: OnCpu<'_>, g: &G<Task>) {
    // lab 6 begin: mount
    let (cpu, own) = (on.cpu(), g.kernel.m.get().expect("the G is in no call"));
    let spare = cpu.m();
    if cpu.slices.attention.has(Attention::TRACED | Attention::SYSTEM) {
        hooks::cpu_event(Kind::Mount, own.id() as u32);
        system::swap_rings(cpu, spare, own);
    }
    own.set_state(MState::OnCpu);
    cpu.m.set(Some(own));
    cpu.sp.set(own.bottom());
    spare.set_state(MState::Spare);
    keep(cpu, spare);
    g.exit_call();
    // lab 6 end
}

/// Keeps a spare M for this CPU.
pub(crate) fn keep(cpu: &Cpu, spare: &'static M) {
    // lab 6 begin: keep
    match cpu.spare.get() {
        None => cpu.spare.set(Some(spare)),
        Some(_) => spare.put_spare(),
    }
    // lab 6 end
}

/// Go's way of waiting in a call: the CPU halts and keeps its P. True if the G was readied and
/// continues here; false if the monitor retook the P first.
#[cold]
fn wait_on_cpu<'a>(mut on: OnCpu<'a>, g: &'static G<Task>) -> (OnCpu<'a>, bool) {
    let began = arch::now_ns();
    let mut check = SYSMON.next_check(began);
    let mut seen_before = false;
    // From here on the waker of this G interrupts this CPU.
    while g.halt_on(arch::cpu_index()) {
        let now = arch::now_ns();
        if now >= check {
            if !FOR_EVER.load(Relaxed) && SCHED.retake(on.p(), seen_before, now - began) {
                SYSMON.succeeded(now);
                on.cpu().counters.retakes.add_one();
                return (on, false);
            }
            seen_before = true;
            check = SYSMON.next_check(now);
        }
        if FOR_EVER.load(Relaxed) {
            (hooks::get().cpu_is_kept)();
        } else {
            on.cpu().slices.arm_at(check);
        }
        on = on.halt();
    }
    g.cancel_park();
    (on, true)
}
