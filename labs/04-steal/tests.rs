//! Lab 4 on one CPU: how much is stolen, from which P, in which order.

use sched::{G, Next, Owner, P, PSlot, RUNQ_CAPACITY, RunQueue, STEAL_MAX, Sched};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn ring() -> (&'static RunQueue<usize>, Owner<usize>) {
    let queue: &'static RunQueue<usize> = Box::leak(Box::new(RunQueue::new()));
    (queue, queue.own().expect("the first owner"))
}

fn drain(ring: &mut Owner<usize>) -> Vec<usize> {
    std::iter::from_fn(|| ring.pop()).map(|g| g.kernel).collect()
}

#[test]
fn takes_the_older_half_in_order() {
    for len in 1..=RUNQ_CAPACITY {
        let (victim, mut owner) = ring();
        (0..len).for_each(|n| assert!(owner.push(g(n)).is_none()));
        let (_, mut thief) = ring();
        let half = len.div_ceil(2).min(STEAL_MAX);
        let (oldest, stolen) = thief.steal(victim).expect("the victim has Gs");
        assert_eq!(stolen as usize, half, "of {len} Gs the thief took (left), not (right)");
        assert_eq!(oldest.kernel, 0, "the thief runs the oldest G");
        assert_eq!(drain(&mut thief), (1..half).collect::<Vec<_>>(), "in the thief's ring");
        assert_eq!(drain(&mut owner), (half..len).collect::<Vec<_>>(), "left to the victim");
    }
}

#[test]
fn empty_ring_has_nothing_to_steal() {
    let ((victim, _owner), (_, mut thief)) = (ring(), ring());
    assert!(thief.steal(victim).is_none());
    assert!(thief.is_empty(), "nothing was stolen, and the thief's ring is not empty");
}

fn machine(n: usize, seed: u64) -> (&'static Sched<usize>, Vec<P<usize>>) {
    let slots: Vec<PSlot<usize>> = (0..n).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    (sched, (0..n).map(|i| sched.acquire(i, seed + i as u64).expect("new")).collect())
}

/// The G that P 0, which has none, finds.
fn find(sched: &Sched<usize>, ps: &mut [P<usize>]) -> Option<usize> {
    match sched.find_runnable(&mut ps[0]) {
        Next::Run(run) => Some(run.g.kernel),
        Next::Park(_) => None,
    }
}

#[test]
fn first_victim_is_random() {
    let mut seen: Vec<usize> = (1..=64)
        .map(|seed| {
            let (sched, mut ps) = machine(5, seed * 1_000);
            for (i, p) in ps.iter_mut().enumerate().skip(1) {
                // The second takes the run-next slot, the first is in the ring.
                let _ = sched.start(p, g(i), None);
                let _ = sched.start(p, g(10 + i), None);
            }
            find(sched, &mut ps).expect("four Ps have Gs")
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [1, 2, 3, 4], "64 thieves began with these victims only (left)");
}

#[test]
fn ring_before_run_next() {
    for seed in 1..=16 {
        let (sched, mut ps) = machine(4, seed * 1_000);
        let _ = sched.start(&mut ps[1], g(1), None);
        let _ = sched.start(&mut ps[2], g(2), None);
        let _ = sched.start(&mut ps[2], g(3), None);
        let _ = sched.start(&mut ps[3], g(4), None);
        assert_eq!(find(sched, &mut ps), Some(2), "a run-next G was taken, and a ring has one");
    }
}

#[test]
fn run_next_is_taken_in_the_end() {
    let (sched, mut ps) = machine(3, 7);
    let _ = sched.start(&mut ps[2], g(1), None);
    assert_eq!(find(sched, &mut ps), Some(1), "P 2 has a run-next G, and P 0 none");
}
