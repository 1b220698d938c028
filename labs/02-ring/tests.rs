//! Lab 2 on one CPU: sequences of push and pop.

use sched::{G, Owner, RUNQ_CAPACITY, RUNQ_HALF, RunQueue};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn ring() -> Owner<usize> {
    let queue: &'static RunQueue<usize> = Box::leak(Box::new(RunQueue::new()));
    queue.own().expect("the first owner")
}

fn drain(ring: &mut Owner<usize>) -> Vec<usize> {
    std::iter::from_fn(|| ring.pop()).map(|g| g.kernel).collect()
}

#[test]
fn first_in_first_out() {
    let mut ring = ring();
    let (mut pushed, mut popped) = (0, 0);
    // Rounds of different lengths, so that the ring wraps at every place.
    for round in 0..100 {
        for _ in 0..1 + round % 5 {
            assert!(ring.try_push(g(pushed)), "push refused G {pushed} though there is room");
            pushed += 1;
        }
        while popped < pushed {
            let got = ring.pop().map(|g| g.kernel);
            assert_eq!(
                got,
                Some(popped),
                "popped the wrong G (left) instead of the oldest (right)"
            );
            popped += 1;
        }
        assert!(ring.is_empty(), "the ring is not empty after its last G was popped");
    }
}

#[test]
fn every_place_is_used() {
    let mut ring = ring();
    for round in 0..3 {
        for n in 0..RUNQ_CAPACITY {
            assert!(
                ring.try_push(g(n)),
                "round {round}: push refused the {n}th of {RUNQ_CAPACITY} Gs"
            );
        }
        assert!(!ring.try_push(g(99)), "push accepted a G more than the ring has places");
        assert_eq!(ring.len(), RUNQ_CAPACITY);
        assert_eq!(drain(&mut ring), (0..RUNQ_CAPACITY).collect::<Vec<_>>());
    }
}

#[test]
fn empty_ring_has_no_g() {
    let mut ring = ring();
    assert!(ring.pop().is_none(), "a new ring has no G");
    assert!(ring.try_push(g(1)));
    assert_eq!(ring.pop().map(|g| g.kernel), Some(1));
    assert!(ring.pop().is_none(), "the only G was popped");
}

/// Pushes 0, 1, … until the ring overflows; the Gs that did not fit.
fn overflow(ring: &mut Owner<usize>) -> Vec<usize> {
    for n in 0..=RUNQ_CAPACITY {
        if let Some(mut batch) = ring.push(g(n)) {
            return std::iter::from_fn(|| batch.pop()).map(|g| g.kernel).collect();
        }
    }
    panic!("{} Gs were pushed into {RUNQ_CAPACITY} places, and no overflow came", RUNQ_CAPACITY + 1)
}

#[test]
fn overflow_gives_the_older_half_in_order() {
    let mut ring = ring();
    for _ in 0..3 {
        let batch = overflow(&mut ring);
        let (new, old) = batch.split_last().expect("a batch is not empty");
        assert!(
            old.iter().copied().eq(0..RUNQ_HALF),
            "the batch should be the Gs 0 to {}, oldest first, but is {old:?}",
            RUNQ_HALF - 1
        );
        assert!(*new >= RUNQ_HALF, "the new G comes last");
        let _ = drain(&mut ring);
    }
}

#[test]
fn overflow_leaves_the_newer_half() {
    let mut ring = ring();
    let batch = overflow(&mut ring);
    let new = *batch.last().expect("a batch is not empty");
    let left = drain(&mut ring);
    assert!(left.iter().copied().eq(RUNQ_HALF..new), "{left:?} are left of 0 to {}", new - 1);
}
