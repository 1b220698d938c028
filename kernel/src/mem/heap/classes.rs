//! The allocator itself: classes, caches, slabs, pages.
//!
//! ```text
//!   alloc ─▶ cache of this CPU ─▶ slabs of the class ─▶ pages ─▶ source
//!            no lock              ╰───── one lock ─────╯
//! ```
//!
//! Classes are the powers of two from 16 bytes to 2 KiB, and a block is aligned to its size, so one
//! number serves size and alignment. There are no headers: `free` is told the layout. Free blocks
//! hold the list's link in their first word.
//!
//! A page that was cut for a class belongs to it until all its blocks are back in `slabs`; then it
//! returns to `pages`. A block in the cache of a CPU keeps a page from that. So a request that
//! finds no memory first empties the cache of its own CPU ([`Allocator::trim`]), and tries again,
//! all with interrupts off; other CPUs empty their own caches when `mem` asks (`mem::reclaim`).

use super::pages::{Block, Kind, Pages, Source, Taken};
use super::slabs::{FreeList, Slabs};
use crate::arch::MAX_CPUS;
use crate::arch::lock::{IrqGuard, IrqLock, Level};
use crate::mem::PAGE_SIZE;
use crate::mem::percpu::Here;
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed};

const SMALLEST: usize = 16;
const LARGEST: usize = 2048;
pub const CLASSES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// The most bytes that move between a cache and the slabs at a time.
const BATCH_BYTES: usize = 8192;
/// Pages of a large block that get memory at a time.
const COMMIT: usize = 64;
/// No object of a kernel is larger, or aligned more coarsely: 1 TiB, 1 GiB. Beyond this
/// the sums below and in the pages could wrap.
const MAX_SIZE: usize = 1 << 40;
const MAX_ALIGN: usize = 1 << 30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapStats {
    /// Bytes of addresses that the heap has taken.
    pub mapped: usize,
    /// Of these, bytes without memory.
    pub uncommitted: usize,
    /// Bytes in allocated blocks, whole blocks counted.
    pub in_use: usize,
    /// Of these, bytes in large blocks.
    pub large_in_use: usize,
    /// By class.
    pub classes: [ClassStats; CLASSES],
    /// How often the lock of the heap was taken.
    pub lock_acquisitions: usize,
    /// Requests that ended with null.
    pub failures: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes in a block.
    pub size: usize,
    /// Blocks handed out since boot.
    pub allocated: usize,
    /// Blocks that are allocated.
    pub in_use: usize,
}

pub struct Allocator<S> {
    caches: [Cache; MAX_CPUS],
    shared: IrqLock<Shared>,
    source: S,
    large_in_use: AtomicUsize,
    lock_acquisitions: AtomicUsize,
    failures: AtomicUsize,
}

impl<S: Source> Allocator<S> {
    /// An empty heap; memory is taken from `source` when it is needed.
    pub const fn new(source: S) -> Self {
        Allocator {
            caches: [const { Cache::new() }; MAX_CPUS],
            shared: IrqLock::at(
                Level::Heap,
                Shared { slabs: [const { Slabs::EMPTY }; CLASSES], pages: Pages::new() },
            ),
            source,
            large_in_use: AtomicUsize::new(0),
            lock_acquisitions: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
        }
    }

    /// Takes the first pages from the source. False: there are none.
    pub fn warm_up(&self) -> bool {
        self.take_pages(1, 1).map(|page| self.give_pages(page..page + 1)).is_some()
    }

    /// A block for `layout`, or null. Interrupts are off for a small one: many pages take long.
    #[inline]
    pub fn try_alloc(&self, layout: Layout) -> *mut u8 {
        let cached = class_of(layout).and_then(|class| self.pop(&Here::enter(), class));
        cached.map_or_else(|| self.alloc_slow(layout), |block| block.as_ptr().cast())
    }

    /// A large block; or this CPU's cache has none of the class.
    #[cold]
    fn alloc_slow(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some(class) => self.alloc_small(&Here::enter(), class),
            None => self.alloc_large(layout),
        }
    }

    fn alloc_small(&self, here: &Here, class: usize) -> *mut u8 {
        let block = self.pop(here, class).or_else(|| {
            self.refill(here, class)?;
            self.pop(here, class)
        });
        block.map_or_else(|| self.fail(), |block| block.as_ptr().cast())
    }

    #[inline]
    fn pop(&self, here: &Here, class: usize) -> Option<NonNull<Block>> {
        let cache = &self.caches[here.index()];
        let block = cache.with(here, class, FreeList::pop)?;
        add_owned(&cache.allocated[class]);
        Some(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// `ptr` is from [`try_alloc`](Self::try_alloc) with this `layout`, not freed since, and
    /// unused.
    #[inline]
    pub unsafe fn free(&self, here: &Here, ptr: *mut u8, layout: Layout) {
        // SAFETY: `alloc` gave it, and the caller does not free null.
        let ptr = unsafe { NonNull::new_unchecked(ptr) };
        let Some(class) = class_of(layout) else {
            self.large_in_use.fetch_sub(layout.size(), Relaxed);
            let page = (ptr.addr().get() - self.source.base().addr()) / PAGE_SIZE;
            return self.give_pages(page..page + pages_of(layout));
        };
        let cache = &self.caches[here.index()];
        add_owned(&cache.freed[class]);
        let has_many = cache.with(here, class, |blocks| {
            // SAFETY: the caller gave the block up; its class follows from the layout alone.
            unsafe { blocks.push(ptr.cast()) };
            blocks.count > MOST[class]
        });
        if has_many {
            self.give_batch_back(here, class);
        }
    }

    /// This CPU's cache has many blocks of a class: returns a batch of them.
    #[cold]
    fn give_batch_back(&self, here: &Here, class: usize) {
        let mut surplus = FreeList::EMPTY;
        let cache = &self.caches[here.index()];
        cache.with(here, class, |blocks| surplus.take_from(blocks, batch(class)));
        self.give_back(class, surplus);
    }

    /// A snapshot; the parts are read one after another.
    pub fn stats(&self) -> HeapStats {
        let large_in_use = self.large_in_use.load(Relaxed);
        let (mapped, uncommitted) = {
            let Shared { pages, .. } = &*self.lock();
            (pages.top * PAGE_SIZE, pages.free[Kind::Without as usize] * PAGE_SIZE)
        };
        let mut stats = HeapStats {
            mapped,
            uncommitted,
            in_use: large_in_use,
            large_in_use,
            lock_acquisitions: self.lock_acquisitions.load(Relaxed),
            failures: self.failures.load(Relaxed),
            ..HeapStats::default()
        };
        for (class, entry) in stats.classes.iter_mut().enumerate() {
            let freed: usize = self.caches.iter().map(|c| c.freed[class].load(Relaxed)).sum();
            entry.size = SMALLEST << class;
            entry.allocated = self.caches.iter().map(|c| c.allocated[class].load(Relaxed)).sum();
            entry.in_use = entry.allocated.saturating_sub(freed);
            stats.in_use += entry.in_use * entry.size;
        }
        stats
    }

    /// See [`Pages::take_out`]; they belong to the caller until [`put_back`](Self::put_back).
    pub fn take_out(&self, most: usize) -> Option<Range<usize>> {
        self.lock().pages.take_out(&self.source, most)
    }

    /// Returns pages that were taken out, without memory.
    pub fn put_back(&self, pages: Range<usize>) {
        self.lock().pages.put(&self.source, pages, Kind::Without);
    }

    /// Pages that are free and have memory.
    pub fn free_pages(&self) -> usize {
        self.lock().pages.free[Kind::With as usize]
    }

    /// Empties the cache of this CPU, a few hundred blocks at most, and the spares of the classes.
    #[cold]
    pub fn trim(&self, here: &Here) {
        for class in 0..CLASSES {
            let all = self.caches[here.index()]
                .with(here, class, |blocks| core::mem::replace(blocks, FreeList::EMPTY));
            self.give_back(class, all);
            let Shared { slabs, pages } = &mut *self.lock();
            slabs[class].give_up(&self.source, pages);
        }
    }

    /// This CPU's cache is empty: gets a batch.
    fn refill(&self, here: &Here, class: usize) -> Option<()> {
        let mut fresh = self.take_blocks(class).or_else(|| {
            self.trim(here);
            self.take_blocks(class)
        })?;
        let cache = &self.caches[here.index()];
        cache.with(here, class, |blocks| blocks.take_from(&mut fresh, batch(class)));
        Some(())
    }

    /// A batch of blocks, or fewer: from the slabs, or from a page that is cut for it.
    fn take_blocks(&self, class: usize) -> Option<FreeList> {
        let listed = self.lock().slabs[class].take(&self.source, batch(class));
        if listed.count > 0 {
            return Some(listed);
        }
        let page = self.take_pages(1, 1)?;
        let slabs = &mut self.lock().slabs[class];
        // SAFETY: taken just now, so it has memory and no other user.
        unsafe { slabs.cut(&self.source, SMALLEST << class, page) };
        Some(slabs.take(&self.source, batch(class)))
    }

    /// Returns blocks of a cache to the slabs.
    #[cold]
    fn give_back(&self, class: usize, blocks: FreeList) {
        let Shared { slabs, pages } = &mut *self.lock();
        slabs[class].put(&self.source, SMALLEST << class, blocks, pages);
    }

    /// A block of whole pages, or null. Interrupts that are on are off for a few pages at a time.
    #[cold]
    fn alloc_large(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_SIZE || layout.align() > MAX_ALIGN {
            return self.fail();
        }
        let (count, align) = (pages_of(layout), layout.align().div_ceil(PAGE_SIZE));
        let first = self.take_pages(count, align).or_else(|| {
            self.trim(&Here::enter());
            self.take_pages(count, align)
        });
        let Some(first) = first else { return self.fail() };
        self.large_in_use.fetch_add(layout.size(), Relaxed);
        // SAFETY: in the heap's range, by the promise of the source.
        unsafe { self.source.base().add(first * PAGE_SIZE) }
    }

    fn take_pages(&self, count: usize, align: usize) -> Option<usize> {
        loop {
            let taken = self.lock().pages.take(&self.source, count, align)?;
            match taken {
                Taken::With(first) => return Some(first),
                Taken::Without(first) => return self.commit(first..first + count),
                Taken::NotYet => {}
            }
        }
    }

    /// Commits pages that were taken without memory. Not under the lock: there may be many.
    fn commit(&self, pages: Range<usize>) -> Option<usize> {
        let mut next = pages.start;
        while next < pages.end {
            let some = next..pages.end.min(next + COMMIT);
            let done = self.source.commit(some.clone());
            let free = &mut self.lock().pages;
            if done < some.len() {
                free.promised -= pages.end - next;
                free.put(&self.source, pages.start..next + done, Kind::With);
                free.put(&self.source, next + done..pages.end, Kind::Without);
                return None;
            }
            free.promised -= done;
            next = some.end;
        }
        Some(pages.start)
    }

    fn give_pages(&self, pages: Range<usize>) {
        self.lock().pages.put(&self.source, pages, Kind::With);
    }

    fn lock(&self) -> IrqGuard<'_, Shared> {
        self.lock_acquisitions.fetch_add(1, Relaxed);
        self.shared.lock()
    }

    #[cold]
    fn fail(&self) -> *mut u8 {
        self.failures.fetch_add(1, Relaxed);
        ptr::null_mut()
    }
}

/// The class that serves `layout`; `None` is large.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let need = layout.size().max(layout.align());
    if need > LARGEST {
        return None;
    }
    Some(need.max(SMALLEST).next_power_of_two().ilog2() as usize - SMALLEST.ilog2() as usize)
}

fn pages_of(layout: Layout) -> usize {
    layout.size().div_ceil(PAGE_SIZE).max(1)
}

/// Blocks that move at a time: many small ones, few large ones.
const fn batch(class: usize) -> usize {
    let count = BATCH_BYTES / (SMALLEST << class);
    if count > 32 { 32 } else { count }
}

/// Blocks of a class that a CPU keeps: a table, as every `free` reads it.
const MOST: [usize; CLASSES] = {
    let mut most = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        most[class] = 2 * batch(class);
        class += 1;
    }
    most
};

struct Shared {
    slabs: [Slabs; CLASSES],
    pages: Pages,
}

/// The cached blocks of a CPU, by class, and its counters. The counters are written by that CPU
/// alone, with interrupts off; read by any CPU, so a sum over all CPUs may be slightly stale.
#[repr(align(128))]
struct Cache {
    is_lent: AtomicBool,
    blocks: UnsafeCell<[FreeList; CLASSES]>,
    allocated: [AtomicUsize; CLASSES],
    freed: [AtomicUsize; CLASSES],
}

// SAFETY: `with` lends the blocks to one closure at a time: on the bare machine to code of that
// CPU only, with interrupts off; on the host to the thread that wins `is_lent`.
unsafe impl Sync for Cache {}

impl Cache {
    const fn new() -> Self {
        Cache {
            is_lent: AtomicBool::new(false),
            blocks: UnsafeCell::new([const { FreeList::EMPTY }; CLASSES]),
            allocated: [const { AtomicUsize::new(0) }; CLASSES],
            freed: [const { AtomicUsize::new(0) }; CLASSES],
        }
    }

    /// Lends the blocks of a class to `f`, which takes no lock and touches no new stack page: so
    /// neither an interrupt nor a page fault finds them half changed. The cache is that of `here`.
    #[inline]
    fn with<R>(&self, _: &Here, class: usize, f: impl FnOnce(&mut FreeList) -> R) -> R {
        // Only this CPU touches its flag, with interrupts off: no locked instruction is needed. It
        // finds `f` that is not as above, in builds with checks.
        #[cfg(target_os = "none")]
        if cfg!(debug_assertions) {
            assert!(!self.is_lent.load(Relaxed), "heap cache re-entered");
            self.is_lent.store(true, Relaxed);
        }
        // Threads of a test may act as the same CPU: here the flag is a lock.
        #[cfg(not(target_os = "none"))]
        while self.is_lent.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: no other code has the blocks until `f` is done with them: on the machine this is
        // their CPU, interrupts are off, and `f`, which this file passes, does not come here again;
        // on the host `is_lent` is false again only then.
        let result = f(unsafe { &mut (&mut *self.blocks.get())[class] });
        if cfg!(any(debug_assertions, not(target_os = "none"))) {
            self.is_lent.store(false, Ordering::Release); // pairs with the swap
        }
        result
    }
}

/// Adds one to a counter that only this CPU writes: no locked instruction.
#[inline]
fn add_owned(counter: &AtomicUsize) {
    #[cfg(target_os = "none")]
    counter.store(counter.load(Relaxed) + 1, Relaxed);
    // Threads of a test may share one pretended CPU.
    #[cfg(not(target_os = "none"))]
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<S: Source> Allocator<S> {
        /// As `try_alloc`, on a pretended CPU.
        pub fn alloc_here(&self, here: &Here, layout: Layout) -> *mut u8 {
            match class_of(layout) {
                Some(class) => self.alloc_small(here, class),
                None => self.alloc_large(layout),
            }
        }

        /// The source passed to `new`.
        pub fn source(&self) -> &S {
            &self.source
        }
    }
}
