//! The ACPI power management timer: 3.58 MHz behind one port.
//!
//! A [`Reference`] for calibration where there is no HPET. The port and the
//! width come from the FADT (ACPI §4.8.3.3), so neither is believed before the
//! counter has been seen to count.

use super::reference::{Reason, Reference, advances};
use crate::arch::x86_64::cpu::ports::Ports;

/// Fixed by ACPI: three times the NTSC colour carrier.
const FREQUENCY_HZ: u64 = 3_579_545;

/// How many bits the counter has: the FADT's flag TMR_VAL_EXT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 24 bits: wraps every 4.7 s.
    Bits24,
    /// 32 bits: wraps every 20 minutes.
    Bits32,
}

/// A PM timer that counts.
#[derive(Clone, Copy, Debug)]
pub struct PmTimer<P> {
    ports: P,
    port: u16,
    width: Width,
}

impl<P: Ports> PmTimer<P> {
    /// The timer at `port`, if it counts.
    pub fn new(ports: P, port: u16, width: Width) -> Result<PmTimer<P>, Reason> {
        if port == 0 {
            return Err(Reason::Absent);
        }
        let timer = PmTimer { ports, port, width };
        if advances(&timer) { Ok(timer) } else { Err(Reason::Stopped) }
    }
}

impl<P: Ports> Reference for PmTimer<P> {
    fn frequency_hz(&self) -> u64 {
        FREQUENCY_HZ
    }

    fn mask(&self) -> u64 {
        match self.width {
            Width::Bits24 => 0xff_ffff,
            Width::Bits32 => 0xffff_ffff,
        }
    }

    /// The upper byte of a 24-bit counter is undefined: masked here.
    fn read(&self) -> u64 {
        u64::from(self.ports.inl(self.port)) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    struct Fake {
        now: Cell<u32>,
        step: u32,
    }

    impl Ports for Fake {
        fn outw(&self, _: u16, _: u16) {}
        fn inb(&self, _: u16) -> u8 {
            unreachable!("the PM timer is read in 32 bits")
        }
        fn outb(&self, _: u16, _: u8) {
            unreachable!("the PM timer is never written")
        }
        fn inl(&self, port: u16) -> u32 {
            assert_eq!(port, 0x608);
            self.now.set(self.now.get().wrapping_add(self.step));
            self.now.get()
        }
    }

    #[test]
    fn undefined_upper_byte_of_a_24_bit_timer_is_ignored() {
        let ports = Fake { now: Cell::new(0xab00_0000), step: 1 };
        let timer = PmTimer::new(ports, 0x608, Width::Bits24).expect("counts");
        assert!(timer.read() < 0x100_0000);
    }

    #[test]
    fn dead_or_missing_port_is_refused() {
        let dead = || Fake { now: Cell::new(u32::MAX), step: 0 };
        assert_eq!(PmTimer::new(dead(), 0x608, Width::Bits32).err(), Some(Reason::Stopped));
        assert_eq!(PmTimer::new(dead(), 0, Width::Bits32).err(), Some(Reason::Absent));
    }
}
