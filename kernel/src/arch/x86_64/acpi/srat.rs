//! The SRAT: which NUMA node each CPU belongs to.
//!
//! Nodes are the firmware's proximity domains, numbers without further meaning. Fields are
//! read by their offsets (ACPI 6.5, 5.2.16): the crate's layouts are off by a byte (see
//! `mod.rs`). Which memory is near which node is not read: the allocator has no use for it.

use super::Firmware;
use super::notice::Report;
use super::tables::{HEADER_BYTES, for_each_entry, little_endian};

/// Header and twelve reserved bytes.
pub(super) const MIN_BYTES: usize = HEADER_BYTES + 12;

/// In all kinds of entry: it counts.
const ENABLED: u32 = 1 << 0;

/// Reads a validated SRAT of at least [`MIN_BYTES`] into `firmware`.
pub(super) fn read(table: &[u8], firmware: &mut Firmware, report: &mut Report) {
    for_each_entry(table, "SRAT", MIN_BYTES, report, |entry, _| {
        let long = |at| little_endian(&entry[at..at + 4]) as u32;
        match entry[0] {
            // A CPU with an id of 8 bits. The domain's upper bytes stand apart.
            0 => {
                entry.get(..16)?;
                let node = u32::from_le_bytes([entry[2], entry[9], entry[10], entry[11]]);
                set_node(firmware, entry[3].into(), node, long(4));
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
