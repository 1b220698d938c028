//! The MADT: which CPUs there are, and how interrupts reach them.
//!
//! Two forms of CPU entry exist, for 8-bit and for 32-bit APIC ids, and firmware
//! may list one CPU in both. Whether a CPU is then started, and what an override
//! does to an IOAPIC, is decided elsewhere.

use super::DEFAULT_LOCAL_APIC;
use super::notice::{Bounded, Notice, Report, Signature};
use super::tables::{Entry, HEADER_BYTES, Plain, entries, view};
use crate::arch::MAX_CPUS;
use ::acpi::sdt::madt::{
    InterruptSourceOverrideEntry, IoApicEntry, LocalApicAddressOverrideEntry, LocalApicEntry,
    LocalApicNmiEntry, LocalX2ApicEntry, NmiSourceEntry, X2ApicNmiEntry, parse_mps_inti_flags,
};
use alloc::vec;
use alloc::vec::Vec;

/// Header, local APIC address, flags.
pub(super) const MIN_BYTES: usize = HEADER_BYTES + 8;

/// Far more than any machine has of these; real ones have 1 to 20.
const MAX_IO_APICS: usize = 64;
const MAX_OVERRIDES: usize = 256;
const MAX_NMIS: usize = 2 * MAX_CPUS;

/// In CPU entries: the CPU is there and may be started.
const CPU_ENABLED: u32 = 1 << 0;
/// In CPU entries that are not enabled: it could be, while the system runs.
const CPU_ONLINE_CAPABLE: u32 = 1 << 1;
/// In the MADT's flags: two 8259 controllers are wired up as well.
const PC_AT_COMPATIBLE: u32 = 1 << 0;

/// A CPU that may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuEntry {
    /// What interrupts to it are addressed to. Sparse, and not in any order.
    pub apic_id: u32,
    /// The firmware's own number for it, which NMI entries refer to. `None` for
    /// a boot CPU that the MADT forgot.
    pub acpi_uid: Option<u32>,
    /// Its NUMA node (proximity domain), if there is a SRAT that names it.
    pub node: Option<u32>,
}

impl CpuEntry {
    /// Its id does not fit an xAPIC, so it can be reached in x2APIC mode only.
    pub fn needs_x2apic(&self) -> bool {
        self.apic_id >= 0xff
    }
}

/// An IOAPIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoApic {
    /// Its id, as the firmware set it.
    pub id: u8,
    /// Physical address of its registers.
    pub address: u64,
    /// The global system interrupt of its input 0.
    pub gsi_base: u32,
}

/// Which level of an interrupt line means "now".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// As the bus has it: high for ISA, low for PCI.
    SameAsBus,
    /// High.
    ActiveHigh,
    /// Low.
    ActiveLow,
}

/// Whether an interrupt is an event or a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// As the bus has it: edge for ISA, level for PCI.
    SameAsBus,
    /// Once, when the line becomes active.
    Edge,
    /// As long as the line is active.
    Level,
}

/// An interrupt of a bus that arrives at another input than its own number, or
/// in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptOverride {
    /// The bus; 0, ISA, is the only one there is.
    pub bus: u8,
    /// The number on the bus.
    pub irq: u8,
    /// The global system interrupt at which it arrives.
    pub gsi: u32,
    /// Its polarity.
    pub polarity: Polarity,
    /// Its trigger.
    pub trigger: Trigger,
}

/// Whom an NMI entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NmiTarget {
    /// All CPUs.
    All,
    /// The CPU with this ACPI uid.
    Uid(u32),
}

/// A pin of a local APIC that is wired to NMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalNmi {
    /// On which CPUs.
    pub target: NmiTarget,
    /// LINT0 or LINT1.
    pub lint: u8,
    /// Its polarity.
    pub polarity: Polarity,
    /// Its trigger.
    pub trigger: Trigger,
}

/// An IOAPIC input that is to be delivered as NMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NmiSource {
    /// The global system interrupt.
    pub gsi: u32,
    /// Its polarity.
    pub polarity: Polarity,
    /// Its trigger.
    pub trigger: Trigger,
}

/// What the MADT says, in the words of [`super::Firmware`].
pub(super) struct Interrupts {
    pub(super) cpus: Vec<CpuEntry>,
    pub(super) disabled: usize,
    pub(super) online_capable: usize,
    pub(super) local_apic: u64,
    pub(super) io_apics: Vec<IoApic>,
    pub(super) overrides: Vec<InterruptOverride>,
    pub(super) local_nmis: Vec<LocalNmi>,
    pub(super) nmi_sources: Vec<NmiSource>,
    pub(super) has_8259: bool,
}

impl Interrupts {
    /// What we assume without a MADT.
    pub(super) fn of_boot_cpu(boot_apic_id: u32) -> Self {
        Interrupts {
            cpus: vec![CpuEntry { apic_id: boot_apic_id, acpi_uid: None, node: None }],
            disabled: 0,
            online_capable: 0,
            local_apic: DEFAULT_LOCAL_APIC,
            io_apics: Vec::new(),
            overrides: Vec::new(),
            local_nmis: Vec::new(),
            nmi_sources: Vec::new(),
            has_8259: true,
        }
    }

    /// Reads a validated MADT of at least [`MIN_BYTES`].
    pub(super) fn read(table: &[u8], boot_apic_id: u32, report: &mut Report) -> Self {
        let [address, flags] = view::<[u32; 2]>(&table[HEADER_BYTES..]).unwrap_or_default();
        let mut reader = Reader::new(boot_apic_id, u64::from(address), report);
        for entry in entries(table, MIN_BYTES) {
            match entry {
                // A short entry is noted and left out; the walk goes on behind it.
                Ok(entry) => _ = reader.entry(&entry),
                Err(at) => reader.report.add(Notice::BrokenEntry(Signature::MADT, at)),
            }
        }
        reader.finish(flags & PC_AT_COMPATIBLE != 0)
    }
}

/// Collects while the entries go by.
struct Reader<'r> {
    report: &'r mut Report,
    cpus: Cpus,
    local_apic: u64,
    io_apics: Bounded<IoApic>,
    overrides: Bounded<InterruptOverride>,
    local_nmis: Bounded<LocalNmi>,
    nmi_sources: Bounded<NmiSource>,
}

impl<'r> Reader<'r> {
    fn new(boot_apic_id: u32, local_apic: u64, report: &'r mut Report) -> Self {
        Reader {
            report,
            cpus: Cpus::new(boot_apic_id),
            local_apic,
            io_apics: Bounded::new(MAX_IO_APICS),
            overrides: Bounded::new(MAX_OVERRIDES),
            local_nmis: Bounded::new(MAX_NMIS),
            nmi_sources: Bounded::new(MAX_OVERRIDES),
        }
    }

    /// Takes in one entry; kinds that mean nothing on this machine pass.
    fn entry(&mut self, entry: &Entry<'_>) -> Option<()> {
        match entry.kind {
            0x0 => {
                let e: LocalApicEntry = self.view(entry)?;
                let broadcast = e.apic_id == 0xff;
                self.cpus.add(e.apic_id.into(), e.processor_id.into(), e.flags, broadcast);
            }
            0x9 => {
                let e: LocalX2ApicEntry = self.view(entry)?;
                let broadcast = e.x2apic_id == u32::MAX;
                self.cpus.add(e.x2apic_id, e.processor_uid, e.flags, broadcast);
            }
            0x1 => {
                let e: IoApicEntry = self.view(entry)?;
                self.io_apics.push(IoApic {
                    id: e.io_apic_id,
                    address: e.io_apic_address.into(),
                    gsi_base: e.global_system_interrupt_base,
                });
            }
            0x2 => {
                let e: InterruptSourceOverrideEntry = self.view(entry)?;
                let (polarity, trigger) = self.flags(e.flags);
                let gsi = e.global_system_interrupt;
                let (bus, irq) = (e.bus, e.irq);
                self.overrides.push(InterruptOverride { bus, irq, gsi, polarity, trigger });
            }
            0x3 => {
                let e: NmiSourceEntry = self.view(entry)?;
                let (polarity, trigger) = self.flags(e.flags);
                let gsi = e.global_system_interrupt;
                self.nmi_sources.push(NmiSource { gsi, polarity, trigger });
            }
            0x4 => {
                let e: LocalApicNmiEntry = self.view(entry)?;
                let all = e.processor_id == 0xff;
                self.local_nmi(all, e.processor_id.into(), e.nmi_line, e.flags);
            }
            0xa => {
                let e: X2ApicNmiEntry = self.view(entry)?;
                let all = e.processor_uid == u32::MAX;
                self.local_nmi(all, e.processor_uid, e.nmi_line, e.flags);
            }
            0x5 => {
                let e: LocalApicAddressOverrideEntry = self.view(entry)?;
                self.local_apic = e.local_apic_address;
            }
            _ => {}
        }
        Some(())
    }

    fn local_nmi(&mut self, all: bool, uid: u32, lint: u8, flags: u16) {
        let target = if all { NmiTarget::All } else { NmiTarget::Uid(uid) };
        let (polarity, trigger) = self.flags(flags);
        let nmi = LocalNmi { target, lint, polarity, trigger };
        // There is no LINT2; and firmware that lists CPUs in both forms lists
        // their pins in both forms.
        if lint <= 1 && !self.local_nmis.items().contains(&nmi) {
            self.local_nmis.push(nmi);
        }
    }

    /// The two fields of the flags word that MADT entries share.
    fn flags(&mut self, flags: u16) -> (Polarity, Trigger) {
        use ::acpi::sdt::madt::{Polarity as P, TriggerMode as T};
        let Ok((polarity, trigger)) = parse_mps_inti_flags(flags) else {
            self.report.add(Notice::ReservedFlags(flags));
            return (Polarity::SameAsBus, Trigger::SameAsBus);
        };
        let polarity = match polarity {
            P::SameAsBus => Polarity::SameAsBus,
            P::ActiveHigh => Polarity::ActiveHigh,
            P::ActiveLow => Polarity::ActiveLow,
        };
        let trigger = match trigger {
            T::SameAsBus => Trigger::SameAsBus,
            T::Edge => Trigger::Edge,
            T::Level => Trigger::Level,
        };
        (polarity, trigger)
    }

    fn view<T: Plain>(&mut self, entry: &Entry<'_>) -> Option<T> {
        entry.view(Signature::MADT, self.report)
    }

    fn finish(self, has_8259: bool) -> Interrupts {
        let report = self.report;
        let (disabled, online_capable) = (self.cpus.disabled, self.cpus.online_capable);
        let local_apic = match self.local_apic {
            0 => DEFAULT_LOCAL_APIC,
            address => address,
        };
        Interrupts {
            cpus: self.cpus.finish(report),
            disabled,
            online_capable,
            local_apic,
            io_apics: self.io_apics.finish("IOAPICs", report),
            overrides: self.overrides.finish("interrupt source overrides", report),
            local_nmis: self.local_nmis.finish("local NMI pins", report),
            nmi_sources: self.nmi_sources.finish("NMI sources", report),
            has_8259,
        }
    }
}

/// The list of CPUs as it grows: each id once, the boot CPU first.
struct Cpus {
    list: Bounded<CpuEntry>,
    boot_apic_id: u32,
    boot_uid: Option<u32>,
    duplicates: usize,
    first_duplicate: u32,
    disabled: usize,
    online_capable: usize,
    broadcast: usize,
}

impl Cpus {
    fn new(boot_apic_id: u32) -> Self {
        Cpus {
            // One place is the boot CPU's, whether it is listed or not.
            list: Bounded::new(MAX_CPUS - 1),
            boot_apic_id,
            boot_uid: None,
            duplicates: 0,
            first_duplicate: 0,
            disabled: 0,
            online_capable: 0,
            broadcast: 0,
        }
    }

    fn add(&mut self, apic_id: u32, acpi_uid: u32, flags: u32, is_broadcast: bool) {
        if flags & CPU_ENABLED == 0 {
            self.disabled += 1;
            self.online_capable += usize::from(flags & CPU_ONLINE_CAPABLE != 0);
        } else if is_broadcast {
            self.broadcast += 1;
        } else if self.has(apic_id) {
            if self.duplicates == 0 {
                self.first_duplicate = apic_id;
            }
            self.duplicates += 1;
        } else if apic_id == self.boot_apic_id {
            self.boot_uid = Some(acpi_uid);
        } else {
            self.list.push(CpuEntry { apic_id, acpi_uid: Some(acpi_uid), node: None });
        }
    }

    fn has(&self, apic_id: u32) -> bool {
        if apic_id == self.boot_apic_id {
            return self.boot_uid.is_some();
        }
        self.list.items().iter().any(|cpu| cpu.apic_id == apic_id)
    }

    fn finish(self, report: &mut Report) -> Vec<CpuEntry> {
        let (apic_id, acpi_uid) = (self.boot_apic_id, self.boot_uid);
        if acpi_uid.is_none() {
            report.add(Notice::BootCpuNotListed(apic_id));
        }
        if self.duplicates > 0 {
            report.add(Notice::DuplicateCpus(self.duplicates, self.first_duplicate));
        }
        if self.disabled > 0 {
            report.add(Notice::DisabledCpus(self.disabled, self.online_capable));
        }
        if self.broadcast > 0 {
            report.add(Notice::BroadcastCpus(self.broadcast));
        }
        let mut cpus = vec![CpuEntry { apic_id, acpi_uid, node: None }];
        cpus.extend(self.list.finish("CPUs", report));
        cpus
    }
}

macro_rules! plain {
    ($($layout:ty),* $(,)?) => {
        // SAFETY: packed structs of integers, checked against the ACPI tables.
        $(unsafe impl Plain for $layout {})*
    };
}

plain!(
    [u32; 2],
    LocalApicEntry,
    LocalX2ApicEntry,
    IoApicEntry,
    InterruptSourceOverrideEntry,
    NmiSourceEntry,
    LocalApicNmiEntry,
    X2ApicNmiEntry,
    LocalApicAddressOverrideEntry,
);
