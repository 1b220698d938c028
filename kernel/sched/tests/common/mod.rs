//! What the tests of decisions share: a scheduler that lasts for ever.
#![allow(dead_code, reason = "each test file uses a part of it")]

use sched::{G, List, Next, P, PSlot, Run, Sched};
use std::any::Any;
use std::sync::Mutex;

/// Everything that lasts for ever, so that Miri does not take it for leaked.
static KEPT: Mutex<Vec<&'static (dyn Any + Sync)>> = Mutex::new(Vec::new());

fn keep<T: Any + Sync>(value: T) -> &'static T {
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(kept);
    kept
}

/// A scheduler with `n` Ps, all acquired.
pub fn machine<K: Sync + 'static>(n: usize) -> (&'static Sched<K>, Vec<P<K>>) {
    let slots: &'static Vec<PSlot<K>> = keep((0..n).map(|_| PSlot::new()).collect());
    let sched = keep(Sched::new(slots));
    let ps = (0..n).map(|i| sched.acquire(i, 7).expect("acquired twice")).collect();
    (sched, ps)
}

/// A new G.
pub fn g<K: Sync + 'static>(kernel: K) -> &'static G<K> {
    keep(G::new(kernel))
}

/// What the P runs next, or None if it parks. No poller.
pub fn find<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>) -> Option<Run<K>> {
    match sched.find_runnable(p, List::new) {
        Next::Run(run) => Some(run),
        Next::Park(_) => None,
    }
}
