//! The SRAT: which CPUs and which memory belong together.
//!
//! Sets the node of each CPU that the MADT gave, and collects the memory ranges.
//! Nodes are the firmware's proximity domains, numbers without further meaning.
//! Fields are read by their offsets (ACPI 6.5, 5.2.16): the crate's layouts are
//! off by a byte (see `mod.rs`).

use super::Firmware;
use super::notice::Report;
use super::tables::{HEADER_BYTES, for_each_entry, little_endian};
use core::ops::Range;

/// Header and twelve reserved bytes.
pub(super) const MIN_BYTES: usize = HEADER_BYTES + 12;

/// More ranges than any machine we know describes.
const MAX_RANGES: usize = 256;

/// In all kinds of entry: it counts.
const ENABLED: u32 = 1 << 0;
const HOT_PLUGGABLE: u32 = 1 << 1;
const NON_VOLATILE: u32 = 1 << 2;

/// Memory that is near the CPUs of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRange {
    /// Physical addresses; never empty.
    pub range: Range<u64>,
    /// The proximity domain.
    pub node: u32,
    /// The memory may be absent now and be added later.
    pub hot_pluggable: bool,
    /// The memory keeps its contents without power.
    pub non_volatile: bool,
}

/// Reads a validated SRAT of at least [`MIN_BYTES`] into `firmware`.
pub(super) fn read(table: &[u8], firmware: &mut Firmware, report: &mut Report) {
    for_each_entry(table, "SRAT", MIN_BYTES, report, |entry, report| {
        let long = |at| little_endian(&entry[at..at + 4]) as u32;
        let quad = |at| little_endian(&entry[at..at + 8]);
        match entry[0] {
            // A CPU with an id of 8 bits. The domain's upper bytes stand apart.
            0 => {
                entry.get(..16)?;
                let node = u32::from_le_bytes([entry[2], entry[9], entry[10], entry[11]]);
                set_node(firmware, entry[3].into(), node, long(4));
            }
            1 => {
                entry.get(..40)?;
                let (base, flags) = (quad(8), long(28));
                let range = base..base.checked_add(quad(16)).unwrap_or(base);
                if flags & ENABLED != 0 && !range.is_empty() {
                    let range = MemoryRange {
                        range,
                        node: long(2),
                        hot_pluggable: flags & HOT_PLUGGABLE != 0,
                        non_volatile: flags & NON_VOLATILE != 0,
                    };
                    report.push(&mut firmware.memory, MAX_RANGES, "memory affinity ranges", range);
                }
            }
            2 => {
                entry.get(..24)?;
                set_node(firmware, long(8), long(4), long(12));
            }
            // The other kinds mean nothing on this machine.
            _ => {}
        }
        Some(())
    });
}

/// The first entry about a CPU counts, as in the MADT.
fn set_node(firmware: &mut Firmware, apic_id: u32, node: u32, flags: u32) {
    let cpu = firmware.cpus.iter_mut().find(|cpu| cpu.apic_id == apic_id);
    if let Some(cpu) = cpu.filter(|_| flags & ENABLED != 0) {
        cpu.node.get_or_insert(node);
    }
}
