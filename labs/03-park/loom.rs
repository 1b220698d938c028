//! Lab 3, all interleavings of one submit and one park.
#![cfg(loom)]

use loom::thread;
use sched::{G, Next, P, PSlot, Sched, Wake};

fn machine() -> (&'static Sched<usize>, P<usize>, P<usize>) {
    let slots: Vec<PSlot<usize>> = (0..2).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    let p = |i| sched.acquire(i, 7).expect("new");
    (sched, p(0), p(1))
}

fn find(sched: &'static Sched<usize>, p: &mut P<usize>) -> (Option<usize>, Wake) {
    match sched.find_runnable(p) {
        Next::Run(run) => (Some(run.g.kernel), run.wake),
        Next::Park(wake) => (None, wake),
    }
}

/// P 0 submits a G and goes on; P 1 searches and parks. Then the interrupts arrive. The Gs that
/// ran, and the spinning Ps that are left.
fn run() -> (Vec<usize>, usize) {
    let (sched, mut p0, mut p1) = machine();
    let other = thread::spawn(move || {
        let found = find(sched, &mut p1);
        (p1, found)
    });
    let wake = sched.start(&mut p0, Box::leak(Box::new(G::new(1))), None);
    let (p1, (found, wake1)) = other.join().unwrap();
    let (mut ps, mut wakes) = ([p0, p1], vec![wake, wake1]);
    let mut ran: Vec<usize> = found.into_iter().collect();
    while let Some(wake) = wakes.pop() {
        if let Wake::Cpu(cpu) = wake {
            let (found, wake) = find(sched, &mut ps[cpu]);
            ran.extend(found);
            wakes.push(wake);
        }
    }
    (ran, sched.counts().spinning)
}

fn model(check: impl Fn(Vec<usize>, usize) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (ran, spinning) = run();
        check(ran, spinning);
    });
}

#[test]
fn submit_against_park() {
    model(|ran, _| {
        assert_eq!(ran, [1], "CPU 1 sleeps while the G waits (left: the Gs that it ran)")
    });
}

#[test]
fn spinning_count_returns_to_zero() {
    model(|_, spinning| assert_eq!(spinning, 0, "Ps are counted as spinning, and none spins"));
}
