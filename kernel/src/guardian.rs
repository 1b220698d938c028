//! Finds CPUs that are stuck: interrupts off, or a lock spun on, for two seconds.
//!
//! A CPU that takes no interrupts cannot say so; another one must notice. Two CPUs
//! stand guard at a time ([`posts`]): twice a second each of them looks at all
//! others, and [`ward`] says what to make of it: ask, send an NMI, report. The NMI
//! finds the CPU whatever it does, and there it writes down its own calls, which is
//! the only place from which that is safe. Who looks prints them, once an incident,
//! and a line when the CPU goes on. `stuck=report|stop|off` says what becomes of it.
//!
//! # Who stands guard
//!
//! A CPU that comes out of a halt takes a vacant post ([`after_halt`]), so that
//! there are guards whenever somebody runs. If it finds the other post vacant as
//! well, the machine was idle and it may be the only one to wake: it gives that post to a
//! CPU that halts, by an interrupt, so that it is watched itself from its first
//! instruction on. Both stand for half a second at least, so that is one interrupt in half
//! a second at most. One that is busy itself hands its post to
//! one that halts, if there is one: that one is at no place where it could get stuck,
//! and whoever is alone busy is watched by somebody else. Guards see each other, so
//! that one that gets stuck is found by the other, and its post is vacant then. With
//! one CPU there is nobody, and nothing is watched.
//!
//! # No tick that nobody needs
//!
//! A guard has its timer set for the next look, beside slices and sleepers
//! ([`due`]). If it finds all CPUs halted it leaves its post, so an idle machine has
//! no tick; nor is there any work where Gs are switched. What a guard's interrupt
//! does is not counted as a tick of the scheduler's.
//!
//! # What is not found
//!
//! A CPU that is stuck in an
//! interrupt although it has no G to run, unless it spins on a lock. And a CPU with
//! interrupts on that computes for ever: that is a G's right.
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

/// `stuck=` on the command line: what becomes of a CPU that is stuck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StuckChoice {
    /// It is reported.
    #[default]
    Report,
    /// The machine stops, with a report.
    Stop,
    /// Nobody looks.
    Off,
}

/// Between two looks of a guard, ns.
const PERIOD_NS: u64 = 500_000_000;

/// How often the lock of the consoles is tried for before a line is put off.
const CONSOLE_TRIES: u32 = 10_000;

/// Looks for which a report may be put off: after 20 s nobody can print any more.
const MAX_PUT_OFF: u64 = 40;

/// Frames of a CPU's calls that are kept.
const FRAMES: usize = 24;

/// Who stands guard.
static POSTS: Posts = Posts::closed();

/// What is known of each CPU. Who has the lock looks.
static WARDS: IrqLock<Wards> = IrqLock::new(Wards { wards: [Ward::NEW; MAX_CPUS], looked_ns: 0 });

struct Wards {
    wards: [Ward; MAX_CPUS],
    /// When somebody looked last.
    looked_ns: u64,
}

/// What a CPU has to say.
struct Cpu {
    /// When it looks next, if it stands guard; else 0. Its own.
    due_ns: AtomicU64,
    /// It has left its post, and perhaps comes out of a halt for no other reason. Its own.
    has_left: AtomicBool,
    /// Questions that it has answered.
    answers: AtomicU64,
    /// When it did so last.
    answered_ns: AtomicU64,
    /// What it was doing at the last NMI.
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
/// Looks since a line could not be printed.
static PUT_OFF: AtomicU64 = AtomicU64::new(0);

/// What was done so far.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Looks at all CPUs.
    pub looks: u64,
    /// CPUs that were asked whether they go on.
    pub questions: u64,
    /// CPUs that were reported as stuck.
    pub reports: u64,
    /// Those of them that were seen to go on.
    pub ends: u64,
}

/// What was done so far.
#[cfg(any(not(target_os = "none"), feature = "internals"))]
pub fn counts() -> Counts {
    let [looks, questions, reports, ends] =
        [&LOOKS, &QUESTIONS, &REPORTS, &ENDS].map(|count| count.load(Acquire));
    Counts { looks, questions, reports, ends }
}

/// Sets up the posts, and has this CPU stand guard first. On the boot CPU, when all
/// are up and may run Gs, interrupts off.
pub fn begin(choice: StuckChoice) {
    if choice != StuckChoice::Off && arch::num_cpus() > 1 {
        POSTS.open();
        take_post();
    }
}

/// This CPU has come out of a halt: it stands guard if nobody else does. Interrupts
/// off.
#[inline(always)]
pub fn after_halt() {
    if POSTS.has_vacancy() {
        take_post();
    }
}

/// When this CPU looks next, if it stands guard.
#[inline]
pub fn due(cpu: usize) -> Option<u64> {
    Some(CPUS[cpu].due_ns.load(Relaxed)).filter(|&due_ns| due_ns != 0)
}

/// The timer of this CPU has fired: looks, if it is time to. Its next look is in
/// [`due`] then. Interrupts off.
pub fn on_tick(now_ns: u64) {
    let me = arch::cpu_index();
    if due(me).is_some_and(|due_ns| due_ns <= now_ns) {
        look(me, now_ns);
        stay_or_go(me, now_ns);
        arch::report_late_cpus();
    }
}

/// The `asked` of [`arch::Handlers`]: this CPU takes interrupts. It may have been
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

/// The `sampled` of [`arch::Handlers`]: an NMI has found this CPU here. It may be
/// anywhere, so nothing is done but to write down where.
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
    // Out of its halt for its last look alone, it halts again. But it may have left
    // elsewhere than in a halt, or somebody may have come in the same moment.
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
        arch::ask(cpu); // it stands when it answers
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

/// Sets the timer for the next look.
fn stand(me: usize, now_ns: u64) {
    let due_ns = now_ns + PERIOD_NS;
    CPUS[me].due_ns.store(due_ns, Relaxed);
    if let Some(slices) = schedule::slices() {
        slices.arm_for_sleeper(due_ns);
    }
}

/// After a look: stays, hands the post to a CPU that halts, or leaves it.
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
        None => {} // taken away, as it was reported
    }
}

/// Looks at all other CPUs, unless somebody else does or has just done so.
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
            all.wards[cpu] = before; // once more at the next look
        }
    }
}

fn sight(cpu: usize, now_ns: u64) -> Sight {
    let sample = &CPUS[cpu].sample;
    // A guard that has not come for its look is one that has something to do.
    let is_late = due(cpu).is_some_and(|due_ns| now_ns.saturating_sub(due_ns) > ward::LIMIT_NS);
    Sight {
        now_ns,
        beat: beat(cpu),
        is_busy: schedule::is_busy(cpu) || lock::spun_on(cpu).is_some() || is_late,
        irqs_off: arch::was_sampled(cpu).then(|| sample.irqs_off.load(Relaxed)),
    }
}

/// Something that changes when a CPU goes on.
fn beat(cpu: usize) -> u64 {
    CPUS[cpu].answers.load(Acquire).wrapping_add(schedule::progress(cpu))
}

/// Says that a CPU is stuck. False if nobody can print now.
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
    // It stands guard no more.
    POSTS.leave(cpu);
    REPORTS.fetch_add(1, Release);
    true
}

/// Says that a CPU goes on. False if nobody can print now.
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

/// The consoles, if they can be had soon: whoever has them may be the very CPU that
/// is stuck. If that goes on for too long the machine stops: it could say nothing
/// more, whatever happens.
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

/// Says of a CPU that it is stuck, and what it spins for.
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
