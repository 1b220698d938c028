//! Near and far CPUs, on a machine of two nodes with four CPUs each: who steals from whom, which
//! CPU is woken, where memory comes from. `near flat` wants a machine on which all are equally far.

use crate::check::{self, checks, go_on, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::inspect::{Distance, distance};
use runnext::internals::arch::{self, paging};
use runnext::internals::park;
use runnext::prelude::*;

runnext::main!(near, main);

fn main() {
    if args().first().is_some_and(|word| word == "flat") {
        return check::run(checks![flat: a_flat_machine_counts_nothing]);
    }
    check::run(checks![
        cpus_are_near_and_far,
        an_idle_core_of_the_wakers_node_is_woken,
        no_steal_crosses_nodes_while_the_own_node_has_work,
        a_node_without_work_steals_from_the_other,
        stacks_and_records_are_of_the_node_where_they_were_made,
    ]);
}

fn cpus_are_near_and_far() {
    let seen = [1, 2, 3, 4, 7].map(|cpu| distance(0, cpu));
    let near = [Distance::Core, Distance::Cache, Distance::Cache];
    assert_eq!(seen[..3], near.map(Some));
    assert_eq!(seen[3..], [Some(Distance::Remote); 2]);
    assert_eq!(distance(6, 7), Some(Distance::Core));
    assert_eq!(distance(0, num_cpus()), None, "there is no such CPU");
}

/// Steals over each distance so far, of all CPUs.
fn steals() -> [u64; 5] {
    let cpus = stats().cpus;
    core::array::from_fn(|level| cpus.iter().map(|cpu| cpu.steals_at[level]).sum())
}

const REMOTE: usize = Distance::Remote as usize;

/// A G on CPU 0 starts Gs while it computes; all other CPUs are idle each time.
fn an_idle_core_of_the_wakers_node_is_woken() {
    let (ran_on, wakes) = go_on(0, || {
        let wakes = || stats().cpus[0].wakes_at;
        let before = wakes();
        let ran_on: Vec<usize> = (0..20)
            .map(|_| {
                let all_others_idle = || stats().cpus[1..].iter().all(|cpu| cpu.is_idle);
                while !all_others_idle() {
                    check::spin();
                }
                let ran_on = go(current_cpu);
                while stats().cpus[1..].iter().all(|cpu| cpu.is_idle) {
                    check::spin();
                }
                ran_on.join().expect("no panic")
            })
            .collect();
        let after = wakes();
        (ran_on, core::array::from_fn(|i| after[i] - before[i]))
    })
    .join()
    .expect("no panic");
    let [core, cache, .., remote]: [u64; 5] = wakes;
    assert!(cache >= 20, "wakes by distance: {wakes:?}");
    assert_eq!((core, remote), (0, 0), "a sibling, or another node: {wakes:?}");
    assert!(ran_on.iter().all(|&cpu| cpu == 0 || distance(0, cpu) == Some(Distance::Cache)));
}

/// Keeps its node in work until it is told to stop: short Gs, of which there are always some.
fn keep_busy(cpu: usize, stop: &'static AtomicBool) -> JoinHandle<()> {
    static ALIVE: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
    const PLENTY: usize = 100;
    go_on(cpu, move || {
        let alive = &ALIVE[cpu];
        while !stop.load(Relaxed) {
            while alive.load(Relaxed) < PLENTY {
                alive.fetch_add(1, Relaxed);
                let _detached = go(move || {
                    check::spin();
                    alive.fetch_sub(1, Relaxed);
                });
            }
            check::spin();
        }
        wait_until(|| alive.load(Relaxed) == 0);
    })
}

fn no_steal_crosses_nodes_while_the_own_node_has_work() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let makers = [0, 4].map(|cpu| keep_busy(cpu, &STOP));
    let all_busy = || stats().cpus.iter().all(|cpu| !cpu.is_idle && cpu.queued > 0);
    // From CPU 0, whose maker is pinned there and shares its slices with this G.
    let seen = go_on(0, move || {
        wait_until(all_busy);
        let before = steals();
        wait_until(|| {
            let now = steals();
            let near: u64 = (0..REMOTE).map(|i| now[i] - before[i]).sum();
            near >= 300 || now[REMOTE] != before[REMOTE]
        });
        (before, steals())
    });
    let (before, after) = seen.join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(makers);
    assert_eq!(after[REMOTE], before[REMOTE], "{before:?} {after:?}");
    assert!(after[0] > before[0] && after[1] > before[1], "{before:?} {after:?}");
}

fn a_node_without_work_steals_from_the_other() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let before = steals()[REMOTE];
    let maker = keep_busy(0, &STOP);
    wait_until(|| steals()[REMOTE] > before + 10);
    STOP.store(true, Relaxed);
    join_all([maker]);
}

/// More Gs than were ever alive on that node: so they are new.
fn stacks_and_records_are_of_the_node_where_they_were_made() {
    for cpu in [0, 4] {
        static HERE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
        static ALL: AtomicUsize = AtomicUsize::new(0);
        const GS: usize = 2_000;
        HERE.iter().chain([&ALL]).for_each(|count| count.store(0, Relaxed));
        let node = arch::cpus()[cpu].topology.node;
        let count = move |address: usize, of: &AtomicUsize| {
            let phys = paging::translate(address as u64).expect("it has memory").phys;
            let mut memory = arch::node_memory().iter();
            let own = memory.any(|(range, near)| *near == node && range.contains(&phys));
            of.fetch_add(usize::from(own), Relaxed);
        };
        go_on(cpu, move || {
            let (gate, closed) = chan::bounded::<()>(1);
            let gs: Vec<_> = (0..GS)
                .map(|_| {
                    let closed = closed.clone();
                    Go::new().pin(cpu).spawn(move || {
                        let local = 0u64;
                        count(core::ptr::from_ref(&local).addr(), &HERE[0]);
                        let (g, _) = park::this().parts();
                        count(core::ptr::from_ref(g).addr(), &HERE[1]);
                        ALL.fetch_add(1, Relaxed);
                        assert!(closed.recv().is_err());
                    })
                })
                .collect();
            wait_until(|| ALL.load(Relaxed) == GS);
            drop(gate);
            join_all(gs.into_iter().map(|g| g.expect("memory for a G")));
        })
        .join()
        .expect("no panic");
        let here = HERE.each_ref().map(|count| count.load(Relaxed));
        println!("CPU {cpu}: of {GS} stacks and records {here:?} are of node {node}");
        // All but those that were made before, elsewhere.
        assert!(here.iter().all(|&n| n >= GS * 9 / 10), "{here:?}");
    }
}

fn a_flat_machine_counts_nothing() {
    static STOP: AtomicBool = AtomicBool::new(false);
    assert_eq!(distance(0, 1), None);
    let before: u64 = stats().cpus.iter().map(|cpu| cpu.steals).sum();
    let maker = keep_busy(0, &STOP);
    wait_until(|| stats().cpus.iter().map(|cpu| cpu.steals).sum::<u64>() > before + 10);
    STOP.store(true, Relaxed);
    join_all([maker]);
    assert_eq!(steals(), [0; 5]);
    assert!(stats().cpus.iter().all(|cpu| cpu.wakes_at == [0; 5]));
}
