//! Fairness in slices, and the bounds that the essay promises.
//!
//! A machine without races: all CPUs run for a slice, then stop one after the other in
//! an order that a seed gives: the same every time, as timers of one period have it, or
//! a new one every time, as on a machine whose clocks jitter by a whole slice. The
//! tests count slices, not time.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, expired, find, g, machine, parked};
use sched::{G, GLOBAL_CHECK_EVERY, P, RUNQ_CAPACITY, Sched, Slice};

#[derive(Clone, Copy, PartialEq)]
enum Clocks {
    Steady,
    Jitter,
    /// The CPU that runs this hog stops last.
    Against(usize),
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
        if let Clocks::Against(hog) = clocks {
            order.sort_by_key(|&cpu| running[cpu].is_some_and(|g| g.kernel == hog));
        }
        for &cpu in &order {
            let p = &mut ps[cpu];
            let expired = running[cpu].take();
            running[cpu] = expired.and_then(|g| sched.expire(p, g));
            if running[cpu].is_none() {
                expired.map(|g| sched.expired(p, g));
                running[cpu] = find(sched, p).map(|run| run.g);
            }
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

/// A hog that stops after the others of its round is overtaken by them: a random walk
/// of places in the circle, if that is by chance.
#[test]
fn hogs_differ_by_few_slices_however_clocks_jitter() {
    assert!(worst(Clocks::Jitter) <= 4, "{}", worst(Clocks::Jitter));
}

/// The worst order of stops for one hog: it is always the last of its round, and P - 1
/// hogs overtake it in each round of the circle.
#[test]
fn hog_that_always_stops_last_still_has_its_share() {
    for hogs in [16, 17] {
        let got = slices(hogs, 1, true, Clocks::Against(0));
        let fair = (CPUS * ROUNDS) as f64 / hogs as f64;
        let promised = fair * hogs as f64 / (hogs + CPUS - 1) as f64;
        assert!(f64::from(got[0]) >= promised - 1.0, "{got:?}, promised {promised}");
    }
}

/// Slices that begin on `p` until that of `g` does, itself counted, if every G that
/// runs does `stop`.
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

/// The wait depends on the slice count at its start: all counts that matter.
fn ticks() -> impl Iterator<Item = u32> {
    (0..GLOBAL_CHECK_EVERY * 4).step_by(if cfg!(miri) { 50 } else { 1 })
}

/// A P that has begun `tick` slices, and the G that it runs.
fn at_tick(tick: u32) -> (&'static Sched<usize>, P<usize>, &'static G<usize>) {
    let (sched, mut ps) = machine(1);
    let mut p = ps.pop().expect("one");
    let _ = sched.start(&mut p, g(0), None);
    let mut run = find(sched, &mut p).expect("just started");
    while sched.slots()[0].tick() < tick {
        sched.yielded(&mut p, run.g);
        run = find(sched, &mut p).expect("yielded");
    }
    (sched, p, run.g)
}

/// The worst neighbour in a ring: each G that runs makes others, which run next, until
/// its slice is over. So the global queue is never empty either.
fn hog_with_children(sched: &'static Sched<usize>, p: &mut P<usize>, hog: &'static G<usize>) {
    for _ in 0..3 {
        let _ = sched.start(p, g(0), None);
        let child = find(sched, p).expect("run-next");
        exit(sched, p, child.g);
    }
    if p.len() < RUNQ_CAPACITY {
        let _ = sched.start(p, g(0), None); // not more than the ring holds
    }
    let _ = sched.expired(p, hog);
}

/// The longest wait of a G with `ahead` others before it in the ring.
fn worst_local(ahead: usize, pinned_hog: bool) -> u32 {
    let wait_at = |tick| {
        let (sched, mut p, running) = at_tick(tick);
        for i in 0..ahead {
            let _ = sched.start(&mut p, g(i), None);
        }
        let last = g(ahead);
        let _ = sched.start(&mut p, last, None);
        let _ = sched.start(&mut p, g(0), None); // last to the ring; and this …
        let _ = sched.expired(&mut p, running); // … behind it, this to the global queue
        if pinned_hog {
            let _ = sched.start(&mut p, g(0), Some(0));
        }
        wait(sched, &mut p, last, |p, g| match g.pin() {
            Some(_) => drop(sched.expired(p, g)),
            None => hog_with_children(sched, p, g),
        })
    };
    ticks().map(wait_at).max().expect("some")
}

#[test]
fn local_g_runs_within_its_place_in_the_ring() {
    for ahead in [0, 1, 58, 59, 60, 100] {
        let n = ahead as u32 + 1;
        let promised = n + n.div_ceil(GLOBAL_CHECK_EVERY - 1);
        let worst = worst_local(ahead, false);
        assert!(worst <= promised, "{ahead} ahead: {worst} slices, promised {promised}");
        assert!(worst == promised || cfg!(miri), "a promise of {promised} that {worst} keeps");
        let worst = worst_local(ahead, true);
        assert!(worst <= 4 * promised, "{ahead} ahead, pinned: {worst} slices");
    }
}

#[test]
fn global_g_runs_within_its_place_times_61() {
    for ahead in 0..4 {
        let wait_at = |tick| {
            let (sched, mut p, running) = at_tick(tick);
            // Two that yield: one alone would let the global queue through at once.
            for i in 0..2 {
                let _ = sched.start(&mut p, g(i), None);
            }
            let yields = find(sched, &mut p).expect("just started");
            // Each ends as soon as it runs.
            (0..ahead).for_each(|i| expired(sched, &mut p, g(SHORT + i)));
            let _ = sched.expired(&mut p, running);
            sched.yielded(&mut p, yields.g);
            wait(sched, &mut p, running, |p, g| match g.kernel {
                SHORT.. => exit(sched, p, g),
                _ => sched.yielded(p, g),
            })
        };
        let worst = ticks().map(wait_at).max().expect("some");
        let promised = (ahead as u32 + 1) * GLOBAL_CHECK_EVERY;
        assert!(worst <= promised, "{ahead} ahead: {worst} slices, promised {promised}");
        assert!(worst == promised || cfg!(miri), "a promise of {promised} that {worst} keeps");
    }
}

/// The names of Gs that end when they run begin here.
const SHORT: usize = 1000;

/// A kernel that lends half of each slice, and devices that interrupt in every unit of
/// time: no G in the ring waits for more than half as long again.
#[test]
fn loans_make_no_slice_longer_than_half_as_long_again() {
    const SLICE: u32 = 10;
    const DEVICE: usize = 99;
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let mut devices: Vec<_> = (0..1000).map(|_| parked(sched, p, DEVICE)).collect();
    let ahead = 20;
    for i in 0..ahead {
        let _ = sched.start(p, g(i), None);
    }
    let last = g(ahead);
    let _ = sched.start(p, last, None);
    let _ = sched.start(p, g(0), None);
    let (mut time, mut used, mut lent, mut resumed) = (0, 0, 0, 0);
    loop {
        let run = find(sched, p).expect("lost");
        match run.slice {
            Slice::New => (used, lent) = (0, 0),
            Slice::Resumed => resumed += 1,
            Slice::Inherited | Slice::Lent => {}
        }
        if std::ptr::eq(run.g, last) {
            break;
        }
        // It runs for a unit, or until it is displaced, or its slice is over.
        time += 1;
        if run.g.kernel == DEVICE {
            lent += 1;
            exit(sched, p, run.g);
            continue;
        }
        used += 1;
        let device = devices.pop().expect("enough");
        let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
        if sched.arrive(p).displace && lent < SLICE / 2 && used < SLICE {
            sched.displaced(p, run.g);
        } else {
            time += SLICE - used;
            let _ = sched.expired(p, run.g);
        }
    }
    let slices = ahead as u32 + 2; // the one under way, and a turn of the global queue
    assert_eq!(resumed, slices * SLICE / 2, "not displaced");
    assert!(time <= slices * (SLICE + SLICE / 2), "{time}");
}
