//! The heap: size-class caches per CPU in front of pages.
//!
//! `alloc` uses this. A small request (2 KiB or less) is served from the cache of its
//! CPU: interrupts off, one list popped, interrupts on, no lock. An empty cache takes a
//! batch from the class's `slabs`, or has a page cut for it; a cache that is too full
//! returns a batch to the pages of those blocks. A page whose blocks are all back is free
//! again. Large requests are whole `pages`. When frames are short, free pages are
//! uncommitted ([`uncommit`]), and get memory again when the heap needs them.
//!
//! Out of memory is a null pointer, so the `try_` forms of collections see an error;
//! where a caller cannot take one, `handle_alloc_error` panics, and that ends its G only.
//! Before that, a caller that can wait waits until all cached memory of CPUs, stacks and
//! heap is free, and tries a second time (`mem::reclaim`). Interrupt handlers never
//! allocate; they only empty the caches of their CPU.
//!
//! [`classes`] has the allocator as a type over any memory, which is how the host and
//! Miri test it; this file instantiates it for the kernel, and `window` supplies its
//! pages.

pub mod classes;
mod pages;
mod slabs;
mod window;

use crate::arch::{self, paging};
use crate::mem::percpu::Here;
use crate::mem::{PAGE_SIZE, frames, frames::Frame, reclaim};
use arrayvec::ArrayVec;
use classes::Allocator;
use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use window::Window;

pub use classes::HeapStats;
pub use window::set_in_need;

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
    /// The first try. Many pages take long, and interrupts may come meanwhile.
    #[inline]
    fn try_alloc(&self, layout: Layout) -> *mut u8 {
        if classes::is_large(layout) {
            return self.alloc_large(layout);
        }
        self.alloc_here(&Here::enter(), layout)
    }

    /// The second try, if the caller can wait for it.
    #[cold]
    fn try_again(&self, layout: Layout) -> *mut u8 {
        let pages = layout.size().div_ceil(PAGE_SIZE);
        if reclaim::wait_for(pages) { self.try_alloc(layout) } else { core::ptr::null_mut() }
    }
}

/// Uncommits free memory of the heap, about `pages` pages: so that stacks can use it after
/// a program that used much has ended, and a request for many pages gets them wherever they
/// were. The addresses stay the heap's. Waits for all CPUs: on the stack of an M, interrupts
/// on, no lock held; one M at a time.
pub(super) fn uncommit(pages: usize) {
    let mut left = pages;
    while left > 0 {
        match uncommit_some(left) {
            0 => break,
            some => left = left.saturating_sub(some),
        }
    }
}

/// Uncommits some free pages, at most `most`; returns how many.
fn uncommit_some(most: usize) -> usize {
    let most = most.min(UNCOMMIT_PAGES);
    let mut runs = ArrayVec::<Range<usize>, UNCOMMIT_RUNS>::new();
    let mut list = ArrayVec::<Frame, UNCOMMIT_PAGES>::new();
    while !runs.is_full()
        && let Some(run) = HEAP.take_out(most - list.len())
    {
        // SAFETY: the page was taken out of the heap, and is unused.
        let unmap = |page| unsafe { paging::unmap_page(window::address(page)) };
        list.extend(run.clone().filter_map(unmap).map(Frame::containing));
        runs.push(run);
    }
    if !runs.is_empty() {
        arch::shootdown();
        // SAFETY: unmapped above, and flushed from the TLBs of all CPUs.
        unsafe { frames::free_many(&list) };
        runs.into_iter().for_each(|run| HEAP.put_back(run));
    }
    list.len()
}

#[cfg(test)]
mod tests;
