//! The power button: fixed hardware of ACPI (6.5, 4.8.3.1), told by the SCI.
//!
//! A press sets a bit in the PM1 status register and, if the bit is set in the enable register too,
//! pulls the line of the system control interrupt until the status is cleared.
//! [`PowerButton::enable`] takes that line over from the firmware and enables the button alone;
//! [`PowerButton::take_press`] is for the handler, in `drivers::power_button`.
//!
//! The FADT, which names the registers, may be wrong: `acpi::fixed` has refused what cannot be such
//! a register, and each wait has a bound.

use crate::arch::x86_64::cpu::ports::{Hardware, Ports};
use crate::arch::x86_64::irq::pic;
use crate::arch::x86_64::machine;

/// Bit of the status and of the enable register.
const PRESSED: u16 = 1 << 8;
/// Bit of the control register: events go to the SCI, and not to the firmware.
const SCI_ENABLED: u16 = 1 << 0;
/// What a port reads where there is no device.
const NOTHING: u16 = 0xffff;
/// Looks for the firmware to hand over: each takes a microsecond, by a slow port.
const HANDOVER_LOOKS: u32 = 1_000_000;

/// The button of this machine, as the FADT describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerButton {
    /// The ISA line of the system control interrupt.
    pub line: u8,
    /// Status and enable registers of 16 bits, one pair or two.
    pub(super) events: [Option<(u16, u16)>; 2],
    /// The register that routes the events to the firmware or to the kernel.
    pub(super) control: u16,
    /// The port and the byte by which the firmware is told to hand over, if it must be.
    pub(super) handover: Option<(u16, u8)>,
}

/// Why presses are not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEnabled {
    /// There is nothing at the ports that the FADT names.
    NoRegisters,
    /// The firmware keeps the events for itself.
    NotHandedOver,
}

/// The power button, if the FADT describes one.
pub fn power_button() -> Option<PowerButton> {
    machine::fixed_hardware()?.power_button
}

impl PowerButton {
    /// Has a press, and no other event, pull the line.
    ///
    /// # Errors
    /// [`NotEnabled`]; nothing pulls the line then.
    pub fn enable(&self) -> Result<(), NotEnabled> {
        self.enable_by(&Hardware)
    }

    fn enable_by(&self, ports: &impl Ports) -> Result<(), NotEnabled> {
        let events = || self.events.iter().flatten();
        if events().any(|(status, _)| ports.inw(*status) == NOTHING) {
            return Err(NotEnabled::NoRegisters);
        }
        let is_ours = || ports.inw(self.control) & SCI_ENABLED != 0;
        if !is_ours() {
            let (command, value) = self.handover.ok_or(NotEnabled::NotHandedOver)?;
            ports.outb(command, value);
            let waited = (0..HANDOVER_LOOKS).any(|_| {
                ports.outb(pic::DELAY, 0);
                is_ours()
            });
            if !waited {
                return Err(NotEnabled::NotHandedOver);
            }
        }
        for (status, enable) in events() {
            ports.outw(*status, PRESSED); // a press from before the kernel does not count
            ports.outw(*enable, PRESSED);
        }
        Ok(())
    }

    /// Whether it was pressed; the line is quiet then, and the next press is another.
    pub fn take_press(&self) -> bool {
        self.take_press_by(&Hardware)
    }

    fn take_press_by(&self, ports: &impl Ports) -> bool {
        let mut is_pressed = false;
        for (port, _) in self.events.iter().flatten() {
            let status = ports.inw(*port);
            if status != NOTHING && status & PRESSED != 0 {
                ports.outw(*port, PRESSED); // written as 1, a bit is cleared
                is_pressed = true;
            }
        }
        is_pressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Registers of 16 bits; those at 0x600 are cleared by ones, and the firmware hands
    /// over when 0xf1 is written to 0xb2, if it does.
    struct Fake {
        words: RefCell<BTreeMap<u16, u16>>,
        hands_over: bool,
    }

    impl Ports for Fake {
        fn inb(&self, _: u16) -> u8 {
            0xff
        }
        fn outb(&self, port: u16, value: u8) {
            if self.hands_over && (port, value) == (0xb2, 0xf1) {
                self.words.borrow_mut().insert(0x604, 1);
            }
        }
        fn inl(&self, _: u16) -> u32 {
            u32::MAX
        }
        fn inw(&self, port: u16) -> u16 {
            self.words.borrow().get(&port).copied().unwrap_or(NOTHING)
        }
        fn outw(&self, port: u16, value: u16) {
            let mut words = self.words.borrow_mut();
            let word = words.entry(port).or_default();
            *word = if port == 0x600 { *word & !value } else { value };
        }
    }

    const BUTTON: PowerButton = PowerButton {
        line: 9,
        events: [Some((0x600, 0x602)), None],
        control: 0x604,
        handover: Some((0xb2, 0xf1)),
    };

    fn machine(hands_over: bool) -> Fake {
        Fake { words: RefCell::new([(0x600, 0x101), (0x602, 1), (0x604, 0)].into()), hands_over }
    }

    #[test]
    fn only_the_button_is_enabled_and_an_old_press_is_forgotten() {
        let fake = machine(true);
        assert_eq!(BUTTON.enable_by(&fake), Ok(()));
        assert_eq!(*fake.words.borrow(), [(0x600, 1), (0x602, 0x100), (0x604, 1)].into());
        assert!(!BUTTON.take_press_by(&fake), "nothing was pressed since");
    }

    #[test]
    fn a_press_is_taken_once() {
        let fake = machine(true);
        fake.words.borrow_mut().insert(0x600, 0x100);
        assert!(BUTTON.take_press_by(&fake));
        assert!(!BUTTON.take_press_by(&fake));
    }

    #[test]
    fn firmware_that_keeps_its_events_or_names_no_registers_is_an_error() {
        let fake = machine(false);
        assert_eq!(BUTTON.enable_by(&fake), Err(NotEnabled::NotHandedOver));
        let without = PowerButton { handover: None, ..BUTTON };
        assert_eq!(without.enable_by(&fake), Err(NotEnabled::NotHandedOver));
        assert_eq!(fake.words.borrow()[&0x602], 1, "nothing was written");
        let nothing = Fake { words: RefCell::default(), hands_over: true };
        assert_eq!(BUTTON.enable_by(&nothing), Err(NotEnabled::NoRegisters));
        assert!(!BUTTON.take_press_by(&nothing));
    }
}
