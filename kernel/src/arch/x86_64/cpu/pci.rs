//! PCI as the machine sees it: configuration words, and interrupts as messages.
//!
//! Holds the two ports of PCI configuration space ("mechanism #1": an address register and a data
//! register), and the message by which a device interrupts a CPU. What the words mean is left to
//! `drivers::pci`. Memory-mapped configuration (ECAM) would add the upper 3840 bytes of each
//! function, which no driver here needs.

use crate::arch::lock::IrqLock;
use crate::arch::x86_64::irq::apic::{FIRST_DEVICE_VECTOR, LAST_DEVICE_VECTOR};
use crate::arch::x86_64::machine;
use x86_64::instructions::port::Port;

/// Two registers make one access, so one CPU at a time.
static PORTS: IrqLock<Ports> =
    IrqLock::new(Ports { address: Port::new(0xcf8), data: Port::new(0xcfc) });

struct Ports {
    address: Port<u32>,
    data: Port<u32>,
}

/// Bits that do not fit a device (0 to 31) and a function (0 to 7) are cut off.
fn address_of(bus: u8, device: u8, function: u8, register: u8) -> u32 {
    const ENABLE: u32 = 1 << 31;
    ENABLE
        | u32::from(bus) << 16
        | u32::from(device & 31) << 11
        | u32::from(function & 7) << 8
        | u32::from(register & !3)
}

/// The configuration word at `register`, rounded down to a multiple of 4; all ones where no device
/// answers.
pub fn pci_read(bus: u8, device: u8, function: u8, register: u8) -> u32 {
    let mut ports = PORTS.lock();
    // SAFETY: chooses a word, and changes nothing else.
    unsafe { ports.address.write(address_of(bus, device, function, register)) };
    // SAFETY: the word just chosen; reading it has no side effects that Rust could see.
    unsafe { ports.data.read() }
}

/// Writes a configuration word.
///
/// # Safety
/// The write must not let the device touch memory that is not its own: bus
/// mastering is on only for devices whose driver has told them where to write,
/// and address registers keep what the firmware gave them.
pub unsafe fn pci_write(bus: u8, device: u8, function: u8, register: u8, value: u32) {
    let mut ports = PORTS.lock();
    // SAFETY: as in `pci_read`.
    unsafe { ports.address.write(address_of(bus, device, function, register)) };
    // SAFETY: our caller's promise.
    unsafe { ports.data.write(value) };
}

/// What a device writes, and where, to interrupt CPU `index` with `vector`:
/// fixed delivery, edge (Intel SDM vol. 3, 11.11). `None` for a vector that is
/// not a device's, and for a CPU whose APIC id does not fit the eight bits.
pub fn message_for(index: usize, vector: u8) -> Option<(u64, u32)> {
    message(machine::cpus().get(index)?.apic_id, vector)
}

fn message(apic_id: u32, vector: u8) -> Option<(u64, u32)> {
    let is_ours = (FIRST_DEVICE_VECTOR..=LAST_DEVICE_VECTOR).contains(&vector);
    // 255 means all CPUs.
    let reaches = apic_id < 255;
    (is_ours && reaches).then(|| (0xfee0_0000 | u64::from(apic_id) << 12, u32::from(vector)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_addressed_by_bus_device_and_function() {
        assert_eq!(address_of(0, 0, 0, 0), 0x8000_0000);
        assert_eq!(address_of(1, 2, 3, 0x10), 0x8001_1310);
        assert_eq!(address_of(255, 31, 7, 0xff), 0x80ff_fffc, "whole words only");
        assert_eq!(address_of(0, 32, 8, 0), 0x8000_0000, "what does not fit is cut off");
    }

    #[test]
    fn message_names_the_cpu_and_the_vector() {
        assert_eq!(message(0, 0x31), Some((0xfee0_0000, 0x31)));
        assert_eq!(message(7, 0xef), Some((0xfee0_7000, 0xef)));
        assert_eq!(message(0, 0xf0), None, "the timer's vector");
        assert_eq!(message(0, 14), None, "an exception");
        assert_eq!(message(255, 0x31), None, "all CPUs");
        assert_eq!(message(300, 0x31), None, "out of reach");
    }
}
