//! A turn of a CPU: find a G, switch to it, requeue it when it leaves.
//!
//! This is the loop that every M runs on its own stack, interrupts off, and the hottest path of the
//! kernel: all that a switch does is in [`execute`] and [`came_back`] and what they inline. Rare
//! work leaves it by one branch: [`searched`] if the G was not in the P's own queue, [`park`] if
//! there is no G, [`attend`] if an attention bit is set other than that for tracing alone.
//!
//! # Why by way of the M's stack
//!
//! A G that leaves could switch straight to the next G, which would then queue it. That would save
//! one switch of two, and a switch is eight instructions (`arch`, `switch`). It would cost more
//! than that:
//!
//! - A G may be in no queue before its context is saved. So the next G would have to be found
//!   before the leaving G is queued: a G that yields would be in no queue and invisible to thieves
//!   meanwhile (`sched`, "A G on its way"), and alone on its CPU it would find no G, not even
//!   itself.
//! - The next G would owe the rest of that leaving, wherever it continues: at the root of a new G,
//!   after a park, after an interrupt, in a call on the stack of another M. Here the rest is in one
//!   place, [`came_back`].
//! - A G that has ended would have to be recycled by another G, on whose stack there may be little
//!   room.
//!
//! # One reading of the clock
//!
//! The counter is read when a G has left. That is the end of its time on the CPU, the end of the
//! next G's time in the queue, the beginning of that G's slice, and the time of the event that
//! records both. So [`came_back`] gives it to the next [`schedule`] ([`Last`]), and the kernel's
//! time in between is charged to the next G. Only code that has done something longer reads it
//! again.

use super::preempt::Attention;
use super::ring;
use super::task::Task;
use super::{
    Cpu, Event, G_SLOT, Kind, Leaving, NO_G, OnCpu, SCHED, What, all_idle, busy, call, cycles_run,
    hooks, is_running, running_or_none, send, spawn, try_this_cpu,
};
use crate::{arch, mem};
use sched::{G, Next, Run, Slice, Stop, Wake};

/// The root of every M, on its own stack (Go: mstart1).
pub(crate) extern "C" fn m_main(_: usize) -> ! {
    // SAFETY: 1, 2. An M is switched to with interrupts off, by a CPU that runs Gs. 3. The switch
    // has used up the one there was.
    let mut on = unsafe { OnCpu::assume() };
    // A spare M that takes over first deals with the G that has left with the M before it.
    let mut last = if is_running() { start_spare(&mut on) } else { Last::now() };
    loop {
        (on, last) = schedule(on, last);
    }
}

/// As [`came_back`], on a fresh M.
#[inline(never)]
fn start_spare(on: &mut OnCpu<'_>) -> Last {
    came_back(on)
}

/// How this CPU came to look for a G: what one switch passes to the next.
#[derive(Clone, Copy)]
struct Last {
    /// The cycle counter then: a switch reads it only once.
    at: u64,
    /// The event that the next G's start will be: it says why the G that ran has left, unless that
    /// was traced already or no G ran.
    start: What,
}

impl Last {
    /// As of now, with no G that has left.
    fn now() -> Self {
        Last { at: arch::cycles(), start: What::START }
    }
}

/// One round (Go: schedule): finds a G and runs it until it leaves, or halts.
#[inline(always)]
fn schedule<'a>(mut on: OnCpu<'a>, last: Last) -> (OnCpu<'a>, Last) {
    match SCHED.find_runnable(on.p()) {
        Next::Run(run) => execute(on, run, last),
        Next::Park(wake) => park(on, wake, last),
    }
}

/// There is no G: deals with everything that a CPU without a G does, one at a time, and halts if
/// there is none of it (Go: stopm). The caller looks for Gs again.
#[inline(never)]
fn park<'a>(mut on: OnCpu<'a>, wake: Wake, last: Last) -> (OnCpu<'a>, Last) {
    note_leaving(last);
    send(wake);
    if on.cpu().slices.attention.has(Attention::UPKEEP) {
        on = upkeep(on);
    } else if !all_idle() {
        let is_watched = on.cpu().slices.attention.has(Attention::WATCHER);
        // If a G was readied, it is in the inbox.
        if !is_watched || !(hooks::get().poll_watcher)(busy()) {
            on = halt(on);
        }
    } else {
        let run = cycles_run();
        on = match (hooks::get().on_all_idle)(run) {
            Some(act) => on.open(|| act(run)),
            None => halt(on),
        };
    }
    (on, Last::now())
}

/// Halts until an interrupt comes.
fn halt(mut on: OnCpu<'_>) -> OnCpu<'_> {
    debug_assert!(on.p().has_nobody(), "halts with Gs");
    on.cpu().slices.idle();
    on.cpu().counters.halts.add_one();
    hooks::cpu_event(Kind::Halt, 0);
    let halted = arch::cycles();
    if cfg!(debug_assertions) {
        (hooks::get().halts)(halted);
    }
    on = on.halt();
    let now = arch::cycles();
    on.cpu().times.idled(now.wrapping_sub(halted));
    // The next G here does not inherit a slice from before the halt.
    on.cpu().slices.begin(now);
    if cfg!(debug_assertions) {
        (hooks::get().resumes)(now);
    }
    if on.cpu().slices.attention.has(Attention::WATCHDOG) {
        (hooks::get().after_halt)();
    }
    hooks::cpu_event(Kind::Resume, 0);
    on
}

/// Traces why a G has left, if that was not traced.
fn note_leaving(last: Last) {
    if hooks::is_traced()
        && let Some(left) = last.start.left_before()
    {
        (hooks::get().event_at)(last.at, 0, left);
    }
}

/// Runs the memory upkeep: unused stacks, free pages of the heap. With interrupts on, as it may wait for
/// the other CPUs; on the M's stack, so that it is not preempted and stays on this CPU.
#[cold]
fn upkeep(mut on: OnCpu<'_>) -> OnCpu<'_> {
    on.cpu().slices.attention.clear(Attention::UPKEEP);
    if mem::is_short() {
        spawn::trim(&mut on);
    }
    on.open(mem::maintain)
}

/// Asks for [`mem::maintain`] at the next round of this CPU's M: a stack became unused, or memory is
/// short. Any context.
pub fn ask_for_upkeep() {
    // None: a CPU that has run no G yet needs no upkeep.
    if let Some(cpu) = try_this_cpu() {
        cpu.slices.attention.set(Attention::UPKEEP);
    }
}

/// Switches to a G (Go: execute); returns when a G has left the CPU that this M is then on.
#[inline(always)]
fn execute<'a>(mut on: OnCpu<'a>, run: Run<Task>, mut last: Last) -> (OnCpu<'a>, Last) {
    // As separate values from here on: as one struct they would be put into memory.
    let Run { g, slice, wake, searched: has_searched } = run;
    if has_searched {
        last = searched(&mut on, g, wake, last);
    }
    match on.cpu().slices.attention.get() {
        0 => begin(on.cpu(), g, slice, last.at),
        Attention::TRACE => {
            begin(on.cpu(), g, slice, last.at);
            record_start(g, slice, last);
        }
        _ => (on, last) = attend(on, g, slice, last),
    }
    if cfg!(debug_assertions) {
        (hooks::get().runs)(g, last.at);
    }
    let cpu = on.cpu();
    g.kernel.account.start(last.at, &cpu.times);
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    let save = match g.kernel.m.get() {
        None => cpu.sp.as_ptr(),
        Some(own) => call::displace_m(cpu, own),
    };
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `leave`, and `sched`
    // gives a G to one CPU only, with its context saved. 2. As 1, and an M's
    // stack is entered by the one CPU that has it. 3. Interrupts are off.
    on = unsafe { on.switch(save, g.kernel.sp.get()) };
    let last = came_back(&mut on);
    (on, last)
}

/// A G was found elsewhere than in the P's own queue: that took a while, and a CPU may have to be
/// woken.
#[inline(never)]
fn searched(on: &mut OnCpu<'_>, g: &G<Task>, wake: Wake, last: Last) -> Last {
    note_leaving(last);
    if let Some((victim, stolen)) = on.p().take_stolen() {
        hooks::event(Kind::Steal, g.id(), (victim as u32) << 12 | stolen.min(0xfff));
    }
    send(wake);
    Last::now()
}

/// Begins or resumes the slice of a G that is about to run.
#[inline(always)]
fn begin(cpu: &Cpu, g: &G<Task>, slice: Slice, now: u64) {
    if slice == Slice::Inherited {
        return;
    }
    if slice == Slice::Resumed {
        return cpu.slices.resume(now);
    }
    let slices = &g.kernel.slices;
    slices.set(slices.get() + 1);
    cpu.slices.begin(now);
}

/// Records that a G begins to run, on the shortest path: for a switch for which tracing is the only
/// thing besides.
#[inline(always)]
fn record_start(g: &G<Task>, slice: Slice, last: Last) {
    let event = Event { time: last.at, g: g.id() as u32, what: start_of(slice, last) };
    // SAFETY: the caller has seen `Attention::TRACE`, which is set when the rings have memory. This
    // CPU's own, interrupts off.
    if unsafe { ring::here().push(event) } {
        (hooks::get().half_full)();
    }
}

/// The event that the start of a G on that slice is.
#[inline(always)]
fn start_of(slice: Slice, last: Last) -> What {
    if slice == Slice::New {
        return last.start;
    }
    core::hint::cold_path(); // a branch, which costs the other case less than a choice of values
    last.start.on_same_slice()
}

/// As [`begin`], with all that [`Attention`] asks for before and after it.
#[inline(never)]
fn attend<'a>(
    mut on: OnCpu<'a>,
    g: &'static G<Task>,
    slice: Slice,
    mut last: Last,
) -> (OnCpu<'a>, Last) {
    if on.cpu().slices.attention.has(Attention::UPKEEP) {
        note_leaving(last);
        on = upkeep(on);
        last = Last::now();
    }
    let (cpu, p) = on.parts();
    begin(cpu, g, slice, last.at);
    // A timer that is armed already serves the next slice as well.
    if cpu.slices.chaos_on() || !cpu.slices.is_timed() && SCHED.needs_timer(p) {
        cpu.slices.arm();
    }
    if cpu.slices.attention.has(Attention::TRACE | Attention::HASH) {
        (hooks::get().event_at)(last.at, g.id(), start_of(slice, last));
    }
    (on, last)
}

/// Puts the G that has left this CPU where it now belongs.
#[inline(always)]
fn came_back(on: &mut OnCpu<'_>) -> Last {
    let (cpu, p) = on.parts();
    debug_assert!(is_running(), "no G came back");
    // `execute` has stored the G that it switched to, on this CPU, and only the next line clears
    // it; a G leaves a CPU by coming here.
    let g = running_or_none();
    arch::point_slot!(G_SLOT, NO_G);
    let at = arch::cycles();
    g.kernel.account.stop(at, &cpu.times);
    // The most frequent reasons, with the least work.
    match cpu.leaving.get() {
        Leaving::Yield => {
            // It wakes no CPU; if the ring overflowed, the P owes a wake-up, and sends it when it
            // looks for a G next.
            let _ = SCHED.stopped(p, g, Stop::Yield);
            Last { at, start: What::start_after(Kind::Yield, 0) }
        }
        Leaving::Park => {
            // Before it is parked: from then on another CPU may own it.
            let last = Last { at, start: What::start_after(Kind::Park, g.kernel.reason()) };
            match SCHED.stopped(p, g, Stop::Park) {
                // If its run-next place was taken and the ring overflowed, as above.
                Wake::Nobody => last,
                wake => noted(last, wake),
            }
        }
        Leaving::Exit => {
            spawn::recycle(on, g);
            Last { at, start: What::start_after(Kind::Exit, 0) }
        }
        Leaving::Expire => {
            let wake = SCHED.stopped(p, g, Stop::Expire);
            noted(Last { at, start: What::start_after(Kind::Expire, 0) }, wake)
        }
        Leaving::Displace => {
            let wake = SCHED.stopped(p, g, Stop::Displace);
            noted(Last { at, start: What::start_after(Kind::Displace, 0) }, wake)
        }
        Leaving::Abandon => {
            cpu.counters.ended.add_one();
            (hooks::get().finish_abandoned)(g, cpu.exit_reason.take());
            noted(Last { at, start: What::start_after(Kind::Exit, 0) }, Wake::Nobody)
        }
    }
}

/// A G has left in one of the longer ways: traces that, and carries out the wake-up.
#[cold]
fn noted(last: Last, wake: Wake) -> Last {
    note_leaving(last);
    send(wake);
    Last::now()
}
