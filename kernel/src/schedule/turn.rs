//! A turn of a CPU: find a G, switch to it, requeue it when it leaves.
//!
//! This is the loop that every M runs on its own stack, interrupts off, and the hottest path of the
//! kernel: all that a switch does is in [`execute`] and [`came_back`] and what they inline. Rare
//! work leaves it by one branch: [`schedule_any`] if the P's own queue is empty, [`attend`] if an
//! attention bit is set, [`settle`] if a G has left otherwise than by yielding or parking.
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

use super::task::Task;
use super::{
    Cpu, G_SLOT, Leaving, NO_G, SCHED, abandon, birth, call, idle_latency, is_running,
    running_or_none, send, this_cpu,
};
use super::{all_idle, busy, cycles_run, try_this_cpu};
use crate::arch::{self, irq::IrqState};
use crate::deadlock;
use crate::mem;
use crate::preempt::Attention;
use crate::trace::{self, Kind, What};
use crate::watchdog;
use sched::{G, Next, P, Run, Slice, Wake};

/// The root of every M, on its own stack (Go: mstart1).
pub(super) extern "C" fn m_main(_: usize) -> ! {
    // A spare M that takes over first deals with the G that has left with the M before it.
    let mut last = if is_running() { take_over() } else { Last::nobody() };
    // SAFETY: an M runs on CPUs that run Gs.
    let mut cpu = unsafe { this_cpu() };
    loop {
        (cpu, last) = schedule(cpu, last);
    }
}

/// As [`came_back`], on a fresh M.
#[inline(never)]
fn take_over() -> Last {
    came_back().1
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
    fn nobody() -> Self {
        Last { at: arch::cycles(), start: What::START }
    }
}

/// One round (Go: schedule): finds a G and runs it until it leaves, or halts. Returns the CPU that
/// this M is on then, and how it came to look for a G.
#[inline(always)]
fn schedule(cpu: &'static Cpu, last: Last) -> (&'static Cpu, Last) {
    // SAFETY: this CPU's own record, interrupts off.
    match unsafe { cpu.with_p(|p| SCHED.find_local(p)) } {
        Some(run) => execute(cpu, run, last),
        None => {
            let last = schedule_any(cpu, last);
            // SAFETY: an M runs on CPUs that run Gs.
            (unsafe { this_cpu() }, last)
        }
    }
}

/// As [`schedule`], for a P whose own queue is empty, or not the next to be served.
#[inline(never)]
fn schedule_any(cpu: &'static Cpu, last: Last) -> Last {
    note_leaving(last);
    if cpu.slices.attention.has(Attention::UPKEEP) {
        upkeep(cpu);
    }
    // SAFETY: this CPU's own record, interrupts off.
    let (next, loot) = unsafe { cpu.with_p(|p| (SCHED.find_runnable(p), p.take_loot())) };
    match next {
        Next::Run(run) => {
            if let Some((victim, stolen)) = loot {
                trace::event(Kind::Steal, || run.g.id(), (victim as u32) << 12 | stolen.min(0xfff));
            }
            send(run.wake);
            execute(cpu, run, Last::nobody()).1
        }
        Next::Park(wake) => {
            send(wake);
            // Interrupts were on, or a G was readied: then there may be Gs again.
            if looked_for_deadlocks() { Last::nobody() } else { halt(cpu) }
        }
    }
}

/// Runs the deadlock scan (Go: checkdead) if no P runs a G and one has since the last scan; if a P
/// runs a G, schedules a scan for a little later. True if it did either. Interrupts off, but on
/// during the scan.
fn looked_for_deadlocks() -> bool {
    let run = cycles_run();
    if !all_idle() {
        return deadlock::on_idle(busy());
    }
    let Some(scan) = deadlock::on_all_idle(run) else { return false };
    arch::irq::restore(IrqState::ON);
    scan(run);
    arch::irq::disable();
    true
}

/// Halts until an interrupt comes (Go: stopm).
fn halt(cpu: &'static Cpu) -> Last {
    // SAFETY: this CPU's own record, interrupts off.
    debug_assert!(unsafe { cpu.with_p(|p| p.has_nobody()) }, "halts with Gs");
    cpu.slices.idle();
    cpu.counters.halts.add_one();
    trace::cpu_event(Kind::Halt, 0);
    let halted = arch::cycles();
    idle_latency::halts(halted);
    arch::wait_for_interrupt();
    let last = Last::nobody();
    idle_latency::resumes(last.at);
    cpu.times.idled(last.at.wrapping_sub(halted));
    // The next G here does not inherit a slice from before the halt.
    cpu.slices.begin(last.at);
    watchdog::after_halt();
    trace::cpu_event(Kind::Resume, 0);
    last
}

/// Traces why a G has left, if that was not traced.
fn note_leaving(last: Last) {
    if let Some(left) = last.start.left_before() {
        trace::event_at(last.at, 0, left);
    }
}

/// Runs the memory upkeep: the fault reserve, unused stacks. With interrupts on, as it may wait for
/// the other CPUs; on the M's stack, so that it is not preempted and stays on this CPU.
#[cold]
fn upkeep(cpu: &Cpu) {
    cpu.slices.attention.clear(Attention::UPKEEP);
    if mem::is_short() {
        birth::shed(cpu);
    }
    arch::irq::restore(IrqState::ON);
    mem::maintain();
    arch::irq::disable();
}

/// Asks for [`mem::maintain`] at the next round of this CPU's M: a page fault has used the reserve.
/// Any context.
pub fn ask_for_upkeep() {
    // None: a CPU that has run no G yet needs no upkeep.
    if let Some(cpu) = try_this_cpu() {
        cpu.slices.attention.set(Attention::UPKEEP);
    }
}

/// Switches to a G (Go: execute); returns when a G has left the CPU that this M is then on.
#[inline(always)]
fn execute(cpu: &'static Cpu, run: Run<Task>, last: Last) -> (&'static Cpu, Last) {
    // As separate values from here on: as one struct they would be put into memory.
    let Run { g, slice, wake: _ } = run;
    let now = match cpu.slices.attention.get() {
        0 => {
            begin(cpu, g, slice, last.at);
            last.at
        }
        Attention::TRACE => {
            begin(cpu, g, slice, last.at);
            trace::switched(last.at, g.id(), start_of(slice, last));
            last.at
        }
        Attention::UNTIMED => attend_untimed(cpu, g, slice, last),
        _ => attend(cpu, g, slice, last),
    };
    idle_latency::begins(g, now);
    g.kernel.account.start(now, &cpu.times);
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    let save = match g.kernel.m.get() {
        None => cpu.sp.as_ptr(),
        Some(own) => {
            trace::cpu_event(Kind::Mount, own.id() as u32);
            call::make_room(cpu, own)
        }
    };
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `leave`, and `sched`
    // gives a G to one CPU only, with its context saved. 2. As 1, and an M's
    // stack is entered by the one CPU that has it. 3. Interrupts are off.
    unsafe { arch::switch(save, g.kernel.sp.get()) };
    came_back()
}

/// Begins or resumes the slice of a G that is about to run.
#[inline(always)]
fn begin(cpu: &Cpu, g: &G<Task>, slice: Slice, now: u64) {
    match slice {
        Slice::New => {
            let slices = &g.kernel.slices;
            slices.set(slices.get() + 1);
            cpu.slices.begin(now);
        }
        Slice::Resumed => cpu.slices.resume(now),
        Slice::Inherited => {}
    }
}

/// The trace event for a G that begins to run.
#[inline(always)]
fn start_of(slice: Slice, last: Last) -> What {
    if slice == Slice::New { last.start } else { last.start.on_same_slice() }
}

/// As [`attend`], if the only bit is that the timer is not armed: most often because a G is alone
/// on its CPU, and still is.
#[inline(never)]
fn attend_untimed(cpu: &'static Cpu, g: &'static G<Task>, slice: Slice, last: Last) -> u64 {
    // SAFETY: this CPU's own record, interrupts off.
    if !unsafe { cpu.with_p(|p| SCHED.is_untimed(p)) } {
        return attend(cpu, g, slice, last);
    }
    begin(cpu, g, slice, last.at);
    last.at
}

/// As [`begin`], with all that [`Attention`] asks for before and after it; returns the time then.
#[inline(never)]
fn attend(cpu: &'static Cpu, g: &'static G<Task>, slice: Slice, mut last: Last) -> u64 {
    if cpu.slices.attention.has(Attention::UPKEEP) {
        note_leaving(last);
        upkeep(cpu);
        last = Last::nobody();
    }
    begin(cpu, g, slice, last.at);
    // A timer that is armed already serves the next slice as well.
    // SAFETY: this CPU's own record, interrupts off.
    let needs_timer = || unsafe { cpu.with_p(|p| SCHED.needs_timer(p)) };
    if cpu.slices.chaos_on() || !cpu.slices.is_timed() && needs_timer() {
        cpu.slices.arm();
    }
    trace::event_at(last.at, g.id(), start_of(slice, last));
    last.at
}

/// Puts the G that has left this CPU where it now belongs; returns which CPU this is.
#[inline(always)]
fn came_back() -> (&'static Cpu, Last) {
    // SAFETY: a G ran here.
    let cpu = unsafe { this_cpu() };
    debug_assert!(is_running(), "nobody came back");
    // `execute` has stored the G that it switched to, on this CPU, and only the next line clears
    // it; a G leaves a CPU by coming here.
    let g = running_or_none();
    arch::point_slot!(G_SLOT, NO_G);
    let at = arch::cycles();
    g.kernel.account.stop(at, &cpu.times);
    // The most frequent reasons, with the least work.
    let last = match cpu.leaving.get() {
        Leaving::Yield => {
            // It wakes no CPU; if the ring overflowed, the P owes a wake-up, and sends it in
            // `schedule_any`.
            // SAFETY: this CPU's own record, interrupts off.
            let _ = unsafe { cpu.with_p(|p| SCHED.yielded(p, g)) };
            Last { at, start: What::start_after(Kind::Yield, 0) }
        }
        Leaving::Park => {
            // Before it is parked: from then on another CPU may own it.
            let start = What::start_after(Kind::Park, g.kernel.reason());
            // SAFETY: as above.
            match unsafe { cpu.with_p(|p| SCHED.parked(p, g)) } {
                // If its run-next place was taken and the ring overflowed, as above.
                Wake::Nobody => Last { at, start },
                wake => {
                    note_leaving(Last { at, start });
                    send(wake);
                    Last::nobody()
                }
            }
        }
        Leaving::Exit => {
            birth::lay_to_rest(cpu, g);
            Last { at, start: What::start_after(Kind::Exit, 0) }
        }
        why => settle(cpu, g, why, at),
    };
    (cpu, last)
}

/// As [`came_back`], for a G that has left for another reason, or from a call.
#[inline(never)]
fn settle(cpu: &'static Cpu, g: &'static G<Task>, why: Leaving, at: u64) -> Last {
    let reason = if why == Leaving::ParkInCall { g.kernel.reason() } else { 0 };
    trace::event_at(at, g.id(), What::new(why.kind(), reason.into()));
    if let Some(m) = g.kernel.m.get() {
        m.has_left(); // and its context is saved
    }
    if why == Leaving::Abandon {
        cpu.counters.ended.add_one();
        abandon::finish_abandoned(g, cpu.exit_reason.take());
        return Last::nobody();
    }
    let settle = |p: &mut P<Task>| match why {
        Leaving::Yield | Leaving::YieldInCall => SCHED.yielded(p, g),
        Leaving::Expire => SCHED.expired(p, g),
        Leaving::Displace => SCHED.displaced(p, g),
        Leaving::Park | Leaving::ParkInCall => SCHED.parked(p, g),
        Leaving::Exit | Leaving::Abandon => unreachable!("laid to rest"),
    };
    // SAFETY: this CPU's own record, interrupts off.
    send(unsafe { cpu.with_p(settle) });
    Last::nobody()
}
