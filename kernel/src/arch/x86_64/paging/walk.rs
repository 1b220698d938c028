//! Four levels of tables over any physical memory.
//!
//! [`Space`] is an address space: a root, and a [`PhysMemory`], which is the machine's memory, or a
//! vector in the tests. The formats are those of Intel SDM vol. 3, 4-level paging.

use crate::arch::paging::PAGE_SIZE;
use crate::arch::text_enum;
use core::sync::atomic::{AtomicU64, Ordering};
use x86_64::VirtAddr;

const ENTRIES: usize = 512;
const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Write-through and cache-disable: "uncached" in the PAT as it is after reset.
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

#[repr(C, align(4096))]
pub struct Table(pub [AtomicU64; ENTRIES]);

/// Physical memory, as far as tables need it.
pub trait PhysMemory {
    fn table(&self, phys: u64) -> &Table;
    /// A zeroed frame for a new table.
    fn alloc_table(&self) -> Option<u64>;
    /// Takes back a frame from `alloc_table` that was not needed.
    fn free_table(&self, phys: u64);
}

/// What may be done with a page. All false: read only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub writable: bool,
    pub executable: bool,
    /// It is a device's, and every access goes there.
    pub uncached: bool,
}

impl Flags {
    pub const DATA: Flags = Flags { writable: true, executable: false, uncached: false };
    pub const CODE: Flags = Flags { writable: false, executable: true, uncached: false };
    pub const DEVICE: Flags = Flags { writable: true, executable: false, uncached: true };

    pub(super) fn to_bits(self) -> u64 {
        let bit = |on, bits| if on { bits } else { 0 };
        PRESENT
            | bit(self.writable, WRITABLE)
            | bit(!self.executable, NO_EXECUTE)
            | bit(self.uncached, UNCACHED)
    }

    fn from_bits(bits: u64) -> Flags {
        Flags {
            writable: bits & WRITABLE != 0,
            executable: bits & NO_EXECUTE == 0,
            uncached: bits & UNCACHED == UNCACHED,
        }
    }
}

text_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MapError {
        WritableAndExecutable => "it would be writable and executable",
        AlreadyMapped => "something is mapped there",
        /// (Not page-aligned, not canonical, page 0, or out of the allowed range.)
        BadAddress => "the address is impossible",
        NoMemory => "no memory for a page table",
        Memory => "that is memory, and no device's",
        Full => "the window for registers is full",
        NotReady => "there are no page tables yet",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The physical address, offset in the page included.
    pub phys: u64,
    /// The rights that all levels together leave.
    pub flags: Flags,
}

/// What a walk over all tables found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Pages of all sizes.
    pub pages: usize,
    /// Pages that can be executed.
    pub executable_pages: usize,
    /// Pages that ring 3 could reach.
    pub user_pages: usize,
    /// Pages both writable and executable. There must be none.
    pub writable_and_executable: usize,
    /// The first of these.
    pub first_bad: Option<u64>,
    /// Whether anything is mapped at address 0.
    pub page0_mapped: bool,
    /// Pages below the canonical hole: the APs' start page, or nothing.
    pub lower_half_pages: usize,
    /// Tables, the root included.
    pub tables: usize,
}

/// Where a walk ends: the entry of a page, of any size, or one that is not present.
pub struct Leaf<'a> {
    slot: &'a AtomicU64,
    entry: u64,
    level: u32,
    /// The rights that all levels together leave.
    rights: u64,
}

pub struct Space<M> {
    root: u64,
    memory: M,
}

impl<M: PhysMemory> Space<M> {
    #[inline]
    pub fn new(root: u64, memory: M) -> Self {
        Space { root, memory }
    }

    /// Gives the table in the frame at `new` the upper half of this root.
    pub fn copy_upper_half_to(&self, new: u64) {
        let (from, to) = (self.memory.table(self.root), self.memory.table(new));
        for index in 0..ENTRIES {
            let entry = if index < ENTRIES / 2 { 0 } else { from.0[index].load(Ordering::Relaxed) };
            to.0[index].store(entry, Ordering::Relaxed);
        }
    }

    /// Maps one page of 4 KiB; makes the tables on the way.
    pub fn map(&self, virt: u64, phys: u64, flags: Flags) -> Result<(), MapError> {
        if flags.writable && flags.executable {
            return Err(MapError::WritableAndExecutable);
        }
        let aligned = (virt | phys).is_multiple_of(PAGE_SIZE as u64);
        if !aligned || VirtAddr::try_new(virt).is_err() || virt == 0 || phys & !ADDRESS != 0 {
            return Err(MapError::BadAddress);
        }
        let mut table = self.memory.table(self.root);
        for level in (2..=4).rev() {
            table = self.step_down(&table.0[index(virt, level)])?;
        }
        // Release: a CPU that sees the page sees what was written to its frame.
        let leaf = &table.0[index(virt, 1)];
        leaf.compare_exchange(0, phys | flags.to_bits(), Ordering::Release, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| MapError::AlreadyMapped)
    }

    /// The entry of the lowest level for `virt`, whatever it is, if there is a table for it.
    pub fn leaf(&self, virt: u64) -> Option<*const AtomicU64> {
        let leaf = self.walk(virt);
        (leaf.level == 1).then_some(&raw const *leaf.slot)
    }

    /// Unmaps one page of 4 KiB and gives its physical address. A larger page stays.
    pub fn unmap(&self, virt: u64) -> Option<u64> {
        let leaf = self.find(virt).filter(|leaf| leaf.level == 1)?;
        let old = leaf.slot.swap(0, Ordering::Relaxed);
        (old & PRESENT != 0).then_some(old & ADDRESS)
    }

    pub fn translate(&self, virt: u64) -> Option<Translation> {
        let Leaf { entry, level, rights, .. } = self.find(virt)?;
        let size = page_size(level);
        let phys = (entry & ADDRESS & !(size - 1)) + virt % size;
        Some(Translation { phys, flags: Flags::from_bits(rights | entry & UNCACHED) })
    }

    pub fn find(&self, virt: u64) -> Option<Leaf<'_>> {
        VirtAddr::try_new(virt).ok()?;
        Some(self.walk(virt)).filter(|leaf| leaf.entry & PRESENT != 0)
    }

    fn walk(&self, virt: u64) -> Leaf<'_> {
        let (mut table, mut rights) = (self.memory.table(self.root), WRITABLE | USER);
        let mut level = 4;
        loop {
            let slot = &table.0[index(virt, level)];
            let entry = slot.load(Ordering::Acquire);
            rights = narrow(rights, entry);
            if entry & PRESENT == 0 || is_leaf(entry, level) {
                return Leaf { slot, entry, level, rights };
            }
            table = self.memory.table(entry & ADDRESS);
            level -= 1;
        }
    }

    /// The bytes from `window` on that are mapped to physical address 0 and up, `limit` at the
    /// most. By bisection: they are one range, so that its cost does not grow with memory.
    pub fn window_len(&self, window: u64, limit: u64) -> u64 {
        let is_mapped = |at| self.translate(window + at).is_some_and(|found| found.phys == at);
        let (mut len, mut beyond) = (0, limit / PAGE_SIZE as u64 + 1);
        while len + 1 < beyond {
            let middle = len + (beyond - len) / 2;
            if is_mapped((middle - 1) * PAGE_SIZE as u64) { len = middle } else { beyond = middle }
        }
        len * PAGE_SIZE as u64
    }

    pub fn audit(&self) -> Audit {
        let mut audit = Audit::default();
        self.audit_table(self.root, 4, 0, WRITABLE | USER, &mut audit);
        audit.page0_mapped = self.translate(0).is_some();
        audit
    }

    // Recursion is bounded by the four levels.
    fn audit_table(&self, phys: u64, level: u32, base: u64, rights: u64, audit: &mut Audit) {
        audit.tables += 1;
        for (i, entry) in self.memory.table(phys).0.iter().enumerate() {
            let entry = entry.load(Ordering::Acquire);
            if entry & PRESENT == 0 {
                continue;
            }
            let virt = VirtAddr::new_truncate(base + i as u64 * page_size(level)).as_u64();
            let rights = narrow(rights, entry);
            if is_leaf(entry, level) {
                audit.count(virt, rights);
            } else {
                self.audit_table(entry & ADDRESS, level - 1, virt, rights, audit);
            }
        }
    }

    /// The table below `entry`, made if there is none.
    fn step_down(&self, entry: &AtomicU64) -> Result<&Table, MapError> {
        let mut found = entry.load(Ordering::Acquire); // pairs with the exchange below
        if found & PRESENT == 0 {
            let new = self.memory.alloc_table().ok_or(MapError::NoMemory)?;
            // Rights are given at the leaf; a table allows everything. AcqRel:
            // the winner publishes a zeroed table, the loser sees the winner's.
            let link = new | PRESENT | WRITABLE;
            found = match entry.compare_exchange(found, link, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => link,
                Err(theirs) => {
                    self.memory.free_table(new);
                    theirs
                }
            };
        }
        if found & LARGE != 0 {
            return Err(MapError::AlreadyMapped);
        }
        Ok(self.memory.table(found & ADDRESS))
    }
}

impl Audit {
    fn count(&mut self, virt: u64, rights: u64) {
        self.pages += 1;
        let flags = Flags::from_bits(rights);
        self.executable_pages += usize::from(flags.executable);
        self.user_pages += usize::from(rights & USER != 0);
        self.lower_half_pages += usize::from(virt < 1 << 47);
        if flags.writable && flags.executable {
            self.writable_and_executable += 1;
            self.first_bad.get_or_insert(virt);
        }
    }
}

/// Rights shrink on the way down: every level must give writable and user, any gives no-execute.
fn narrow(rights: u64, entry: u64) -> u64 {
    (rights & entry & (WRITABLE | USER)) | ((rights | entry) & NO_EXECUTE)
}

/// At level 1 the bit of [`LARGE`] means something else: all entries are leaves.
fn is_leaf(entry: u64, level: u32) -> bool {
    level == 1 || entry & LARGE != 0 && level < 4
}

/// Bytes that one entry of a table of this level covers.
fn page_size(level: u32) -> u64 {
    1 << (12 + 9 * (level - 1))
}

fn index(virt: u64, level: u32) -> usize {
    (virt / page_size(level)) as usize % ENTRIES
}

#[cfg(test)]
pub mod tests;
