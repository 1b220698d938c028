//! Uses up all memory, again and again: `program=memory`, with little of it.
//!
//! Who asks for more is told, or ends alone; and when the others have ended, there
//! is as much as before. To be booted with 128 MiB.

use crate::check::{self, checks};
use core::hint::black_box;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::schedule::abandoned;
use runnext::sync::{Mutex, Semaphore};

runnext::main!(memory, main);

fn main() {
    check::run(checks![
        who_asks_a_full_heap_is_told,
        an_allocation_that_fails_panics_its_g_only,
        all_cpus_run_out_at_once_and_none_is_lost,
        a_stack_that_cannot_grow_ends_its_g_with_no_memory,
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

fn an_allocation_that_fails_panics_its_g_only() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let before = abandoned();
    let full = Full::new();
    let (tx, rx) = chan::bounded::<u32>(1);
    let g = go(move || {
        let _held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
        let _tx = tx;
        black_box(Vec::<u8>::with_capacity(black_box(MUCH))).len()
    });
    let joined = g.join();
    drop(full);
    let message = format!("memory allocation of {MUCH} bytes failed");
    assert_eq!(joined, Err(JoinError::Panicked(message)));
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
    for _ in 0..3 {
        let hoarders: Vec<_> = (0..num_cpus()).map(|cpu| check::go_on(cpu, hoard)).collect();
        for g in hoarders {
            let Err(JoinError::Panicked(message)) = g.join() else { panic!("it has not ended so") };
            assert!(message.starts_with("memory allocation of "), "{message}");
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

fn a_stack_that_cannot_grow_ends_its_g_with_no_memory() {
    // It is a G that is refused, or one that cannot go on: whoever comes last.
    while stacks_take_all() == 0 {}
    assert!(has_much());
}

/// Gs with deep stacks, until there is no memory for one more: how many of them found
/// none for their own.
fn stacks_take_all() -> usize {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    static GATE: Semaphore = Semaphore::new(0);
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
        }
    }
    THERE.store(0, Relaxed);
    ENDED.store(0, Relaxed);
    let before = abandoned();
    let mut waiting = Vec::with_capacity(1_000);
    let full = Full::new();
    let is_refused = loop {
        let go_deep = || {
            let _ends = Ends;
            deep(30_000, &THERE, &GATE)
        };
        let Ok(g) = Go::new().spawn(go_deep) else { break true };
        waiting.push(g);
        check::wait_until(|| THERE.load(Relaxed) >= waiting.len() || ENDED.load(Relaxed) > 0);
        if ENDED.load(Relaxed) > 0 {
            break false;
        }
    };
    drop(full);
    GATE.release(waiting.len());
    let mut lost = 0;
    for g in waiting {
        match g.join() {
            Ok(_) => {}
            Err(JoinError::NoMemory) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // Those who were lost have taken none.
    assert!(GATE.try_acquire(GATE.available()));
    assert!(is_refused || lost > 0, "there was memory for all");
    assert_eq!(abandoned(), before);
    lost
}
