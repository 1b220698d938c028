//! Lab 2, all interleavings: models that need one region each. The others are in `loom_ring`.
#![cfg(loom)]

use loom::thread;
use sched::{G, Owner, RunQueue};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn queue() -> &'static RunQueue<usize> {
    Box::leak(Box::new(RunQueue::new()))
}

fn drain(ring: &mut Owner<usize>) -> Vec<usize> {
    std::iter::from_fn(|| ring.pop()).map(|g| g.kernel).collect()
}

/// Fills the ring; how many Gs fit.
fn fill(ring: &mut Owner<usize>) -> usize {
    (0..).take_while(|&n| ring.try_push(g(n))).count()
}

fn thief(victim: &'static RunQueue<usize>) -> impl FnOnce() -> Vec<usize> {
    move || {
        let mut own = queue().own().expect("the first owner");
        let mut got: Vec<usize> = own.steal(victim).map(|(g, _)| g.kernel).into_iter().collect();
        got.extend(drain(&mut own));
        got
    }
}

fn assert_each_once(mut all: Vec<usize>, n: usize) {
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..n), "each of 0 to {} once, but there are {all:?}", n - 1);
}

/// The owner pops only when the thief has ended, so this is about `take_half`.
#[test]
fn overflow_while_stolen_from_loses_nothing() {
    loom::model(|| {
        let queue = queue();
        let mut ring = queue.own().expect("the first owner");
        let n = fill(&mut ring);
        let thief = thread::spawn(thief(queue));
        let mut all = vec![];
        if let Some(mut batch) = ring.push(g(n)) {
            all.extend(std::iter::from_fn(|| batch.pop()).map(|g| g.kernel));
        }
        all.extend(thief.join().unwrap());
        all.extend(drain(&mut ring));
        assert_each_once(all, n + 1);
    });
}

/// The ring wraps under the thief.
#[test]
fn slots_are_reused_only_after_the_thief_has_read_them() {
    loom::model(|| {
        let queue = queue();
        let mut ring = queue.own().expect("the first owner");
        let n = fill(&mut ring);
        let thief = thread::spawn(thief(queue));
        let mut all: Vec<usize> = ring.pop().map(|g| g.kernel).into_iter().collect();
        assert!(ring.try_push(g(n)), "no room after a pop");
        all.extend(drain(&mut ring));
        all.extend(thief.join().unwrap());
        assert_each_once(all, n + 1);
    });
}
