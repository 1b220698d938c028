//! Event sequences on scripted CPUs: which G runs where, and when.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, expired, find, g, machine, names, park, parked, seeded, two};
use sched::{
    G, GLOBAL_BATCH_MAX, GLOBAL_CHECK_EVERY, MAX_P, Next, Order, Owner, P, PSlot, Priority,
    RUNQ_CAPACITY, RUNQ_HALF, Run, Sched, Slice, StartPlace, Status, Wake, system::MRing,
};

type Named = Run<u32>;

#[test]
fn newest_runs_first_and_the_rest_in_order() {
    let (sched, mut ps) = machine(1);
    for i in 0..5 {
        assert_eq!(sched.start(&mut ps[0], g(i), None), Wake::Nobody);
    }
    assert_eq!(names(sched, &mut ps[0]), [4, 0, 1, 2, 3]);
}

#[test]
fn new_gs_wait_here_or_behind_all_others_or_at_another_p() {
    let order = |place| {
        let (sched, mut ps) = machine(2);
        sched.set_start_place(place);
        let wakes: Vec<_> =
            (0..4).map(|i| sched.start_asking(&mut ps[0], g(i), None, Priority::Normal)).collect();
        let own = names(sched, &mut ps[0]);
        (own, names(sched, &mut ps[1]), sched.counts().global, wakes)
    };
    let (own, other, ..) = order(StartPlace::Here);
    assert_eq!((own, other), (vec![3, 0, 1, 2], vec![]));
    let (own, other, ..) = order(StartPlace::Queue);
    assert_eq!((own, other), (vec![0, 1, 2, 3], vec![]), "first come, first served");
    let (own, other, _, wakes) = order(StartPlace::Other);
    assert_eq!((own, other), (vec![], vec![0, 1, 2, 3]));
    assert_eq!(wakes[0], Wake::Cpu(1), "it is told of the first");
}

#[test]
fn a_pinned_g_starts_where_it_is_pinned_wherever_others_do() {
    for place in [StartPlace::Queue, StartPlace::Other] {
        let (sched, mut ps) = machine(2);
        sched.set_start_place(place);
        let _ = sched.start_asking(&mut ps[0], g(7), Some(0), Priority::Normal);
        assert_eq!((sched.counts().global, names(sched, &mut ps[1])), (0, vec![]));
        assert_eq!(names(sched, &mut ps[0]), [7]);
    }
}

#[test]
fn with_one_p_there_is_no_other_place() {
    let (sched, mut ps) = machine(1);
    sched.set_start_place(StartPlace::Other);
    (0..3).for_each(|i| _ = sched.start_asking(&mut ps[0], g(i), None, Priority::Normal));
    assert_eq!(names(sched, &mut ps[0]), [2, 0, 1]);
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
    // 1 was waiting before 3 was made; 3 lost the run-next slot; 0 is last.
    assert_eq!(names(sched, &mut ps[0]), [1, 3, 0]);
}

/// The next G after a yield, by the way of the kernel.
fn after_yield(sched: &'static Sched<u32>, p: &mut P<u32>, g: &'static G<u32>) -> u32 {
    match sched.rotate(p, g) {
        Ok(next) => next.kernel,
        Err(rest) => match sched.rotate_slow(p, g, rest) {
            Next::Run(run) => run.g.kernel,
            Next::Park(_) => panic!("the yielder is lost"),
        },
    }
}

#[test]
fn g_that_yields_alone_lets_the_global_queue_through_at_once() {
    let mut seen = 0;
    for tick in 0..2 * GLOBAL_CHECK_EVERY {
        let (sched, mut ps) = machine(1);
        let p = &mut ps[0];
        let (waits, yields) = (g(0), g(1));
        let _ = sched.start(p, waits, None);
        let _ = find(sched, p).unwrap();
        for _ in 0..tick {
            assert_eq!(after_yield(sched, p, waits), 0);
        }
        let _ = sched.start(p, yields, None);
        let _ = sched.expired(p, waits); // to the global queue
        let run = find(sched, p).unwrap();
        if run.g.kernel == 1 {
            // Else it was the turn of the global queue.
            assert_eq!((p.len(), sched.counts().global), (0, 1));
            assert_eq!(after_yield(sched, p, yields), 0, "tick {tick}");
            assert_eq!((p.len(), sched.counts().global), (1, 0), "the yielder is behind it");
            seen += 1;
        }
    }
    assert!(seen > GLOBAL_CHECK_EVERY, "{seen}");
}

#[test]
fn g_that_yields_alone_goes_on_and_is_in_no_queue() {
    let (sched, mut ps) = machine(1);
    let only = g(1);
    let _ = sched.start(&mut ps[0], only, None);
    let _ = find(sched, &mut ps[0]).unwrap();
    for slices in 1..5 {
        assert_eq!(after_yield(sched, &mut ps[0], only), 1);
        assert_eq!((ps[0].len(), only.status()), (0, Status::Running));
        assert_eq!(sched.slots()[0].tick(), slices);
    }
}

#[test]
fn g_that_yields_rotates_the_ring_unless_a_g_is_before_it() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    for i in 0..4 {
        let _ = sched.start(p, g(i), None);
    }
    let run = find(sched, p).unwrap(); // 3, from run-next
    let _ = sched.start(p, g(4), None);
    assert_eq!(after_yield(sched, p, run.g), 4, "run-next first");
    assert_eq!(names(sched, p), [0, 1, 2, 3]);
}

#[test]
fn p_beyond_the_limit_notices_at_its_interrupt() {
    let (sched, mut ps) = machine(2);
    let p1 = &mut ps[1];
    for i in 0..3 {
        let _ = sched.start(p1, g(i), None);
    }
    let run = find(sched, p1).unwrap();
    assert_eq!(sched.set_limit(1), 1..2);
    let _ = sched.arrive(p1);
    let _ = sched.expired(p1, run.g);
    park(sched, p1);
    assert_eq!(sched.counts().global, 3);
    assert_eq!(sched.set_limit(2), 1..2);
    let _ = sched.arrive(p1);
    assert!(find(sched, p1).is_some(), "below the limit again");
}

#[test]
fn yielding_g_goes_behind_its_own_ring_and_wakes_nobody() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    for i in 0..3 {
        let _ = sched.start(p0, g(i), None);
    }
    let run = find(sched, p0).unwrap();
    assert_eq!(run.g.kernel, 2);
    sched.yielded(p0, run.g);
    assert_eq!(sched.counts().global, 0);
    assert_eq!(names(sched, p0), [0, 1, 2]);
    park(sched, p1);
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
        exit(sched, p, run.g);
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
    assert_eq!(sched.counts().global, len - (len / 4 + 1).min(GLOBAL_BATCH_MAX));

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
fn hogs_hand_over_in_one_step_while_only_hogs_wait() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    for i in 0..4 {
        let _ = sched.start(p, g(i), None);
    }
    let mut runs = find(sched, p).unwrap().g;
    while !p.is_empty() {
        assert!(sched.expire(p, runs).is_none(), "the ring comes before the global queue");
        let _ = sched.expired(p, runs);
        runs = find(sched, p).unwrap().g;
    }
    let mut order = Vec::new();
    for _ in 0..8 {
        order.push(runs.kernel);
        runs = sched.expire(p, runs).expect("only hogs wait");
    }
    assert_eq!(order[..4], order[4..], "not round robin");
    order[..4].sort_unstable();
    assert_eq!((&order[..4], sched.counts().global), (&[0, 1, 2, 3][..], 3));
    let _ = sched.start(p, g(4), None);
    assert!(sched.expire(p, runs).is_none(), "a G of its own waits on the P");
}

#[test]
fn thief_takes_the_older_half_and_keeps_the_order() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
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
    let (p0, p1) = two(&mut ps);
    let _ = sched.start(p0, g(9), None);
    assert_eq!(find(sched, p1).unwrap().g.kernel, 9);
    assert!(p0.is_empty());
}

#[test]
fn thief_finds_every_p_that_comes_up_however_late() {
    static SLOTS: [PSlot<u32>; MAX_P] = [const { PSlot::new() }; MAX_P];
    static SCHED: Sched<u32> = Sched::new(&SLOTS);
    let mut p2 = SCHED.acquire(2, 7).expect("free");
    park(&SCHED, &mut p2);
    let mut last = SCHED.acquire(MAX_P - 1, 7).expect("free");
    let _ = SCHED.start(&mut last, g(1), None);
    let mut first = SCHED.acquire(0, 7).expect("free"); // and the last is still seen
    assert_eq!(find(&SCHED, &mut p2).expect("the last has it").g.kernel, 1);
    let _ = SCHED.start(&mut first, g(2), None);
    assert_eq!(find(&SCHED, &mut p2).expect("the first has it").g.kernel, 2);
}

#[test]
fn pinned_g_runs_on_its_cpu_only_and_shares_with_the_ring() {
    let (sched, mut ps) = machine(2);
    let (p0, p1) = two(&mut ps);
    park(sched, p1);
    assert_eq!(sched.start(p0, g(7), Some(1)), Wake::Cpu(1));
    park(sched, p0);
    let run = find(sched, p1).unwrap();
    assert_eq!(run.g.kernel, 7);
    // Two pinned Gs and two others take turns; thieves do not take the pinned ones.
    let _ = sched.start(p1, g(8), Some(1));
    sched.yielded(p1, run.g);
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

/// Three Gs: one in the global queue, one in the inbox (a device readied it),
/// one in another P's ring. The order in which a P that has none takes them.
fn sources_of(seed: u64, prepare: impl FnOnce(&Sched<&'static str>)) -> Vec<&'static str> {
    let (sched, mut ps) = seeded(3, seed);
    let [p0, p1, p2] = &mut ps[..] else { unreachable!("three") };
    prepare(sched);
    let device = parked(sched, p1, "poller");
    let _ = sched.start(p0, g("steal"), None);
    let _ = sched.start(p0, g("runs next"), None);
    let _ = find(sched, p0).unwrap();
    // Past tick 0, which is a turn of the global queue.
    let _ = sched.start(p1, g(""), None);
    let first = find(sched, p1).unwrap();
    sched.yielded(p1, first.g);
    let again = find(sched, p1).unwrap();
    expired(sched, p2, g("global"));
    let _ = sched.ready_from_interrupt(1, device.handle(), |_, _| ());
    exit(sched, p1, again.g);
    names(sched, p1)
}

#[test]
fn orders_differ_in_where_the_next_g_comes_from() {
    let sources = |order| sources_of(7, |sched| sched.set_order(order));
    assert_eq!(Order::default(), Order::Go);
    assert_eq!(sources(Order::Go), ["global", "poller", "steal"]);
    assert_eq!(sources(Order::StealBeforeGlobal), ["steal", "global", "poller"]);
    assert_eq!(sources(Order::PollerFirst), ["poller", "global", "steal"]);
    assert_eq!(sources(Order::PollerLast), ["global", "steal", "poller"]);
}

/// How many seeds are tried.
const SEEDS: usize = if cfg!(miri) { 6 } else { 32 };

/// How many different values the seeds give; each seed gives the same value twice.
fn different<T: Ord + std::fmt::Debug>(of: impl Fn(u64) -> T) -> usize {
    let seeds = 0..SEEDS as u64;
    let all: std::collections::BTreeSet<T> = seeds.clone().map(&of).collect();
    seeds.for_each(|seed| assert_eq!(of(seed), of(seed), "of seed {seed}"));
    all.len()
}

#[test]
fn where_a_random_scheduler_looks_for_work_is_drawn() {
    assert_eq!(different(|seed| sources_of(seed, |_| ())), 1, "otherwise it is not");
    assert!(different(|seed| sources_of(seed, |sched| sched.be_random(seed))) > 1);
}

/// The order in which seven idle Ps are woken: each woken P wakes the next.
fn woken(prepare: impl FnOnce(&Sched<u32>)) -> Vec<usize> {
    let (sched, mut ps) = machine(8);
    prepare(sched);
    ps[1..].iter_mut().for_each(|p| park(sched, p));
    let first = sched.start(&mut ps[0], g(0), None);
    (1..8).for_each(|n| _ = sched.start(&mut ps[0], g(n), None));
    let next = |wake: &Wake| match *wake {
        Wake::Cpu(index) => find(sched, &mut ps[index]).map(|run| run.wake),
        Wake::Nobody => None,
    };
    let wakes = std::iter::successors(Some(first), next);
    wakes.map_while(|wake| if let Wake::Cpu(index) = wake { Some(index) } else { None }).collect()
}

#[test]
fn whom_a_random_scheduler_wakes_is_drawn() {
    assert_eq!(woken(|_| ()), [1, 2, 3, 4, 5, 6, 7], "otherwise it is the lowest");
    assert!(different(|seed| woken(|sched| sched.be_random(seed))) > SEEDS / 2);
}

#[test]
fn p_that_is_stolen_from_first_is_drawn() {
    let stolen_from = |seed| {
        let (sched, mut ps) = seeded(8, seed);
        for (index, p) in ps.iter_mut().enumerate().skip(1) {
            // The second is in the run-next slot, which a thief tries last.
            (0..2).for_each(|_| _ = sched.start(p, g(index), None));
        }
        find(sched, &mut ps[0]).unwrap().g.kernel
    };
    assert!(different(stolen_from) > 1);
}

#[test]
fn p_is_acquired_once() {
    let (sched, _ps) = machine::<u32>(2);
    assert!(sched.acquire(0, 1).is_none());
    assert!(sched.acquire(2, 1).is_none());
}

/// A P with the ring of another M, as after a call that has left with ring and Gs
/// (`system=distributed`).
fn with_gs_left(left: &[u32], sched: &'static Sched<u32>, p: &mut P<u32>) -> Owner<u32> {
    let ring = Box::leak(Box::new(MRing::new()));
    let ring = sched.add_ring(ring).expect("new");
    for &name in left {
        let _ = sched.start(p, g(name), None);
    }
    p.swap_ring(ring)
}

#[test]
fn gs_in_a_ring_that_has_left_have_a_timer_and_a_turn() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let _left = with_gs_left(&[1, 2, 3], sched, p);
    let _ = sched.start(p, g(9), None);
    let mut run = find(sched, p).expect("just started");
    let mut seen = vec![run.g.kernel];
    for _ in 0..12 {
        assert!(sched.needs_timer(p), "the Gs that have left wait for {seen:?}");
        let _ = sched.expired(p, run.g);
        run = find(sched, p).expect("four Gs");
        seen.push(run.g.kernel);
    }
    for name in [1, 2, 3, 9] {
        assert!(seen.iter().filter(|&&ran| ran == name).count() >= 2, "{seen:?}");
    }
}

#[test]
fn g_that_yields_alone_lets_those_that_have_left_through() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    let yields = g(9);
    let _ = sched.start(p, yields, None);
    let run = find(sched, p).expect("just started");
    assert_eq!(run.g.kernel, 9);
    let _left = with_gs_left(&[1], sched, p);
    let others = (0..4).map(|_| after_yield(sched, p, yields)).find(|&ran| ran != 9);
    assert_eq!(others, Some(1), "the one that has left never runs");
}

/// Its P has cleared its mark meanwhile.
#[test]
fn displaced_g_that_left_with_its_ring_resumes_when_the_ring_comes_back() {
    let (sched, mut ps) = machine(1);
    let p = &mut ps[0];
    p.count_slice(); // at an odd one no ring that has left is searched
    let _ = sched.start(p, g(1), None);
    let run = find(sched, p).expect("just started");
    sched.displaced(p, run.g);
    let ring = Box::leak(Box::new(MRing::new()));
    let left = p.swap_ring(sched.add_ring(ring).expect("new"));
    for name in [5, 2] {
        let _ = sched.start(p, g(name), None);
    }
    for name in [2, 5] {
        let run = find(sched, p).expect("just started");
        assert_eq!(run.g.kernel, name);
        exit(sched, p, run.g);
    }
    let _spare = p.swap_ring(left);
    (0..2).for_each(|_| p.count_slice()); // at the fourth they are searched: none is left
    let yields = g(3);
    for g in [g(4), yields] {
        let _ = sched.start(p, g, None);
    }
    assert_eq!(find(sched, p).expect("just started").g.kernel, 3);
    assert_eq!(after_yield(sched, p, yields), 1, "the displaced one is before the ring");
}
