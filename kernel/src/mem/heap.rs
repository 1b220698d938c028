//! The heap: size-class caches per CPU in front of pages.
//!
//! `alloc` uses this. A small request (2 KiB or less) is served from the cache of its
//! CPU: interrupts off, one list popped, interrupts on, no lock. An empty cache takes a
//! batch from the class's `slabs`, or has a page cut for it; a cache that is too full
//! returns a batch to the pages of those blocks. A page whose blocks are all back is free
//! again. Large requests are whole `pages`. When frames are short, free pages give up
//! their memory ([`give_back`]), and get memory again when the heap needs them.
//!
//! Out of memory is a null pointer, so the `try_` forms of collections see an error;
//! where a caller cannot take one, `handle_alloc_error` panics, and that ends its G only.
//! Before that, a caller that can wait waits until all cached memory of CPUs, stacks and
//! heap has been given up, and tries a second time (`mem::relief`). Interrupt handlers
//! never allocate; they only give up the caches of their CPU.
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
use crate::mem::{PAGE_SIZE, frames, frames::Frame, relief, stack};
use classes::Allocator;
use core::alloc::{GlobalAlloc, Layout};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use window::Window;

pub use classes::HeapStats;
pub use window::set_in_need;

/// Pages, and runs of them, that all CPUs flush from their TLBs at a time.
const UNCOMMIT_PAGES: usize = 256;
const UNCOMMIT_RUNS: usize = 64;

/// Free pages that the heap keeps, unless a request is about to fail.
const KEPT_PAGES: usize = 256;

#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: KernelHeap = KernelHeap(Allocator::new(Window));

/// Maps the first page. `None`: there is no memory for it.
pub fn init() -> Option<()> {
    HEAP.0.warm_up().then_some(())
}

/// A snapshot of the counters.
pub fn stats() -> HeapStats {
    HEAP.0.stats()
}

/// Whether the heap has enough free pages to be worth uncommitting.
pub fn has_many() -> bool {
    HEAP.0.free_pages() > KEPT_PAGES
}

/// Whether the heap has free pages that could be uncommitted.
pub(super) fn has_some() -> bool {
    HEAP.0.free_pages() > 0
}

/// Returns the small blocks of this CPU's caches to the slabs.
pub(super) fn shed(here: &Here) {
    HEAP.0.shed(here);
}

struct KernelHeap(Allocator<Window>);

// SAFETY: `Allocator` gives each block once, as large and as aligned as asked (see
// `classes`), does not unwind, and keeps no block that was not freed.
unsafe impl GlobalAlloc for KernelHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = self.try_alloc(layout);
        if block.is_null() { self.look_again(layout) } else { block }
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: our caller promises that `ptr` is from `alloc` with `layout`.
        unsafe { self.0.free(&Here::enter(), ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: our caller promises that `new_size` fits the alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if classes::same_block(layout, new_layout) {
            return ptr;
        }
        // SAFETY: our caller promises that the size is not 0.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            let count = layout.size().min(new_size);
            // SAFETY: the old block has at least `count` bytes, the new one too,
            // and a fresh block overlaps no live one.
            unsafe { core::ptr::copy_nonoverlapping(ptr, new, count) };
            // SAFETY: our caller gave the old block up.
            unsafe { self.dealloc(ptr, layout) };
        }
        new
    }
}

impl KernelHeap {
    /// The first try. Many pages take long, and interrupts may come meanwhile.
    #[inline]
    fn try_alloc(&self, layout: Layout) -> *mut u8 {
        if classes::is_large(layout) {
            return self.0.alloc_large(layout, || self.0.shed(&Here::enter()));
        }
        self.0.alloc(&Here::enter(), layout)
    }

    /// The second try, if the caller can wait for it.
    #[cold]
    fn look_again(&self, layout: Layout) -> *mut u8 {
        let pages = layout.size().div_ceil(PAGE_SIZE);
        if relief::wait_for(pages) { self.try_alloc(layout) } else { core::ptr::null_mut() }
    }
}

/// Uncommits free memory of the heap, about `pages` pages, and returns how many: so that
/// stacks can use it after a program that used much has ended, and a request for many
/// pages gets them wherever they were. The addresses stay the heap's. Waits for all CPUs,
/// also for another caller of this function: on the stack of an M, interrupts on, no lock
/// held.
pub fn give_back(pages: usize) -> usize {
    static GIVING: AtomicBool = AtomicBool::new(false);
    if !stack::can_shoot_down() {
        return 0;
    }
    // The caller is an M, which is never taken off its CPU.
    while GIVING.swap(true, Ordering::Acquire) {
        arch::relax();
    }
    let mut given = 0;
    while given < pages {
        match uncommit_some(pages - given) {
            0 => break,
            some => given += some,
        }
    }
    GIVING.store(false, Ordering::Release); // pairs with the swap
    given
}

/// Uncommits some free pages, at most `most`; returns how many.
fn uncommit_some(most: usize) -> usize {
    let mut list = [Frame::containing(0); UNCOMMIT_PAGES];
    let mut runs = [const { 0..0 }; UNCOMMIT_RUNS];
    let (mut taken, mut count) = (0, 0);
    while count < UNCOMMIT_RUNS
        && let Some(run) = HEAP.0.take_out(most.min(UNCOMMIT_PAGES).saturating_sub(taken))
    {
        for page in run.clone() {
            // SAFETY: the page was taken out of the heap, and is unused.
            if let Some(phys) = unsafe { paging::unmap_page(window::address(page)) } {
                list[taken] = Frame::containing(phys);
                taken += 1;
            }
        }
        runs[count] = run;
        count += 1;
    }
    if count == 0 {
        return 0;
    }
    let ranges = runs.each_ref().map(addresses);
    stack::shoot_down(&ranges[..count]);
    // SAFETY: unmapped above, and flushed from the TLBs of all CPUs.
    unsafe { frames::free_many(&list[..taken]) };
    runs.into_iter().take(count).for_each(|run| HEAP.0.put_back(run));
    taken
}

fn addresses(run: &Range<usize>) -> Range<u64> {
    window::address(run.start)..window::address(run.end)
}

#[cfg(test)]
mod tests;
