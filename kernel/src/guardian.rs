//! Watchdog: finds CPUs with interrupts off or spinning for two seconds.
//!
//! A CPU that takes no interrupts cannot report that; another one must notice. Two CPUs are
//! watchdogs at a time ([`posts`]): twice a second each of them checks all others, and [`ward`]
//! decides the next step: send a liveness interrupt, send an NMI, report. The NMI reaches the CPU
//! whatever it does, and its handler there records the CPU's own backtrace, which is the only place
//! from which that is safe. The watchdog prints it, once an incident, and a line when the CPU
//! continues. `stuck=report|stop|off` selects what follows.
//!
//! # Which CPUs are watchdogs
//!
//! A CPU that comes out of a halt takes a vacant post ([`after_halt`]), so that there are watchdogs
//! whenever a CPU runs. If it finds the other post vacant as well, the machine was idle and it may
//! be the only CPU to wake: it gives that post to a halted CPU, by an interrupt, so that it is
//! watched itself from its first instruction on. Both keep their posts for half a second at least,
//! so that is one interrupt in half a second at most. A watchdog that is busy itself hands its post
//! to a halted CPU, if there is one: that CPU is at no place where it could get stuck, and a CPU
//! that is the only busy one is watched by another. Watchdogs watch each other, so that one that
//! gets stuck is found by the other, and its post is vacant then. With one CPU there is no
//! watchdog, and nothing is watched.
//!
//! # No unnecessary tick
//!
//! A watchdog sets its timer for its next check, beside slices and sleepers ([`due`]). If it finds
//! all CPUs halted it leaves its post, so an idle machine has no tick; nor is there any work where
//! Gs are switched. A watchdog's interrupt is not counted as a tick of the scheduler.
//!
//! # What is not found
//!
//! A CPU that is stuck in an interrupt although it has no G to run, unless it spins on a lock. And
//! a CPU with interrupts on that computes for ever: a G may do that.
#![forbid(unsafe_code)]

pub mod posts;
pub mod ward;

use crate::backtrace::Frame;
use crate::lock::{self, IrqLock};
use crate::{arch, backtrace, log, panic, schedule};
use arch::MAX_CPUS;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use posts::Posts;
use ward::{Sight, Step, Ward};

/// `stuck=` on the command line: what follows when a CPU is stuck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StuckChoice {
    /// It is reported.
    #[default]
    Report,
    /// The machine stops, with a report.
    Stop,
    /// No CPU checks.
    Off,
}

/// Between two checks of a watchdog, ns.
const PERIOD_NS: u64 = 500_000_000;

/// How often the lock of the consoles is tried before a line is deferred.
const CONSOLE_TRIES: u32 = 10_000;

/// Checks for which a report may be deferred: after 20 s no CPU can print any more.
const MAX_PUT_OFF: u64 = 40;

/// Frames of a CPU's calls that are kept.
const FRAMES: usize = 24;

/// The watchdog CPUs.
static POSTS: Posts = Posts::closed();

/// The watchdog state of each CPU. The holder of the lock checks.
static WARDS: IrqLock<Wards> = IrqLock::new(Wards { wards: [Ward::NEW; MAX_CPUS], looked_ns: 0 });

struct Wards {
    wards: [Ward; MAX_CPUS],
    /// When a watchdog last checked.
    looked_ns: u64,
}

/// The watchdog fields of each CPU.
struct Cpu {
    /// When it checks next, if it is a watchdog; else 0. Its own.
    due_ns: AtomicU64,
    /// It has left its post, and perhaps comes out of a halt for no other reason. Its own.
    has_left: AtomicBool,
    /// Liveness interrupts that it has taken.
    answers: AtomicU64,
    /// When it took the last one.
    answered_ns: AtomicU64,
    /// The sample of the last NMI.
    sample: Sample,
}

/// Written by its CPU in an NMI, read when that is over (`arch::sampled`).
struct Sample {
    irqs_off: AtomicBool,
    frames: [AtomicUsize; FRAMES],
    count: AtomicUsize,
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        due_ns: AtomicU64::new(0),
        has_left: AtomicBool::new(false),
        answers: AtomicU64::new(0),
        answered_ns: AtomicU64::new(0),
        sample: Sample {
            irqs_off: AtomicBool::new(false),
            frames: [const { AtomicUsize::new(0) }; FRAMES],
            count: AtomicUsize::new(0),
        },
    }
}; MAX_CPUS];

static LOOKS: AtomicU64 = AtomicU64::new(0);
static QUESTIONS: AtomicU64 = AtomicU64::new(0);
static REPORTS: AtomicU64 = AtomicU64::new(0);
/// Reports that are over.
static ENDS: AtomicU64 = AtomicU64::new(0);
/// Checks since a line could not be printed.
static PUT_OFF: AtomicU64 = AtomicU64::new(0);

/// The watchdog's counters.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Checks of all CPUs.
    pub looks: u64,
    /// Liveness interrupts sent to a CPU without progress.
    pub questions: u64,
    /// CPUs that were reported as stuck.
    pub reports: u64,
    /// Reported CPUs that were seen to continue.
    pub ends: u64,
}

/// Reads the counters.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn counts() -> Counts {
    let [looks, questions, reports, ends] =
        [&LOOKS, &QUESTIONS, &REPORTS, &ENDS].map(|count| count.load(Acquire));
    Counts { looks, questions, reports, ends }
}

/// Opens the posts, and makes this CPU the first watchdog. On the boot CPU, when all are up and may
/// run Gs, interrupts off.
pub fn begin(choice: StuckChoice) {
    if choice != StuckChoice::Off && arch::num_cpus() > 1 {
        POSTS.open();
        take_post();
    }
}

/// This CPU has come out of a halt: it becomes a watchdog if a post is vacant. Interrupts off.
#[inline(always)]
pub fn after_halt() {
    if POSTS.has_vacancy() {
        take_post();
    }
}

/// When this CPU checks next, if it is a watchdog.
#[inline]
pub fn due(cpu: usize) -> Option<u64> {
    Some(CPUS[cpu].due_ns.load(Relaxed)).filter(|&due_ns| due_ns != 0)
}

/// The timer of this CPU has fired: checks, if that is due. Its next check is in [`due`] then.
/// Interrupts off.
pub fn on_tick(now_ns: u64) {
    let me = arch::cpu_index();
    if due(me).is_some_and(|due_ns| due_ns <= now_ns) {
        look(me, now_ns);
        stay_or_go(me, now_ns);
        arch::report_late_cpus();
    }
}

/// The `liveness_ipi` of [`arch::Handlers`]: this CPU has taken a liveness interrupt. It may have been
/// given a post as well.
pub fn on_question() {
    let me = arch::cpu_index();
    let cpu = &CPUS[me];
    cpu.answered_ns.store(arch::now_ns(), Relaxed);
    cpu.answers.fetch_add(1, Release); // pairs with `beat`
    if cpu.due_ns.load(Relaxed) == 0 && POSTS.holds(me) {
        stand(me, arch::now_ns());
    }
}

/// The `nmi_sample` of [`arch::Handlers`]: an NMI has interrupted this CPU here. It may be in any
/// code, so the handler only records the backtrace.
pub fn on_sample(rip: u64, rbp: u64, irqs_off: bool) {
    let sample = &CPUS[arch::cpu_index()].sample;
    sample.irqs_off.store(irqs_off, Relaxed);
    let mut count = 0;
    let readable = |address: usize| arch::paging::translate(address as u64).is_some();
    backtrace::walk(rip as usize, rbp as usize, readable, |address| {
        if let Some(frame) = sample.frames.get(count) {
            frame.store(address, Relaxed);
            count += 1;
        }
    });
    sample.count.store(count, Relaxed);
}

#[cold]
fn take_post() {
    let me = arch::cpu_index();
    let has_left = CPUS[me].has_left.load(Relaxed);
    CPUS[me].has_left.store(false, Relaxed);
    // If it left its halt for its last check alone, it halts again. But it may have left its post
    // outside of a halt, or a G may have arrived in the same moment.
    if has_left && !schedule::has_work() {
        return;
    }
    if POSTS.take(me) {
        stand(me, arch::now_ns());
        post_another(me);
    }
}

/// Gives the other post, if it is vacant, to a CPU that halts.
fn post_another(me: usize) {
    let is_given = |&cpu: &usize| may_stand(cpu) && POSTS.take(cpu);
    if POSTS.has_vacancy()
        && let Some(cpu) = others(me).find(is_given)
    {
        arch::ask(cpu); // it becomes a watchdog when it takes the interrupt
    }
}

/// All CPUs but one.
fn others(me: usize) -> impl Iterator<Item = usize> {
    (0..arch::num_cpus()).filter(move |&cpu| cpu != me)
}

/// Whether a CPU halts, and has no post.
fn may_stand(cpu: usize) -> bool {
    !schedule::is_busy(cpu) && !POSTS.holds(cpu)
}

/// Sets the timer for the next check.
fn stand(me: usize, now_ns: u64) {
    let due_ns = now_ns + PERIOD_NS;
    CPUS[me].due_ns.store(due_ns, Relaxed);
    if let Some(slices) = schedule::slices() {
        slices.arm_for_sleeper(due_ns);
    }
}

/// After a check: keeps the post, hands it to a halted CPU, or leaves it.
fn stay_or_go(me: usize, now_ns: u64) {
    let is_busy = schedule::is_busy(me);
    let has_open = WARDS.try_lock().is_none_or(|all| all.wards.iter().any(Ward::is_reported));
    CPUS[me].due_ns.store(0, Relaxed);
    if !is_busy && !has_open && !others(me).any(schedule::is_busy) {
        CPUS[me].has_left.store(true, Relaxed);
        return POSTS.leave(me);
    }
    let relieves = |&cpu: &usize| may_stand(cpu) && POSTS.hand(me, cpu);
    let relief = if is_busy { others(me).find(relieves) } else { None };
    match relief {
        Some(cpu) => arch::ask(cpu),
        None if POSTS.holds(me) => stand(me, now_ns),
        None => {} // the post was vacated when this CPU was reported
    }
}

/// Checks all other CPUs, unless another watchdog does or has just done so.
fn look(me: usize, now_ns: u64) {
    let Some(mut all) = WARDS.try_lock() else { return };
    if now_ns.saturating_sub(all.looked_ns) < PERIOD_NS / 2 {
        return;
    }
    all.looked_ns = now_ns;
    LOOKS.fetch_add(1, Relaxed);
    for cpu in others(me) {
        let before = all.wards[cpu];
        let step = all.wards[cpu].look(sight(cpu, now_ns));
        let was_done = match step {
            Step::Nothing => true,
            Step::Ask => {
                QUESTIONS.fetch_add(1, Relaxed);
                arch::ask(cpu);
                true
            }
            Step::Sample => {
                arch::sample(cpu);
                true
            }
            Step::Report(took_ns) => report(cpu, me, took_ns),
            Step::Over(since_ns) => say_over(cpu, since_ns),
        };
        if !was_done {
            all.wards[cpu] = before; // repeat the step at the next check
        }
    }
}

fn sight(cpu: usize, now_ns: u64) -> Sight {
    let sample = &CPUS[cpu].sample;
    // A watchdog that has missed its check is busy.
    let is_late = due(cpu).is_some_and(|due_ns| now_ns.saturating_sub(due_ns) > ward::LIMIT_NS);
    Sight {
        now_ns,
        beat: beat(cpu),
        is_busy: schedule::is_busy(cpu) || lock::spun_on(cpu).is_some() || is_late,
        irqs_off: arch::was_sampled(cpu).then(|| sample.irqs_off.load(Relaxed)),
    }
}

/// A number that changes when a CPU makes progress.
fn beat(cpu: usize) -> u64 {
    CPUS[cpu].answers.load(Acquire).wrapping_add(schedule::progress(cpu))
}

/// Reports that a CPU is stuck. False if the console is not available now.
#[cold]
fn report(cpu: usize, me: usize, took_ns: u64) -> bool {
    let stuck = Stuck { cpu, took_ns };
    if crate::options().stuck == StuckChoice::Stop {
        panic::kernel_bug(format_args!("{stuck}"));
    }
    let Some(mut out) = console(&stuck) else { return false };
    let _ = writeln!(out, "{stuck} (seen by CPU {me})");
    let sample = &CPUS[cpu].sample;
    let count = sample.count.load(Relaxed).min(FRAMES);
    for (number, address) in sample.frames[..count].iter().enumerate() {
        let _ = writeln!(out, "  #{number} {}", Frame::new(number, address.load(Relaxed)));
    }
    // It is a watchdog no more.
    POSTS.leave(cpu);
    REPORTS.fetch_add(1, Release);
    true
}

/// Reports that a CPU continues. False if the console is not available now.
#[cold]
fn say_over(cpu: usize, since_ns: u64) -> bool {
    let until_ns = match CPUS[cpu].answered_ns.load(Relaxed) {
        answered_ns if answered_ns > since_ns => answered_ns,
        _ => arch::now_ns(),
    };
    let took = Seconds(until_ns.saturating_sub(since_ns));
    let over = format_args!("CPU {cpu} goes on after {took}");
    let Some(mut out) = console(&over) else { return false };
    let _ = writeln!(out, "{over}");
    ENDS.fetch_add(1, Release);
    true
}

/// The consoles, if their lock is free soon: its holder may be the very CPU that is stuck. If that
/// lasts for too long the machine stops: it could print nothing more, whatever happens.
fn console(what: &dyn fmt::Display) -> Option<log::Emergency> {
    let out = log::try_emergency(CONSOLE_TRIES);
    match &out {
        Some(_) => PUT_OFF.store(0, Relaxed),
        None if PUT_OFF.fetch_add(1, Relaxed) >= MAX_PUT_OFF => {
            panic::kernel_bug(format_args!("nobody can print, and {what}"));
        }
        None => {}
    }
    out
}

/// Formats that a CPU is stuck, and the lock that it spins on.
struct Stuck {
    cpu: usize,
    took_ns: u64,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stuck { cpu, took_ns } = *self;
        write!(f, "CPU {cpu} is stuck")?;
        match schedule::present(cpu).1 {
            Some(g) => write!(f, " in G {g}")?,
            None => f.write_str(" in no G")?,
        }
        write!(f, ": interrupts off for {}", Seconds(took_ns))?;
        lock::spun_on(cpu).map_or(Ok(()), |lock| write!(f, ", spinning for {lock}"))
    }
}

/// A time in seconds, with one digit after the point.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0 / 100_000_000;
        write!(f, "{}.{} s", tenths / 10, tenths % 10)
    }
}
