//! The variant of lab 8: four workloads that students do not see.
#![allow(missing_docs, reason = "the machine is that of the lab's tests")]

#[path = "lab.rs"]
mod lab;

use lab::{Does, Workload, both, report};

fn hidden() -> Vec<Workload> {
    let sleeper = |work_us, sleep_us| Does::Sleeper { work_us, sleep_us };
    let workload =
        |name, cpus, gs: &[(usize, Does)]| Workload { name, cpus, gs: gs.to_vec(), seed: 7 };
    vec![
        workload("crowd", 8, &[(400, sleeper(200, 30_000)), (24, Does::Hog)]),
        workload("one-cpu", 1, &[(12, sleeper(250, 8_000)), (4, Does::Hog)]),
        workload("chains", 8, &[(24, Does::Pair { work_us: 60 }), (20, Does::Hog)]),
        workload("yielders", 4, &[(12, Does::Yielder { work_us: 300 }), (30, sleeper(100, 6_000))]),
    ]
}

#[test]
fn contest() {
    report(&hidden(), "hidden");
}

#[test]
fn readied_gs_wait_for_half_as_long() {
    for workload in hidden().iter().filter(|one| ["one-cpu", "chains"].contains(&one.name)) {
        let [own, base] = both(workload);
        assert!(2 * own.p99_us <= base.p99_us, "{}: {own:?}, {base:?}", workload.name);
    }
}
