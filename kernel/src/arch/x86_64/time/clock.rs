//! A monotonic clock in nanoseconds, the same on all CPUs.
//!
//! Time is read from a counter, never counted from ticks: ticks get lost. The counter is the
//! time stamp counter (TSC) if it is invariant or virtual and in step on all CPUs, else the
//! HPET. This file decides which, finds its frequency, and holds the clock; [`tsc`] reads CPUID,
//! [`scale`] multiplies, [`sync`] compares CPUs.
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
//! The boot CPU calls [`init`]; then, for each other CPU, [`sync_cpu`], while that CPU is in
//! [`init_cpu`].

pub mod scale;
pub mod sync;
pub mod tsc;

use super::hpet::Hpet;
use super::pit;
use super::reference::{Reference, measure, pm_timer};
use crate::arch::x86_64::cpu::mmio::Window;
use crate::arch::x86_64::cpu::ports;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use scale::Scale;
use sync::{Exchange, Offset};
use tsc::{Hints, rdtsc_ordered};

pub const NS_PER_SECOND: u64 = 1_000_000_000;
/// How long the TSC is measured: the PIT wraps after 55 ms; a reading error of 0.2 µs is 20 ppm.
const WINDOW_NS: u64 = 10_000_000;
/// Assumed where nothing is known: faster than any counter, so that no delay is too short.
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

/// With the scale from ns.
static TSC: spin::Once<(Clock, Scale)> = spin::Once::new();
static HPET: spin::Once<Hpet<Window>> = spin::Once::new();
static HPET_CLOCK: spin::Once<(&Hpet<Window>, Clock)> = spin::Once::new();
static EXCHANGE: Exchange = Exchange::new();
/// The TSC when the kernel was entered.
static ENTRY: AtomicU64 = AtomicU64::new(0);
/// The largest offset between the TSCs of two CPUs that a comparison could not exclude.
static UNCERTAINTY: AtomicU64 = AtomicU64::new(0);

/// Time 0 is now: called when the kernel is entered, on the boot CPU. Without a fence, which a CPU
/// that is to be refused may not have.
pub fn begin() {
    ENTRY.store(tsc::cycles(), Relaxed);
}

/// Finds the TSC's frequency, chooses the source, and starts the clock, as of [`begin`]. Gives a
/// line for the boot report; what is doubtful is logged as a warning, what is missing as an error.
///
/// `hpet` is the window of its registers, of at least `hpet::WINDOW_BYTES`; `pm_port` the PM
/// timer's port and the mask of its bits; `tsc_hz` the TSC's frequency, not to be measured.
/// Takes 10 ms, or some tens when references fail. Called once, on the boot CPU.
pub fn init(
    choice: ClockChoice,
    hpet: Option<Window>,
    pm_port: Option<(u16, u32)>,
    tsc_hz: Option<u64>,
) -> String {
    let hints = Hints::of_this_cpu();
    let hpet = hpet.and_then(|window| usable("hpet", Hpet::new(window)));
    let (tsc_hz, by) = match tsc_hz {
        Some(hz) => (hz, "option"),
        None => combine(&hints, measure_tsc(hpet.as_ref(), pm_port)),
    };
    if let Some(hpet) = hpet.filter(|hpet| hpet.is_64_bits) {
        HPET.call_once(|| hpet);
    }
    let clock = Clock::new(tsc_hz, ENTRY.load(Relaxed), 0);
    TSC.call_once(|| (clock, Scale::new(NS_PER_SECOND, tsc_hz)));
    let is_hpet = choose_hpet(choice, &hints, HPET.is_completed());
    if is_hpet {
        start_hpet();
    }
    format!("{}tsc {} by {by}", if is_hpet { "hpet; " } else { "" }, Mhz(tsc_hz))
}

/// Compares the TSC of CPU `cpu`, which is in [`init_cpu`], with the boot CPU's, and says what was
/// found, or why nothing. If they are apart, the HPET is the clock from now on. Allocates nothing.
pub fn sync_cpu(cpu: usize) -> Result<Offset, &'static str> {
    let found = match EXCHANGE.lead(cpu, sync::MAX_POLLS, rdtsc_ordered) {
        _ if HPET_CLOCK.is_completed() => Err("tsc not used"),
        None => {
            log::warn!("clock: CPU {cpu}: TSC comparison timed out; assuming synchronized");
            Err("tsc not compared")
        }
        Some(offset) => {
            if offset.is_in_step() {
                UNCERTAINTY.fetch_max(offset.uncertainty(), Relaxed);
            } else if HPET.is_completed() {
                log::error!("clock: CPU {cpu}: {offset}; the hpet is the clock from now on");
                start_hpet();
            } else {
                log::error!("clock: CPU {cpu}: {offset}, and no 64-bit hpet: time is unreliable");
            }
            Ok(offset)
        }
    };
    EXCHANGE.finish(cpu);
    found
}

/// Called once by every CPU but the boot CPU, with interrupts off: its counter is compared.
pub fn init_cpu(cpu: usize) {
    EXCHANGE.follow(cpu, sync::MAX_POLLS, rdtsc_ordered);
}

/// Nanoseconds since [`begin`]; 0 before [`init`]. See the promise at the top.
#[inline]
pub fn now_ns() -> u64 {
    ns_by(rdtsc_ordered)
}

/// As [`now_ns`], for a caller that has just read this CPU's TSC.
#[inline]
pub fn ns_at(tsc: u64) -> u64 {
    ns_by(|| tsc)
}

/// The TSC is read only after [`init`], so a CPU without `lfence` reaches the message about it.
#[inline(always)]
fn ns_by(tsc: impl FnOnce() -> u64) -> u64 {
    match HPET_CLOCK.get() {
        Some((hpet, clock)) => clock.ns_at(hpet.read()),
        None => TSC.get().map_or(0, |(clock, _)| clock.ns_at(tsc())),
    }
}

/// By how much a reading of the clock may seem to go back between two CPUs.
pub fn uncertainty_ns() -> u64 {
    // Both CPUs may be off from the boot CPU by that much.
    2 * cycles_to_ns(UNCERTAINTY.load(Relaxed))
}

/// How many cycles of the TSC pass in `ns`. 0 before [`init`].
#[inline]
pub fn ns_to_tsc(ns: u64) -> u64 {
    TSC.get().map_or(0, |(_, from_ns)| from_ns.apply(ns))
}

/// How many ns `cycles` of the TSC take. 0 before [`init`].
#[inline]
pub fn cycles_to_ns(cycles: u64) -> u64 {
    TSC.get().map_or(0, |(clock, _)| clock.to_ns.apply(cycles))
}

/// Waits for `us` microseconds, spinning; for bring-up and devices only. Says false, within a
/// bound, if the clock stands still. See `spin` for what a loop around [`now_ns`] would do.
pub fn delay_us(us: u64) -> bool {
    spin(us.saturating_mul(1_000), now_ns)
}

/// Time by a counter: `base` was read at `start_ns`.
struct Clock {
    base: u64,
    start_ns: u64,
    to_ns: Scale,
}

impl Clock {
    fn new(hz: u64, base: u64, start_ns: u64) -> Clock {
        Clock { base, start_ns, to_ns: Scale::new(hz, NS_PER_SECOND) }
    }

    /// A CPU that is behind by its uncertainty must not wrap at the start.
    #[inline]
    fn ns_at(&self, count: u64) -> u64 {
        self.start_ns + self.to_ns.apply(count.saturating_sub(self.base))
    }
}

fn start_hpet() {
    if let Some(hpet) = HPET.get() {
        HPET_CLOCK.call_once(|| (hpet, Clock::new(hpet.hz, hpet.read(), now_ns())));
    }
}

type Frequency = (u64, &'static str);

/// The TSC against the first reference that works: HPET, PM timer, PIT.
fn measure_tsc(hpet: Option<&Hpet<Window>>, pm_port: Option<(u16, u32)>) -> Option<Frequency> {
    fn against(name: &'static str, by: Reference<impl Fn() -> u64>) -> Option<Frequency> {
        Some((usable(name, measure(&by, WINDOW_NS, rdtsc_ordered))?, name))
    }
    let by_hpet = hpet.and_then(|hpet| against("hpet", hpet.reference()));
    let by_pm_timer = || {
        let (port, mask) = pm_port?;
        against("pm timer", pm_timer(ports::Hardware, port, mask))
    };
    by_hpet.or_else(by_pm_timer).or_else(|| against("pit", pit::reference(ports::Hardware)))
}

fn usable<T>(name: &str, result: Result<T, &str>) -> Option<T> {
    result.inspect_err(|reason| log::warn!("clock: {name}: {reason}")).ok()
}

/// What is stated is exact, and goes before what is measured, unless the two are far apart.
fn combine(hints: &Hints, measured: Option<Frequency>) -> Frequency {
    match (hints.stated, measured) {
        (Some((stated_hz, by)), Some((hz, against))) if stated_hz.abs_diff(hz) > hz / 50 => {
            log::warn!("clock: TSC {} by {by}, {} by {against}", Mhz(stated_hz), Mhz(hz));
            (hz, against)
        }
        (Some(stated), _) => stated,
        (None, Some(measured)) => measured,
        (None, None) => {
            log::error!("clock: no reference works; the TSC's frequency is a guess");
            (ASSUMED_TSC_HZ, "guess")
        }
    }
}

/// Whether the HPET is to be the clock; `has_hpet` means one with 64 bits.
fn choose_hpet(choice: ClockChoice, hints: &Hints, has_hpet: bool) -> bool {
    // TCG's TSC is not called invariant, and yet all CPUs read one counter.
    let is_trusted = hints.is_invariant || hints.is_virtual;
    if choice == ClockChoice::Tsc || choice == ClockChoice::Auto && is_trusted {
        return false;
    }
    if !has_hpet {
        let tsc = if is_trusted { "" } else { ", which may change its pace" };
        log::warn!("clock: no 64-bit hpet: the TSC is the clock{tsc}");
    }
    has_hpet
}

/// Waits until `ns` have passed; says whether they have, within a bound on readings.
///
/// The counter is read seldom at first, and more often towards the end. QEMU 7.2 keeps TSCs from
/// going backwards by pushing all of them forward: CPUs that read without a break make them run up
/// to a tenth too fast, and what another CPU measures meanwhile comes out wrong.
fn spin(ns: u64, now: impl Fn() -> u64) -> bool {
    /// The most ns for a turn of the inner loop: one cycle on hardware, some 4 ns emulated.
    const PER_TURN: u64 = 16;
    const MAX_TURNS: u64 = 100_000;
    // A long wait reads the counter every 20 µs at most, a short one some hundred times.
    let max_polls = (ns / 8_000).saturating_add(2_000);
    let start = now();
    for _ in 0..max_polls {
        let passed = now().wrapping_sub(start);
        if passed >= ns {
            return true;
        }
        let turns = ((ns - passed) / PER_TURN).min(MAX_TURNS);
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

#[cfg(test)]
mod tests;
