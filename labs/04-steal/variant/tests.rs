//! The variant of lab 4.

use sched::{G, RUNQ_CAPACITY, RunQueue, STEAL_MAX};

fn queue() -> &'static RunQueue<usize> {
    Box::leak(Box::new(RunQueue::new()))
}

#[test]
fn takes_the_oldest_third() {
    for len in 1..=RUNQ_CAPACITY {
        let (victim, thief) = (queue(), queue());
        let (mut owner, mut thief) = (victim.own().expect("new"), thief.own().expect("new"));
        for n in 0..len {
            assert!(owner.try_push(Box::leak(Box::new(G::new(n)))));
        }
        let third = len.div_ceil(3).min(STEAL_MAX);
        let (oldest, stolen) = thief.steal(victim).expect("the victim has Gs");
        assert_eq!((oldest.kernel, stolen as usize), (0, third), "of {len} Gs");
        let rest: Vec<usize> = std::iter::from_fn(|| thief.pop()).map(|g| g.kernel).collect();
        assert_eq!(rest, (1..third).collect::<Vec<_>>());
    }
}
