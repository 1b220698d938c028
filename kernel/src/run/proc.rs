//! How a CPU goes from G to G: a G leaves, is put where it belongs, and the next is found and run;
//! and how a G is readied (Go: proc.go).
//!
//! # A turn
//!
//! A G that leaves saves its own context and calls a function on the stack of its M ([`leave`]; Go:
//! mcall): [`gosched_m`], [`park_m`] or [`goexit0`]. That function, off the G's stack, tells
//! `sched` where the G now belongs, finds the next G ([`schedule`]) and jumps into that G's context
//! ([`execute`]; Go: gogo). It does not return, so an M has no context: each turn begins at the end
//! of the M's stack, and ends with nothing on it.
//!
//! This is the hottest path of the kernel, and all of it is inlined into these three functions.
//! Rare work leaves it for good, by a call that ends the turn itself: [`schedule_slow`] if there is
//! no G in the P's own queue, [`execute_slow`] if an attention bit is set, [`stop_m`] if there is
//! no G, and the reasons of [`Leaving`] that come from an interrupt or a failure.
//!
//! # Why by way of the M's stack
//!
//! A G that leaves could find the next G on its own stack and jump there. It may not be in a queue
//! meanwhile, because another CPU would run it on a stack that is in use: so the next G would have
//! to queue it, wherever that one continues: at the root of a new G, after a park, after an
//! interrupt, in a call on the stack of another M. Here a G is queued, parked or recycled only
//! after its context is saved, off its own stack, and in one place. The price is to load one stack
//! pointer; the M's own context is neither saved nor restored. And a G that has ended is recycled
//! where there is room for it, not on the stack of another G, which may have little.
//!
//! A G that waits under a lock keeps it across the switch, and the M frees it when the G is parked
//! ([`park_unlock`]). Other waits are in two halves, so that no wake-up is lost between the
//! decision to wait and the switch: [`begin_park`] and [`park`] (`door`, "How to wait").
//!
//! # One reading of the clock
//!
//! The counter is read when a G has left. That is the end of its time on the CPU, the end of the
//! next G's time in the queue, the beginning of that G's slice, and the time of the event that
//! records both ([`Last`]); so the kernel's time in between is charged to the next G. Only code
//! that has done something longer reads it again.

use super::error::{Filled, Full};
use super::kill::{self, KillLevel};
use super::preempt::{Attention, NEVER};
use super::ring;
use super::task::{GHandle, Running, Task};
use super::waiting::{Reason, Wait};
use super::{
    CPUS, Cpu, Event, G_SLOT, Kind, NO_G, OnCpu, SCHED, TIMERS, What, all_idle, all_slices, busy,
    call, cycles_run, hooks, is_running, running, running_or_none, set_timer, spawn, this_cpu,
    try_this_cpu,
};
use crate::arch;
use crate::arch::irq::IrqState;
use crate::arch::lock::{IrqLock, open_word};
use crate::mem::frames::{self, Reserve, Stock};
use crate::mem::percpu::Here;
use crate::mem::stack::{self, pack, slot};
use crate::mem::{self, NoMemory, reclaim};
use core::mem::{MaybeUninit, offset_of};
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use sched::{G, Kept, Next, P, Run, Slice, Status, Unrotated, Wake};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It yields: other Gs run first.
    Yield,
    /// It has called `begin_park` and has published its handle to a waker.
    Park,
    /// Its work is done.
    Exit,
    /// As `Exit`, and its record and stack are not kept for the next G (`system`).
    ExitThread,
    /// Its slice is over.
    Expire,
    /// An interrupt has readied another that is in a hurry.
    Displace,
    /// It can neither continue nor unwind: see `abandon`.
    Abandon,
}

impl Leaving {
    /// What the M does then.
    #[inline(always)]
    pub(crate) fn on_m(self) -> arch::OnM<Cpu, G<Task>> {
        arch::OnM::new(match self {
            Leaving::Yield => gosched_m,
            Leaving::Park => park_m,
            Leaving::Exit => goexit0,
            Leaving::ExitThread => goexit_thread,
            Leaving::Expire => expire_m,
            Leaving::Displace => displace_m,
            Leaving::Abandon => abandon_m,
        })
    }
}

/// How often dead Gs are trimmed in one upkeep.
const TRIMS: usize = 8;

/// Where a G has its stack pointer, and a CPU the bottom of its M's stack: for `arch`.
pub(crate) const SP: usize = offset_of!(G<Task>, kernel.sp);
pub(crate) const BOTTOM: usize = offset_of!(Cpu, sp);

/// How this CPU came to look for a G: what one switch passes to the next.
#[derive(Clone, Copy)]
struct Last {
    /// The cycle counter then: a switch reads it only once.
    at: u64,
    /// The event of the next G's start: says why the last G left, unless that was traced already.
    start: What,
}

impl Last {
    /// As of now, with no G that has left: what the CPU does from here on is the next G's.
    fn now(cpu: &Cpu) -> Self {
        let at = arch::cycles();
        cpu.times.begin_runs(at);
        Last { at, start: What::START }
    }

    /// Records that a G has left, as an event of its own: something longer precedes the next start,
    /// and is not charged to a G. [`Last::now`] follows.
    #[inline(always)]
    fn record(self, on: &mut OnCpu<'_>) {
        const RECORDS: u32 = Attention::TRACED | Attention::ACCOUNT | Attention::SHARES;
        if on.cpu().slices.attention.has(RECORDS) {
            self.record_slow(on);
        }
        on.cpu().times.end_runs(self.at);
    }

    #[cold]
    fn record_slow(self, on: &mut OnCpu<'_>) {
        SCHED.end_share(on.p(), self.at);
        if hooks::is_traced()
            && let Some(left) = self.start.left_before()
        {
            (hooks::get().event_at)(self.at, 0, left);
        }
        if on.cpu().slices.attention.has(Attention::ACCOUNT) {
            on.cpu().times.count_last_run(self.at);
        }
    }
}

/// The first function on the M of a CPU that comes up (Go: mstart1).
pub(crate) extern "C" fn mstart1(cpu: &'static Cpu, _: &'static G<Task>) -> ! {
    // SAFETY: 1, 2. Called with interrupts off, by a CPU that has its record. 3. The caller is
    // gone.
    schedule(unsafe { OnCpu::of(cpu) }, Last::now(cpu))
}

/// `g` has left that CPU, which is this one: its context is saved, and no code is on its stack. It
/// stays the running G until the next is found, or none. `start` says how it left.
#[inline(always)]
fn left<'a>(cpu: &'static Cpu, g: &'static G<Task>, start: What) -> (OnCpu<'a>, Last) {
    debug_assert!(ptr::eq(g, running_or_none()) && is_running(), "another G came back");
    // SAFETY: 1, 2. Every G leaves with interrupts off, from a CPU that has its record, and gives
    // that one. 3. The G has given up its own.
    (unsafe { OnCpu::of(cpu) }, Last { at: g.kernel.account.left(arch::cycles()), start })
}

/// The running G yields (Go: gosched_m). If it is alone, it goes on: a slice that had no timer
/// needs none now either, and a timer that is armed does no harm.
extern "C" fn gosched_m(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (mut on, last) = left(cpu, g, What::start_after(Kind::Yield, 0));
    match SCHED.rotate(on.p(), g) {
        Ok(next) => execute(on, next, Slice::New, last),
        Err(Unrotated::Kept)
            if on.cpu().slices.attention.get() & !Attention::UNTIMED == 0
                && SCHED.is_alone(on.p()) =>
        {
            on.p().count_slice();
            g.kernel.count_slice();
            on.cpu().slices.begin(last.at);
            run_g(on, g, last.at)
        }
        Err(rest) => gosched_slow(on, g, last, rest),
    }
}

#[cold]
fn gosched_slow(mut on: OnCpu<'_>, g: &'static G<Task>, last: Last, rest: Unrotated) -> ! {
    let next = SCHED.rotate_slow(may_lend(&mut on), g, rest);
    carry_out(on, next, last)
}

/// The running G parks (Go: park_m).
extern "C" fn park_m(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (on, last) = left(cpu, g, What::start_after(Kind::Park, g.kernel.reason()));
    match g.finish_park() {
        true => schedule(on, last),
        false => put_back(on, g, last),
    }
}

/// The running G parks, and holds the lock of this word: frees it (Go: park_m with parkunlock_c).
/// `start` says why it parks.
extern "C" fn park_unlock_m(
    cpu: &'static Cpu,
    g: &'static G<Task>,
    _: usize,
    lock: usize,
    start: u32,
) -> ! {
    let (on, last) = left(cpu, g, What::from_word(start));
    g.park_locked();
    // SAFETY: `park_unlock` has passed it. What it is in is not gone: the G that waits has not
    // returned, and is not readied by what it waits for before the lock is free.
    unsafe { open_word(lock) };
    schedule(on, last)
}

#[cold]
fn put_back(mut on: OnCpu<'_>, g: &'static G<Task>, last: Last) -> ! {
    let wake = SCHED.put_back(on.p(), g);
    schedule_after(on, wake, last)
}

/// The running G has ended (Go: goexit0).
extern "C" fn goexit0(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (mut on, last) = left(cpu, g, What::start_after(Kind::Exit, 0));
    match spawn::recycle(&mut on, g) {
        true => schedule(on, last),
        false => goexit_slow(on, g, last),
    }
}

/// The running G has ended, and is freed.
extern "C" fn goexit_thread(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (on, last) = left(cpu, g, What::start_after(Kind::Exit, 0));
    spawn::free(&on, g);
    schedule(on, last)
}

#[cold]
fn goexit_slow(mut on: OnCpu<'_>, g: &'static G<Task>, last: Last) -> ! {
    spawn::recycle_slow(&mut on, g);
    schedule(on, last)
}

/// The slice of the running G is over.
extern "C" fn expire_m(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (mut on, last) = left(cpu, g, What::start_after(Kind::Expire, 0));
    match SCHED.expire(on.p(), g) {
        Some(next) => {
            on.cpu().slices.arm_whole(last.at); // `g` waits
            execute(on, next, Slice::New, last)
        }
        None => expire_slow(on, g, last),
    }
}

#[cold]
fn expire_slow(mut on: OnCpu<'_>, g: &'static G<Task>, last: Last) -> ! {
    on.cpu().slices.attention.set(Attention::UNTIMED); // the timer may have fired
    let wake = SCHED.expired(on.p(), g);
    schedule_after(on, wake, last)
}

/// The running G lends its slice.
extern "C" fn displace_m(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (mut on, last) = left(cpu, g, What::start_after(Kind::Displace, 0));
    SCHED.displaced(on.p(), g);
    match SCHED.find_local(on.p(), true) {
        Some((g, slice)) => execute(on, g, slice, last),
        None => schedule_slow(on, last),
    }
}

extern "C" fn abandon_m(cpu: &'static Cpu, g: &'static G<Task>) -> ! {
    let (on, last) = left(cpu, g, What::start_after(Kind::Exit, 0));
    abandoned(on, g, last)
}

fn abandoned(on: OnCpu<'_>, g: &'static G<Task>, last: Last) -> ! {
    no_g();
    on.cpu().counters.ended.add_one();
    on.cpu().slices.attention.set(Attention::UNTIMED); // as in `expire_slow`
    (hooks::get().finish_abandoned)(g, on.cpu().exit_reason.take());
    schedule_after(on, Wake::Nobody, last)
}

/// There is no frame for the stack of a G that was to run: the other Gs run first. If that does not
/// help, the G must end: it runs with some of the last frames, which it needs to unwind, as one
/// that is killed, so that it leaves its wait queues. If there are too few, it has to wait once
/// more, and is abandoned the second time (`mem::stack::pack`, "Unpacking finds a frame").
#[cold]
fn starved<'a>(mut on: OnCpu<'a>, g: &'static G<Task>, last: Last) -> OnCpu<'a> {
    let mut is_there = false;
    if pack::is_hopeless(arch::now_ns()) {
        let (sp, was_full) = (g.kernel.sp.get() as u64, g.kernel.full.get().is_some());
        is_there = pack::restore(sp, Stock::Last) != Some(Err(NoMemory))
            && slot::locate(sp).is_some_and(|(slot, _)| stack::rescue(slot, sp));
        // Its own, if it keeps these pages: see `packing::look`.
        g.kernel.full.set(Some(Filled { why: Full::NoMemory, is_own: is_there || was_full }));
        let _ = kill::request(&g.handle(), KillLevel::Requested);
        if !is_there && was_full {
            abandoned(on, g, last)
        }
    }
    if !is_there {
        let wake = SCHED.expired(on.p(), g);
        schedule_after(on, wake, last)
    }
    log::error!("{} found no memory for its stack, and is killed", Running(g));
    on
}

/// The running G was switched to, and there was no frame to unpack its stack: tries again when
/// memory was reclaimed. Comes from a page fault, as [`abandon_in_fault`].
pub(crate) extern "C" fn unpack_in_fault() -> ! {
    let g = running_or_none();
    // SAFETY: a G runs here, and it had interrupts off since it was switched to.
    let (on, last) = left(unsafe { this_cpu() }, g, What::start_after(Kind::Expire, 0));
    ask_for_upkeep();
    execute_slow(on, g, last, Slice::Inherited)
}

/// The running G is abandoned in a page fault, which comes here with no arguments.
pub(crate) extern "C" fn abandon_in_fault() -> ! {
    // SAFETY: a G runs here, and it had interrupts off since the fault.
    abandon_m(unsafe { this_cpu() }, running_or_none())
}

/// The end of the longer ways of leaving: sends the wake-up first.
#[cold]
fn schedule_after(mut on: OnCpu<'_>, wake: Wake, last: Last) -> ! {
    last.record(&mut on);
    send(wake);
    let last = Last::now(on.cpu());
    schedule(on, last)
}

/// From here on no G runs on this CPU: something longer than a turn follows.
fn no_g() {
    arch::point_slot!(G_SLOT, NO_G);
}

/// Finds the next G and runs it, or halts until there is one (Go: schedule).
#[inline(always)]
fn schedule(mut on: OnCpu<'_>, last: Last) -> ! {
    match SCHED.find_local(on.p(), false) {
        Some((g, slice)) => execute(on, g, slice, last),
        None => schedule_slow(on, last),
    }
}

/// The P's own queue is empty, or another place comes first.
#[cold]
fn schedule_slow(mut on: OnCpu<'_>, last: Last) -> ! {
    let next = SCHED.find_runnable(may_lend(&mut on));
    carry_out(on, next, last)
}

/// This CPU's P, which knows whether it may lend time, if an urgent G waits, and has paid for the G
/// that has left, if one waits in the lane of a program.
fn may_lend<'a>(on: &'a mut OnCpu<'_>) -> &'a mut P<Task> {
    let (cpu, p) = on.parts();
    if SCHED.has_ranked(p) {
        let (slices, now) = (&cpu.slices, arch::cycles());
        // If a G was displaced, its slice goes on.
        let lends =
            if p.has_displaced() { slices.may_lend(now) } else { slices.may_lend_next(now) };
        p.set_lends(lends);
        SCHED.end_share(p, now);
    }
    p
}

#[inline(always)]
fn carry_out(mut on: OnCpu<'_>, next: Next<Task>, last: Last) -> ! {
    match next {
        Next::Run(Run { g, slice, wake }) => {
            let last = searched(&mut on, g, wake, last);
            if slice == Slice::New {
                g.kernel.count_slice();
                on.cpu().slices.begin(last.at);
            }
            execute_slow(on, g, last, slice)
        }
        Next::Park(wake) => stop_m(on, wake, last),
    }
}

/// Runs a G (Go: execute).
#[inline(always)]
fn execute(on: OnCpu<'_>, g: &'static G<Task>, slice: Slice, last: Last) -> ! {
    // First: where the slice is known, nothing of it is left to be tested.
    match slice {
        Slice::New => {
            g.kernel.count_slice();
            on.cpu().slices.begin(last.at);
            if on.cpu().slices.attention.get() != 0 {
                execute_slow(on, g, last, Slice::New); // by its name: no register has it till here
            }
        }
        Slice::Inherited if on.cpu().slices.attention.get() == 0 => {}
        Slice::Inherited => inherit_slow(on, g, last),
        Slice::Resumed | Slice::Lent => execute_slow(on, g, last, slice),
    }
    run_g(on, g, last.at)
}

/// Makes a G the running one, and jumps into its context (Go: gogo).
#[inline(always)]
fn run_g(on: OnCpu<'_>, g: &'static G<Task>, at: u64) -> ! {
    if cfg!(debug_assertions) {
        (hooks::get().runs)(g, at);
    }
    let cpu = on.cpu();
    g.kernel.account.begins(at);
    cpu.times.switches.add_one();
    arch::set_slot::<G_SLOT>(core::ptr::from_ref(g).addr());
    // SAFETY: as below, 1.
    unsafe { arch::sections::goes_on::<_, SP>(g) };
    // SAFETY: 1. `sp` was prepared by `spawn` or saved by `mcall`, and `sched` gives a G to one CPU
    // only, with its context saved. 2. As 1: its stack, or that of its M, which has left with it.
    // 3. Interrupts are off.
    unsafe { arch::gogo::<_, SP>(g) }
}

/// [`execute_slow`] for a G that inherits its slice. By a name of its own: else every turn would put
/// the slice into a register, for the call that it seldom makes.
#[cold]
#[inline(never)]
fn inherit_slow(on: OnCpu<'_>, g: &'static G<Task>, last: Last) -> ! {
    execute_slow(on, g, last, Slice::Inherited)
}

/// [`execute`] with more to do: the G was found elsewhere than in the P's own queue, or an
/// attention bit is set, or the G goes on with a slice that it had lent. No more arguments than fit
/// in registers: for one on the stack every turn would make room.
#[cold]
fn execute_slow(mut on: OnCpu<'_>, g: &'static G<Task>, mut last: Last, slice: Slice) -> ! {
    let mut attention = on.cpu().slices.attention.get();
    if attention & Attention::UPKEEP != 0 {
        last.record(&mut on);
        no_g();
        (on, _) = upkeep(on);
        if pack::is_always() {
            ask_for_upkeep();
        }
        last = Last::now(on.cpu());
        if slice == Slice::New {
            on.cpu().slices.begin(last.at); // later than it was begun
        }
        let sp = g.kernel.sp.get() as u64;
        if frames::reserve_left() == Reserve::Critical && pack::is_small(sp)
            || pack::restore(sp, Stock::Run).is_some_and(|restored| restored.is_err())
        {
            on = starved(on, g, last);
        }
        pack::goes_on();
        attention = on.cpu().slices.attention.get();
    }
    let start = if slice == Slice::New { last.start } else { last.start.on_same_slice() };
    match slice {
        Slice::New => on.cpu().slices.end_loan(),
        Slice::Inherited => {}
        Slice::Resumed => on.cpu().slices.resume(last.at),
        Slice::Lent => on.cpu().slices.lend_next(last.at),
    }
    let (cpu, p) = on.parts();
    let has = |bit| attention & bit != 0;
    // A timer that is armed already serves the next slice as well.
    if has(Attention::CHAOS) || has(Attention::UNTIMED) && SCHED.needs_timer(p) {
        cpu.slices.arm(last.at);
    } else {
        cpu.slices.arm_for_deadlines(); // a tick may have left that to this switch
    }
    if has(Attention::ACCOUNT) {
        cpu.times.count_last_run(last.at);
        g.kernel.account.was_queued(&cpu.times, last.at);
    }
    if has(Attention::SHARES) {
        SCHED.begin_share(p, g, g.kernel.program().lane(), last.at);
    }
    match attention & Attention::TRACED {
        0 => {}
        Attention::TRACE => {
            let event = Event { time: last.at, g: g.id() as u32, what: start };
            // SAFETY: `Attention::TRACE` is set when the rings have memory. This CPU's own,
            // interrupts off.
            if unsafe { ring::here().push(event) } {
                (hooks::get().half_full)();
            }
        }
        _ => (hooks::get().event_at)(last.at, g.id(), start),
    }
    run_g(on, g, last.at)
}

/// A G was found elsewhere than in the P's own queue: that took a while, and a CPU may have to be
/// woken.
fn searched(on: &mut OnCpu<'_>, g: &G<Task>, wake: Wake, last: Last) -> Last {
    last.record(on);
    if let Some((victim, stolen)) = on.p().take_stolen() {
        hooks::event(Kind::Steal, g.id(), (victim as u32) << 12 | stolen.min(0xfff));
    }
    send(wake);
    Last::now(on.cpu())
}

/// There is no G: does the work of a CPU without a G, or halts, until there is one (Go: stopm).
#[cold]
fn stop_m(mut on: OnCpu<'_>, mut wake: Wake, last: Last) -> ! {
    last.record(&mut on);
    no_g();
    loop {
        send(wake);
        on = rest(on);
        wake = match SCHED.find_runnable(may_lend(&mut on)) {
            Next::Park(wake) => wake,
            found => {
                if on.cpu().slices.at_rest.has(Attention::WATCHDOG) {
                    (hooks::get().after_rest)();
                }
                let last = Last::now(on.cpu());
                carry_out(on, found, last)
            }
        };
    }
}

/// One thing that a CPU without a G does; the caller looks for Gs again.
fn rest(mut on: OnCpu<'_>) -> OnCpu<'_> {
    if on.cpu().slices.attention.has(Attention::UPKEEP) {
        let (on, is_more) = upkeep(on);
        if is_more && !pack::is_always() {
            ask_for_upkeep(); // it has nothing else to do
        }
        return on;
    }
    if !all_idle() {
        let is_watched = on.cpu().slices.at_rest.has(Attention::WATCHER);
        // If a G was readied, it is in the inbox.
        let is_readied = is_watched && (hooks::get().poll_watcher)(busy());
        return if is_readied { on } else { halt(on) };
    }
    let run = cycles_run();
    match (hooks::get().on_all_idle)(run) {
        Some(act) => on = on.open(|| act(run)),
        None => on = halt(on),
    }
    on
}

fn halt(mut on: OnCpu<'_>) -> OnCpu<'_> {
    debug_assert!(on.p().is_empty(), "halts with Gs");
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
    on.cpu().slices.rested(now);
    on.p().set_lends(true); // to Gs in its inbox, too
    if cfg!(debug_assertions) {
        (hooks::get().resumes)(now);
    }
    hooks::cpu_event(Kind::Resume, 0);
    if pack::is_always() {
        ask_for_upkeep();
    }
    on
}

/// Runs the memory upkeep: the fault reserve, unused stacks. With interrupts on, as it may wait for
/// the other CPUs; on the M's stack, so that it is not preempted and stays on this CPU. True if
/// there is more to do.
#[cold]
fn upkeep(mut on: OnCpu<'_>) -> (OnCpu<'_>, bool) {
    on.cpu().slices.attention.clear(Attention::UPKEEP);
    // A few at a time: interrupts are off.
    for _ in 0..TRIMS {
        if !mem::is_short() || !spawn::trim(&mut on) {
            break;
        }
        on = on.open(|| ());
    }
    let before = pack::stats().packs;
    let mut is_more = false;
    on = on.open(|| is_more = mem::maintain());
    let packed = pack::stats().packs.wrapping_sub(before);
    if packed > 0 {
        hooks::cpu_event(Kind::Pack, packed as u32);
    }
    (on, is_more)
}

/// Called by the page-fault handler when too few of the frames that are reserved for unpacking are
/// left. Each CPU's M refills the reserve before it runs another G; the G that runs here leaves for
/// that as soon as interrupts are on, if they were off (`mem::stack::pack`).
#[cold]
pub fn refill_reserve(were_off: bool) {
    all_slices().for_each(|slices| slices.attention.set(Attention::UPKEEP));
    if were_off && is_running() {
        arch::wake(arch::cpu_index());
    }
}

/// Asks for [`mem::maintain`] at the next round of this CPU's M: a page fault has used the reserve.
/// Any context.
pub fn ask_for_upkeep() {
    // None: a CPU that has run no G yet needs no upkeep.
    if let Some(cpu) = try_this_cpu() {
        cpu.slices.attention.set(Attention::UPKEEP);
    }
}

/// The running G leaves its CPU (Go: mcall); returns when it runs again. Interrupts are off; they
/// are on then, as they must have been before: `irqs`.
#[inline(always)]
pub(crate) fn leave(irqs: IrqState, g: &'static G<Task>, why: Leaving) {
    // A G that left with a lock held or interrupts off would take both along.
    debug_assert!(irqs.were_on(), "irqs off");
    // SAFETY: 1. The caller has them off. 2. A G runs here. 3. Its caller has none: the G leaves.
    let on = unsafe { OnCpu::assume() };
    match g.kernel.m.get() {
        None => mcall(on, g, why),
        Some(_) => call::leave(on, g, why),
    }
    arch::irq::restore(IrqState::ON);
}

/// Goes to the M of this CPU for the running G, which does not use the M's stack; returns when the
/// G runs again.
#[inline(always)]
pub(crate) fn mcall(on: OnCpu<'_>, g: &'static G<Task>, why: Leaving) {
    let none = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: 1. `SP` and `BOTTOM` are such fields; the stack of the M on this CPU, where a turn
    // leaves nothing. 2. No CPU runs this G before the M has told `sched`, which is on the M's
    // stack.
    // 3. Interrupts are off. 4. It has no words.
    unsafe { arch::mcall::<_, _, SP, BOTTOM>(on.give_up(), g, why.on_m(), none) };
}

/// As [`mcall`], for a G that never runs again.
#[inline(always)]
pub(crate) fn mcall_for_good(on: OnCpu<'_>, g: &'static G<Task>, why: Leaving) -> ! {
    // SAFETY: 1. The stack of the M on this CPU, which is empty while a G runs. 2. No CPU runs this
    // G any more. 3. Interrupts are off.
    unsafe { arch::mcall_for_good::<_, _, BOTTOM>(on.give_up(), g, why.on_m()) }
}

/// Lets the other Gs of this P run first (Go: Gosched).
///
/// ```no_run
/// runnext::yield_now();
/// ```
#[inline(always)]
pub fn yield_now() {
    super::door::might_park();
    let g = running_or_none();
    if g.kernel.is_unusual() {
        return yield_slow();
    }
    arch::probe_stack_again();
    let irqs = arch::irq::disable();
    debug_assert!(irqs.were_on(), "irqs off");
    // SAFETY: 1. See above. 2. A G runs here. 3. Its caller has none: the G leaves.
    mcall(unsafe { OnCpu::assume() }, g, Leaving::Yield);
    arch::irq::restore(IrqState::ON);
}

/// As [`yield_now`] for a G in a call, or for which a kill was requested: it may do nothing but
/// yield for ever; a G that waits checks when it is woken.
#[cold]
fn yield_slow() {
    let g = running().expect("no G to leave");
    if g.kernel.kill.is_set() {
        kill::check_kill_at_spawn();
    }
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Yield);
}

/// The first half of waiting: from here on [`ready`] is not lost. Call it before publishing that
/// this G waits, and then [`park`].
#[inline(always)]
pub fn begin_park(wait: Wait) -> GHandle {
    let g = running().expect("no G to park");
    g.kernel.waiting.store(wait.pack(), Relaxed);
    // A reader that sees that it parks sees why (`holder::Seen`); no instruction on x86.
    fence(Release);
    let handle = g.to_park();
    g.begin_park();
    handle
}

/// In place of [`begin_park`], for a G that holds the lock of what it waits for and parks by
/// [`park_unlock`].
#[inline(always)]
pub fn begin_wait(wait: Wait) -> GHandle {
    let g = running_or_none(); // `park_unlock` notices if it is none
    g.kernel.waiting.store(wait.pack(), Relaxed);
    g.to_park()
}

/// The second half of waiting (Go: gopark): leaves the CPU until [`ready`] is called for it.
/// Inlined: a switch changes all registers, and callers save them already.
#[inline(always)]
pub fn park() {
    let g = running().expect("no G to park");
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Park);
}

/// Parks `g`, which is the running G and has called [`begin_wait`], and frees the lock when it is
/// off its stack. So a G that takes the lock next finds it parked: no wake-up can come before, and
/// no state has to remember one. `reason` is that of its wait. `irqs`: they were on before the lock
/// was taken.
///
/// # Safety
/// The caller holds the lock, and what it is in stays until the lock is free.
#[inline(always)]
pub unsafe fn park_unlock<T>(irqs: IrqState, g: GHandle, reason: Reason, lock: &IrqLock<T>) {
    debug_assert!(irqs.were_on(), "irqs off");
    let g = g.parts().0;
    if g.kernel.is_unusual() {
        return park_unusual(g, lock.word());
    }
    // SAFETY: 1. Off since the lock was taken. 2. A G runs here. 3. Its caller has none: it leaves.
    let on = unsafe { OnCpu::assume() };
    let start = What::start_after(Kind::Park, reason as u8).to_word();
    let words = (MaybeUninit::new(lock.word()), MaybeUninit::new(start));
    // SAFETY: as in `mcall`; and it gets its words.
    unsafe {
        let f = arch::OnM::with_words(park_unlock_m);
        arch::mcall::<_, _, SP, BOTTOM>(on.give_up(), g, f, words);
    }
    arch::irq::restore(IrqState::ON);
}

/// The G is in a call, whose M may halt here with it, or a kill was requested: it frees the lock
/// first. With a kill request it does not park: a spurious wake-up; the caller checks.
#[cold]
fn park_unusual(g: &'static G<Task>, lock: usize) {
    assert!(is_running(), "no G to park");
    g.begin_park();
    // SAFETY: as the caller of `park_unlock` promises.
    unsafe { open_word(lock) };
    if g.kernel.ends_when_woken(g.id()) {
        g.cancel_park();
        return arch::irq::restore(IrqState::ON);
    }
    leave(IrqState::ON, g, Leaving::Park);
}

/// Keeps the running G so from here on, and goes there; returns how it was kept. `None`, and nothing
/// is done, if it would have to go, but is in a call.
pub fn keep(kept: Kept) -> Option<Kept> {
    let g = running().expect("no G to keep");
    let irqs = arch::irq::disable_probed();
    let goes = kept.cpu().is_some_and(|cpu| cpu != arch::cpu_index());
    if goes && g.kernel.m.get().is_some() {
        arch::irq::restore(irqs);
        return None;
    }
    let before = g.keep(kept);
    if goes {
        let handle = begin_park(Wait::new(Reason::None, 0));
        ready_from(arch::irq::disable(), handle); // they stay off
        leave(irqs, g, Leaving::Park);
    } else {
        arch::irq::restore(irqs);
    }
    Some(before)
}

/// Whether spinning for another G makes sense (Go: sync_runtime_canSpin): that G can run meanwhile,
/// and no G waits for this CPU. Not with a kill requested: then the G could be abandoned as it
/// spins, and waiters that it keeps from being woken (`wait::mutex`, CALLS) would never be.
pub fn may_spin() -> bool {
    let is_killed = running_or_none().kernel.kill.is_set();
    !is_killed && SCHED.limit() > 1 && SCHED.slots()[arch::cpu_index()].ring().is_empty()
}

/// Whether the caller can park here, for callers that have another way if not: it is a G that does
/// not park already, with interrupts on, and its stack was not full.
pub fn may_wait() -> bool {
    let can_park =
        |g: &'static G<Task>| g.status() == Status::Running && g.kernel.full.get().is_none();
    arch::irq::enabled() && running().is_some_and(can_park)
}

/// Takes back a [`begin_park`]. True if the G was readied meanwhile; that wake-up is consumed.
pub fn cancel_park() -> bool {
    running().expect("no G to park").cancel_park()
}

/// As [`park`], until `deadline_ns` at most; false if that came first, or `end_limit` was
/// called.
pub fn park_until(deadline_ns: u64) -> bool {
    let g = running().expect("no G to park");
    if deadline_ns <= arch::now_ns() {
        return g.cancel_park(); // no switch; true if readied meanwhile
    }
    if deadline_ns != NEVER {
        g.kernel.waits_until_some_time();
    }
    set_timer(g, deadline_ns);
    // This G parks, then reads; a G that cancels stores, then readies: one of them sees the other.
    fence(SeqCst);
    if g.kernel.is_limit_over() {
        TIMERS.cancel(g);
        g.cancel_park();
        return false;
    }
    arch::probe_stack_again();
    leave(arch::irq::disable(), g, Leaving::Park);
    TIMERS.cancel(g) && !g.kernel.is_limit_over()
}

/// Readies a G that waits (Go: goready); a G that does not wait is left alone.
#[inline(never)]
pub fn ready(g: GHandle) {
    arch::probe_stack_again(); // the caller that took it from a wait queue has probed
    ready_from(arch::irq::disable(), g);
}

/// As [`ready`], for a caller that has had interrupts off since before it released the lock of the
/// wait queue. They are off until the wake-up is sent: `sched` expects a CPU that it has claimed to
/// come, and a G preempted in between would delay the wake-up until it runs again.
#[inline(always)]
pub fn ready_from(irqs: IrqState, g: GHandle) {
    // SAFETY: 1. The caller has them off, until `restore`. 2. Every caller comes after `init_cpu`.
    // 3. The caller has none.
    let mut on = unsafe { OnCpu::assume() };
    let (cpu, p) = on.parts();
    let is_watched = cpu.slices.attention.get() != 0 || cfg!(debug_assertions);
    match if is_watched { None } else { SCHED.ready_parked(p, &g) } {
        Some(Wake::Nobody) => {}
        Some(wake) => submitted(cpu, p, wake),
        None => ready_slow(on, g),
    }
    arch::irq::restore(irqs);
}

/// The part of [`ready_from`] with interrupts off, for a G that may not be parked, or where an
/// attention bit is set.
#[cold]
fn ready_slow(mut on: OnCpu<'_>, g: GHandle) {
    let (cpu, p) = on.parts();
    let wake = SCHED.ready(p, g, |g, was| note_ready(g, was, 0));
    submitted(cpu, p, wake);
}

/// A G was readied that was in this state, by an interrupt (1) or not (0).
#[cold]
pub(crate) fn note_ready(g: &'static G<Task>, was: Status, by: u32) {
    let attention = &CPUS[arch::cpu_index()].slices.attention;
    if !attention.has(Attention::TRACED | Attention::ACCOUNT) && !cfg!(debug_assertions) {
        return;
    }
    // A G that is still on its CPU has waited for no time. Checked builds compute how long a CPU
    // was idle while a G was queued.
    let is_counted = attention.has(Attention::ACCOUNT) || cfg!(debug_assertions);
    if is_counted && was == Status::Parked {
        g.kernel.account.has_waited(arch::cycles());
    }
    hooks::event(Kind::Ready, g.id(), by);
}

/// The end of a submit that has found a CPU to wake, or an attention bit: sends the wake-up, and
/// arms the timer if the calling G must be preempted for the G that was submitted. Interrupts are
/// off since before the submit, as in [`ready_from`].
#[cold]
pub(crate) fn submitted(cpu: &Cpu, p: &P<Task>, wake: Wake) {
    if !cpu.slices.is_timed() && is_running() && SCHED.needs_timer(p) {
        cpu.slices.arm(arch::cycles());
    }
    send(wake);
}

/// Carries out a wake-up, and interrupts each CPU that runs a G without a timer if a G now waits
/// for that CPU.
#[cold]
pub(crate) fn send(wake: Wake) {
    if let Wake::Cpu(cpu) = wake {
        wake_cpu(cpu);
    }
    while let Some(cpu) = SCHED.take_untimed() {
        // This CPU checks for itself: before it called, or when it runs a G next.
        if cpu != arch::cpu_index() {
            wake_cpu(cpu);
        }
    }
}

/// Interrupts a CPU, so that it looks for Gs.
#[cold]
pub(crate) fn wake_cpu(cpu: usize) {
    let here = Here::enter(); // counted where it is done
    let own = &CPUS[here.index()];
    own.counters.wakes.add_one();
    hooks::cpu_event(Kind::WakeSent, cpu as u32);
    if !own.slices.chaos_on() || !(hooks::get().defers_wake)(&here, cpu) {
        arch::wake(cpu);
    }
}

/// The [`reclaim::Wait`]: the running G leaves its CPU until the M there has reclaimed that many
/// pages. False if the G cannot leave here: with interrupts off, or when it is about to park. In a
/// blocking call it leaves with its M, and the spare M does the work. It does not check for a kill
/// request: an allocation does not unwind.
pub fn wait_for_memory(pages: usize) -> bool {
    let g = match running() {
        Some(g) if arch::irq::enabled() && g.status() == Status::Running => g,
        _ => return false,
    };
    let irqs = arch::irq::disable_probed();
    let request = reclaim::want(&Here::enter(), pages);
    ask_for_upkeep();
    leave(irqs, g, Leaving::Yield);
    // Another CPU may have stolen the G while the M still reclaims.
    while !request.is_done() {
        arch::probe_stack_again();
        leave(arch::irq::disable(), g, Leaving::Yield);
    }
    true
}
