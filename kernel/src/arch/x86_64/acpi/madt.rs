//! The MADT: which CPUs there are, and how interrupts reach them.
//!
//! Two kinds of CPU entry exist, with APIC ids of 8 and of 32 bits, and firmware
//! may list one CPU in both. Starting CPUs and programming I/O APICs is left to
//! `machine`.
//!
//! The entries' layouts and the meaning of their flags are the `acpi` crate's.
//! The loop is `tables::for_each_entry`: the crate's `InterruptModel` panics on a
//! MADT without CPUs, gives up the whole table for one bad entry and takes the
//! first CPU for the boot CPU; the crate's iterator reads beyond the `&Madt` that
//! it was made from.

use super::notice::Report;
use super::tables::{HEADER_BYTES, for_each_entry, little_endian, view};
use super::{DEFAULT_LOCAL_APIC, Firmware};
use crate::arch::MAX_CPUS;
use crate::arch::x86_64::irq::apic::{LocalNmi, Polarity, Trigger};
use crate::arch::x86_64::irq::ioapic::{InterruptOverride, Wiring};
use ::acpi::sdt::madt::{
    InterruptSourceOverrideEntry, IoApicEntry, LocalApicAddressOverrideEntry, LocalApicEntry,
    LocalApicNmiEntry, LocalX2ApicEntry, NmiSourceEntry, X2ApicNmiEntry, parse_mps_inti_flags,
};
use log::Level;

/// Header, local APIC address, flags.
pub(super) const MIN_BYTES: usize = HEADER_BYTES + 8;

/// Far more than any machine has of these; real ones have 1 to 20.
const MAX_IO_APICS: usize = 64;
const MAX_OVERRIDES: usize = 256;
const MAX_NMIS: usize = 2 * MAX_CPUS;

/// In CPU entries: the CPU is there and may be started.
const CPU_ENABLED: u32 = 1 << 0;
/// In place of an APIC id or a uid: all CPUs. Entries with 8 bits have 0xff.
const ALL_CPUS: u32 = u32::MAX;

/// A CPU that may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuEntry {
    /// The address of interrupts to this CPU. Sparse, and not in any order.
    pub apic_id: u32,
    /// The firmware's own number of the CPU, which NMI entries refer to. `None`
    /// for a boot CPU that the MADT does not list.
    pub acpi_uid: Option<u32>,
    /// The NUMA node (proximity domain), if a SRAT names the CPU.
    pub node: Option<u32>,
}

impl CpuEntry {
    /// The id does not fit an xAPIC: the CPU can be reached in x2APIC mode only.
    pub fn needs_x2apic(&self) -> bool {
        self.apic_id >= 0xff
    }
}

/// An I/O APIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoApic {
    /// The id, as the firmware set it.
    pub id: u8,
    /// Physical address of the registers.
    pub address: u64,
    /// The global system interrupt of input 0.
    pub gsi_base: u32,
}

/// Reads a validated MADT of at least [`MIN_BYTES`] into `firmware`, which has
/// the boot CPU as its only CPU.
pub(super) fn read(table: &[u8], firmware: &mut Firmware, report: &mut Report) {
    firmware.local_apic = little_endian(&table[HEADER_BYTES..HEADER_BYTES + 4]);
    for_each_entry(table, "APIC", MIN_BYTES, report, |entry, report| {
        match entry[0] {
            0x0 => {
                let e: LocalApicEntry = view(entry)?;
                add_cpu(widen(e.apic_id), e.processor_id.into(), e.flags, firmware, report);
            }
            0x9 => {
                let e: LocalX2ApicEntry = view(entry)?;
                add_cpu(e.x2apic_id, e.processor_uid, e.flags, firmware, report);
            }
            0x1 => {
                let e: IoApicEntry = view(entry)?;
                let (id, address) = (e.io_apic_id, e.io_apic_address.into());
                let io_apic = IoApic { id, address, gsi_base: e.global_system_interrupt_base };
                report.push(&mut firmware.io_apics, MAX_IO_APICS, "too many I/O APICs: ", io_apic);
            }
            0x2 => {
                let e: InterruptSourceOverrideEntry = view(entry)?;
                let wiring = wiring(e.global_system_interrupt, e.flags, report);
                let entry = InterruptOverride { isa_irq: e.irq, wiring };
                let list = &mut firmware.interrupt_overrides;
                report.push(list, MAX_OVERRIDES, "too many interrupt source overrides: ", entry);
            }
            0x3 => {
                let e: NmiSourceEntry = view(entry)?;
                let wiring = wiring(e.global_system_interrupt, e.flags, report);
                report.push(
                    &mut firmware.nmi_sources,
                    MAX_OVERRIDES,
                    "too many NMI sources: ",
                    wiring,
                );
            }
            0x4 => {
                let e: LocalApicNmiEntry = view(entry)?;
                add_nmi(widen(e.processor_id), e.nmi_line, e.flags, firmware, report);
            }
            0xa => {
                let e: X2ApicNmiEntry = view(entry)?;
                add_nmi(e.processor_uid, e.nmi_line, e.flags, firmware, report);
            }
            0x5 => {
                let e: LocalApicAddressOverrideEntry = view(entry)?;
                firmware.local_apic = e.local_apic_address;
            }
            // The other kinds mean nothing on this machine.
            _ => {}
        }
        Some(())
    });
    if firmware.local_apic == 0 {
        firmware.local_apic = DEFAULT_LOCAL_APIC;
    }
    let boot = firmware.cpus[0];
    if boot.acpi_uid.is_none() {
        let id = boot.apic_id;
        report.warn(format_args!("the MADT does not list the boot CPU (APIC id {id}) as enabled"));
    }
}

/// An id of 8 bits as one of 32 bits.
fn widen(id: u8) -> u32 {
    if id == 0xff { ALL_CPUS } else { id.into() }
}

/// Reserved values of polarity and trigger are read as "same as the bus".
fn wiring(gsi: u32, flags: u16, report: &mut Report) -> Wiring {
    let parsed = parse_mps_inti_flags(flags);
    if parsed.is_err() {
        report.warn(format_args!(
            "reserved polarity or trigger in interrupt flags {flags:#x}: treated as ISA"
        ));
    }
    let (polarity, trigger) = parsed.unwrap_or((Polarity::SameAsBus, Trigger::SameAsBus));
    Wiring { gsi, polarity, trigger }
}

fn add_nmi(uid: u32, lint: u8, flags: u16, firmware: &mut Firmware, report: &mut Report) {
    let uid = Some(uid).filter(|uid| *uid != ALL_CPUS);
    let nmi = (uid, LocalNmi { lint, polarity: wiring(0, flags, report).polarity });
    // There is no LINT2; and firmware that lists CPUs in both kinds of entry
    // lists their pins in both kinds.
    if lint <= 1 && !firmware.local_nmis.contains(&nmi) {
        report.push(&mut firmware.local_nmis, MAX_NMIS, "too many local NMI pins: ", nmi);
    }
}

/// Adds a CPU that may be started, and is not listed yet.
fn add_cpu(apic_id: u32, uid: u32, flags: u32, to: &mut Firmware, report: &mut Report) {
    let cpu = CpuEntry { apic_id, acpi_uid: Some(uid), node: None };
    match to.cpus.iter_mut().find(|known| known.apic_id == apic_id) {
        _ if flags & CPU_ENABLED == 0 => {
            report.tally(Level::Info, "", " disabled CPUs in the MADT, skipped");
        }
        _ if apic_id == ALL_CPUS => {
            report.tally(Level::Warn, "", " CPUs with the broadcast APIC id in the MADT, skipped");
        }
        // The boot CPU, which was in the list before its entry was met.
        Some(boot) if boot.acpi_uid.is_none() => *boot = cpu,
        Some(_) => report.tally(Level::Info, "", " duplicate APIC ids in the MADT, dropped"),
        None => report.push(&mut to.cpus, MAX_CPUS, "too many CPUs: ", cpu),
    }
}
