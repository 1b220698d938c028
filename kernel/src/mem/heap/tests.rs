//! The promises of the heap, on a leaked vector that plays the window.

use super::classes::{Allocator, CLASSES, Source};
use super::{Lent, Window};
use crate::mem::percpu::Here;
use core::alloc::Layout;
use core::ptr::NonNull;
use std::collections::BTreeMap;

/// Miri takes a thousand times as long: fewer rounds there.
const fn rounds(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Memory that gives up to `limit` bytes.
struct Leaked {
    base: *mut u8,
    given: usize,
    limit: usize,
    /// A range that was taken out, and may be restored.
    lent: Option<(NonNull<u8>, usize)>,
}

// SAFETY: the base may go to another thread with the heap that uses it.
unsafe impl Send for Leaked {}

// SAFETY: the memory is leaked and nobody else has it; growth is at the end.
unsafe impl Source for Leaked {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn grow(&mut self, bytes: usize) -> usize {
        let added = bytes.next_multiple_of(4096);
        if self.given + added > self.limit {
            return 0;
        }
        self.given += added;
        added
    }

    fn restore(&mut self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let (start, all) = self.lent?;
        let some = bytes.min(all);
        // SAFETY: inside the range, or at its end.
        self.lent = (some < all).then(|| (unsafe { start.add(some) }, all - some));
        Some((start, some))
    }

    fn lent(&self) -> usize {
        self.lent.map_or(0, |(_, bytes)| bytes)
    }
}

fn heap(limit: usize) -> &'static Allocator<Leaked> {
    let layout = Layout::from_size_align(limit, 4096).expect("a sane limit");
    // SAFETY: the size is not 0.
    let base = unsafe { std::alloc::alloc(layout) };
    assert!(!base.is_null());
    Box::leak(Box::new(Allocator::new(Leaked { base, given: 0, limit, lent: None })))
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

#[test]
fn blocks_are_as_aligned_as_asked() {
    let (heap, cpu) = (heap(1 << 22), Here::pretend(0));
    for shift in 0..=14 {
        for size in [1, 15, 16, 17, 100, 2048, 2049, 5000] {
            let block = heap.alloc(&cpu, layout(size, 1 << shift));
            assert!(!block.is_null());
            assert_eq!(block.addr() % (1 << shift), 0, "size {size}, align {}", 1 << shift);
        }
    }
}

/// Allocates and frees at random on four CPUs and compares with a model: no two
/// live blocks overlap, and what was written is still there when it is freed.
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
            let block = heap.alloc(&cpu, layout);
            assert!(!block.is_null());
            let at = block.addr();
            if let Some((&below, (_, l, _))) = live.range(..=at).next_back() {
                assert!(below + l.size() <= at, "overlaps the block below");
            }
            if let Some((&above, _)) = live.range(at..).next() {
                assert!(at + size <= above, "overlaps the block above");
            }
            // SAFETY: the block is ours and `size` long.
            unsafe { block.write_bytes(round as u8, size) };
            live.insert(at, (block, layout, round as u8));
        } else if let Some(&at) = live.keys().nth(next(live.len().max(1))) {
            let (block, layout, mark) = live.remove(&at).expect("just seen");
            // SAFETY: ours, `size` long, and written when it was made.
            let bytes = unsafe { core::slice::from_raw_parts(block, layout.size()) };
            assert!(bytes.iter().all(|&byte| byte == mark), "somebody else wrote here");
            // SAFETY: from this heap with this layout, and used no more.
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
    // Far more than the memory could hold if nothing came back.
    for _ in 0..rounds(2000, 3) {
        let blocks: Vec<_> = (0..100).map(|_| heap.alloc(&a, want)).collect();
        for block in blocks {
            assert!(!block.is_null());
            // SAFETY: from this heap with this layout, and used no more.
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
        core::iter::from_fn(|| Some(heap.alloc(&cpu, small)).filter(|p| !p.is_null())).collect();
    assert!(all.len() * size > 500 * 1024, "only {} bytes were usable", all.len() * size);
    assert_eq!(heap.stats().failures, 1);
    assert!(heap.alloc(&cpu, layout(4096, 8)).is_null());
    for block in all {
        // SAFETY: from this heap with this layout, and used no more.
        unsafe { heap.free(&cpu, block, small) };
    }
    // What was cut into small blocks serves large ones again.
    assert!(!heap.alloc(&cpu, layout(256 * 1024, 8)).is_null());
    assert!(!heap.alloc(&cpu, small).is_null());
}

#[test]
fn absurd_requests_are_null_and_take_nothing() {
    let (heap, cpu) = (heap(1 << 20), Here::pretend(0));
    heap.warm_up();
    let before = heap.stats().mapped;
    let max = isize::MAX as usize;
    assert!(heap.alloc(&cpu, layout(max, 1)).is_null());
    assert!(heap.alloc(&cpu, layout(1, 1 << 62)).is_null());
    assert!(heap.alloc(&cpu, layout(1 << 39, 8)).is_null());
    assert_eq!(heap.stats().mapped, before);
}

#[test]
fn growth_is_by_chunks_and_for_what_is_asked() {
    let (heap, cpu) = (heap(4 << 20), Here::pretend(0));
    assert_eq!(heap.stats().mapped, 0);
    assert!(!heap.alloc(&cpu, layout(1, 1)).is_null());
    assert_eq!(heap.stats().mapped, 256 * 1024);
    assert!(!heap.alloc(&cpu, layout(1 << 20, 4096)).is_null());
    let mapped = heap.stats().mapped;
    assert!(((1 << 20)..(2 << 20)).contains(&mapped));
    assert_eq!(heap.stats().large_in_use, 1 << 20);
}

#[test]
fn the_common_path_takes_no_lock() {
    let (heap, cpu) = (heap(1 << 22), Here::pretend(3));
    for class in (0..CLASSES).step_by(rounds(1, 4)) {
        let want = layout(16 << class, 8);
        let block = heap.alloc(&cpu, want);
        // SAFETY: from this heap with this layout, and used no more.
        unsafe { heap.free(&cpu, block, want) };
        let before = heap.stats();
        for _ in 0..10 {
            let block = heap.alloc(&cpu, want);
            // SAFETY: as above.
            unsafe { heap.free(&cpu, block, want) };
        }
        let after = heap.stats();
        // One for each of the two snapshots is their own; the first is in both.
        assert_eq!(after.lock_acquisitions, before.lock_acquisitions + 1, "class {class}");
        assert_eq!(after.refills, before.refills);
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
                        (0..rounds(80, 40)).map(|_| heap.alloc(&here, want)).collect();
                    for &block in &blocks {
                        // SAFETY: ours, 48 bytes long.
                        unsafe { block.write_bytes(cpu as u8, 48) };
                    }
                    for block in blocks {
                        // SAFETY: ours, and written above.
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
fn a_range_that_was_taken_out_is_nobodys_until_it_is_restored() {
    const RANGE: usize = 1 << 20;
    let (heap, cpu) = (heap(RANGE + (1 << 18)), Here::pretend(0));
    let half = layout(RANGE / 2, 4096);
    let block = heap.alloc(&cpu, layout(RANGE, 4096));
    // SAFETY: allocated above.
    unsafe { heap.free(&cpu, block, layout(RANGE, 4096)) };
    let before = heap.stats();
    let taken = heap.take_out(layout(RANGE, 4096)).expect("it is free");
    assert!(heap.free_bytes() < RANGE);
    assert!(heap.alloc(&cpu, half).is_null(), "it was given to somebody");
    heap.with_source(|source, _| source.lent = Some((taken, RANGE)));
    assert_eq!(heap.stats().lent, RANGE);
    let [a, b] = [heap.alloc(&cpu, half), heap.alloc(&cpu, layout(RANGE / 4, 4096))];
    assert!(!a.is_null() && !b.is_null());
    assert_eq!(heap.stats().mapped, before.mapped, "it has grown instead");
}

#[test]
fn all_small_blocks_that_are_free_serve_a_large_request() {
    const SMALL: usize = 1 << 12;
    // Hardly more than they need, so that it cannot grow instead.
    let (heap, cpu) = (heap(SMALL * 1024 + (1 << 19)), Here::pretend(0));
    let small = layout(1024, 1);
    let blocks: Vec<_> = (0..SMALL).map(|_| heap.alloc(&cpu, small)).collect();
    assert!(blocks.iter().all(|block| !block.is_null()));
    for block in blocks {
        // SAFETY: allocated above.
        unsafe { heap.free(&cpu, block, small) };
    }
    assert!(!heap.alloc(&cpu, layout(3 << 20, 4096)).is_null());
}

#[test]
fn ranges_that_are_lent_are_one_with_those_beside_them() {
    let range = |first: u64, pages: usize| Lent { start: first << 12, pages };
    let mut window = Window::new();
    for (first, pages) in [(0, 4), (8, 4), (20, 1), (12, 2), (4, 4)] {
        window.lend(range(first, pages));
    }
    let mut ranges: Vec<_> =
        window.lent[..window.lent_count].iter().map(|l| (l.start >> 12, l.pages)).collect();
    ranges.sort_unstable();
    assert_eq!(ranges, [(0, 14), (20, 1)]);
    assert_eq!(window.lent(), 15 << 12);
}
