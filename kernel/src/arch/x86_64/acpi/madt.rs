//! MADT and SRAT: which CPUs there are, how interrupts reach them, and their NUMA nodes.
//!
//! The MADT has two kinds of CPU entry, with APIC ids of 8 and of 32 bits, and firmware may list
//! one CPU in both. The SRAT's fields are read by their offsets (ACPI 6.5, 5.2.16); its nodes are
//! proximity domains, numbers without further meaning. Nodes count only if each CPU has one and
//! the memory of no two overlaps; else the machine is taken for one node.

use super::tables::{HEADER_BYTES, little_endian, sound_entries};
use super::{DEFAULT_LOCAL_APIC, Firmware};
use crate::arch::MAX_CPUS;
use crate::arch::x86_64::irq::apic::{Lint, LocalNmi, Polarity, Trigger};
use crate::arch::x86_64::irq::ioapic::Wiring;
use ::acpi::platform::interrupt::IoApic;
use ::acpi::sdt::madt::{
    InterruptSourceOverrideEntry, IoApicEntry, LocalApicAddressOverrideEntry, LocalApicEntry,
    LocalApicNmiEntry, LocalX2ApicEntry, Madt, MadtEntry, X2ApicNmiEntry, parse_mps_inti_flags,
};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use core::pin::Pin;
use log::Level::Info;

/// Header, local APIC address, flags.
pub(super) const MADT_MIN_BYTES: usize = size_of::<Madt>();
/// Header and twelve reserved bytes.
pub(super) const SRAT_MIN_BYTES: usize = HEADER_BYTES + 12;

/// Far more than any machine has; real ones have 1 to 9.
const MAX_IO_APICS: usize = 16;
const MAX_NMIS: usize = 2 * MAX_CPUS;

/// In CPU entries of both tables: the CPU is there, and may be started.
const ENABLED: u32 = 1 << 0;
/// In place of an APIC id or a uid: all CPUs. Entries with 8 bits have 0xff.
const ALL_CPUS: u32 = u32::MAX;

/// The kinds of MADT entry that are read, with the sizes of the crate's layouts.
const MADT_KINDS: [(u8, usize); 7] = [
    (0x0, size_of::<LocalApicEntry>()),
    (0x1, size_of::<IoApicEntry>()),
    (0x2, size_of::<InterruptSourceOverrideEntry>()),
    (0x4, size_of::<LocalApicNmiEntry>()),
    (0x5, size_of::<LocalApicAddressOverrideEntry>()),
    (0x9, size_of::<LocalX2ApicEntry>()),
    (0xa, size_of::<X2ApicNmiEntry>()),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuEntry {
    /// The address of interrupts to this CPU. Sparse, and not in any order.
    pub apic_id: u32,
    /// The firmware's own number of it, in NMI entries. `None` for a boot CPU that is not listed.
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

/// Reads a validated MADT of at least [`MADT_MIN_BYTES`].
pub(super) fn read(table: &[u8], to: &mut Firmware) {
    let mut sound = table[..MADT_MIN_BYTES].to_vec();
    sound.extend(sound_entries(table, "APIC", MADT_MIN_BYTES, &MADT_KINDS, to).flatten());
    let length = sound.len() as u32;
    sound[4..8].copy_from_slice(&length.to_le_bytes());
    // SAFETY: the layout has no padding, no alignment and no invalid values.
    let madt = unsafe { &*sound.as_ptr().cast::<Madt>() };
    // SAFETY: the crate walks `length` bytes from its beginning, all in `sound`, which is not
    // moved; each entry is in them as a whole, and is as long as the layout of its kind.
    let madt = unsafe { Pin::new_unchecked(madt) };
    to.local_apic = madt.local_apic_address.into();
    for entry in madt.entries() {
        match entry {
            MadtEntry::LocalApic(e) => {
                add_cpu(widen(e.apic_id), e.processor_id.into(), e.flags, to);
            }
            MadtEntry::LocalX2Apic(e) => {
                add_cpu(e.x2apic_id, e.processor_uid, e.flags, to);
            }
            MadtEntry::IoApic(e) => {
                let io_apic = IoApic {
                    id: e.io_apic_id,
                    address: e.io_apic_address,
                    global_system_interrupt_base: e.global_system_interrupt_base,
                };
                match to.io_apics.len() < MAX_IO_APICS {
                    true => to.io_apics.push(io_apic),
                    false => to.skip("APIC", "I/O APICs beyond the limit"),
                }
            }
            MadtEntry::InterruptSourceOverride(e) => {
                let wiring = wiring(e.global_system_interrupt, e.flags, to);
                match to.isa_overrides.get_mut(usize::from(e.irq)) {
                    Some(known) if known.is_none() => *known = Some(wiring),
                    Some(_) => to.skip("APIC", "second overrides of an ISA line"),
                    None => to.skip("APIC", "overrides of lines that ISA does not have"),
                }
            }
            MadtEntry::LocalApicNmi(e) => {
                add_nmi(widen(e.processor_id), e.nmi_line, e.flags, to);
            }
            MadtEntry::X2ApicNmi(e) => {
                add_nmi(e.processor_uid, e.nmi_line, e.flags, to);
            }
            MadtEntry::LocalApicAddressOverride(e) => to.local_apic = e.local_apic_address,
            _ => {} // not among MADT_KINDS
        }
    }
    if to.local_apic == 0 {
        to.local_apic = DEFAULT_LOCAL_APIC;
    }
    let CpuEntry { apic_id, acpi_uid, .. } = to.cpus[0];
    if acpi_uid.is_none() {
        to.warn(format!("the MADT does not list the boot CPU (APIC id {apic_id}) as enabled"));
    }
}

fn widen(id: u8) -> u32 {
    if id == 0xff { ALL_CPUS } else { id.into() }
}

/// Reserved values of polarity and trigger are read as "same as the bus".
fn wiring(gsi: u32, flags: u16, to: &mut Firmware) -> Wiring {
    let (polarity, trigger) = parse_mps_inti_flags(flags).unwrap_or_else(|_| {
        to.skip("APIC", "reserved values of polarity or trigger");
        (Polarity::SameAsBus, Trigger::SameAsBus)
    });
    Wiring { gsi, polarity, trigger }
}

fn add_nmi(uid: u32, lint: u8, flags: u16, to: &mut Firmware) {
    let lint = match lint {
        0 => Lint::Lint0,
        1 => Lint::Lint1,
        _ => return to.skip("APIC", "NMI pins that no CPU has"),
    };
    let uid = Some(uid).filter(|uid| *uid != ALL_CPUS);
    let nmi = (uid, LocalNmi { lint, polarity: wiring(0, flags, to).polarity });
    // Firmware that lists CPUs in both kinds of entry lists their pins in both kinds.
    if to.local_nmis.len() < MAX_NMIS && !to.local_nmis.contains(&nmi) {
        to.local_nmis.push(nmi);
    }
}

/// Adds a CPU that may be started, and is not listed yet.
fn add_cpu(apic_id: u32, uid: u32, flags: u32, to: &mut Firmware) {
    let cpu = CpuEntry { apic_id, acpi_uid: Some(uid), node: None };
    match to.cpus.iter().position(|known| known.apic_id == apic_id) {
        _ if flags & ENABLED == 0 => to.notice(Info, "table APIC: disabled CPUs skipped".into()),
        _ if apic_id == ALL_CPUS => to.skip("APIC", "CPUs with the broadcast APIC id"),
        // The boot CPU, which was in the list before its entry was met.
        Some(0) if to.cpus[0].acpi_uid.is_none() => to.cpus[0] = cpu,
        Some(_) => to.notice(Info, "table APIC: duplicate APIC ids skipped".into()),
        None if to.cpus.len() < MAX_CPUS => to.cpus.push(cpu),
        None => to.skip("APIC", "CPUs beyond the limit"),
    }
}

/// Reads a validated SRAT of at least [`SRAT_MIN_BYTES`].
pub(super) fn read_srat(table: &[u8], to: &mut Firmware) {
    let kinds = [(0, 16), (SRAT_MEMORY, 40), (2, 24)];
    let entries = sound_entries(table, "SRAT", SRAT_MIN_BYTES, &kinds, to);
    for entry in entries.collect::<Vec<_>>() {
        let long = |at| little_endian(&entry[at..at + 4]) as u32;
        let (apic_id, node, flags) = match entry[0] {
            // A CPU with an id of 8 bits. The domain's upper bytes stand apart.
            0 => {
                let node = u32::from_le_bytes([entry[2], entry[9], entry[10], entry[11]]);
                (entry[3].into(), node, long(4))
            }
            SRAT_MEMORY => {
                add_memory(entry, to);
                continue;
            }
            _ => (long(8), long(4), long(12)),
        };
        // The first entry about a CPU counts, as in the MADT.
        let cpu = to.cpus.iter_mut().find(|cpu| cpu.apic_id == apic_id);
        if let Some(cpu) = cpu.filter(|_| flags & ENABLED != 0) {
            cpu.node.get_or_insert(node);
        }
    }
    check_nodes(to);
}

/// The kind of SRAT entry that says which node a range of memory is near.
const SRAT_MEMORY: u8 = 1;
/// Far more ranges than any machine has.
const MAX_RANGES: usize = 256;

fn add_memory(entry: &[u8], to: &mut Firmware) {
    let quad = |at| little_endian(&entry[at..at + 8]);
    let (node, start, bytes) = (little_endian(&entry[2..6]) as u32, quad(8), quad(16));
    let is_enabled = little_endian(&entry[28..32]) as u32 & ENABLED != 0;
    match start.checked_add(bytes) {
        _ if !is_enabled || bytes == 0 => {}
        None => to.skip("SRAT", "memory beyond all addresses"),
        Some(_) if to.memory.len() == MAX_RANGES => to.skip("SRAT", "memory beyond the limit"),
        Some(end) => to.memory.push((start..end, node)),
    }
}

/// Gives up the nodes of a SRAT that cannot be true.
fn check_nodes(to: &mut Firmware) {
    let named = to.cpus.iter().filter(|cpu| cpu.node.is_some()).count();
    if named != 0 && named < to.cpus.len() {
        to.ignored("SRAT", "it names the node of some CPUs, and not of others");
        to.cpus.iter_mut().for_each(|cpu| cpu.node = None);
    }
    let overlap = |(a, m): &(Range<u64>, u32), (b, n): &(Range<u64>, u32)| {
        m != n && a.start < b.end && b.start < a.end
    };
    let pairs = to.memory.iter().enumerate();
    let mut pairs = pairs.flat_map(|(i, a)| to.memory[..i].iter().map(move |b| (a, b)));
    if pairs.any(|(a, b)| overlap(a, b)) {
        to.memory.clear();
        to.skip("SRAT", "memory of two nodes at once: all memory");
    }
    let empty = |(_, node): &(Range<u64>, u32)| !to.cpus.iter().any(|cpu| cpu.node == Some(*node));
    if named == to.cpus.len() && to.memory.iter().any(empty) {
        to.notice(Info, "table SRAT: a node with memory has no CPU".into());
    }
}
