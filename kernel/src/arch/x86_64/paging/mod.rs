//! Page tables: W^X, no page 0, and maps made on demand.
//!
//! The kernel has one address space for all CPUs. It keeps the upper half that the loader made
//! (kernel image, physical memory, boot info), in a root table of its own with an empty lower half,
//! so that page 0 and every small number taken for a pointer fault.
//!
//! **Tables are changed without a lock.** Entries are atomic words; a missing table is put in place
//! by compare-and-swap, and the loser gives its frame back; a leaf is set the same way, so no
//! mapping is ever overwritten; and a table is never taken away. A page fault that commits a stack
//! page is therefore a walk and one locked instruction, and cannot meet a lock held by the code it
//! interrupted.
//!
//! **W^X is enforced at the door**: [`map_page`] refuses a page that is both writable and
//! executable, and [`audit`] walks everything and counts, the loader's work included.
//!
//! [`walk`] has the tables as a type over any physical memory, which is how the host tests them;
//! [`mmio`] the window for devices.

mod layout;
mod mmio;
pub mod probe;
mod walk;

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use walk::{PhysMemory, Space, Table};
use x86_64::instructions::tlb;
use x86_64::registers::control::{Cr3, Cr3Flags, Cr4, Cr4Flags};
use x86_64::structures::paging::PhysFrame;
use x86_64::{PhysAddr, VirtAddr};

pub use layout::*;
pub use mmio::map_mmio;
pub use walk::{Audit, Flags, MapError, Translation};

/// The root table's physical address; 0 until [`init`].
static ROOT: AtomicU64 = AtomicU64::new(0);

/// Where the page tables get their frames, and what is memory. Physical addresses.
pub struct FrameSource {
    /// A zeroed frame, which belongs to the tables from then on.
    pub alloc: fn() -> Option<u64>,
    /// Takes a frame back that the tables did not use.
    pub free: fn(u64),
    /// Whether one of these bytes is memory, hence not a device's register.
    pub is_memory: fn(Range<u64>) -> bool,
}

static FRAMES: spin::Once<FrameSource> = spin::Once::new();

/// Makes the kernel's root table in the frame `root`, which must lie below 4 GiB (APs load it
/// in 32-bit code), and switches to it.
///
/// # Safety
/// Called once, by the boot CPU, on the loader's tables. Nothing in the lower half is needed
/// any more: not the loader's GDT, which lives there. `root` is used for nothing else, and
/// `frames` gives frames that are used for nothing else.
pub unsafe fn init(root: Option<u64>, frames: FrameSource) -> Result<(), MapError> {
    let old = active_root().ok_or(MapError::NotReady)?;
    let root = root.ok_or(MapError::NoMemory)?;
    if root >= 1 << 32 {
        return Err(MapError::BadAddress);
    }
    FRAMES.call_once(|| frames);
    Space::new(old, Kernel(alloc_frame)).copy_upper_half_to(root);
    ROOT.store(root, Ordering::Release); // pairs with the load in `active_root`
    init_cpu();
    Ok(())
}

/// What each CPU does to live by these tables. `cpu::init_cpu` comes first: no-execute and
/// write-protect are honoured then.
pub fn init_cpu() {
    let root = PhysFrame::containing_address(PhysAddr::new_truncate(root()));
    // SAFETY: the new root has every upper-half entry of the old one, and no Rust object lives in
    // the lower half.
    unsafe { Cr3::write(root, Cr3Flags::empty()) };
    // What this CPU has to keep the kernel from pages of ring 3. There are none; a table that was
    // written over may look as if there were.
    let mut guards = Cr4Flags::empty();
    if let Some(has) = raw_cpuid::CpuId::new().get_extended_feature_info() {
        guards.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, has.has_smep());
        guards.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, has.has_smap());
        guards.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, has.has_umip());
    }
    // SAFETY: they take rights away over pages of ring 3 and in ring 3. The tables have no such
    // page, and no code runs there.
    unsafe { Cr4::update(|cr4| cr4.insert(guards)) };
}

/// The physical address of the root table, for an AP's CR3; 0 before [`init`].
pub fn root() -> u64 {
    ROOT.load(Ordering::Acquire)
}

/// Maps the page at `virt` to the frame at `phys`, unless it is both writable and executable, or
/// mapped already. Missing tables come from `alloc_table`: zeroed frames, which belong to the
/// tables from then on; the page-fault handler has a reserve.
///
/// # Safety
/// The caller owns the address `virt`, to which no reference points yet, and may map the frame at
/// `phys` there: accesses through `virt` break no invariant that other code has about that frame.
pub unsafe fn map_page(
    virt: u64,
    phys: u64,
    flags: Flags,
    alloc_table: impl Fn() -> Option<u64>,
) -> Result<(), MapError> {
    let root = active_root().ok_or(MapError::NotReady)?;
    Space::new(root, Kernel(alloc_table)).map(virt, phys, flags)
}

/// Takes a 4 KiB page out of the tables and out of this CPU's TLB, and gives the physical address
/// it had. The caller flushes the TLBs of other CPUs.
///
/// # Safety
/// The page is no longer used.
#[inline]
pub unsafe fn unmap_page(virt: u64) -> Option<u64> {
    let phys = space()?.unmap(virt)?;
    tlb::flush(VirtAddr::new_truncate(virt));
    Some(phys)
}

/// The page-table entry of the page at `virt`, if there is a table for it: for owners of pages that
/// store words in entries that are not present.
///
/// # Safety
/// The caller owns the page. Each entry that it writes is not present, or the [`data_entry`] of a
/// frame that it may map there. All CPUs flush a present entry before its frame is reused.
pub unsafe fn leaf_entry(virt: u64) -> Option<&'static AtomicU64> {
    // SAFETY: tables are never freed, and all access to them is atomic.
    space()?.leaf(virt).map(|entry| unsafe { &*entry })
}

/// A present entry for the frame at `phys`, of ordinary memory.
pub fn data_entry(phys: u64) -> u64 {
    phys | Flags::DATA.to_bits()
}

#[inline]
pub fn translate(virt: u64) -> Option<Translation> {
    space()?.translate(virt)
}

pub fn is_mapped(virt: u64) -> bool {
    space().is_some_and(|space| space.find(virt).is_some())
}

/// How far physical memory is mapped, looking no further than `limit`. The loader maps one range,
/// from frame 0 on.
pub fn direct_map_end(limit: u64) -> u64 {
    let limit = limit.min(STACK_WINDOW - PHYS_OFFSET);
    space().map_or(0, |space| space.window_len(PHYS_OFFSET, limit))
}

/// Walks all tables and counts: see [`Audit`]. `None` on the host.
pub fn audit() -> Option<Audit> {
    Some(space()?.audit())
}

fn space() -> Option<Space<impl PhysMemory>> {
    Some(Space::new(active_root()?, Kernel(alloc_frame)))
}

/// Our root, or before [`init`] the loader's.
#[inline]
fn active_root() -> Option<u64> {
    let root = ROOT.load(Ordering::Acquire); // pairs with the store in `init`
    if root != 0 {
        return Some(root);
    }
    #[cfg(target_os = "none")]
    return Some(Cr3::read().0.start_address().as_u64());
    #[cfg(not(target_os = "none"))]
    None
}

pub fn alloc_frame() -> Option<u64> {
    (FRAMES.get()?.alloc)()
}

/// The machine's own memory, seen through physical memory's window; new tables come from the
/// function.
struct Kernel<A>(A);

impl<A: Fn() -> Option<u64>> PhysMemory for Kernel<A> {
    #[inline]
    fn table(&self, phys: u64) -> &Table {
        // SAFETY: `Space` asks only for the root and for frames that tables point to; these are
        // tables for ever, mapped from PHYS_OFFSET on, and all access to them is atomic.
        unsafe { &*phys_to_virt(phys).cast::<Table>() }
    }

    fn alloc_table(&self) -> Option<u64> {
        (self.0)()
    }

    fn free_table(&self, phys: u64) {
        if let Some(frames) = FRAMES.get() {
            (frames.free)(phys);
        }
    }
}
