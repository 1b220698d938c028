//! What the machine says about itself: streams of events, accounts, schedtrace.

use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use tests::guest::{Boot, Freeze};
use tests::outcome::Outcome;
use trace::check::{Agreement, compare};
use trace::decode::{Stream, decode};
use trace::model::Model;
use trace::wire::Kind;

static WATCH: LazyLock<Outcome> = LazyLock::new(|| watch(8).run());

/// A period that is never over: the G that prints is there, and prints once.
fn watch(cpus: usize) -> Boot {
    let cmdline = "program=watch schedtrace=86400000";
    Boot::guest(format!("watch-{cpus}")).series(cpus).cmdline(cmdline)
}

guest_tests!(WATCH, watch => watch);

/// Boots with a stream, and reads it.
fn traced(name: &str, cpus: usize, cmdline: &str) -> (Outcome, Stream) {
    let name = format!("trace-{name}-{cpus}");
    let file = boot::scratch().join(&name);
    let outcome = Boot::guest(name).smp(cpus).debugcon(&file).cmdline(cmdline).run();
    let bytes = fs::read(&file).expect("QEMU makes the file");
    let stream = decode(&bytes).unwrap_or_else(|error| panic!("{error}\n{outcome}"));
    let warnings: Vec<_> = stream.warnings.lines().collect();
    assert!(warnings.is_empty(), "{warnings:#?}\n{outcome}");
    (outcome, stream)
}

#[track_caller]
fn events_agree(cpus: usize) {
    let cmdline = "program=mix trace=stream events=65536 -- 100";
    let (outcome, stream) = traced("agree", cpus, cmdline);
    outcome.assert_ok();
    assert_eq!(stream.exit, Some(0));
    let model = Model::new(&stream);
    match compare(&model) {
        Agreement::Full(compared) => assert_eq!(compared, 8 * cpus),
        other => panic!("{other:#?}"),
    }
    let named = |name: &str| stream.names.iter().any(|known| known.name == name);
    assert!(named("mix") && named("trace"), "{:?}", stream.names);
    let parks = stream.tracks.iter().flat_map(|track| &track.events);
    let received = parks.filter_map(|event| event.before()).filter(|&(kind, _)| kind == Kind::Park);
    assert!(received.clone().any(|(_, reason)| reason == 2), "nobody waits for a channel");
}

#[test]
fn events_agree_with_counters_on_one_cpu() {
    events_agree(1);
}

#[test]
fn events_agree_with_counters_on_eight_cpus() {
    events_agree(8);
}

#[test]
fn what_does_not_fit_is_lost_and_said_so() {
    let (outcome, stream) = traced("lost", 2, "program=mix trace=stream events=16 -- 100");
    outcome.assert_ok();
    assert!(stream.lost() > 0, "a ring of 16 is too small");
    for (track, counters) in stream.tracks.iter().zip(&stream.counters) {
        let counters = counters.expect("counted");
        assert_eq!(counters.lost, track.lost);
        assert_eq!(counters.events, track.events.len() as u64 + track.lost);
    }
}

#[test]
fn stream_of_a_kernel_that_panics_has_an_end() {
    let (outcome, stream) = traced("panic", 2, "program=fault trace=stream -- panic-irqs-off");
    assert_eq!(stream.exit, Some(101), "{outcome}");
    assert!(stream.events() > 0);
}

#[test]
fn trace_without_a_port_says_so_and_the_program_runs() {
    let outcome = Boot::guest("trace-no-port").cmdline("program=mix trace=stream -- 20").run();
    outcome.assert_ok();
    let said = outcome.lines.iter().any(|line| line.contains("trace: no debug console"));
    assert!(said, "{outcome}");
}

/// For how long a CPU was not running at the longest, in a run of hogs that is frozen once for
/// three seconds.
fn longest_elsewhere(name: &str, freeze: Freeze) -> Duration {
    let file = tests::files::trace_of(name);
    let boot = Boot::new(name)
        .smp(1)
        .debugcon(&file)
        .cmdline("program=hog trace=stream events=65536 schedtrace=100 -- 4");
    // Hogs run by then. A report that is late says 301ms: the first one after 300 ms will do.
    let boot = boot.frozen_after("SCHED 3", freeze, Duration::from_secs(3));
    boot.run().assert_ok();
    let stream = decode(&fs::read(&file).expect("QEMU makes the file")).expect("a stream");
    let model = Model::new(&stream);
    let longest = model.cpus[0].elsewhere.iter().map(|time| time.ns()).max();
    Duration::from_nanos(longest.unwrap_or(0))
}

#[test]
fn what_the_host_did_elsewhere_is_seen_in_the_trace() {
    let longest = longest_elsewhere("trace-process-stopped", Freeze::Process);
    assert!(longest > Duration::from_millis(2900), "{longest:?}");
}

/// Its clock stands still meanwhile: nothing of it is late.
#[test]
fn a_machine_that_is_paused_is_not_the_host_elsewhere() {
    let longest = longest_elsewhere("trace-machine-stopped", Freeze::Machine);
    assert!(longest < Duration::from_millis(2000), "{longest:?}");
}

/// In virtual time a run gives the same bytes again, on several CPUs too.
#[test]
fn a_trace_in_virtual_time_repeats() {
    let run = |name: &str| {
        let file = tests::files::trace_of(name);
        let cmdline = "program=skynet trace=stream events=262144";
        Boot::new(name).smp(4).virtual_time().debugcon(&file).cmdline(cmdline).run().assert_ok();
        fs::read(&file).expect("QEMU makes the file")
    };
    let [first, second] = ["trace-repeat-1", "trace-repeat-2"].map(run);
    assert!(first.len() > 100_000 && first == second, "{} and {}", first.len(), second.len());
}

/// It waits to be let go with interrupts on, while the boot CPU may switch events on already.
#[test]
fn a_cpu_that_is_slow_to_come_up_notes_its_events() {
    for cpus in [1, 2] {
        let boot = Boot::guest(format!("trace-early-{cpus}")).smp(cpus);
        let outcome = boot.cmdline("program=early trace=on").run();
        outcome.assert_ok();
        outcome.assert_line("an early interrupt was noted");
    }
}

/// A wrong frequency of the timers is found out: with it no CPU had a timer, and the end of
/// a traced run, which sleeps, never came.
#[test]
fn traced_run_with_a_wrong_lapic_ends() {
    let name = "trace-wrong-lapic";
    let file = tests::files::trace_of(name);
    let cmdline = "program=mix tsc=1000 lapic=62 trace=stream -- 20";
    let boot = Boot::guest(name).smp(2).icount("shift=0,sleep=off").debugcon(&file);
    let outcome = boot.cmdline(cmdline).run();
    outcome.assert_ok();
    outcome.assert_line("timer: lapic= states 62.0 MHz, the counter runs at 1000.0 MHz");
}

/// No CPU has a timer: the run neither sleeps nor halts for a time, so it ends.
#[test]
fn traced_run_without_a_timer_ends() {
    for trace in ["stream", "hash"] {
        let name = format!("trace-no-timer-{trace}");
        let file = tests::files::trace_of(&name);
        let check = "join_gives_the_panic_message"; // a program that does not sleep
        let cmdline = format!("program=selftest timer=none trace={trace} -- {check}");
        let outcome = Boot::guest(&name).smp(2).debugcon(&file).cmdline(&cmdline).run();
        outcome.assert_ok();
        outcome.assert_line("timer: CPU 0 has no timer that fires");
    }
}

/// Instructions of a yield, with the trace on or off.
fn yield_costs(trace: &str) -> u64 {
    let outcome = Boot::guest(format!("trace-cost-{trace}"))
        .icount("shift=0,sleep=off")
        .cmdline(&format!("program=cost trace={trace}"))
        .limit(300)
        .run();
    outcome.assert_ok();
    let cost = outcome.lines.iter().find_map(|line| line.strip_prefix("YIELD ")?.parse().ok());
    cost.unwrap_or_else(|| panic!("nothing about a yield\n{outcome}"))
}

/// While it is on, all that a switch can count is counted, too.
#[test]
fn trace_adds_eighty_instructions_to_a_yield_at_most() {
    let [off, on] = ["off", "on"].map(yield_costs);
    assert!(on > off, "it notes nothing: {off}, then {on}");
    assert!(on <= off + 80, "{off} instructions without, {on} with");
}

#[test]
fn schedtrace_comes_in_its_period_of_virtual_time() {
    let outcome = Boot::guest("schedtrace")
        .smp(2)
        .icount("shift=0,sleep=off")
        .cmdline("program=mix console=serial schedtrace=20 scheddetail=1 -- 40")
        .limit(300)
        .run();
    outcome.assert_ok();
    let times: Vec<u64> = outcome
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("SCHED ")?.split_once("ms: ")?.0.parse().ok())
        .collect();
    assert!(times.len() >= 2, "{outcome}");
    assert_eq!(times[0], 0);
    for (index, time) in times.iter().enumerate() {
        // Not before its time; when after, a busy CPU says.
        assert!(*time >= 20 * index as u64, "{times:?}");
    }
    for start in ["  P0: status=1 ", "  P1: status=", "  M0: p=0 ", "  G1: status="] {
        let is_there = outcome.lines.iter().any(|line| line.starts_with(start));
        assert!(is_there, "no {start:?}\n{outcome}");
    }
}
