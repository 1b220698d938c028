//! How figures leave the machine: lines that the host reads.
//!
//! `BENCH <row> <operations> <nanoseconds>` says what some operations took
//! together; `FIGURE <row> <number>` is a figure as it stands. Around what a
//! `BENCH` line is about [`mark`] is called, once before and once after: a plugin
//! of the emulator's watches for it, and reads its counters there.

use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use runnext::prelude::*;

/// Does the work, which says how many operations it was, and reports what it took.
pub fn timed(row: &str, work: impl FnOnce() -> u64) {
    mark();
    let start = Instant::now();
    let done = work();
    let took = start.elapsed().as_nanos();
    mark();
    println!("BENCH {row} {done} {took}");
}

/// Reports a number.
pub fn figure(row: &str, number: u64) {
    println!("FIGURE {row} {number}");
}

/// When main began, in nanoseconds since the kernel was entered.
static MAIN_BEGAN: AtomicU64 = AtomicU64::new(0);

/// Called first.
pub fn main_begins() {
    MAIN_BEGAN.store(Instant::now().as_nanos(), Relaxed);
}

/// Reports how long the kernel took to get to main, as the row of that many CPUs.
pub fn boot(_: u64) {
    figure(&format!("boot_{}", num_cpus()), MAIN_BEGAN.load(Relaxed));
}

/// Reports the middle one of the samples, and the one that a hundredth is above.
pub fn middle_and_last(row: &str, mut samples: Vec<u64>) {
    samples.sort_unstable();
    for (name, percent) in [("p50", 50), ("p99", 99)] {
        let at = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
        println!("FIGURE {row}_{name} {}", samples.get(at).copied().unwrap_or(0));
    }
}

/// Found by its name in the symbol table; its first instruction is the mark.
#[inline(never)]
fn mark() {
    black_box(());
}
