//! Event sequences that interrupts start: displacing, calls, halting in them.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{find, g, machine, names, park, parked, two};
use sched::{Arrival, Home, RUNQ_CAPACITY, RUNQ_HALF, Slice, Status, Stop, Wake};

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
    assert_eq!(sched.stopped(p, hog, Stop::Displace), Wake::Nobody);
    assert_eq!(p.len(), 4);
    let first = find(sched, p).unwrap();
    assert_eq!((first.g.kernel, first.slice), (1, Slice::Inherited));
    let _ = sched.stopped(p, first.g, Stop::Exit);
    let second = find(sched, p).unwrap();
    assert_eq!((second.g.kernel, second.slice), (0, Slice::Resumed));
    assert_eq!(sched.slots()[0].tick(), 0, "no slice began");
    let _ = sched.stopped(p, second.g, Stop::Exit);
    assert_eq!(names(sched, p), [10, 11]);
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
        let _ = sched.stopped(p, running, Stop::Displace);
        running = find(sched, p).unwrap().g;
        assert!(core::ptr::eq(running, device), "not at once");
    }
    let _ = sched.stopped(p, running, Stop::Exit);
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
    let _ = sched.stopped(p, hog, Stop::Displace);
    let borrower = find(sched, p).unwrap().g;
    let _ = sched.start(p, g(2), None); // its run-next
    let _ = sched.stopped(p, borrower, Stop::Expire);
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
        let _ = sched.stopped(other, run.g, Stop::Exit);
    }
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    assert_eq!(sched.arrive(p), DISPLACES);
    let _ = sched.stopped(p, hog, Stop::Displace);
    let borrower = find(sched, p).unwrap().g;
    let _ = sched.stopped(p, borrower, Stop::Expire);
    assert!(core::ptr::eq(find(sched, p).unwrap().g, hog), "the displaced G goes on");
    for n in 0..=RUNQ_CAPACITY {
        let _ = sched.start(p, g(10 + n), None);
    }
    assert_eq!(sched.counts().global, RUNQ_HALF + 1, "no overflow");
    assert!(core::ptr::eq(find(sched, other).unwrap().g, borrower), "not the oldest");
    assert_eq!(other.len(), RUNQ_HALF / 2, "the borrower was taken alone");
}

#[test]
fn turn_of_the_global_queue_waits_for_the_displaced() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let (device, call) = (parked(sched, p, 1), parked(sched, p, 2));
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g; // inherited: tick 0, a turn of the global queue
    call.enter_call(0);
    let _ = sched.ready(p, call.handle(), |_, _| ());
    assert_eq!((sched.counts().global, sched.slots()[0].tick()), (1, 0));
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    let _ = sched.arrive(p);
    let _ = sched.stopped(p, hog, Stop::Displace);
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
    let _ = sched.stopped(p0, pinned, Stop::Displace);
    let borrower = find(sched, p0).unwrap().g;
    assert_eq!(borrower.kernel, 1);
    assert_eq!(names(sched, p1), [10], "stole a pinned G");
    let _ = sched.stopped(p0, borrower, Stop::Expire);
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
    let _ = sched.stopped(p0, hog, Stop::Displace);
    let borrower = find(sched, p0).unwrap().g;
    let run = find(sched, p1).unwrap();
    assert_eq!((run.g.kernel, run.slice), (0, Slice::New));
    assert_eq!((sched.slots()[1].steals(), sched.slots()[1].stolen()), (1, 1));
    // No displaced G is left: the borrower is treated as any hog.
    let _ = sched.stopped(p0, borrower, Stop::Expire);
    assert_eq!(sched.counts().global, 1);
}

#[test]
fn g_in_a_call_goes_to_its_old_p_then_to_any_idle_then_to_the_global_queue() {
    let (sched, mut ps) = machine(3);
    let calls: Vec<_> = (0..3)
        .map(|i| {
            let g = parked(sched, &mut ps[2], i);
            g.enter_call(2);
            assert_eq!((g.home(), g.pin()), (Home::InCall(2), None));
            g
        })
        .collect();
    park(sched, &mut ps[1]);
    park(sched, &mut ps[2]);
    let p0 = &mut ps[0];
    assert_eq!(sched.ready(p0, calls[0].handle(), |_, _| ()), Wake::Cpu(2), "its old P is idle");
    assert_eq!(sched.ready(p0, calls[1].handle(), |_, _| ()), Wake::Cpu(1), "that is taken");
    assert_eq!(sched.counts().spinning, 0);
    assert_eq!(find(sched, &mut ps[2]).unwrap().g.kernel, 0);
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
    assert_eq!(sched.ready_from_interrupt(1, calls[2].handle(), |_, _| ()), Wake::Nobody);
    assert_eq!(sched.counts().global, 1, "nobody is idle");
}

#[test]
fn interrupt_upon_an_idle_cpu_keeps_a_g_in_a_call_there() {
    let (sched, mut ps) = machine(3);
    let call = parked(sched, &mut ps[0], 1);
    call.enter_call(0);
    park(sched, &mut ps[1]);
    park(sched, &mut ps[2]);
    assert_eq!(sched.ready_from_interrupt(2, call.handle(), |_, _| ()), Wake::Cpu(2));
    assert_eq!(find(sched, &mut ps[2]).unwrap().g.kernel, 1);
}

#[test]
fn g_in_a_call_that_is_woken_while_it_parks_runs_next_here() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(0), None);
    let run = find(sched, p0).unwrap();
    run.g.enter_call(0);
    park(sched, p1);
    run.g.begin_park();
    assert_eq!(sched.ready_from_interrupt(0, run.g.handle(), |_, _| ()), Wake::Nobody);
    let _ = sched.stopped(p0, run.g, Stop::Park);
    assert_eq!(find(sched, p0).unwrap().slice, Slice::Inherited);
}

#[test]
fn call_ends_as_it_began_and_a_pinned_g_stays_pinned() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let free = parked(sched, p0, 0);
    free.enter_call(0);
    free.enter_call(1); // taken up there
    assert_eq!(free.home(), Home::InCall(1));
    free.exit_call();
    assert_eq!(free.home(), Home::Anywhere);
    let _ = sched.start(p0, g(1), Some(0));
    let pinned = find(sched, p0).unwrap().g;
    pinned.enter_call(0);
    pinned.begin_park();
    let _ = sched.stopped(p0, pinned, Stop::Park);
    assert_eq!(sched.ready(p1, pinned.handle(), |_, _| ()), Wake::Cpu(0));
    pinned.exit_call();
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
    let _ = sched.stopped(p0, g, Stop::Park);
    assert_eq!(g.status(), Status::Parked);
    assert_eq!(sched.ready(p1, g.handle(), |_, _| ()), Wake::Nobody);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 0);
}
