//! Event sequences that interrupts start: displacing, calls, halting in them.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, expired, find, finish_park, g, machine, names, park, parked, two};
use sched::{Arrival, GLOBAL_BATCH_MAX, RUNQ_CAPACITY, RUNQ_HALF, Slice, Status, Wake};

const DISPLACES: Arrival = Arrival { wake: Wake::Nobody, displace: true };

#[test]
fn arrival_displaces_when_all_are_busy_and_the_displaced_goes_on() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    for i in 10..12 {
        let _ = sched.start(p, g(i), None);
    }
    assert_eq!(sched.ready_from_interrupt(0, device.handle(), |_, _| ()), Wake::Cpu(0));
    assert_eq!(sched.arrive(p), DISPLACES);
    sched.displaced(p, hog);
    assert_eq!(p.len(), 4);
    let first = find(sched, p).unwrap();
    assert_eq!((first.g.kernel, first.slice), (1, Slice::Inherited));
    exit(sched, p, first.g);
    let second = find(sched, p).unwrap();
    assert_eq!((second.g.kernel, second.slice), (0, Slice::Resumed));
    assert_eq!(sched.slots()[0].tick(), 0, "no slice began");
    exit(sched, p, second.g);
    assert_eq!(names(sched, p), [10, 11]);
}

#[test]
fn of_two_that_are_readied_here_the_first_displaces_and_the_second_queues() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let due = [parked(sched, p, 1), parked(sched, p, 2)];
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    let _ = sched.start(p, g(10), None);
    let mut displace = false;
    assert!(sched.ready_here(p, &due[0].handle(), &mut displace) && displace);
    assert!(sched.ready_here(p, &due[1].handle(), &mut displace) && displace);
    assert!(!sched.ready_here(p, &due[0].handle(), &mut displace), "it does not wait");
    assert_eq!(sched.arrive(p), Arrival { wake: Wake::Nobody, displace: false });
    assert!(sched.is_quiet(p), "nothing is left to arrive");
    sched.displaced(p, hog);
    let first = find(sched, p).unwrap();
    assert_eq!((first.g.kernel, first.slice), (1, Slice::Inherited));
    exit(sched, p, first.g);
    assert_eq!(names(sched, p), [0, 10, 2], "the hog first");
}

#[test]
fn what_is_readied_here_goes_to_a_free_p_and_nothing_is_readied_on_an_idle_one() {
    let (sched, mut ps) = machine(2);
    let due = [parked(sched, &mut ps[0], 1), parked(sched, &mut ps[0], 2)];
    let _ = sched.start(&mut ps[0], g(0), None);
    let _ = find(sched, &mut ps[0]).unwrap();
    park(sched, &mut ps[1]);
    let mut displace = false;
    assert!(sched.ready_here(&mut ps[0], &due[0].handle(), &mut displace) && !displace);
    assert!(!sched.is_quiet(&ps[0]), "a wake-up is owed");
    assert_eq!(sched.arrive(&mut ps[0]), Arrival { wake: Wake::Cpu(1), displace: false });
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
    exit(sched, &mut ps[1], due[0]);
    park(sched, &mut ps[1]);
    assert!(!sched.ready_here(&mut ps[1], &due[1].handle(), &mut displace), "it would be stuck");
    assert_eq!(sched.ready_from_interrupt(1, due[1].handle(), |_, _| ()), Wake::Cpu(1));
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 2);
}

#[test]
fn what_belongs_to_another_cpu_is_not_readied_here() {
    let (sched, mut ps) = machine(2);
    let pinned = g(1);
    let _ = sched.start(&mut ps[0], pinned, Some(0));
    assert_eq!(find(sched, &mut ps[0]).unwrap().g.kernel, 1);
    pinned.begin_park();
    let _ = finish_park(sched, &mut ps[0], pinned);
    let mut displace = false;
    assert!(!sched.ready_here(&mut ps[1], &pinned.handle(), &mut displace) && !displace);
    assert_eq!(sched.ready_from_interrupt(1, pinned.handle(), |_, _| ()), Wake::Cpu(0));
}

#[test]
fn arrival_displaces_nobody_while_somebody_is_free() {
    let (sched, mut ps) = machine(2);
    let device = parked(sched, &mut ps[0], 1);
    let _ = sched.start(&mut ps[0], g(0), None);
    let _ = find(sched, &mut ps[0]).unwrap();
    park(sched, &mut ps[1]);
    assert_eq!(sched.ready_from_interrupt(0, device.handle(), |_, _| ()), Wake::Cpu(0));
    assert_eq!(sched.arrive(&mut ps[0]), Arrival { wake: Wake::Cpu(1), displace: false });
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
}

#[test]
fn second_arrival_sends_the_borrower_to_the_tail_and_not_the_displaced() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let devices = [parked(sched, p, 1), parked(sched, p, 2)];
    let _ = sched.start(p, g(0), None);
    let mut running = find(sched, p).unwrap().g;
    let _ = sched.start(p, g(10), None);
    for device in devices {
        let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
        assert_eq!(sched.arrive(p), DISPLACES);
        sched.displaced(p, running);
        running = find(sched, p).unwrap().g;
        assert!(core::ptr::eq(running, device), "not at once");
    }
    exit(sched, p, running);
    assert_eq!(names(sched, p), [0, 10, 1]);
}

#[test]
fn loan_that_is_over_ends_at_the_ring_and_the_displaced_goes_on_at_once() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    let _ = sched.arrive(p);
    sched.displaced(p, hog);
    let borrower = find(sched, p).unwrap().g;
    let _ = sched.start(p, g(2), None); // its run-next
    let _ = sched.expired(p, borrower);
    assert_eq!(sched.counts().global, 0);
    assert_eq!(names(sched, p), [0, 2, 1]);
}

/// The loan is over, not a slice of the borrower: it is no hog. So when it goes to the
/// global queue, by an overflow, other Gs are taken in a batch with it.
#[test]
fn borrower_whose_loan_is_over_is_taken_in_a_batch() {
    let (sched, mut ps) = machine(2);
    let (p, other) = two(&mut ps);
    for n in 0..2 {
        let _ = sched.start(other, g(1000 + n), None);
    }
    for _ in 0..2 {
        let run = find(sched, other).unwrap(); // past its turn of the global queue
        exit(sched, other, run.g);
    }
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    assert_eq!(sched.arrive(p), DISPLACES);
    sched.displaced(p, hog);
    let borrower = find(sched, p).unwrap().g;
    let _ = sched.expired(p, borrower);
    assert!(core::ptr::eq(find(sched, p).unwrap().g, hog), "the displaced G goes on");
    for n in 0..=RUNQ_CAPACITY {
        let _ = sched.start(p, g(10 + n), None);
    }
    assert_eq!(sched.counts().global, RUNQ_HALF + 1, "no overflow");
    assert!(core::ptr::eq(find(sched, other).unwrap().g, borrower), "not the oldest");
    assert_eq!(other.len(), GLOBAL_BATCH_MAX - 1, "the borrower was taken alone");
}

#[test]
fn turn_of_the_global_queue_waits_for_the_displaced() {
    let (sched, mut ps) = machine(2);
    let (p, other) = two(&mut ps);
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g; // inherited: tick 0, a turn of the global queue
    expired(sched, other, g(2));
    assert_eq!((sched.counts().global, sched.slots()[0].tick()), (1, 0));
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    let _ = sched.arrive(p);
    sched.displaced(p, hog);
    assert_eq!(names(sched, p), [1, 0, 2]);
}

#[test]
fn displaced_pinned_g_goes_on_with_its_slice_and_is_not_stolen() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let device = parked(sched, p0, 1);
    let _ = sched.start(p0, g(0), Some(0));
    let pinned = find(sched, p0).unwrap().g;
    let _ = sched.start(p0, g(10), None);
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    assert!(sched.arrive(p0).displace);
    sched.displaced(p0, pinned);
    let borrower = find(sched, p0).unwrap().g;
    assert_eq!(borrower.kernel, 1);
    assert_eq!(names(sched, p1), [10], "stole a pinned G");
    let _ = sched.expired(p0, borrower);
    let run = find(sched, p0).unwrap();
    assert_eq!((run.g.kernel, run.slice), (0, Slice::Resumed));
}

#[test]
fn displaced_g_is_stolen_when_there_is_nothing_else() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let device = parked(sched, p0, 1);
    let _ = sched.start(p0, g(0), None);
    let hog = find(sched, p0).unwrap().g;
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    let _ = sched.arrive(p0);
    sched.displaced(p0, hog);
    let borrower = find(sched, p0).unwrap().g;
    let run = find(sched, p1).unwrap();
    assert_eq!((run.g.kernel, run.slice), (0, Slice::New));
    assert_eq!((sched.slots()[1].steals(), sched.slots()[1].stolen()), (1, 1));
    // No displaced G is left: the borrower is treated as any hog.
    let _ = sched.expired(p0, borrower);
    assert_eq!(sched.counts().global, 1);
}

#[test]
fn g_in_a_call_goes_to_its_old_p_if_that_is_idle_else_as_any_other() {
    let (sched, mut ps) = machine(3);
    let calls: Vec<_> = (0..3)
        .map(|i| {
            let g = parked(sched, &mut ps[2], i);
            g.enter_call(2);
            g
        })
        .collect();
    park(sched, &mut ps[2]);
    let p0 = &mut ps[0];
    assert_eq!(sched.ready(p0, calls[0].handle(), |_, _| ()), Wake::Cpu(2), "its old P is idle");
    assert_eq!(sched.counts().spinning, 0);
    assert_eq!(p0.len(), 0);
    let _ = sched.ready(p0, calls[1].handle(), |_, _| ());
    assert_eq!(p0.len(), 1, "that is taken");
    assert_eq!(find(sched, &mut ps[2]).unwrap().g.kernel, 0);
    assert_eq!(find(sched, &mut ps[0]).unwrap().g.kernel, 1);
    assert_eq!(sched.ready_from_interrupt(1, calls[2].handle(), |_, _| ()), Wake::Cpu(1));
    assert_eq!((sched.counts().global, calls[2].pin()), (0, None));
}

#[test]
fn call_of_a_pinned_g_leaves_it_pinned() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(1), Some(0));
    let pinned = find(sched, p0).unwrap().g;
    pinned.enter_call(0);
    pinned.begin_park();
    let _ = finish_park(sched, p0, pinned);
    assert_eq!(sched.ready(p1, pinned.handle(), |_, _| ()), Wake::Cpu(0));
    pinned.exit_call();
    assert_eq!(pinned.pin(), Some(0));
}

#[test]
fn pinned_g_that_is_readied_elsewhere_is_sent_to_its_cpu_and_stays_pinned() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(1), Some(0));
    let pinned = find(sched, p0).unwrap().g;
    pinned.begin_park();
    let _ = finish_park(sched, p0, pinned);
    assert_eq!(sched.ready(p1, pinned.handle(), |_, _| ()), Wake::Cpu(0));
    assert_eq!(pinned.pin(), Some(0));
}

#[test]
fn whoever_readies_a_g_whose_cpu_halts_for_it_interrupts_that_cpu() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(0), None);
    let g = find(sched, p0).unwrap().g;
    g.begin_park();
    assert!(g.halt_on(0) && g.halt_on(0), "again, after a stray interrupt");
    assert!(!g.is_woken());
    assert_eq!(sched.ready(p1, g.handle(), |_, _| ()), Wake::Cpu(0));
    assert_eq!(sched.ready(p1, g.handle(), |_, _| ()), Wake::Nobody, "told already");
    assert!(g.is_woken() && !g.halt_on(0));
    assert!(g.cancel_park());
    // The next wait is a wait like any other …
    g.begin_park();
    assert_eq!(sched.ready(p1, g.handle(), |_, _| ()), Wake::Nobody);
    assert!(g.cancel_park());
    // … and a G whose CPU halted may leave its CPU after all.
    g.begin_park();
    assert!(g.halt_on(0));
    let _ = finish_park(sched, p0, g);
    assert_eq!(g.status(), Status::Parked);
    assert_eq!(sched.ready(p1, g.handle(), |_, _| ()), Wake::Nobody);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 0);
}
