//! Workloads that are nothing but switching, or nothing but a lock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::{Mutex, WaitGroup};

static GROUP: WaitGroup = WaitGroup::new();

/// Two Gs that yield to each other: every yield is a switch.
pub fn yield_two(switches: u64) -> u64 {
    yields(2, switches / 2)
}

/// A thousand Gs that yield in turn.
pub fn yield_many(switches: u64) -> u64 {
    yields(1_000, switches / 1_000)
}

fn yields(gs: u64, each: u64) -> u64 {
    for _ in 0..gs {
        GROUP.add(1);
        let _detached = go(move || {
            for _ in 0..each {
                yield_now();
            }
            GROUP.done();
        });
    }
    GROUP.wait();
    gs * each
}

/// Lock, add, unlock, by eight Gs.
pub fn mutex8(additions: u64) -> u64 {
    static COUNT: Mutex<u64> = Mutex::new(0);
    static BEFORE: AtomicU64 = AtomicU64::new(0);
    let each = additions / 8;
    for _ in 0..8 {
        GROUP.add(1);
        let _detached = go(move || {
            for _ in 0..each {
                *COUNT.lock().expect("no holder panics") += 1;
            }
            GROUP.done();
        });
    }
    GROUP.wait();
    let count = *COUNT.lock().expect("no holder panics");
    assert_eq!(count - BEFORE.swap(count, Relaxed), 8 * each, "an addition was lost");
    8 * each
}
