//! Counters of known frequency, and measuring others against them.
//!
//! A [`Reference`] is the HPET, the ACPI PM timer, the PIT, or the clock itself once it runs.
//! [`measure`] finds the frequency of any other counter by reading the two side by side: of
//! the time stamp counter for `clock`, of the local APIC's counter for `timer`.
//!
//! Every loop has a bound in polls, because what would bound it in time is under test. A reference
//! that stands still or jumps is refused. No loop here executes `pause`: under QEMU's `-icount`
//! each one ends the CPU's turn, which makes a short wait take seconds.

use crate::arch::x86_64::cpu::ports::Ports;

/// A free-running counter of known frequency that counts up.
#[derive(Clone, Copy, Debug)]
pub struct Reference<R> {
    pub hz: u64,
    /// All ones in the bits that it has: it wraps to 0 after this value.
    pub mask: u64,
    /// Reads it; what is above the mask does not count.
    pub read: R,
}

/// The ACPI power management timer (ACPI §4.8.3.3): three times the NTSC colour carrier,
/// behind one port, with 24 or 32 bits. The upper byte of one with 24 bits is undefined.
pub fn pm_timer(ports: impl Ports, port: u16, mask: u32) -> Reference<impl Fn() -> u64> {
    Reference { hz: 3_579_545, mask: mask.into(), read: move || ports.inl(port).into() }
}

// Why a reference gave no frequency.
/// The device is not there, or says of itself what cannot be.
pub const ABSENT: &str = "absent or senseless";
pub const STOPPED: &str = "does not count";
/// The reference went backwards, or forward by more than half its range.
const JUMPED: &str = "jumps";
const SAMPLE_STOPPED: &str = "the measured counter does not count";
/// Two halves of the window gave different frequencies, in every attempt.
const UNSTEADY: &str = "gives no steady result";
/// The window did not end within the bound on polls.
pub const TOO_SLOW: &str = "too slow";

/// The most reads of a reference in one half window: 100 ns each at the least, 20 ns under
/// `-icount`.
const MAX_POLLS: u32 = 2_000_000;
/// The most reads that may give the same value: the PIT, the slowest, counts every 838 ns.
pub const MAX_STALL_POLLS: u32 = 10_000;
/// How often a pair of readings is tried; the closest pair wins.
const PAIR_TRIES: u32 = 10;
/// How often a measurement is tried. An SMI, a host that takes the virtual CPU away, or a glitch of
/// a PM timer spoils one attempt, seldom five.
const ATTEMPTS: u32 = 5;

/// The frequency in Hz of the counter that `sample` reads, or why there is none.
///
/// Takes about `window_ns`, which must be well below half the time in which the
/// reference wraps (10 ms suits all of them), and reads pairs at its start, middle and end.
pub fn measure<R: Fn() -> u64>(
    reference: &Reference<R>,
    window_ns: u64,
    sample: impl Fn() -> u64,
) -> Result<u64, &'static str> {
    let window = u128::from(window_ns) * u128::from(reference.hz) / 1_000_000_000;
    let half = u64::try_from(window / 2).unwrap_or(u64::MAX).max(1);
    if reference.hz == 0 || half > reference.mask / 4 {
        return Err(ABSENT);
    }
    let mut result = Err(UNSTEADY);
    for _ in 0..ATTEMPTS {
        result = attempt(reference, half, &sample);
        if !matches!(result, Err(UNSTEADY | JUMPED)) {
            break;
        }
    }
    result
}

fn attempt<R: Fn() -> u64>(
    reference: &Reference<R>,
    half: u64,
    sample: &impl Fn() -> u64,
) -> Result<u64, &'static str> {
    // Thrown away: cold caches, or code that an emulator has not yet translated.
    pair(reference, sample);
    let start = pair(reference, sample);
    let middle = after(reference, half, sample, start.1)?;
    let end = after(reference, half, sample, middle.1)?;
    let passed = |from: Pair, to: Pair| {
        let samples = to.0.wrapping_sub(from.0);
        let ticks = to.1.wrapping_sub(from.1) & reference.mask;
        match () {
            () if samples == 0 || samples > u64::MAX / 2 => Err(SAMPLE_STOPPED),
            () if ticks == 0 || ticks > reference.mask / 2 => Err(JUMPED),
            () => Ok((u128::from(samples), u128::from(ticks))),
        }
    };
    let (first, second) = (passed(start, middle)?, passed(middle, end)?);
    // Both halves must agree to 2 %: generous for a window of milliseconds, and far
    // from what a counter that jumped would give.
    let (a, b) = (first.0 * second.1, second.0 * first.1);
    if a.abs_diff(b) > a.max(b) / 50 {
        return Err(UNSTEADY);
    }
    let found = (first.0 + second.0) * u128::from(reference.hz) / (first.1 + second.1);
    Ok(u64::try_from(found).unwrap_or(u64::MAX))
}

/// The measured counter and the reference at (nearly) one moment.
type Pair = (u64, u64);

/// Reads the reference between two samples, and keeps the closest such pair: an interruption makes
/// others wide. Never inlined, so that start, middle and end run the same code, which is warm then.
#[inline(never)]
fn pair<R: Fn() -> u64>(reference: &Reference<R>, sample: &impl Fn() -> u64) -> Pair {
    let (mut best, mut best_width) = ((0, 0), u64::MAX);
    for _ in 0..PAIR_TRIES {
        let before = sample();
        let tick = (reference.read)();
        let width = sample().wrapping_sub(before);
        if width < best_width {
            (best, best_width) = ((before.wrapping_add(width / 2), tick), width);
        }
    }
    best
}

/// Polls until `half` ticks have passed since `from`; gives the pair read then.
fn after<R: Fn() -> u64>(
    reference: &Reference<R>,
    half: u64,
    sample: &impl Fn() -> u64,
    from: u64,
) -> Result<Pair, &'static str> {
    let (mut last, mut gone, mut stalled) = (from, 0, 0);
    for _ in 0..MAX_POLLS {
        let tick = (reference.read)();
        let step = tick.wrapping_sub(last) & reference.mask;
        if step > reference.mask / 2 {
            return Err(JUMPED);
        }
        stalled = if step == 0 { stalled + 1 } else { 0 };
        if stalled > MAX_STALL_POLLS {
            return Err(STOPPED);
        }
        (last, gone) = (tick, gone + step);
        if gone >= half {
            return Ok(pair(reference, sample));
        }
    }
    Err(TOO_SLOW)
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

    const TSC_HZ: u64 = 2_995_200_000;
    const WINDOW_NS: u64 = 10_000_000;

    fn measure_in(world: &World, sample: impl Fn() -> u64) -> Result<u64, &'static str> {
        let read = || (world.bend)((world.step() * u128::from(world.hz) / 1_000_000_000) as u64);
        measure(&Reference { hz: world.hz, mask: world.mask, read }, WINDOW_NS, sample)
    }

    fn run(world: &World) -> Result<u64, &'static str> {
        measure_in(world, || world.sample(TSC_HZ))
    }

    /// A PM timer behind a port, which counts as the bits of its width allow.
    struct PmTimer<'a>(&'a World);

    impl Ports for PmTimer<'_> {
        fn inb(&self, _: u16) -> u8 {
            unreachable!("the PM timer is read in 32 bits")
        }
        fn outb(&self, _: u16, _: u8) {
            unreachable!("the PM timer is never written")
        }
        fn outw(&self, _: u16, _: u16) {
            unreachable!("the PM timer is never written")
        }
        fn inl(&self, port: u16) -> u32 {
            assert_eq!(port, 0x608);
            (self.0.bend)(self.0.sample(3_579_545)) as u32
        }
    }

    #[test]
    fn undefined_upper_byte_of_a_24_bit_pm_timer_is_ignored() {
        // The upper byte changes with each count.
        let world = World::new(0, 0, |t| t & 0xff_ffff | t << 24);
        let timer = pm_timer(PmTimer(&world), 0x608, 0xff_ffff);
        let found = measure(&timer, WINDOW_NS, || world.sample(TSC_HZ)).expect("it counts");
        assert!(found.abs_diff(TSC_HZ) < TSC_HZ / 5_000, "{found}");
    }

    #[test]
    fn a_port_without_a_pm_timer_is_refused() {
        let world = World::new(0, 0, |_| u64::MAX);
        let timer = pm_timer(PmTimer(&world), 0x608, u32::MAX);
        assert_eq!(measure(&timer, WINDOW_NS, || world.sample(TSC_HZ)), Err(STOPPED));
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
        assert_eq!(run(&world), Err(STOPPED));
    }

    #[test]
    fn reference_that_stops_half_way_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| t.min(14_318_180 + 20_000));
        assert_eq!(run(&world), Err(STOPPED));
    }

    #[test]
    fn reference_that_goes_backwards_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| !t);
        assert_eq!(run(&world), Err(JUMPED));
    }

    #[test]
    fn reference_that_keeps_jumping_back_a_little_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| match t % 5_000 {
            0..50 => t - 400,
            _ => t,
        });
        assert_eq!(run(&world), Err(JUMPED));
    }

    #[test]
    fn reference_that_changes_its_pace_is_refused() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| {
            let since = t - 14_318_180;
            since + since * since / 50_000
        });
        assert_eq!(run(&world), Err(UNSTEADY));
    }

    #[test]
    fn counter_that_stands_still_is_named_as_the_culprit() {
        let world = World::new(14_318_180, u64::from(u32::MAX), |t| t);
        assert_eq!(measure_in(&world, || 5), Err(SAMPLE_STOPPED));
    }

    #[test]
    fn very_slow_reference_ends_the_measurement() {
        // Counts, but a window would take 3 hours of polls.
        let world = World::new(1_000_000_000, u64::MAX, |t| t / 1_000_000);
        assert_eq!(run(&world), Err(TOO_SLOW));
    }

    #[test]
    fn senseless_frequencies_and_windows_are_refused() {
        assert_eq!(run(&World::new(0, 0xffff, |t| t)), Err(ABSENT));
        let narrow = World::new(1_193_182, 0xff, |t| t);
        assert_eq!(run(&narrow), Err(ABSENT));
    }
}
