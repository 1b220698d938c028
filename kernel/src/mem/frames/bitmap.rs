//! Which frames are free: one bit each, set up from the loader's map.
//!
//! A bitmap makes errors of the memory map harmless. Regions that overlap set the same
//! bits twice; a region that is usable and reserved at once ends up reserved, because the
//! reserved ones are cleared last; order does not matter. `frames.rs` adds the lock
//! around it, the caches in front, zeroing, and the marks of frames that are held.

use super::{Frame, LOW_END};
use crate::mem::PAGE_SIZE;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::ops::Range;

const PAGE: u64 = PAGE_SIZE as u64;
const BITS: usize = 64;
/// The first frame that ordinary allocations may get.
const FIRST_ORDINARY: usize = (LOW_END / PAGE) as usize;

/// The free frames, one bit each, 1 = free.
pub struct Bitmap<'a> {
    words: &'a mut [u64],
    /// Frames below [`LOW_END`] count here and not in `free`.
    free_low: usize,
    free: usize,
    /// The word where the last search ended: the next one begins there, so that a memory
    /// filled from the bottom is not searched from the bottom.
    hint: usize,
}

impl<'a> Bitmap<'a> {
    /// The map of `regions`, kept in `words`; frames beyond the end of `words` are left
    /// out.
    pub fn new(regions: &[MemoryRegion], words: &'a mut [u64]) -> Self {
        words.fill(0);
        let mut map = Bitmap { words, free_low: 0, free: 0, hint: FIRST_ORDINARY / BITS };
        for region in regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable) {
            map.write(frames_inside(region), u64::MAX);
        }
        for region in regions.iter().filter(|r| r.kind != MemoryRegionKind::Usable) {
            map.write(frames_touched(region), 0);
        }
        map.write(0..1, 0); // page 0 stays a null pointer in every sense
        map.recount();
        map
    }

    /// Removes the frames of `range` for ever; for the bitmap's own memory.
    pub fn withdraw(&mut self, range: Range<u64>) {
        self.write(range.start / PAGE..range.end.div_ceil(PAGE), 0);
        self.recount();
    }

    /// Free frames that ordinary allocations can get.
    pub fn free_count(&self) -> usize {
        self.free
    }

    /// Free frames below 1 MiB.
    pub fn free_low_count(&self) -> usize {
        self.free_low
    }

    /// Fills `out` from the front; returns the number of frames.
    pub fn take_many(&mut self, out: &mut [Frame]) -> usize {
        let first = FIRST_ORDINARY / BITS;
        let mut filled = 0;
        let span = self.words.len().saturating_sub(first);
        for step in 0..span {
            if filled == out.len() || self.free == 0 {
                break;
            }
            let index = first + (self.hint - first + step) % span;
            while filled < out.len() && self.words[index] != 0 {
                let bit = self.words[index].trailing_zeros() as usize;
                self.words[index] &= self.words[index] - 1;
                self.free -= 1;
                out[filled] = Frame::from_index(index * BITS + bit);
                filled += 1;
                if filled == out.len() {
                    self.hint = index;
                }
            }
        }
        filled
    }

    /// Takes the first free frame that lies wholly in the addresses `area`.
    pub fn take_in(&mut self, area: Range<u64>) -> Option<Frame> {
        let end = ((area.end / PAGE) as usize).min(self.words.len() * BITS);
        let index = self.next_free(area.start.div_ceil(PAGE) as usize, end)?;
        self.words[index / BITS] &= !(1 << (index % BITS));
        *self.count_of(index) -= 1;
        Some(Frame::from_index(index))
    }

    /// Puts a frame back. False when it was free already or is beyond the map.
    pub fn put(&mut self, frame: Frame) -> bool {
        let index = frame.index();
        if index >= self.words.len() * BITS || self.is_free(index) {
            return false;
        }
        self.words[index / BITS] |= 1 << (index % BITS);
        *self.count_of(index) += 1;
        true
    }

    /// The counter that counts frame number `index`.
    fn count_of(&mut self, index: usize) -> &mut usize {
        if index < FIRST_ORDINARY { &mut self.free_low } else { &mut self.free }
    }

    /// Whether frame number `index` is free.
    fn is_free(&self, index: usize) -> bool {
        self.words[index / BITS] >> (index % BITS) & 1 == 1
    }

    /// The first free frame from `index` on, skipping full words at once.
    fn next_free(&self, mut index: usize, end: usize) -> Option<usize> {
        while index < end {
            let rest = self.words[index / BITS] >> (index % BITS);
            if rest != 0 {
                let found = index + rest.trailing_zeros() as usize;
                return (found < end).then_some(found);
            }
            index = (index / BITS + 1) * BITS;
        }
        None
    }

    /// Sets the bits of frames `range` to those of `pattern`, a word at a time.
    fn write(&mut self, range: Range<u64>, pattern: u64) {
        let limit = (self.words.len() * BITS) as u64;
        let mut index = range.start.min(limit) as usize;
        let end = range.end.min(limit) as usize;
        while index < end {
            let (word, bit) = (index / BITS, index % BITS);
            let count = (BITS - bit).min(end - index);
            let mask = (u64::MAX >> (BITS - count)) << bit;
            self.words[word] = self.words[word] & !mask | pattern & mask;
            index += count;
        }
    }

    fn recount(&mut self) {
        let ones = |words: &[u64]| words.iter().map(|w| w.count_ones() as usize).sum();
        let (low, rest) = self.words.split_at(self.words.len().min(FIRST_ORDINARY / BITS));
        self.free_low = ones(low);
        self.free = ones(rest);
    }
}

/// The highest end of usable memory: how far the bitmaps must reach.
pub fn highest_usable(regions: &[MemoryRegion]) -> u64 {
    let usable = regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable && r.start < r.end);
    usable.map(|r| r.end & !(PAGE - 1)).max().unwrap_or(0)
}

/// How much memory the usable regions claim, overlaps counted twice.
pub fn usable_bytes(regions: &[MemoryRegion]) -> u64 {
    let usable = regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable);
    usable.fold(0, |sum, r| sum.saturating_add(r.end.saturating_sub(r.start)))
}

/// Address of `bytes` bytes that are usable, above 1 MiB, below `limit`, and touched by
/// no reserved region: for the allocator's own bitmaps.
pub fn find_home(regions: &[MemoryRegion], bytes: u64, limit: u64) -> Option<u64> {
    let reserved = |from: u64, to: u64| {
        let others = regions.iter().filter(|r| r.kind != MemoryRegionKind::Usable);
        let mut hits = others.map(frames_touched).map(addresses);
        hits.find(|r| r.start < to && from < r.end).map(|r| r.end)
    };
    regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable).find_map(|region| {
        let inside = addresses(frames_inside(region));
        let mut at = inside.start.max(LOW_END);
        // Every round moves past the end of one reserved region, so there are at most as
        // many rounds as regions.
        loop {
            let end = at.checked_add(bytes).filter(|&end| end <= limit.min(inside.end))?;
            match reserved(at, end) {
                None => return Some(at),
                Some(next) => at = next,
            }
        }
    })
}

/// The addresses of these frames. The last possible frame saturates at the highest
/// address.
pub(crate) fn addresses(frames: Range<u64>) -> Range<u64> {
    frames.start.saturating_mul(PAGE)..frames.end.saturating_mul(PAGE)
}

/// Frames that lie wholly inside a usable region.
pub(crate) fn frames_inside(region: &MemoryRegion) -> Range<u64> {
    region.start.div_ceil(PAGE)..region.end / PAGE
}

/// Frames that a reserved region touches. A region that ends before it starts is an
/// error; it reserves the frame it starts in, which can do no harm.
pub(crate) fn frames_touched(region: &MemoryRegion) -> Range<u64> {
    let start = region.start / PAGE;
    start..region.end.div_ceil(PAGE).max(start + u64::from(region.end < region.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MIB: u64 = 1 << 20;

    fn region(start: u64, end: u64, kind: MemoryRegionKind) -> MemoryRegion {
        MemoryRegion { start, end, kind }
    }

    fn usable(start: u64, end: u64) -> MemoryRegion {
        region(start, end, MemoryRegionKind::Usable)
    }

    fn reserved(start: u64, end: u64) -> MemoryRegion {
        region(start, end, MemoryRegionKind::Bootloader)
    }

    /// All frames that the map hands out.
    fn drain(map: &mut Bitmap) -> Vec<u64> {
        let mut out = [Frame::from_index(0); 7];
        let mut all = Vec::new();
        loop {
            let n = map.take_many(&mut out);
            all.extend(out[..n].iter().map(|f| f.addr()));
            if n < out.len() {
                return all;
            }
        }
    }

    #[test]
    fn overlapping_unsorted_unaligned_regions_give_each_frame_once() {
        let regions = [
            usable(3 * MIB + 5, 4 * MIB + 9),
            usable(MIB, 2 * MIB),
            usable(MIB + 0x8000, 3 * MIB + 0x2001),
            reserved(MIB + 0x1234, MIB + 0x2001),
            usable(5 * MIB, 4 * MIB),
            usable(0, u64::MAX),
            reserved(4 * MIB, u64::MAX),
        ];
        let mut words = vec![0; 64];
        let mut map = Bitmap::new(&regions, &mut words);
        let counted = map.free_count();
        let all = drain(&mut map);
        assert_eq!(all.len(), counted);
        assert_eq!(all.len(), all.iter().collect::<HashSet<_>>().len(), "a frame was given twice");
        assert!(all.iter().all(|&a| (MIB..4 * MIB).contains(&a)));
        assert!(!all.contains(&(MIB + 0x1000)) && !all.contains(&(MIB + 0x2000)));
        assert_eq!(counted, 3 * 256 - 2);
        assert_eq!(map.free_count(), 0);
    }

    #[test]
    fn low_frames_and_frame_zero_stay_out_of_ordinary_use() {
        let regions = [usable(0, 2 * MIB)];
        let mut words = vec![0; 8];
        let mut map = Bitmap::new(&regions, &mut words);
        assert!(drain(&mut map).iter().all(|&a| a >= MIB));
        assert_eq!(map.free_low_count(), 255, "frame 0 is nobody's");
        let low = map.take_in(0..LOW_END).unwrap();
        assert_eq!(low.addr(), PAGE);
    }

    #[test]
    fn a_frame_of_an_area_is_its_first_free_one() {
        let regions = [usable(MIB, 16 * MIB), reserved(2 * MIB, 2 * MIB + 1)];
        let mut words = vec![0; 64];
        let mut map = Bitmap::new(&regions, &mut words);
        let before = map.free_count();
        let area = 2 * MIB..2 * MIB + 3 * PAGE - 1;
        let frame = map.take_in(area.clone()).unwrap();
        assert_eq!(frame.addr(), 2 * MIB + PAGE, "the first is reserved");
        assert_eq!(map.free_count(), before - 1);
        assert_eq!(map.take_in(area), None, "the bound cuts the third frame off");
        assert_eq!(map.take_in(5..5), None);
        assert_eq!(map.take_in(u64::MAX - 1..u64::MAX), None);
        assert!(drain(&mut map).iter().all(|&addr| addr != frame.addr()));
    }

    #[test]
    fn what_is_put_back_comes_out_again_and_only_once() {
        let regions = [usable(MIB, 2 * MIB)];
        let mut words = vec![0; 8];
        let mut map = Bitmap::new(&regions, &mut words);
        let all = drain(&mut map);
        let frame = Frame::from_index((all[17] / PAGE) as usize);
        assert!(map.put(frame));
        assert!(!map.put(frame), "put twice");
        assert!(!map.put(Frame::from_index(1 << 40)), "beyond the map");
        assert_eq!(drain(&mut map), [frame.addr()]);
    }

    #[test]
    fn home_avoids_reserved_regions_and_the_first_mib() {
        let regions = [
            usable(0, 4 * MIB),
            reserved(2 * MIB, 3 * MIB),
            reserved(MIB, MIB + 1),
            reserved(7, 3),
        ];
        assert_eq!(find_home(&regions, PAGE, u64::MAX), Some(MIB + PAGE));
        assert_eq!(find_home(&regions, MIB, u64::MAX), Some(3 * MIB));
        assert_eq!(find_home(&regions, MIB, 3 * MIB), None);
        assert_eq!(find_home(&regions, u64::MAX, u64::MAX), None);
        assert_eq!(find_home(&[], PAGE, u64::MAX), None);
        // To the very end, where an end in bytes does not fit a word.
        let regions = [usable(MIB, u64::MAX), reserved(2 * MIB, u64::MAX)];
        assert_eq!(find_home(&regions, 2 * MIB, u64::MAX), None);
        assert_eq!(find_home(&regions, MIB, u64::MAX), Some(MIB));
    }

    #[test]
    fn random_maps_agree_with_a_model() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..50 {
            let regions: Vec<_> = (0..next(40))
                .map(|_| {
                    let start = next(8 * MIB);
                    let kind = if next(3) == 0 {
                        MemoryRegionKind::Bootloader
                    } else {
                        MemoryRegionKind::Usable
                    };
                    region(start, start + next(2 * MIB), kind)
                })
                .collect();
            let model: HashSet<u64> = (256..2048)
                .map(|i| i * PAGE)
                .filter(|&a| {
                    // Usable bytes that only together fill a frame do not count.
                    regions.iter().any(|r| {
                        r.kind == MemoryRegionKind::Usable && r.start <= a && a + PAGE <= r.end
                    }) && !regions.iter().any(|r| {
                        r.kind != MemoryRegionKind::Usable
                            && r.start < a + PAGE
                            && a < r.end
                            && r.start < r.end
                    })
                })
                .collect();
            let mut words = vec![0; 2048 / 64];
            let mut map = Bitmap::new(&regions, &mut words);
            let all: HashSet<u64> = drain(&mut map).into_iter().collect();
            assert_eq!(all, model);
        }
    }
}
