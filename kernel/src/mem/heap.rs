//! The heap: size-class caches per CPU in front of one list of holes.
//!
//! `alloc` stands on this. A small request (2 KiB or less) is served from the
//! cache of its CPU: interrupts off, one list popped, interrupts on, no lock.
//! A cache that runs empty takes a batch from the class's central list, or has
//! a span carved from the hole list; one that runs over gives a batch to the
//! central list. Large requests go to the hole list, first fit. The hole list
//! grows by fresh frames at the top of the heap's window, and never shrinks; but
//! when frames are short, large holes give theirs back ([`give_back`]), and have
//! others when the heap needs them.
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
use crate::mem::{HEAP_WINDOW, MMIO_WINDOW, PAGE_SIZE, frames, frames::Frame, stack};
use classes::{Allocator, Source};
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

pub use classes::{ClassStats, HeapStats};

/// Frames that growth leaves to stacks and page tables: a heap that takes the
/// last one turns every page fault of every G into an error.
const FRAMES_LEFT_ALONE: usize = 64;

/// Pages that who must not fail gets at a time.
const NEED_PAGES: usize = 1;
/// Pages of the holes whose memory is given back, and how many ranges of such holes
/// there may be.
const LENT_PAGES: [usize; 3] = [1024, 256, 64];
const LENT_MOST: usize = 256;
/// Pages that are forgotten by all CPUs at a time.
const UNCOMMIT_PAGES: usize = 256;
/// Free bytes that the heap keeps.
const KEPT: usize = 1 << 20;

#[cfg_attr(target_os = "none", global_allocator)]
static HEAP: KernelHeap = KernelHeap(Allocator::new(Window::new()));

/// Says who may use the frames that growth leaves alone. Set once.
static IS_IN_NEED: spin::Once<fn() -> bool> = spin::Once::new();

/// Says how to know whether who allocates must not fail, so that it gets of what is
/// set aside: a G that panics because there is no memory needs some to unwind.
pub fn set_in_need(is_in_need: fn() -> bool) {
    IS_IN_NEED.call_once(|| is_in_need);
}

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

/// Gives memory back that is free in the heap, about `pages` pages, and says how
/// many: so that stacks have it when a program that has used much has ended. The
/// addresses stay the heap's. None while another CPU is at it. Waits for all CPUs:
/// interrupts on, no lock held.
pub fn give_back(pages: usize) -> usize {
    static GIVING: AtomicBool = AtomicBool::new(false);
    if !stack::can_shoot_down() || GIVING.swap(true, Ordering::Acquire) {
        return 0;
    }
    let mut given = lend_holes(pages);
    // What is left of it may be on the lists of small blocks.
    if given < pages && HEAP.0.reclaim() {
        given += lend_holes(pages - given);
    }
    GIVING.store(false, Ordering::Release); // pairs with the swap
    given
}

/// Gives the memory of large holes back, about `pages` pages.
fn lend_holes(pages: usize) -> usize {
    let mut given = 0;
    for size in LENT_PAGES {
        let Ok(layout) = Layout::from_size_align(size * PAGE_SIZE, PAGE_SIZE) else { break };
        while given < pages && HEAP.0.free_bytes() > KEPT && HEAP.0.with_source(|w, _| w.can_lend())
        {
            let Some(block) = HEAP.0.take_out(layout) else { break };
            let lent = Lent { start: block.as_ptr().expose_provenance() as u64, pages: size };
            uncommit(&lent);
            HEAP.0.with_source(|window, _| window.lend(lent));
            given += size;
        }
    }
    given
}

/// Takes the memory of that range away, which is free and on no list.
fn uncommit(lent: &Lent) {
    let mut list = [Frame::containing(0); UNCOMMIT_PAGES];
    for first in (0..lent.pages).step_by(UNCOMMIT_PAGES) {
        let count = UNCOMMIT_PAGES.min(lent.pages - first);
        let start = lent.page(first);
        let mut taken = 0;
        for page in 0..count {
            // SAFETY: the block was taken out of the heap, and nobody uses it.
            if let Some(phys) = unsafe { paging::unmap_page(lent.page(first + page)) } {
                list[taken] = Frame::containing(phys);
                taken += 1;
            }
        }
        let range = start..lent.page(first + count);
        stack::shoot_down(core::slice::from_ref(&range));
        // SAFETY: unmapped above, and no CPU remembers them now.
        unsafe { frames::free_many(&list[..taken]) };
    }
}

/// The heap's window of addresses, mapped from the bottom up.
struct Window {
    mapped: usize,
    /// Ranges without memory, the first `lent_count` of them.
    lent: [Lent; LENT_MOST],
    lent_count: usize,
}

/// Addresses of the heap whose memory was given back.
#[derive(Clone, Copy)]
struct Lent {
    start: u64,
    pages: usize,
}

impl Lent {
    const NONE: Lent = Lent { start: 0, pages: 0 };

    fn page(&self, index: usize) -> u64 {
        self.start + (index * PAGE_SIZE) as u64
    }

    fn end(&self) -> u64 {
        self.page(self.pages)
    }
}

impl Window {
    const fn new() -> Self {
        Window { mapped: 0, lent: [Lent::NONE; LENT_MOST], lent_count: 0 }
    }

    fn can_lend(&self) -> bool {
        self.lent_count < LENT_MOST
    }

    /// Notes a range, as one with those beside it. There must be a place for it.
    fn lend(&mut self, mut lent: Lent) {
        let mut index = 0;
        while index < self.lent_count {
            let other = self.lent[index];
            if other.end() == lent.start || lent.end() == other.start {
                let start = lent.start.min(other.start);
                lent = Lent { start, pages: lent.pages + other.pages };
                self.lent_count -= 1;
                self.lent[index] = self.lent[self.lent_count];
            } else {
                index += 1;
            }
        }
        self.lent[self.lent_count] = lent;
        self.lent_count += 1;
    }
}

/// How many pages can be had of those that are wanted, asked first and not found out
/// on the way: one absurd request must not move all free memory into the heap before
/// it fails.
fn may_have(pages: usize) -> Option<Stock> {
    if pages + FRAMES_LEFT_ALONE <= frames::free_estimate() {
        return Some(Stock::Free);
    }
    let is_in_need = pages <= NEED_PAGES && IS_IN_NEED.get().is_some_and(|is| is());
    is_in_need.then_some(Stock::SetAside)
}

/// Which frames the heap may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stock {
    /// Those that are free.
    Free,
    /// Also those that are set aside.
    SetAside,
}

/// Gives the page at `virt` memory; false if there is none.
fn map_page(virt: u64, stock: Stock) -> bool {
    let set_aside = || if stock == Stock::SetAside { frames::emergency_take() } else { None };
    let Some(frame) = frames::alloc().or_else(set_aside) else { return false };
    // SAFETY: the frame was allocated for this, and the page is the heap's and was
    // not mapped.
    let is_mapped = unsafe { paging::map_page(virt, frame.addr(), Flags::DATA) }.is_ok();
    if !is_mapped {
        // SAFETY: allocated above, and not mapped.
        unsafe { frames::free(frame) };
    }
    is_mapped
}

// SAFETY: the window is this heap's alone by the layout in `mem`, and what is mapped
// there is unmapped only when it was taken out; pages are added without a gap.
unsafe impl Source for Window {
    fn base(&self) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(HEAP_WINDOW as usize)
    }

    fn grow(&mut self, bytes: usize) -> usize {
        let pages = bytes.div_ceil(PAGE_SIZE);
        let room = (MMIO_WINDOW - HEAP_WINDOW) as usize - self.mapped;
        let Some(stock) = may_have(pages).filter(|_| pages <= room / PAGE_SIZE) else { return 0 };
        let before = self.mapped;
        for _ in 0..pages {
            if !map_page(HEAP_WINDOW + self.mapped as u64, stock) {
                break;
            }
            self.mapped += PAGE_SIZE;
        }
        self.mapped - before
    }

    fn restore(&mut self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let last = self.lent_count.checked_sub(1)?;
        let lent = self.lent[last];
        let want = bytes.div_ceil(PAGE_SIZE).min(lent.pages);
        // As many as can be had of them, or one for who is in need.
        let (want, stock) =
            [want, 1].into_iter().find_map(|pages| Some((pages, may_have(pages)?)))?;
        let done = (0..want).take_while(|&page| map_page(lent.page(page), stock)).count();
        let start = core::ptr::with_exposed_provenance_mut(lent.start as usize);
        self.lent[last] = Lent { start: lent.page(done), pages: lent.pages - done };
        self.lent_count -= usize::from(done == lent.pages);
        NonNull::new(start).filter(|_| done > 0).map(|start| (start, done * PAGE_SIZE))
    }

    fn lent(&self) -> usize {
        self.lent[..self.lent_count].iter().map(|lent| lent.pages * PAGE_SIZE).sum()
    }
}

#[cfg(test)]
mod tests;
