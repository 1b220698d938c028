//! PCI: functions, their capabilities, and their interrupts.
//!
//! Finds functions by walking the buses ([`functions`]), reads a function's capabilities and
//! address registers ([`Device`]), and sets up interrupts: as a message to a CPU where the
//! function has MSI-X ([`Device::enable_message`]), by its line otherwise
//! ([`Device::interrupt_line`]). `arch` accesses configuration space, the types of an access
//! are those of `virtio-drivers`, and a driver knows what its device does. Called by
//! `virtio_blk`.
//!
//! **Configuration space is not trusted.** Lists have an end, whatever their links say;
//! bridges lead to each bus once; an object outside its address register, or absurdly far
//! away, is an error. That is why the walks are ours: the crate's follow a circular list of
//! capabilities for ever.
//!
//! Not found: buses behind a second host bridge, which only ACPI's AML names.

mod registers;

use crate::arch;
use alloc::vec::Vec;
use core::fmt;
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess, PciRoot};

pub use registers::Registers;
pub use virtio_drivers::transport::pci::bus::DeviceFunction as Address;

/// The machine's configuration space.
#[derive(Clone, Copy, Debug)]
pub struct Ports;

impl ConfigurationAccess for Ports {
    fn read_word(&self, at: Address, register: u8) -> u32 {
        arch::pci_read(at.bus, at.device, at.function, register)
    }

    fn write_word(&mut self, at: Address, register: u8, value: u32) {
        // SAFETY: the writer is this file, or the crate on its behalf: a BAR is sized with
        // decoding off and restored; a command lets a device reach memory, whether its rings
        // are set up yet or not; MSI-X is enabled when its table has a message of ours.
        unsafe { arch::pci_write(at.bus, at.device, at.function, register, value) };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        *self
    }
}

/// A function that answered, with its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address.
    pub at: Address,
    /// Its vendor's id.
    pub vendor: u16,
    /// Its device id, by its vendor's numbers.
    pub device: u16,
}

/// Why a function cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciError {
    /// The list of capabilities has no end.
    EndlessCapabilities,
    /// A capability does not end before configuration space does.
    CutCapability(u8),
    /// There is no such address register: there are six.
    NoSuchBar(u8),
    /// This address register is empty, or for ports, or invalid.
    NoMemoryBar(u8),
    /// An object would be outside the memory of its address register.
    OutsideBar(u8),
    /// The function has no MSI-X.
    NoMessages,
    /// The table of messages has no such entry.
    NoSuchEntry(u16),
    /// The registers cannot be mapped.
    Unmappable(u64),
}

const BRIDGE: u8 = 1;
const MSIX: u8 = 0x11;
/// Capabilities fill the rest of 256 bytes after the header, at least 4 each.
const MAX_CAPABILITIES: usize = (256 - 64) / 4;

const STATUS_COMMAND: u8 = 0x04;
const HEADER_TYPE: u8 = 0x0c;
const BUSES: u8 = 0x18;
const FIRST_CAPABILITY: u8 = 0x34;
const INTERRUPT_LINE: u8 = 0x3c;

/// All functions of `vendor` that can be reached over bridges from bus 0.
pub fn functions<C: ConfigurationAccess>(config: &C, vendor: u16) -> Vec<Function> {
    let mut found = Vec::new();
    let mut is_known = [false; 256];
    is_known[0] = true;
    // A bus gets in here once, so that loops of bridges end.
    let mut buses = alloc::vec![0u8];
    while let Some(bus) = buses.pop() {
        for (at, id) in functions_of_bus(config, bus) {
            if header_type(config, at) & 0x7f == BRIDGE {
                let secondary = (config.read_word(at, BUSES) >> 8) as u8;
                if !core::mem::replace(&mut is_known[usize::from(secondary)], true) {
                    buses.push(secondary);
                }
            }
            if id as u16 == vendor {
                found.push(Function { at, vendor, device: (id >> 16) as u16 });
            }
        }
    }
    found
}

/// The functions of one bus that answer, with their vendor and device.
fn functions_of_bus<C: ConfigurationAccess>(
    config: &C,
    bus: u8,
) -> impl Iterator<Item = (Address, u32)> {
    let places = (0..32).flat_map(move |device| (0..8).map(move |function| (device, function)));
    let mut is_multi = false;
    places.filter_map(move |(device, function)| {
        let at = Address { bus, device, function };
        // A device of one function may answer to all eight numbers.
        if function > 0 && !is_multi {
            return None;
        }
        let id = config.read_word(at, 0);
        let is_there = !matches!(id as u16, 0 | 0xffff);
        if function == 0 {
            is_multi = is_there && header_type(config, at) & 0x80 != 0;
        }
        is_there.then_some((at, id))
    })
}

fn header_type<C: ConfigurationAccess>(config: &C, at: Address) -> u8 {
    (config.read_word(at, HEADER_TYPE) >> 16) as u8
}

/// One entry of a function's list of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its kind.
    pub id: u8,
    /// Its place in configuration space, a multiple of 4 from 64 on.
    pub offset: u8,
    /// The two bytes after the link, whose meaning depends on the kind.
    pub private: u16,
}

/// Device memory, by its physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub address: u64,
    /// Its length, at least 1.
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
    ///
    /// # Errors
    /// It is too large, or there is no room.
    pub fn map(&self) -> Result<Registers, PciError> {
        let error = PciError::Unmappable(self.address);
        if self.bytes > MAX_REGION {
            return Err(error);
        }
        let base = arch::paging::map_mmio(self.address, self.bytes as usize).map_err(|_| error)?;
        // SAFETY: `map_mmio` maps that many bytes of device memory, for ever.
        unsafe { Registers::new(base, self.bytes as usize) }.ok_or(error)
    }
}

/// A function and the access to its configuration space.
pub struct Device<C: ConfigurationAccess + Copy = Ports> {
    config: C,
    at: Address,
}

impl<C: ConfigurationAccess + Copy> Device<C> {
    /// The function at `at`.
    pub fn new(config: C, at: Address) -> Device<C> {
        Device { config, at }
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.at
    }

    /// The configuration word at `register`.
    pub fn read(&self, register: u8) -> u32 {
        self.config.read_word(self.at, register)
    }

    /// Enables accesses to its memory, and its own accesses to memory.
    pub fn enable(&self) {
        self.change_command(|command| command | Command::MEMORY_SPACE | Command::BUS_MASTER);
    }

    /// Keeps it from reaching memory: it may still have addresses of ours.
    pub fn quiesce(&self) {
        self.change_command(|command| command - Command::BUS_MASTER);
    }

    fn change_command(&self, change: impl FnOnce(Command) -> Command) {
        let mut root = PciRoot::new(self.config);
        let (_, command) = root.get_status_command(self.at);
        root.set_command(self.at, change(command));
    }

    /// Its capabilities, in order.
    ///
    /// # Errors
    /// The list does not end.
    pub fn capabilities(&self) -> Result<Vec<Capability>, PciError> {
        const HAS_LIST: u32 = 1 << 20;
        let mut found = Vec::new();
        if self.read(STATUS_COMMAND) & HAS_LIST == 0 {
            return Ok(found);
        }
        let mut offset = self.read(FIRST_CAPABILITY) as u8 & !3;
        while offset >= 64 {
            if found.len() == MAX_CAPABILITIES {
                return Err(PciError::EndlessCapabilities);
            }
            let word = self.read(offset);
            found.push(Capability { id: word as u8, offset, private: (word >> 16) as u16 });
            offset = (word >> 8) as u8 & !3;
        }
        Ok(found)
    }

    /// The memory that address register `index` names.
    ///
    /// # Errors
    /// It names none.
    pub fn memory_bar(&self, index: u8) -> Result<Region, PciError> {
        if index >= 6 {
            return Err(PciError::NoSuchBar(index));
        }
        let error = PciError::NoMemoryBar(index);
        // The crate would size a 64-bit register without a second half and not restore it.
        if index == 5 && self.read(0x10 + 4 * index) & 0b111 == 0b100 {
            return Err(error);
        }
        let bar = PciRoot::new(self.config).bar_info(self.at, index).map_err(|_| error)?;
        let (address, bytes) = bar.and_then(|bar| bar.memory_address_size()).ok_or(error)?;
        let is_sane = address != 0 && bytes != 0 && address.checked_add(bytes).is_some();
        if is_sane { Ok(Region { address, bytes }) } else { Err(error) }
    }

    /// The ISA line of its interrupt pin, if the firmware says so.
    pub fn interrupt_line(&self) -> Option<u8> {
        let word = self.read(INTERRUPT_LINE);
        let (line, pin) = (word as u8, (word >> 8) as u8);
        ((1..=4).contains(&pin) && line < 16).then_some(line)
    }

    /// Its table of messages, and how many entries it has.
    fn message_table(&self) -> Result<(Capability, Region, u16), PciError> {
        let found = self.capabilities()?.into_iter().find(|cap| cap.id == MSIX);
        let capability = found.ok_or(PciError::NoMessages)?;
        if capability.offset > 0xff - 11 {
            return Err(PciError::CutCapability(capability.offset));
        }
        let place = self.read(capability.offset + 4);
        let (bar, offset) = ((place & 7) as u8, place & !7);
        let entries = (capability.private & 0x7ff) + 1;
        let table = self.memory_bar(bar)?.part(offset, u32::from(entries) * ENTRY_BYTES);
        Ok((capability, table.ok_or(PciError::OutsideBar(bar))?, entries))
    }

    /// Whether it can send messages: has MSI-X, with a valid table.
    ///
    /// # Errors
    /// Why not.
    pub fn check_messages(&self) -> Result<(), PciError> {
        self.message_table().map(|_| ())
    }

    /// From now on it interrupts by entry `entry` of its table with `message` (address and
    /// data), and by no other entry and no line. The handler is in place already.
    ///
    /// # Errors
    /// It has no MSI-X, or an invalid table.
    pub fn enable_message(&self, entry: u16, message: (u64, u32)) -> Result<(), PciError> {
        let (capability, table, entries) = self.message_table()?;
        if entry >= entries {
            return Err(PciError::NoSuchEntry(entry));
        }
        let table = table.map()?;
        self.control_messages(capability, ENABLED | MASKED);
        write_entries(&table, entries, entry, message);
        self.control_messages(capability, ENABLED);
        self.change_command(|command| command | Command::INTERRUPT_DISABLE);
        Ok(())
    }

    /// Writes the control bits of MSI-X; the rest of the word is read-only.
    fn control_messages(&self, capability: Capability, bits: u32) {
        let mut config = self.config;
        config.write_word(self.at, capability.offset, bits);
    }
}

/// Bytes of an entry: address, upper half of it, data, control.
const ENTRY_BYTES: u32 = 16;
const ENABLED: u32 = 1 << 31;
const MASKED: u32 = 1 << 30;

/// Masks all entries but `wanted`, which gets `message`.
fn write_entries(table: &Registers, entries: u16, wanted: u16, message: (u64, u32)) {
    const ENTRY_MASKED: u32 = 1;
    for entry in 0..entries {
        let at = usize::from(entry) * ENTRY_BYTES as usize;
        // Masked while it is changed, so that no half-written message is ever sent.
        table.write(at + 12, ENTRY_MASKED);
        if entry == wanted {
            table.write(at, message.0 as u32);
            table.write(at + 4, (message.0 >> 32) as u32);
            table.write(at + 8, message.1);
            table.write(at + 12, 0u32);
        }
    }
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PciError::EndlessCapabilities => f.write_str("its list of capabilities has no end"),
            PciError::CutCapability(at) => write!(f, "its capability at {at:#x} is cut off"),
            PciError::NoSuchBar(bar) => write!(f, "it names address register {bar} of six"),
            PciError::NoMemoryBar(bar) => write!(f, "its address register {bar} names no memory"),
            PciError::OutsideBar(bar) => write!(f, "it names memory outside of register {bar}'s"),
            PciError::NoMessages => f.write_str("it cannot send messages"),
            PciError::NoSuchEntry(entry) => write!(f, "it has no message {entry}"),
            PciError::Unmappable(at) => write!(f, "its registers at {at:#x} cannot be mapped"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
