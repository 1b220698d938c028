//! PCI as the machine sees it: configuration words, and interrupts as messages.
//!
//! Holds the two ports of PCI configuration space ("mechanism #1": an address register and a data
//! register), and the message by which a device interrupts a CPU. What the words mean is left to
//! `drivers::pci`. Memory-mapped configuration (ECAM) would add the upper 3840 bytes of each
//! function, which no driver here needs.

use crate::arch::lock::IrqLock;
use crate::arch::x86_64::irq::apic::{FIRST_DEVICE_VECTOR, LAST_DEVICE_VECTOR};
use crate::arch::x86_64::machine;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction};
use x86_64::instructions::port::Port;

/// Two registers make one access, so one CPU at a time.
static ADDRESS_AND_DATA: IrqLock<(Port<u32>, Port<u32>)> =
    IrqLock::new((Port::new(0xcf8), Port::new(0xcfc)));

/// The machine's configuration space.
#[derive(Clone, Copy, Debug)]
pub struct PciPorts;

impl ConfigurationAccess for PciPorts {
    /// All ones where no device answers.
    fn read_word(&self, at: DeviceFunction, register: u8) -> u32 {
        // SAFETY: reading a word has no side effects that Rust could see.
        with_word(at, register, |word| unsafe { word.read() })
    }

    fn write_word(&mut self, at: DeviceFunction, register: u8, value: u32) {
        // SAFETY: the writers are the drivers of PCI and virtio, and the crate: a BAR is sized with
        // decoding off and restored; a command lets a device reach memory, whether its rings are
        // set up yet or not; MSI-X is enabled when its table has a message of ours.
        with_word(at, register, |word| unsafe { word.write(value) });
    }

    unsafe fn unsafe_clone(&self) -> Self {
        *self
    }
}

/// Calls `f` with the data port, set to the word at `register`, rounded down to a multiple of 4.
fn with_word<R>(at: DeviceFunction, register: u8, f: impl FnOnce(&mut Port<u32>) -> R) -> R {
    let (address, data) = &mut *ADDRESS_AND_DATA.lock();
    // SAFETY: chooses a word, and changes nothing else.
    unsafe { address.write(address_of(at, register)) };
    f(data)
}

/// Bits that do not fit a device (0 to 31) and a function (0 to 7) are cut off.
fn address_of(at: DeviceFunction, register: u8) -> u32 {
    const ENABLE: u32 = 1 << 31;
    let place = u32::from(at.device & 31) << 11 | u32::from(at.function & 7) << 8;
    ENABLE | u32::from(at.bus) << 16 | place | u32::from(register & !3)
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
        let address_of = |bus, device, function, register| {
            address_of(DeviceFunction { bus, device, function }, register)
        };
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
