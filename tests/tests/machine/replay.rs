//! Under virtual time two runs are alike to the event.
//!
//! The guest runs a bit of everything (`tests/guest/src/mix.rs`), with the simulated
//! device and scripted input, and prints, for each CPU, how many scheduler events there were and a hash over all of them,
//! times included, from the end of bring-up on.

use tests::guest::Boot;

/// Virtual time, and frequencies that are stated: QEMU counts an instruction a
/// nanosecond, and drives the local APICs' timers with 1 GHz, too.
const FIXED: &str = "program=mix log=warn console=serial tsc=1000 lapic=1000 trace=hash";

/// The `TRACE` lines: CPU, events, those overwritten, hash.
pub fn trace(name: &str, cpus: usize, more: &str, args: &str) -> Vec<String> {
    let outcome = Boot::guest(format!("replay-{name}-{cpus}"))
        .smp(cpus)
        .icount("shift=0,sleep=off")
        .cmdline(&format!("{FIXED} {more} -- {args}"))
        .limit(300)
        .run();
    outcome.assert_ok();
    let lines: Vec<_> =
        outcome.lines.iter().filter(|line| line.starts_with("TRACE ")).cloned().collect();
    assert_eq!(lines.len(), cpus, "a line for each CPU: {lines:#?}");
    lines
}

#[track_caller]
fn two_runs_are_alike(cpus: usize) {
    let [first, second] = ["first", "second"].map(|name| trace(name, cpus, "seed=1", "100"));
    assert_eq!(first, second, "two runs differ; trace=dump shows where");
}

#[test]
fn two_runs_on_one_cpu_give_the_same_events() {
    two_runs_are_alike(1);
}

#[test]
#[ignore = "make test-full"]
fn two_runs_on_two_and_on_four_cpus_give_the_same_events() {
    two_runs_are_alike(2);
    two_runs_are_alike(4);
}

#[test]
fn two_runs_on_eight_cpus_give_the_same_events() {
    two_runs_are_alike(8);
}

/// Also shows that the comparison can fail.
#[test]
fn seed_and_order_have_an_effect_on_events() {
    let runs = ["seed=1", "seed=2", "seed=1 order=steal-first"];
    let [one, two, other] = runs.map(|more| trace("other", 4, more, "100"));
    assert_ne!(one, two, "the seed has no effect");
    assert_ne!(one, other, "the order has no effect");
}

/// How many events each CPU has noted while a thousand Gs start each other, in turns of so
/// many microseconds.
fn events_in_turns(turns_us: u32) -> Vec<u64> {
    let words = format!("program=skynet log=warn console=serial turns={turns_us} trace=hash -- 3");
    let outcome =
        Boot::new(format!("turns-{turns_us}")).smp(8).cmdline(&words).virtual_time().run();
    outcome.assert_ok();
    let lines = outcome.lines.iter().filter_map(|line| line.strip_prefix("TRACE "));
    lines.filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect()
}

/// Without `turns=` the first CPU has the machine until it waits, and two or three do all of
/// it (3,683 and 425 events in QEMU 7.2, 2,566 and 1,572 in QEMU 10, which would be shared).
#[test]
fn short_turns_let_all_cpus_work_side_by_side() {
    let worked = |events: &[u64]| events.iter().filter(|&&events| events >= 20).count();
    let [long, short] = [0, 50].map(events_in_turns);
    assert_eq!((short.len(), worked(&short)), (8, 8), "{short:?}");
    assert!(worked(&long) < 8, "turns= changes nothing: {long:?}");
}

/// What the device answers and when something is typed is part of what is compared.
#[test]
fn device_and_script_have_an_effect_on_events() {
    let runs = ["100 7 40", "100 8 40", "100 7 41"];
    let [one, device, typist] = runs.map(|args| trace("script", 1, "seed=1", args));
    assert_ne!(one, device, "the device has no effect");
    assert_ne!(one, typist, "what is typed has no effect");
}
