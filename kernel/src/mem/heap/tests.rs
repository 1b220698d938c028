//! The promises of the heap, on a leaked vector in place of the window.

use super::classes::{Allocator, CLASSES};
use super::pages::{Record, Source};
use crate::mem::percpu::Here;
use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::collections::BTreeMap;

/// Miri takes a thousand times as long: fewer rounds there.
const fn rounds(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// As many pages of addresses as there are records, and memory for some of them.
struct Leaked {
    base: *mut u8,
    records: &'static [Record],
    /// Pages that can still get memory.
    left: AtomicUsize,
}

// SAFETY: the base may go to another thread with the heap that uses it.
unsafe impl Send for Leaked {}
// SAFETY: the base is only read.
unsafe impl Sync for Leaked {}

// SAFETY: the memory is leaked and has no other user; all addresses exist.
unsafe impl Source for Leaked {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn record(&self, page: usize) -> &Record {
        &self.records[page]
    }

    fn prepare(&self, pages: Range<usize>) -> bool {
        pages.end <= self.records.len()
    }

    fn can_have(&self, pages: usize) -> bool {
        pages <= self.left.load(Relaxed)
    }

    fn commit(&self, pages: Range<usize>) -> usize {
        let count = pages.len().min(self.left.load(Relaxed));
        self.left.fetch_sub(count, Relaxed);
        count
    }
}

/// The coarsest alignment of these tests.
const COARSEST: usize = 1 << 14;

/// A source with `limit` bytes of memory, and twice as many of addresses.
fn leaked(limit: usize) -> Leaked {
    let layout = Layout::from_size_align(2 * limit, COARSEST).expect("a sane limit");
    // SAFETY: the size is not 0.
    let base = unsafe { std::alloc::alloc(layout) };
    assert!(!base.is_null());
    let pages = limit / 4096;
    let records = Vec::leak((0..2 * pages).map(|_| Record::default()).collect());
    Leaked { base, records, left: AtomicUsize::new(pages) }
}

/// A heap with `limit` bytes of memory, and twice as many of addresses.
fn heap(limit: usize) -> &'static Allocator<Leaked> {
    Box::leak(Box::new(Allocator::new(leaked(limit))))
}

/// Reports that memory is available; part of it is gone before it is committed.
struct Contended(Leaked);

// SAFETY: as for the source inside.
unsafe impl Source for Contended {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }
    fn record(&self, page: usize) -> &Record {
        self.0.record(page)
    }
    fn prepare(&self, pages: Range<usize>) -> bool {
        self.0.prepare(pages)
    }
    fn can_have(&self, _: usize) -> bool {
        true
    }
    fn commit(&self, pages: Range<usize>) -> usize {
        self.0.commit(pages)
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

#[test]
fn blocks_are_as_aligned_as_asked() {
    let (heap, cpu) = (heap(1 << 22), Here::pretend(0));
    for shift in 0..=COARSEST.ilog2() {
        for size in [1, 15, 16, 17, 100, 2048, 2049, 5000] {
            let block = heap.alloc_here(&cpu, layout(size, 1 << shift));
            assert!(!block.is_null());
            assert_eq!(block.addr() % (1 << shift), 0, "size {size}, align {}", 1 << shift);
        }
    }
}

/// Allocates and frees at random on four CPUs and compares with a model: no two live blocks
/// overlap, and each block still has its bytes when it is freed.
#[test]
fn live_blocks_never_overlap() {
    let heap = heap(1 << 22);
    let mut live: BTreeMap<usize, (*mut u8, Layout, u8)> = BTreeMap::new();
    let mut seed = 7_u64;
    let mut next = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    for round in 0..rounds(40_000, 300) {
        let cpu = Here::pretend(next(4));
        if live.len() < 200 && next(5) < 3 {
            let size = if next(8) == 0 { 1 + next(9000) } else { 1 + next(300) };
            let layout = layout(size, 1 << next(8));
            let block = heap.alloc_here(&cpu, layout);
            assert!(!block.is_null());
            let at = block.addr();
            if let Some((&below, (_, l, _))) = live.range(..=at).next_back() {
                assert!(below + l.size() <= at, "overlaps the block below");
            }
            if let Some((&above, _)) = live.range(at..).next() {
                assert!(at + size <= above, "overlaps the block above");
            }
            // SAFETY: the block was just allocated and is `size` long.
            unsafe { block.write_bytes(round as u8, size) };
            live.insert(at, (block, layout, round as u8));
        } else if let Some(&at) = live.keys().nth(next(live.len().max(1))) {
            let (block, layout, mark) = live.remove(&at).expect("just seen");
            // SAFETY: allocated, `size` long, and written when it was made.
            let bytes = unsafe { core::slice::from_raw_parts(block, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == mark), "somebody else wrote here");
            // SAFETY: from this heap with this layout, and unused.
            unsafe { heap.free(&cpu, block, layout) };
        }
    }
    let stats = heap.stats();
    assert_eq!(stats.classes.iter().map(|c| c.in_use).sum::<usize>() + large(&live), live.len());
}

fn large(live: &BTreeMap<usize, (*mut u8, Layout, u8)>) -> usize {
    live.values().filter(|(_, l, _)| l.size().max(l.align()) > 2048).count()
}

#[test]
fn a_block_freed_on_another_cpu_comes_back() {
    let heap = heap(1 << 20);
    let (a, b) = (Here::pretend(1), Here::pretend(2));
    let want = layout(64, 8);
    heap.warm_up();
    // Far more than the memory could hold if no block came back.
    for _ in 0..rounds(2000, 3) {
        let blocks: Vec<_> = (0..100).map(|_| heap.alloc_here(&a, want)).collect();
        for block in blocks {
            assert!(!block.is_null());
            // SAFETY: from this heap with this layout, and unused.
            unsafe { heap.free(&b, block, want) };
        }
    }
    assert_eq!(heap.stats().in_use, 0);
    assert_eq!(heap.stats().mapped, 256 * 1024, "it grew though everything was freed");
}

#[test]
fn exhaustion_is_null_and_frees_bring_it_back() {
    let (heap, cpu) = (heap(512 * 1024), Here::pretend(0));
    let size = rounds(1024, 2048);
    let small = layout(size, 8);
    let all: Vec<_> =
        core::iter::from_fn(|| Some(heap.alloc_here(&cpu, small)).filter(|p| !p.is_null()))
            .collect();
    assert!(all.len() * size > 500 * 1024, "only {} bytes were usable", all.len() * size);
    assert_eq!(heap.stats().failures, 1);
    assert!(heap.alloc_here(&cpu, layout(4096, 8)).is_null());
    for block in all {
        // SAFETY: from this heap with this layout, and unused.
        unsafe { heap.free(&cpu, block, small) };
    }
    // Memory that was cut into small blocks serves large ones again.
    assert!(!heap.alloc_here(&cpu, layout(256 * 1024, 8)).is_null());
    assert!(!heap.alloc_here(&cpu, small).is_null());
}

#[test]
fn absurd_requests_are_null_and_take_nothing() {
    let (heap, cpu) = (heap(1 << 20), Here::pretend(0));
    heap.warm_up();
    let before = heap.stats().mapped;
    let max = isize::MAX as usize;
    assert!(heap.alloc_here(&cpu, layout(max, 1)).is_null());
    assert!(heap.alloc_here(&cpu, layout(1, 1 << 62)).is_null());
    assert!(heap.alloc_here(&cpu, layout(1 << 39, 8)).is_null());
    assert_eq!(heap.stats().mapped, before);
}

#[test]
fn a_request_that_gets_memory_for_some_of_its_pages_loses_none() {
    for has in [0, 1, 5, 7] {
        let heap = Allocator::new(Contended(leaked(has * 4096 + 4096 * 128)));
        let (cpu, pages) = (Here::pretend(0), |count: usize| layout(count * 4096, 8));
        heap.source().0.left.store(has, Relaxed);
        assert!(heap.alloc_here(&cpu, pages(8)).is_null(), "memory for {has} pages");
        let stats = heap.stats();
        assert_eq!((heap.free_pages(), stats.mapped - stats.uncommitted), (has, has * 4096));
        let block = heap.alloc_here(&cpu, pages(has.max(1)));
        assert_eq!(!block.is_null(), has > 0, "{has} pages with memory are there");
        assert_eq!((heap.free_pages(), heap.stats().mapped), (0, stats.mapped));
        // With memory again, the same addresses serve the request.
        heap.source().0.left.store(8, Relaxed);
        assert!(!heap.alloc_here(&cpu, pages(8)).is_null());
        assert_eq!(heap.stats().mapped, stats.mapped, "addresses were lost");
    }
}

/// No step under the lock takes longer for a request of many pages.
#[test]
fn addresses_for_a_large_block_are_prepared_in_parts() {
    struct Prepared(Leaked, AtomicUsize);
    // SAFETY: as for `Leaked` inside.
    unsafe impl Source for Prepared {
        fn base(&self) -> *mut u8 {
            self.0.base()
        }
        fn record(&self, page: usize) -> &Record {
            self.0.record(page)
        }
        fn prepare(&self, pages: Range<usize>) -> bool {
            self.1.fetch_max(pages.len(), Relaxed);
            self.0.prepare(pages)
        }
        fn can_have(&self, pages: usize) -> bool {
            self.0.can_have(pages)
        }
        fn commit(&self, pages: Range<usize>) -> usize {
            assert!(pages.len() <= 64, "{} pages at once", pages.len());
            self.0.commit(pages)
        }
    }
    let heap = Allocator::new(Prepared(leaked(40 << 20), AtomicUsize::new(0)));
    let want = layout(30 << 20, 1 << 14);
    assert!(!heap.alloc_here(&Here::pretend(0), want).is_null());
    assert!(heap.source().1.load(Relaxed) <= 2048, "too many records at once");
    assert!(heap.alloc_here(&Here::pretend(0), want).is_null(), "there is memory for one");
}

#[test]
fn a_run_that_fits_is_found_behind_many_that_do_not() {
    let (heap, cpu) = (heap(64 << 20), Here::pretend(0));
    let (short, long) = (layout(40 * 4096, 8), layout(60 * 4096, 8));
    let separate = || heap.alloc_here(&cpu, layout(4096, 8));
    let runs: Vec<_> = (0..100).map(|_| (heap.alloc_here(&cpu, short), separate()).0).collect();
    let rest = heap.alloc_here(&cpu, layout(4 << 20, 8));
    separate();
    // SAFETY: from this heap with this layout, and unused.
    unsafe { heap.free(&cpu, rest, layout(4 << 20, 8)) };
    // SAFETY: as above.
    runs.into_iter().for_each(|run| unsafe { heap.free(&cpu, run, short) });
    heap.source().left.store(0, Relaxed); // no more memory than is free
    assert!(!heap.alloc_here(&cpu, long).is_null(), "it lies on a list of longer runs");
}

#[test]
fn addresses_come_in_chunks_and_memory_for_what_is_asked() {
    let (heap, cpu) = (heap(4 << 20), Here::pretend(0));
    assert_eq!(heap.stats().mapped, 0);
    assert!(!heap.alloc_here(&cpu, layout(1, 1)).is_null());
    let stats = heap.stats();
    assert_eq!((stats.mapped, stats.mapped - stats.uncommitted), (256 * 1024, 4096));
    assert!(!heap.alloc_here(&cpu, layout(1 << 20, 4096)).is_null());
    let stats = heap.stats();
    assert_eq!(stats.mapped - stats.uncommitted, (1 << 20) + 4096);
    assert_eq!(stats.large_in_use, 1 << 20);
}

#[test]
fn the_common_path_takes_no_lock() {
    let (heap, cpu) = (heap(1 << 22), Here::pretend(3));
    for class in (0..CLASSES).step_by(rounds(1, 4)) {
        let want = layout(16 << class, 8);
        let block = heap.alloc_here(&cpu, want);
        // SAFETY: from this heap with this layout, and unused.
        unsafe { heap.free(&cpu, block, want) };
        let before = heap.stats();
        for _ in 0..10 {
            let block = heap.alloc_here(&cpu, want);
            // SAFETY: as above.
            unsafe { heap.free(&cpu, block, want) };
        }
        let after = heap.stats();
        // Each snapshot takes the lock once; the first one is in both counts.
        assert_eq!(after.lock_acquisitions, before.lock_acquisitions + 1, "class {class}");
        assert_eq!(after.classes[class].allocated, before.classes[class].allocated + 10);
    }
}

#[test]
fn threads_do_not_share_a_block() {
    let heap = heap(1 << 22);
    std::thread::scope(|scope| {
        for cpu in 0..rounds(4, 2) {
            scope.spawn(move || {
                let here = Here::pretend(cpu);
                let want = layout(48, 8);
                for _ in 0..rounds(500, 1) {
                    let blocks: Vec<_> =
                        (0..rounds(80, 40)).map(|_| heap.alloc_here(&here, want)).collect();
                    for &block in &blocks {
                        // SAFETY: just allocated, 48 bytes long.
                        unsafe { block.write_bytes(cpu as u8, 48) };
                    }
                    for block in blocks {
                        // SAFETY: allocated and written above.
                        let bytes = unsafe { core::slice::from_raw_parts(block, 48) };
                        assert!(bytes.iter().all(|&byte| byte == cpu as u8));
                        // SAFETY: from this heap with this layout.
                        unsafe { heap.free(&here, block, want) };
                    }
                }
            });
        }
    });
    assert_eq!(heap.stats().in_use, 0);
}

#[test]
fn pages_that_were_taken_out_are_nobodys_until_they_are_back_without_memory() {
    let (heap, cpu) = (heap(1 << 20), Here::pretend(0));
    let all = layout(1 << 20, 4096);
    let block = heap.alloc_here(&cpu, all);
    assert!(!block.is_null());
    // SAFETY: allocated above.
    unsafe { heap.free(&cpu, block, all) };
    assert_eq!(heap.free_pages(), 256);
    let some = heap.take_out(100).expect("they are free");
    let rest = heap.take_out(1000).expect("they are free");
    assert_eq!((some.len(), rest.len(), heap.free_pages()), (100, 156, 0));
    assert!(heap.take_out(1).is_none());
    assert!(heap.alloc_here(&cpu, layout(1, 1)).is_null(), "it was given to somebody");
    heap.put_back(rest);
    heap.put_back(some);
    assert_eq!(heap.stats().uncommitted, heap.stats().mapped);
    assert!(heap.alloc_here(&cpu, layout(1, 1)).is_null(), "they had no memory");
    let before = heap.stats().mapped;
    heap.source().left.store(256, Relaxed);
    assert!(!heap.alloc_here(&cpu, all).is_null(), "they are one run again");
    assert_eq!(heap.stats().mapped, before, "it has taken new addresses instead");
}

#[test]
fn all_small_blocks_that_are_free_serve_a_large_request() {
    const SMALL: usize = 1 << 12;
    // Hardly more than the blocks need, so that the heap cannot grow instead.
    let (heap, cpu) = (heap(SMALL * 1024 + (1 << 19)), Here::pretend(0));
    let small = layout(1024, 1);
    let blocks: Vec<_> = (0..SMALL).map(|_| heap.alloc_here(&cpu, small)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    for block in blocks {
        // SAFETY: allocated above.
        unsafe { heap.free(&cpu, block, small) };
    }
    assert!(!heap.alloc_here(&cpu, layout(3 << 20, 4096)).is_null());
}

/// Frees all blocks but every `nth`, in an order unrelated to their addresses, on two CPUs,
/// and returns the blocks that were kept.
fn free_but_some(
    heap: &Allocator<Leaked>,
    blocks: Vec<*mut u8>,
    layout: Layout,
    nth: usize,
) -> Vec<*mut u8> {
    let count = blocks.len();
    let (mut kept, mut seen) = (Vec::new(), vec![false; count]);
    for step in 0..count {
        let index = step * 7919 % count;
        assert!(!core::mem::replace(&mut seen[index], true), "7919 divides the count");
        if index.is_multiple_of(nth) {
            kept.push(blocks[index]);
        } else {
            // SAFETY: allocated by the caller, and freed once.
            unsafe { heap.free(&Here::pretend(step % 2), blocks[index], layout) };
        }
    }
    kept
}

#[test]
fn a_page_whose_blocks_are_all_home_is_free_at_once() {
    let (heap, cpus) = (heap(1 << 21), [0, 1].map(Here::pretend));
    let count = rounds(1024, 64);
    for class in (0..CLASSES).step_by(rounds(1, 3)) {
        let small = layout(16 << class, 1);
        let per_page = 4096 / small.size();
        let blocks: Vec<_> = (0..count).map(|_| heap.alloc_here(&cpus[0], small)).collect();
        assert!(blocks.iter().all(|block| !block.is_null()));
        let kept = free_but_some(heap, blocks, small, 8 * per_page);
        cpus.iter().for_each(|cpu| heap.trim(cpu));
        let stats = heap.stats();
        let in_use = (stats.mapped - stats.uncommitted) / 4096 - heap.free_pages();
        assert_eq!(in_use, kept.len(), "pages of class {class} are kept for nobody");
        for block in kept {
            // SAFETY: allocated above, and not freed by `free_but_some`.
            unsafe { heap.free(&cpus[0], block, small) };
        }
        heap.trim(&cpus[0]);
        let stats = heap.stats();
        assert_eq!(heap.free_pages(), (stats.mapped - stats.uncommitted) / 4096);
    }
}

#[test]
fn filling_and_freeing_grows_nothing() {
    let (heap, cpu) = (heap(1 << 20), Here::pretend(0));
    let mut mapped = Vec::new();
    for round in 0..4 {
        for size in [16, 700, 2048, 5000, 100_000] {
            let want = layout(rounds(size, size.max(2048)), 1);
            let all: Vec<_> =
                core::iter::from_fn(|| Some(heap.alloc_here(&cpu, want)).filter(|p| !p.is_null()))
                    .collect();
            assert!(all.len() * want.size() > 600_000, "round {round}: {} of {size}", all.len());
            for block in all {
                // SAFETY: allocated above.
                unsafe { heap.free(&cpu, block, want) };
            }
        }
        heap.trim(&cpu);
        assert_eq!(heap.free_pages(), 256, "round {round}");
        mapped.push(heap.stats().mapped);
    }
    assert_eq!(mapped[0], mapped[3], "it takes addresses for ever");
}
