//! A monotonic clock in nanoseconds, the same on all CPUs.
//!
//! Time is read from a counter, never counted from ticks: ticks get lost. The counter is the
//! time stamp counter (TSC) if it is invariant or virtual and in step on all CPUs, else the
//! HPET. This file decides which, finds its frequency, and holds the clock; [`tsc`] reads CPUID,
//! [`scale`] multiplies, [`sync`] compares CPUs. The interrupt at a given time is left to
//! `timer`.
//!
//! # What is promised
//!
//! - On one CPU [`now_ns`] never goes backwards.
//! - Between CPUs: when a CPU reads the clock and tells another CPU, which reads it then, the
//!   second reading is smaller by [`uncertainty_ns`] at most: by what a comparison of their
//!   TSCs cannot show (tens of ns on hardware). The HPET is one counter, and has none.
//! - A change of the source at AP start keeps the reading, and happens at most once.
//!
//! # What was rejected
//!
//! - *One shared word that every reading updates* (`fetch_max`), for a clock without
//!   uncertainty: all CPUs would queue for its cache line.
//! - *Correcting a TSC by its offset*: every reading on every CPU would look the offset up with
//!   interrupts off, for the few machines whose TSCs are apart. They use the HPET.
//!
//! # What a reading costs
//!
//! TSC: a fenced `rdtsc`, one multiplication, two loads that never miss. HPET: three reads
//! over the bus, about 2 µs.
//!
//! [`init`] on the boot CPU; then for each other CPU, [`sync_cpu`] on the boot
//! CPU while that CPU is in [`init_cpu`].

pub mod scale;
pub mod sync;
pub mod tsc;

use super::hpet::Hpet;
use super::pit::Pit;
use super::pmtimer::{PmTimer, Width};
use super::reference::{Reason, Reference, measure};
use crate::arch::x86_64::cpu::mmio::Window;
use crate::arch::x86_64::cpu::ports;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU64};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use scale::Scale;
use sync::{Exchange, Offset};
use tsc::{Hints, rdtsc_ordered};

const NS_PER_SECOND: u64 = 1_000_000_000;
/// How long the TSC is measured. All references bear it (the PIT wraps after
/// 55 ms), and a reading error of 0.2 µs is 20 ppm of it.
const WINDOW_NS: u64 = 10_000_000;
/// Assumed where nothing is known: faster than any counter we will meet, so
/// that a delay is too long and never too short.
const ASSUMED_TSC_HZ: u64 = 4_000_000_000;

/// `clock=` on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockChoice {
    /// The TSC where it can be trusted, else the HPET.
    #[default]
    Auto,
    /// The TSC, trusted or not.
    Tsc,
    /// The HPET, if there is one with 64 bits.
    Hpet,
}

/// What the firmware's tables say about time.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockConfig {
    /// `clock=` on the command line.
    pub choice: ClockChoice,
    /// The HPET's registers, mapped, at least `hpet::WINDOW_BYTES`.
    pub hpet: Option<Window>,
    /// The PM timer's port and width: the FADT's.
    pub pm_timer: Option<(u16, Width)>,
    /// `tsc=` on the command line: the TSC's frequency, not to be measured.
    pub tsc_hz: Option<u64>,
}

/// Where the time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Time stamp counters.
    Tsc,
    /// The HPET's main counter.
    Hpet,
}

/// What [`init`] decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReport {
    /// Where the time comes from.
    pub source: Source,
    /// The TSC's frequency.
    pub tsc_hz: u64,
    /// How that is known: the option, CPUID, a reference.
    pub by: &'static str,
}

/// Finds the TSC's frequency, chooses the source, and starts the clock at 0.
///
/// Takes 10 ms, or some tens when references fail. Called once, on the boot
/// CPU. What is doubtful is logged as a warning, what is missing as an error.
pub fn init(config: ClockConfig) -> ClockReport {
    let hints = Hints::of_this_cpu();
    let hpet = config.hpet.and_then(|window| usable("hpet", Hpet::new(window)));
    let (tsc_hz, by) = match config.tsc_hz {
        Some(hz) => (hz, "option"),
        None => combine(&hints, measure_tsc(hpet.as_ref(), config.pm_timer)),
    };
    let wide_hpet = hpet.filter(Hpet::is_64_bits);
    let source = choose_source(config.choice, &hints, hpet.is_some(), wide_hpet.is_some());
    if let Some(hpet) = wide_hpet {
        HPET.call_once(|| hpet);
    }
    TSC.call_once(|| TscClock::new(tsc_hz, rdtsc_ordered()));
    if source == Source::Hpet {
        start_hpet();
    } else {
        SOURCE.store(SOURCE_TSC, Release); // pairs with the load in `now_ns`
    }
    ClockReport { source, tsc_hz, by }
}

/// Compares the TSC of CPU number `cpu`, which is in [`init_cpu`], with this CPU's, and says in
/// a few words what was found. If they are apart, the HPET is the clock from now on. On the
/// boot CPU.
pub fn sync_cpu(cpu: usize) -> SyncReport {
    let answer = EXCHANGE.lead(cpu, sync::MAX_POLLS, rdtsc_ordered);
    let report = match answer {
        _ if source() != Some(Source::Tsc) => SyncReport::NotUsed,
        Ok(offset) => {
            compare_tsc(cpu, offset);
            SyncReport::Compared(offset)
        }
        Err(sync::TimedOut) => {
            log::warn!("clock: CPU {cpu}: TSC comparison timed out; assuming synchronized");
            SyncReport::TimedOut
        }
    };
    EXCHANGE.finish(cpu);
    report
}

/// What [`sync_cpu`] found for one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncReport {
    /// What the comparison showed.
    Compared(Offset),
    /// The clock is not the TSC.
    NotUsed,
    /// The CPU did not answer.
    TimedOut,
}

/// What every CPU but the boot CPU calls once, with interrupts off: its counter
/// is compared. Bounded: says false when the boot CPU did not come.
pub fn init_cpu(cpu: usize) -> bool {
    let (polls, first) = (sync::MAX_POLLS, sync::MAX_POLLS_FOR_INVITATION);
    EXCHANGE.follow(cpu, polls, first, rdtsc_ordered).is_ok()
}

/// Nanoseconds since [`init`]; 0 before. See the promise at the top.
#[inline]
pub fn now_ns() -> u64 {
    match source() {
        Some(Source::Tsc) => TSC.get().map_or(0, |clock| clock.ns_at(rdtsc_ordered())),
        Some(Source::Hpet) => HPET_CLOCK.get().map_or(0, HpetClock::now_ns),
        None => 0,
    }
}

/// The source in use, once [`init`] has chosen.
#[inline]
pub fn source() -> Option<Source> {
    match SOURCE.load(Acquire) {
        SOURCE_TSC => Some(Source::Tsc),
        SOURCE_HPET => Some(Source::Hpet),
        _ => None,
    }
}

/// By how much a reading of the clock may seem to go back between two CPUs.
pub fn uncertainty_ns() -> u64 {
    // Both CPUs may be off from the boot CPU by that much.
    2 * cycles_to_ns(UNCERTAINTY.load(Relaxed))
}

/// How many cycles of the TSC pass in `ns`; for `timer`. 0 before [`init`].
#[inline]
pub fn ns_to_tsc(ns: u64) -> u64 {
    TSC.get().map_or(0, |clock| clock.from_ns.apply(ns))
}

/// How many ns `cycles` of the TSC take. 0 before [`init`].
#[inline]
pub fn cycles_to_ns(cycles: u64) -> u64 {
    TSC.get().map_or(0, |clock| clock.to_ns.apply(cycles))
}

/// Waits for `us` microseconds, spinning; for bring-up and devices only.
///
/// Before [`init`] it waits by the TSC at an assumed frequency, which is rather
/// too long than too short. It ends even if the counter stands still. Prefer
/// it to a loop around [`now_ns`]: see `spin_until` for what such a loop does
/// to other CPUs under emulation.
pub fn delay_us(us: u64) {
    // A long wait reads the counter every 20 µs at the most often, a short one
    // some hundred times.
    let max_polls = (us / 8).saturating_add(2_000);
    match source() {
        Some(_) => spin_until(us.saturating_mul(1_000), max_polls, now_ns),
        None => {
            let cycles = us.saturating_mul(ASSUMED_TSC_HZ / 1_000_000);
            spin_until(cycles, max_polls, rdtsc_ordered)
        }
    };
}

/// The clock itself as a reference, to measure other counters against.
#[derive(Clone, Copy, Debug)]
pub struct ClockReference;

impl Reference for ClockReference {
    fn frequency_hz(&self) -> u64 {
        NS_PER_SECOND
    }
    fn mask(&self) -> u64 {
        u64::MAX
    }
    fn read(&self) -> u64 {
        now_ns()
    }
}

// The state. `TSC` and `HPET` are written by `init` before `SOURCE`.

static TSC: spin::Once<TscClock> = spin::Once::new();
static HPET: spin::Once<Hpet<Window>> = spin::Once::new();
static HPET_CLOCK: spin::Once<HpetClock> = spin::Once::new();
static SOURCE: AtomicU8 = AtomicU8::new(0);
const SOURCE_TSC: u8 = 1;
const SOURCE_HPET: u8 = 2;
static EXCHANGE: Exchange = Exchange::new();
/// The largest offset between the TSCs of two CPUs that a comparison could not exclude.
static UNCERTAINTY: AtomicU64 = AtomicU64::new(0);

/// Time from a TSC that is in step with the boot CPU's.
struct TscClock {
    base: u64,
    to_ns: Scale,
    from_ns: Scale,
}

impl TscClock {
    fn new(hz: u64, base: u64) -> TscClock {
        let hz = hz.max(1);
        let scale = |from, to| Scale::new(from, to).expect("neither is 0");
        let (to_ns, from_ns) = (scale(hz, NS_PER_SECOND), scale(NS_PER_SECOND, hz));
        TscClock { base, to_ns, from_ns }
    }

    /// A CPU that is behind by its uncertainty must not wrap at the start.
    #[inline]
    fn ns_at(&self, tsc: u64) -> u64 {
        self.to_ns.apply(tsc.saturating_sub(self.base))
    }
}

/// Time from the HPET, taken over at `start_ns`.
struct HpetClock {
    hpet: Hpet<Window>,
    base: u64,
    start_ns: u64,
    to_ns: Scale,
}

impl HpetClock {
    fn now_ns(&self) -> u64 {
        let passed = self.hpet.read_64().saturating_sub(self.base);
        self.start_ns.saturating_add(self.to_ns.apply(passed))
    }
}

/// Acts on what a comparison has shown.
fn compare_tsc(cpu: usize, offset: Offset) {
    if offset.is_in_step() {
        UNCERTAINTY.fetch_max(offset.uncertainty(), Relaxed);
    } else if HPET.get().is_some() {
        log::error!("clock: CPU {cpu}: {offset}; the hpet is the clock from now on");
        start_hpet();
    } else {
        log::error!("clock: CPU {cpu}: {offset}, and no 64-bit hpet: time is unreliable");
    }
}

/// Makes the HPET the source, from the present reading on.
fn start_hpet() {
    let Some(&hpet) = HPET.get() else { return };
    HPET_CLOCK.call_once(|| HpetClock {
        hpet,
        base: hpet.read_64(),
        start_ns: now_ns(),
        to_ns: Scale::new(hpet.frequency_hz(), NS_PER_SECOND).expect("neither is 0"),
    });
    SOURCE.store(SOURCE_HPET, Release); // pairs with the load in `source`
}

/// The TSC against the first reference that works: HPET, PM timer, PIT.
fn measure_tsc(
    hpet: Option<&Hpet<Window>>,
    pm_timer: Option<(u16, Width)>,
) -> Option<(u64, &'static str)> {
    fn against(name: &'static str, reference: &impl Reference) -> Option<(u64, &'static str)> {
        Some((usable(name, measure(reference, WINDOW_NS, rdtsc_ordered))?, name))
    }
    let pm_timer = || {
        let (port, width) = pm_timer?;
        against("pm timer", &usable("pm timer", PmTimer::new(ports::Hardware, port, width))?)
    };
    let pit = || against("pit", &usable("pit", Pit::new(ports::Hardware))?);
    hpet.and_then(|hpet| against("hpet", hpet)).or_else(pm_timer).or_else(pit)
}

/// What a reference gives, or a warning.
fn usable<T>(name: &str, result: Result<T, Reason>) -> Option<T> {
    result.inspect_err(|reason| log::warn!("clock: {name}: {reason}")).ok()
}

/// What is stated goes before what is measured, being exact, unless the two are
/// far apart: then one is wrong, more likely the stated one.
fn combine(hints: &Hints, measured: Option<(u64, &'static str)>) -> (u64, &'static str) {
    let by_cpuid = hints.stated_hz.map(|hz| (hz, "cpuid"));
    let stated = by_cpuid.or(hints.hypervisor_hz.map(|hz| (hz, "hypervisor")));
    match (stated, measured) {
        (Some((stated_hz, by)), Some((hz, against))) if stated_hz.abs_diff(hz) > hz / 50 => {
            log::warn!("clock: TSC {} by {by}, {} by {against}", Mhz(stated_hz), Mhz(hz));
            (hz, against)
        }
        (Some(stated), _) => stated,
        (None, Some(measured)) => measured,
        (None, None) => match hints.base_hz {
            Some(hz) => {
                log::error!("clock: no reference works; the TSC's frequency is nominal");
                (hz, "nominal frequency")
            }
            None => {
                log::error!("clock: no reference works; the TSC's frequency is a guess");
                (ASSUMED_TSC_HZ, "guess")
            }
        },
    }
}

fn choose_source(choice: ClockChoice, hints: &Hints, has_hpet: bool, is_wide: bool) -> Source {
    // TCG's TSC is not called invariant, and yet all CPUs read one counter.
    let is_trusted = hints.is_invariant || hints.is_virtual;
    match choice {
        ClockChoice::Tsc => Source::Tsc,
        ClockChoice::Auto if is_trusted => Source::Tsc,
        _ if is_wide => Source::Hpet,
        _ => {
            let lack = if has_hpet { "the hpet has 32 bits only" } else { "there is no hpet" };
            let tsc = if is_trusted { "" } else { ", which may change its pace" };
            log::warn!("clock: {lack}: the TSC is the clock{tsc}");
            Source::Tsc
        }
    }
}

/// Says whether `amount` passed within `max_polls` readings.
///
/// The counter is read seldom at first, and more often towards the end. QEMU
/// 7.2 keeps TSCs from going backwards by pushing all of them forward: CPUs that
/// read without a break make them run up to a tenth too fast, and whatever is
/// measured on another CPU meanwhile comes out wrong.
fn spin_until(amount: u64, max_polls: u64, now: impl Fn() -> u64) -> bool {
    /// Nanoseconds or cycles for a turn of the inner loop, at the most: it takes
    /// one cycle on hardware, some 4 ns under emulation.
    const PER_TURN: u64 = 16;
    const MAX_TURNS: u64 = 100_000;
    let start = now();
    for _ in 0..max_polls {
        let passed = now().wrapping_sub(start);
        if passed >= amount {
            return true;
        }
        let turns = ((amount - passed) / PER_TURN).min(MAX_TURNS);
        (0..turns).for_each(|turn| _ = core::hint::black_box(turn));
        core::hint::spin_loop();
    }
    false
}

/// A frequency for a person: "2995.2 MHz".
pub struct Mhz(pub u64);

impl fmt::Display for Mhz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_add(50_000) / 100_000;
        write!(f, "{}.{} MHz", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for ClockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = if self.source == Source::Hpet { "hpet; " } else { "" };
        write!(f, "{source}tsc {} by {}", Mhz(self.tsc_hz), self.by)
    }
}

impl fmt::Display for SyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncReport::Compared(offset) => offset.fmt(f),
            SyncReport::NotUsed => f.write_str("tsc not used"),
            SyncReport::TimedOut => f.write_str("tsc not compared"),
        }
    }
}

#[cfg(test)]
mod tests;
