//! Memory: frames, heap, stacks, and the map of their addresses.
//!
//! This file holds the map of addresses and the one function with which boot brings memory
//! up. `survey` checks the memory map, [`dma`] sets memory aside for devices, [`frames`]
//! allocates physical pages, [`heap`] serves `alloc`, [`stack`] gives Gs and Ms their stacks,
//! [`percpu`] gives the three a common path that takes no lock, and [`reclaim`] makes what
//! they only cache free again. Page tables belong to the machine and are in `arch`.
//!
//! ```text
//!   0xffff_ffff_8000_0000   kernel image         code RX, constants R, data RW
//!   0xffff_f000_0000_0000   MMIO window          RW, never cached
//!   0xffff_e800_0000_0000   records of its pages RW, as many as it has pages
//!   0xffff_e000_0000_0000   heap                 RW, grows up, pages on demand
//!   0xffff_c000_0000_0000   stacks               RW, on first touch, guards below
//!   0xffff_8000_0000_0000   physical memory      RW, from frame 0; above its end
//!                                                the loader's boot info, framebuffer,
//!                                                ramdisk and first stack
//!   0x0000_0000_0010_0000   nothing              ... up to the canonical hole
//!   0x0000_0000_0000_1000   low memory           one page RX, only while APs start
//!   0x0000_0000_0000_0000   page 0               never
//! ```
//!
//! Only the kernel image and the AP's start page can be executed, and no page is ever both
//! writable and executable; `arch::paging` refuses to make one, and its audit walks the
//! tables to check it.
//!
//! # Lock order
//!
//! heap pages → frames bitmap; stack lists and the MMIO table → no lock of `mem` but
//! frames. A page fault on a stack uses the frame reserve, then the frames bitmap: no code
//! probes a stack with the bitmap locked, so the fault handler never waits for the CPU it
//! interrupted.

pub mod dma;
pub mod frames;
pub mod heap;
pub mod known;
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
use frames::Stock;
use survey::Map;

pub use reclaim::{is_short, maintain};

/// Bytes in a page, and in a frame.
pub const PAGE_SIZE: usize = 4096;
/// Where all of physical memory is mapped, from physical address 0.
pub const PHYS_OFFSET: u64 = 0xffff_8000_0000_0000;
/// The stacks of Gs and Ms: [`stack`].
pub const STACK_WINDOW: u64 = 0xffff_c000_0000_0000;
/// The heap: [`heap`].
pub const HEAP_WINDOW: u64 = 0xffff_e000_0000_0000;
/// Registers of devices, mapped on request.
pub const MMIO_WINDOW: u64 = 0xffff_f000_0000_0000;
/// Where the windows end and the kernel image begins.
pub const KERNEL_IMAGE: u64 = 0xffff_ffff_8000_0000;

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
pub(crate) unsafe fn init(map: Map<'_>) -> Result<(), &'static str> {
    // SAFETY: our caller's promise.
    unsafe { take_over(map) }.ok_or("no room for the bitmaps of frames")?;
    // SAFETY: our caller's promise.
    unsafe { paging::init(frames::alloc_below_4g) }.map_err(|_| "no frame for a page table")?;
    heap::HEAP.warm_up().then_some(()).ok_or("no page for the heap")?;
    frames::refill();
    Ok(())
}

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
            let Range { start, end } = range;
            ::log::warn!("memory map: {start:#x}..{end:#x} is called usable, but left out: {why}");
        }
    });
    if left_out > MAX_WARNINGS {
        ::log::warn!("memory map: {} more ranges are left out", left_out - MAX_WARNINGS);
    }
    let loaders = map.regions().filter(|region| region.kind == MemoryRegionKind::Bootloader);
    known::init(loaders.chain(&*usable));
    // SAFETY: our caller's promise; the tables map what is below `limit`.
    unsafe { dma::init(usable) };
    // SAFETY: our caller's promise; `limit` is the end of what the tables map.
    unsafe { frames::init(usable, limit) }
}

/// The most pieces of usable memory, 12 KiB of stack.
const MAX_PIECES: usize = 512;
/// The most ranges that are named in warnings.
const MAX_WARNINGS: usize = 16;

/// There is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Commits a page: gives it a frame, and page tables if it needs them. A page that has memory
/// stays as it is.
///
/// # Safety
///
/// The address is the caller's, and no reference points there yet.
unsafe fn commit(page: u64, stock: Stock) -> Result<(), NoMemory> {
    let alloc = || frames::alloc_from(stock);
    let frame = alloc().ok_or(NoMemory)?;
    // SAFETY: a fresh frame, at an address that is ours by our caller's promise.
    match unsafe { paging::map_page(page, frame.addr(), Flags::DATA, alloc) } {
        Ok(()) => Ok(()),
        Err(error) => {
            // SAFETY: allocated above, and not mapped.
            unsafe { frames::free(frame) };
            if error == MapError::AlreadyMapped { Ok(()) } else { Err(NoMemory) }
        }
    }
}

/// The address at which the kernel can read and write physical address `phys`.
#[inline]
pub fn phys_to_virt(phys: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(PHYS_OFFSET.wrapping_add(phys) as usize)
}

/// A snapshot of all counters.
pub fn stats() -> Stats {
    Stats { frames: frames::stats(), heap: heap::HEAP.stats(), stacks: stack::POOL.stats() }
}
