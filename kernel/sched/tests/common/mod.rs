//! Helpers of the tests of decisions: a scheduler that lasts for ever.
#![allow(dead_code, reason = "each test file uses a part of it")]

use sched::{G, Next, P, PSlot, Run, Sched, Wake};
use std::any::Any;
use std::sync::Mutex;

/// All leaked values, so that Miri does not report them.
static KEPT: Mutex<Vec<&'static (dyn Any + Sync)>> = Mutex::new(Vec::new());

fn keep<T: Any + Sync>(value: T) -> &'static T {
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap().push(kept);
    kept
}

/// A scheduler with `n` Ps, all acquired.
pub fn machine<K: Sync + 'static>(n: usize) -> (&'static Sched<K>, Vec<P<K>>) {
    seeded(n, 7)
}

/// The same, with the seed of the Ps' generators.
pub fn seeded<K: Sync + 'static>(n: usize, seed: u64) -> (&'static Sched<K>, Vec<P<K>>) {
    let slots: &'static Vec<PSlot<K>> = keep((0..n).map(|_| PSlot::new()).collect());
    let sched = keep(Sched::new(slots));
    let ps = (0..n).map(|i| sched.acquire(i, seed).expect("acquired twice")).collect();
    (sched, ps)
}

/// A new G.
pub fn g<K: Sync + 'static>(kernel: K) -> &'static G<K> {
    keep(G::new(kernel))
}

/// The G that the P runs next, or None if it parks.
pub fn find<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>) -> Option<Run<K>> {
    match sched.find_runnable(p) {
        Next::Run(run) => Some(run),
        Next::Park(_) => None,
    }
}

/// The G that ran has ended.
pub fn exit<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>, g: &'static G<K>) {
    if !sched.exited(p, g) {
        g.exit();
        sched.keep_dead(p, g);
    }
}

/// The G that ran is off its stack, after [`G::begin_park`].
pub fn finish_park<K: Sync + 'static>(
    sched: &'static Sched<K>,
    p: &mut P<K>,
    g: &'static G<K>,
) -> Wake {
    if g.finish_park() { Wake::Nobody } else { sched.put_back(p, g) }
}

/// Runs the P until it parks, each G to its end; returns the Gs in order.
pub fn names<K: Copy + Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>) -> Vec<K> {
    std::iter::from_fn(|| {
        let run = find(sched, p)?;
        exit(sched, p, run.g);
        Some(run.g.kernel)
    })
    .collect()
}

/// Parks the P, which must have nothing to do.
pub fn park<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>) {
    assert!(find(sched, p).is_none(), "P {} has work", p.index());
}

/// A G that ran on `p`, where no other G waits, and has parked.
pub fn parked<K: Sync + 'static>(
    sched: &'static Sched<K>,
    p: &mut P<K>,
    kernel: K,
) -> &'static G<K> {
    let g = g(kernel);
    let _ = sched.start(p, g, None);
    let run = find(sched, p).expect("just started");
    assert!(std::ptr::eq(run.g, g), "another G waits");
    g.begin_park();
    let _ = finish_park(sched, p, g);
    g
}

/// The first two Ps.
pub fn two<K: 'static>(ps: &mut [P<K>]) -> (&mut P<K>, &mut P<K>) {
    let [p0, p1, ..] = ps else { panic!("one P") };
    (p0, p1)
}

/// Starts `g` on that P, and ends its slice: it is in the global queue then.
pub fn expired<K: Sync + 'static>(sched: &'static Sched<K>, p: &mut P<K>, g: &'static G<K>) {
    let _ = sched.start(p, g, None);
    let run = find(sched, p).expect("just started");
    let _ = sched.expired(p, run.g);
}
