//! Which physical addresses are memory, hence never a device's registers.
//!
//! Firmware and devices say where registers are, and are not trusted: a table that names
//! the kernel's own memory would make a driver write into it. So a driver checks
//! [`is_memory`] before it maps registers. Filled once, by `mem::init`, with the regions
//! that the survey finds usable or that the loader used itself; regions that the firmware
//! reserves are not in it, as registers may be there.

use arrayvec::ArrayVec;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::ops::Range;

/// The most ranges that are kept.
const RANGES: usize = 256;

static KNOWN: spin::Once<Known> = spin::Once::new();

/// Takes the map over.
pub fn init<'a>(regions: impl Iterator<Item = &'a MemoryRegion>) {
    KNOWN.call_once(|| Known::new(regions));
}

/// Whether one of these bytes is memory. Before [`init`], none is.
pub fn is_memory(bytes: Range<u64>) -> bool {
    KNOWN.get().is_some_and(|known| known.touches(&bytes))
}

#[derive(Default)]
struct Known(ArrayVec<Range<u64>, RANGES>);

impl Known {
    fn new<'a>(regions: impl Iterator<Item = &'a MemoryRegion>) -> Known {
        let mut known = Known::default();
        let ours = |kind| matches!(kind, MemoryRegionKind::Usable | MemoryRegionKind::Bootloader);
        for region in regions.filter(|region| ours(region.kind)) {
            known.add(region.start..region.end);
        }
        known
    }

    /// A map in order needs few ranges, as neighbours are merged. Ranges beyond the limit
    /// are left out: then less is protected, and no good address is refused.
    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => _ = self.0.try_push(range),
        }
    }

    fn touches(&self, bytes: &Range<u64>) -> bool {
        self.0.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, end: u64, kind: MemoryRegionKind) -> MemoryRegion {
        MemoryRegion { start, end, kind }
    }

    #[test]
    fn what_is_usable_or_the_loaders_is_memory_and_nothing_else_is() {
        let regions = [
            region(0x1000, 0x2000, MemoryRegionKind::Usable),
            region(0x2000, 0x3000, MemoryRegionKind::Bootloader),
            region(0x3000, 0x4000, MemoryRegionKind::UnknownBios(2)),
            region(0x9000, 0x8000, MemoryRegionKind::Usable),
        ];
        let known = Known::new(regions.iter());
        assert_eq!(known.0.len(), 1, "neighbours become one");
        for (start, end, is_memory) in [
            (0, 0x1000, false),
            (0, 0x1001, true),
            (0x2fff, 0x9000, true),
            (0x3000, 0x4000, false),
            (0x8000, 0x9000, false),
        ] {
            assert_eq!(known.touches(&(start..end)), is_memory, "{start:#x}..{end:#x}");
        }
    }

    #[test]
    fn a_map_of_too_many_pieces_is_kept_in_part() {
        let piece = |i: u64| region(i * 0x2000, i * 0x2000 + 0x1000, MemoryRegionKind::Usable);
        let regions: Vec<_> = (0..2 * RANGES as u64).map(piece).collect();
        let known = Known::new(regions.iter());
        assert!(known.touches(&(0..1)) && known.0.len() == RANGES);
    }
}
