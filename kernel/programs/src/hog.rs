//! Hogs: Gs that never call anything, and are preempted all the same.
//!
//! Four hogs for each CPU count in an endless loop. None of them yields, parks
//! or calls; yet all make progress, because a timer interrupt ends their slice.
//! The main G, which sleeps and prints, is not starved by them either.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runnext::prelude::*;

runnext::main!(hog, main);

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    STOP.store(false, Ordering::Relaxed); // it may have run before
    let hogs = 4 * num_cpus();
    let counts: &'static [AtomicU64] = Vec::leak((0..hogs).map(|_| AtomicU64::new(0)).collect());
    let started: Vec<_> = counts
        .iter()
        .map(|count| {
            go(move || {
                while !STOP.load(Ordering::Relaxed) {
                    count.fetch_add(1, Ordering::Relaxed);
                    core::hint::spin_loop();
                }
            })
        })
        .collect();
    // Every hog has run: more hogs than CPUs, so somebody was preempted.
    while counts.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
        sleep(Duration::from_millis(20));
    }
    STOP.store(true, Ordering::Relaxed);
    for hog in started {
        hog.join().expect("a hog does not panic");
    }
    let cpus = stats().cpus;
    let preemptions: u64 = cpus.iter().map(|cpu| cpu.preemptions).sum();
    let ticks: u64 = cpus.iter().map(|cpu| cpu.ticks).sum();
    println!("{hogs} hogs on {} CPUs: all of them ran", num_cpus());
    println!("{preemptions} preemptions, {ticks} timer interrupts");
}
