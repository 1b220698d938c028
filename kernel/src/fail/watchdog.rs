//! Watchdog: finds CPUs with interrupts off or spinning for two seconds.
//!
//! A CPU that takes no interrupts cannot report that. So while a CPU is busy, the next one watches
//! it: twice a second it checks it, and [`CpuState`] decides the next step: send a liveness
//! interrupt, send an NMI, report. The handler of the NMI records the CPU's own backtrace, as it is
//! the only place from which that is safe. The watchdog prints it, once an incident, and a line
//! when the CPU continues. `stuck=report|stop|off` selects what follows.
//!
//! # When a CPU is taken for stuck
//!
//! A check reads the progress of a CPU (its *beat*: slices, halts, interrupts). If the beat stands
//! still that need not mean anything, as a G that is alone on its CPU is never interrupted. So the
//! watchdog sends a liveness interrupt: a CPU that has interrupts on takes it, which is a beat. If
//! the CPU does not, the watchdog sends an NMI, whose handler records whether interrupts were off.
//!
//! A virtual CPU may be without a core for seconds, so that the time that has passed proves
//! nothing. But then it does not take the NMI either. A CPU is reported when [`STRIKES`] NMIs, sent
//! in different checks, were each taken with interrupts off, and the liveness interrupt, which has
//! been pending all the time, is still not taken. The kernel's sections without interrupts are
//! microseconds long: one that ends as soon as it gets a core cannot be seen three times, half a
//! second apart.
//!
//! # Which CPU watches which
//!
//! Each CPU has one watchdog: the CPU with the next number, the first after the last. Each begins
//! with one check, when it is up ([`begin_cpu`]). A CPU that had no G and has found one asks its watchdog ([`after_rest`]; a bit of its attention word says
//! that it is not watched yet) by a liveness interrupt, and from then on the watchdog has an alarm
//! for its next check ([`Alarm::Watchdog`]; no tick of the scheduler). If it finds the CPU halted
//! it sets that bit and stops. So an idle machine has no tick, nor is there any work where Gs are
//! switched. A watchdog that is stuck itself is reported by its own, which from then on checks its
//! CPU, too. With one CPU there is no watchdog.
//!
//! What was rejected: **two watchdogs for the whole machine**, which check all CPUs. They must be
//! counted, replaced when they are stuck, and handed off to CPUs that are halted.
//!
//! **What is not found**: a CPU that is stuck in an interrupt although it has no G to run, unless
//! it spins on a lock. And a CPU with interrupts on that computes for ever: a G may do that.
#![forbid(unsafe_code)]

use super::panic;
use crate::arch::lock::{self, IrqLock};
use crate::drivers::log;
use crate::run::preempt::{Alarm, Attention, NEVER};
use crate::watch::backtrace;
use crate::{arch, run};
use arch::MAX_CPUS;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

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

const PERIOD_NS: u64 = 500_000_000;
/// For how long a CPU may take no interrupt, ns.
const LIMIT_NS: u64 = 2_000_000_000;
/// NMIs in a row that must find interrupts off.
const STRIKES: u32 = 3;
/// How often the lock of the consoles is tried before a line is deferred.
const CONSOLE_TRIES: u32 = 10_000;
/// Checks for which a report may be deferred: after 20 s no CPU can print any more.
const MAX_DEFERRED: u64 = 40;
/// Frames of a CPU's calls that are kept.
const FRAMES: usize = 24;

/// CPUs may become watchdogs: there are several, and no `stuck=off`.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The state of each CPU, as its watchdog sees it.
static STATES: IrqLock<[CpuState; MAX_CPUS]> = IrqLock::new([CpuState::NEW; MAX_CPUS]);

struct Cpu {
    /// Liveness interrupts that it has taken.
    answers: AtomicU64,
    /// When it took the last one.
    answered_ns: AtomicU64,
    /// Whether interrupts were off when the last NMI came. The NMI writes this and `frames`; both
    /// are read when it is over (`arch::was_sampled`).
    irqs_off: AtomicBool,
    /// The backtrace at the last NMI, up to the first 0.
    frames: [AtomicUsize; FRAMES],
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        answers: AtomicU64::new(0),
        answered_ns: AtomicU64::new(0),
        irqs_off: AtomicBool::new(false),
        frames: [const { AtomicUsize::new(0) }; FRAMES],
    }
}; MAX_CPUS];

/// Checks since a line could not be printed.
static DEFERRED: AtomicU64 = AtomicU64::new(0);
static CHECKS: AtomicU64 = AtomicU64::new(0);
static QUESTIONS: AtomicU64 = AtomicU64::new(0);
static REPORTS: AtomicU64 = AtomicU64::new(0);
static ENDS: AtomicU64 = AtomicU64::new(0);

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

#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn counts() -> Counts {
    let [looks, questions, reports, ends] =
        [&CHECKS, &QUESTIONS, &REPORTS, &ENDS].map(|count| count.load(Acquire));
    Counts { looks, questions, reports, ends }
}

/// A stuck CPU stops the machine.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Allows watchdogs. On the boot CPU, which has its record, interrupts off. The others are asked to
/// begin: some have their records by now, and the rest see in [`begin_cpu`] that they may.
pub fn begin(choice: StuckChoice) {
    STOPS.store(choice == StuckChoice::Stop, Relaxed);
    if choice != StuckChoice::Off && arch::num_cpus() > 1 {
        IS_ON.store(true, Release); // pairs with `begin_cpu`
        before(arch::cpu_index()).for_each(arch::ask);
        begin_cpu();
    }
}

/// This CPU has its record and is about to run Gs: it checks the one before it, which may have found
/// a G before it has ever rested. Interrupts off.
pub fn begin_cpu() {
    if IS_ON.load(Acquire) {
        set_alarm(arch::now_ns());
    }
}

/// This CPU, which had no G, has found one, and is not watched. Interrupts off.
pub fn after_rest() {
    let me = arch::cpu_index();
    run::CPUS[me].slices.at_rest.clear(Attention::WATCHDOG); // first: the watchdog may set it again
    arch::ask((me + 1) % arch::num_cpus());
}

/// The CPUs before that one, which it watches: the nearest first.
fn before(cpu: usize) -> impl Iterator<Item = usize> {
    let cpus = arch::num_cpus();
    (1..cpus).map(move |distance| (cpu + cpus - distance) % cpus)
}

/// When that CPU checks next, or `NEVER`.
fn next_check(cpu: usize) -> u64 {
    run::CPUS[cpu].slices.alarm(Alarm::Watchdog)
}

/// A check of this CPU is due. Interrupts off.
pub fn on_alarm(now_ns: u64) {
    if check_before(arch::cpu_index(), now_ns) {
        set_alarm(now_ns);
    }
    arch::report_late_cpus();
}

/// The `liveness_ipi` of [`arch::Handlers`]: this CPU has taken a liveness interrupt, or is asked
/// to watch the one before it.
pub fn on_liveness_ipi() {
    let (me, now_ns) = (arch::cpu_index(), arch::now_ns());
    let cpu = &CPUS[me];
    cpu.answered_ns.store(now_ns, Relaxed);
    cpu.answers.fetch_add(1, Release); // pairs with `observe`
    if IS_ON.load(Relaxed) && next_check(me) == NEVER {
        set_alarm(now_ns);
    }
}

/// The `nmi_sample` of [`arch::Handlers`]: an NMI has interrupted this CPU here. It may be in any
/// code, so the handler only records the backtrace.
pub fn on_nmi_sample(rip: u64, rbp: u64, irqs_off: bool) {
    let cpu = &CPUS[arch::cpu_index()];
    cpu.irqs_off.store(irqs_off, Relaxed);
    let mut frames = cpu.frames.iter();
    let keep = |address| frames.next().into_iter().for_each(|frame| frame.store(address, Relaxed));
    backtrace::walk((rip, rbp), keep);
    frames.for_each(|frame| frame.store(0, Relaxed));
}

fn set_alarm(now_ns: u64) {
    // None: it has no record yet, and begins when it has.
    if let Some(slices) = run::slices() {
        slices.set_alarm(Alarm::Watchdog, now_ns + PERIOD_NS);
    }
}

fn set_unwatched(cpu: usize) {
    run::CPUS[cpu].slices.at_rest.set(Attention::WATCHDOG);
}

/// Checks the CPU before this one; if that is stuck, also the one before it, and so on. False if
/// none of them needs a watchdog.
fn check_before(me: usize, now_ns: u64) -> bool {
    // Not free: a watchdog has continued just now, and checks the same CPU.
    let Some(mut states) = STATES.try_lock() else { return true };
    CHECKS.fetch_add(1, Relaxed);
    for (stuck, cpu) in before(me).enumerate() {
        let seen = observe(cpu, now_ns);
        let earlier = states[cpu];
        let was_done = match states[cpu].check(seen) {
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
            Step::Over(since_ns) => report_end(cpu, since_ns),
        };
        if !was_done {
            states[cpu] = earlier; // repeat the step at the next check
        }
        if states[cpu].phase != Phase::Reported {
            if !seen.is_busy {
                set_unwatched(cpu);
            }
            // Read again: it may have left its rest before it could see that it is not watched.
            return seen.is_busy || run::is_busy(cpu) || stuck > 0;
        }
    }
    true
}

/// What a check reads of a CPU.
#[derive(Clone, Copy, Debug)]
struct Observation {
    now_ns: u64,
    /// A number that changes when it makes progress.
    beat: u64,
    /// Whether it has something to do: a halted CPU is not checked.
    is_busy: bool,
    /// Whether interrupts were off at the last NMI, if that has been taken.
    irqs_off: Option<bool>,
}

fn observe(cpu: usize, now_ns: u64) -> Observation {
    // A watchdog that has missed its check is busy.
    let is_late = now_ns.saturating_sub(next_check(cpu)) > LIMIT_NS;
    Observation {
        now_ns,
        beat: CPUS[cpu].answers.load(Acquire).wrapping_add(run::progress(cpu)),
        is_busy: run::is_busy(cpu) || lock::spun_on(cpu).is_some() || is_late,
        irqs_off: arch::was_sampled(cpu).then(|| CPUS[cpu].irqs_off.load(Relaxed)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuState {
    beat: u64,
    phase: Phase,
    /// When the liveness interrupt was sent.
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It made progress, or has nothing to do.
    Alive,
    /// A liveness interrupt was sent.
    Asked,
    /// NMIs were sent; so many found interrupts off.
    Sampled(u32),
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Step {
    Nothing,
    Ask,
    Sample,
    /// Report that it is stuck, for so long at least.
    Report(u64),
    /// Report that it continues. It was stuck since that time.
    Over(u64),
}

impl CpuState {
    const NEW: CpuState = CpuState { beat: 0, phase: Phase::Alive, since_ns: 0 };

    /// One check: advances the state and returns the next step.
    fn check(&mut self, seen: Observation) -> Step {
        let Observation { now_ns, beat, is_busy, irqs_off } = seen;
        if beat != self.beat {
            let before = core::mem::replace(self, CpuState { beat, ..CpuState::NEW });
            let was_reported = before.phase == Phase::Reported;
            return if was_reported { Step::Over(before.since_ns) } else { Step::Nothing };
        }
        let (phase, step) = match (self.phase, irqs_off) {
            (Phase::Alive, _) if !is_busy => return Step::Nothing,
            (Phase::Alive, _) => {
                self.since_ns = now_ns;
                (Phase::Asked, Step::Ask)
            }
            (Phase::Asked, _) => (Phase::Sampled(0), Step::Sample),
            // It does not run: no conclusion is possible.
            (Phase::Sampled(_), None) => return Step::Nothing,
            // It will take the liveness interrupt as soon as it runs.
            (Phase::Sampled(_), Some(false)) => (Phase::Sampled(0), Step::Sample),
            (Phase::Sampled(strikes), Some(true)) => {
                let (strikes, took_ns) = (strikes + 1, now_ns.saturating_sub(self.since_ns));
                if strikes >= STRIKES && took_ns >= LIMIT_NS {
                    (Phase::Reported, Step::Report(took_ns))
                } else {
                    (Phase::Sampled(strikes), Step::Sample)
                }
            }
            (Phase::Reported, _) => return Step::Nothing,
        };
        self.phase = phase;
        step
    }
}

/// Reports that a CPU is stuck. False if the console is not available now.
#[cold]
fn report(cpu: usize, me: usize, took_ns: u64) -> bool {
    let stuck = stuck(cpu, took_ns);
    if STOPS.load(Relaxed) {
        panic::kernel_bug(format_args!("{stuck}"));
    }
    let Some(mut out) = console(&stuck) else { return false };
    let _ = writeln!(out, "{stuck} (seen by CPU {me})");
    let frames = CPUS[cpu].frames.iter().map(|frame| frame.load(Relaxed));
    let _ = backtrace::print_all(&mut out, frames.take_while(|&address| address != 0));
    REPORTS.fetch_add(1, Release);
    true
}

/// Reports that a CPU continues. False if the console is not available now.
#[cold]
fn report_end(cpu: usize, since_ns: u64) -> bool {
    let answered_ns = CPUS[cpu].answered_ns.load(Relaxed);
    let until_ns = if answered_ns > since_ns { answered_ns } else { arch::now_ns() };
    let took = seconds(until_ns.saturating_sub(since_ns));
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
        Some(_) => DEFERRED.store(0, Relaxed),
        None if DEFERRED.fetch_add(1, Relaxed) >= MAX_DEFERRED => {
            panic::kernel_bug(format_args!("the lock of the consoles is never free, and {what}"));
        }
        None => {}
    }
    out
}

fn stuck(cpu: usize, took_ns: u64) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        match run::present(cpu).1 {
            Some(g) => write!(f, "CPU {cpu} is stuck in G {g}")?,
            None => write!(f, "CPU {cpu} is stuck in no G")?,
        }
        write!(f, ": interrupts off for {}", seconds(took_ns))?;
        lock::spun_on(cpu).map_or(Ok(()), |lock| write!(f, ", spinning for {lock}"))
    })
}

fn seconds(ns: u64) -> impl fmt::Display {
    let tenths = ns / 100_000_000;
    fmt::from_fn(move |f| write!(f, "{}.{} s", tenths / 10, tenths % 10))
}

#[cfg(test)]
mod tests;
