//! PCI: functions, their capabilities, their registers and their interrupts.
//!
//! Finds functions by walking the buses ([`functions`]), reads capabilities and address registers
//! ([`Device`]), and sets up interrupts: as a message where the function has MSI-X
//! ([`Device::enable_message`]), by its line otherwise ([`Device::interrupt_line`]). `arch`
//! accesses configuration space; the types of an access are those of `virtio-drivers`.
//!
//! **Configuration space is not trusted.** Lists have an end, whatever their links say;
//! bridges lead to each bus once; an object outside its address register, or absurdly far
//! away, is an error. That is why the walks are ours: the crate's follow a circular list of
//! capabilities for ever.
//!
//! Not found: buses behind a second host bridge, which only ACPI's AML names.

use super::irq::IrqError;
use crate::arch::{self, Window, text_enum};
use alloc::vec::Vec;
use virtio_drivers::transport::pci::VirtioPciError;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, PciRoot};

pub use crate::arch::PciPorts as Ports;
pub use virtio_drivers::transport::pci::bus::DeviceFunction as Address;

text_enum! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ProbeError {
        CutCapability(at: u8) => "its capability at {at:#x} is cut off",
        NoSuchBar(bar: u8) => "it names address register {bar} of six",
        /// (It is empty, or for ports, or invalid.)
        NoMemoryBar(bar: u8) => "its address register {bar} names no memory",
        OutsideBar(bar: u8) => "it names memory outside of register {bar}'s",
        Unmappable(at: u64) => "its registers at {at:#x} cannot be mapped",
        Transport(error: VirtioPciError) => "invalid virtio structures: {error}",
        Ring(error: virtio_drivers::Error) => "no ring: {error}",
        NoInterrupt(error: IrqError) => "no interrupt: {error}",
        BlockSize(bytes: u32) => "blocks of {bytes} bytes are unsupported",
        Unusable(why: &'static str) => "{why}",
    }
}

pub const NO_MESSAGES: ProbeError = ProbeError::Unusable("it cannot send messages");
const ENDLESS_LIST: ProbeError = ProbeError::Unusable("its list of capabilities has no end");

const BRIDGE: u8 = 1;
const MSIX: u8 = 0x11;
/// Capabilities fill the rest of 256 bytes after the header, at least 4 each.
const MAX_CAPABILITIES: usize = (256 - 64) / 4;

const STATUS_COMMAND: u8 = 0x04;
const HEADER_TYPE: u8 = 0x0c;
const BUSES: u8 = 0x18;
const FIRST_CAPABILITY: u8 = 0x34;
const INTERRUPT_LINE: u8 = 0x3c;

/// All functions of `vendor` that can be reached over bridges from bus 0, with their device ids.
pub fn functions<C: ConfigurationAccess>(config: &C, vendor: u16) -> Vec<(Address, u16)> {
    let mut found = Vec::new();
    let mut is_known = [false; 256];
    is_known[0] = true;
    // A bus gets in here once, so that loops of bridges end.
    let mut buses = alloc::vec![0u8];
    while let Some(bus) = buses.pop() {
        let mut is_multi = false;
        for place in 0..=u8::MAX {
            let at = Address { bus, device: place >> 3, function: place & 7 };
            // A device of one function may answer to all eight numbers.
            if at.function > 0 && !is_multi {
                continue;
            }
            let id = config.read_word(at, 0);
            let header = match id as u16 {
                0 | 0xffff => 0, // no function
                _ => (config.read_word(at, HEADER_TYPE) >> 16) as u8,
            };
            if at.function == 0 {
                is_multi = header & 0x80 != 0;
            }
            if header & 0x7f == BRIDGE {
                let secondary = (config.read_word(at, BUSES) >> 8) as u8;
                if !core::mem::replace(&mut is_known[usize::from(secondary)], true) {
                    buses.push(secondary);
                }
            }
            if id as u16 == vendor {
                found.push((at, (id >> 16) as u16));
            }
        }
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    pub id: u8,
    /// Its place in configuration space, a multiple of 4 from 64 on.
    pub offset: u8,
    /// The two bytes after the link, whose meaning depends on the kind.
    pub private: u16,
}

/// Device memory, at least a byte, by its physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub address: u64,
    pub bytes: u64,
}

/// The longest region that is mapped: more than any real device needs.
const MAX_REGION: u64 = 16 << 20;

impl Region {
    /// `bytes` bytes at `offset`, if all of them are inside.
    pub fn part(&self, offset: u32, bytes: u32) -> Option<Region> {
        let (offset, bytes) = (u64::from(offset), u64::from(bytes));
        let is_inside = bytes > 0 && offset + bytes <= self.bytes; // u32 each: no overflow
        is_inside.then(|| Region { address: self.address + offset, bytes })
    }

    /// The region as registers. A second call returns the same addresses.
    pub fn map(&self) -> Result<Window, ProbeError> {
        let map = || arch::paging::map_mmio(self.address, self.bytes as usize).ok();
        let window = (self.bytes <= MAX_REGION).then(map).flatten();
        window.ok_or(ProbeError::Unmappable(self.address))
    }
}

pub struct Device<C: ConfigurationAccess + Copy = Ports> {
    config: C,
    pub at: Address,
}

pub struct MessageTable {
    capability: u8,
    region: Region,
    entries: u16,
}

impl<C: ConfigurationAccess + Copy> Device<C> {
    pub fn new(config: C, at: Address) -> Device<C> {
        Device { config, at }
    }

    pub fn read(&self, register: u8) -> u32 {
        self.config.read_word(self.at, register)
    }

    /// Changes the command register: which accesses and interrupts are enabled.
    pub fn change_command(&self, change: impl FnOnce(Command) -> Command) {
        let mut root = PciRoot::new(self.config);
        let (_, command) = root.get_status_command(self.at);
        root.set_command(self.at, change(command));
    }

    /// Its capabilities, in order; an error if the list does not end.
    pub fn capabilities(&self) -> Result<Vec<Capability>, ProbeError> {
        const HAS_LIST: u32 = 1 << 20;
        let mut found = Vec::new();
        if self.read(STATUS_COMMAND) & HAS_LIST == 0 {
            return Ok(found);
        }
        let mut offset = self.read(FIRST_CAPABILITY) as u8 & !3;
        while offset >= 64 {
            if found.len() == MAX_CAPABILITIES {
                return Err(ENDLESS_LIST);
            }
            let word = self.read(offset);
            found.push(Capability { id: word as u8, offset, private: (word >> 16) as u16 });
            offset = (word >> 8) as u8 & !3;
        }
        Ok(found)
    }

    /// A part of the memory that address register `index` names.
    pub fn memory(&self, index: u8, offset: u32, bytes: u32) -> Result<Region, ProbeError> {
        self.memory_bar(index)?.part(offset, bytes).ok_or(ProbeError::OutsideBar(index))
    }

    /// All the memory that address register `index` names.
    pub fn memory_bar(&self, index: u8) -> Result<Region, ProbeError> {
        if index >= 6 {
            return Err(ProbeError::NoSuchBar(index));
        }
        // The crate would size a 64-bit register without a second half and not restore it.
        let is_half = index == 5 && self.read(0x10 + 4 * index) & 0b111 == 0b100;
        let bar = match is_half {
            true => None,
            false => PciRoot::new(self.config).bar_info(self.at, index).ok().flatten(),
        };
        let (address, bytes) = bar.and_then(|bar| bar.memory_address_size()).unwrap_or((0, 0));
        let is_sane = address != 0 && bytes != 0 && address.checked_add(bytes).is_some();
        if is_sane { Ok(Region { address, bytes }) } else { Err(ProbeError::NoMemoryBar(index)) }
    }

    /// The ISA line of its interrupt pin, if the firmware says so.
    pub fn interrupt_line(&self) -> Option<u8> {
        let word = self.read(INTERRUPT_LINE);
        let (line, pin) = (word as u8, (word >> 8) as u8);
        ((1..=4).contains(&pin) && line < 16).then_some(line)
    }

    /// Its table of messages; [`NO_MESSAGES`] if it has no MSI-X.
    pub fn message_table(&self) -> Result<MessageTable, ProbeError> {
        let found = self.capabilities()?.into_iter().find(|cap| cap.id == MSIX);
        let Capability { offset: capability, private, .. } = found.ok_or(NO_MESSAGES)?;
        if capability > 0xff - 11 {
            return Err(ProbeError::CutCapability(capability));
        }
        let place = self.read(capability + 4);
        let entries = (private & 0x7ff) + 1;
        let region =
            self.memory((place & 7) as u8, place & !7, u32::from(entries) * ENTRY_BYTES)?;
        Ok(MessageTable { capability, region, entries })
    }

    /// From now on it interrupts by the first entry of its table with `message` (address and
    /// data), and by no other entry and no line. The handler is in place already.
    pub fn enable_message(
        &self,
        table: &MessageTable,
        message: (u64, u32),
    ) -> Result<(), ProbeError> {
        let entries = table.region.map()?;
        let mut config = self.config;
        // The control bits; the rest of the word is read-only.
        config.write_word(self.at, table.capability, ENABLED | MASKED);
        write_entries(&entries, table.entries, message);
        config.write_word(self.at, table.capability, ENABLED);
        self.change_command(|command| command | Command::INTERRUPT_DISABLE);
        Ok(())
    }
}

/// Bytes of an entry: address, upper half of it, data, control.
const ENTRY_BYTES: u32 = 16;
const ENABLED: u32 = 1 << 31;
const MASKED: u32 = 1 << 30;

/// Masks all entries but the first, which gets `message`.
fn write_entries(table: &Window, entries: u16, message: (u64, u32)) {
    const ENTRY_MASKED: u32 = 1;
    // Masked while it is changed, so that no half-written message is ever sent.
    for entry in 0..usize::from(entries) {
        table.put(entry * ENTRY_BYTES as usize + 12, ENTRY_MASKED);
    }
    table.put(0, message.0 as u32);
    table.put(4, (message.0 >> 32) as u32);
    table.put(8, message.1);
    table.put(12, 0u32);
}

#[cfg(test)]
pub(crate) mod tests;
