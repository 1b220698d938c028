//! Slots: the stack of every address, by arithmetic alone.
//!
//! The window is cut into sixteen regions of 2 TiB, one for each size class; a region is cut into
//! slots of that size. The page-fault handler needs no table to find class, slot and guard.

use crate::mem::{PAGE_SIZE, STACK_WINDOW};
use core::ops::Range;

/// Size classes: 128 KiB, 256 KiB, … 2 GiB.
pub const CLASSES: usize = 15;
/// Pages at the bottom of a slot that never get memory.
pub const GUARD_PAGES: usize = 1;
/// Pages above the guard that are committed when a stack is full: for the report, the unwinder,
/// which needs 15 KiB, and destructors.
pub const SPARE_PAGES: usize = 5;
/// Pages above the spare ones for what the kernel does on a stack unasked.
pub const MARGIN_PAGES: usize = 1;
/// Bytes at the very top of a slot for the pool's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes below the header for a record that its user keeps there for ever.
pub const RECORD_BYTES: usize = 448;
/// Bytes below the record for the canary, if any; a multiple of 16, as stack pointers are.
pub const CANARY_BYTES: usize = if cfg!(debug_assertions) { 16 } else { 0 };
/// The size of a stack of the smallest class for its user.
pub const DEFAULT_SIZE: usize = SMALLEST - OVERHEAD;
/// The largest size for a user: 1 GiB, as Go's limit is.
pub const MAX_SIZE: usize = 1 << 30;
/// The default stack of the G of a program's main function.
pub const MAIN_SIZE: usize = 8 << 20;

/// A page table of 4 KiB serves 16 of these: 256 bytes for a parked G, beside its page. Half of
/// 64 KiB would be closed; with 256 KiB a region would have addresses for 8 million Gs only.
const SMALLEST: usize = 128 * 1024;
/// Bytes at the top of a slot that are not its user's stack.
pub const TOP_BYTES: usize = CANARY_BYTES + RECORD_BYTES + HEADER_BYTES;
/// Bytes at the bottom of a slot that an ordinary touch does not commit.
const CLOSED_BYTES: usize = (GUARD_PAGES + SPARE_PAGES + MARGIN_PAGES) * PAGE_SIZE;
const OVERHEAD: usize = CLOSED_BYTES + TOP_BYTES;
const REGION: u64 = 1 << 41;

/// A slot for one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    class: u8,
    index: u32,
}

/// The part of a slot that an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The guard, the spare pages or the margin: an overflow.
    Closed,
    /// Committed on touch.
    Body,
}

/// The class whose slots have at least `size` bytes for their user.
pub fn class_for(size: usize) -> Option<usize> {
    let need = size.checked_add(OVERHEAD)?.max(SMALLEST).checked_next_power_of_two()?;
    (size <= MAX_SIZE).then(|| (need / SMALLEST).ilog2() as usize)
}

/// The slot and part that `addr` lies in; `None` outside the window's slots.
pub fn locate(addr: u64) -> Option<(Slot, Part)> {
    let offset = addr.checked_sub(STACK_WINDOW)?;
    let class = offset / REGION;
    if class >= CLASSES as u64 {
        return None;
    }
    let (in_region, bytes) = (offset % REGION, slot_bytes(class as usize));
    let is_closed = in_region % bytes < CLOSED_BYTES as u64;
    let slot = Slot { class: class as u8, index: (in_region / bytes) as u32 };
    Some((slot, if is_closed { Part::Closed } else { Part::Body }))
}

/// How many slots a class has addresses for.
pub fn capacity(class: usize) -> u32 {
    (REGION / slot_bytes(class)) as u32
}

fn slot_bytes(class: usize) -> u64 {
    (SMALLEST as u64) << class
}

impl Slot {
    /// Slot number `index` of `class`.
    pub fn new(class: usize, index: u32) -> Slot {
        debug_assert!(class < CLASSES && index < capacity(class), "no such slot");
        Slot { class: class as u8, index }
    }

    /// The slot of the smallest class that `addr` lies in, if it does.
    #[inline(always)]
    pub fn smallest_at(addr: u64) -> Option<Slot> {
        let offset = addr.wrapping_sub(STACK_WINDOW);
        (offset < REGION).then_some(Slot { class: 0, index: (offset / SMALLEST as u64) as u32 })
    }

    /// Its size class.
    pub fn class(self) -> usize {
        self.class.into()
    }

    /// Its number in the class.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Its first address, where the guard begins.
    pub fn base(self) -> u64 {
        STACK_WINDOW
            + u64::from(self.class) * REGION
            + u64::from(self.index) * slot_bytes(self.class())
    }

    /// The initial stack pointer of its user.
    pub fn start(self) -> u64 {
        self.base() + slot_bytes(self.class()) - TOP_BYTES as u64
    }

    /// The address of the record, above the canary.
    pub fn top(self) -> u64 {
        self.start() + CANARY_BYTES as u64
    }

    /// The address of its header.
    pub fn header(self) -> u64 {
        self.top() + RECORD_BYTES as u64
    }

    /// The addresses for its user.
    pub fn bounds(self) -> Range<u64> {
        self.base() + CLOSED_BYTES as u64..self.start()
    }

    /// Where its spare pages begin: above the guard.
    pub fn spare(self) -> u64 {
        self.base() + (GUARD_PAGES * PAGE_SIZE) as u64
    }

    /// The page `n` below the top one.
    pub fn page_from_top(self, n: usize) -> u64 {
        self.base() + slot_bytes(self.class()) - ((n + 1) * PAGE_SIZE) as u64
    }

    /// Pages that are committed on touch.
    pub fn body_pages(self) -> usize {
        (slot_bytes(self.class()) as usize - CLOSED_BYTES) / PAGE_SIZE
    }

    /// The number of the page that `addr` is in, from the top one down.
    pub fn depth_of(self, addr: u64) -> usize {
        ((self.base() + slot_bytes(self.class()) - 1 - addr) / PAGE_SIZE as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::HEAP_WINDOW;

    #[test]
    fn every_address_of_a_slot_leads_back_to_it() {
        for class in 0..CLASSES {
            for index in [0, 1, 77, capacity(class) - 1] {
                let slot = Slot::new(class, index);
                let end = slot.header() + HEADER_BYTES as u64;
                let closed_end = slot.base() + CLOSED_BYTES as u64;
                for (addr, part) in [
                    (slot.base(), Part::Closed),
                    (closed_end - 1, Part::Closed),
                    (closed_end, Part::Body),
                    (slot.top() - 8, Part::Body),
                    (end - 1, Part::Body),
                ] {
                    assert_eq!(locate(addr), Some((slot, part)), "{addr:#x}");
                    assert_eq!(Slot::smallest_at(addr), (class == 0).then_some(slot));
                }
                assert_ne!(locate(end).map(|(s, _)| s), Some(slot));
                assert_eq!(slot.bounds(), closed_end..slot.start());
                assert_eq!(slot.top() - slot.start(), CANARY_BYTES as u64);
                assert!(end <= HEAP_WINDOW);
            }
        }
    }

    #[test]
    fn addresses_elsewhere_are_no_stack() {
        for addr in [0, 0x8000, STACK_WINDOW - 1, HEAP_WINDOW, u64::MAX] {
            assert_eq!(locate(addr), None, "{addr:#x}");
        }
        assert_eq!(locate(STACK_WINDOW + CLASSES as u64 * REGION), None, "the unused regions");
    }

    #[test]
    fn a_probe_a_page_below_the_last_good_byte_hits_the_guard() {
        let bounds = Slot::new(0, 5).bounds();
        for sp in [bounds.start, bounds.start + 8, bounds.start + PAGE_SIZE as u64 - 1] {
            let (_, part) = locate(sp - PAGE_SIZE as u64).unwrap();
            assert_eq!(part, Part::Closed);
        }
    }

    #[test]
    fn a_plain_stack_has_56_kib_and_ten_million_have_addresses() {
        const { assert!(DEFAULT_SIZE >= 56 << 10) };
        assert!(capacity(0) >= 10_000_000);
    }

    #[test]
    fn pages_are_counted_from_the_top() {
        let slot = Slot::new(0, 5);
        for n in 0..32 {
            let page = slot.page_from_top(n);
            assert_eq!([slot.depth_of(page), slot.depth_of(page + 4095)], [n, n]);
        }
        assert_eq!(slot.depth_of(slot.bounds().start), slot.body_pages() - 1);
    }

    #[test]
    fn sizes_choose_the_smallest_class_that_fits() {
        assert_eq!(class_for(0), Some(0));
        assert_eq!(class_for(64 * 1024), Some(0));
        assert_eq!(class_for(128 * 1024), Some(1));
        assert_eq!(class_for(MAX_SIZE), Some(CLASSES - 1));
        assert_eq!(class_for(MAX_SIZE + 1), None);
        assert_eq!(class_for(usize::MAX), None);
        for size in (0..40 << 20).step_by(99_991) {
            let bounds = Slot::new(class_for(size).unwrap(), 0).bounds();
            assert!((bounds.end - bounds.start) as usize >= size);
        }
    }
}
