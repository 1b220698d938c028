//! Counters of known frequency, and measuring others against them.
//!
//! A [`Reference`] is a free-running counter whose frequency is known: the
//! HPET, the ACPI PM timer, the PIT (each in a file of its own), or the clock
//! itself once it runs. [`measure`] finds the frequency of any other counter by
//! reading the two side by side. Used by `clock` for the time stamp counter and
//! by `timer` for the local APIC's counter.
//!
//! Nothing here waits for ever: every loop has a bound in polls, because the
//! thing that would bound it in time is the thing under test. A reference that
//! stands still or jumps is refused, not believed.
//!
//! No loop here executes `pause`: under QEMU's `-icount` each one ends the
//! CPU's turn, which makes a short wait take seconds.

use core::fmt;

/// A free-running counter of known frequency that counts up.
pub trait Reference {
    /// How often it counts in a second.
    fn frequency_hz(&self) -> u64;
    /// All ones in the bits that it has: it wraps to 0 after this value.
    fn mask(&self) -> u64;
    /// Its value now.
    fn read(&self) -> u64;
}

/// Why a reference gave no frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The device is not there, or says of itself what cannot be.
    Absent,
    /// The reference did not count.
    Stopped,
    /// The reference went backwards, or forward by more than half its range.
    Jumped,
    /// The measured counter did not count.
    SampleStopped,
    /// Two halves of the window gave different frequencies, in every attempt.
    Unsteady,
    /// The window did not end within the bound on polls.
    TooSlow,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Absent => "absent or senseless",
            Reason::Stopped => "does not count",
            Reason::Jumped => "jumps",
            Reason::SampleStopped => "the measured counter does not count",
            Reason::Unsteady => "gives no steady result",
            Reason::TooSlow => "too slow",
        })
    }
}

/// The most reads of a reference in one half window. A read takes 100 ns at the
/// least on hardware; under `-icount` a turn of the loop takes some 20 ns.
const MAX_POLLS: u32 = 2_000_000;
/// The most reads that may give the same value. The slowest reference, the PIT,
/// counts every 838 ns: some tens of polls at the fastest.
const MAX_STALL_POLLS: u32 = 10_000;
/// How often a pair of readings is tried; the closest pair wins.
const PAIR_TRIES: u32 = 10;
/// How often an unsteady measurement is repeated. An SMI or a host that takes
/// the virtual CPU away spoils one attempt, seldom five.
const ATTEMPTS: u32 = 5;

/// The frequency in Hz of the counter that `sample` reads.
///
/// Takes about `window_ns`, which must be well below half the time in which the
/// reference wraps (10 ms suits all of them), and reads pairs at its start,
/// middle and end: when the halves disagree by more than 2 % the measurement is
/// repeated, a few times at the most.
///
/// ```text
/// let hz = measure(&hpet, 10_000_000, rdtsc_ordered)?;
/// ```
pub fn measure(
    reference: &impl Reference,
    window_ns: u64,
    sample: impl Fn() -> u64,
) -> Result<u64, Reason> {
    let hz = reference.frequency_hz();
    let window = u128::from(window_ns) * u128::from(hz) / 1_000_000_000;
    let half = u64::try_from(window / 2).unwrap_or(u64::MAX).max(1);
    if hz == 0 || half > reference.mask() / 4 {
        return Err(Reason::Absent);
    }
    let mut last = Reason::Unsteady;
    for _ in 0..ATTEMPTS {
        match attempt(reference, half, &sample) {
            Ok([first, second]) if steady(first, second) => {
                let samples = u128::from(first.samples) + u128::from(second.samples);
                let ticks = u128::from(first.ticks) + u128::from(second.ticks);
                let found = samples * u128::from(hz) / ticks.max(1);
                return Ok(u64::try_from(found).unwrap_or(u64::MAX));
            }
            Ok(_) => last = Reason::Unsteady,
            // Glitches of one read are known of PM timers: try again.
            Err(Reason::Jumped) => last = Reason::Jumped,
            Err(reason) => return Err(reason),
        }
    }
    Err(last)
}

/// Whether `reference` counts at all, within the bound on polls.
pub fn advances(reference: &impl Reference) -> bool {
    let first = reference.read();
    (0..MAX_STALL_POLLS).any(|_| reference.read() != first)
}

/// What passed on both counters between two points.
#[derive(Clone, Copy, Debug)]
struct Passed {
    samples: u64,
    ticks: u64,
}

/// Both halves agree to 2 %: generous for a window of milliseconds, and far
/// from what a counter that jumped would give.
fn steady(first: Passed, second: Passed) -> bool {
    let a = u128::from(first.samples) * u128::from(second.ticks);
    let b = u128::from(second.samples) * u128::from(first.ticks);
    a.abs_diff(b) <= a.max(b) / 50
}

/// What passed in each half of a window.
fn attempt(
    reference: &impl Reference,
    half: u64,
    sample: &impl Fn() -> u64,
) -> Result<[Passed; 2], Reason> {
    // The first readings meet cold caches, or an emulator that has not yet
    // translated this code: they are thrown away.
    pair(reference, sample);
    let start = pair(reference, sample);
    let middle = after(reference, half, sample, start.1)?;
    let end = after(reference, half, sample, middle.1)?;
    let passed = |from: Pair, to: Pair| {
        let samples = to.0.wrapping_sub(from.0);
        let ticks = to.1.wrapping_sub(from.1) & reference.mask();
        match () {
            () if samples == 0 || samples > u64::MAX / 2 => Err(Reason::SampleStopped),
            () if ticks == 0 || ticks > reference.mask() / 2 => Err(Reason::Jumped),
            () => Ok(Passed { samples, ticks }),
        }
    };
    Ok([passed(start, middle)?, passed(middle, end)?])
}

/// The measured counter and the reference at (nearly) one moment.
type Pair = (u64, u64);

/// Reads the reference between two samples, and keeps the closest such pair:
/// an interruption between the reads makes the others wide. Never inlined, so
/// that start, middle and end run the same code, which is warm by then.
#[inline(never)]
fn pair(reference: &impl Reference, sample: &impl Fn() -> u64) -> Pair {
    let mut best = (0, 0);
    let mut best_width = u64::MAX;
    for _ in 0..PAIR_TRIES {
        let before = sample();
        let tick = reference.read();
        let width = sample().wrapping_sub(before);
        if width < best_width {
            best = (before.wrapping_add(width / 2), tick);
            best_width = width;
        }
    }
    best
}

/// Polls until `half` ticks have passed since `from`; gives the pair read then.
fn after(
    reference: &impl Reference,
    half: u64,
    sample: &impl Fn() -> u64,
    from: u64,
) -> Result<Pair, Reason> {
    let mask = reference.mask();
    let (mut last, mut gone, mut stalled) = (from, 0, 0);
    for _ in 0..MAX_POLLS {
        let tick = reference.read();
        let step = tick.wrapping_sub(last) & mask;
        if step > mask / 2 {
            return Err(Reason::Jumped);
        }
        stalled = if step == 0 { stalled + 1 } else { 0 };
        if stalled > MAX_STALL_POLLS {
            return Err(Reason::Stopped);
        }
        (last, gone) = (tick, gone + step);
        if gone >= half {
            return Ok(pair(reference, sample));
        }
    }
    Err(Reason::TooSlow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A world in which every read takes 100 ns.
    struct World {
        now_ns: Cell<u64>,
        hz: u64,
        mask: u64,
        /// Bends what the reference shows.
        bend: fn(u64) -> u64,
    }

    impl World {
        fn new(hz: u64, mask: u64, bend: fn(u64) -> u64) -> World {
            World { now_ns: Cell::new(1_000_000_000), hz, mask, bend }
        }

        fn step(&self) -> u128 {
            self.now_ns.set(self.now_ns.get() + 100);
            u128::from(self.now_ns.get())
        }

        fn sample(&self, hz: u64) -> u64 {
            (self.step() * u128::from(hz) / 1_000_000_000) as u64
        }
    }

    impl Reference for World {
        fn frequency_hz(&self) -> u64 {
            self.hz
        }
        fn mask(&self) -> u64 {
            self.mask
        }
        fn read(&self) -> u64 {
            (self.bend)((self.step() * u128::from(self.hz) / 1_000_000_000) as u64) & self.mask
        }
    }

    const TSC_HZ: u64 = 2_995_200_000;
    const WINDOW_NS: u64 = 10_000_000;

    fn run(world: &World) -> Result<u64, Reason> {
        measure(world, WINDOW_NS, || world.sample(TSC_HZ))
    }

    #[test]
    fn frequency_is_found_to_a_few_hundred_ppm_against_every_kind_of_reference() {
        let hpet = (14_318_180, u64::from(u32::MAX));
        let pm24 = (3_579_545, 0xff_ffff);
        let pit = (1_193_182, 0xffff);
        for (hz, mask) in [hpet, pm24, pit] {
            let found = run(&World::new(hz, mask, |t| t)).expect("steady world");
            assert!(found.abs_diff(TSC_HZ) < TSC_HZ / 5_000, "{hz}: {found}");
        }
    }

    #[test]
    fn wrap_of_the_reference_within_the_window_does_no_harm() {
        let world = World::new(1_193_182, 0xffff, |t| t);
        // 4 ms before the 16-bit counter wraps.
        world.now_ns.set(65_536 * 1_000_000_000 / 1_193_182 - 4_000_000);
        let found = run(&world).expect("steady world");
        assert!(found.abs_diff(TSC_HZ) < TSC_HZ / 2_000, "{found}");
    }

    #[test]
    fn reference_that_stands_still_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |_| 7);
        assert_eq!(run(&world), Err(Reason::Stopped));
        assert!(!advances(&world));
    }

    #[test]
    fn reference_that_stops_half_way_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| t.min(14_318_180 + 20_000));
        assert_eq!(run(&world), Err(Reason::Stopped));
    }

    #[test]
    fn reference_that_goes_backwards_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| !t);
        assert_eq!(run(&world), Err(Reason::Jumped));
    }

    #[test]
    fn reference_that_keeps_jumping_back_a_little_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| match t % 5_000 {
            0..50 => t - 400,
            _ => t,
        });
        assert_eq!(run(&world), Err(Reason::Jumped));
    }

    #[test]
    fn reference_that_changes_its_pace_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| {
            let since = t - 14_318_180;
            since + since * since / 50_000
        });
        assert_eq!(run(&world), Err(Reason::Unsteady));
    }

    #[test]
    fn counter_that_stands_still_is_named_as_the_culprit() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| t);
        assert_eq!(measure(&world, WINDOW_NS, || 5), Err(Reason::SampleStopped));
    }

    #[test]
    fn very_slow_reference_ends_the_measurement() {
        // Counts, but a window would take 3 hours of polls.
        let world = World::new(1_000_000_000, u64::MAX, |t| t / 1_000_000);
        assert_eq!(run(&world), Err(Reason::TooSlow));
    }

    #[test]
    fn senseless_frequencies_and_windows_are_refused() {
        assert_eq!(run(&World::new(0, 0xffff, |t| t)), Err(Reason::Absent));
        let narrow = World::new(1_193_182, 0xff, |t| t);
        assert_eq!(run(&narrow), Err(Reason::Absent));
    }
}
