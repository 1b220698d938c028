//! The timer of each CPU: one deadline, proved to fire.
//!
//! The timer in the local APIC fires either at a value of the time stamp counter
//! (TSC-deadline) or after a count of its own (one-shot). [`init_cpu`] takes the
//! first of the two that the CPU has and that is *seen* to fire. The register
//! sequences are over any local APIC, real or recording, so that the order of writes
//! is tested on the host; sections named are of Intel SDM vol. 3, "APIC Timer".
//! The clock is left to `clock`, what an interrupt means to its handler, and
//! keeping many deadlines to the kernel's own timers.
//!
//! # Deadlines
//!
//! [`arm`] takes a value of this CPU's time stamp counter: what TSC-deadline mode
//! wants as it is, and one-shot mode with one multiplication. A time of the clock
//! is converted once, when it is known ([`tsc_at`]), and not at each arming. A
//! deadline in the past fires at once. The interrupt may come *early*: a one-shot
//! counter has 32 bits, so one far away fires on the way (after a minute and more);
//! and where the HPET is the clock, the TSC may be faster. It may come late:
//! interrupts may be off, or a hypervisor busy. So its handler reads the clock,
//! and arms again if it is too soon. No deadline is lost: the timer stays armed until it
//! has fired, or is armed anew, or [`disarm`]ed.

use super::clock::scale::Scale;
use super::clock::tsc::{Hints, cycles};
use super::clock::{self, Mhz, NS_PER_SECOND};
use super::reference::{Reference, measure};
use crate::arch::x86_64::cpu::msr::{IA32_TSC_DEADLINE, MsrFault};
use crate::arch::x86_64::irq::apic::{self, Bus, LVT_MASKED, LocalApic, Register::*, TIMER_VECTOR};
use crate::arch::{self, MAX_CPUS, cpu_index, irq::IrqState, text_enum};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

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

text_enum! {
    /// When the timer fires.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        /// At a value of the time stamp counter.
        TscDeadline => "tsc-deadline",
        /// When a count of its own has run down.
        OneShot => "one-shot",
    }
}

/// The one-shot counter runs at its input divided by this: at 1 GHz (QEMU)
/// it lasts for 68 s, at 24 MHz it still resolves 0.7 µs.
const DIVIDER: u64 = 16;
const DIVIDE_BY_16: u32 = 0b0011;

const LVT_ONE_SHOT: u32 = TIMER_VECTOR as u32;
const LVT_TSC_DEADLINE: u32 = 2 << 17 | TIMER_VECTOR as u32;

/// One CPU's timer. Used by that CPU alone.
#[derive(Clone, Copy)]
struct CpuTimer<B> {
    apic: LocalApic<B>,
    mode: Mode,
    /// From counts of the TSC to those of the one-shot counter.
    scale: Scale,
}

/// What was found of a CPU's timer, for the boot report.
#[derive(Clone, Copy, Debug)]
pub struct Proved {
    pub mode: Mode,
    hz: u64,
    late_ns: u64,
}

impl fmt::Display for Proved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mode)?;
        if self.mode == Mode::OneShot {
            write!(f, " {}", Mhz(self.hz))?;
        }
        write!(f, ", fired {} us late", self.late_ns / 1_000)
    }
}

/// Those that were proved.
static TIMERS: [spin::Once<CpuTimer<apic::Hardware>>; MAX_CPUS] =
    [const { spin::Once::new() }; MAX_CPUS];

/// Modes that a CPU has tried in vain. The next CPU tries such a mode only if it is the last one,
/// and waits less long for it, as the time to try would add up.
static FAILED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// What [`init`] was told; 0 if nothing.
static STATED_HZ: AtomicU64 = AtomicU64::new(0);
/// What the last CPU measured: better than nothing for one that cannot.
static LAST_HZ: AtomicU64 = AtomicU64::new(0);

/// Takes the one-shot counters' frequency, before they divide it, from the command line. The boot
/// CPU measures all the same, and a frequency that is far off is not used. Before [`init_cpu`].
pub fn init(lapic_hz: Option<u64>) {
    STATED_HZ.store(lapic_hz.map_or(0, |hz| hz / DIVIDER), Relaxed);
}

/// Chooses and proves this CPU's timer, if it has one that fires. Allocates nothing.
///
/// After `apic::init_cpu` and `clock::init` (on another CPU `clock::init_cpu`), with the IDT
/// loaded, `cpu_index` right, and interrupts off. Takes 100 µs when all is well; when not, two
/// seconds, or twenty if there is nothing else to try. What fails is logged as an error.
pub fn init_cpu(choice: TimerChoice) -> Option<Proved> {
    let modes = candidates(choice, Hints::of_this_cpu().has_deadline);
    for &mode in modes {
        let is_last = modes.last() == Some(&mode);
        let limit_ns = match (is_last, FAILED[mode as usize].load(Relaxed)) {
            (false, true) => continue,
            (false, false) | (true, true) => PROOF_LIMIT_NS,
            (true, false) => LAST_PROOF_LIMIT_NS,
        };
        match try_mode(mode, limit_ns) {
            Ok(proved) => return Some(proved),
            Err(why) => log::error!("timer: CPU {}: {mode} {why}", cpu_index()),
        }
    }
    let cpu = cpu_index();
    log::error!("timer: CPU {cpu} has no timer that fires: no slice ends, and no sleeper wakes");
    None
}

/// The modes to try, in order.
fn candidates(choice: TimerChoice, has_deadline: bool) -> &'static [Mode] {
    match choice {
        TimerChoice::Auto | TimerChoice::OneShot if !has_deadline => &[Mode::OneShot],
        TimerChoice::Auto | TimerChoice::TscDeadline => &[Mode::TscDeadline, Mode::OneShot],
        TimerChoice::OneShot => &[Mode::OneShot, Mode::TscDeadline],
        TimerChoice::None => &[],
    }
}

/// Lets this CPU's timer, if it has one, fire when the TSC is at `tsc`, or at once if it is past
/// that. A deadline armed before is forgotten. Interrupts are off.
#[inline]
pub fn arm(tsc: u64) {
    if let Some(timer) = this_timer() {
        timer.arm(tsc);
    }
}

/// What the TSC of this CPU will be at `at_ns` of the clock. Interrupts are off.
#[inline(never)]
pub fn tsc_at(at_ns: u64) -> u64 {
    let left_ns = at_ns.saturating_sub(clock::now_ns());
    // One more, as both readings of the clock are rounded down: else it would be early.
    cycles().saturating_add(clock::ns_to_tsc(left_ns.saturating_add(1)))
}

pub fn is_there() -> bool {
    this_timer().is_some()
}

/// This CPU's timer does not fire until it is armed again. An interrupt that is
/// already on its way still comes. Interrupts are off.
pub fn disarm() {
    if let Some(timer) = this_timer() {
        timer.disarm();
    }
}

#[inline]
fn this_timer() -> Option<&'static CpuTimer<apic::Hardware>> {
    TIMERS.get(cpu_index())?.get()
}

impl<B: Bus> CpuTimer<B> {
    /// Puts the timer into its mode, not armed. A CPU that does not have the mode may refuse.
    fn enter(&self) -> Result<(), MsrFault> {
        match self.mode {
            Mode::TscDeadline => {
                self.apic.try_write(LvtTimer, LVT_TSC_DEADLINE)?;
                // "TSC-Deadline Mode": writes to an xAPIC are not ordered with the MSR's.
                self.apic.bus().fence();
                self.apic.bus().try_write_msr(IA32_TSC_DEADLINE, 0)
            }
            Mode::OneShot => {
                self.apic.write(InitialCount, 0);
                self.apic.write(Divide, DIVIDE_BY_16);
                self.apic.try_write(LvtTimer, LVT_ONE_SHOT)
            }
        }
    }

    /// Fires when this CPU's time stamp counter reaches `tsc`, at once if it has; a one-shot
    /// counter earlier, if the count does not fit.
    #[inline]
    fn arm(&self, tsc: u64) {
        match self.mode {
            Mode::TscDeadline => {
                // A handler's stores before arming are visible when it fires.
                self.apic.bus().fence();
                // 0 would disarm.
                self.apic.bus().write_msr(IA32_TSC_DEADLINE, tsc.max(1));
            }
            Mode::OneShot => {
                let count = self.scale.apply(tsc.saturating_sub(cycles()));
                let count = count.min(u64::from(u32::MAX - 1)) as u32;
                self.apic.write(InitialCount, count + 1); // 0 would stop it
            }
        }
    }

    fn disarm(&self) {
        match self.mode {
            Mode::TscDeadline => self.apic.bus().write_msr(IA32_TSC_DEADLINE, 0),
            Mode::OneShot => self.apic.write(InitialCount, 0),
        }
    }
}

/// Keeps the timer from interrupting. Leaving TSC-deadline mode forgets the deadline.
fn silence(apic: &LocalApic<impl Bus>) {
    apic.write(LvtTimer, LVT_MASKED | u32::from(TIMER_VECTOR));
    apic.write(InitialCount, 0);
}

/// Starts the one-shot counter from the top, without an interrupt.
fn start_counting(apic: &LocalApic<impl Bus>) {
    apic.write(LvtTimer, LVT_MASKED | LVT_ONE_SHOT);
    apic.write(Divide, DIVIDE_BY_16);
    apic.write(InitialCount, u32::MAX);
}

/// How far it has counted since [`start_counting`].
fn counted(apic: &LocalApic<impl Bus>) -> u64 {
    u64::from(u32::MAX - apic.read(CurrentCount))
}

/// Proves `mode`, and makes it this CPU's.
fn try_mode(mode: Mode, limit_ns: u64) -> Result<Proved, &'static str> {
    const REFUSED: &str = "is refused by the CPU";
    let apic = apic::current().ok_or(REFUSED)?;
    let hz = match mode {
        Mode::TscDeadline => clock::ns_to_tsc(NS_PER_SECOND),
        Mode::OneShot => counter_hz(&apic)?,
    };
    let timer = CpuTimer { apic, mode, scale: Scale::new(clock::ns_to_tsc(NS_PER_SECOND), hz) };
    timer.enter().map_err(|_| REFUSED)?;
    let has_fired = || apic.is_requested(TIMER_VECTOR);
    serve_pending(); // of an earlier mode
    let proof = prove(limit_ns, clock::now_ns, |at_ns| timer.arm(tsc_at(at_ns)), has_fired);
    if proof.is_err() {
        silence(&apic);
        FAILED[mode as usize].store(true, Relaxed);
    }
    serve_pending();
    let late_ns = proof?;
    TIMERS[cpu_index()].call_once(|| timer);
    Ok(Proved { mode, hz, late_ns })
}

/// Turns interrupts on for a moment: a pending one is served.
fn serve_pending() {
    arch::irq::restore(IrqState::ON);
    arch::relax(); // they come after the instruction that follows
    arch::irq::disable();
}

/// The frequency of this CPU's one-shot counter. It is measured against the clock on each:
/// they differ from CPU to CPU on some machines (zephyr#34788).
fn counter_hz(apic: &LocalApic<apic::Hardware>) -> Result<u64, &'static str> {
    /// 2 ms: a reading error of 0.2 µs is 100 ppm, and 64 CPUs take 0.13 s.
    const WINDOW_NS: u64 = 2_000_000;
    /// A slower counter cannot serve deadlines of microseconds.
    const MIN_HZ: u64 = 100_000;
    let stated_hz = STATED_HZ.load(Relaxed);
    if stated_hz != 0 && cpu_index() != 0 {
        return Ok(stated_hz);
    }
    start_counting(apic);
    let clock = Reference { hz: NS_PER_SECOND, mask: u64::MAX, read: clock::now_ns };
    let measured = measure(&clock, WINDOW_NS, || counted(apic));
    silence(apic);
    let hz = match measured {
        Ok(hz) if stated_hz == 0 => hz,
        Ok(hz) if !agree(stated_hz, hz) => {
            let [stated, found] = [stated_hz, hz].map(|hz| Mhz(hz * DIVIDER));
            log::error!("timer: lapic= states {stated}, the counter runs at {found}: using that");
            STATED_HZ.store(0, Relaxed); // the other CPUs start later, and measure
            hz
        }
        Err(reason) if stated_hz == 0 => {
            log::warn!("timer: CPU {}: counter: {reason}", cpu_index());
            LAST_HZ.load(Relaxed)
        }
        _ => stated_hz,
    };
    LAST_HZ.store(hz, Relaxed);
    match hz {
        0 => Err("cannot be measured"),
        1..MIN_HZ => Err("is too slow"),
        _ => Ok(hz),
    }
}

/// Whether a stated frequency can be the measured one, which in a busy emulator may be off by some
/// percent. A timer with one that is too low fires early and would be refused, one with a
/// frequency that is too high makes all sleepers late.
fn agree(stated_hz: u64, measured_hz: u64) -> bool {
    stated_hz < measured_hz.saturating_mul(2) && measured_hz < stated_hz.saturating_mul(2)
}

/// The deadline of the proof, from its start.
const PROOF_NS: u64 = 100_000;
/// When it has not fired by then, it does not fire. A busy emulator was seen to be 0.3 s late.
const PROOF_LIMIT_NS: u64 = 2_000_000_000;
/// The same for a mode after which there is none to try: a CPU without a timer wakes no sleeper,
/// and an emulator on a host with five times its load was more than two seconds late.
const LAST_PROOF_LIMIT_NS: u64 = 20_000_000_000;
/// These polls follow also when the host has taken the CPU away for longer than the limit.
const PROOF_MIN_POLLS: u64 = 10_000;
/// Seldom, as in `clock::delay_us`.
const POLLS_PER_PAUSE: u64 = 32;

const SILENT: &str = "does not fire";
const TOO_EARLY: &str = "fires too early";

/// Arms the timer and waits until its interrupt is pending. Gives how late it came, or says
/// that it did not come, or long before its time: then its frequency is wrong. Ends also if
/// the clock stands still: a poll takes 4 ns at the least.
fn prove(
    limit_ns: u64,
    now: impl Fn() -> u64,
    arm: impl Fn(u64),
    has_fired: impl Fn() -> bool,
) -> Result<u64, &'static str> {
    let start = now();
    let deadline = start + PROOF_NS;
    arm(deadline);
    for poll in 1..=limit_ns / 4 {
        if has_fired() {
            // Not a reading from before: it may be as old as the host took the CPU away.
            let now = now();
            let is_early = now < start + PROOF_NS / 2;
            return if is_early { Err(TOO_EARLY) } else { Ok(now.saturating_sub(deadline)) };
        }
        if now() >= start + limit_ns && poll >= PROOF_MIN_POLLS {
            break;
        }
        if poll % POLLS_PER_PAUSE == 0 {
            arch::relax();
        }
    }
    Err(SILENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::irq::apic::Mode as ApicMode;
    use crate::arch::x86_64::irq::apic::tests::Fake;
    use crate::arch::x86_64::irq::apic::tests::Op::{Fence, Mmio, Msr};
    use std::cell::Cell;

    /// A CPU whose clock moves by `step_ns` a reading, and whose timer fires
    /// `fires_after_ns` after it is armed.
    struct FakeClock {
        now_ns: Cell<u64>,
        step_ns: u64,
        fires_after_ns: Option<u64>,
        armed_ns: Cell<Option<u64>>,
        reads: Cell<u64>,
    }

    fn fake(step_ns: u64, fires_after_ns: Option<u64>) -> FakeClock {
        let (now_ns, armed_ns, reads) = (Cell::new(5_000), Cell::new(None), Cell::new(0));
        FakeClock { now_ns, step_ns, fires_after_ns, armed_ns, reads }
    }

    impl FakeClock {
        fn now_ns(&self) -> u64 {
            self.reads.set(self.reads.get() + 1);
            self.now_ns.replace(self.now_ns.get() + self.step_ns)
        }

        fn has_fired(&self) -> bool {
            let fires_at =
                self.armed_ns.get().zip(self.fires_after_ns).map(|(at, after)| at + after);
            fires_at.is_some_and(|at| self.now_ns.get() >= at)
        }

        fn prove(&self, limit_ns: u64, has_fired: impl Fn() -> bool) -> Result<u64, &'static str> {
            let arm = |deadline_ns| {
                assert!(deadline_ns >= 5_000 + PROOF_NS);
                self.armed_ns.set(Some(self.now_ns.get()));
            };
            prove(limit_ns, || self.now_ns(), arm, has_fired)
        }
    }

    fn proof_of(cpu: &FakeClock, limit_ns: u64) -> Result<u64, &'static str> {
        cpu.prove(limit_ns, || cpu.has_fired())
    }

    #[test]
    fn timer_that_fires_is_proved_and_its_lateness_known() {
        let late = proof_of(&fake(100, Some(103_000)), PROOF_LIMIT_NS).expect("fires");
        assert!((2_000..4_000).contains(&late), "{late}");
    }

    #[test]
    fn timer_that_never_fires_is_silent_within_the_limit() {
        let cpu = fake(1_000, None);
        assert_eq!(proof_of(&cpu, PROOF_LIMIT_NS), Err(SILENT));
        assert!(cpu.now_ns.get() <= PROOF_LIMIT_NS + 10_000_000);
    }

    #[test]
    fn proof_ends_when_the_clock_stands_still() {
        let cpu = fake(0, None);
        assert_eq!(proof_of(&cpu, 200_000), Err(SILENT));
        assert_eq!(cpu.reads.get(), 50_001);
    }

    #[test]
    fn cpu_that_was_taken_away_past_the_limit_still_sees_its_interrupt() {
        // Each reading takes 2 s; the interrupt comes after a hundred of them.
        assert!(proof_of(&fake(2_000_000_000, Some(200_000_000_000)), PROOF_LIMIT_NS).is_ok());
    }

    #[test]
    fn interruption_before_the_interrupt_does_not_make_it_look_early() {
        // The host takes the CPU away right after a reading, and meanwhile the
        // timer fires: the clock moves on between `now_ns` and `has_fired`.
        let cpu = fake(100, Some(100_000));
        let has_fired = || {
            if cpu.reads.get() == 3 {
                cpu.now_ns.set(30_000_000);
            }
            cpu.has_fired()
        };
        assert!(cpu.prove(PROOF_LIMIT_NS, has_fired).is_ok());
    }

    #[test]
    fn timer_that_fires_far_too_early_is_not_believed() {
        assert_eq!(proof_of(&fake(100, Some(10_000)), PROOF_LIMIT_NS), Err(TOO_EARLY));
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
        let list = candidates;
        assert_eq!(list(TimerChoice::Auto, true), [TscDeadline, OneShot]);
        assert_eq!(list(TimerChoice::Auto, false), [OneShot]);
        assert_eq!(list(TimerChoice::TscDeadline, false), [TscDeadline, OneShot]);
        assert_eq!(list(TimerChoice::OneShot, true), [OneShot, TscDeadline]);
        assert_eq!(list(TimerChoice::OneShot, false), [OneShot]);
        assert_eq!(list(TimerChoice::None, true), []);
    }

    fn timer(fake: &Fake, form: ApicMode, mode: Mode) -> CpuTimer<&Fake> {
        let scale = Scale::new(NS_PER_SECOND, NS_PER_SECOND);
        CpuTimer { apic: LocalApic::new(fake, form), mode, scale }
    }

    #[test]
    fn deadline_mode_has_a_fence_between_entry_and_msr() {
        let fake = Fake::default();
        timer(&fake, ApicMode::XApic, Mode::TscDeadline).enter().expect("not refused");
        assert_eq!(fake.taken(), [Mmio(0x320, 0x4_00f0), Fence, Msr(0x6e0, 0)]);
    }

    #[test]
    fn deadline_mode_that_the_cpu_refuses_is_an_error_in_both_forms() {
        let fake = Fake { refused: [0x6e0, 0x832].to_vec(), ..Fake::default() };
        for (form, refused) in [(ApicMode::XApic, 0x6e0), (ApicMode::X2Apic, 0x832)] {
            assert_eq!(timer(&fake, form, Mode::TscDeadline).enter(), Err(MsrFault(refused)));
        }
    }

    #[test]
    fn one_shot_is_stopped_divided_and_then_opened() {
        let fake = Fake::default();
        timer(&fake, ApicMode::X2Apic, Mode::OneShot).enter().expect("not refused");
        assert_eq!(fake.taken(), [Msr(0x838, 0), Msr(0x83e, 3), Msr(0x832, 0xf0)]);
    }

    #[test]
    fn deadlines_past_or_far_still_arm() {
        let fake = Fake::default();
        let one_shot = timer(&fake, ApicMode::XApic, Mode::OneShot);
        one_shot.arm(0);
        one_shot.arm(u64::MAX);
        timer(&fake, ApicMode::XApic, Mode::TscDeadline).arm(0);
        let expected = [Mmio(0x380, 1), Mmio(0x380, u32::MAX), Fence, Msr(0x6e0, 1)];
        assert_eq!(fake.taken(), expected);
    }

    #[test]
    fn disarm_and_silence_stop_it() {
        let fake = Fake::default();
        let [one_shot, deadline] =
            [Mode::OneShot, Mode::TscDeadline].map(|mode| timer(&fake, ApicMode::XApic, mode));
        one_shot.disarm();
        deadline.disarm();
        silence(&deadline.apic);
        let expected = [Mmio(0x380, 0), Msr(0x6e0, 0), Mmio(0x320, 0x1_00f0), Mmio(0x380, 0)];
        assert_eq!(fake.taken(), expected);
    }

    #[test]
    fn count_down_reads_as_count_up() {
        let fake = Fake::default();
        let apic = LocalApic::new(&fake, ApicMode::XApic);
        start_counting(&apic);
        fake.mmio.borrow_mut().insert(0x390, u32::MAX - 1234);
        assert_eq!(counted(&apic), 1234);
        let masked = fake.taken().contains(&Mmio(0x320, 0x1_00f0));
        assert!(masked, "no interrupt while measuring");
    }
}
