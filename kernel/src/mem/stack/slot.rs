//! Slots: the stack of every address, by arithmetic alone.
//!
//! The window is cut into sixteen regions of 2 TiB, one for each size class; a region is cut into
//! slots of that size. The page-fault handler needs no table to find class, slot and guard. The
//! last region has the records and headers of all slots, one after another for each class.

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
/// Bytes for the pool's header of a slot, after its record.
pub const HEADER_BYTES: usize = 16;
/// Bytes for a record that the user of a slot keeps for ever. With the header, a multiple of 64: a
/// record is the name of its G in lock words, whose lowest bits are flags.
pub const RECORD_BYTES: usize = 432;
/// Bytes at the top of a slot for the canary, so that the first stack pointer is in the slot; a
/// multiple of 16, as stack pointers are.
pub const CANARY_BYTES: usize = 16;
/// The size of a stack of the smallest class for its user.
pub const DEFAULT_SIZE: usize = SMALLEST - OVERHEAD;
/// The largest size for a user: 1 GiB, as Go's limit is.
pub const MAX_SIZE: usize = 1 << 30;
/// The default stack of the G of a program's main function.
pub const MAIN_SIZE: usize = 8 << 20;

/// A page table (4 KiB) serves 16 of these slots, so a parked G takes 256 bytes of it, and its page
/// or, if packed (`pack`), its block. Half of a slot of 64 KiB would be closed; with slots of 256
/// KiB a region would hold only 8 million Gs.
const SMALLEST: usize = 128 * 1024;
/// Bytes at the bottom of a slot that an ordinary touch does not commit.
const CLOSED_BYTES: usize = (GUARD_PAGES + SPARE_PAGES + MARGIN_PAGES) * PAGE_SIZE;
const OVERHEAD: usize = CLOSED_BYTES + CANARY_BYTES;
const REGION: u64 = 1 << 41;
/// Where the records begin, how far it is from one class's to the next, and from one to the next.
const RECORDS: u64 = STACK_WINDOW + CLASSES as u64 * REGION;
const RECORD_REGION: u64 = 1 << 33;
const RECORD_STRIDE: u64 = (RECORD_BYTES + HEADER_BYTES) as u64;
const _: () = assert!((REGION / SMALLEST as u64) * RECORD_STRIDE <= RECORD_REGION);

/// Whether the record at that address is of a slot of the smallest class.
#[inline(always)]
pub fn is_smallest_record(at: u64) -> bool {
    const { assert!(RECORDS.is_multiple_of(RECORD_REGION)) }
    at / RECORD_REGION == RECORDS / RECORD_REGION
}

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

/// The slot that has the record or header at `addr`.
pub fn of_record(addr: u64) -> Option<Slot> {
    let offset = addr.checked_sub(RECORDS)?;
    let (class, index) = (offset / RECORD_REGION, offset % RECORD_REGION / RECORD_STRIDE);
    let has_slot = class < CLASSES as u64 && index < u64::from(capacity(class as usize));
    has_slot.then_some(Slot { class: class as u8, index: index as u32 })
}

/// How many slots a class has addresses for.
pub fn capacity(class: usize) -> u32 {
    (REGION / slot_bytes(class)) as u32
}

fn slot_bytes(class: usize) -> u64 {
    (SMALLEST as u64) << class
}

impl Slot {
    pub fn new(class: usize, index: u32) -> Slot {
        debug_assert!(class < CLASSES && index < capacity(class), "no such slot");
        Slot { class: class as u8, index }
    }

    pub fn class(self) -> usize {
        self.class.into()
    }

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
        self.base() + slot_bytes(self.class()) - CANARY_BYTES as u64
    }

    /// Where it ends, above the canary.
    pub fn end(self) -> u64 {
        self.start() + CANARY_BYTES as u64
    }

    #[inline(always)]
    pub fn record(self) -> u64 {
        RECORDS + u64::from(self.class) * RECORD_REGION + u64::from(self.index) * RECORD_STRIDE
    }

    #[inline(always)]
    pub fn header(self) -> u64 {
        self.record() + RECORD_BYTES as u64
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
                let end = slot.end();
                let closed_end = slot.base() + CLOSED_BYTES as u64;
                for (addr, part) in [
                    (slot.base(), Part::Closed),
                    (closed_end - 1, Part::Closed),
                    (closed_end, Part::Body),
                    (slot.start(), Part::Body),
                    (end - 1, Part::Body),
                ] {
                    assert_eq!(locate(addr), Some((slot, part)), "{addr:#x}");
                }
                assert_eq!(is_smallest_record(slot.record()), class == 0);
                assert_ne!(locate(end).map(|(s, _)| s), Some(slot));
                assert_eq!(slot.bounds(), closed_end..slot.start());
                for addr in [slot.record(), slot.header(), slot.header() + 15] {
                    assert_eq!((of_record(addr), locate(addr)), (Some(slot), None), "{addr:#x}");
                    assert!(addr < HEAP_WINDOW);
                }
                assert!(slot.record().is_multiple_of(64));
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
