//! The variant of lab 3.

use sched::{G, Next, P, PSlot, Sched, Wake};

#[test]
fn highest_idle_p_is_woken() {
    let slots: Vec<PSlot<()>> = (0..5).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<()> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let mut ps: Vec<P<()>> = (0..5).map(|i| sched.acquire(i, 7).expect("new")).collect();
    for p in &mut ps[1..] {
        assert!(matches!(sched.find_runnable(p), Next::Park(_)));
    }
    let g: &'static G<()> = Box::leak(Box::new(G::new(())));
    assert_eq!(sched.start(&mut ps[0], g, None), Wake::Cpu(4), "CPUs 1 to 4 halt");
}
