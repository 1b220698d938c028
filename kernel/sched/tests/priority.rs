//! Urgent and background Gs: what each event decides (`sched::Priority`).
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, expired, find, g, machine, names, park, parked, two};
use sched::system::{self, System};
use sched::{
    Arrival, G, GLOBAL_CHECK_EVERY, Next, P, PSlot, Priority, QueueName, Sched, Slice, Status, Wake,
};
use std::collections::BTreeSet;

const DISPLACES: Arrival = Arrival { wake: Wake::Nobody, displace: true };
const STAYS: Arrival = Arrival { wake: Wake::Nobody, displace: false };

/// Starts a G of that priority.
fn start(sched: &'static Sched<u32>, p: &mut P<u32>, name: u32, priority: Priority) -> Wake {
    sched.start_asking(p, g(name), None, priority)
}

fn set(g: &'static G<u32>, rank: Priority) {
    assert!(g.handle().set_rank(rank, rank));
}

/// One P that runs the hog 0, with 10 and 11 in its ring.
fn busy() -> (&'static Sched<u32>, P<u32>, &'static G<u32>) {
    let (sched, mut ps) = machine(1);
    let mut p = ps.pop().unwrap();
    let _ = sched.start(&mut p, g(0), None);
    let hog = find(sched, &mut p).unwrap().g;
    for name in 10..12 {
        let _ = sched.start(&mut p, g(name), None);
    }
    (sched, p, hog)
}

/// The places of all Gs that wait.
fn places(sched: &Sched<u32>, p: &P<u32>) -> BTreeSet<(u32, QueueName)> {
    let mut all = BTreeSet::new();
    sched.census(&mut |g, place| assert!(all.insert((g.kernel, place))));
    p.census(&mut |g, place| assert!(all.insert((g.kernel, place))));
    all
}

#[test]
fn urgent_g_that_another_readies_displaces_it_and_gives_the_slice_back() {
    let (sched, mut p, hog) = busy();
    assert_eq!(start(sched, &mut p, 1, Priority::Urgent), Wake::Cpu(0), "no interrupt");
    assert_eq!(sched.arrive(&mut p), DISPLACES);
    assert!(!p.lends(), "it displaces as an urgent one");
    sched.displaced(&mut p, hog);
    let (first, slice) = sched.find_local(&mut p, true).expect("the fast way");
    assert_eq!((first.kernel, slice), (1, Slice::Inherited));
    exit(sched, &mut p, first);
    let second = find(sched, &mut p).unwrap();
    assert_eq!((second.g.kernel, second.slice), (0, Slice::Resumed));
    exit(sched, &mut p, second.g);
    assert_eq!(names(sched, &mut p), [10, 11]);
}

#[test]
fn urgent_g_goes_to_an_idle_p_and_a_second_one_to_another() {
    let (sched, mut ps) = machine(3);
    let _ = sched.start(&mut ps[0], g(0), None);
    let _ = find(sched, &mut ps[0]).unwrap();
    park(sched, &mut ps[1]);
    park(sched, &mut ps[2]);
    let wakes: BTreeSet<_> = (1..4)
        .map(|name| match start(sched, &mut ps[0], name, Priority::Urgent) {
            Wake::Cpu(cpu) => cpu,
            Wake::Nobody => panic!("no interrupt"),
        })
        .collect();
    assert_eq!(wakes, BTreeSet::from([0, 1, 2]), "the third displaces");
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 1);
    assert_eq!(find(sched, &mut ps[2]).unwrap().g.kernel, 2);
}

#[test]
fn urgent_g_that_cannot_displace_waits_in_its_lane_and_is_next_when_the_p_lends_again() {
    let (sched, mut p, hog) = busy();
    for name in 1..3 {
        let _ = start(sched, &mut p, name, Priority::Urgent);
    }
    p.set_lends(false);
    assert_eq!(sched.arrive(&mut p), STAYS);
    let lane = QueueName::Lane(Priority::Urgent);
    assert!(places(sched, &p).is_superset(&BTreeSet::from([(1, lane), (2, lane)])));
    assert!(sched.needs_timer(&p));
    sched.yielded(&mut p, hog);
    assert!(sched.find_local(&mut p, false).is_none(), "the lane was overlooked");
    let normal = find(sched, &mut p).unwrap().g;
    assert_eq!(normal.kernel, 11, "the P does not lend");
    p.set_lends(true);
    sched.yielded(&mut p, normal);
    let lent = find(sched, &mut p).unwrap();
    assert_eq!((lent.g.kernel, lent.slice), (1, Slice::Lent), "the oldest");
    let _ = sched.expired(&mut p, lent.g);
    let order = names(sched, &mut p);
    assert_eq!(order, [2, 1, 10, 0, 11], "the loan is over: to the tail of the lane");
}

#[test]
fn ps_whose_slice_ends_look_at_the_lane() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    for name in 0..3 {
        expired(sched, p1, g(name));
    }
    let hog = find(sched, p1).unwrap().g;
    let hog = sched.expire(p1, hog).expect("only hogs wait");
    let _ = sched.start(p0, g(10), None);
    let _ = find(sched, p0).unwrap();
    let _ = start(sched, p0, 7, Priority::Urgent);
    p0.set_lends(false);
    assert!(!sched.arrive(p0).displace);
    assert!(sched.expire(p1, hog).is_none(), "the lane is overlooked");
    let _ = sched.expired(p1, hog);
    let next = find(sched, p1).unwrap();
    assert_eq!((next.g.kernel, next.slice), (7, Slice::Lent));
    assert!(sched.expire(p1, next.g).is_none(), "an urgent G is no hog");
}

#[test]
fn urgent_arrival_ends_the_loan_of_a_normal_borrower() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let device = parked(sched, p, 1);
    let _ = sched.start(p, g(0), None);
    let hog = find(sched, p).unwrap().g;
    let _ = sched.ready_from_interrupt(0, device.handle(), |_, _| ());
    assert_eq!(sched.arrive(p), DISPLACES);
    assert!(p.lends(), "it is not urgent");
    sched.displaced(p, hog);
    let borrower = find(sched, p).unwrap().g;
    assert_eq!(borrower.kernel, 1);
    let _ = start(sched, p, 2, Priority::Urgent);
    assert_eq!(sched.arrive(p), DISPLACES);
    sched.displaced(p, borrower);
    assert_eq!(names(sched, p), [2, 0, 1], "the lender before the borrower");
}

#[test]
fn of_two_urgent_arrivals_the_first_displaces_and_the_second_runs_on_the_same_loan() {
    let (sched, mut p, hog) = busy();
    for name in 1..3 {
        let _ = start(sched, &mut p, name, Priority::Urgent);
    }
    assert_eq!(sched.arrive(&mut p), DISPLACES);
    sched.displaced(&mut p, hog);
    p.set_lends(true);
    let mut order = Vec::new();
    for _ in 0..3 {
        let run = find(sched, &mut p).unwrap();
        order.push((run.g.kernel, run.slice));
        exit(sched, &mut p, run.g);
    }
    order[..2].sort_by_key(|(name, _)| *name);
    let loan = Slice::Inherited;
    assert_eq!(order, [(1, loan), (2, loan), (0, Slice::Resumed)]);
}

#[test]
fn pinned_urgent_g_displaces_on_its_cpu_and_is_not_stolen() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(0), None);
    let hog = find(sched, p0).unwrap().g;
    let pinned = g(1);
    assert_eq!(sched.start_asking(p1, pinned, Some(0), Priority::Urgent), Wake::Cpu(0));
    assert_eq!(sched.arrive(p0), DISPLACES);
    park(sched, p1); // it finds nothing to steal
    sched.displaced(p0, hog);
    p0.set_lends(true);
    let first = find(sched, p0).unwrap();
    assert_eq!((first.g.kernel, first.slice), (1, Slice::Inherited));
    sched.yielded(p0, first.g);
    p0.set_lends(false);
    let second = find(sched, p0).unwrap();
    assert_eq!((second.g.kernel, second.slice), (0, Slice::Resumed), "the loan is over");
    exit(sched, p0, second.g);
    assert_eq!(names(sched, p0), [1], "no other G is left");
}

#[test]
fn background_g_runs_when_nothing_else_does_stealing_included() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    run_past_turn(sched, p0);
    run_past_turn(sched, p1);
    let _ = start(sched, p0, 5, Priority::Background);
    for name in 0..4 {
        let _ = sched.start(p1, g(name), None);
    }
    let mut order = names(sched, p0);
    assert_eq!(order.pop(), Some(5), "before a G that could be stolen");
    assert_eq!(order.len(), 4);
}

/// Runs one G there, so that the next slice is no turn of the global queue.
fn run_past_turn(sched: &'static Sched<u32>, p: &mut P<u32>) {
    for name in [1000, 1001] {
        let _ = sched.start(p, g(name), None);
    }
    for _ in 0..2 {
        let run = find(sched, p).unwrap();
        exit(sched, p, run.g);
    }
}

#[test]
fn background_g_has_one_slice_in_61_and_the_global_queue_the_one_after() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let back = g(7);
    let _ = sched.start_asking(p, back, None, Priority::Background);
    for name in 0..3 {
        let _ = sched.start(p, g(name), None);
    }
    let mut at = Vec::new();
    let mut other = 0;
    for slice in 0..5 * GLOBAL_CHECK_EVERY {
        p.set_lends(true);
        let run = find(sched, p).unwrap();
        if run.g.kernel == 7 {
            at.push(slice);
            let _ = sched.expired(p, run.g);
        } else {
            other += 1;
            sched.yielded(p, run.g);
        }
    }
    assert_eq!(at.len(), 5, "{at:?} beside {other}");
    assert!(at.windows(2).all(|two| two[1] - two[0] == GLOBAL_CHECK_EVERY), "{at:?}");

    // A hog in the global queue comes right after it.
    for _ in 0..2 {
        let run = find(sched, p).unwrap();
        sched.yielded(p, run.g);
    }
    expired(sched, p, g(9));
    let mut order = Vec::new();
    while order.last() != Some(&9) {
        let run = find(sched, p).unwrap();
        order.push(run.g.kernel);
        sched.yielded(p, run.g);
    }
    assert_eq!(order[order.len() - 2..], [7, 9]);
}

#[test]
fn p_that_runs_a_background_g_wakes_for_it_and_gets_a_timer() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(0), None);
    let _ = find(sched, p0).unwrap();
    assert!(!sched.needs_timer(p0), "it is alone");
    park(sched, p1);
    assert_eq!(start(sched, p0, 1, Priority::Background), Wake::Cpu(1));
    assert!(sched.needs_timer(p0));
    assert_eq!(find(sched, p1).unwrap().g.kernel, 1);
    assert!(!sched.needs_timer(p1));
    assert_eq!(start(sched, p0, 2, Priority::Background), Wake::Cpu(1), "it has no timer");
}

#[test]
fn rank_that_changes_in_a_queue_counts_from_the_next_queue_on() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let gs: Vec<_> = (0..3).map(g).collect();
    for &g in &gs {
        let _ = sched.start(p, g, None);
    }
    set(gs[1], Priority::Background);
    let first = find(sched, p).unwrap().g; // 2, from run-next
    sched.yielded(p, first);
    let mut order = Vec::new();
    for _ in 0..7 {
        p.set_lends(true);
        let run = find(sched, p).unwrap();
        order.push(run.g.kernel);
        sched.yielded(p, run.g);
    }
    assert_eq!(order, [0, 1, 2, 0, 2, 0, 2], "once more in its place, then in its lane");
    set(gs[1], Priority::Normal);
    assert_eq!(places(sched, p).iter().filter(|(_, at)| *at != QueueName::Ring(0)).count(), 1);
}

#[test]
fn stale_handle_ranks_no_later_life() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let once = g(1);
    let _ = sched.start(p, once, None);
    let stale = once.handle();
    let run = find(sched, p).unwrap();
    exit(sched, p, run.g);
    let again = sched.take_dead(p).expect("it is dead");
    let _ = sched.start(p, again, None);
    assert!(!stale.set_rank(Priority::Urgent, Priority::Urgent));
    assert_eq!((again.rank(), again.priority()), (Priority::Normal, Priority::Normal));
}

#[test]
fn rank_ends_with_its_life() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let once = g(1);
    let _ = sched.start(p, once, None);
    set(once, Priority::Background);
    let run = find(sched, p).unwrap();
    exit(sched, p, run.g);
    let again = sched.take_dead(p).expect("it is dead");
    let _ = sched.start(p, again, None);
    assert_eq!((again.rank(), again.status()), (Priority::Normal, Status::Runnable));
}

#[test]
fn call_of_a_ranked_g_leaves_it_ranked_and_pinned() {
    let g = g(1);
    assert!(g.handle().set_rank(Priority::Background, Priority::Urgent));
    g.enter_call(3);
    assert_eq!((g.priority(), g.rank()), (Priority::Background, Priority::Urgent));
    g.exit_call();
    assert_eq!((g.priority(), g.rank(), g.pin()), (Priority::Background, Priority::Urgent, None));
}

#[test]
fn p_beyond_the_limit_passes_an_urgent_g_on_to_p_0() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    for (p, name) in [(&mut *p0, 0), (&mut *p1, 10)] {
        let _ = sched.start(p, g(name), None);
    }
    let _ = find(sched, p0).unwrap();
    let hog = find(sched, p1).unwrap().g;
    let _ = start(sched, p1, 1, Priority::Urgent);
    p1.set_lends(false);
    let _ = sched.arrive(p1);
    let _ = sched.set_limit(1);
    let _ = sched.arrive(p1);
    let _ = sched.expired(p1, hog);
    assert!(matches!(sched.find_runnable(p1), Next::Park(Wake::Cpu(0))), "it waits in the lane");
    assert_eq!(sched.arrive(p0), DISPLACES);
}

/// What is not promised is not kept, either: the G waits for its turn in the shared queue.
#[test]
fn urgent_g_waits_its_turn_under_a_system_that_promises_no_priorities() {
    for system in system::all::<u32>() {
        let system: &'static dyn System<u32> = system;
        let promised = system.about().promises.priorities;
        let slots: &'static [PSlot<u32>] = Box::leak(Box::new([const { PSlot::new() }]));
        let sched: &'static Sched<u32> = Box::leak(Box::new(Sched::new(slots)));
        let mut p = sched.acquire_under(0, 7, system.places()).expect("new");
        for name in 0..2 {
            let _ = sched.start_asking(&mut p, g(name), None, Priority::Normal);
        }
        let _ = find(sched, &mut p).unwrap();
        let urgent = g(9);
        let _ = sched.start_asking(&mut p, urgent, None, Priority::Urgent);
        let name = system.about().name;
        assert_eq!(sched.arrive(&mut p).displace, promised, "{name}");
        assert_eq!(urgent.rank() == Priority::Urgent, promised, "{name}");
        assert_eq!(urgent.priority(), Priority::Urgent, "what was asked for");
        assert_eq!(find(sched, &mut p).unwrap().g.kernel == 9, promised, "{name}");
    }
}

/// A G is raised: the CPUs that are asked look through their queues. Which displace.
fn raise(
    sched: &'static Sched<u32>,
    ps: &mut [P<u32>],
    by: usize,
    g: &'static G<u32>,
) -> Vec<usize> {
    set(g, Priority::Urgent);
    let mut asked = Vec::new();
    let wake = sched.raised(&mut ps[by], &g.handle(), |cpu| asked.push(cpu));
    let mut displaced = Vec::new();
    for cpu in asked {
        assert!(sched.is_asked(&ps[cpu]));
        if sched.sift(&mut ps[cpu]).displace {
            displaced.push(cpu);
        }
        assert!(!sched.is_asked(&ps[cpu]));
    }
    if let Wake::Cpu(cpu) = wake
        && sched.arrive(&mut ps[cpu]).displace
    {
        displaced.push(cpu);
    }
    displaced
}

/// Two Ps; P 0 runs the hog 0. P 1 runs the hog 1, which is given.
fn two_busy() -> (&'static Sched<u32>, Vec<P<u32>>, [&'static G<u32>; 2]) {
    let (sched, mut ps) = machine(2);
    let run = |n: usize, ps: &mut [P<u32>]| {
        let _ = sched.start(&mut ps[n], g(n as u32), None);
        find(sched, &mut ps[n]).unwrap().g
    };
    let hogs = [run(0, &mut ps), run(1, &mut ps)];
    ps.iter_mut().for_each(P::count_slice); // past the turn of the global queue
    (sched, ps, hogs)
}

#[test]
fn raised_g_in_a_ring_displaces_and_the_others_keep_their_order() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let gs: Vec<_> = (10..16).map(g).collect();
    gs.iter().for_each(|g| _ = sched.start(&mut ps[1], g, None));
    assert_eq!(raise(sched, &mut ps, 0, gs[2]), [1]);
    sched.displaced(&mut ps[1], hog);
    assert_eq!(names(sched, &mut ps[1]), [12, 1, 10, 11, 13, 14, 15]);
}

#[test]
fn raised_g_in_the_run_next_slot_displaces() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let next = g(10);
    let _ = sched.start(&mut ps[1], next, None);
    assert_eq!(raise(sched, &mut ps, 0, next), [1]);
    sched.displaced(&mut ps[1], hog);
    assert_eq!(names(sched, &mut ps[1]), [10, 1]);
}

#[test]
fn raised_g_in_the_global_queue_goes_to_the_cpu_of_the_raiser() {
    let (sched, mut ps, [hog, _]) = two_busy();
    for (n, gone) in (10..13).enumerate() {
        expired(sched, &mut ps[1], g(gone));
        assert_eq!(sched.counts().global, n + 1);
    }
    let mut all = Vec::new();
    sched.census(&mut |g, place| all.extend((place == QueueName::Global).then_some(g)));
    assert_eq!(raise(sched, &mut ps, 0, all[1]), [0]);
    sched.displaced(&mut ps[0], hog);
    assert_eq!(find(sched, &mut ps[0]).unwrap().g.kernel, all[1].kernel);
    assert_eq!(sched.counts().global, 2);
    // The tail is taken as well, and then the only one.
    ps[0].set_lends(true);
    assert_eq!(raise(sched, &mut ps, 0, all[2]).len() + raise(sched, &mut ps, 0, all[0]).len(), 1);
    assert_eq!(sched.counts().global, 1, "one waits in the lane");
}

#[test]
fn raised_background_g_leaves_its_lane() {
    let (sched, mut ps, [hog, _]) = two_busy();
    let backs: Vec<_> = (10..13).map(g).collect();
    for back in &backs {
        let _ = sched.start_asking(&mut ps[1], back, None, Priority::Background);
    }
    assert_eq!(raise(sched, &mut ps, 0, backs[1]), [0]);
    sched.displaced(&mut ps[0], hog);
    assert_eq!(find(sched, &mut ps[0]).unwrap().g.kernel, 11);
    // To the normal rank: as if it was readied here.
    assert!(backs[2].handle().set_rank(Priority::Background, Priority::Normal));
    let _ = sched.raised(&mut ps[1], &backs[2].handle(), |_| panic!("no ring has it"));
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 12);
}

#[test]
fn raised_g_in_an_inbox_displaces_when_it_arrives() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let device = g(10);
    let _ = sched.start(&mut ps[0], device, Some(1)); // on its way
    assert_eq!(raise(sched, &mut ps, 0, device), []);
    assert_eq!(sched.arrive(&mut ps[1]), DISPLACES);
    sched.displaced(&mut ps[1], hog);
    ps[1].set_lends(true);
    assert_eq!(find(sched, &mut ps[1]).unwrap().g.kernel, 10);
}

#[test]
fn raised_g_that_is_displaced_displaces_its_borrower() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let device = parked_beside(sched, &mut ps[1], hog);
    let _ = sched.ready_from_interrupt(1, device.handle(), |_, _| ());
    assert!(sched.arrive(&mut ps[1]).displace);
    sched.displaced(&mut ps[1], hog);
    let borrower = find(sched, &mut ps[1]).unwrap().g;
    assert!(core::ptr::eq(borrower, device));
    assert_eq!(raise(sched, &mut ps, 0, hog), [1]);
    sched.displaced(&mut ps[1], borrower);
    assert_eq!(names(sched, &mut ps[1]), [1, 99]);
}

/// A G that has parked, on a P that runs `hog`, which goes on.
fn parked_beside(
    sched: &'static Sched<u32>,
    p: &mut P<u32>,
    hog: &'static G<u32>,
) -> &'static G<u32> {
    let device = g(99);
    let _ = sched.start(p, device, None);
    sched.yielded(p, hog);
    assert!(core::ptr::eq(find(sched, p).unwrap().g, device));
    device.begin_park();
    let _ = common::finish_park(sched, p, device);
    assert!(core::ptr::eq(find(sched, p).unwrap().g, hog));
    device
}

#[test]
fn raised_g_that_is_pinned_displaces_on_its_cpu() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let pinned: Vec<_> = (10..13).map(g).collect();
    for g in &pinned {
        let _ = sched.start(&mut ps[1], g, Some(1));
    }
    assert_eq!(raise(sched, &mut ps, 0, pinned[1]), [1]);
    sched.displaced(&mut ps[1], hog);
    ps[1].set_lends(true);
    let first = find(sched, &mut ps[1]).unwrap();
    assert_eq!((first.g.kernel, first.slice), (11, Slice::Inherited));
    exit(sched, &mut ps[1], first.g);
    let mut rest = names(sched, &mut ps[1]);
    assert_eq!(rest.remove(0), 1, "the lender");
    assert_eq!(rest, [10, 12]);
}

#[test]
fn raised_g_in_a_call_displaces_when_the_call_is_over() {
    let (sched, mut ps, [hog, other]) = two_busy();
    let calls = parked_beside(sched, &mut ps[1], other);
    calls.enter_call(1);
    assert_eq!(raise(sched, &mut ps, 0, calls), [], "it is in no queue");
    assert_eq!(sched.ready(&mut ps[0], calls.handle(), |_, _| ()), Wake::Cpu(0));
    assert_eq!(sched.arrive(&mut ps[0]), DISPLACES);
    sched.displaced(&mut ps[0], hog);
    assert_eq!(find(sched, &mut ps[0]).unwrap().g.kernel, 99);
}

#[test]
fn raised_g_that_runs_stays_and_is_not_sent_to_the_global_queue_when_its_slice_is_over() {
    let (sched, mut ps, [_, hog]) = two_busy();
    let _ = sched.start(&mut ps[1], g(10), None);
    assert_eq!(raise(sched, &mut ps, 0, hog), []);
    let _ = sched.expired(&mut ps[1], hog);
    ps[1].set_lends(true);
    let next = find(sched, &mut ps[1]).unwrap();
    assert_eq!((next.g.kernel, next.slice), (1, Slice::Lent));
}

/// P 0 steals the G from P 1, which has not looked yet, after it has looked itself.
#[test]
fn raised_g_that_is_stolen_from_a_p_that_has_not_looked_is_found() {
    let (sched, mut ps, [hog, _]) = two_busy();
    let gs: Vec<_> = (10..18).map(g).collect();
    gs.iter().for_each(|g| _ = sched.start(&mut ps[1], g, None));
    set(gs[2], Priority::Urgent);
    let mut asked = Vec::new();
    let _ = sched.raised(&mut ps[0], &gs[2].handle(), |cpu| asked.push(cpu));
    assert_eq!(asked, [0, 1]);
    assert!(!sched.sift(&mut ps[0]).displace);
    exit(sched, &mut ps[0], hog);
    let stolen = find(sched, &mut ps[0]).unwrap();
    assert_eq!(stolen.g.kernel, 10);
    assert!(places(sched, &ps[0]).contains(&(12, QueueName::Lane(Priority::Urgent))), "missed");
    assert!(!sched.sift(&mut ps[1]).displace, "it is gone");
}

#[test]
fn ps_that_have_not_come_up_are_not_asked() {
    static SLOTS: [PSlot<u32>; 8] = [const { PSlot::new() }; 8];
    static SCHED: Sched<u32> = Sched::new(&SLOTS);
    let mut p = SCHED.acquire(0, 7).expect("free");
    let _ = SCHED.start(&mut p, g(0), None);
    let _ = find(&SCHED, &mut p).unwrap();
    let waits = g(1);
    let _ = SCHED.start(&mut p, waits, None);
    set(waits, Priority::Urgent);
    let mut asked = Vec::new();
    let _ = SCHED.raised(&mut p, &waits.handle(), |cpu| asked.push(cpu));
    assert_eq!(asked, [0]);
}
