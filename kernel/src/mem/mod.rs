//! Memory: frames, heap, stacks.
//!
//! `survey` checks the memory map, [`dma`] sets memory aside for devices, [`frames`] allocates
//! physical pages, [`heap`] serves `alloc`, [`stack`] gives Gs and Ms their stacks, and [`reclaim`]
//! makes what they only cache free again. [`percpu`] has values that each CPU has of its own. Page
//! tables and the map of addresses are in `arch::paging`. No page is both writable and executable.
//!
//! Frames and page tables have no lock. So a page fault on a stack, which needs both, takes none;
//! and of the locks here, the heap's and those of the lists of stacks, none is taken under another.

pub mod dma;
pub mod frames;
pub mod heap;
pub mod percpu;
pub mod reclaim;
pub mod stack;
pub(crate) mod survey;

use crate::arch::{
    self,
    paging::{self, Flags, MapError},
};
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::ops::Range;
use frames::{Frame, Stock};
use survey::Map;

pub use reclaim::{is_short, maintain};

pub use crate::arch::paging::{
    HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE, PHYS_OFFSET, STACK_WINDOW, phys_to_virt,
};

/// A snapshot of memory; the parts are read one after another, so they need not add up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Physical frames.
    pub frames: frames::FrameStats,
    /// The heap.
    pub heap: heap::HeapStats,
    /// Stacks.
    pub stacks: stack::StackStats,
    /// Stacks of parked Gs that are packed.
    pub pack: stack::pack::PackStats,
}

/// Brings memory up on the boot CPU: frames, page tables, heap.
///
/// The low half is unmapped, with the loader's GDT: the caller has its own and an IDT, irqs off.
///
/// # Safety
///
/// Called once, by the boot CPU, on the loader's page tables, with physical memory mapped at
/// [`PHYS_OFFSET`]; memory in use is reserved in `map`. Its usable regions need not be true.
pub(crate) unsafe fn init(map: Map<'_>) -> Result<(), &'static str> {
    // SAFETY: our caller's promise.
    unsafe { adopt(map) }.ok_or("no room for the bitmap of frames")?;
    let root = frames::alloc_below_4g().map(Frame::addr);
    // SAFETY: our caller's promise; the frame is not used otherwise.
    unsafe { paging::init(root, FRAME_SOURCE) }.map_err(|_| "no frame for a page table")?;
    heap::HEAP.warm_up().then_some(()).ok_or("no page for the heap")
}

/// Where page tables get their frames, and what device registers may not overlap.
const FRAME_SOURCE: paging::FrameSource = paging::FrameSource {
    alloc: || frames::alloc().map(Frame::addr),
    // SAFETY: `paging` gives back only what `alloc` gave, and no longer uses it.
    free: |frame| unsafe { frames::free(Frame::containing(frame)) },
    is_memory: survey::is_memory,
};

/// Passes the sound part of `map` to `dma` and `frames`. The pieces are on the stack, as there is
/// no other memory yet, and gone before page tables and heap are made.
///
/// # Safety
///
/// As for [`init`].
#[inline(never)]
unsafe fn adopt(map: Map<'_>) -> Option<()> {
    let limit = paging::direct_map_end(map.highest_usable());
    // SAFETY: `survey` tries only frames below `limit`, which the tables map writable. They are in
    // no reserved region, so they are unused, and there is one CPU.
    let holds = |phys| unsafe { arch::holds(phys) };
    let mut pieces = [MemoryRegion::empty(); MAX_PIECES];
    let mut left_out = 0;
    let usable = survey::survey(map, limit, holds, &mut pieces, |range, why| {
        left_out += 1;
        if left_out <= MAX_WARNINGS {
            let Range { start, end } = range;
            ::log::warn!("memory map: {start:#x}..{end:#x} is called usable, but left out: {why}");
        }
    });
    if left_out > MAX_WARNINGS {
        ::log::warn!("memory map: {} more ranges are left out", left_out - MAX_WARNINGS);
    }
    let loaders = map.regions().filter(|region| region.kind == MemoryRegionKind::Bootloader);
    survey::remember(loaders.chain(&*usable));
    // SAFETY: our caller's promise; the tables map what is below `limit`.
    unsafe { dma::init(usable) };
    // SAFETY: as above; `dma` has cut its part off.
    unsafe { frames::init(usable) }
}

/// The most pieces of usable memory, 12 KiB of stack.
const MAX_PIECES: usize = 512;
/// The most ranges that are named in warnings.
const MAX_WARNINGS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Gives a page a zeroed frame, and page tables if it needs them. No effect on a page with memory.
///
/// # Safety
///
/// The address is the caller's, and no reference points there yet.
unsafe fn commit(page: u64, stock: Stock) -> Result<(), NoMemory> {
    let frame = frames::alloc_from(stock).ok_or(NoMemory)?;
    // SAFETY: our caller's promise.
    unsafe { map(page, frame, stock) }
}

/// As [`commit`], with a frame that the caller has taken, and that is freed if it is not needed.
///
/// # Safety
///
/// As for [`commit`]; what is in the frame does no harm there.
unsafe fn map(page: u64, frame: Frame, stock: Stock) -> Result<(), NoMemory> {
    let alloc = || frames::alloc_from(stock).map(Frame::addr);
    // SAFETY: a fresh frame, at an address that is ours by our caller's promise.
    unsafe { paging::map_page(page, frame.addr(), Flags::DATA, alloc) }.or_else(|error| {
        // SAFETY: the caller's, and not mapped.
        unsafe { frames::free(frame) };
        if error == MapError::AlreadyMapped { Ok(()) } else { Err(NoMemory) }
    })
}

/// A snapshot of all counters.
pub fn stats() -> Stats {
    Stats {
        frames: frames::stats(),
        heap: heap::HEAP.stats(),
        stacks: stack::POOL.stats(),
        pack: stack::pack::stats(),
    }
}
