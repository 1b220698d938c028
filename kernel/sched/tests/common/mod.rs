//! What the tests of decisions share: a scheduler that lasts for ever.
#![allow(dead_code, reason = "each test file uses a part of it")]

use sched::{G, List, Next, P, PSlot, Run, Sched};

/// A scheduler with `n` Ps, all acquired.
pub fn machine<K: Sync + 'static>(n: usize) -> (&'static Sched<K>, Vec<P<K>>) {
    let slots: Vec<PSlot<K>> = (0..n).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<K> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let ps = (0..n).map(|i| sched.acquire(i, 7).expect("acquired twice")).collect();
    (sched, ps)
}

/// A new G.
pub fn g<K: Sync + 'static>(kernel: K) -> &'static G<K> {
    Box::leak(Box::new(G::new(kernel)))
}

/// What the P runs next, or None if it parks. No poller.
pub fn find<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>) -> Option<Run<K>> {
    match sched.find_runnable(p, List::new) {
        Next::Run(run) => Some(run),
        Next::Park(_) => None,
    }
}
