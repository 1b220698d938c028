//! The SRAT: which CPUs and which memory belong together.
//!
//! Fills in the node of each CPU that the MADT gave, and keeps the memory
//! ranges. Nodes are the firmware's proximity domains, numbers without further
//! meaning. Placing memory and Gs by node is left to others.

use super::madt::CpuEntry;
use super::notice::{Bounded, Notice, Report, Signature};
use super::tables::{Entry, HEADER_BYTES, Plain, entries};
use alloc::vec::Vec;
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
    /// It may be absent now and come later.
    pub hot_pluggable: bool,
    /// It keeps its contents without power.
    pub non_volatile: bool,
}

/// Reads a validated SRAT of at least [`MIN_BYTES`].
pub(super) fn read(table: &[u8], cpus: &mut [CpuEntry], report: &mut Report) -> Vec<MemoryRange> {
    let mut memory = Bounded::new(MAX_RANGES);
    for entry in entries(table, MIN_BYTES) {
        match entry {
            // A short entry is noted and left out; the walk goes on behind it.
            Ok(entry) => _ = read_entry(&entry, cpus, &mut memory, report),
            Err(at) => report.add(Notice::BrokenEntry(Signature::SRAT, at)),
        }
    }
    memory.finish("memory affinity ranges", report)
}

/// Takes in one entry; kinds that mean nothing on this machine pass.
fn read_entry(
    entry: &Entry<'_>,
    cpus: &mut [CpuEntry],
    memory: &mut Bounded<MemoryRange>,
    report: &mut Report,
) -> Option<()> {
    match entry.kind {
        0 => {
            let e: ApicAffinity = entry.view(Signature::SRAT, report)?;
            let [a, b, c] = e.domain_high;
            let node = u32::from_le_bytes([e.domain_low, a, b, c]);
            set_node(cpus, e.apic_id.into(), node, e.flags);
        }
        1 => {
            let e: MemoryAffinity = entry.view(Signature::SRAT, report)?;
            memory.push(e.range()?);
        }
        2 => {
            let e: X2ApicAffinity = entry.view(Signature::SRAT, report)?;
            set_node(cpus, e.x2apic_id, e.domain, e.flags);
        }
        _ => {}
    }
    Some(())
}

/// The first entry about a CPU counts, as in the MADT.
fn set_node(cpus: &mut [CpuEntry], apic_id: u32, node: u32, flags: u32) {
    if flags & ENABLED == 0 {
        return;
    }
    if let Some(cpu) = cpus.iter_mut().find(|cpu| cpu.apic_id == apic_id) {
        cpu.node.get_or_insert(node);
    }
}

// The layouts are our own: the crate's are off by a byte (see `mod.rs`). `head`
// is kind and length.

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct ApicAffinity {
    head: [u8; 2],
    domain_low: u8,
    apic_id: u8,
    flags: u32,
    sapic_eid: u8,
    domain_high: [u8; 3],
    clock_domain: u32,
}

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct MemoryAffinity {
    head: [u8; 2],
    domain: u32,
    reserved: [u8; 2],
    base: u64,
    length: u64,
    reserved_too: u32,
    flags: u32,
    reserved_as_well: u64,
}

impl MemoryAffinity {
    fn range(&self) -> Option<MemoryRange> {
        let flags = self.flags;
        let end = { self.base }.checked_add(self.length)?;
        let range = MemoryRange {
            range: self.base..end,
            node: self.domain,
            hot_pluggable: flags & HOT_PLUGGABLE != 0,
            non_volatile: flags & NON_VOLATILE != 0,
        };
        Some(range).filter(|range| flags & ENABLED != 0 && !range.range.is_empty())
    }
}

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct X2ApicAffinity {
    head: [u8; 2],
    reserved: [u8; 2],
    domain: u32,
    x2apic_id: u32,
    flags: u32,
    clock_domain: u32,
    reserved_too: u32,
}

const _: () = assert!(size_of::<ApicAffinity>() == 16);
const _: () = assert!(size_of::<MemoryAffinity>() == 40);
const _: () = assert!(size_of::<X2ApicAffinity>() == 24);

// SAFETY: a packed struct of integers.
unsafe impl Plain for ApicAffinity {}
// SAFETY: a packed struct of integers.
unsafe impl Plain for MemoryAffinity {}
// SAFETY: a packed struct of integers.
unsafe impl Plain for X2ApicAffinity {}
