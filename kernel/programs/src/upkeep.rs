//! Upkeep: what memory takes from the time of Gs, where Go has a garbage collector.
//!
//! For Go's scheduler a collection is an event: it starts workers on a quarter of the Ps, has Gs
//! help where they allocate, and stops all of them twice. Here nothing is collected: a value is
//! freed by its owner. What remains is memory that is only kept because it may be wanted again, and
//! an M takes it back between two Gs, on its own stack (`mem::reclaim`):
//!
//! - **Trimming**: the stack of a G that has ended keeps the pages that were touched, and the next
//!   G finds them. When there are many, an M unmaps them. All CPUs must flush them from their TLBs,
//!   so each takes an interrupt: the only moment at which all of them are stopped.
//! - **Packing**: what is on the stack of a G that is parked for long is copied to a smaller block,
//!   and its page becomes free. The G is not asked and not stopped; the first touch of the page
//!   brings it back.
//!
//! Meanwhile a G counts, and is counted on: no part of upkeep waits for a G to come to a safe
//! point.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;
use runnext::sync::Semaphore;

runnext::main!(upkeep, main);

fn main() {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, counting) = (stop.clone(), count.clone());
    let counter = go(move || {
        while !stopped.load(Relaxed) {
            counting.fetch_add(1, Relaxed);
            core::hint::spin_loop();
        }
    });
    let held = trimming(&count) & packing();
    stop.store(true, Relaxed);
    if counter.join().is_err() || !held {
        println!("upkeep did not free what it should");
        exit(1);
    }
}

/// Gs with deep stacks end; returns whether their pages were freed.
fn trimming(count: &AtomicU64) -> bool {
    const GS: usize = 64;
    const KIB: usize = 200;
    let stacks = || inspect::memory().stacks;
    let (before, counted) = (stacks(), count.load(Relaxed));
    // All at once, so that none runs on the stack of another.
    let (gate, touched) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let deep = |_| {
        let (gate, touched) = (gate.clone(), touched.clone());
        let work = move || {
            let sum = dive(KIB);
            touched.release(1);
            gate.acquire(1);
            sum
        };
        Go::new().stack_size(KIB << 11).spawn(work).ok()
    };
    let gs: Vec<_> = (0..GS).filter_map(deep).collect();
    (0..gs.len()).for_each(|_| touched.acquire(1));
    let pages = stacks().commits - before.commits;
    gate.release(gs.len());
    let ended = gs.into_iter().filter_map(|g| g.join().ok()).count();
    // An M trims them when it comes by; each yield is such a moment for this CPU's M.
    let trimmed = || stacks().trimmed_pages - before.trimmed_pages;
    let came = (0..1_000_000).any(|_| {
        yield_now();
        trimmed() >= pages / 2
    });
    println!(
        "{ended} Gs have touched {pages} pages of stack and ended; {} were unmapped again, and \
         another G counted {} times meanwhile",
        trimmed(),
        count.load(Relaxed) - counted
    );
    ended == GS && came
}

/// That many KiB of stack.
#[inline(never)]
fn dive(kib: usize) -> usize {
    let frame = core::hint::black_box([1u8; 1024]);
    usize::from(frame[0]) + if kib > 1 { dive(kib - 1) } else { 0 }
}

/// Gs wait with a value on their stacks, and are packed; returns whether that freed memory and each
/// has its value still.
fn packing() -> bool {
    /// With more than a thousand Gs, those that have been parked for a second are packed.
    const GS: usize = 1_500;
    let (gate, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let wait = |n: usize| {
        let (gate, waiting) = (gate.clone(), waiting.clone());
        let work = move || {
            let values = core::hint::black_box([n; 24]);
            waiting.release(1);
            gate.acquire(1);
            core::hint::black_box(&values).iter().all(|&value| value == n)
        };
        Go::new().spawn(work).ok()
    };
    let gs: Vec<_> = (0..GS).filter_map(wait).collect();
    (0..gs.len()).for_each(|_| waiting.acquire(1));
    let before = inspect::memory();
    let packed = || inspect::memory().pack.packed.saturating_sub(before.pack.packed);
    let came = (0..600).any(|_| {
        sleep(Duration::from_millis(100));
        packed() > GS / 2
    });
    let (packed, freed) =
        (packed(), inspect::memory().frames.free.saturating_sub(before.frames.free));
    gate.release(gs.len());
    let whole = gs.into_iter().filter_map(|g| g.join().ok()).filter(|&whole| whole).count();
    println!(
        "{packed} of {GS} parked Gs were packed, which freed {freed} pages; woken, {whole} of them \
         found their stacks as they were"
    );
    whole == GS && came && freed > GS / 4
}
