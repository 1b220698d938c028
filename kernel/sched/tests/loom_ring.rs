//! All interleavings of the local ring: owner against thieves, on 4 slots.
#![cfg(loom)]

use loom::thread;
use sched::{G, Next, Owner, PSlot, RUNQ_CAPACITY, RunQueue, Sched, Status};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn queue() -> &'static RunQueue<usize> {
    Box::leak(Box::new(RunQueue::new()))
}

fn drain(owner: &mut Owner<usize>) -> Vec<usize> {
    let mut got = vec![];
    while let Some(g) = owner.take_next().or_else(|| owner.pop()) {
        got.push(g.kernel);
    }
    got
}

/// Steals once from `victim` into a queue of its own; returns the Gs in order.
fn steals_from(victim: &'static RunQueue<usize>) -> impl FnOnce() -> Vec<usize> {
    move || {
        let mut own = queue().own().expect("new");
        let mut got: Vec<usize> = own.steal(victim).map(|(g, _)| g.kernel).into_iter().collect();
        got.extend(drain(&mut own));
        got
    }
}

fn assert_each_once(mut all: Vec<usize>, n: usize) {
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..n), "lost or doubled: {all:?}");
}

#[test]
fn last_g_goes_to_owner_or_thief_and_not_to_both() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        assert!(owner.push(g(0)).is_none());
        let thief = thread::spawn(steals_from(q));
        let mut all = drain(&mut owner);
        all.extend(thief.join().unwrap());
        assert_each_once(all, 1);
    });
}

#[test]
fn thief_sees_a_slot_only_when_it_is_written() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        let thief = thread::spawn(steals_from(q));
        assert!(owner.push(g(0)).is_none());
        assert!(owner.push(g(1)).is_none());
        let mut all = thief.join().unwrap();
        all.extend(drain(&mut owner));
        assert_each_once(all, 2);
    });
}

#[test]
fn owner_pushes_and_pops_while_stolen_from() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        assert!(owner.push(g(0)).is_none());
        assert!(owner.push(g(1)).is_none());
        let thief = thread::spawn(steals_from(q));
        let mut all: Vec<usize> = owner.pop().map(|g| g.kernel).into_iter().collect();
        assert!(owner.push(g(2)).is_none());
        all.extend(drain(&mut owner));
        let stolen = thief.join().unwrap();
        assert!(stolen.is_sorted(), "out of order: {stolen:?}");
        all.extend(stolen);
        assert_each_once(all, 3);
    });
}

#[test]
fn two_thieves_share_without_doubles() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        for i in 0..3 {
            assert!(owner.push(g(i)).is_none());
        }
        let a = thread::spawn(steals_from(q));
        let b = thread::spawn(steals_from(q));
        let mut all = a.join().unwrap();
        all.extend(b.join().unwrap());
        all.extend(drain(&mut owner));
        assert_each_once(all, 3);
    });
}

#[test]
fn overflow_while_stolen_from_loses_nothing() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        for i in 0..RUNQ_CAPACITY {
            assert!(owner.push(g(i)).is_none());
        }
        let thief = thread::spawn(steals_from(q));
        let mut all = vec![];
        if let Some(mut batch) = owner.push(g(RUNQ_CAPACITY)) {
            while let Some(g) = batch.pop() {
                all.push(g.kernel);
            }
            assert_eq!(all.last(), Some(&RUNQ_CAPACITY));
        }
        all.extend(drain(&mut owner));
        all.extend(thief.join().unwrap());
        assert_each_once(all, RUNQ_CAPACITY + 1);
    });
}

#[test]
fn slots_are_reused_only_after_the_thief_has_read_them() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        for i in 0..RUNQ_CAPACITY {
            assert!(owner.push(g(i)).is_none());
        }
        let thief = thread::spawn(steals_from(q));
        // Make room and fill it again: the ring wraps under the thief.
        let mut all: Vec<usize> = owner.pop().map(|g| g.kernel).into_iter().collect();
        assert!(owner.push(g(RUNQ_CAPACITY)).is_none());
        all.extend(drain(&mut owner));
        all.extend(thief.join().unwrap());
        assert_each_once(all, RUNQ_CAPACITY + 1);
    });
}

#[test]
fn run_next_goes_to_one() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        assert!(owner.swap_next(g(0)).is_none());
        let thief = thread::spawn(move || q.take_front().map(|g| g.kernel).into_iter().collect());
        // Kicks 0 to the ring, if it is still there.
        assert!(owner.swap_next(g(1)).is_none_or(|old| owner.push(old).is_none()));
        let mut all: Vec<usize> = drain(&mut owner);
        let stolen: Vec<usize> = thief.join().unwrap();
        all.extend(stolen);
        assert_each_once(all, 2);
    });
}

/// The owner fills a later slot before it empties an earlier one, as it does when a G
/// yields to the run-next G, or is displaced by it.
#[test]
fn queue_that_is_never_empty_is_never_seen_empty() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        assert!(owner.swap_next(g(0)).is_none());
        let thief = thread::spawn(move || q.is_empty());
        owner.displace(g(1));
        assert!(owner.take_next().is_some());
        assert!(owner.push(g(2)).is_none());
        assert!(owner.take_displaced().is_some());
        assert!(!thief.join().unwrap(), "a G was there all the time");
    });
}

#[test]
fn displaced_g_goes_to_one() {
    loom::model(|| {
        let q = queue();
        let mut owner = q.own().expect("new");
        owner.displace(g(0));
        let thief = thread::spawn(move || q.take_front().map(|g| g.kernel).into_iter().collect());
        let mut all: Vec<usize> = owner.take_displaced().map(|g| g.kernel).into_iter().collect();
        owner.displace(g(1));
        all.extend(owner.take_displaced().map(|g| g.kernel));
        let stolen: Vec<usize> = thief.join().unwrap();
        all.extend(stolen);
        assert_each_once(all, 2);
    });
}

/// A G yields while a thief is at work: both are in the ring once, or with one of the two, and the
/// yielder is never taken before it is runnable.
#[test]
fn rotation_while_stolen_from_loses_nothing() {
    for waiting in 1..=2 {
        loom::model(move || {
            let slots: &'static Vec<PSlot<usize>> = Box::leak(Box::new(vec![PSlot::new()]));
            let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(slots)));
            let mut p = sched.acquire(0, 7).expect("new");
            for i in 0..waiting {
                let _ = sched.start(&mut p, g(i), None);
            }
            let yields = g(waiting);
            let _ = sched.start(&mut p, yields, None);
            let Next::Run(run) = sched.find_runnable(&mut p) else { panic!("no G") };
            assert!(std::ptr::eq(run.g, yields), "run-next");
            let thief = thread::spawn(move || {
                let mut own = queue().own().expect("new");
                let oldest = own.steal(sched.slots()[0].ring()).map(|(g, _)| g);
                let stolen = oldest.into_iter().chain(std::iter::from_fn(|| own.pop()));
                stolen
                    .inspect(|g| assert_eq!(g.status(), Status::Runnable))
                    .map(|g| g.kernel)
                    .collect::<Vec<_>>()
            });
            let mut all = match sched.rotate(&mut p, yields) {
                Ok(next) => vec![next.kernel],
                Err(rest) => match sched.rotate_slow(&mut p, yields, rest) {
                    Next::Run(run) => vec![run.g.kernel],
                    Next::Park(_) => vec![],
                },
            };
            all.extend(thief.join().unwrap());
            while let Next::Run(run) = sched.find_runnable(&mut p) {
                all.push(run.g.kernel);
            }
            assert_each_once(all, waiting + 1);
        });
    }
}
