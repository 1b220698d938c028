//! Under chaos nothing is lost, and the same seed gives the same run.
//!
//! A few seeds of the sweep; `make chaos` has as many as one likes.

use tests::guest::Boot;
use tests::sweep::Run;

/// Three programs, on 8, 4 and 1 CPUs, that need few seconds each.
#[test]
fn all_counts_are_right_however_unkind_the_machine() {
    for seed in [1, 8, 28] {
        Run::of(seed).run().assert_ok();
    }
}

/// The `TRACE` lines of a run under virtual time: CPU, events, those overwritten,
/// hash.
fn trace(name: &str, chaos: &str) -> Vec<String> {
    let words = "program=mix log=warn console=serial tsc=1000 lapic=1000 trace=hash";
    let outcome = Boot::guest(format!("chaos-replay-{name}"))
        .smp(4)
        .icount("shift=0,sleep=off")
        .cmdline(&format!("{words} {chaos} -- 100"))
        .limit(300)
        .run();
    outcome.assert_ok();
    let lines: Vec<_> =
        outcome.lines.iter().filter(|line| line.starts_with("TRACE ")).cloned().collect();
    assert_eq!(lines.len(), 4, "a line for each CPU: {lines:#?}");
    lines
}

#[test]
fn same_seed_gives_the_same_events_and_another_others() {
    let first = trace("first", "seed=1 chaos=5");
    assert_eq!(first, trace("again", "seed=1 chaos=5"), "two runs differ; trace=dump shows where");
    assert_ne!(first, trace("other", "seed=1 chaos=6"), "the seed has no effect");
}

/// Who has a failure has what it takes to repeat it.
#[test]
fn failure_names_its_seed() {
    let outcome = Boot::guest("chaos-note").smp(2).cmdline("program=fault chaos=77 -- exit").run();
    outcome.assert_code(7);
    outcome.assert_line("chaos=77");
}
