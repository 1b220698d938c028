//! What can be counted in slices and instructions: fairness, bounds, costs.
//!
//! All of it under `-icount shift=0,sleep=off`, where an instruction is a
//! nanosecond and nothing but the guest takes time.

use std::sync::LazyLock;

use tests::guest::Boot;
use tests::outcome::Outcome;

/// The most that a hog may have beyond another, in slices.
const FAIR: u64 = 2;
/// The most that a yield may cost, in instructions.
const YIELD_BUDGET: u64 = 160;

fn boot(name: String, cmdline: &str) -> Boot {
    Boot::guest(name).icount("shift=0,sleep=off").cmdline(cmdline).limit(300)
}

static BOUNDS: LazyLock<Outcome> =
    LazyLock::new(|| boot("bounds".into(), "program=bounds slice=1").smp(4).run());

guest_tests!(BOUNDS => bounds);

#[test]
fn all_bounds_hold_on_four_cpus() {
    BOUNDS.assert_ok();
}

#[test]
fn all_bounds_hold_on_one_cpu() {
    boot("bounds-1".into(), "program=bounds slice=1").run().assert_ok();
}

/// With `slice=off` only a G that yields or waits lets others run, a sleeper whose time has come
/// among them.
#[test]
fn without_slices_a_tight_loop_delays_all_others() {
    for (words, ran) in [("", 2), ("slice=off", 0)] {
        let name = format!("cooperative-{ran}");
        let outcome = boot(name, &format!("program=cooperative {words}")).run();
        outcome.assert_ok();
        outcome.assert_line(&format!("COOPERATIVE {ran} ran while main computed"));
    }
}

/// Slices of the hog with the fewest and of that with the most.
fn slices(hogs: usize, placement: &str, seed: u64) -> (u64, u64) {
    let name = format!("fair-{hogs}-{placement}-{seed}");
    let outcome =
        boot(name, &format!("program=fair seed={seed} -- {hogs} {placement}")).smp(4).run();
    outcome.assert_ok();
    let start = format!("FAIR {hogs} hogs: ");
    let line = outcome.lines.iter().find_map(|line| line.strip_prefix(&start));
    let numbers: Vec<u64> =
        line.unwrap_or("").split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [min, max, _all] => (min, max),
        _ => panic!("the guest said nothing about {hogs} hogs\n{outcome}"),
    }
}

#[track_caller]
fn hogs_get_alike(hogs: usize, placement: &str, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let (min, max) = slices(hogs, placement, seed);
        assert!(min > 0, "a hog did not run at all: {hogs} hogs, {placement}, seed {seed}");
        assert!(max - min <= FAIR, "{min} to {max} slices: {hogs} hogs, {placement}, seed {seed}");
    }
}

#[test]
fn sixteen_hogs_from_one_p_get_alike() {
    hogs_get_alike(16, "one", [1]);
}

#[test]
#[ignore = "make test-full"]
fn sixteen_hogs_from_all_ps_get_alike() {
    hogs_get_alike(16, "spread", [2]);
}

#[test]
#[ignore = "make test-full"]
fn seventeen_hogs_from_one_p_get_alike() {
    hogs_get_alike(17, "one", [2]);
}

#[test]
fn seventeen_hogs_from_all_ps_get_alike() {
    hogs_get_alike(17, "spread", [1]);
}

#[test]
#[ignore = "make test-full"]
fn sixteen_hogs_from_one_p_get_alike_for_twenty_seeds() {
    hogs_get_alike(16, "one", 1..=20);
}

#[test]
#[ignore = "make test-full"]
fn sixteen_hogs_from_all_ps_get_alike_for_twenty_seeds() {
    hogs_get_alike(16, "spread", 1..=20);
}

#[test]
#[ignore = "make test-full"]
fn seventeen_hogs_from_one_p_get_alike_for_twenty_seeds() {
    hogs_get_alike(17, "one", 1..=20);
}

#[test]
#[ignore = "make test-full"]
fn seventeen_hogs_from_all_ps_get_alike_for_twenty_seeds() {
    hogs_get_alike(17, "spread", 1..=20);
}

#[test]
fn a_yield_stays_within_its_budget() {
    let outcome = boot("cost".into(), "program=cost").run();
    outcome.assert_ok();
    let cost = outcome.lines.iter().find_map(|line| line.strip_prefix("YIELD ")?.parse().ok());
    match cost {
        Some(1..=YIELD_BUDGET) => {}
        Some(cost) => panic!("a yield costs {cost} instructions, {YIELD_BUDGET} are allowed"),
        None => panic!("the guest said nothing about the cost of a yield\n{outcome}"),
    }
}

/// What it costs to find one of so many sleepers, to kill it, and to end it with its program.
fn killing_one_of(count: usize) -> [f64; 3] {
    let name = format!("masskill-{count}");
    let outcome = boot(name, &format!("program=masskill -- {count}")).run();
    outcome.assert_ok();
    ["FIND ", "KILL ", "STOP "].map(|start| {
        let said = outcome.lines.iter().find_map(|line| line.strip_prefix(start));
        said.and_then(|ns| ns.parse().ok()).unwrap_or_else(|| panic!("no {start}\n{outcome}"))
    })
}

#[test]
fn a_kill_costs_the_same_however_many_gs_there_are() {
    let (few, many) = (killing_one_of(500), killing_one_of(4_000));
    println!("ns for one of 500: {few:?}; of 4,000: {many:?}");
    for (what, (few, many)) in ["find", "kill", "stop"].into_iter().zip(few.into_iter().zip(many)) {
        assert!(many < few * 1.5, "{what}: {few} ns for one of 500, {many} for one of 4,000");
    }
    assert!(many[1] < 500_000.0, "a kill takes {} instructions", many[1]);
}
