//! Uses up all memory, again and again: `program=memory`, with little of it.
//!
//! Who asks for more is told, or ends alone; and when the others have ended, there
//! is as much as before. To be booted with 56 MiB.

use crate::check::{self, checks};
use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::internals::mem;
use runnext::prelude::*;
use runnext::program::abandoned;
use runnext::sync::{Mutex, Semaphore};

runnext::main!(memory, main);
runnext::main!(large, large);

/// Takes large blocks, and says how late a sleeper was woken meanwhile.
fn large() {
    let mebibytes = args().first().and_then(|word| word.parse().ok()).unwrap_or(64_usize);
    let (taken, late_ns, _) = check::with_sleeper(|| {
        let sizes = [mebibytes << 20, (mebibytes << 20) / 3, 5 << 20];
        let blocks = sizes.map(|bytes| Vec::<u8>::with_capacity(black_box(bytes)));
        black_box(blocks).iter().map(Vec::capacity).sum::<usize>()
    });
    println!("LARGE {taken} bytes, {late_ns} ns");
}

fn main() {
    check::run(checks![
        who_asks_a_full_heap_is_told,
        who_spawns_without_memory_is_told,
        an_allocation_that_fails_panics_its_g_only,
        all_cpus_run_out_at_once_and_none_is_lost,
        a_stack_that_cannot_grow_ends_its_g_with_no_memory,
        an_allocation_that_fails_in_a_call_panics_its_g_only,
        a_call_whose_stack_cannot_grow_ends_its_g_with_no_memory,
        a_deep_stack_gets_memory_that_the_heap_has_freed,
        a_deep_call_gets_memory_that_the_heap_has_freed,
        a_call_that_asks_for_memory_gets_pages_of_unused_stacks,
        after_a_full_heap_a_thousand_spawns_succeed,
        filling_and_freeing_grows_nothing,
    ]);
}

/// More than there is once the heap is full.
const MUCH: usize = 4 << 20;

/// All memory that the heap can have, in blocks, until it is dropped.
struct Full(#[expect(dead_code, reason = "only its size counts")] Vec<Vec<u8>>);

impl Full {
    fn new() -> Self {
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(10_000).expect("there is memory before");
        for size in [1 << 20, 1 << 16, 1 << 12] {
            while blocks.len() < blocks.capacity() {
                let mut block = Vec::new();
                if block.try_reserve_exact(size).is_err() {
                    break;
                }
                blocks.push(block);
            }
        }
        Full(blocks)
    }
}

/// Whether much can be had: memory is there again.
fn has_much() -> bool {
    Vec::<u8>::new().try_reserve_exact(MUCH).is_ok()
}

fn who_asks_a_full_heap_is_told() {
    let full = Full::new();
    assert!(!has_much());
    assert!(chan::try_bounded::<[u8; 64]>(MUCH / 64).is_err());
    assert!(Go::new().stack_size(usize::MAX).spawn(|| ()).is_err());
    drop(full);
    assert!(has_much());
    assert!(chan::try_bounded::<[u8; 64]>(MUCH / 64).is_ok());
}

fn who_spawns_without_memory_is_told() {
    static GATE: Semaphore = Semaphore::new(0);
    let mut all = Vec::with_capacity(5_000);
    let full = Full::new();
    let error = loop {
        match Go::new().spawn(|| GATE.acquire(1)) {
            Ok(g) if all.len() < all.capacity() => all.push(g),
            Ok(_) => panic!("there is memory for all"),
            Err(error) => break error,
        }
    };
    drop(full);
    assert_eq!(error, SpawnError::NoMemory);
    GATE.release(all.len());
    for g in all {
        // One that has used more of its stack than the rest may have found none.
        assert!(matches!(g.join(), Ok(()) | Err(JoinError::NoMemory)));
    }
    assert!(go(|| ()).join().is_ok());
}

fn an_allocation_that_fails_panics_its_g_only() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    static START: Semaphore = Semaphore::new(0);
    let before = abandoned();
    let (tx, rx) = chan::bounded::<u32>(1);
    let g = go(move || {
        START.acquire(1);
        let _held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
        let _tx = tx;
        black_box(Vec::<u8>::with_capacity(black_box(MUCH))).len()
    });
    let full = Full::new();
    START.release(1);
    let joined = g.join();
    drop(full);
    let message = format!("memory allocation of {MUCH} bytes failed");
    assert_eq!(joined, Err(JoinError::Panicked(message.into())));
    assert!(LOCK.lock().is_err(), "not poisoned");
    assert!(rx.recv().is_err(), "its end of the channel is open");
    assert_eq!(abandoned(), before);
    assert_eq!(go(|| Vec::<u8>::with_capacity(MUCH).capacity()).join(), Ok(MUCH));
}

/// A list that grows until there is no memory, in small blocks.
fn hoard() -> usize {
    let mut all = Vec::new();
    loop {
        all.push(Box::new([0u8; 1000]));
        black_box(&all);
    }
}

fn all_cpus_run_out_at_once_and_none_is_lost() {
    let before = abandoned();
    for _ in 0..2 {
        let hoarders: Vec<_> = (0..num_cpus()).map(|cpu| check::go_on(cpu, hoard)).collect();
        for g in hoarders {
            let Err(JoinError::Panicked(message)) = g.join() else { panic!("it has not ended so") };
            assert!(message.message().starts_with("memory allocation of "), "{message}");
        }
        assert!(has_much());
    }
    assert_eq!(abandoned(), before);
}

/// Uses that many bytes of its stack, and waits there.
#[inline(never)]
fn deep(bytes: usize, there: &AtomicUsize, gate: &Semaphore) -> usize {
    let frame = black_box([bytes; 100]); // it is there twice
    if bytes > 1600 {
        return deep(bytes - 1600, there, gate) + frame[0];
    }
    there.fetch_add(1, Relaxed);
    gate.acquire(1);
    frame[0]
}

/// Gs that wait until memory is used up, and then want more of their stacks.
struct Divers {
    waiting: AtomicUsize,
    there: AtomicUsize,
    ended: AtomicUsize,
    start: Semaphore,
    gate: Semaphore,
}

impl Divers {
    const fn new() -> Self {
        Divers {
            waiting: AtomicUsize::new(0),
            there: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            start: Semaphore::new(0),
            gate: Semaphore::new(0),
        }
    }

    /// Waits for its turn, and uses that many bytes of its stack.
    fn dive(&self, bytes: usize) -> usize {
        self.waiting.fetch_add(1, Relaxed);
        self.start.acquire(1);
        deep(bytes, &self.there, &self.gate)
    }

    /// Starts `count` Gs that run `diver`, uses up all memory, and lets one after the other
    /// [`dive`](Self::dive) until one has ended: all together want far more than is kept for
    /// stacks. Some must end with `NoMemory` and their destructors run, all others return.
    fn starve(&'static self, count: usize, diver: fn(&Divers) -> usize) {
        struct Ends<'a>(&'a AtomicUsize);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let before = abandoned();
        let run = move || {
            let _ends = Ends(&self.ended);
            diver(self)
        };
        let all: Vec<_> = (0..count).map(|_| Go::new().spawn(run).expect("most is free")).collect();
        check::wait_until(|| self.waiting.load(Relaxed) == count);
        let full = Full::new();
        let mut started = 0;
        while started < count && self.ended.load(Relaxed) == 0 {
            self.start.release(1);
            started += 1;
            let arrived = || self.there.load(Relaxed) + self.ended.load(Relaxed);
            check::wait_until(|| arrived() >= started);
        }
        drop(full);
        self.start.release(count - started);
        self.gate.release(count);
        let joined: Vec<_> = all.into_iter().map(JoinHandle::join).collect();
        let lost = joined.iter().filter(|joined| **joined == Err(JoinError::NoMemory)).count();
        assert!(lost > 0, "there was memory for all");
        assert_eq!(joined.iter().filter(|joined| joined.is_ok()).count(), count - lost);
        assert_eq!(self.gate.available(), lost, "a lost G has taken a permit");
        assert_eq!(abandoned(), before);
        assert!(has_much());
    }
}

fn a_stack_that_cannot_grow_ends_its_g_with_no_memory() {
    static DIVERS: Divers = Divers::new();
    DIVERS.starve(400, |divers| divers.dive(30_000));
}

/// All memory is the heap's, and free: a page fault cannot wait until it is given back.
fn a_deep_stack_gets_memory_that_the_heap_has_freed() {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    static GATE: Semaphore = Semaphore::new(0);
    for round in 0..2 {
        GATE.release(1);
        let dives = || {
            drop(Full::new());
            deep(12 << 20, &THERE, &GATE)
        };
        let g = Go::new().stack_size(15 << 20).spawn(dives).expect("most is free");
        assert!(g.join().is_ok(), "round {round}");
    }
}

/// As [`a_deep_stack_gets_memory_that_the_heap_has_freed`], on the stack of an M.
fn a_deep_call_gets_memory_that_the_heap_has_freed() {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    static GATE: Semaphore = Semaphore::new(0);
    const ALL: usize = 4;
    GATE.release(ALL);
    for round in 0..ALL {
        let dives = || {
            drop(Full::new());
            deep(400_000, &THERE, &GATE)
        };
        assert!(go(move || blocking(dives)).join().is_ok(), "round {round}");
    }
}

/// In a call, too, a request is refused only when unused stacks have given up their pages.
fn a_call_that_asks_for_memory_gets_pages_of_unused_stacks() {
    crowd(100, 30_000); // fewer pages than the kernel gives back by itself
    let idle_when_full = || {
        let _full = Full::new();
        mem::stats().stacks.idle_pages
    };
    assert_eq!(go(move || blocking(idle_when_full)).join(), Ok(0));
}

fn an_allocation_that_fails_in_a_call_panics_its_g_only() {
    static START: Semaphore = Semaphore::new(0);
    let before = abandoned();
    let g = go(|| {
        blocking(|| {
            START.acquire(1);
            black_box(Vec::<u8>::with_capacity(black_box(MUCH))).len()
        })
    });
    let full = Full::new();
    START.release(1);
    let joined = g.join();
    drop(full);
    let message = format!("memory allocation of {MUCH} bytes failed");
    assert_eq!(joined, Err(JoinError::Panicked(message.into())));
    assert_eq!(abandoned(), before);
}

/// As [`a_stack_that_cannot_grow_ends_its_g_with_no_memory`], on the stacks of Ms: a call
/// wants a hundred pages.
fn a_call_whose_stack_cannot_grow_ends_its_g_with_no_memory() {
    static DIVERS: Divers = Divers::new();
    DIVERS.starve(30, |divers| blocking(|| divers.dive(400_000)));
    assert_eq!(go(|| blocking(|| black_box(7))).join(), Ok(7));
}

/// Small blocks on all CPUs until each of them is told that there is no more; how many
/// there were.
fn fill_with_small_blocks() -> usize {
    const SIZES: [usize; 4] = [200, 500, 1000, 2000];
    let hoard = |size| {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut block = Vec::new();
            if all.try_reserve(1).is_err() || block.try_reserve_exact(size).is_err() {
                return all.len();
            }
            all.push(block);
        }
    };
    let hoarders: Vec<_> = (0..num_cpus())
        .map(|cpu| check::go_on(cpu, move || hoard(SIZES[cpu % SIZES.len()])))
        .collect();
    hoarders.into_iter().map(|g| g.join().expect("it was told")).sum()
}

/// That many Gs that are there at once, each with that many bytes of stack.
fn crowd(count: usize, bytes: usize) {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    static GATE: Semaphore = Semaphore::new(0);
    THERE.store(0, Relaxed);
    let spawn = |_| Go::new().spawn(move || deep(bytes, &THERE, &GATE)).expect("most is free");
    let all: Vec<_> = (0..count).map(spawn).collect();
    check::wait_until(|| THERE.load(Relaxed) == count);
    GATE.release(count);
    all.into_iter().for_each(|g| _ = g.join().expect("nothing is wrong with it"));
}

fn after_a_full_heap_a_thousand_spawns_succeed() {
    drop(Full::new());
    crowd(1_000, 100);
    fill_with_small_blocks();
    crowd(1_000, 100);
}

/// What is free, and what the heap has, when all is given up that is only kept: in pages.
fn at_rest() -> (usize, usize) {
    // Nobody can have all there is; and before that is said, all is given up.
    let all = mem::stats().frames.total * mem::PAGE_SIZE;
    assert!(Vec::<u8>::new().try_reserve_exact(all).is_err());
    let mem::Stats { frames, heap, .. } = mem::stats();
    assert!(heap.mapped < 2 * all, "the heap takes addresses for ever");
    // A record of 32 bytes and an entry of 8 stay with each page of addresses.
    let addresses = heap.mapped.div_ceil(mem::PAGE_SIZE) * 5 / 512;
    (frames.free + addresses, (heap.mapped - heap.uncommitted).div_ceil(mem::PAGE_SIZE))
}

fn filling_and_freeing_grows_nothing() {
    /// What is in use by chance: the blocks and pages of whoever looks.
    const SLACK: usize = 32;
    let fill_and_free = || {
        fill_with_small_blocks();
        drop(Full::new());
        crowd(100, 30_000);
    };
    fill_and_free();
    let (first_free, first_heap) = at_rest();
    let made = mem::stats().stacks.made;
    for _ in 0..2 {
        fill_and_free();
        // A G that was joined may still be about to give back what it has.
        check::wait_until(|| {
            let (free, heap) = at_rest();
            // A stack that nobody uses has a page, and one of a dead G may have two.
            heap <= first_heap + SLACK && free + mem::stats().stacks.made + SLACK >= first_free
        });
        let new = mem::stats().stacks.made - made;
        assert!(new < 64 * num_cpus(), "{new} new stacks");
    }
}
