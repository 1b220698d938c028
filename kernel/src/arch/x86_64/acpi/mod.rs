//! What the firmware says: CPUs, interrupt routing, timers, NUMA nodes.
//!
//! [`read`] turns the ACPI tables into one owned value, [`Firmware`]. The boot CPU calls it once,
//! when the heap exists and before any other CPU runs. Acting on the value (programming an I/O
//! APIC, starting a CPU, choosing a timer) and logging its notices is left to the caller.
//!
//! # Tables are hostile
//!
//! > Every byte is read through a bounds check, every loop is bounded by the bytes of a table that
//! > was validated (signature, length, checksum) and is at most `tables::MAX_TABLE_BYTES` long, and
//! > every list has a capacity. What is missing or wrong becomes a value (`None`, an empty list, a
//! > notice), never a panic: a machine without a MADT runs on its boot CPU alone.
//!
//! # What comes from the `acpi` crate, and what does not
//!
//! The crate (6.1.1) gives the layouts, the types of interrupt wiring and the walk over the MADT's
//! entries. It trusts the firmware, so `madt` gives it a copy of the table without the entries that
//! would lead it astray: its walk never ends on an entry of length 0, and reads a whole entry where
//! only the first bytes are in the table. What is not used, and why:
//!
//! - `AcpiTables` has no way to say "not mapped", subtracts the header's size from a length that it
//!   has not checked, and reads the XSDT's 64-bit pointers, which lie at 4 modulo 8, with aligned
//!   loads: `tables` finds and validates tables;
//! - `InterruptModel` wants an `AcpiTables`, panics on a MADT without CPUs, gives up the whole
//!   table for one bad entry, takes the first CPU for the boot CPU and has no polarity of NMI pins;
//! - its SRAT entries have a 16-bit length where ACPI has 8, so all fields are one byte off;
//! - the FADT's helpers multiply an 8-bit length by eight, and believe its revision.

mod fixed;
mod madt;
pub mod power_button;
mod tables;

#[cfg(not(target_os = "none"))]
#[path = "tests/builder.rs"]
pub mod builder;
#[cfg(test)]
mod tests;

pub use fixed::FixedHardware;
pub use madt::CpuEntry;
pub use tables::{Memory, Overrides, direct_map};

use super::irq::apic::LocalNmi;
use super::irq::ioapic::{ISA_LINES, Wiring};
use ::acpi::platform::interrupt::IoApic;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;
use core::ops::Range;
use log::Level;
use tables::Tables;

/// The address of the local APIC unless the firmware says otherwise.
pub const DEFAULT_LOCAL_APIC: u64 = 0xfee0_0000;

/// Everything the kernel wants to know from the firmware, owned.
#[derive(Debug, Clone, Default)]
pub struct Firmware {
    /// The CPUs that may be started: the boot CPU, then others in the MADT's order. Each id once.
    pub cpus: Vec<CpuEntry>,
    /// Physical address of the local APIC's registers, the same on each CPU.
    pub local_apic: u64,
    /// The I/O APICs, in the order of the MADT.
    pub io_apics: Vec<IoApic>,
    /// The wiring of each ISA line that is not wired as ISA has it, to the input of its number.
    pub isa_overrides: [Option<Wiring>; ISA_LINES],
    /// Local APIC pins that are wired to NMI: of the CPU with this ACPI uid, or of all CPUs.
    pub local_nmis: Vec<(Option<u32>, LocalNmi)>,
    /// Which memory is near which NUMA node.
    pub memory: Vec<(Range<u64>, u32)>,
    /// Physical address of the first HPET's registers.
    pub hpet: Option<u64>,
    pub fixed: FixedHardware,
    /// What was odd, a line each, with its level and how often. The texts are few, whatever the
    /// tables say: each names a table and a kind of mistake.
    pub notices: Vec<(Level, String, usize)>,
}

impl Firmware {
    pub fn local_nmis_of(&self, cpu: &CpuEntry) -> impl Iterator<Item = LocalNmi> {
        let uid = cpu.acpi_uid;
        let of_cpu = self.local_nmis.iter().filter(move |(of, _)| of.is_none() || *of == uid);
        of_cpu.map(|(_, nmi)| *nmi)
    }

    pub fn log_notices(&self) {
        for (level, text, count) in &self.notices {
            match count {
                1 => log::log!(*level, "acpi: {text}"),
                _ => log::log!(*level, "acpi: {text} ({count})"),
            }
        }
    }

    fn notice(&mut self, level: Level, text: String) {
        match self.notices.iter_mut().find(|known| known.1 == text) {
            Some(known) => known.2 += 1,
            None => self.notices.push((level, text, 1)),
        }
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.notice(Level::Warn, text.into());
    }

    /// A table cannot be used, and is treated as missing.
    fn ignored(&mut self, table: &str, why: &str) {
        self.warn(format!("table {table} ignored: {why}"));
    }

    /// An entry of `table` is not used.
    fn skip(&mut self, table: &str, what: impl Display) {
        self.warn(format!("table {table}: {what} skipped"));
    }
}

/// Reads all tables that the kernel uses.
///
/// `rsdp` is the physical address that the loader found, `boot_apic_id` the id of the CPU that runs
/// this.
pub fn read<'a>(
    rsdp: Option<u64>,
    memory: Memory<'a>,
    overrides: Overrides<'a>,
    boot_apic_id: u32,
) -> Firmware {
    let mut firmware = Firmware {
        cpus: vec![CpuEntry { apic_id: boot_apic_id, acpi_uid: None, node: None }],
        local_apic: DEFAULT_LOCAL_APIC,
        ..Firmware::default()
    };
    let tables = Tables::locate(rsdp, memory, overrides, &mut firmware);
    match tables.find("APIC", madt::MADT_MIN_BYTES, &mut firmware) {
        Some(table) => madt::read(&table, &mut firmware),
        None => firmware.warn("no MADT: running on the boot CPU alone"),
    }
    if let Some(table) = tables.find("SRAT", madt::SRAT_MIN_BYTES, &mut firmware) {
        madt::read_srat(&table, &mut firmware);
    }
    let hpet = tables.find("HPET", fixed::HPET_MIN_BYTES, &mut firmware);
    firmware.hpet = hpet.and_then(|table| fixed::read_hpet(&table));
    if let Some(table) = tables.find("FACP", fixed::FADT_MIN_BYTES, &mut firmware) {
        firmware.fixed = fixed::read_fadt(&table, |dsdt| tables.load(dsdt, "DSDT", 0).ok());
    }
    firmware
}
