//! Memory maps that no honest loader makes, and what the frames promise on them.
//!
//! A map is the end of mapped memory and that of memory that is there (8 bytes each),
//! and regions of 17 bytes: start, end, kind.

use super::Bytes;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use runnext::internals::mem::PAGE_SIZE;
use runnext::internals::mem::frames::Frame;
use runnext::internals::parsers::{Frames, LOW_END, Stock, cut_bitmap};
use runnext::internals::parsers::{Map, Why, survey};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

const PAGE: u64 = PAGE_SIZE as u64;
/// The most regions of a map that are looked at.
const MAX_REGIONS: usize = 64;
/// The most memory whose frames are taken one by one.
const DRAINED: u64 = 16 << 20;
/// The most pieces that a survey may keep.
const MAX_PIECES: usize = 512;

/// The bitmap is in memory that is usable and nobody else's, and so is every
/// frame; none is given twice, and frame 0 never.
pub fn map(bytes: &[u8]) -> bool {
    let mut bytes = Bytes(bytes);
    let (limit, there) = (bytes.u64().unwrap_or(0), bytes.u64().unwrap_or(0));
    let regions: Vec<_> = std::iter::from_fn(|| region(&mut bytes)).take(MAX_REGIONS).collect();
    let limit = limit.min(Map(&[&regions]).highest_usable());
    let mut buffer = vec![MemoryRegion::empty(); MAX_PIECES];
    let pieces = look(&regions, limit, there, &mut buffer);
    let bitmap = cut_bitmap(pieces);
    if let Some((home, words)) = bitmap {
        let bytes = 8 * words as u64;
        assert!(home.is_multiple_of(PAGE) && home >= LOW_END);
        assert!(home.checked_add(bytes).is_some_and(|last| last <= limit));
        assert!(is_ours(&regions, home, bytes), "the bitmap at {home:#x} is not ours");
        let is_inside = |piece: &MemoryRegion| piece.start < home + bytes && home < piece.end;
        assert!(!pieces.iter().any(is_inside), "the bitmap at {home:#x} is given away");
    }
    drain(&regions, pieces);
    bitmap.is_some()
}

/// A survey tries nobody else's frames, and keeps all that is usable, mapped and
/// there, once, and nothing else.
fn look<'out>(
    regions: &[MemoryRegion],
    limit: u64,
    there: u64,
    buffer: &'out mut [MemoryRegion],
) -> &'out mut [MemoryRegion] {
    let mut is_cut = false;
    let holds = |at: u64| {
        assert!(at.checked_add(PAGE).is_some_and(|end| end <= limit), "{at:#x} is not mapped");
        assert!(is_ours(regions, at, PAGE), "{at:#x} was tried");
        at < there
    };
    let note = |range: Range<u64>, why| {
        is_cut |= why == Why::TooMany;
        assert!(why == Why::Backwards || !range.is_empty(), "{range:?} {why:?}");
    };
    let pieces = survey(Map(&[regions]), limit, holds, buffer, note);
    for piece in &*pieces {
        assert!(piece.start < piece.end && (piece.start | piece.end).is_multiple_of(PAGE));
        assert!(piece.end <= limit && piece.end - PAGE < there, "{piece:x?}");
        let overlaps = pieces.iter().filter(|p| p.start < piece.end && piece.start < p.end);
        assert_eq!(overlaps.count(), 1, "{piece:x?}");
    }
    let end = limit.min(there.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX)).min(DRAINED);
    for at in (0..end / PAGE).map(|frame| frame * PAGE) {
        let is_kept = pieces.iter().any(|piece| piece.start <= at && at < piece.end);
        let is_ours = is_ours(regions, at, PAGE);
        // A reserved region that ends before it begins costs the frame that it begins in.
        let is_backwards = |r: &MemoryRegion| {
            r.kind != MemoryRegionKind::Usable && r.end < r.start && r.start & !(PAGE - 1) == at
        };
        let may_miss = is_cut || regions.iter().any(is_backwards);
        assert!(is_kept == is_ours || may_miss && is_ours, "{at:#x} is kept: {is_kept}");
    }
    pieces
}

/// Takes all frames of the pieces below [`DRAINED`].
fn drain(regions: &[MemoryRegion], pieces: &[MemoryRegion]) {
    let count = (DRAINED / PAGE) as usize;
    let words: Vec<_> = (0..count / 64 + count / 4096).map(|_| AtomicU64::new(0)).collect();
    let frames = Frames::new(pieces, &words);
    let mut is_taken = vec![false; count];
    let mut take = |frame: Frame| {
        let at = frame.addr();
        assert!(at != 0 && is_ours(regions, at, PAGE), "{at:#x}");
        assert!(!std::mem::replace(&mut is_taken[(at / PAGE) as usize], true), "{at:#x} twice");
    };
    let low = (LOW_END / PAGE) as usize;
    let ordinary = std::iter::from_fn(|| frames.take(Stock::Last, 1).next());
    let ordinary = ordinary.map(&mut take).count();
    let low = std::iter::from_fn(|| frames.take_in(0..low)).map(&mut take).count();
    assert_eq!((ordinary + low, frames.stats().free), (frames.stats().total, 0));
}

/// Whether these bytes are in one usable region, and no other touches their pages.
fn is_ours(regions: &[MemoryRegion], at: u64, bytes: u64) -> bool {
    // Wider than an address, so that the model itself does not overflow.
    let (from, to) = (u128::from(at), u128::from(at) + u128::from(bytes));
    let ends = |r: &MemoryRegion| (u128::from(r.start), u128::from(r.end));
    let (usable, others): (Vec<_>, Vec<_>) =
        regions.iter().partition(|region| region.kind == MemoryRegionKind::Usable);
    let inside = |region: &&MemoryRegion| ends(region).0 <= from && to <= ends(region).1;
    let touches = |region: &&MemoryRegion| ends(region).0 < to && from < ends(region).1;
    // One between two frames that holds nothing touches neither.
    let is_nothing = |r: &MemoryRegion| r.start == r.end && r.start.is_multiple_of(PAGE);
    usable.iter().any(inside) && !others.iter().filter(|r| !is_nothing(r)).any(touches)
}

fn region(bytes: &mut Bytes<'_>) -> Option<MemoryRegion> {
    let (start, end) = (bytes.u64()?, bytes.u64()?);
    let kind = match bytes.u8()? % 4 {
        0 | 1 => MemoryRegionKind::Usable,
        2 => MemoryRegionKind::Bootloader,
        _ => MemoryRegionKind::UnknownUefi(7),
    };
    Some(MemoryRegion { start, end, kind })
}

/// Maps as loaders give them: a PC's, and one with holes, out of order.
pub fn maps() -> Vec<Vec<u8>> {
    const MIB: u64 = 1 << 20;
    let pc: &[(u64, u64, u8)] = &[
        (0, 0x9_f000, 0),
        (0x9_f000, MIB, 3),
        (MIB, 4 * MIB, 2),
        (4 * MIB, 128 * MIB, 0),
        (0xfd00_0000, 1 << 32, 3),
        (1 << 40, (1 << 40) + MIB, 3),
    ];
    let holes: &[(u64, u64, u8)] = &[
        (9 * MIB + 5, 12 * MIB, 0),
        (MIB, 3 * MIB, 0),
        (2 * MIB, 2 * MIB + 1, 2),
        (5 * MIB, 4 * MIB, 0),
        (7 * MIB, 7 * MIB, 0),
        (2 * MIB, 9 * MIB, 1),
    ];
    let ends = [[128 * MIB, u64::MAX], [u64::MAX, 10 * MIB]];
    [encode(ends[0], pc), encode(ends[1], holes)].to_vec()
}

fn encode(ends: [u64; 2], regions: &[(u64, u64, u8)]) -> Vec<u8> {
    let mut bytes = ends.map(u64::to_le_bytes).concat();
    for (start, end, kind) in regions {
        bytes.extend(start.to_le_bytes());
        bytes.extend(end.to_le_bytes());
        bytes.push(*kind);
    }
    bytes
}
