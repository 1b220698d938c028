//! The end of the machine: a code for the launcher, power off, or reset.
//!
//! A way that works does not return; none waits without a limit.

use super::fixed_hardware;
use crate::arch::x86_64::acpi::FixedHardware;
use crate::arch::x86_64::cpu;
use crate::arch::x86_64::cpu::ports::{Hardware, Ports};
use crate::arch::x86_64::irq::{flag, nmi, pic};
use core::fmt;
use x86_64::instructions::port::Port;

/// QEMU's isa-debug-exit: a write there ends the emulator with the status `value << 1 | 1`.
const DEBUG_EXIT_PORT: u16 = 0xf4;
/// Stands for code 0: a status of ours differs from QEMU's (1 for its errors, 0 for a power-off).
const DEBUG_EXIT_BASE: u32 = 0x10;
/// The highest code that survives the eight bits of a status.
const MAX_CODE: u32 = 111;

/// The PCI chipset's reset control: full reset, and the edge that does it.
const RESET_CONTROL: u16 = 0xcf9;
/// The keyboard controller's commands and status.
const KEYBOARD_CONTROLLER: u16 = 0x64;
/// Status: it has not taken the last command yet.
const KEYBOARD_BUSY: u8 = 1 << 1;
/// Command: pulse the line that resets the CPU.
const PULSE_RESET: u8 = 0xfe;
/// Status reads before the command is written all the same: 65 ms.
const KEYBOARD_TRIES: u32 = 1 << 16;

pub type Print = fn(fmt::Arguments<'_>);

/// Ends the machine with `code`. In QEMU the emulator ends; on hardware all CPUs halt, and what was
/// printed stays on the screen.
pub fn exit(code: u32, print: Print) -> ! {
    tell_emulator(code);
    // There is no such device. A CPU that is stopping the machine already stops this one, too.
    if nmi::stop_others() {
        print(format_args!("ended with code {code}; the machine may be switched off"));
    }
    cpu::halt_forever()
}

/// Switches the machine off: in QEMU as [`exit`] does, else as the firmware says.
pub fn power_off(print: Print) -> ! {
    tell_emulator(0);
    nmi::stop_others();
    if let Some(fixed) = fixed_hardware() {
        switch_off(&Hardware, fixed);
    }
    print(format_args!("the machine may be switched off"));
    cpu::halt_forever()
}

/// Where there is isa-debug-exit, this does not return. Interrupts are off then.
fn tell_emulator(code: u32) {
    flag::disable();
    let value = DEBUG_EXIT_BASE + code.min(MAX_CODE);
    // SAFETY: in QEMU this ends the emulator; elsewhere no device is there.
    unsafe { Port::new(DEBUG_EXIT_PORT).write(value) };
}

fn switch_off(ports: &impl Ports, fixed: &FixedHardware) {
    for (port, word) in fixed.power_off.iter().flatten() {
        ports.outw(*port, *word);
    }
    wait_for_reset(ports);
}

/// Restarts the machine: as the firmware says, by the chipset, or by the keyboard controller.
pub fn reboot(print: Print) -> ! {
    flag::disable();
    nmi::stop_others();
    reset(&Hardware, fixed_hardware());
    print(format_args!("the machine does not start again by itself"));
    cpu::halt_forever()
}

fn reset(ports: &impl Ports, firmware: Option<&FixedHardware>) {
    if let Some((port, value)) = firmware.and_then(|fixed| fixed.reset) {
        ports.outb(port, value);
        wait_for_reset(ports);
    }
    // First the kind of reset, then the edge.
    for value in [0x02, 0x06] {
        ports.outb(RESET_CONTROL, value);
        wait_for_reset(ports);
    }
    let _ = (0..KEYBOARD_TRIES).any(|_| ports.inb(KEYBOARD_CONTROLLER) & KEYBOARD_BUSY == 0);
    ports.outb(KEYBOARD_CONTROLLER, PULSE_RESET);
    wait_for_reset(ports);
}

/// A reset takes its time: a millisecond, by accesses to a slow port.
fn wait_for_reset(ports: &impl Ports) {
    (0..1000).for_each(|_| ports.outb(pic::DELAY, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes what is written, the delays aside; a keyboard that is always busy.
    #[derive(Default)]
    struct Notes(RefCell<Vec<(u16, u16)>>);

    impl Ports for Notes {
        fn inb(&self, _: u16) -> u8 {
            KEYBOARD_BUSY
        }
        fn outb(&self, port: u16, value: u8) {
            if port != pic::DELAY {
                self.0.borrow_mut().push((port, value.into()));
            }
        }
        fn inl(&self, _: u16) -> u32 {
            0
        }
        fn outw(&self, port: u16, value: u16) {
            self.0.borrow_mut().push((port, value));
        }
    }

    #[test]
    fn a_reset_tries_every_way_and_waits_for_none() {
        let ports = Notes::default();
        reset(&ports, Some(&FixedHardware { reset: Some((0x92, 1)), ..Default::default() }));
        let ways = [(0x92, 1), (0xcf9, 2), (0xcf9, 6), (0x64, 0xfe)];
        assert_eq!(*ports.0.borrow(), ways);
        let ports = Notes::default();
        reset(&ports, None);
        assert_eq!(*ports.0.borrow(), ways[1..]);
    }

    #[test]
    fn the_machine_is_switched_off_as_the_firmware_says_or_not_at_all() {
        let ports = Notes::default();
        let mut fixed = FixedHardware::default();
        switch_off(&ports, &fixed);
        assert_eq!(*ports.0.borrow(), []);
        fixed.power_off[0] = Some((0x604, 5 << 10 | 1 << 13));
        switch_off(&ports, &fixed);
        assert_eq!(*ports.0.borrow(), [(0x604, 5 << 10 | 1 << 13)]);
        fixed.power_off[1] = Some((0x704, 7 << 10 | 1 << 13));
        switch_off(&ports, &fixed);
        assert_eq!(ports.0.borrow()[2..], [(0x704, 7 << 10 | 1 << 13)]);
    }
}
