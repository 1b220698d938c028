//! Memory: frames, heap, stacks.
//!
//! This file holds the one function with which boot brings memory up. `survey` checks the memory map, [`frames`] allocates physical pages, [`heap`] serves
//! `alloc`, [`stack`] gives Gs and Ms their stacks, and [`percpu`] gives the three a common
//! path that takes no lock. Page tables belong to the machine and are in `arch`.
//!
//! The map of addresses itself is the machine's (`arch::paging`, `layout`): the kernel's image,
//! the windows for stacks, heap and device registers, and all of physical memory at
//! [`PHYS_OFFSET`]. No page is ever both writable and executable.
//!
//! # Lock order
//!
//! heap pages → frames bitmap; stack lists and the MMIO table → no lock of `mem` but
//! frames. A page fault on a stack uses the frame reserve, then the frames bitmap: no code
//! probes a stack with the bitmap locked, so the fault handler never waits for the CPU it
//! interrupted.

pub mod frames;
pub mod heap;
pub mod known;
pub mod percpu;
pub mod relief;
pub mod stack;
pub(crate) mod survey;

use crate::arch::{self, paging};
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::ops::Range;
use frames::Frame;
use survey::{Map, Why};

pub use crate::arch::paging::{
    HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE, PHYS_OFFSET, STACK_WINDOW, phys_to_virt,
};

/// Why memory could not be brought up. The kernel cannot run after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The memory map has no room for the allocator's own bitmaps.
    NoUsableMemory,
    /// The kernel's own page table could not be made.
    PageTable(paging::MapError),
    /// There is less memory than the first heap chunk needs.
    NoHeap,
}

/// A snapshot of memory; the parts are read one after another, so they need not add up
/// while other CPUs work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Physical frames.
    pub frames: frames::FrameStats,
    /// The heap.
    pub heap: heap::HeapStats,
    /// Stacks.
    pub stacks: stack::StackStats,
}

/// Brings memory up on the boot CPU: frames, page tables, heap, fault reserve.
///
/// The loader's GDT lies in the low half, which is unmapped afterwards: the caller has its
/// own GDT and IDT loaded, interrupts off.
///
/// # Safety
///
/// Called once, by the boot CPU, on the loader's page tables, with physical memory mapped
/// at [`PHYS_OFFSET`], and the loader's regions among those of `map`: memory in use is
/// reserved there. Its usable regions need not be true.
pub(crate) unsafe fn init(map: Map<'_>) -> Result<(), InitError> {
    // SAFETY: our caller's promise.
    unsafe { take_over(map) }.ok_or(InitError::NoUsableMemory)?;
    let root = frames::alloc_below_4g().map(Frame::addr);
    // SAFETY: our caller's promise; the frame is not used otherwise.
    unsafe { paging::init(root, FRAME_SOURCE) }.map_err(InitError::PageTable)?;
    heap::init().ok_or(InitError::NoHeap)?;
    frames::reserve_refill();
    frames::emergency_refill();
    Ok(())
}

/// Where page tables get their frames, and what device registers may not overlap.
const FRAME_SOURCE: paging::FrameSource = paging::FrameSource {
    alloc: || frames::alloc().map(Frame::addr),
    // SAFETY: `paging` gives back only what `alloc` gave, and no longer uses it.
    free: |frame| unsafe { frames::free(Frame::containing(frame)) },
    is_memory: known::is_memory,
};

/// Passes the sound part of `map` to `known` and `frames`. The pieces are on the stack, as
/// there is no other memory yet, and gone before page tables and heap are made.
///
/// # Safety
///
/// As for [`init`].
#[inline(never)]
unsafe fn take_over(map: Map<'_>) -> Option<()> {
    let limit = paging::direct_map_end(map.highest_usable());
    // SAFETY: `survey` tries only frames below `limit`, which the tables map; the loader
    // maps them writable. They are in no reserved region, so they are unused, and there is
    // one CPU.
    let holds = |phys| unsafe { arch::holds(phys) };
    let mut pieces = [MemoryRegion::empty(); MAX_PIECES];
    let mut left_out = 0;
    let usable = survey::survey(map, limit, holds, &mut pieces, |range, why| {
        left_out += 1;
        if left_out <= MAX_WARNINGS {
            warn_of(&range, why);
        }
    });
    if left_out > MAX_WARNINGS {
        ::log::warn!("memory map: {} more ranges are left out", left_out - MAX_WARNINGS);
    }
    let loaders = map.regions().filter(|region| region.kind == MemoryRegionKind::Bootloader);
    known::init(loaders.chain(usable));
    // SAFETY: our caller's promise; `limit` is the end of what the tables map.
    unsafe { frames::init(usable, limit) }
}

fn warn_of(range: &Range<u64>, why: Why) {
    let Range { start, end } = range;
    ::log::warn!("memory map: {start:#x}..{end:#x} is called usable, but left out: {why}");
}

/// The most pieces of usable memory, 12 KiB of stack.
const MAX_PIECES: usize = 512;
/// The most ranges that are named in warnings.
const MAX_WARNINGS: usize = 16;
/// Memory is short below this many free frames.
const FEW_FRAMES: usize = 512;

/// Periodic work of every CPU outside interrupts: frees the pages of unused stacks when
/// they have become many, or memory is short, and those of the heap if it is short; refills
/// the reserve of the page-fault handler and the frames set aside; and reclaims memory if a
/// G of this CPU has found none. Call it with no lock held and interrupts on: it may wait
/// for other CPUs to flush.
pub fn maintain() {
    relief::relieve();
    stack::trim_if_many();
    if is_short() && heap::has_many() {
        heap::give_back(2 * FEW_FRAMES);
    }
    frames::reserve_refill();
    frames::emergency_refill();
}

/// Whether free frames are few.
pub fn is_short() -> bool {
    frames::free_estimate() < FEW_FRAMES
}

/// A snapshot of all counters.
pub fn stats() -> Stats {
    Stats { frames: frames::stats(), heap: heap::stats(), stacks: stack::stats() }
}
