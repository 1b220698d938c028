//! Very many Gs that wait for one channel, then end.
//!
//! The report is `MILLION <gs> <ns to create> <ns to wake> <bytes>`: until all
//! wait, from the close of the channel until the last has ended, and all memory
//! that is gone while they wait.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::WaitGroup;
use runnext::{inspect, mem};

static WAITING: AtomicU64 = AtomicU64::new(0);
static GROUP: WaitGroup = WaitGroup::new();

/// Measures it with so many.
pub fn run(gs: u64) {
    let (gate, opened) = chan::rendezvous::<()>();
    let free_before = inspect::memory().frames.free;
    let start = Instant::now();
    for started in 0..gs {
        let opened = opened.clone();
        let wait = move || {
            WAITING.fetch_add(1, Relaxed);
            let _closed = opened.recv();
            GROUP.done();
        };
        GROUP.add(1);
        if let Err(error) = Go::new().spawn(wait) {
            println!("{error} after {started} of {gs}");
            exit(1);
        }
    }
    while WAITING.load(Relaxed) < gs {
        yield_now();
    }
    let created = start.elapsed().as_nanos();
    let frames = free_before.saturating_sub(inspect::memory().frames.free);

    let start = Instant::now();
    gate.close();
    GROUP.wait();
    let woken = start.elapsed().as_nanos();
    println!("MILLION {gs} {created} {woken} {}", frames * mem::PAGE_SIZE);
}
