//! What the firmware says: CPUs, interrupt routing, timers, NUMA nodes.
//!
//! [`read`] turns the ACPI tables into one owned value, [`Firmware`], in which
//! nothing points into firmware memory any more. The boot CPU calls it once, when
//! the heap exists and before any other CPU runs. Acting on the value
//! (programming an I/O APIC, starting a CPU, choosing a timer) is left to the
//! neighbours, and so is the logging of the [`Notice`]s.
//!
//! # Tables are hostile
//!
//! > Every byte is read through a bounds check, every loop is bounded by the
//! > bytes of a table that was validated (signature, length, checksum) and is at
//! > most `tables::MAX_TABLE_BYTES` long, and every list has a capacity. What is
//! > missing or wrong becomes a value (`None`, an empty list, a notice), never a
//! > panic: a machine without a MADT runs on its boot CPU alone.
//!
//! # What comes from the `acpi` crate, and what does not
//!
//! The crate (6.1.1) gives the layouts of the tables and the meaning of their
//! flags. Its own walks are not used, because each of them trusts the firmware:
//!
//! - `AcpiTables` has no way to say "not mapped", subtracts the header's size
//!   from a length it has not checked, and reads the XSDT's 64-bit pointers,
//!   which lie at 4 modulo 8, with aligned loads;
//! - the iterators over MADT and SRAT entries never end on an entry of length
//!   zero, and look at a whole entry when only its first bytes are in the table;
//! - its SRAT entries have a 16-bit length where ACPI has 8, so all fields are
//!   one byte off;
//! - the FADT's helpers multiply an 8-bit length by eight.
//!
//! So `tables.rs` finds and validates tables and walks their entries, and the
//! other files read one kind of table each.

mod fixed;
mod madt;
mod notice;
pub mod power_button;
mod srat;
mod tables;

#[cfg(not(target_os = "none"))]
pub mod builder;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use fixed::PowerButtonEvents;
pub use fixed::{FixedHardware, PowerButtonPorts};
#[cfg(test)]
pub use fixed::{Reset, SoftOff};
pub use madt::{CpuEntry, IoApic};
#[cfg(not(target_os = "none"))]
pub use notice::MAX_NOTICES;
pub use notice::Notice;
pub use tables::{DirectMap, Overrides, PhysicalMemory};

use super::irq::apic::LocalNmi;
use super::irq::ioapic::{InterruptOverride, Wiring};
use alloc::vec;
use alloc::vec::Vec;
use notice::Report;
use tables::Tables;

/// The address of the local APIC unless the firmware says otherwise.
pub const DEFAULT_LOCAL_APIC: u64 = 0xfee0_0000;

/// Everything the kernel wants to know from the firmware, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firmware {
    /// The CPUs that may be started, each APIC id once, the boot CPU first and
    /// the others in the order of the MADT. Never empty.
    pub cpus: Vec<CpuEntry>,
    /// Physical address of the local APIC's registers, the same on each CPU.
    pub local_apic: u64,
    /// The I/O APICs, in the order of the MADT.
    pub io_apics: Vec<IoApic>,
    /// ISA interrupts that do not arrive at the input of their own number, or in
    /// another way.
    pub interrupt_overrides: Vec<InterruptOverride>,
    /// Local APIC pins that are wired to NMI: of the CPU with this ACPI uid, or
    /// of all CPUs.
    pub local_nmis: Vec<(Option<u32>, LocalNmi)>,
    /// I/O APIC inputs that are to be delivered as NMI.
    pub nmi_sources: Vec<Wiring>,
    /// Physical address of the first HPET's registers.
    pub hpet: Option<u64>,
    /// The fixed hardware that the FADT describes.
    pub fixed: FixedHardware,
    /// What was odd; the caller logs it.
    pub notices: Vec<Notice>,
}

impl Firmware {
    /// What is known without any table.
    fn of_boot_cpu(apic_id: u32) -> Self {
        Firmware {
            cpus: vec![CpuEntry { apic_id, acpi_uid: None, node: None }],
            local_apic: DEFAULT_LOCAL_APIC,
            io_apics: Vec::new(),
            interrupt_overrides: Vec::new(),
            local_nmis: Vec::new(),
            nmi_sources: Vec::new(),
            hpet: None,
            fixed: FixedHardware::default(),
            notices: Vec::new(),
        }
    }

    /// The NMI pins of this CPU.
    pub fn local_nmis_of(&self, cpu: &CpuEntry) -> impl Iterator<Item = LocalNmi> {
        let uid = cpu.acpi_uid;
        let of_cpu =
            move |(of, nmi): &(Option<u32>, LocalNmi)| (of.is_none() || *of == uid).then_some(*nmi);
        self.local_nmis.iter().filter_map(of_cpu)
    }
}

/// Reads all tables that the kernel uses.
///
/// `rsdp` is the physical address that the loader found, `boot_apic_id` the id
/// of the CPU that runs this. `overrides` is asked for each table by signature
/// (`"APIC"` is the MADT) before the firmware is, so a test can replace or hide
/// one.
pub fn read(
    rsdp: Option<u64>,
    memory: &impl PhysicalMemory,
    overrides: Overrides<'_>,
    boot_apic_id: u32,
) -> Firmware {
    let mut report = Report::default();
    let mut firmware = Firmware::of_boot_cpu(boot_apic_id);
    let tables = Tables::locate(rsdp, memory, overrides, &mut report);

    // CPUs, and how interrupts reach them.
    match tables.find("APIC", madt::MIN_BYTES, &mut report) {
        Some(table) => madt::read(&table, &mut firmware, &mut report),
        None => report.warn(format_args!("no MADT: running on the boot CPU alone")),
    }

    // Which node each CPU belongs to.
    if let Some(table) = tables.find("SRAT", srat::MIN_BYTES, &mut report) {
        srat::read(&table, &mut firmware, &mut report);
    }

    // Clocks, and the way to reset.
    let hpet = tables.find("HPET", fixed::HPET_MIN_BYTES, &mut report);
    firmware.hpet = hpet.and_then(|table| fixed::read_hpet(&table));
    let fadt = tables.find("FACP", fixed::FADT_MIN_BYTES, &mut report);
    firmware.fixed = fadt.as_deref().map(fixed::read_fadt).unwrap_or_default();

    // And to switch off: what to write is in the one table that the FADT names.
    let dsdt = fadt.as_deref().and_then(fixed::dsdt_address);
    let dsdt = dsdt.and_then(|at| tables.at(at, "DSDT"));
    firmware.fixed.soft_off = dsdt.and_then(fixed::read_soft_off);

    firmware.notices = report.finish();
    firmware
}
