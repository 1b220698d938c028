//! What the firmware says: CPUs, interrupt routing, timers, memory affinity.
//!
//! [`read`] turns the ACPI tables into one owned value, [`Firmware`], in which
//! nothing points into firmware memory any more. It is called once, by the boot
//! CPU, when the heap exists and before any other CPU runs. Acting on the value
//! (programming an IOAPIC, starting a CPU, choosing a timer) is left to the
//! neighbours; so is the logging of the [`Notice`]s, because the tables may be
//! read before a console is ready.
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
//!   one byte off, and the memory length takes its upper half from the base;
//! - `Signature` unwraps a UTF-8 check when printed, and the FADT's helpers
//!   multiply an 8-bit length by eight.
//!
//! So `tables.rs` finds and validates tables and walks their entries, and the
//! other files read one kind of table each.

mod fixed;
mod madt;
mod notice;
mod srat;
mod tables;

#[cfg(not(target_os = "none"))]
mod builder;
#[cfg(not(target_os = "none"))]
pub mod hostile;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use fixed::PowerButtonEvents;
pub use fixed::{FixedHardware, Hpet, PowerButtonPorts, Register};
#[cfg(test)]
pub use fixed::{Reset, SoftOff};
pub use madt::{
    CpuEntry, InterruptOverride, IoApic, LocalNmi, NmiSource, NmiTarget, Polarity, Trigger,
};
pub use notice::{Notice, Signature};
pub use srat::MemoryRange;
pub use tables::{DirectMap, Override, PhysicalMemory};

use alloc::vec::Vec;
use notice::Report;
use tables::Tables;

/// Where the local APIC answers unless the firmware says otherwise.
pub const DEFAULT_LOCAL_APIC: u64 = 0xfee0_0000;

/// Everything the kernel wants to know from the firmware, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firmware {
    /// The CPUs that may be started, each APIC id once, the boot CPU first and
    /// the others in the order of the MADT. Never empty.
    pub cpus: Vec<CpuEntry>,
    /// Entries of the MADT for CPUs that are disabled, and were skipped.
    pub disabled_cpus: usize,
    /// How many of the disabled ones could be enabled while the system runs.
    pub online_capable_cpus: usize,
    /// Physical address of the local APIC's registers, the same on each CPU.
    pub local_apic: u64,
    /// The IOAPICs, in the order of the MADT.
    pub io_apics: Vec<IoApic>,
    /// ISA interrupts that do not arrive at the input of their own number.
    pub interrupt_overrides: Vec<InterruptOverride>,
    /// Local APIC pins that are wired to NMI.
    pub local_nmis: Vec<LocalNmi>,
    /// IOAPIC inputs that are to be delivered as NMI.
    pub nmi_sources: Vec<NmiSource>,
    /// There are two 8259 interrupt controllers, to be masked. True when nobody
    /// says otherwise: masking one that is not there does no harm.
    pub has_8259: bool,
    /// Which memory is near which CPUs; empty without a SRAT.
    pub memory: Vec<MemoryRange>,
    /// The first HPET.
    pub hpet: Option<Hpet>,
    /// The fixed hardware that the FADT describes.
    pub fixed: FixedHardware,
    /// What was odd, in the order it was met; the caller logs it.
    pub notices: Vec<Notice>,
}

impl Firmware {
    /// The NMI pins that concern this CPU.
    pub fn local_nmis_of<'a>(&'a self, cpu: &'a CpuEntry) -> impl Iterator<Item = &'a LocalNmi> {
        self.local_nmis.iter().filter(|nmi| match nmi.target {
            NmiTarget::All => true,
            NmiTarget::Uid(uid) => cpu.acpi_uid == Some(uid),
        })
    }
}

/// Reads all tables that the kernel cares for.
///
/// `rsdp` is the physical address that the loader found, `boot_apic_id` the id
/// of the CPU that runs this. `overrides` is asked for each table by signature
/// (`"APIC"` is the MADT) before the firmware is, so a test can replace or hide
/// one.
///
/// ```ignore
/// let firmware = acpi::read(boot_info.rsdp_addr, &direct_map, &|_| None, this_apic_id());
/// for notice in &firmware.notices {
///     log::log!(notice.level(), "acpi: {notice}");
/// }
/// ```
pub fn read(
    rsdp: Option<u64>,
    memory: &impl PhysicalMemory,
    overrides: &dyn Fn(&str) -> Option<Override>,
    boot_apic_id: u32,
) -> Firmware {
    let mut report = Report::default();
    let tables = Tables::locate(rsdp, memory, overrides, &mut report);

    // Who is there, and how interrupts reach them.
    let interrupts = match tables.find(Signature::MADT, madt::MIN_BYTES, &mut report) {
        Some(table) => madt::Interrupts::read(&table, boot_apic_id, &mut report),
        None => {
            report.add(Notice::NoMadt);
            madt::Interrupts::of_boot_cpu(boot_apic_id)
        }
    };
    let madt::Interrupts {
        mut cpus,
        disabled,
        online_capable,
        local_apic,
        io_apics,
        overrides,
        local_nmis,
        nmi_sources,
        has_8259,
    } = interrupts;

    // Who is near which memory.
    let srat = tables.find(Signature::SRAT, srat::MIN_BYTES, &mut report);
    let memory = srat.map(|table| srat::read(&table, &mut cpus, &mut report)).unwrap_or_default();

    // Clocks, and the way to reset.
    let hpet = tables.find(Signature::HPET, fixed::HPET_MIN_BYTES, &mut report);
    let fadt = tables.find(Signature::FADT, fixed::FADT_MIN_BYTES, &mut report);
    let mut fixed = fadt.as_deref().map(fixed::read_fadt).unwrap_or_default();

    // And to switch off: what to write is in the one table that the FADT names.
    let dsdt = fadt.as_deref().and_then(fixed::dsdt_address);
    let dsdt = dsdt.and_then(|at| tables.at(at, Signature::DSDT));
    fixed.soft_off = dsdt.and_then(fixed::read_soft_off);

    Firmware {
        cpus,
        disabled_cpus: disabled,
        online_capable_cpus: online_capable,
        local_apic,
        io_apics,
        interrupt_overrides: overrides,
        local_nmis,
        nmi_sources,
        has_8259,
        memory,
        hpet: hpet.and_then(|table| fixed::read_hpet(&table)),
        fixed,
        notices: report.finish(),
    }
}
