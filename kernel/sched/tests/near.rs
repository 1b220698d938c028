//! Near and far: from whom a P steals, which CPU is woken, where dead Gs go.
#![cfg(not(any(loom, feature = "sim")))]

mod common;

use common::{exit, find, g, machine, park};
use sched::near::{self, Cpus, Distance, LEVELS, Row, Seat};
use sched::{G, P, RUNQ_CAPACITY, Sched, Wake};
use std::collections::BTreeSet;

/// So many CPUs: two threads to a core, two cores to a cache, four CPUs to a node.
fn seats(cpus: u32) -> Vec<Seat> {
    let seat = |i| Seat { node: i / 4, package: i / 4, cache: i / 4, core: i / 2 };
    (0..cpus).map(seat).collect()
}

type Machine = (&'static Sched<u32>, Vec<P<u32>>, &'static [Row]);

/// A machine with these seats.
fn seated(seats: &[Seat]) -> Machine {
    let n = seats.len();
    let cores: Vec<Cpus> = (0..n).map(|i| Cpus::of_core(seats, i)).collect();
    let cores = cores.leak();
    let rows: Vec<Row> = (0..n).map(|i| Row::new(seats, i, cores)).collect();
    let rows: &'static [Row] = rows.leak();
    let (sched, mut ps) = machine(n);
    ps.iter_mut().zip(rows).for_each(|(p, row)| sched.seat(p, row));
    (sched, ps, rows)
}

/// Starts so many Gs on a P: all but the last are in its ring, which is run-next.
fn start(sched: &'static Sched<u32>, p: &mut P<u32>, n: u32) -> Vec<&'static G<u32>> {
    let gs: Vec<_> = (0..n).map(g).collect();
    for g in &gs {
        let _ = sched.start(p, g, None);
    }
    gs
}

/// What P 0 takes, one steal after another, by victim; each G ends at once.
fn victims(sched: &'static Sched<u32>, p: &mut P<u32>) -> Vec<usize> {
    let mut victims = vec![];
    while let Some(run) = find(sched, p) {
        victims.extend(p.take_stolen().map(|(victim, _)| victim));
        exit(sched, p, run.g);
    }
    victims
}

#[test]
fn a_thief_goes_from_near_to_far_and_leaves_its_node_last() {
    let (sched, mut ps, rows) = seated(&seats(8));
    for p in [5, 2, 1] {
        start(sched, &mut ps[p], 2); // one in the ring, one before it
    }
    let taken = victims(sched, &mut ps[0]);
    // The rings of its node, near to far; then what is before these rings; then the other node.
    assert_eq!(taken, [1, 2, 1, 2, 5, 5]);
    assert_eq!(rows[0].steals(), [2, 2, 0, 0, 2]);
}

#[test]
fn no_steal_crosses_nodes_while_the_own_node_has_a_g() {
    for busy in 1..4 {
        let (sched, mut ps, rows) = seated(&seats(8));
        start(sched, &mut ps[4], 60);
        start(sched, &mut ps[6], 60);
        let own = start(sched, &mut ps[busy], 100).len();
        let mut ran = 0;
        while ran < own {
            assert_eq!(rows[0].steals()[Distance::Remote as usize], 0, "after {ran} Gs");
            let run = find(sched, &mut ps[0]).expect("there are some");
            exit(sched, &mut ps[0], run.g);
            ran += 1;
        }
        let _ = find(sched, &mut ps[0]).expect("the other node's");
        assert_eq!(rows[0].steals()[Distance::Remote as usize], 1);
    }
}

#[test]
fn the_victims_of_one_level_are_in_random_order() {
    let mut firsts = BTreeSet::<usize>::new();
    for round in 0..64 {
        let (sched, mut ps, _) = seated(&seats(8));
        (0..round).for_each(|_| drop(victims(sched, &mut ps[0])));
        for p in [4, 5, 6, 7] {
            start(sched, &mut ps[p], 2);
        }
        firsts.extend(victims(sched, &mut ps[0]).first());
    }
    assert_eq!(firsts.len(), 4, "{firsts:?}");
}

/// The CPUs that P `by` wakes one after another, when these halt: each is claimed, and finds
/// nothing to spin for.
fn woken(halted: &[usize], by: usize, times: usize) -> (Vec<usize>, [u64; LEVELS]) {
    let (sched, mut ps, rows) = seated(&seats(8));
    for &p in halted {
        park(sched, &mut ps[p]);
    }
    let mut woken = vec![];
    for _ in 0..times {
        let Wake::Cpu(cpu) = sched.start(&mut ps[by], g(0), None) else { panic!("none") };
        woken.push(cpu);
        // It takes a G, so it spins no more; what it would wake next is the waker's again.
        let run = find(sched, &mut ps[cpu]).expect("the G it was woken for");
        if let Wake::Cpu(next) = run.wake {
            woken.push(next);
            let _ = find(sched, &mut ps[next]);
        }
    }
    (woken, rows[by].wakes())
}

#[test]
fn an_idle_core_of_the_own_node_is_woken_before_the_sibling_and_other_nodes_last() {
    let (order, wakes) = woken(&[1, 2, 3, 4, 6, 7], 0, 1);
    assert_eq!(order[0], 2, "the whole core, not the sibling of the waker");
    assert_eq!(wakes, [0, 1, 0, 0, 0]);
    // No whole core is idle in the node: the sibling, which is nearest.
    assert_eq!(woken(&[1, 2, 4, 5], 0, 1).0[0], 1);
    // None is idle in the node: a whole core of the other.
    let (order, wakes) = woken(&[4, 6, 7], 0, 1);
    assert_eq!(order[0], 6);
    assert_eq!(wakes, [0, 0, 0, 0, 1]);
    assert_eq!(woken(&[5], 0, 1).0[0], 5, "any idle CPU rather than none");
}

#[test]
fn a_p_beyond_the_limit_is_not_woken_and_its_core_counts_as_idle() {
    let (sched, mut ps, _) = seated(&seats(8));
    let _ = sched.set_limit(7);
    for p in [1, 2, 6] {
        park(sched, &mut ps[p]); // 3 is busy, 7 beyond the limit
    }
    let wake = sched.start(&mut ps[4], g(0), None);
    assert_eq!(wake, Wake::Cpu(6));
}

#[test]
fn dead_gs_are_recycled_on_their_node() {
    let (sched, mut ps, _) = seated(&seats(8));
    for _ in 0..200 {
        sched.keep_dead(&mut ps[1], g(7));
    }
    let stored = sched.stored_dead();
    assert!(stored > 0);
    assert!(sched.take_dead(&mut ps[4]).is_none(), "the other node has none");
    assert_eq!(sched.stored_dead(), stored);
    let taken = std::iter::from_fn(|| sched.take_dead(&mut ps[3])).count();
    assert_eq!(taken, stored, "the P of the same node takes what the other does not keep");
}

/// Eight Ps with rows of two CPUs, and all of them the row of CPU 0.
fn wrongly_seated() -> (&'static Sched<u32>, Vec<P<u32>>) {
    let few = seats(2);
    let cores = vec![Cpus::of_core(&few, 0), Cpus::of_core(&few, 1)].leak();
    let (sched, mut ps) = machine(8);
    for p in &mut ps {
        sched.seat(p, Box::leak(Box::new(Row::new(&few, 0, cores))));
    }
    (sched, ps)
}

#[test]
fn a_row_that_is_wrong_hides_no_g() {
    for thief in 0..8 {
        let (sched, mut ps) = wrongly_seated();
        for victim in (0..8).filter(|&p| p != thief) {
            start(sched, &mut ps[victim], 1);
        }
        let mut taken = victims(sched, &mut ps[thief]);
        taken.sort_unstable();
        assert!(taken.into_iter().eq((0..8).filter(|&p| p != thief)));
    }
}

#[test]
fn a_row_that_is_wrong_hides_no_idle_cpu() {
    for idle in 0..8 {
        for waker in (0..8).filter(|&p| p != idle) {
            let (sched, mut ps) = wrongly_seated();
            park(sched, &mut ps[idle]);
            assert_eq!(sched.start(&mut ps[waker], g(0), None), Wake::Cpu(idle));
        }
    }
}

#[test]
fn a_full_machine_of_one_node_steals_within_it() {
    let cpus = sched::MAX_P as u32;
    let (sched, mut ps, rows) = seated(&seats(cpus));
    let last = ps.len() - 1;
    start(sched, &mut ps[last - 1], RUNQ_CAPACITY as u32 / 2);
    start(sched, &mut ps[0], RUNQ_CAPACITY as u32 / 2);
    let _ = find(sched, &mut ps[last]).expect("there are some");
    assert_eq!(rows[last].steals(), [1, 0, 0, 0, 0]);
}

#[test]
fn distances_are_symmetric_and_flat_machines_are_seen() {
    let all = seats(16);
    for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
        assert_eq!(a.distance(b), b.distance(a));
    }
    assert!(!near::is_flat(&all));
    let cores = |n| (0..n).map(|core| Seat { core, ..Seat::default() }).collect::<Vec<_>>();
    assert!(near::is_flat(&cores(64)) && near::is_flat(&cores(1)) && near::is_flat(&[]));
    let packages: Vec<_> = (0..4).map(|i| Seat { package: i, ..Seat::default() }).collect();
    assert!(near::is_flat(&packages), "all equally far, if farther");
    assert_eq!(Distance::ALL.map(|d| d as usize), [0, 1, 2, 3, 4]);
}

#[test]
fn seats_that_cannot_be_are_named() {
    let mut odd = seats(8);
    assert_eq!(near::check(&odd), Ok(()));
    odd[1].node = 9;
    assert_eq!(near::check(&odd), Err("two threads of one core are in different nodes"));
    odd[1] = Seat { cache: 9, ..odd[0] };
    assert!(near::check(&odd).is_err());
    assert!(near::check(&vec![Seat::default(); sched::MAX_P + 1]).is_err());
}
