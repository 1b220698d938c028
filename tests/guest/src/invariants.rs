//! The whole machine is sound while it works: `program=invariants -- <checks>`.
//!
//! All kinds of work at the same time, and again and again everything is stopped
//! and counted (`runnext::invariant`).

use crate::check::{self, checks, join_all};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::invariant;
use runnext::prelude::*;
use runnext::sync::Mutex;

runnext::main!(invariants, main);

fn main() {
    check::run(checks![every_g_is_in_one_place_whenever_one_looks]);
}

static STOP: AtomicBool = AtomicBool::new(false);

fn every_g_is_in_one_place_whenever_one_looks() {
    let checks: usize = args().first().and_then(|word| word.parse().ok()).unwrap_or(20);
    let workers: Vec<_> = (0..60 * num_cpus()).map(|n| go(move || work(n))).collect();
    let (mut queued, mut parked) = (0, 0);
    for _ in 0..checks {
        let found = invariant::check().expect("memory for a G on each CPU");
        let census = found.unwrap_or_else(|broken| panic!("{broken}"));
        queued += census.queued.len();
        parked += census.parked;
        sleep(Duration::from_micros(700));
    }
    STOP.store(true, Relaxed);
    join_all(workers);
    println!("INVARIANT {checks} checks, {queued} Gs in queues, {parked} parked");
    // Else there was nothing to find.
    assert!(queued >= checks && parked >= checks, "{queued} in queues, {parked} parked");
}

/// A bit of everything, until told to stop.
fn work(n: usize) {
    static LOCK: Mutex<u64> = Mutex::new(0);
    static TURNS: AtomicU64 = AtomicU64::new(0);
    while !STOP.load(Relaxed) {
        match n % 6 {
            0 => yield_now(),
            1 => *LOCK.lock().expect("no panic") += 1,
            2 => sleep(Duration::from_micros(n as u64)),
            3 => go(|| ()).join().expect("no panic"),
            4 => blocking(|| sleep(Duration::from_micros(50))),
            _ => {
                let pinned = Go::new().pin(n % num_cpus()).spawn(|| ()).expect("memory for a G");
                pinned.join().expect("no panic");
            }
        }
        TURNS.fetch_add(1, Relaxed);
    }
}
