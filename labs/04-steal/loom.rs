//! Lab 4, all interleavings: the victim reuses slots. Other models are in `loom_ring`.
#![cfg(loom)]

use loom::thread;
use sched::{G, Owner, RUNQ_CAPACITY, RunQueue};

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

/// The victim only pushes, as soon as there is room: no other CPU moves its `head`.
#[test]
fn slots_are_read_before_they_are_reused() {
    loom::model(|| {
        let (victim, mut owner) = ring();
        (0..RUNQ_CAPACITY).for_each(|n| assert!(owner.try_push(g(n))));
        let thief = thread::spawn(move || {
            let (_, mut own) = ring();
            let mut got: Vec<usize> =
                own.steal(victim).map(|(g, _)| g.kernel).into_iter().collect();
            got.extend(drain(&mut own));
            got
        });
        let pushed = (0..2).take_while(|n| owner.try_push(g(RUNQ_CAPACITY + n))).count();
        let mut all = thief.join().unwrap();
        all.extend(drain(&mut owner));
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..RUNQ_CAPACITY + pushed), "lost or doubled: {all:?}");
    });
}
