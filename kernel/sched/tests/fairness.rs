//! Fairness in slices, and the bounds that the essay promises.
//!
//! A machine without races: all CPUs run for a slice, then stop one after the
//! other in an order that a seed gives: the same every time, as timers of one
//! period have it, or a new one every time, as a machine does whose clocks
//! jitter by a whole slice. What is counted is slices, not time.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{find, g, machine};
use sched::{G, GLOBAL_CHECK_EVERY, P, Sched};

#[derive(Clone, Copy, PartialEq)]
enum Clocks {
    Steady,
    Jitter,
}

const CPUS: usize = 4;
/// 200 ms, in slices of 10 ms.
const WARM_UP: usize = 20;
/// 2 s.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 200 };

/// Slices that each of `hogs` Gs got, after a warm-up, if they begin spread over
/// the CPUs or all on the first.
fn slices(hogs: usize, seed: u64, spread: bool, clocks: Clocks) -> Vec<u32> {
    let cpus = CPUS;
    let (sched, mut ps) = machine::<usize>(cpus);
    for i in 0..hogs {
        let at = if spread { i % cpus } else { 0 };
        let _ = sched.start(&mut ps[at], g(i), None);
    }
    let mut running: Vec<Option<&'static G<usize>>> = vec![None; cpus];
    let mut got = vec![0; hogs];
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut order: Vec<usize> = (0..cpus).collect();
    for round in 0..WARM_UP + ROUNDS {
        if round == 0 || clocks == Clocks::Jitter {
            for i in (1..cpus).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                order.swap(i, (random >> 16) as usize % (i + 1));
            }
        }
        for &cpu in &order {
            let p = &mut ps[cpu];
            if let Some(g) = running[cpu].take() {
                let _ = sched.expired(p, g);
            }
            running[cpu] = find(sched, p).map(|run| run.g);
            if let Some(g) = running[cpu].filter(|_| round >= WARM_UP) {
                got[g.kernel] += 1;
            }
        }
    }
    got
}

fn worst(clocks: Clocks) -> u32 {
    let mut worst = 0;
    for hogs in [16, 17] {
        for (seed, spread) in
            (1..=if cfg!(miri) { 1 } else { 20 }).flat_map(|seed| [(seed, false), (seed, true)])
        {
            let got = slices(hogs, seed, spread, clocks);
            assert_eq!(got.iter().sum::<u32>() as usize, CPUS * ROUNDS, "a CPU was idle");
            let (min, max) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            worst = worst.max(max - min);
        }
    }
    worst
}

#[test]
fn hogs_differ_by_at_most_two_slices() {
    assert!(worst(Clocks::Steady) <= 2, "{}", worst(Clocks::Steady));
}

/// Those who run at the same time may come back in any order, so a G can lose
/// or gain up to P - 1 places in each round of the circle.
#[test]
fn hogs_differ_by_few_slices_however_clocks_jitter() {
    assert!(worst(Clocks::Jitter) <= 4, "{}", worst(Clocks::Jitter));
}

/// Slices of `p` until `g` runs, if every G that runs does `stop`.
fn wait(
    sched: &'static Sched<usize>,
    p: &mut P<usize>,
    g: &'static G<usize>,
    mut stop: impl FnMut(&mut P<usize>, &'static G<usize>),
) -> u32 {
    let before = sched.slots()[p.index()].tick();
    loop {
        let run = find(sched, p).expect("lost");
        if std::ptr::eq(run.g, g) {
            return sched.slots()[p.index()].tick() - before;
        }
        stop(p, run.g);
    }
}

#[test]
fn local_g_runs_within_its_place_in_the_ring() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let ahead = 100;
    for i in 0..ahead {
        let _ = sched.start(p, g(i), None);
    }
    let last = g(ahead);
    let _ = sched.start(p, last, None); // run-next …
    let _ = sched.start(p, g(ahead + 1), None); // … and displaced, behind the others
    // The worst company: each that runs makes one more, which runs next, on and
    // on; then its slice is over.
    let waited = wait(sched, p, last, |p, hog| {
        for _ in 0..3 {
            let _ = sched.start(p, g(0), None);
            let child = find(sched, p).expect("run-next");
            sched.exited(p, child.g);
        }
        let _ = sched.start(p, g(0), None);
        let _ = sched.expired(p, hog);
    });
    let bound = ahead as u32 + 2;
    let bound = bound + bound / GLOBAL_CHECK_EVERY + 1;
    assert!(waited <= bound, "waited {waited} slices, promised {bound}");
}

#[test]
fn global_g_runs_within_its_place_times_61() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(0), None);
    let target = find(sched, p).unwrap().g;
    // Yielders that never leave the local ring.
    for i in 1..4 {
        let _ = sched.start(p, g(i), None);
    }
    for ahead in 0..3 {
        let run = find(sched, p).unwrap(); // a G that goes to the global queue first
        assert!(!std::ptr::eq(run.g, target), "{ahead}");
        let _ = sched.expired(p, run.g);
        let _ = sched.start(p, g(10 + ahead), None);
    }
    let ahead = sched.counts().global as u32;
    let _ = sched.expired(p, target);
    let waited = wait(sched, p, target, |p, yielder| {
        let _ = sched.yielded(p, yielder);
    });
    let bound = (ahead + 1) * GLOBAL_CHECK_EVERY;
    assert!(waited <= bound, "waited {waited} slices, promised {bound}");
}
