//! Which regions of the memory map really are unused memory.
//!
//! A map may call addresses usable where there is no memory: beyond the last module, over the
//! registers of a device. Writes to such a frame would be lost, and a page table in it would crash
//! the machine without a message. So each usable region is cut into the pieces that no reserved one
//! touches, and a few frames of each piece must hold what is written to them. Pieces that do not
//! are left out, with a warning. What remains are pieces of whole frames that do not overlap.
//!
//! The first and the last frame are tried and [`SAMPLES`] in between, not all: a host gives a
//! virtual machine the memory that it touches. So a small hole in the middle of a piece is not
//! found, nor a device whose registers keep what is written, nor memory at two addresses.
//!
//! What is found is remembered for drivers ([`is_memory`]): firmware and devices say where
//! registers are, and a table that names the kernel's own memory would make a driver write into it.
//!
//! Called once, by `mem::init`; `arch` knows how to try a frame.

use super::PAGE_SIZE;
use crate::arch::text_enum;
use arrayvec::ArrayVec;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::ops::Range;

const PAGE: u64 = PAGE_SIZE as u64;
/// The steps in which a piece is tried from its first to its last frame.
const SAMPLES: u64 = 8;

text_enum! {
    /// Why memory that the map calls usable is not used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Why {
        Backwards => "it ends before it begins",
        NotMapped => "the loader has not mapped it",
        NoMemory => "what is written there is lost",
        TooMany => "the map is in too many pieces",
    }
}

/// A memory map in several parts, in no order.
#[derive(Clone, Copy)]
pub struct Map<'a>(pub &'a [&'a [MemoryRegion]]);

impl<'a> Map<'a> {
    pub fn regions(self) -> impl Iterator<Item = &'a MemoryRegion> {
        self.0.iter().copied().flatten()
    }

    pub fn highest_usable(self) -> u64 {
        self.usable().map(|region| frames_inside(region).end).max().unwrap_or(0)
    }

    fn usable(self) -> impl Iterator<Item = &'a MemoryRegion> {
        self.regions().filter(|region| region.kind == MemoryRegionKind::Usable)
    }

    /// The first part of `range` that neither a reserved region nor one of `pieces` touches.
    fn next_piece(self, mut range: Range<u64>, pieces: &[MemoryRegion]) -> Option<Range<u64>> {
        let taken = || {
            let reserved = self.regions().filter(|region| region.kind != MemoryRegionKind::Usable);
            reserved.chain(pieces).map(frames_touched)
        };
        // Every round moves past the end of one region, so there are at most as many rounds.
        while let Some(over) = taken().find(|r| r.contains(&range.start)) {
            range.start = over.end;
        }
        let ahead = taken().filter(|r| r.start > range.start && !r.is_empty());
        range.end = ahead.map(|r| r.start).fold(range.end, u64::min);
        (!range.is_empty()).then_some(range)
    }
}

/// The addresses of the frames that lie wholly inside a region.
fn frames_inside(region: &MemoryRegion) -> Range<u64> {
    region.start.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)..region.end & !(PAGE - 1)
}

/// The addresses of the frames that a region touches, up to the highest address. A region that ends
/// before it starts is an error; it reserves the frame it starts in, which can do no harm.
fn frames_touched(region: &MemoryRegion) -> Range<u64> {
    let end = region.end.max(region.start.saturating_add(u64::from(region.end < region.start)));
    region.start & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)
}

/// Writes the sound part of `map` below `limit` to `out`, as usable regions of whole frames.
/// `holds` says whether the frame at an address keeps what is written.
pub fn survey<'out>(
    map: Map<'_>,
    limit: u64,
    mut holds: impl FnMut(u64) -> bool,
    out: &'out mut [MemoryRegion],
    mut leave_out: impl FnMut(Range<u64>, Why),
) -> &'out mut [MemoryRegion] {
    let limit = limit & !(PAGE - 1);
    let mut count = 0;
    for region in map.usable() {
        if region.end < region.start {
            leave_out(region.start..region.end, Why::Backwards);
        }
        let mut rest = frames_inside(region);
        if !rest.is_empty() && rest.end > limit {
            leave_out(rest.start.max(limit)..rest.end, Why::NotMapped);
            rest.end = limit;
        }
        while let Some(piece) = map.next_piece(rest.clone(), &out[..count]) {
            rest.start = piece.end;
            let Some(free) = out.get_mut(count) else {
                // Trying more would take long, and change nothing.
                leave_out(piece.start..rest.end, Why::TooMany);
                break;
            };
            let end = end_of_memory(&piece, &mut holds);
            if end < piece.end {
                leave_out(end..piece.end, Why::NoMemory);
            }
            if piece.start < end {
                *free = MemoryRegion { start: piece.start, end, kind: MemoryRegionKind::Usable };
                count += 1;
            }
        }
    }
    &mut out[..count]
}

/// The end of memory in a piece of whole frames that is not empty: its own end, as it should be, or
/// the first frame that does not hold, found by bisection.
fn end_of_memory(piece: &Range<u64>, mut holds: impl FnMut(u64) -> bool) -> u64 {
    let (first, last) = (piece.start / PAGE, piece.end / PAGE - 1);
    if !holds(first * PAGE) {
        return piece.start;
    }
    let mut good = first;
    for step in 1..=SAMPLES {
        let mut bad = first + (last - first) * step / SAMPLES;
        if bad == good || holds(bad * PAGE) {
            good = bad;
            continue;
        }
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if holds(middle * PAGE) { good = middle } else { bad = middle }
        }
        return bad * PAGE;
    }
    piece.end
}

const RANGES: usize = 256;

static MEMORY: spin::Once<ArrayVec<Range<u64>, RANGES>> = spin::Once::new();

/// Remembers that these regions are memory. Called once.
pub fn remember<'a>(regions: impl Iterator<Item = &'a MemoryRegion>) {
    MEMORY.call_once(|| merged(regions));
}

/// Whether one of these bytes is memory that the survey kept or that the loader uses, hence no
/// register of a device. What the firmware reserves is not: registers may be there.
pub fn is_memory(bytes: Range<u64>) -> bool {
    MEMORY.get().is_some_and(|ranges| touches(ranges, &bytes))
}

fn touches(ranges: &[Range<u64>], bytes: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
}

/// A map in order needs few ranges, as neighbours are merged. Ranges beyond the limit are left out:
/// then less is protected, and no good address is refused.
fn merged<'a>(regions: impl Iterator<Item = &'a MemoryRegion>) -> ArrayVec<Range<u64>, RANGES> {
    let mut ranges = ArrayVec::<Range<u64>, RANGES>::new();
    for region in regions.filter(|region| region.start < region.end) {
        match ranges.last_mut() {
            Some(last) if last.end == region.start => last.end = region.end,
            _ => _ = ranges.try_push(region.start..region.end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn usable(start: u64, end: u64) -> MemoryRegion {
        MemoryRegion { start, end, kind: MemoryRegionKind::Usable }
    }

    fn reserved(start: u64, end: u64) -> MemoryRegion {
        MemoryRegion { start, end, kind: MemoryRegionKind::UnknownBios(2) }
    }

    type Ends = (u64, u64);

    /// The ranges kept and the ranges left out, on a machine with memory in `there`.
    fn look(regions: &[MemoryRegion], limit: u64, there: &[Ends]) -> (Vec<Ends>, Vec<(Ends, Why)>) {
        let mut out = [MemoryRegion::empty(); 16];
        let mut left = Vec::new();
        let holds = |at: u64| there.iter().any(|&(start, end)| (start..end).contains(&at));
        // In two parts, as the loader passes them.
        let (ours, added) = regions.split_at(regions.len() / 2);
        let note = |range: Range<u64>, why| left.push(((range.start, range.end), why));
        let kept = survey(Map(&[ours, added]), limit, holds, &mut out, note);
        (kept.iter().map(|r| (r.start, r.end)).collect(), left)
    }

    #[test]
    fn a_sound_map_stays_as_it_is_and_few_frames_are_touched() {
        let regions = [usable(0, 640 << 10), usable(MIB, 3 * GIB), reserved(3 * GIB, 4 * GIB)];
        let mut tried = 0;
        let mut out = [MemoryRegion::empty(); 4];
        let count = |_| {
            tried += 1;
            true
        };
        let none = |range, why| panic!("{range:?} {why:?}");
        let kept = survey(Map(&[&regions]), 3 * GIB, count, &mut out, none);
        assert_eq!(kept, &regions[..2]);
        assert!(tried <= 2 * (SAMPLES + 1), "{tried}");
    }

    #[test]
    fn memory_that_ends_early_is_cut_to_the_frame() {
        for end in [MIB + PAGE, 2 * MIB - PAGE, 700 * MIB + 3 * PAGE, GIB - PAGE] {
            let (kept, left) = look(&[usable(MIB, GIB)], GIB, &[(0, end)]);
            assert_eq!(kept, [(MIB, end)]);
            assert_eq!(left, [((end, GIB), Why::NoMemory)]);
        }
    }

    #[test]
    fn a_region_without_memory_is_left_out_and_the_others_stay() {
        let regions = [usable(2 * GIB, 3 * GIB), usable(MIB, GIB), usable(GIB - PAGE, 2 * GIB)];
        let (kept, left) = look(&regions, 4 * GIB, &[(0, GIB), (GIB + GIB / 2, 2 * GIB)]);
        assert_eq!(kept, [(MIB, GIB)], "no frame is in two pieces");
        let lost = [(2 * GIB, 3 * GIB), (GIB, 2 * GIB)];
        assert_eq!(left, lost.map(|range| (range, Why::NoMemory)));
    }

    #[test]
    fn a_large_hole_is_found_and_what_was_there_before_it_is_kept() {
        let there = [(0, GIB), (2 * GIB, 4 * GIB)];
        let (kept, left) = look(&[usable(MIB, 4 * GIB)], 4 * GIB, &there);
        assert_eq!(kept, [(MIB, GIB)]);
        assert_eq!(left, [((GIB, 4 * GIB), Why::NoMemory)]);
    }

    #[test]
    fn reserved_wins_whatever_the_order() {
        let regions = [
            reserved(2 * MIB + 1, 2 * MIB + 2),
            usable(MIB, 4 * MIB),
            reserved(3 * MIB, 3 * MIB),
            reserved(3 * MIB - 5, 3 * MIB + 5),
            reserved(0, MIB + PAGE),
        ];
        let all = [(0, GIB)];
        let (kept, left) = look(&regions, GIB, &all);
        let second = (2 * MIB + PAGE, 3 * MIB - PAGE);
        assert_eq!(kept, [(MIB + PAGE, 2 * MIB), second, (3 * MIB + PAGE, 4 * MIB)]);
        assert_eq!(left, []);
        assert_eq!(look(&[usable(0, GIB), reserved(0, u64::MAX)], GIB, &all).0, []);
    }

    #[test]
    fn what_is_backwards_or_beyond_the_window_is_named() {
        let regions = [
            usable(5 * MIB, 4 * MIB),
            usable(7, 7),
            usable(MIB, u64::MAX),
            usable(1 << 50, 1 << 51),
        ];
        let (kept, left) = look(&regions, GIB, &[(0, u64::MAX)]);
        assert_eq!(kept, [(MIB, GIB)]);
        let [first, second] = [(GIB, !(PAGE - 1)), (1 << 50, 1 << 51)];
        assert_eq!(left[0], ((5 * MIB, 4 * MIB), Why::Backwards));
        assert_eq!(left[1..], [(first, Why::NotMapped), (second, Why::NotMapped)]);
    }

    #[test]
    fn too_many_pieces_are_told_once_a_region() {
        let mut regions = vec![usable(MIB, 64 * MIB), usable(0, 32 * MIB)];
        regions.extend((1..63).map(|i| reserved(i * MIB, i * MIB + 1)));
        let (kept, left) = look(&regions, GIB, &[(0, GIB)]);
        assert_eq!(kept.len(), 16);
        assert_eq!(left[0], ((17 * MIB + PAGE, 64 * MIB), Why::TooMany));
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn what_is_remembered_is_memory_and_nothing_else_is() {
        let regions = [usable(0x1000, 0x2000), usable(0x2000, 0x3000), usable(0x9000, 0x8000)];
        let ranges = merged(regions.iter());
        assert_eq!(ranges.len(), 1, "neighbours become one");
        for (start, end, is_memory) in [
            (0, 0x1000, false),
            (0, 0x1001, true),
            (0x2fff, 0x9000, true),
            (0x3000, 0x4000, false),
            (0x8000, 0x9000, false),
        ] {
            assert_eq!(touches(&ranges, &(start..end)), is_memory, "{start:#x}..{end:#x}");
        }
    }

    #[test]
    fn a_map_of_too_many_pieces_is_remembered_in_part() {
        let piece = |i: u64| usable(i * 0x2000, i * 0x2000 + 0x1000);
        let regions: Vec<_> = (0..2 * RANGES as u64).map(piece).collect();
        let ranges = merged(regions.iter());
        assert!(touches(&ranges, &(0..1)) && ranges.len() == RANGES);
    }
}
