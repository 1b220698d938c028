//! The heap: size-class caches per CPU in front of one list of holes.
//!
//! `alloc` stands on this. A small request (2 KiB or less) is served from the
//! cache of its CPU: interrupts off, one list popped, interrupts on, no lock.
//! A cache that runs empty takes a batch from the class's central list, or has
//! a span carved from the hole list; one that runs over gives a batch to the
//! central list. Large requests go to the hole list, first fit. The hole list
//! grows by fresh frames at the top of the heap's window, and never shrinks.
//!
//! No memory is a null pointer, so the `try_` forms of collections see an
//! error; where a caller cannot take one, `handle_alloc_error` panics, and that
//! ends its G only. Interrupt handlers never come here.
//!
//! [`classes`] has the allocator as a type over any memory, which is how the
//! host and Miri test it; this file gives it the kernel's.

pub mod classes;

use crate::arch::paging::{self, Flags};
use crate::mem::percpu::Here;
use crate::mem::{HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE, frames};
use classes::{Allocator, Source};
use core::alloc::{GlobalAlloc, Layout};

pub use classes::{ClassStats, HeapStats};

/// Frames that growth leaves to stacks and page tables: a heap that takes the
/// last one turns every page fault of every G into an error.
const FRAMES_LEFT_ALONE: usize = 64;

#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: KernelHeap = KernelHeap(Allocator::new(Window { mapped: 0 }));

/// Maps the first chunk. `None`: there is no memory for it.
pub fn init() -> Option<()> {
    HEAP.0.warm_up().then_some(())
}

/// A snapshot of the counters.
pub fn stats() -> HeapStats {
    HEAP.0.stats()
}

struct KernelHeap(Allocator<Window>);

// SAFETY: `Allocator` gives each block once, as large and as aligned as asked
// (see `classes`), does not unwind, and keeps no block that was not freed.
unsafe impl GlobalAlloc for KernelHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.alloc(&Here::enter(), layout)
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
        let here = Here::enter();
        let new = self.0.alloc(&here, new_layout);
        drop(here); // the copy may be long
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

/// The heap's window of addresses, mapped from the bottom up.
struct Window {
    mapped: usize,
}

// SAFETY: the window is this heap's alone by the layout in `mem`, and what is
// mapped there is never unmapped; pages are added without a gap.
unsafe impl Source for Window {
    fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(HEAP_WINDOW as usize)
    }

    fn grow(&mut self, bytes: usize) -> usize {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let room = (MMIO_WINDOW - HEAP_WINDOW) as usize - self.mapped;
        // Asked first and not found out on the way: one absurd request must not
        // move all free memory into the heap before it fails.
        if pages > room / PAGE_SIZE || pages + FRAMES_LEFT_ALONE > frames::free_estimate() {
            return 0;
        }
        let before = self.mapped;
        for _ in 0..pages {
            let Some(frame) = frames::alloc() else { break };
            let virt = HEAP_WINDOW + self.mapped as u64;
            // SAFETY: the frame was allocated for this, and the page is above
            // everything the heap has used so far.
            if unsafe { paging::map_page(virt, frame.addr(), Flags::DATA) }.is_err() {
                // SAFETY: allocated above, and not mapped.
                unsafe { frames::free(frame) };
                break;
            }
            self.mapped += PAGE_SIZE;
        }
        self.mapped - before
    }
}

#[cfg(test)]
mod tests;
