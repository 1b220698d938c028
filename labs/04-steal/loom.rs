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

/// The victim only pushes, as soon as there is room: no other CPU moves its `head`. The thief is
/// the model's first thread: with the victim there, loom 0.7.2 ends after one interleaving.
#[test]
fn slots_are_read_before_they_are_reused() {
    loom::model(|| {
        let (victim, mut owner) = ring();
        (0..RUNQ_CAPACITY).for_each(|n| assert!(owner.try_push(g(n))));
        let (_, mut own) = ring();
        let pusher = thread::spawn(move || {
            let pushed = (0..2).take_while(|n| owner.try_push(g(RUNQ_CAPACITY + n))).count();
            (owner, pushed)
        });
        let mut all: Vec<usize> = own.steal(victim).map(|(g, _)| g.kernel).into_iter().collect();
        all.extend(drain(&mut own));
        let (mut owner, pushed) = pusher.join().unwrap();
        all.extend(drain(&mut owner));
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..RUNQ_CAPACITY + pushed), "lost or doubled: {all:?}");
    });
}
