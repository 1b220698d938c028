//! Event sequences on scripted CPUs, and the decisions that must follow.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{find, g, machine};
use sched::{
    Counts, FREE_MAX, GLOBAL_CHECK_EVERY, List, Next, Order, P, Place, RUNQ_CAPACITY, RUNQ_HALF,
    Run, Sched, Slice, Status, Wake,
};

type Named = Run<u32>;

fn names(sched: &'static Sched<u32>, p: &mut P<u32>) -> Vec<u32> {
    std::iter::from_fn(|| {
        let run = find(sched, p)?;
        sched.exited(p, run.g);
        Some(run.g.kernel)
    })
    .collect()
}

/// Parks the P, which must have nothing to do.
fn park(sched: &'static Sched<u32>, p: &mut P<u32>) {
    assert!(find(sched, p).is_none(), "P {} has work", p.index());
}

#[test]
fn newest_runs_first_and_the_rest_in_order() {
    let (sched, mut ps) = machine(1);
    for i in 0..5 {
        assert_eq!(sched.start(&mut ps[0], g(i), None), Wake::Nobody);
    }
    assert_eq!(names(sched, &mut ps[0]), [4, 0, 1, 2, 3]);
}

#[test]
fn run_next_inherits_the_slice_and_does_not_tick() {
    let (sched, mut ps) = machine(1);
    for i in 0..2 {
        let _ = sched.start(&mut ps[0], g(i), None);
    }
    let Named { slice, .. } = find(sched, &mut ps[0]).unwrap();
    assert_eq!((slice, sched.slots()[0].tick()), (Slice::Inherited, 0));
    let Named { slice, .. } = find(sched, &mut ps[0]).unwrap();
    assert_eq!((slice, sched.slots()[0].tick()), (Slice::New, 1));
}

#[test]
fn expired_g_ends_the_run_next_chain_and_goes_to_the_global_tail() {
    let (sched, mut ps) = machine(1);
    for i in 0..3 {
        let _ = sched.start(&mut ps[0], g(i), None);
    }
    let _ = find(sched, &mut ps[0]).unwrap(); // 2, from run-next; tick stays 0
    let first = find(sched, &mut ps[0]).unwrap(); // 0, from the ring
    let _ = sched.start(&mut ps[0], g(3), None); // run-next
    let _ = sched.expired(&mut ps[0], first.g);
    // 1 was waiting before 3 was made; 3 lost its privilege; 0 is last.
    assert_eq!(names(sched, &mut ps[0]), [1, 3, 0]);
}

#[test]
fn yielding_g_goes_behind_its_own_ring_and_wakes_nobody() {
    let (sched, mut ps) = machine(2);
    let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    for i in 0..3 {
        let _ = sched.start(p0, g(i), None);
    }
    let run = find(sched, p0).unwrap();
    assert_eq!(run.g.kernel, 2);
    assert_eq!(sched.yielded(p0, run.g), Wake::Nobody);
    assert_eq!(sched.counts().global, 0);
    assert_eq!(names(sched, p0), [0, 1, 2]);
    park(sched, p1);
}

#[test]
fn yield_to_names_the_next_and_nobody_if_alone() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(0), None);
    let a = find(sched, p).unwrap();
    assert!(sched.yield_to(p).is_none());
    let _ = sched.start(p, g(1), None);
    let b = sched.yield_to(p).unwrap();
    assert_eq!(b.g.kernel, 1);
    assert_eq!(sched.switched(p, a.g), Wake::Nobody);
    assert_eq!(sched.yield_to(p).unwrap().g.kernel, 0);
}

#[test]
fn overflow_moves_half_and_the_new_one_to_the_global_queue() {
    let (sched, mut ps) = machine(1);
    // One in run-next, a full ring, and one more.
    for i in 0..RUNQ_CAPACITY as u32 + 2 {
        let _ = sched.start(&mut ps[0], g(i), None);
    }
    assert_eq!(sched.counts().global, RUNQ_HALF + 1);
    assert_eq!(ps[0].len(), RUNQ_HALF + 1);
    let mut all = names(sched, &mut ps[0]);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..RUNQ_CAPACITY as u32 + 2), "one lost or doubled");
}

#[test]
fn global_queue_is_looked_at_first_every_61st_slice() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let hog = g(1000);
    let _ = sched.start(p, hog, None);
    let run = find(sched, p).unwrap();
    for i in 0..100 {
        let _ = sched.start(p, g(i), None);
    }
    let _ = sched.expired(p, run.g); // the only one in the global queue
    // Tick 0 is a turn of the global queue as well.
    let first = find(sched, p).unwrap();
    assert_eq!(first.g.kernel, 1000);
    let _ = sched.expired(p, first.g);
    let mut order = Vec::new();
    while let Some(run) = find(sched, p) {
        order.push(run.g.kernel);
        sched.exited(p, run.g);
    }
    let at = order.iter().position(|&k| k == 1000).unwrap();
    assert_eq!(at as u32, GLOBAL_CHECK_EVERY - 1);
}

#[test]
fn batch_is_a_fair_share_and_ends_before_an_expired_g() {
    let (sched, mut ps) = machine(4);
    let p = &mut ps[0];
    // Fill the ring until half of it is in the global queue.
    for i in 0..RUNQ_CAPACITY as u32 + 2 {
        let _ = sched.start(p, g(i), None);
    }
    let thief = &mut ps[1];
    let before = sched.counts().global;
    let _ = find(sched, thief).unwrap(); // tick 0: one
    assert_eq!(sched.counts().global, before - 1);
    let len = before - 1;
    let _ = find(sched, thief).unwrap(); // a batch
    assert_eq!(sched.counts().global, len - (len / 4 + 1));

    // Hogs are dealt one by one.
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    for i in 0..4 {
        let _ = sched.start(p, g(i), None);
    }
    while !p.is_empty() {
        let run = find(sched, p).unwrap();
        let _ = sched.expired(p, run.g);
    }
    let left = sched.counts().global;
    let run = find(sched, p).unwrap();
    assert_eq!(sched.counts().global, left - 1);
    assert!(p.is_empty(), "a batch of hogs");
    let _ = sched.expired(p, run.g);
}

#[test]
fn thief_takes_the_older_half_and_keeps_the_order() {
    let (sched, mut ps) = machine(2);
    let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    for i in 0..6 {
        let _ = sched.start(p0, g(i), None);
    }
    // Ring 0..=4, run-next 5. Ceil half of five is three.
    let run = find(sched, p1).unwrap();
    assert_eq!((run.g.kernel, run.slice), (0, Slice::New));
    assert_eq!(p1.len(), 2);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 1);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 2);
}

#[test]
fn run_next_is_stolen_when_there_is_nothing_else() {
    let (sched, mut ps) = machine(2);
    let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    let _ = sched.start(p0, g(9), None);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 9);
    assert!(p0.is_empty());
}

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
    // The chain: each that finds work wakes one more, the last nobody.
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
    let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    let _ = sched.start(p0, g(1), None);
    let run = find(sched, p0).unwrap();
    run.g.begin_park();
    assert_eq!(sched.ready(p1, run.g), Wake::Nobody);
    assert_eq!(sched.ready(p1, run.g), Wake::Nobody);
    assert!(p1.is_empty(), "runnable before its context was saved");
    let _ = sched.parked(p0, run.g);
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
    let _ = sched.parked(p, run.g);
    assert_eq!(run.g.status(), Status::Parked);
    let _ = sched.ready(p, run.g);
    let _ = sched.ready(p, run.g);
    let _ = sched.ready_from_interrupt(0, run.g);
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
    let _ = sched.ready(p, run.g);
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
    sched.exited(p, run.g);
    assert!(old.get().is_none());
    let again = sched.take_dead(p).unwrap();
    assert!(core::ptr::eq(again, run.g), "not used again");
    let _ = sched.start(p, again, None);
    let run = find(sched, p).unwrap();
    assert_ne!(run.g.id(), first_id);
    run.g.begin_park();
    let _ = sched.parked(p, run.g);
    let _ = sched.ready_handle(p, old);
    assert_eq!(run.g.status(), Status::Parked);
    let _ = sched.ready_handle(p, run.g.handle());
    assert_eq!(run.g.status(), Status::Runnable);
}

#[test]
fn interrupt_readies_into_the_inbox_and_tells_its_cpu_once() {
    let (sched, mut ps) = machine(2);
    let parked: Vec<_> = (0..3)
        .map(|i| {
            let _ = sched.start(&mut ps[0], g(i), None);
            let run = find(sched, &mut ps[0]).unwrap();
            run.g.begin_park();
            let _ = sched.parked(&mut ps[0], run.g);
            run.g
        })
        .collect();
    park(sched, &mut ps[1]);
    let wakes: Vec<_> = parked.iter().map(|g| sched.ready_from_interrupt(1, g)).collect();
    assert_eq!(wakes, [Wake::Cpu(1), Wake::Nobody, Wake::Nobody]);
    let run = find(sched, &mut ps[1]).unwrap();
    assert_eq!(run.g.kernel, 0);
    assert_eq!(run.wake, Wake::Nobody); // P 0 is not idle
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
}

#[test]
fn drained_inbox_wakes_another_for_the_rest() {
    let (sched, mut ps) = machine(2);
    let parked: Vec<_> = (0..2)
        .map(|i| {
            let _ = sched.start(&mut ps[0], g(i), None);
            let run = find(sched, &mut ps[0]).unwrap();
            run.g.begin_park();
            let _ = sched.parked(&mut ps[0], run.g);
            run.g
        })
        .collect();
    park(sched, &mut ps[1]);
    for g in parked {
        let _ = sched.ready_from_interrupt(0, g);
    }
    assert_eq!(sched.drain(&mut ps[0]), Wake::Cpu(1));
}

#[test]
fn pinned_g_runs_on_its_cpu_only_and_shares_with_the_ring() {
    let (sched, mut ps) = machine(2);
    let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
    park(sched, p1);
    assert_eq!(sched.start(p0, g(7), Some(1)), Wake::Cpu(1));
    park(sched, p0);
    let run = find(sched, p1).unwrap();
    assert_eq!(run.g.kernel, 7);
    // Two pinned and two others take turns; nobody steals the pinned.
    let _ = sched.start(p1, g(8), Some(1));
    let _ = sched.yielded(p1, run.g);
    assert!(find(sched, p0).is_none(), "stole a pinned G");
    for i in 0..2 {
        let _ = sched.start(p1, g(i), None);
    }
    let order = names(sched, p1);
    assert_eq!(order[0], 1, "run-next first");
    assert_ne!(order[1..3].iter().filter(|&&k| k >= 7).count(), 0, "pinned waited");
    assert_ne!(order[1..3].iter().filter(|&&k| k < 7).count(), 0, "ring waited");
}

#[test]
fn pinned_hog_leaves_room_for_the_global_queue() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _ = sched.start(p, g(0), Some(0));
    let _ = sched.start(p, g(1), None);
    let mut slices = [0u32; 2];
    for _ in 0..100 {
        let run = find(sched, p).unwrap();
        slices[run.g.kernel as usize] += 1;
        let _ = sched.expired(p, run.g);
    }
    assert!(slices[0].abs_diff(slices[1]) <= 4, "{slices:?}");
}

#[test]
fn poller_gives_the_first_and_queues_the_rest() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let mut waiting = Vec::new();
    for i in 0..3 {
        let _ = sched.start(p, g(i), None);
        let run = find(sched, p).unwrap();
        run.g.begin_park();
        let _ = sched.parked(p, run.g);
        waiting.push(run.g);
    }
    let poll = || {
        let mut list = List::new();
        for g in waiting.drain(..) {
            assert!(sched.claim_ready(g));
            list.push(g);
        }
        list
    };
    let Next::Run(run) = sched.find_runnable(p, poll) else { panic!("nothing polled") };
    assert_eq!(run.g.kernel, 0);
    assert_eq!(names(sched, p), [1, 2]);
}

#[test]
fn orders_differ_in_where_the_next_g_comes_from() {
    // One G in the global queue, one at the poller, one to steal.
    let source = |order: Order| {
        let (sched, mut ps) = machine::<u32>(2);
        let (p1, p0) = (&mut ps.pop().unwrap(), &mut ps.pop().unwrap());
        sched.set_order(order);
        let _ = sched.start(p1, g(100), None);
        let _ = find(sched, p1).unwrap(); // inherited: tick 0
        let _ = sched.start(p1, g(101), None);
        let b = find(sched, p1).unwrap();
        let _ = sched.start(p1, g(102), None);
        let _ = sched.expired(p1, b.g);
        let _ = find(sched, p1).unwrap(); // tick 1
        let polled = g(1);
        let _ = sched.start(p0, polled, None);
        let run = find(sched, p0).unwrap();
        run.g.begin_park();
        let _ = sched.parked(p0, run.g);
        let _ = sched.start(p0, g(2), None);
        let _ = sched.start(p0, g(3), None);
        let c = find(sched, p0).unwrap();
        let _ = sched.expired(p0, c.g); // 3 in the global queue, 2 in P 0's ring
        let mut once = Some(polled);
        let poll = || {
            let mut list = List::new();
            if let Some(g) = once.take() {
                assert!(sched.claim_ready(g));
                list.push(g);
            }
            list
        };
        while !p1.is_empty() {
            let _ = find(sched, p1);
        }
        let Next::Run(run) = sched.find_runnable(p1, poll) else { panic!("nothing") };
        run.g.kernel
    };
    assert_eq!(Order::default(), Order::Go);
    assert_eq!(source(Order::Go), 3);
    assert_eq!(source(Order::StealBeforeGlobal), 2);
    assert_eq!(source(Order::GlobalBeforeSteal), 1);
    assert_eq!(source(Order::PollerLast), 3);
    assert_eq!(Order::PollerLast.places(), [Place::Global, Place::Steal, Place::Poller]);
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
    sched.exited(p2, run.g);
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
    for i in 0..FREE_MAX as u32 {
        let _ = sched.start(&mut ps[0], g(i), None);
    }
    let ran = names(sched, &mut ps[0]);
    assert_eq!(ran.len(), FREE_MAX);
    // Half went to the common list, where P 1 finds them.
    let here = std::iter::from_fn(|| sched.take_dead(&mut ps[1])).count();
    assert_eq!(here, FREE_MAX / 2);
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
    // One more on P 0, whose slice ends: it waits for all.
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
    sched.exited(&mut ps[1], run.g);
    park(sched, &mut ps[1]);
    let _ = sched.start(&mut ps[0], g(1), None);
    let run = find(sched, &mut ps[0]).unwrap();
    let _ = sched.expired(&mut ps[0], run.g);
    assert_eq!(sched.take_untimed(), None);
}

#[test]
fn p_is_acquired_once() {
    let (sched, _ps) = machine::<u32>(2);
    assert!(sched.acquire(0, 1).is_none());
    assert!(sched.acquire(2, 1).is_none());
}
