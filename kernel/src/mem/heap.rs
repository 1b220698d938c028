//! The heap: size-class caches per CPU in front of pages.
//!
//! `alloc` uses this. A small request (2 KiB or less) is served from the cache of its CPU:
//! interrupts off, one list popped, interrupts on, no lock. An empty cache takes a batch from the
//! class's `slabs`, or has a page cut for it; a cache that is too full returns a batch to the pages
//! of those blocks. Large requests are whole `pages`. When frames are short, free pages are
//! uncommitted ([`uncommit`]), and get memory again when the heap needs them.
//!
//! Out of memory is a null pointer, so the `try_` forms of collections see an error; where a caller
//! cannot take one, `handle_alloc_error` panics, and that ends its G only. Before that, a caller
//! that can wait has all cached memory freed and tries a second time (`mem::reclaim`). Interrupt
//! handlers never allocate; they only empty the caches of their CPU.
//!
//! [`classes`] has the allocator as a type over any memory, which is how the host and Miri test it;
//! this file instantiates it for the kernel, in a window of addresses. The lower half of the window
//! is for pages, the upper half for their records, which get memory as the heap takes addresses,
//! and keep it: 32 bytes for a page of 4 KiB.

pub mod classes;
mod pages;
mod slabs;

use crate::arch::{self, paging};
use crate::mem::frames::{self, Frame, Stock};
use crate::mem::percpu::Here;
use crate::mem::{self, HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE, reclaim};
use arrayvec::ArrayVec;
use classes::Allocator;
use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use pages::{MOST, Record, Source};

pub use classes::HeapStats;

/// Frames that growth leaves to new stacks and page tables, so that a G can still be spawned.
const FRAMES_LEFT_ALONE: usize = 64;
const RECORDS: u64 = HEAP_WINDOW + (MMIO_WINDOW - HEAP_WINDOW) / 2;

const _: () = assert!(MOST * PAGE_SIZE <= (RECORDS - HEAP_WINDOW) as usize);
const _: () = assert!(MOST * size_of::<Record>() <= (MMIO_WINDOW - RECORDS) as usize);

/// Pages, and runs of them, that all CPUs flush from their TLBs at a time.
const UNCOMMIT_PAGES: usize = 256;
const UNCOMMIT_RUNS: usize = 64;

#[cfg_attr(target_os = "none", global_allocator)]
pub(super) static HEAP: Allocator<Window> = Allocator::new(Window);

// SAFETY: `Allocator` gives each block once, as large and as aligned as asked (see
// `classes`), does not unwind, and keeps no block that was not freed.
unsafe impl GlobalAlloc for Allocator<Window> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = self.try_alloc(layout);
        if block.is_null() { self.try_again(layout) } else { block }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that `ptr` is from `alloc` with `layout`.
        unsafe { self.free(&Here::enter(), ptr, layout) }
    }
}

impl Allocator<Window> {
    #[cold]
    fn try_again(&self, layout: Layout) -> *mut u8 {
        let pages = layout.size().div_ceil(PAGE_SIZE);
        if reclaim::wait_for(pages) { self.try_alloc(layout) } else { core::ptr::null_mut() }
    }
}

/// Uncommits about `pages` free pages of the heap: so that stacks can use the memory, and a request
/// for many pages gets them wherever they were. The addresses stay the heap's. Waits for all CPUs:
/// on the stack of an M, interrupts on, no lock held; one M at a time.
pub(super) fn uncommit(mut pages: usize) {
    while pages > 0 {
        let most = pages.min(UNCOMMIT_PAGES);
        let mut runs = ArrayVec::<Range<usize>, UNCOMMIT_RUNS>::new();
        let mut list = ArrayVec::<Frame, UNCOMMIT_PAGES>::new();
        while !runs.is_full()
            && let Some(run) = HEAP.take_out(most - list.len())
        {
            // SAFETY: the page was taken out of the heap, and is unused.
            let unmap = |page| unsafe { paging::unmap_page(address(page)) };
            list.extend(run.clone().filter_map(unmap).map(Frame::containing));
            runs.push(run);
        }
        if runs.is_empty() {
            return;
        }
        arch::shootdown();
        // SAFETY: unmapped above, and flushed from the TLBs of all CPUs.
        list.iter().for_each(|&frame| unsafe { frames::free(frame) });
        runs.into_iter().for_each(|run| HEAP.put_back(run));
        pages = pages.saturating_sub(list.len());
    }
}

static IS_IN_NEED: spin::Once<fn() -> bool> = spin::Once::new();

/// Sets the function that says whether the running G may use the last frames, a page at a time: a G
/// that panics because there is no memory needs some to unwind.
pub fn set_in_need(is_in_need: fn() -> bool) {
    IS_IN_NEED.call_once(|| is_in_need);
}

fn address(page: usize) -> u64 {
    HEAP_WINDOW + (page * PAGE_SIZE) as u64
}

pub(super) struct Window;

// SAFETY: the window is this heap's alone by the layout in `paging`, and a page mapped there
// is unmapped only after it was taken out. Records have addresses of their own.
unsafe impl Source for Window {
    fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(HEAP_WINDOW as usize)
    }

    fn record(&self, page: usize) -> &Record {
        let at = RECORDS as usize + page * size_of::<Record>();
        // SAFETY: `prepare` has mapped it for ever, zeroed: a valid record; all access is atomic.
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
    let is_in_need = pages <= 1 && IS_IN_NEED.get().is_some_and(|is| is());
    is_in_need.then_some(Stock::Last)
}

/// Commits a page of the window; false if no frame is left.
fn has_memory(page: u64, stock: Stock) -> bool {
    // SAFETY: the page is the heap's.
    unsafe { mem::commit(page, stock) }.is_ok()
}

#[cfg(test)]
mod tests;
