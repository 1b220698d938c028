//! Workloads about who gets the Ps.

use alloc::vec::Vec;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::WaitGroup;

use crate::latency::{nanoseconds, work};
use crate::report::{figure, middle_and_last};

/// How many hogs there are in [`fairness`].
const HOGS: u64 = 16;

/// One producer that never lets go, and idle Ps: from the creation of a G until
/// another P has run it, so often.
pub fn steal(gs: u64) {
    static RAN: AtomicBool = AtomicBool::new(false);
    let mut took = Vec::with_capacity(gs as usize);
    for _ in 0..gs {
        RAN.store(false, Relaxed);
        let start = Instant::now();
        let _detached = go(|| RAN.store(true, Relaxed));
        while !RAN.load(Relaxed) {
            spin_loop();
        }
        took.push(nanoseconds(start.elapsed()));
    }
    middle_and_last("steal", took);
}

/// Hogs for so many milliseconds: what the one that got least got of what the one
/// that got most did, in thousandths, and the longest time that one got nothing.
pub fn fairness(milliseconds: u64) {
    static ALL: WaitGroup = WaitGroup::new();
    static LEAST: AtomicU64 = AtomicU64::new(u64::MAX);
    static MOST: AtomicU64 = AtomicU64::new(0);
    static GAP: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    let end = nanoseconds(Duration::from_millis(milliseconds));
    for _ in 0..HOGS {
        ALL.add(1);
        let _detached = go(move || {
            let (mut done, mut last) = (0, 0);
            while last < end {
                work();
                done += 1;
                let now = nanoseconds(start.elapsed());
                GAP.fetch_max(now - last, Relaxed);
                last = now;
            }
            LEAST.fetch_min(done, Relaxed);
            MOST.fetch_max(done, Relaxed);
            ALL.done();
        });
    }
    ALL.wait();
    figure("fairness_share", LEAST.load(Relaxed) * 1_000 / MOST.load(Relaxed).max(1));
    figure("fairness_gap", GAP.load(Relaxed));
}
