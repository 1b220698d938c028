//! The timer of each CPU: one deadline, proved to fire.
//!
//! The timer in the local APIC fires either at a value of the time stamp counter
//! (TSC-deadline) or after a count of its own (one-shot). [`init_cpu`] takes the
//! first of the two that the CPU has and that is *seen* to fire; the register
//! sequences are in [`device`]. The clock is left to `clock`, what an interrupt
//! means to its handler, and keeping many deadlines to the kernel's own timers.
//!
//! # Deadlines
//!
//! [`arm`] takes a time of [`clock::now_ns`]. One in the past fires at once. The
//! interrupt may come *early*: a one-shot counter has 32 bits, so one far away
//! fires on the way (after a minute and more). It may come late: interrupts may
//! be off, or a hypervisor busy. So its handler reads the clock, and arms
//! again if it is too soon. No deadline is lost: the timer stays armed until it
//! has fired, or is armed anew, or [`disarm`]ed.

pub mod device;

use super::clock::tsc::Hints;
use super::clock::{self, ClockReference, Mhz};
use super::reference::{Reason, measure};
use crate::arch::x86_64::irq::apic;
use crate::arch::{self, MAX_CPUS, cpu_index, irq::IrqState};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use device::Device;

pub use device::Mode;

/// `timer=` on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerChoice {
    /// TSC-deadline where the CPU has it, else one-shot.
    #[default]
    Auto,
    /// TSC-deadline first, even where CPUID denies it.
    TscDeadline,
    /// One-shot first.
    OneShot,
    /// No timer, as on a machine where none fires: slices do not end, sleepers do not wake.
    None,
}

/// Why a mode is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The CPU faulted on its registers.
    Refused,
    /// Its frequency could not be measured.
    NotMeasured(Reason),
    /// It did not fire within the bound.
    Silent,
    /// It fired long before its time: its frequency is wrong.
    TooEarly,
}

/// What [`init_cpu`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerReport {
    /// The mode in use; nothing means that this CPU has no timer.
    pub mode: Option<Mode>,
    /// The one-shot counter's frequency.
    pub counter_hz: Option<u64>,
    /// How long after its deadline the proof's interrupt was seen.
    pub late_ns: u64,
}

/// Takes the one-shot counters' frequency, before they divide it, from the
/// command line: then no CPU takes its own measurement for it. The boot CPU measures
/// all the same, and a frequency that is far off is not used. Once, before [`init_cpu`].
pub fn init(lapic_hz: Option<u64>) {
    STATED_HZ.store(lapic_hz.map_or(0, |hz| hz / device::DIVIDER), Relaxed);
}

/// Chooses and proves this CPU's timer.
///
/// After `apic::init_cpu` and `clock::init` (on another CPU `clock::init_cpu`),
/// with the IDT loaded and `cpu_index` right. Interrupts are turned on for the
/// proof, 100 µs when all is well; when not, for two seconds, or twenty if there is
/// nothing else to try. Afterwards they are as they were. What fails is logged as an
/// error.
pub fn init_cpu(choice: TimerChoice) -> TimerReport {
    let has_deadline = Hints::of_this_cpu().has_deadline;
    let is_forced = choice == TimerChoice::TscDeadline && !has_deadline;
    if is_forced && !DEADLINE_FAILED.load(Relaxed) {
        log::warn!("timer=tsc-deadline: CPUID denies it, trying all the same");
    }
    let is_good = |mode: &Mode| *mode == Mode::OneShot || !DEADLINE_FAILED.load(Relaxed);
    let modes = candidates(choice, has_deadline).into_iter().flatten().filter(is_good);
    let mut modes = modes.peekable();
    while let Some(mode) = modes.next() {
        let is_last = modes.peek().is_none() && !HAS_NONE.load(Relaxed);
        let limit_ns = if is_last { LAST_PROOF_LIMIT_NS } else { PROOF_LIMIT_NS };
        match try_mode(mode, limit_ns) {
            Ok(report) => return report,
            Err(failure) => log::error!("timer: CPU {}: {mode} {failure}", cpu_index()),
        }
    }
    log::error!(
        "timer: CPU {} has no timer that fires: no slice ends, and no sleeper wakes",
        cpu_index()
    );
    HAS_NONE.store(true, Relaxed);
    if let Some(apic) = apic::current() {
        Device(apic).silence();
    }
    TimerReport { mode: None, counter_hz: None, late_ns: 0 }
}

/// Lets this CPU's timer fire at `deadline_ns`, or at once if that is past. A
/// deadline armed before is forgotten. Without a timer, nothing happens.
#[inline]
pub fn arm(deadline_ns: u64) {
    // Off, so that the G that arms is not moved to another CPU half way.
    let irqs = arch::irq::disable();
    if let (Some(apic), Some(mode)) = (apic::current(), mode()) {
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        match mode {
            Mode::TscDeadline => {
                // Relative to this CPU's counter, so that offsets between CPUs
                // and another clock source do not matter.
                let at = clock::tsc::rdtsc_ordered().saturating_add(clock::ns_to_tsc(left_ns));
                Device(apic).arm_deadline(at);
            }
            Mode::OneShot => {
                let scale = this_cpu().and_then(|cpu| cpu.scale.get());
                Device(apic).arm_count(scale.map_or(1, |scale| scale.apply(left_ns)));
            }
        }
    }
    arch::irq::restore(irqs);
}

/// Whether this CPU has a timer.
pub fn is_there() -> bool {
    mode().is_some()
}

/// This CPU's timer does not fire until it is armed again. An interrupt that is
/// already on its way still comes.
pub fn disarm() {
    let irqs = arch::irq::disable();
    if let (Some(apic), Some(mode)) = (apic::current(), mode()) {
        Device(apic).disarm(mode);
    }
    arch::irq::restore(irqs);
}

/// What the handler of `apic::TIMER_VECTOR` calls first; it owes an `apic::eoi`.
#[inline]
pub fn on_interrupt() {
    if let Some(cpu) = this_cpu() {
        cpu.interrupts.fetch_add(1, Relaxed); // read by the proof on this CPU
    }
}

/// This CPU's mode; nothing before [`init_cpu`] or without a timer.
#[inline]
pub fn mode() -> Option<Mode> {
    match this_cpu()?.mode.load(Relaxed) {
        TSC_DEADLINE => Some(Mode::TscDeadline),
        ONE_SHOT => Some(Mode::OneShot),
        _ => None,
    }
}

const NO_TIMER: u8 = 0;
const TSC_DEADLINE: u8 = 1;
const ONE_SHOT: u8 = 2;

/// Timer interrupts on this CPU since it started.
pub fn interrupts() -> u64 {
    this_cpu().map_or(0, |cpu| cpu.interrupts.load(Relaxed))
}

/// One CPU's timer. Written and read by that CPU alone.
struct CpuTimer {
    mode: AtomicU8,
    interrupts: AtomicU64,
    /// From nanoseconds to counts of the one-shot counter.
    scale: spin::Once<clock::scale::Scale>,
}

static CPUS: [CpuTimer; MAX_CPUS] = [const {
    CpuTimer {
        mode: AtomicU8::new(NO_TIMER),
        interrupts: AtomicU64::new(0),
        scale: spin::Once::new(),
    }
}; MAX_CPUS];

/// One failed proof is enough: with many CPUs, two seconds each add up.
static DEADLINE_FAILED: AtomicBool = AtomicBool::new(false);

/// A CPU has no timer: the next is not waited for as long.
static HAS_NONE: AtomicBool = AtomicBool::new(false);

/// What [`init`] was told; 0 if nothing.
static STATED_HZ: AtomicU64 = AtomicU64::new(0);

/// What the last CPU measured: better than nothing for one that cannot.
static LAST_HZ: AtomicU64 = AtomicU64::new(0);

#[inline]
fn this_cpu() -> Option<&'static CpuTimer> {
    CPUS.get(cpu_index())
}

fn set_mode(mode: Option<Mode>) {
    let number = match mode {
        None => NO_TIMER,
        Some(Mode::TscDeadline) => TSC_DEADLINE,
        Some(Mode::OneShot) => ONE_SHOT,
    };
    if let Some(cpu) = this_cpu() {
        cpu.mode.store(number, Relaxed);
    }
}

/// The modes to try, in order.
fn candidates(choice: TimerChoice, has_deadline: bool) -> [Option<Mode>; 2] {
    let deadline = has_deadline.then_some(Mode::TscDeadline);
    match choice {
        TimerChoice::Auto => [deadline, Some(Mode::OneShot)],
        TimerChoice::TscDeadline => [Some(Mode::TscDeadline), Some(Mode::OneShot)],
        TimerChoice::OneShot => [Some(Mode::OneShot), deadline],
        TimerChoice::None => [None, None],
    }
}

fn try_mode(mode: Mode, limit_ns: u64) -> Result<TimerReport, Failure> {
    let device = Device(apic::current().ok_or(Failure::Refused)?);
    let counter_hz = match mode {
        Mode::TscDeadline => None,
        Mode::OneShot => Some(calibrate(&device)?),
    };
    device.enter(mode).map_err(|_| Failure::Refused)?;
    set_mode(Some(mode));
    match with_interrupts_on(|| prove(&ThisCpu, limit_ns, PROOF_MAX_POLLS)) {
        Ok(late_ns) => Ok(TimerReport { mode: Some(mode), counter_hz, late_ns }),
        Err(failure) => {
            disarm();
            set_mode(None);
            DEADLINE_FAILED.fetch_or(mode == Mode::TscDeadline, Relaxed);
            Err(failure)
        }
    }
}

/// Measures this CPU's one-shot counter against the clock: they differ from CPU
/// to CPU on some machines (zephyr#34788).
fn calibrate(device: &Device<apic::Hardware>) -> Result<u64, Failure> {
    /// 2 ms: a reading error of 0.2 µs is 100 ppm, and 64 CPUs take 0.13 s.
    const WINDOW_NS: u64 = 2_000_000;
    /// A slower counter cannot serve deadlines of microseconds.
    const MIN_HZ: u64 = 100_000;
    let count = || {
        device.start_counting();
        let measured = measure(&ClockReference, WINDOW_NS, || device.counted());
        device.disarm(Mode::OneShot);
        measured
    };
    let measured = match STATED_HZ.load(Relaxed) {
        0 => count(),
        stated_hz if cpu_index() != 0 => Ok(stated_hz),
        stated_hz => match count() {
            Ok(hz) if !agree(stated_hz, hz) => {
                let [stated, found] = [stated_hz, hz].map(|hz| Mhz(hz * device::DIVIDER));
                log::error!(
                    "timer: lapic= states {stated}, the counter runs at {found}: using that"
                );
                STATED_HZ.store(0, Relaxed); // the other CPUs start later, and measure
                Ok(hz)
            }
            _ => Ok(stated_hz),
        },
    };
    let hz = match measured {
        Ok(hz) if hz >= MIN_HZ => hz,
        Ok(_) => return Err(Failure::NotMeasured(Reason::TooSlow)),
        Err(reason) => {
            let other_hz = Some(LAST_HZ.load(Relaxed)).filter(|hz| *hz != 0);
            let hz = other_hz.ok_or(Failure::NotMeasured(reason))?;
            log::warn!("timer: CPU {}: counter: {reason}; assuming {}", cpu_index(), Mhz(hz));
            hz
        }
    };
    LAST_HZ.store(hz, Relaxed);
    let scale = clock::scale::Scale::new(1_000_000_000, hz);
    if let (Some(cpu), Some(scale)) = (this_cpu(), scale) {
        cpu.scale.call_once(|| scale);
    }
    Ok(hz)
}

/// Whether a stated frequency can be the measured one. A timer with one that is too low fires
/// before its time and would be refused: sleepers would never wake. One that is too high
/// makes all sleepers late. The measurement of a busy emulator may be off by some percent.
fn agree(stated_hz: u64, measured_hz: u64) -> bool {
    stated_hz < measured_hz.saturating_mul(2) && measured_hz < stated_hz.saturating_mul(2)
}

fn with_interrupts_on<T>(wait: impl FnOnce() -> T) -> T {
    let irqs = arch::irq::disable();
    arch::irq::restore(IrqState::ON);
    let result = wait();
    arch::irq::disable();
    arch::irq::restore(irqs);
    result
}

/// What a proof needs of the machine.
trait Prover {
    fn now_ns(&self) -> u64;
    fn arm(&self, deadline_ns: u64);
    fn interrupts(&self) -> u64;
}

struct ThisCpu;

impl Prover for ThisCpu {
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
    fn arm(&self, deadline_ns: u64) {
        arm(deadline_ns);
    }
    fn interrupts(&self) -> u64 {
        interrupts()
    }
}

/// The deadline of the proof, from its start.
const PROOF_NS: u64 = 100_000;
/// When it has not fired by then, it does not fire. An emulator on a busy host
/// was seen to be 0.3 s late.
const PROOF_LIMIT_NS: u64 = 2_000_000_000;
/// The same for a mode after which there is none to try: a CPU without a timer wakes
/// no sleeper, and an emulator whose host had five times as much to do as it could was
/// seen to be more than two seconds late.
const LAST_PROOF_LIMIT_NS: u64 = 20_000_000_000;
/// The host may take the CPU away for longer than the limit: then these many
/// polls still follow, in which the interrupt arrives.
const PROOF_MIN_POLLS: u32 = 10_000;
/// Ends the proof even if the clock stands still.
const PROOF_MAX_POLLS: u32 = 500_000_000;
/// Seldom, as in `clock::delay_us`.
const POLLS_PER_PAUSE: u32 = 32;

/// Arms the timer and waits for its interrupt. Gives how late it came. An
/// interrupt that was pending from before has been served by now, since
/// interrupts are already on.
fn prove(cpu: &impl Prover, limit_ns: u64, max_polls: u32) -> Result<u64, Failure> {
    let (before, start) = (cpu.interrupts(), cpu.now_ns());
    let deadline = start + PROOF_NS;
    cpu.arm(deadline);
    for poll in 1..=max_polls {
        if cpu.interrupts() != before {
            // Read after the interrupt was seen: a reading from before may be
            // as old as a host cares to take the CPU away.
            let now = cpu.now_ns();
            let is_early = now < start + PROOF_NS / 2;
            return if is_early {
                Err(Failure::TooEarly)
            } else {
                Ok(now.saturating_sub(deadline))
            };
        }
        let now = cpu.now_ns();
        if now >= start + limit_ns && poll >= PROOF_MIN_POLLS {
            break;
        }
        if poll % POLLS_PER_PAUSE == 0 {
            arch::relax();
        }
    }
    Err(Failure::Silent)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused => f.write_str("is refused by the CPU"),
            Failure::NotMeasured(reason) => write!(f, "cannot be measured: {reason}"),
            Failure::Silent => f.write_str("does not fire"),
            Failure::TooEarly => f.write_str("fires too early"),
        }
    }
}

impl fmt::Display for TimerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mode) = self.mode else {
            return f.write_str("no timer");
        };
        write!(f, "{mode}")?;
        if let Some(hz) = self.counter_hz {
            write!(f, " {}", Mhz(hz))?;
        }
        write!(f, ", fired {} us late", self.late_ns / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::string::ToString;

    /// A CPU whose clock moves by `step_ns` a reading, and whose timer fires
    /// `fires_after_ns` after it is armed.
    struct Fake {
        now_ns: Cell<u64>,
        step_ns: u64,
        fires_after_ns: Option<u64>,
        armed_ns: Cell<Option<u64>>,
        reads: Cell<u64>,
    }

    fn fake(step_ns: u64, fires_after_ns: Option<u64>) -> Fake {
        let (now_ns, armed_ns, reads) = (Cell::new(5_000), Cell::new(None), Cell::new(0));
        Fake { now_ns, step_ns, fires_after_ns, armed_ns, reads }
    }

    impl Prover for Fake {
        fn now_ns(&self) -> u64 {
            self.reads.set(self.reads.get() + 1);
            self.now_ns.replace(self.now_ns.get() + self.step_ns)
        }
        fn arm(&self, deadline_ns: u64) {
            assert!(deadline_ns >= 5_000 + PROOF_NS);
            self.armed_ns.set(Some(self.now_ns.get()));
        }
        fn interrupts(&self) -> u64 {
            let at =
                self.armed_ns.get().zip(self.fires_after_ns).map(|(armed, after)| armed + after);
            7 + u64::from(at.is_some_and(|at| self.now_ns.get() >= at))
        }
    }

    #[test]
    fn timer_that_fires_is_proved_and_its_lateness_known() {
        let late =
            prove(&fake(100, Some(103_000)), PROOF_LIMIT_NS, PROOF_MAX_POLLS).expect("fires");
        assert!((2_000..4_000).contains(&late), "{late}");
    }

    #[test]
    fn timer_that_never_fires_is_silent_within_the_limit() {
        let cpu = fake(1_000, None);
        assert_eq!(prove(&cpu, PROOF_LIMIT_NS, PROOF_MAX_POLLS), Err(Failure::Silent));
        assert!(cpu.now_ns.get() <= PROOF_LIMIT_NS + 10_000_000);
    }

    #[test]
    fn proof_ends_when_the_clock_stands_still() {
        let cpu = fake(0, None);
        assert_eq!(prove(&cpu, PROOF_LIMIT_NS, 50_000), Err(Failure::Silent));
        assert_eq!(cpu.reads.get(), 50_001);
    }

    #[test]
    fn cpu_that_was_taken_away_past_the_limit_still_sees_its_interrupt() {
        // Each reading takes 2 s; the interrupt comes after a hundred of them.
        let cpu = fake(2_000_000_000, Some(200_000_000_000));
        assert!(prove(&cpu, PROOF_LIMIT_NS, PROOF_MAX_POLLS).is_ok());
    }

    #[test]
    fn interruption_before_the_interrupt_does_not_make_it_look_early() {
        // The host takes the CPU away right after a reading, and meanwhile the
        // timer fires: the clock moves on between `now_ns` and `interrupts`.
        struct Interrupted(Fake);
        impl Prover for Interrupted {
            fn now_ns(&self) -> u64 {
                self.0.now_ns()
            }
            fn arm(&self, deadline_ns: u64) {
                self.0.arm(deadline_ns);
            }
            fn interrupts(&self) -> u64 {
                if self.0.reads.get() == 3 {
                    self.0.now_ns.set(30_000_000);
                }
                self.0.interrupts()
            }
        }
        let cpu = Interrupted(fake(100, Some(100_000)));
        assert!(prove(&cpu, PROOF_LIMIT_NS, PROOF_MAX_POLLS).is_ok());
    }

    #[test]
    fn timer_that_fires_far_too_early_is_not_believed() {
        assert_eq!(
            prove(&fake(100, Some(10_000)), PROOF_LIMIT_NS, PROOF_MAX_POLLS),
            Err(Failure::TooEarly)
        );
    }

    #[test]
    fn a_stated_frequency_that_is_far_off_is_not_believed() {
        for (stated_mhz, is_believed) in
            [(1, false), (62, false), (500, false), (501, true), (1_000, true), (2_000, false)]
        {
            assert_eq!(agree(stated_mhz * 1_000_000, 1_000_000_000), is_believed, "{stated_mhz}");
        }
        assert!(!agree(u64::MAX, 1));
    }

    #[test]
    fn every_choice_has_a_fallback_that_the_cpu_can_do() {
        use Mode::{OneShot, TscDeadline};
        let list = |choice, has| {
            candidates(choice, has).into_iter().flatten().collect::<std::vec::Vec<_>>()
        };
        assert_eq!(list(TimerChoice::Auto, true), [TscDeadline, OneShot]);
        assert_eq!(list(TimerChoice::Auto, false), [OneShot]);
        assert_eq!(list(TimerChoice::TscDeadline, false), [TscDeadline, OneShot]);
        assert_eq!(list(TimerChoice::OneShot, true), [OneShot, TscDeadline]);
        assert_eq!(list(TimerChoice::OneShot, false), [OneShot]);
        assert_eq!(list(TimerChoice::None, true), []);
    }

    #[test]
    fn reports_read_as_a_person_would_say_it() {
        let report = TimerReport {
            mode: Some(Mode::OneShot),
            counter_hz: Some(62_500_000),
            late_ns: 12_345,
        };
        assert_eq!(report.to_string(), "one-shot 62.5 MHz, fired 12 us late");
        let none = TimerReport { mode: None, counter_hz: None, late_ns: 0 };
        assert_eq!(none.to_string(), "no timer");
    }
}
