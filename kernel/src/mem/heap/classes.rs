//! The allocator itself: classes, caches, central lists, holes.
//!
//! ```text
//!   alloc ─▶ cache of this CPU ─▶ central list of the class ─▶ hole list ─▶ source
//!            no lock              a lock per class             one lock     grows
//! ```
//!
//! Classes are the powers of two from 16 bytes to 2 KiB, and a block is aligned
//! to its size, so one number serves size and alignment. There are no headers:
//! `free` is told the layout. Free blocks hold the list's link in their first
//! word.
//!
//! A span carved for a class stays with it until memory runs out. Then blocks
//! of the central lists go back to the hole list, where neighbours merge, so a
//! program that freed everything can use it for something else.

use crate::arch::MAX_CPUS;
use crate::lock::{IrqGuard, IrqLock, Level};
use crate::mem::PAGE_SIZE;
use crate::mem::percpu::{CpuLocal, Empty, Here};
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use linked_list_allocator::Heap;

const SMALLEST: usize = 16;
const LARGEST: usize = 2048;
/// How many size classes there are.
pub const CLASSES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// Bytes that move between a cache and the central list at a time, at most.
const BATCH_BYTES: usize = 8192;
/// The hole list grows by this much at least.
const CHUNK: usize = 256 * 1024;
/// What growth adds to a request so that alignment and the list's own rounding
/// cannot make it fall short.
const SLACK: usize = 64;
/// Blocks given back to the hole list when memory runs out, at most: each walks
/// the list, with interrupts off.
const RECLAIM_MOST: usize = 1024;
/// Nothing in a kernel is larger, or aligned more coarsely: 1 TiB, 1 GiB. Beyond
/// this the sums below and in the hole list could wrap.
const MAX_SIZE: usize = 1 << 40;
const MAX_ALIGN: usize = 1 << 30;

/// Where the hole list's memory comes from: one range that grows at its end.
///
/// # Safety
///
/// `base()` is always the same pointer, aligned to 16, and may be used for all
/// bytes that `grow` has added, one after another from there, for ever, by
/// nobody else.
pub unsafe trait Source {
    /// The first byte.
    fn base(&self) -> *mut u8;
    /// Adds about `bytes` at the end; says how many, in whole multiples of 16.
    /// Fewer is allowed, 0 means none can be had.
    fn grow(&mut self, bytes: usize) -> usize;
}

/// What the heap counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of memory the heap has taken.
    pub mapped: usize,
    /// Bytes in blocks that somebody has, whole blocks counted.
    pub in_use: usize,
    /// Of these, bytes in large blocks.
    pub large_in_use: usize,
    /// By class.
    pub classes: [ClassStats; CLASSES],
    /// How often a cache was empty.
    pub refills: usize,
    /// How often any lock of the heap was taken.
    pub lock_acquisitions: usize,
    /// Requests that ended with null.
    pub failures: usize,
}

/// What is counted for one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes in a block.
    pub size: usize,
    /// Blocks handed out since boot.
    pub allocated: usize,
    /// Blocks that somebody has.
    pub in_use: usize,
}

/// A heap over memory from `S`.
pub struct Allocator<S> {
    caches: CpuLocal<Caches>,
    central: [IrqLock<FreeList>; CLASSES],
    holes: IrqLock<Holes<S>>,
    counts: [Counts; MAX_CPUS],
    large_in_use: AtomicUsize,
    lock_acquisitions: AtomicUsize,
    failures: AtomicUsize,
}

impl<S: Source> Allocator<S> {
    /// An empty heap; memory is taken from `source` when it is needed.
    pub const fn new(source: S) -> Self {
        Allocator {
            caches: CpuLocal::new(),
            central: [const { IrqLock::at(Level::Heap, FreeList::EMPTY) }; CLASSES],
            holes: IrqLock::at(Level::Heap, Holes { heap: Heap::empty(), size: 0, source }),
            counts: [const { Counts::new() }; MAX_CPUS],
            large_in_use: AtomicUsize::new(0),
            lock_acquisitions: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
        }
    }

    /// Takes the first chunk from the source.
    pub fn warm_up(&self) -> bool {
        self.lock(&self.holes).grow(CHUNK)
    }

    /// A block for `layout`, or null.
    #[inline]
    pub fn alloc(&self, here: &Here, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(layout) else { return self.alloc_large(layout) };
        let block = self.caches.with(here, |caches| caches.0[class].pop());
        let block = block.or_else(|| self.refill(here, class));
        match block {
            Some(block) => {
                add_owned(&self.counts[here.index()].allocated[class]);
                block.as_ptr().cast()
            }
            None => self.fail(),
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// `ptr` is from [`alloc`](Self::alloc) of this heap with this `layout`, was
    /// not freed since, and nobody uses it any more.
    #[inline]
    pub unsafe fn free(&self, here: &Here, ptr: *mut u8, layout: Layout) {
        // SAFETY: `alloc` gave it, and the caller does not free null.
        let ptr = unsafe { NonNull::new_unchecked(ptr) };
        let Some(class) = class_of(layout) else {
            self.large_in_use.fetch_sub(layout.size(), Relaxed);
            // SAFETY: a layout without a class came from the hole list.
            return unsafe { self.lock(&self.holes).heap.deallocate(ptr, layout) };
        };
        add_owned(&self.counts[here.index()].freed[class]);
        let surplus = self.caches.with(here, |caches| {
            let cache = &mut caches.0[class];
            // SAFETY: the caller gave the block up, and it is one of `class`,
            // because the class follows from the layout alone.
            unsafe { cache.push(ptr.cast()) };
            if cache.count > MOST[class] { cache.split(batch(class)) } else { FreeList::EMPTY }
        });
        if surplus.count > 0 {
            self.give_back(class, surplus);
        }
    }

    /// A snapshot; the parts are read one after another.
    pub fn stats(&self) -> HeapStats {
        let large_in_use = self.large_in_use.load(Relaxed);
        let mut stats = HeapStats {
            mapped: self.lock(&self.holes).size,
            in_use: large_in_use,
            large_in_use,
            refills: self.counts.iter().map(|c| c.refills.load(Relaxed)).sum(),
            lock_acquisitions: self.lock_acquisitions.load(Relaxed),
            failures: self.failures.load(Relaxed),
            ..HeapStats::default()
        };
        for (class, entry) in stats.classes.iter_mut().enumerate() {
            let freed: usize = self.counts.iter().map(|c| c.freed[class].load(Relaxed)).sum();
            entry.size = SMALLEST << class;
            entry.allocated = self.counts.iter().map(|c| c.allocated[class].load(Relaxed)).sum();
            entry.in_use = entry.allocated.saturating_sub(freed);
            stats.in_use += entry.in_use * entry.size;
        }
        stats
    }

    /// This CPU's cache is empty: gets a batch and takes one block of it.
    #[cold]
    fn refill(&self, here: &Here, class: usize) -> Option<NonNull<Block>> {
        add_owned(&self.counts[here.index()].refills);
        let mut fresh = self.lock(&self.central[class]).split(batch(class));
        if fresh.count == 0 {
            fresh = self.carve(class)?;
        }
        let first = fresh.pop();
        self.caches.with(here, |caches| caches.0[class].append(fresh));
        first
    }

    /// A batch of new blocks from the hole list; a single one if memory is short.
    fn carve(&self, class: usize) -> Option<FreeList> {
        let size = SMALLEST << class;
        [batch(class), 1].into_iter().find_map(|count| {
            let layout = Layout::from_size_align(count * size, size).ok()?;
            let span = self.take_holes(layout)?;
            let mut list = FreeList::EMPTY;
            for index in (0..count).rev() {
                // SAFETY: inside the span, which is `count * size` long.
                let block = unsafe { span.add(index * size) };
                // SAFETY: a part of a fresh span, aligned to `size`, and ours.
                unsafe { list.push(block.cast()) };
            }
            Some(list)
        })
    }

    /// Blocks that are too many for a cache.
    #[cold]
    fn give_back(&self, class: usize, surplus: FreeList) {
        self.lock(&self.central[class]).append(surplus);
    }

    #[cold]
    fn alloc_large(&self, layout: Layout) -> *mut u8 {
        match self.take_holes(layout) {
            Some(block) => {
                self.large_in_use.fetch_add(layout.size(), Relaxed);
                block.as_ptr()
            }
            None => self.fail(),
        }
    }

    /// From the hole list, which may grow; then, with nothing left, once more
    /// with what the central lists can spare.
    fn take_holes(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() > MAX_SIZE || layout.align() > MAX_ALIGN {
            return None;
        }
        if let Some(block) = self.lock(&self.holes).take(layout) {
            return Some(block);
        }
        if !self.reclaim() {
            return None;
        }
        self.lock(&self.holes).take(layout)
    }

    /// Moves blocks from the central lists to the hole list. False: none there.
    fn reclaim(&self) -> bool {
        let mut left = RECLAIM_MOST;
        for (class, central) in self.central.iter().enumerate() {
            let mut list = self.lock(central).split(left);
            left -= list.count;
            let size = SMALLEST << class;
            let Ok(layout) = Layout::from_size_align(size, SMALLEST) else { continue };
            let mut holes = self.lock(&self.holes);
            while let Some(block) = list.pop() {
                // SAFETY: the block is free and on no list now. It came from the
                // hole list as part of a span; linked_list_allocator 0.10 asks
                // for the layout of the whole, but keeps no header, and takes
                // back any range that is a multiple of 16 bytes; the version is
                // pinned, and Miri runs this path.
                unsafe { holes.heap.deallocate(block.cast(), layout) };
            }
        }
        left < RECLAIM_MOST
    }

    fn lock<'a, T>(&self, lock: &'a IrqLock<T>) -> IrqGuard<'a, T> {
        self.lock_acquisitions.fetch_add(1, Relaxed);
        lock.lock()
    }

    #[cold]
    fn fail(&self) -> *mut u8 {
        self.failures.fetch_add(1, Relaxed);
        ptr::null_mut()
    }
}

/// Whether both layouts are served by the same block, so that nothing moves.
pub fn same_block(old: Layout, new: Layout) -> bool {
    class_of(old).is_some_and(|class| class_of(new) == Some(class))
}

/// The class that serves `layout`: large enough and, as blocks are aligned to
/// their size, aligned enough. `None` is large.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let need = layout.size().max(layout.align());
    if need > LARGEST {
        return None;
    }
    Some(need.max(SMALLEST).next_power_of_two().ilog2() as usize - SMALLEST.ilog2() as usize)
}

/// Blocks that move at a time: many small ones, few large ones.
const fn batch(class: usize) -> usize {
    let count = BATCH_BYTES / (SMALLEST << class);
    if count > 32 { 32 } else { count }
}

/// Blocks of a class that a CPU keeps: worked out beforehand, as every `free`
/// asks.
const MOST: [usize; CLASSES] = {
    let mut most = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        most[class] = 2 * batch(class);
        class += 1;
    }
    most
};

/// The hole list and what it grows from.
struct Holes<S> {
    heap: Heap,
    size: usize,
    source: S,
}

impl<S: Source> Holes<S> {
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        if let Ok(block) = self.heap.allocate_first_fit(layout) {
            return Some(block);
        }
        // A whole chunk if it can be had, else just what is needed.
        let need = (layout.size() + layout.align() + SLACK).next_multiple_of(PAGE_SIZE);
        if !self.grow(need.max(CHUNK)) && !self.grow(need) {
            return None;
        }
        self.heap.allocate_first_fit(layout).ok()
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let added = self.source.grow(bytes);
        if added == 0 {
            return false;
        }
        if self.size == 0 {
            // SAFETY: the heap is empty, and the source vouches for the range.
            unsafe { self.heap.init(self.source.base(), added) };
        } else {
            // SAFETY: the source adds at the end of what it gave before.
            unsafe { self.heap.extend(added) };
        }
        self.size += added;
        true
    }
}

/// A free block: the link is all it holds.
struct Block {
    next: Option<NonNull<Block>>,
}

/// Free blocks of one class, last in first out.
struct FreeList {
    head: Option<NonNull<Block>>,
    count: usize,
}

// SAFETY: blocks on a list belong to the list, wherever it goes.
unsafe impl Send for FreeList {}

impl FreeList {
    const EMPTY: FreeList = FreeList { head: None, count: 0 };

    /// # Safety
    ///
    /// `block` is free memory of at least 16 bytes, aligned to 16, on no list.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<Block>) {
        // SAFETY: ours to write, by the caller's promise.
        unsafe { block.write(Block { next: self.head }) };
        self.head = Some(block);
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<Block>> {
        let block = self.head?;
        // SAFETY: blocks on the list are ours, and `push` wrote them.
        self.head = unsafe { block.read() }.next;
        self.count -= 1;
        Some(block)
    }

    /// Takes up to `count` blocks off as a list of their own.
    #[cold]
    fn split(&mut self, count: usize) -> FreeList {
        let mut taken = FreeList::EMPTY;
        while taken.count < count
            && let Some(block) = self.pop()
        {
            // SAFETY: popped just now, so it is on no list.
            unsafe { taken.push(block) };
        }
        taken
    }

    /// Puts the blocks of `other`, a batch, in front.
    fn append(&mut self, mut other: FreeList) {
        while let Some(block) = other.pop() {
            // SAFETY: popped just now, so it is on no list.
            unsafe { self.push(block) };
        }
    }
}

/// What a CPU keeps at hand, by class.
struct Caches([FreeList; CLASSES]);

impl Empty for Caches {
    const EMPTY: Self = Caches([FreeList::EMPTY; CLASSES]);
}

/// What a CPU has done. Written by that CPU alone, with interrupts off; read by
/// anyone, so a sum over all CPUs may be a little old.
#[repr(align(128))]
struct Counts {
    allocated: [AtomicUsize; CLASSES],
    freed: [AtomicUsize; CLASSES],
    refills: AtomicUsize,
}

impl Counts {
    const fn new() -> Self {
        Counts {
            allocated: [const { AtomicUsize::new(0) }; CLASSES],
            freed: [const { AtomicUsize::new(0) }; CLASSES],
            refills: AtomicUsize::new(0),
        }
    }
}

/// Adds one to a counter that only this CPU writes: no locked instruction.
#[inline]
fn add_owned(counter: &AtomicUsize) {
    #[cfg(target_os = "none")]
    counter.store(counter.load(Relaxed) + 1, Relaxed);
    // Threads of a test may play the same CPU.
    #[cfg(not(target_os = "none"))]
    counter.fetch_add(1, Relaxed);
}
