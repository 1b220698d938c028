//! Memory that devices read and write: a fixed region, cut first fit.
//!
//! A device knows physical addresses only, so its rings and buffers must be in one piece. After
//! boot it is chance which free frames are neighbours. So the region is cut off the memory map
//! before the frame allocator sees it ([`init`]): a driver gets its buffers however full memory is,
//! and the frame allocator gives single frames only.
//!
//! The blocks are cut by the crate `linked_list_allocator`: free parts ("holes") are on a list by
//! address, which both functions walk with interrupts off. That suits this region and no other:
//!
//! - It has a fixed size, as the crate can grow a region but not shrink it. The heap must return
//!   its pages to stacks, so it has an allocator of its own (`mem::heap`).
//! - The walk is short: holes do not touch, so there is at most one more than there are blocks, and
//!   drivers keep what they have. The disk allocates 45 blocks and frees none: one hole. In the
//!   heap a program that frees every other of 100,000 blocks would leave 50,000 holes.

use super::{PAGE_SIZE, phys_to_virt};
use crate::arch::lock::{IrqLock, Level};
use bootloader_api::info::MemoryRegion;
use core::alloc::Layout;
use core::ptr::NonNull;
use linked_list_allocator::Heap;

/// The most bytes of the region, and the part of the largest piece of memory that it may be.
const MOST: u64 = 3 << 19;
const SHARE: u64 = 32;

static REGION: IrqLock<Heap> = IrqLock::at(Level::Frames, Heap::empty());

/// Cuts the region off the largest of these pieces of memory, which are whole frames.
///
/// # Safety
///
/// Called once. The pieces are unused, and mapped from `PHYS_OFFSET` on.
pub unsafe fn init(pieces: &mut [MemoryRegion]) {
    let Some(largest) = pieces.iter_mut().max_by_key(|piece| piece.end - piece.start) else {
        return;
    };
    let bytes = ((largest.end - largest.start) / SHARE).min(MOST) & !(PAGE_SIZE as u64 - 1);
    largest.end -= bytes;
    if bytes > 0 {
        // SAFETY: unused memory that is mapped, by the caller's promise, and the region's alone
        // from now on, as it is in no piece any more.
        unsafe { REGION.lock().init(phys_to_virt(largest.end), bytes as usize) };
    }
}

/// `pages` zeroed pages in one piece.
pub fn alloc(pages: usize) -> Option<NonNull<u8>> {
    let layout = layout(pages)?;
    let start = REGION.lock().allocate_first_fit(layout).ok()?;
    // SAFETY: allocated above, that many bytes.
    unsafe { start.write_bytes(0, layout.size()) };
    Some(start)
}

/// Frees pages.
///
/// # Safety
///
/// They are from [`alloc()`] with this count, and neither the caller nor a device uses them.
pub unsafe fn free(start: NonNull<u8>, pages: usize) {
    if let Some(layout) = layout(pages) {
        // SAFETY: our caller's promise.
        unsafe { REGION.lock().deallocate(start, layout) };
    }
}

fn layout(pages: usize) -> Option<Layout> {
    let bytes = pages.checked_mul(PAGE_SIZE).filter(|&bytes| bytes > 0)?;
    Layout::from_size_align(bytes, PAGE_SIZE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;

    /// A region of that many pages.
    fn region(pages: usize) -> Heap {
        let page = || MaybeUninit::new([0_u64; PAGE_SIZE / 8]);
        let memory = Vec::leak((0..pages).map(|_| page()).collect());
        let (start, bytes) = (memory.as_mut_ptr().cast(), size_of_val(memory));
        // SAFETY: leaked, so it is the region's for ever.
        unsafe { Heap::new(start, bytes) }
    }

    /// How many holes a region has: a hole gives neighbours, page by page.
    fn holes(region: &mut Heap) -> usize {
        let one = Layout::from_size_align(PAGE_SIZE, 8).expect("a valid layout");
        let all: Vec<_> = core::iter::from_fn(|| region.allocate_first_fit(one).ok())
            .map(NonNull::addr)
            .collect();
        let gaps = all.windows(2).filter(|pair| pair[0].get() + PAGE_SIZE != pair[1].get());
        gaps.count() + usize::from(!all.is_empty())
    }

    #[test]
    fn a_region_has_at_most_one_hole_more_than_blocks() {
        // As the disk: 42 slots of 8 pages, and 3 pages for its rings.
        let layout = |pages: usize| Layout::from_size_align(pages * PAGE_SIZE, 8).unwrap();
        for is_freed in [|_| false, |n| n % 2 == 0, |n| n % 2 == 1, |n| n % 3 > 0, |_: usize| true]
        {
            let mut region = region(384);
            let blocks: Vec<_> = [1; 3].into_iter().chain([8; 42]).map(layout).collect();
            let blocks: Vec<_> = blocks
                .into_iter()
                .map(|layout| (region.allocate_first_fit(layout).expect("room"), layout))
                .collect();
            let (freed, live): (Vec<_>, Vec<_>) =
                blocks.into_iter().enumerate().partition(|&(n, _)| is_freed(n));
            // From the outside in: all ways to merge with a neighbour.
            let inward = freed.iter().zip(freed.iter().rev()).flat_map(|(a, b)| [a, b]);
            for (_, (block, layout)) in inward.take(freed.len()) {
                // SAFETY: allocated above, and each freed once: the first half of the zip.
                unsafe { region.deallocate(*block, *layout) };
            }
            let holes = holes(&mut region);
            assert!(holes <= live.len() + 1, "{holes} holes beside {} blocks", live.len());
        }
    }

    #[test]
    fn absurd_counts_are_none_and_the_host_has_no_region() {
        assert_eq!([0, 1, usize::MAX / PAGE_SIZE, usize::MAX].map(alloc), [None; 4]);
    }
}
