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
//! - `InterruptModel` wants an `AcpiTables`, panics on a MADT without CPUs, gives up the whole table
//!   for one bad entry, takes the first CPU for the boot CPU and has no polarity of NMI pins;
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
    /// I/O APIC inputs that are to be delivered as NMI.
    pub nmi_sources: Vec<Wiring>,
    /// Physical address of the first HPET's registers.
    pub hpet: Option<u64>,
    /// The fixed hardware that the FADT describes.
    pub fixed: FixedHardware,
    /// What was odd, a line each; the caller logs it with this level.
    pub notices: Vec<(Level, String)>,
}

impl Firmware {
    /// The NMI pins of this CPU.
    pub fn local_nmis_of(&self, cpu: &CpuEntry) -> impl Iterator<Item = LocalNmi> {
        let uid = cpu.acpi_uid;
        let of_cpu = self.local_nmis.iter().filter(move |(of, _)| of.is_none() || *of == uid);
        of_cpu.map(|(_, nmi)| *nmi)
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
    let mut report = Report::default();
    let mut firmware = Firmware {
        cpus: vec![CpuEntry { apic_id: boot_apic_id, acpi_uid: None, node: None }],
        local_apic: DEFAULT_LOCAL_APIC,
        ..Firmware::default()
    };
    let tables = Tables::locate(rsdp, memory, overrides, &mut report);
    match tables.find("APIC", madt::MADT_MIN_BYTES, &mut report) {
        Some(table) => madt::read(&table, &mut firmware, &mut report),
        None => report.warn("no MADT: running on the boot CPU alone".into()),
    }
    if let Some(table) = tables.find("SRAT", madt::SRAT_MIN_BYTES, &mut report) {
        madt::read_srat(&table, &mut firmware, &mut report);
    }
    let hpet = tables.find("HPET", fixed::HPET_MIN_BYTES, &mut report);
    firmware.hpet = hpet.and_then(|table| fixed::read_hpet(&table));
    if let Some(table) = tables.find("FACP", fixed::FADT_MIN_BYTES, &mut report) {
        firmware.fixed = fixed::read_fadt(&table, |dsdt| tables.load(dsdt, "DSDT", 0).ok());
    }
    firmware.notices = report.finish();
    firmware
}

/// The most notices of one boot: a table of nonsense must not fill the heap or the console.
pub const MAX_NOTICES: usize = 64;

/// Collects notices while tables are read.
#[derive(Default)]
struct Report {
    notices: Vec<(Level, String)>,
    /// What is counted instead of listed: level, table, what is skipped, and how many.
    skipped: Vec<(Level, &'static str, &'static str, usize)>,
}

impl Report {
    fn warn(&mut self, text: String) {
        self.add(Level::Warn, text);
    }

    fn add(&mut self, level: Level, text: String) {
        match self.notices.len() {
            0..MAX_NOTICES => self.notices.push((level, text)),
            MAX_NOTICES => self.notices.push((Level::Warn, "more notices, dropped".into())),
            _ => {}
        }
    }

    /// A table cannot be used, and is treated as missing.
    fn ignored(&mut self, table: &str, why: &str) {
        self.warn(format!("table {table} ignored: {why}"));
    }

    /// Counts one more entry of `table` that is not used.
    fn skip(&mut self, level: Level, table: &'static str, what: &'static str) {
        match self.skipped.iter_mut().find(|known| (known.1, known.2) == (table, what)) {
            Some(known) => known.3 += 1,
            None => self.skipped.push((level, table, what, 1)),
        }
    }

    fn finish(mut self) -> Vec<(Level, String)> {
        for (level, table, what, count) in core::mem::take(&mut self.skipped) {
            self.add(level, format!("table {table}: {count} {what} skipped"));
        }
        self.notices
    }
}
