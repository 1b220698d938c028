//! Watchdog: finds CPUs with interrupts off or spinning for two seconds.
//!
//! A CPU that takes no interrupts cannot report that. So two CPUs are watchdogs at a time
//! ([`Watchdogs`]): twice a second each of them checks all others, and [`CpuState`] decides the next
//! step: send a liveness interrupt, send an NMI, report. The handler of the NMI records the CPU's
//! own backtrace, as it is the only place from which that is safe. The watchdog prints it, once an
//! incident, and a line when the CPU continues. `stuck=report|stop|off` selects what follows.
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
//! # Which CPUs are watchdogs
//!
//! A CPU that comes out of a halt becomes a watchdog if there are fewer than two ([`after_halt`];
//! a bit of its attention word says that one may be missing). If it is the only one, the machine was
//! idle and it may be the only CPU to wake: it makes a halted CPU the other, by an interrupt, so that
//! it is watched itself from its first instruction on. Both stay for half a second at least. A
//! watchdog that is busy itself hands off to a halted CPU, if there is one: that CPU is at no place
//! where it could get stuck. Watchdogs watch each other, so that one that gets stuck is found by the
//! other, and is a watchdog no more. With one CPU there is no watchdog.
//!
//! A watchdog has an alarm for its next check ([`Alarm::Watchdog`]), which is no tick of the
//! scheduler. If it finds all CPUs halted it stops, so an idle machine has no tick; nor is there any
//! work where Gs are switched.
//!
//! **What is not found**: a CPU that is stuck in an interrupt although it has no G to run, unless it
//! spins on a lock. And a CPU with interrupts on that computes for ever: a G may do that.
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

static WATCHDOGS: Watchdogs = Watchdogs(AtomicU64::new(FORBIDDEN));
/// The state of each CPU, and when a watchdog last checked. The holder of the lock checks.
static STATES: IrqLock<([CpuState; MAX_CPUS], u64)> = IrqLock::new(([CpuState::NEW; MAX_CPUS], 0));

struct Cpu {
    /// It has stopped to watch, and perhaps comes out of a halt for no other reason. Its own.
    has_stopped: AtomicBool,
    /// Liveness interrupts that it has taken.
    answers: AtomicU64,
    /// When it took the last one.
    answered_ns: AtomicU64,
    /// From the last NMI, and read when that is over (`arch::was_sampled`): whether interrupts were
    /// off, and the backtrace, as far as it is not 0.
    irqs_off: AtomicBool,
    frames: [AtomicUsize; FRAMES],
}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        has_stopped: AtomicBool::new(false),
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
        [&CHECKS, &QUESTIONS, &REPORTS, &ENDS].map(|count| count.load(Acquire));
    Counts { looks, questions, reports, ends }
}

/// A stuck CPU stops the machine.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Allows watchdogs, and makes this CPU the first. On the boot CPU, when all are up and may run Gs,
/// interrupts off.
pub fn begin(choice: StuckChoice) {
    STOPS.store(choice == StuckChoice::Stop, Relaxed);
    if choice != StuckChoice::Off && arch::num_cpus() > 1 {
        WATCHDOGS.0.store(0, Relaxed);
        run::ask_at_rest(Attention::WATCHDOG);
        after_halt();
    }
}

/// This CPU has come out of a halt, and a watchdog may be missing: it becomes one if there are fewer
/// than two. Interrupts off.
pub fn after_halt() {
    let (me, is_missing) = (arch::cpu_index(), || WATCHDOGS.has_vacancy());
    let Some(slices) = run::slices() else { return };
    slices.at_rest.clear(Attention::WATCHDOG); // before it checks: see `remove`
    if is_missing() {
        become_watchdog();
    }
    if is_missing() && !WATCHDOGS.contains(me) {
        slices.at_rest.set(Attention::WATCHDOG); // it halts again, and checks again
    }
}

/// That CPU is a watchdog no more: another becomes one when it comes out of a halt.
fn remove(cpu: usize) {
    WATCHDOGS.remove(cpu);
    run::ask_at_rest(Attention::WATCHDOG);
}

/// When that CPU checks next, if it is a watchdog.
#[inline]
pub fn next_check(cpu: usize) -> Option<u64> {
    Some(run::CPUS[cpu].slices.alarm(Alarm::Watchdog)).filter(|&check_ns| check_ns != NEVER)
}

/// A check of this CPU is due. Interrupts off.
pub fn on_alarm(now_ns: u64) {
    let me = arch::cpu_index();
    check_others(me, now_ns);
    stay_hand_off_or_stop(me, now_ns);
    arch::report_late_cpus();
}

/// The `liveness_ipi` of [`arch::Handlers`]: this CPU has taken a liveness interrupt. It may have
/// been made a watchdog as well.
pub fn on_liveness_ipi() {
    let me = arch::cpu_index();
    let cpu = &CPUS[me];
    cpu.answered_ns.store(arch::now_ns(), Relaxed);
    cpu.answers.fetch_add(1, Release); // pairs with `beat`
    if next_check(me).is_none() && WATCHDOGS.contains(me) {
        set_alarm(arch::now_ns());
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

#[cold]
fn become_watchdog() {
    let me = arch::cpu_index();
    let has_stopped = CPUS[me].has_stopped.swap(false, Relaxed);
    // If it left its halt for its last check alone, it halts again. But it may have stopped outside
    // of a halt, or a G may have arrived in the same moment.
    if has_stopped && !run::has_work() || !WATCHDOGS.add(me) {
        return;
    }
    set_alarm(arch::now_ns());
    let is_added = |&cpu: &usize| is_free(cpu) && WATCHDOGS.add(cpu);
    if WATCHDOGS.has_vacancy()
        && let Some(cpu) = others(me).find(is_added)
    {
        arch::ask(cpu); // it sets its timer when it takes the interrupt
    }
}

fn others(me: usize) -> impl Iterator<Item = usize> {
    (0..arch::num_cpus()).filter(move |&cpu| cpu != me)
}

fn is_free(cpu: usize) -> bool {
    !run::is_busy(cpu) && !WATCHDOGS.contains(cpu)
}

fn set_alarm(now_ns: u64) {
    if let Some(slices) = run::slices() {
        slices.set_alarm(Alarm::Watchdog, now_ns + PERIOD_NS);
    }
}

/// After a check: this CPU stays a watchdog, hands off to a halted CPU, or stops.
fn stay_hand_off_or_stop(me: usize, now_ns: u64) {
    let is_busy = run::is_busy(me);
    let is_reported = |state: &CpuState| state.phase == Phase::Reported;
    let has_open = STATES.try_lock().is_none_or(|states| states.0.iter().any(is_reported));
    if !is_busy && !has_open && !others(me).any(run::is_busy) {
        CPUS[me].has_stopped.store(true, Relaxed);
        return remove(me);
    }
    let takes_over = |&cpu: &usize| is_busy && is_free(cpu) && WATCHDOGS.replace_by(me, cpu);
    match others(me).find(takes_over) {
        Some(cpu) => arch::ask(cpu),
        None if WATCHDOGS.contains(me) => set_alarm(now_ns),
        None => {} // it was removed when it was reported
    }
}

/// Checks all other CPUs, unless the other watchdog does or has just done so.
fn check_others(me: usize, now_ns: u64) {
    let Some(mut guard) = STATES.try_lock() else { return };
    let (states, checked_ns) = &mut *guard;
    if now_ns.saturating_sub(*checked_ns) < PERIOD_NS / 2 {
        return;
    }
    *checked_ns = now_ns;
    CHECKS.fetch_add(1, Relaxed);
    for cpu in others(me) {
        let before = states[cpu];
        let mut was_done = true;
        match states[cpu].check(observe(cpu, now_ns)) {
            Step::Nothing => {}
            Step::Ask => {
                QUESTIONS.fetch_add(1, Relaxed);
                arch::ask(cpu);
            }
            Step::Sample => arch::sample(cpu),
            Step::Report(took_ns) => was_done = report(cpu, me, took_ns),
            Step::Over(since_ns) => was_done = report_end(cpu, since_ns),
        }
        if !was_done {
            states[cpu] = before; // repeat the step at the next check
        }
    }
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
    let is_late = next_check(cpu).is_some_and(|at_ns| now_ns.saturating_sub(at_ns) > LIMIT_NS);
    Observation {
        now_ns,
        beat: CPUS[cpu].answers.load(Acquire).wrapping_add(run::progress(cpu)),
        is_busy: run::is_busy(cpu) || lock::spun_on(cpu).is_some() || is_late,
        irqs_off: arch::was_sampled(cpu).then(|| CPUS[cpu].irqs_off.load(Relaxed)),
    }
}

/// What the checks know of one CPU.
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
    /// It was reported.
    Reported,
}

/// What the watchdog must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
enum Step {
    Nothing,
    /// Send a liveness interrupt.
    Ask,
    /// Send an NMI.
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
    remove(cpu);
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

/// The watchdog CPUs, two at most: in each half of the word a CPU's number plus one, or 0. One
/// word, so that every change of one sees the other: the two watch each other, so they must not be
/// the same CPU.
struct Watchdogs(AtomicU64);

/// No CPU can become a watchdog: there is one CPU, or `stuck=off`.
const FORBIDDEN: u64 = u64::MAX;

impl Watchdogs {
    /// Whether there are fewer than two.
    #[inline(always)]
    fn has_vacancy(&self) -> bool {
        let word = self.0.load(Relaxed);
        word as u32 == 0 || word >> 32 == 0
    }

    fn contains(&self, cpu: usize) -> bool {
        halves(self.0.load(Relaxed)).contains(&name(cpu))
    }

    /// Makes that CPU one. False if there are two, or it is one.
    fn add(&self, cpu: usize) -> bool {
        self.replace(0, name(cpu))
    }

    /// Makes `to` one instead of `from`. False if `from` is none, or `to` is one.
    fn replace_by(&self, from: usize, to: usize) -> bool {
        self.replace(name(from), name(to))
    }

    fn remove(&self, cpu: usize) {
        self.replace(name(cpu), 0);
    }

    /// Replaces `from` in one half by `to`; not if `to` is in one already.
    fn replace(&self, from: u32, to: u32) -> bool {
        let replaced = |word| {
            let mut both = halves(word);
            if word == FORBIDDEN || to != 0 && both.contains(&to) {
                return None;
            }
            *both.iter_mut().find(|half| **half == from)? = to;
            Some(u64::from(both[0]) | u64::from(both[1]) << 32)
        };
        // Relaxed: the word names CPUs, and orders nothing else.
        self.0.try_update(Relaxed, Relaxed, replaced).is_ok()
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn name(cpu: usize) -> u32 {
    cpu as u32 + 1
}

#[cfg(test)]
mod tests;
