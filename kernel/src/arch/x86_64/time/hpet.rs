//! The HPET: a main counter that all CPUs read alike.
//!
//! Two uses: as a reference for calibration, and, when its counter has 64 bits, as the clock where
//! the time stamp counters cannot be trusted. A counter of 32 bits wraps within minutes, and
//! nothing is sure to read it that often (idle CPUs halt without a tick). The comparators are not
//! used.

use super::reference::{ABSENT, MAX_STALL_POLLS, Reference, STOPPED};
use crate::arch::x86_64::cpu::mmio::Mmio;

const CAPABILITIES: usize = 0x000;
const PERIOD: usize = 0x004;
const CONFIG: usize = 0x010;
const COUNTER_LOW: usize = 0x0f0;
const COUNTER_HIGH: usize = 0x0f4;
pub const WINDOW_BYTES: usize = 0x100;

const COUNTER_IS_64_BITS: u32 = 1 << 13;
const ENABLE: u32 = 1 << 0;
/// Timers 0 and 1 take the place of PIT and RTC: not wanted.
const LEGACY_REPLACEMENT: u32 = 1 << 1;

/// The longest period that the specification allows (IA-PC HPET 1.0a, 2.3.4).
const MAX_PERIOD_FS: u32 = 100_000_000;
/// A counter faster than 1 GHz is a table or a bus that lies.
const MIN_PERIOD_FS: u32 = 1_000_000;
const FS_PER_SECOND: u64 = 1_000_000_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Hpet<M> {
    registers: M,
    pub hz: u64,
    /// Whether the counter may serve as a clock: it does not wrap.
    pub is_64_bits: bool,
}

impl<M: Mmio> Hpet<M> {
    /// Starts the main counter, and sees it count.
    pub fn new(registers: M) -> Result<Hpet<M>, &'static str> {
        let period_fs = registers.read(PERIOD);
        // An empty bus reads as all ones, which the upper bound refuses.
        if !(MIN_PERIOD_FS..=MAX_PERIOD_FS).contains(&period_fs) {
            return Err(ABSENT);
        }
        let config = registers.read(CONFIG);
        registers.write(CONFIG, config & !LEGACY_REPLACEMENT | ENABLE);
        let first = registers.read(COUNTER_LOW);
        if (0..MAX_STALL_POLLS).all(|_| registers.read(COUNTER_LOW) == first) {
            return Err(STOPPED);
        }
        let period = u64::from(period_fs);
        let hz = (FS_PER_SECOND + period / 2) / period;
        let is_64_bits = registers.read(CAPABILITIES) & COUNTER_IS_64_BITS != 0;
        Ok(Hpet { registers, hz, is_64_bits })
    }

    /// The whole main counter.
    ///
    /// Read in two halves: a read of 64 bits may be two accesses on the bus, and QEMU's TCG refuses
    /// it. If the upper half changes meanwhile, the lower is near 0, and the new upper one is
    /// right.
    pub fn read(&self) -> u64 {
        let before = self.registers.read(COUNTER_HIGH);
        let low = self.registers.read(COUNTER_LOW);
        let high = self.registers.read(COUNTER_HIGH);
        let low = if before == high { low } else { self.registers.read(COUNTER_LOW) };
        u64::from(high) << 32 | u64::from(low)
    }

    /// The lower half, which every HPET has.
    pub fn reference(&self) -> Reference<impl Fn() -> u64> {
        let read = || self.registers.read(COUNTER_LOW).into();
        Reference { hz: self.hz, mask: u32::MAX.into(), read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    struct Fake {
        capabilities: u32,
        period: u32,
        config: Cell<u32>,
        counter: Cell<u64>,
        step: u64,
    }

    impl Fake {
        fn new(period: u32) -> Fake {
            Fake {
                capabilities: COUNTER_IS_64_BITS,
                period,
                config: Cell::new(LEGACY_REPLACEMENT),
                counter: Cell::new(0),
                step: 1,
            }
        }
    }

    impl Mmio for Fake {
        fn read(&self, offset: usize) -> u32 {
            let now = self.counter.get();
            match offset {
                CAPABILITIES => self.capabilities,
                PERIOD => self.period,
                CONFIG => self.config.get(),
                COUNTER_LOW | COUNTER_HIGH if self.config.get() & ENABLE != 0 => {
                    self.counter.set(now + self.step);
                    if offset == COUNTER_LOW { now as u32 } else { (now >> 32) as u32 }
                }
                _ => 0,
            }
        }
        fn write(&self, offset: usize, value: u32) {
            assert_eq!(offset, CONFIG, "only the configuration is written");
            self.config.set(value);
        }
    }

    #[test]
    fn counter_is_started_and_legacy_replacement_turned_off() {
        let hpet = Hpet::new(Fake::new(69_841_279)).expect("sane");
        assert_eq!(hpet.registers.config.get(), ENABLE);
        assert_eq!(hpet.hz, 14_318_180);
        assert!(hpet.is_64_bits);
    }

    #[test]
    fn senseless_periods_are_refused() {
        for period in [0, MIN_PERIOD_FS - 1, MAX_PERIOD_FS + 1, u32::MAX] {
            assert_eq!(Hpet::new(Fake::new(period)).err(), Some(ABSENT), "{period}");
        }
    }

    #[test]
    fn counter_that_stands_still_is_refused() {
        let fake = Fake { step: 0, ..Fake::new(10_000_000) };
        assert_eq!(Hpet::new(fake).err(), Some(STOPPED));
    }

    #[test]
    fn carry_between_the_halves_never_shows_a_wrong_time() {
        let hpet = Hpet::new(Fake { step: 1, ..Fake::new(10_000_000) }).expect("sane");
        for start in (1u64 << 32) - 8..(1 << 32) + 2 {
            hpet.registers.counter.set(start);
            let read = hpet.read();
            assert!((start..start + 8).contains(&read), "{start:#x} read as {read:#x}");
        }
    }
}
