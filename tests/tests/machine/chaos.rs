//! Under chaos nothing is lost, and the same seed gives the same run.
//!
//! A few seeds of the sweep; `make chaos` has as many as one likes.

use tests::guest::Boot;
use tests::sweep::Run;

use crate::replay;

/// Three programs, on 8, 4 and 1 CPUs, that need few seconds each.
#[test]
fn all_counts_are_right_under_chaos() {
    for (seed, program, cpus) in [(1, "syncing", 8), (25, "unwinding", 4), (54, "invariants", 1)] {
        let run = Run::of(seed);
        assert_eq!((run.program, run.cpus), (program, cpus), "the sweep has changed");
        run.run().assert_ok();
    }
}

/// The `TRACE` lines of a run under that chaos.
fn trace(name: &str, cpus: usize, chaos: &str) -> Vec<String> {
    replay::trace(&format!("chaos-{name}"), cpus, chaos, "100")
}

#[track_caller]
fn same_seed_gives_the_same_events(cpus: usize) {
    let first = trace("first", cpus, "seed=1 chaos=5");
    let again = trace("again", cpus, "seed=1 chaos=5");
    assert_eq!(first, again, "two runs differ; trace=dump shows where");
    let other = trace("other", cpus, "seed=1 chaos=6");
    assert_ne!(first, other, "the seed has no effect");
}

#[test]
fn same_seed_gives_the_same_events_on_one_cpu_and_another_others() {
    same_seed_gives_the_same_events(1);
}

#[test]
fn same_seed_gives_the_same_events_on_eight_cpus_and_another_others() {
    same_seed_gives_the_same_events(8);
}

/// Who has a failure has what it takes to repeat it.
#[test]
fn failure_names_its_seed() {
    for cpus in [1, 8] {
        let boot = Boot::guest(format!("chaos-note-{cpus}")).smp(cpus);
        let outcome = boot.cmdline("program=fault chaos=77 -- exit").run();
        outcome.assert_code(7);
        outcome.assert_line("chaos=77");
    }
}
