//! Lab 3 on one CPU: which CPU is woken, and how many.

use sched::{G, Next, P, PSlot, Sched, Wake};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn machine(n: usize) -> (&'static Sched<usize>, Vec<P<usize>>) {
    let slots: Vec<PSlot<usize>> = (0..n).map(|_| PSlot::new()).collect();
    let sched: &'static Sched<usize> = Box::leak(Box::new(Sched::new(Vec::leak(slots))));
    (sched, (0..n).map(|i| sched.acquire(i, 7).expect("new")).collect())
}

/// Four CPUs, of which 1, 2 and 3 halt.
fn three_halt() -> (&'static Sched<usize>, Vec<P<usize>>) {
    let (sched, mut ps) = machine(4);
    for p in &mut ps[1..] {
        assert!(matches!(sched.find_runnable(p), Next::Park(_)), "there is no G to find");
    }
    assert_eq!(sched.counts().spinning, 0, "a P that halts does not spin");
    (sched, ps)
}

#[test]
fn burst_wakes_one_cpu() {
    let (sched, mut ps) = three_halt();
    let first = sched.start(&mut ps[0], g(1), None);
    let Wake::Cpu(woken) = first else { panic!("three CPUs halt, and none was woken for a G") };
    for n in 2..6 {
        let wake = sched.start(&mut ps[0], g(n), None);
        assert_eq!(wake, Wake::Nobody, "G {n}: CPU {woken} is on its way already");
    }
    assert_eq!(sched.counts().spinning, 1, "the woken P counts as spinning");
    let Next::Run(run) = sched.find_runnable(&mut ps[woken]) else {
        panic!("the woken CPU finds no G")
    };
    assert!(
        matches!(run.wake, Wake::Cpu(next) if next != woken),
        "it found a G: it wakes the next"
    );
}

#[test]
fn without_an_idle_p_none_is_woken() {
    let (sched, mut ps) = machine(2);
    assert_eq!(sched.start(&mut ps[0], g(1), None), Wake::Nobody, "no CPU halts");
    assert_eq!(sched.counts().spinning, 0);
}

#[test]
fn woken_p_is_busy() {
    let (sched, mut ps) = three_halt();
    let Wake::Cpu(woken) = sched.start(&mut ps[0], g(1), None) else { panic!("none was woken") };
    assert!(!sched.is_idle(woken), "the waker clears the idle bit");
    let Next::Run(run) = sched.find_runnable(&mut ps[woken]) else { panic!("no G was found") };
    assert!(sched.exited(&mut ps[woken], run.g));
    assert!(matches!(sched.find_runnable(&mut ps[woken]), Next::Park(_)), "no G is left");
    assert!(sched.is_idle(woken), "it halts again");
}
