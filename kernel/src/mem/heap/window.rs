//! The heap's window of addresses: its pages, their records, their frames.
//!
//! The lower half of the window is for pages, the upper half for their records, which get
//! memory as the heap takes addresses, and keep it: 32 bytes for a page of 4 KiB.
//!
//! Called by `classes`: `commit` by the owner of the pages, the rest under their lock.

use super::pages::{MOST, Record, Source};
use crate::mem::frames::{self, Stock};
use crate::mem::{self, HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE};
use core::ops::Range;

/// Frames that growth leaves to stacks and page tables: a heap that takes the last one
/// turns every page fault of every G into an error.
const FRAMES_LEFT_ALONE: usize = 64;
/// Pages that a caller that must not fail gets at a time.
const NEED_PAGES: usize = 1;
/// Base address of the records.
const RECORDS: u64 = HEAP_WINDOW + (MMIO_WINDOW - HEAP_WINDOW) / 2;

const _: () = assert!(MOST * PAGE_SIZE <= (RECORDS - HEAP_WINDOW) as usize);
const _: () = assert!(MOST * size_of::<Record>() <= (MMIO_WINDOW - RECORDS) as usize);

/// Whether the caller may use the frames that growth leaves alone. Set once.
static IS_IN_NEED: spin::Once<fn() -> bool> = spin::Once::new();

/// Sets the function that says whether the running G must not fail, so that it may use
/// frames set aside: a G that panics because there is no memory needs some to unwind.
pub fn set_in_need(is_in_need: fn() -> bool) {
    IS_IN_NEED.call_once(|| is_in_need);
}

/// The address of a page of the heap.
pub fn address(page: usize) -> u64 {
    HEAP_WINDOW + (page * PAGE_SIZE) as u64
}

/// The kernel's window.
pub struct Window;

// SAFETY: the window is this heap's alone by the layout in `mem`, and a page mapped there
// is unmapped only after it was taken out. Records have addresses of their own.
unsafe impl Source for Window {
    fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(HEAP_WINDOW as usize)
    }

    fn record(&self, page: usize) -> &Record {
        let at = RECORDS as usize + page * size_of::<Record>();
        // SAFETY: `prepare` has mapped it, zeroed, which is a valid record, and it stays
        // mapped; all access is atomic.
        unsafe { &*core::ptr::with_exposed_provenance(at) }
    }

    fn prepare(&self, pages: Range<usize>) -> bool {
        let first = pages.start * size_of::<Record>() / PAGE_SIZE;
        let end = (pages.end * size_of::<Record>()).div_ceil(PAGE_SIZE);
        let Some(stock) = stock_for(end - first) else { return false };
        // Pages that are mapped already stay as they are.
        (first..end).all(|page| has_memory(RECORDS + (page * PAGE_SIZE) as u64, stock))
    }

    fn can_have(&self, pages: usize) -> bool {
        stock_for(pages).is_some()
    }

    fn commit(&self, pages: Range<usize>) -> usize {
        let Some(stock) = stock_for(pages.len()) else { return 0 };
        pages.take_while(|&page| has_memory(address(page), stock)).count()
    }
}

/// The frames that can supply memory for that many pages, if any.
fn stock_for(pages: usize) -> Option<Stock> {
    if pages + FRAMES_LEFT_ALONE <= frames::free_estimate() {
        return Some(Stock::Free);
    }
    let is_in_need = pages <= NEED_PAGES && IS_IN_NEED.get().is_some_and(|is| is());
    is_in_need.then_some(Stock::Last)
}

/// Commits a page of the window; false if no frame is left.
fn has_memory(page: u64, stock: Stock) -> bool {
    // SAFETY: the page is the heap's.
    unsafe { mem::commit(page, stock) }.is_ok()
}
