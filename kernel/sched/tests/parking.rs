//! Event sequences of parking, readying and waking, and their outcomes.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, find, finish_park, g, machine, names, park, parked, two};
use sched::{Arrival, Counts, FREE_PILE, Status, Wake};

#[test]
fn burst_of_submits_wakes_one_and_the_woken_wakes_the_next() {
    let (sched, mut ps) = machine(4);
    for p in &mut ps[1..] {
        park(sched, p);
    }
    let (p0, others) = ps.split_first_mut().unwrap();
    let wakes: Vec<Wake> = (0..8).map(|i| sched.start(p0, g(i), None)).collect();
    assert_eq!(wakes[0], Wake::Cpu(1));
    assert!(wakes[1..].iter().all(|&w| w == Wake::Nobody), "{wakes:?}");
    assert_eq!(sched.counts().spinning, 1);
    // The chain: each CPU that finds work wakes one more, the last wakes none.
    let mut woken = vec![];
    for p in others {
        woken.push(find(sched, p).unwrap().wake);
    }
    assert_eq!(woken, [Wake::Cpu(2), Wake::Cpu(3), Wake::Nobody]);
    assert_eq!(sched.counts().spinning, 0);
}

#[test]
fn cpu_that_wakes_by_itself_does_not_spin_for_anybody() {
    let (sched, mut ps) = machine(2);
    park(sched, &mut ps[1]);
    assert_eq!(sched.counts().busy, 1);
    park(sched, &mut ps[1]); // a stray interrupt
    assert_eq!((sched.counts().spinning, sched.counts().busy), (0, 1));
    let _ = sched.start(&mut ps[0], g(1), None);
    assert_eq!(sched.counts().spinning, 1);
    assert!(find(sched, &mut ps[1]).is_some());
    assert_eq!(sched.counts().spinning, 0);
}

#[test]
fn at_most_half_of_the_busy_ps_spin() {
    let (sched, mut ps) = machine(4);
    park(sched, &mut ps[1]);
    park(sched, &mut ps[2]);
    park(sched, &mut ps[3]);
    let wake = sched.start(&mut ps[0], g(0), None);
    assert_eq!(wake, Wake::Cpu(1)); // spins from now on; busy are 0 and 1
    // 2 comes up by itself. Three are busy, one spins: 2 may spin, and finds
    // the G. But 3 may not while two of four do.
    assert_eq!(sched.counts(), Counts { global: 0, spinning: 1, busy: 2 });
    let stray = find(sched, &mut ps[2]).expect("one of three spins: another may");
    assert_eq!(stray.wake, Wake::Nobody, "1 still spins");
    park(sched, &mut ps[3]);
    assert_eq!(sched.counts(), Counts { global: 0, spinning: 1, busy: 3 });
}

#[test]
fn readied_while_parking_runs_again_and_once() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(1), None);
    let run = find(sched, p0).unwrap();
    run.g.begin_park();
    assert_eq!(sched.ready(p1, run.g.handle(), |_, _| ()), Wake::Nobody);
    assert_eq!(sched.ready(p1, run.g.handle(), |_, _| ()), Wake::Nobody);
    assert!(p1.is_empty(), "runnable before its context was saved");
    let _ = finish_park(sched, p0, run.g);
    assert_eq!(run.g.status(), Status::Runnable);
    assert_eq!(p0.len(), 1);
    assert!(core::ptr::eq(find(sched, p0).unwrap().g, run.g));
}

#[test]
fn g_is_readied_once_however_many_try() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(1), None);
    let run = find(sched, p).unwrap();
    run.g.begin_park();
    let _ = finish_park(sched, p, run.g);
    assert_eq!(run.g.status(), Status::Parked);
    let _ = sched.ready(p, run.g.handle(), |_, _| ());
    let _ = sched.ready(p, run.g.handle(), |_, _| ());
    let _ = sched.ready_from_interrupt(0, run.g.handle(), |_, _| ());
    assert_eq!(p.len(), 1);
    assert!(find(sched, p).is_some() && find(sched, p).is_none());
}

#[test]
fn cancelled_park_consumes_the_wake_up() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(1), None);
    let run = find(sched, p).unwrap();
    run.g.begin_park();
    assert!(!run.g.cancel_park());
    run.g.begin_park();
    let _ = sched.ready(p, run.g.handle(), |_, _| ());
    assert!(run.g.cancel_park());
    assert_eq!(run.g.status(), Status::Running);
}

#[test]
fn stale_handle_does_not_ready_the_next_life() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(1), None);
    let run = find(sched, p).unwrap();
    let (old, first_id) = (run.g.handle(), run.g.id());
    assert!(old.get().is_some());
    exit(sched, p, run.g);
    assert!(old.get().is_none());
    let again = sched.take_dead(p).unwrap();
    assert!(core::ptr::eq(again, run.g), "not used again");
    let _ = sched.start(p, again, None);
    let run = find(sched, p).unwrap();
    assert_ne!(run.g.id(), first_id);
    run.g.begin_park();
    let _ = finish_park(sched, p, run.g);
    let _ = sched.ready(p, old, |_, _| ());
    assert_eq!(run.g.status(), Status::Parked);
    let _ = sched.ready(p, run.g.handle(), |_, _| ());
    assert_eq!(run.g.status(), Status::Runnable);
}

#[test]
fn interrupt_readies_into_the_inbox_and_tells_its_cpu_once() {
    let (sched, mut ps) = machine(2);
    let waiting: Vec<_> = (0..3).map(|i| parked(sched, &mut ps[0], i)).collect();
    park(sched, &mut ps[1]);
    let wakes: Vec<_> =
        waiting.iter().map(|g| sched.ready_from_interrupt(1, g.handle(), |_, _| ())).collect();
    assert_eq!(wakes, [Wake::Cpu(1), Wake::Nobody, Wake::Nobody]);
    let run = find(sched, &mut ps[1]).unwrap();
    assert_eq!(run.g.kernel, 0);
    assert_eq!(run.wake, Wake::Nobody); // P 0 is not idle
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
}

#[test]
fn drained_inbox_wakes_another_for_the_rest() {
    let (sched, mut ps) = machine(2);
    let waiting: Vec<_> = (0..2).map(|i| parked(sched, &mut ps[0], i)).collect();
    park(sched, &mut ps[1]);
    for g in waiting {
        let _ = sched.ready_from_interrupt(0, g.handle(), |_, _| ());
    }
    let arrival = Arrival { wake: Wake::Cpu(1), displace: false };
    assert_eq!(sched.arrive(&mut ps[0]), arrival);
}

#[test]
fn lower_limit_drains_a_p_and_higher_brings_it_back() {
    let (sched, mut ps) = machine(3);
    let (p2, p1) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    for i in 0..5 {
        let _ = sched.start(p2, g(i), None);
    }
    let _ = sched.start(p2, g(50), Some(2));
    assert_eq!(sched.set_limit(2), 2..3);
    let run = find(sched, p2).unwrap();
    assert_eq!(run.g.kernel, 50, "only what is pinned runs beyond the limit");
    exit(sched, p2, run.g);
    park(sched, p2);
    let mut all = names(sched, p1);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    assert_eq!(sched.set_limit(3), 2..3);
    let _ = sched.start(p1, g(9), None);
    assert_eq!(find(sched, p2).unwrap().g.kernel, 9);
}

#[test]
fn dead_gs_move_in_batches_between_ps() {
    let (sched, mut ps) = machine(2);
    for i in 0..3 * FREE_PILE as u32 {
        let _ = sched.start(&mut ps[0], g(i), None);
    }
    let ran = names(sched, &mut ps[0]);
    assert_eq!(ran.len(), 3 * FREE_PILE);
    // P 0 keeps two piles; the third is in the common store, where P 1 finds it.
    let here = std::iter::from_fn(|| sched.take_dead(&mut ps[1])).count();
    assert_eq!(here, FREE_PILE);
}

#[test]
fn timer_is_needed_only_if_somebody_waits() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(0), None);
    let run = find(sched, p).unwrap();
    assert!(!sched.needs_timer(p));
    let _ = sched.start(p, g(1), None);
    assert!(sched.needs_timer(p));
    let _ = sched.expired(p, run.g);
    let _ = find(sched, p).unwrap();
    assert!(sched.needs_timer(p));
}

#[test]
fn every_cpu_without_a_timer_is_told_when_a_g_waits_for_all() {
    let (sched, mut ps) = machine(3);
    // Each runs a hog alone.
    for p in &mut ps {
        let _ = sched.start(p, g(0), None);
        let _ = find(sched, p).unwrap();
        assert!(!sched.needs_timer(p));
    }
    assert_eq!(sched.take_untimed(), None, "nobody waits");
    // One more on P 0, whose slice ends: it waits in the global queue, for all Ps.
    let _ = sched.start(&mut ps[0], g(1), None);
    let run = find(sched, &mut ps[0]).unwrap();
    let _ = sched.expired(&mut ps[0], run.g);
    let mut told: Vec<usize> = std::iter::from_fn(|| sched.take_untimed()).collect();
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2]);
    assert!(sched.needs_timer(&ps[1]) && sched.needs_timer(&ps[2]));
    // A CPU that halts needs none.
    let (sched, mut ps) = machine(2);
    let _ = sched.start(&mut ps[1], g(0), None);
    let run = find(sched, &mut ps[1]).unwrap();
    assert!(!sched.needs_timer(&ps[1]));
    exit(sched, &mut ps[1], run.g);
    park(sched, &mut ps[1]);
    let _ = sched.start(&mut ps[0], g(1), None);
    let run = find(sched, &mut ps[0]).unwrap();
    let _ = sched.expired(&mut ps[0], run.g);
    assert_eq!(sched.take_untimed(), None);
}
