//! The power button: fixed hardware of ACPI (6.5, 4.8.3.1).
//!
//! A press sets a bit in the PM1 status register. If the bit is set in the PM1 enable register too,
//! the interrupt line of ACPI (the SCI) is active until the status bit is cleared. The FADT names
//! the registers and may be wrong: `acpi::fixed` has refused ports that cannot have them.

use crate::arch::text_enum;
use crate::arch::x86_64::cpu::ports::{Hardware, Ports};
use crate::arch::x86_64::{irq::pic, machine};

const PRESSED: u16 = 1 << 8; // of the status and of the enable register
const SCI_ENABLED: u16 = 1 << 0; // of the control register: events go to the SCI
const NOTHING: u16 = 0xffff; // reads a port without a device

/// The button of this machine, as the FADT describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerButton {
    /// The ISA line of the SCI.
    pub line: u8,
    /// Status and enable registers of 16 bits, one pair or two.
    pub(super) events: [Option<(u16, u16)>; 2],
    pub(super) control: u16,
    /// The port and the byte that make the firmware hand the events over, if it has them.
    pub(super) handover: Option<(u16, u8)>,
}

text_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NotEnabled {
        NoRegisters => "no device at the ports that the FADT names",
        NotHandedOver => "the firmware does not hand its events over",
    }
}

pub fn power_button() -> Option<PowerButton> {
    machine::fixed_hardware()?.power_button
}

impl PowerButton {
    /// From here on a press, and no other PM1 event, activates the line; on an error none does.
    pub fn enable(&self) -> Result<(), NotEnabled> {
        self.enable_by(&Hardware)
    }

    /// Whether it was pressed since the last call. It no longer activates the line.
    pub fn take_press(&self) -> bool {
        self.take_press_by(&Hardware)
    }

    fn enable_by(&self, ports: &impl Ports) -> Result<(), NotEnabled> {
        let events = || self.events.into_iter().flatten();
        if events().any(|(status, _)| ports.inw(status) == NOTHING) {
            return Err(NotEnabled::NoRegisters);
        }
        let is_ours = || ports.inw(self.control) & SCI_ENABLED != 0;
        if !is_ours() {
            let (command, value) = self.handover.ok_or(NotEnabled::NotHandedOver)?;
            ports.outb(command, value);
            let wait_a_us = |_: &u32| ports.outb(pic::DELAY, 0);
            let mut waits = (0..1_000_000).inspect(wait_a_us);
            waits.find(|_| is_ours()).ok_or(NotEnabled::NotHandedOver)?;
        }
        for (status, enable) in events() {
            ports.outw(status, PRESSED); // a press from before the kernel does not count
            ports.outw(enable, PRESSED);
        }
        Ok(())
    }

    fn take_press_by(&self, ports: &impl Ports) -> bool {
        self.events.into_iter().flatten().any(|(port, _)| {
            let status = ports.inw(port);
            let is_pressed = status != NOTHING && status & PRESSED != 0;
            if is_pressed {
                ports.outw(port, PRESSED); // a bit that is written as 1 is cleared
            }
            is_pressed
        })
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
