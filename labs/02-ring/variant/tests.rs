//! The variant of lab 2.

use sched::{G, Owner, RUNQ_CAPACITY, RunQueue};

const QUARTER: usize = RUNQ_CAPACITY / 4;

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn overflow() -> (Owner<usize>, Vec<usize>) {
    let queue: &'static RunQueue<usize> = Box::leak(Box::new(RunQueue::new()));
    let mut ring = queue.own().expect("the first owner");
    for n in 0..RUNQ_CAPACITY {
        assert!(ring.push(g(n)).is_none(), "the ring overflows at {n} of {RUNQ_CAPACITY}");
    }
    let mut batch = ring.push(g(RUNQ_CAPACITY)).expect("a full ring overflows");
    let batch = std::iter::from_fn(|| batch.pop()).map(|g| g.kernel).collect();
    (ring, batch)
}

#[test]
fn overflow_gives_the_oldest_quarter() {
    let (_, batch) = overflow();
    let wanted: Vec<usize> = (0..QUARTER).chain([RUNQ_CAPACITY]).collect();
    assert_eq!(batch, wanted, "the batch (left) is not the oldest quarter and the new G (right)");
}

#[test]
fn overflow_leaves_the_rest() {
    let (mut ring, _) = overflow();
    let left: Vec<usize> = std::iter::from_fn(|| ring.pop()).map(|g| g.kernel).collect();
    assert_eq!(left, (QUARTER..RUNQ_CAPACITY).collect::<Vec<_>>());
}
