//! Hogs: Gs that never call the kernel, and are preempted all the same.
//!
//! Four hogs for each CPU count in an endless loop. None of them yields, parks or calls; yet
//! all make progress, because a timer interrupt ends their slice. The main G, which sleeps
//! and prints, is not starved by them either. Argument: for how many seconds they continue
//! when all have run (0); `run hog 60 &` in the shell gives `top` something to show.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runnext::prelude::*;

runnext::main!(hog, main);

/// The state that the hogs share.
struct Shared {
    stop: AtomicBool,
    counts: Vec<AtomicU64>,
}

fn main() {
    let seconds = args().first().and_then(|word| word.parse().ok()).unwrap_or(0);
    let hogs = 4 * num_cpus();
    let counts = (0..hogs).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared { stop: AtomicBool::new(false), counts });
    let hog = |i: usize| {
        let shared = shared.clone();
        go(move || {
            while !shared.stop.load(Ordering::Relaxed) {
                shared.counts[i].fetch_add(1, Ordering::Relaxed);
                core::hint::spin_loop();
            }
        })
    };
    let started: Vec<_> = (0..hogs).map(hog).collect();
    // Every hog has run: more hogs than CPUs, so at least one was preempted.
    while shared.counts.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_secs(seconds));
    shared.stop.store(true, Ordering::Relaxed);
    for hog in started {
        hog.join().expect("a hog does not panic");
    }
    let cpus = stats().cpus;
    let preemptions: u64 = cpus.iter().map(|cpu| cpu.preemptions).sum();
    let ticks: u64 = cpus.iter().map(|cpu| cpu.ticks).sum();
    println!("{hogs} hogs on {} CPUs: all of them ran", num_cpus());
    println!("{preemptions} preemptions, {ticks} timer interrupts");
}
