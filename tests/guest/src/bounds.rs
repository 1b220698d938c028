//! How long a ready G waits while every CPU is busy, in slices: `program=bounds`.
//!
//! For virtual time (`-icount`), where nothing but the program takes time. The
//! bounds are those that the essay of `sched` states ("Fairness").

use crate::check::{self, checks, counters, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect::slices;
use runnext::prelude::*;
use runnext::sync::Mutex;

runnext::main!(bounds, main);

fn main() {
    check::run(checks![
        the_last_that_was_started_runs_next_and_the_others_in_order,
        a_g_in_the_local_queue_waits_for_those_before_it,
        a_g_in_the_global_queue_waits_for_61_slices_of_a_busy_p,
        a_hog_waits_for_one_round_of_all_others,
        a_sleeper_waits_for_one_slice,
    ]);
}

/// A turn of the global queue, for every so many slices.
const GLOBAL_CHECK_EVERY: u64 = 61;

/// One P, until dropped.
struct OneP;

impl OneP {
    fn only() -> Self {
        set_gomaxprocs(1);
        // Whoever called from a P that is gone is on the one that is left now.
        yield_now();
        OneP
    }
}

impl Drop for OneP {
    fn drop(&mut self) {
        set_gomaxprocs(num_cpus());
    }
}

fn hog(begun: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        begun.store(slices(), Relaxed);
        // A turn of a CPU ends at a `pause`: often enough for all to get on.
        for _ in 0..1000 {
            core::hint::black_box(());
        }
        core::hint::spin_loop();
    }
}

fn sum(begun: &[AtomicU64]) -> u64 {
    begun.iter().map(|slices| slices.load(Relaxed)).sum()
}

fn the_last_that_was_started_runs_next_and_the_others_in_order() {
    static RAN: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let _one = OneP::only();
    yield_now(); // a whole slice is before us
    let gs: Vec<_> = (0..10).map(|i| go(move || RAN.lock().expect("no panic").push(i))).collect();
    join_all(gs);
    assert_eq!(*RAN.lock().expect("no panic"), [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

/// `k` hogs are before it in the ring: it runs after a slice of each, and what
/// comes out of the global queue in between.
fn a_g_in_the_local_queue_waits_for_those_before_it() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let _one = OneP::only();
    for k in [10, 100] {
        STOP.store(false, Relaxed);
        let begun = counters::<AtomicU64>(k);
        let hogs: Vec<_> = begun.iter().map(|begun| go(move || hog(begun, &STOP))).collect();
        let waiting = go(move || sum(begun));
        drop(go(|| ())); // runs next, in place of the one that we look at
        let waited = waiting.join().expect("no panic");
        STOP.store(true, Relaxed);
        join_all(hogs);
        let k = k as u64;
        let bound = k + 1 + (k + 1).div_ceil(GLOBAL_CHECK_EVERY);
        assert!((k..=bound).contains(&waited), "{waited} slices, {k} to {bound} expected");
    }
}

/// Two Gs that yield keep the P busy; the third, whose slice is over, is in the
/// global queue.
fn a_g_in_the_global_queue_waits_for_61_slices_of_a_busy_p() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static YIELDS: AtomicU64 = AtomicU64::new(0);
    let _one = OneP::only();
    let yielders: Vec<_> = (0..2)
        .map(|_| {
            go(|| {
                while !STOP.load(Relaxed) {
                    YIELDS.fetch_add(1, Relaxed);
                    yield_now();
                }
            })
        })
        .collect();
    let hog = go(|| {
        let (mut longest, mut last, mut then) = (0, slices(), 0);
        while last < 20 {
            if slices() != last {
                last = slices();
                longest = longest.max(YIELDS.load(Relaxed) - then);
            }
            then = YIELDS.load(Relaxed);
        }
        longest
    });
    let longest = hog.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(yielders);
    // The first wait counts from the beginning of the yielders.
    assert!((1..=2 * GLOBAL_CHECK_EVERY).contains(&longest), "{longest} slices");
}

/// All hogs are in one circle: between two slices of one, each of the others has
/// one, and those that run on other CPUs may begin another.
fn a_hog_waits_for_one_round_of_all_others() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let begun = counters::<AtomicU64>(4 * num_cpus());
    let others: Vec<_> = begun.iter().map(|begun| go(move || hog(begun, &STOP))).collect();
    wait_until(|| begun.iter().all(|begun| begun.load(Relaxed) > 1));
    let watched = go(move || {
        let (mut longest, mut last, mut then) = (0, slices(), sum(begun));
        while last < 10 {
            if slices() != last {
                last = slices();
                longest = longest.max(sum(begun) - then);
            }
            then = sum(begun);
            core::hint::spin_loop();
        }
        longest
    });
    let longest = watched.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(others);
    let bound = (begun.len() + 2 * num_cpus()) as u64;
    assert!((1..=bound).contains(&longest), "{longest} slices of others, at most {bound} expected");
}

/// It goes to the ring of its CPU, which hogs leave empty.
fn a_sleeper_waits_for_one_slice() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let begun = counters::<AtomicU64>(4 * num_cpus());
    let hogs: Vec<_> = begun.iter().map(|begun| go(move || hog(begun, &STOP))).collect();
    wait_until(|| begun.iter().all(|begun| begun.load(Relaxed) > 1));
    let sleeper = go(move || {
        let mut longest = 0;
        for _ in 0..10 {
            let before = sum(begun);
            sleep(Duration::from_micros(1));
            longest = longest.max(sum(begun) - before);
        }
        longest
    });
    let longest = sleeper.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(hogs);
    // The rest of the slice under way, and the same on all other CPUs meanwhile.
    let bound = 2 * num_cpus() as u64;
    assert!(longest <= bound, "{longest} slices of others, at most {bound} expected");
}
