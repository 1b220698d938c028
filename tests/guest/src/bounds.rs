//! How long a ready G waits while every CPU is busy, in slices: `program=bounds`.
//!
//! For virtual time (`-icount`), where nothing but the program takes time. The
//! bounds are those that the essay of `sched` states ("Fairness").

use crate::check::{self, checks, counters, go_on, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect::{now_ns, slices};
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
        a_sleeper_displaces_whoever_runs,
        a_g_that_comes_to_a_lone_hog_waits_for_its_slice_only,
        one_hog_too_many_is_the_burden_of_all_cpus,
        a_cpu_that_goes_idle_takes_no_tick_for_the_slice_before,
        nobody_is_kept_from_a_mutex_for_much_longer_than_a_millisecond,
    ]);
}

/// The slice with which this is to be run: `slice=1`.
const SLICE: Duration = Duration::from_millis(1);

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
                // Since the slice before began: this G may be preempted at any instruction here.
                let now = sum(begun);
                longest = longest.max(now - then);
                (last, then) = (slices(), now);
            }
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

/// Not even for the slice under way: that is lent.
fn a_sleeper_displaces_whoever_runs() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let begun = counters::<AtomicU64>(2 * num_cpus());
    let hogs: Vec<_> = begun.iter().map(|begun| go(move || hog(begun, &STOP))).collect();
    wait_until(|| begun.iter().all(|begun| begun.load(Relaxed) > 1));
    let late = |round: u32| {
        // No round falls on the same place of a slice as another.
        let nap = SLICE * (round + 2) / 7;
        let start = Instant::now();
        sleep(nap);
        start.elapsed() - nap
    };
    let sleeper = go(move || (0..20).map(late).max());
    let latest = sleeper.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(hogs);
    assert!(latest < Some(SLICE / 10), "{latest:?} late");
}

/// Its CPU takes no ticks, until it is told that somebody waits.
fn a_g_that_comes_to_a_lone_hog_waits_for_its_slice_only() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let begun = counters::<AtomicU64>(1);
    let cpu = num_cpus() - 1;
    let alone = go_on(cpu, move || hog(&begun[0], &STOP));
    let waited = |round: u32| {
        // It is alone for so long, then for longer and longer in its slice.
        sleep(SLICE * 2 + SLICE * round / 10);
        let came = now_ns();
        go_on(cpu, move || now_ns() - came).join().expect("no panic")
    };
    let longest = (0..10).map(waited).max().map(Duration::from_nanos);
    STOP.store(true, Relaxed);
    join_all([alone]);
    assert!(longest < Some(SLICE * 11 / 10), "{longest:?}");
}

/// A hog for each CPU, and none has a timer. Then comes one more, to one of them.
fn one_hog_too_many_is_the_burden_of_all_cpus() {
    const MEASURED: u32 = 50;
    static STOP: AtomicBool = AtomicBool::new(false);
    let begun = counters::<AtomicU64>(num_cpus() + 1);
    let start = |begun: &'static AtomicU64| go(move || hog(begun, &STOP));
    let mut hogs: Vec<_> = begun[1..].iter().map(start).collect();
    sleep(SLICE * 10);
    hogs.push(start(&begun[0]));
    let before: Vec<_> = begun.iter().map(|begun| begun.load(Relaxed)).collect();
    sleep(SLICE * MEASURED);
    let granted = begun.iter().zip(before).map(|(begun, before)| begun.load(Relaxed) - before);
    let granted: Vec<_> = granted.collect();
    STOP.store(true, Relaxed);
    join_all(hogs);
    let share = u64::from(MEASURED) * num_cpus() as u64 / begun.len() as u64;
    assert!(granted.iter().all(|&n| n + 6 >= share), "{granted:?}, {share} for each expected");
}

/// One G waits for the other, so the timer is armed; but both are done long
/// before it would fire.
fn a_cpu_that_goes_idle_takes_no_tick_for_the_slice_before() {
    let cpu = num_cpus() - 1;
    if cpu == 0 {
        return; // we would have to sleep there, which ends with a tick
    }
    let ticks = move || stats().cpus[cpu].ticks;
    let watcher = go_on(0, move || {
        let two = move || (ticks(), go_on(cpu, || ()));
        let (before, second) = go_on(cpu, two).join().expect("no panic");
        sleep(SLICE * 5);
        second.join().expect("no panic");
        assert_eq!(ticks(), before, "ticks of CPU {cpu}");
    });
    join_all([watcher]);
}

/// One G takes a mutex again as soon as it has let it go; another wants it, too.
fn nobody_is_kept_from_a_mutex_for_much_longer_than_a_millisecond() {
    const PATIENCE: Duration = Duration::from_millis(1);
    static LOCK: Mutex<u64> = Mutex::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let greedy = go(|| {
        while !STOP.load(Relaxed) {
            let mut held = LOCK.lock().expect("no panic");
            for _ in 0..100 {
                (0..100).for_each(|turn| *held += core::hint::black_box(turn));
                core::hint::spin_loop(); // as in `hog`
            }
        }
    });
    let modest = go(|| {
        let wait = |_| {
            sleep(SLICE);
            let start = Instant::now();
            drop(LOCK.lock().expect("no panic"));
            start.elapsed()
        };
        (0..20).map(wait).max()
    });
    let longest = modest.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all([greedy]);
    // On one CPU it also waits for the slice of the other.
    assert!(longest < Some(PATIENCE + SLICE * 2), "{longest:?}");
}
