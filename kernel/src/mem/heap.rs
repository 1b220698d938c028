//! The heap: size-class caches per CPU in front of pages.
//!
//! `alloc` stands on this. A small request (2 KiB or less) is served from the
//! cache of its CPU: interrupts off, one list popped, interrupts on, no lock.
//! A cache that runs empty takes a batch from the class's `slabs`, or has a page
//! cut for it; one that runs over gives a batch back to the pages that the blocks are
//! in. A page all of whose blocks are there is free again. Large requests are whole
//! `pages`. When frames are short, free pages give theirs back ([`give_back`]), and
//! have others when the heap needs them.
//!
//! No memory is a null pointer, so the `try_` forms of collections see an
//! error; where a caller cannot take one, `handle_alloc_error` panics, and that
//! ends its G only. Before that, who can wait waits until all has been given up that
//! CPUs, stacks and the heap only keep, and looks a second time (`mem::relief`).
//! Interrupt handlers never come here, but to give up what their CPU keeps.
//!
//! [`classes`] has the allocator as a type over any memory, which is how the
//! host and Miri test it; this file gives it the kernel's, and `window` its pages.

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

/// Pages, and runs of them, that are forgotten by all CPUs at a time.
const UNCOMMIT_PAGES: usize = 256;
const UNCOMMIT_RUNS: usize = 64;

/// Free pages that the heap keeps, unless somebody is about to be refused.
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

/// Whether enough of the heap is free that it is worth to be given back.
pub fn has_many() -> bool {
    HEAP.0.free_pages() > KEPT_PAGES
}

/// Whether some of the heap's memory is free, and could be given back.
pub(super) fn has_some() -> bool {
    HEAP.0.free_pages() > 0
}

/// Gives up what this CPU keeps at hand of small blocks.
pub(super) fn shed(here: &Here) {
    HEAP.0.shed(here);
}

struct KernelHeap(Allocator<Window>);

// SAFETY: `Allocator` gives each block once, as large and as aligned as asked
// (see `classes`), does not unwind, and keeps no block that was not freed.
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
    /// The first look. Many pages take long, and interrupts may come meanwhile.
    #[inline]
    fn try_alloc(&self, layout: Layout) -> *mut u8 {
        if classes::is_large(layout) {
            return self.0.alloc_large(layout, || self.0.shed(&Here::enter()));
        }
        self.0.alloc(&Here::enter(), layout)
    }

    /// The second look, if the caller can wait for it.
    #[cold]
    fn look_again(&self, layout: Layout) -> *mut u8 {
        let pages = layout.size().div_ceil(PAGE_SIZE);
        if relief::wait_for(pages) { self.try_alloc(layout) } else { core::ptr::null_mut() }
    }
}

/// Gives memory back that is free in the heap, about `pages` pages, and says how
/// many: so that stacks have it when a program that has used much has ended, and a
/// request that needs many has it wherever it was. The addresses stay the heap's. Waits
/// for all CPUs, also for one that is at it: on the stack of an M, interrupts on, no
/// lock held.
pub fn give_back(pages: usize) -> usize {
    static GIVING: AtomicBool = AtomicBool::new(false);
    if !stack::can_shoot_down() {
        return 0;
    }
    // Who gives is an M, which nobody takes off its CPU.
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

/// Takes the memory of some free pages away, at most so many; says how many.
fn uncommit_some(most: usize) -> usize {
    let mut list = [Frame::containing(0); UNCOMMIT_PAGES];
    let mut runs = [const { 0..0 }; UNCOMMIT_RUNS];
    let (mut taken, mut count) = (0, 0);
    while count < UNCOMMIT_RUNS
        && let Some(run) = HEAP.0.take_out(most.min(UNCOMMIT_PAGES).saturating_sub(taken))
    {
        for page in run.clone() {
            // SAFETY: the page was taken out of the heap, and nobody uses it.
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
    // SAFETY: unmapped above, and no CPU remembers them now.
    unsafe { frames::free_many(&list[..taken]) };
    runs.into_iter().take(count).for_each(|run| HEAP.0.put_back(run));
    taken
}

fn addresses(run: &Range<usize>) -> Range<u64> {
    window::address(run.start)..window::address(run.end)
}

#[cfg(test)]
mod tests;
