//! What is seen of the scheduler from outside: `program=watch`.
//!
//! Accounts, histograms and `schedtrace`, against what the program knows that it
//! has done. Times are bounds that hold on any machine: a G that has run for a
//! while by the clock is charged for no less.

use crate::check::{self, checks};
use runnext::prelude::*;
use runnext::{schedtrace, trace};

runnext::main!(watch, main);

fn main() {
    check::run(checks![
        cpu_is_charged_for_what_ran_on_it,
        cpu_that_waits_is_idle,
        histograms_count_every_switch,
        line_says_what_is_queued_where,
        detail_names_every_p_and_m,
        gs_of_the_kernel_are_not_counted,
        events_are_not_started_without_a_port,
    ]);
}

const LONG: Duration = Duration::from_millis(30);

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        check::spin();
    }
}

fn cpu_is_charged_for_what_ran_on_it() {
    let cpu = num_cpus() - 1;
    let before = stats().cpus[cpu].run_ns;
    Go::new().pin(cpu).spawn(|| spin(LONG)).expect("memory").join().expect("no panic");
    // It may be here before the other CPU has put it away.
    check::wait_until(|| stats().cpus[cpu].run_ns >= before + LONG.as_nanos() as u64);
}

fn cpu_that_waits_is_idle() {
    let idle = || stats().cpus.iter().map(|cpu| cpu.idle_ns).sum::<u64>();
    let halts = || stats().cpus.iter().map(|cpu| cpu.halts).sum::<u64>();
    let (before, halted) = (idle(), halts());
    sleep(LONG);
    assert!(halts() > halted, "nobody has halted");
    assert!(idle() > before, "nobody was idle");
}

fn histograms_count_every_switch() {
    let _full = runnext::stats::FullAccounting::begin();
    // Of all that is counted: switches, and the same by time in the queue and by time on a CPU.
    let counts = || {
        let seen = stats();
        let switches: u64 = seen.cpus.iter().map(|cpu| cpu.switches).sum();
        let totals = [seen.queue_wait, seen.on_cpu]
            .map(|counted| counted.expect("full").iter().map(|bucket| bucket.count).sum::<u64>());
        [switches, totals[0], totals[1]]
    };
    // When all others are idle, the numbers stand still: this G does not yield between two readings.
    let settled = || loop {
        let before = counts();
        if counts() == before {
            return before;
        }
        yield_now();
    };
    let before = settled();
    let go_round = || (0..50).for_each(|_| yield_now());
    check::join_all((0..10).map(|_| go(go_round)));
    let after = settled();
    let [switches, queued, ran] = [0, 1, 2].map(|i| after[i] - before[i]);
    assert!(switches >= 500 && queued == switches, "{before:?}, then {after:?}");
    assert!(ran.abs_diff(switches) <= 1, "{before:?}, then {after:?}");
    let on_cpu = stats().on_cpu.expect("full");
    assert!(on_cpu.iter().all(|bucket| bucket.count > 0) && on_cpu.is_sorted_by_key(|b| b.from_ns));
}

/// The numbers after `key` in a list of Go's.
fn list(line: &str, key: &str) -> Vec<usize> {
    let (_, rest) = line.split_once(key).expect("the key");
    let (list, _) = rest.split_once(']').expect("an end");
    list.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn line_says_what_is_queued_where() {
    let line = schedtrace::line();
    assert!(line.contains(&format!(" gomaxprocs={} ", gomaxprocs())), "{line}");
    assert_eq!(list(&line, "runqueue=0 [ ").len(), gomaxprocs(), "{line}");
    let ticks: usize = list(&line, "schedticks=[ ").iter().sum();
    assert!(ticks > 0, "{line}");
    let threads = format!(" threads={} ", stats().ms.created);
    assert!(line.contains(&threads), "{line}, not{threads}");
}

fn detail_names_every_p_and_m() {
    let text = schedtrace::detail();
    let count = |prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
    assert_eq!(count("SCHED "), 1, "{text}");
    assert_eq!(count("  P"), gomaxprocs(), "{text}");
    let spare = text.lines().find(|line| line.contains(" more Ms: ")).unwrap_or_default();
    let spare = spare.split_whitespace().next().map_or(0, |n| n.parse().expect("a number"));
    assert_eq!(count("  M") as u64 + spare, stats().ms.created, "{text}");
    assert!(text.contains("status=2() m="), "somebody runs: {text}");
    // Main waits for this check, or is about to: it may have started it and not
    // have come to its join yet.
    check::wait_until(|| schedtrace::detail().contains("status=4(join)"));
}

fn gs_of_the_kernel_are_not_counted() {
    let gs = runnext::tasks::gs();
    assert!(gs.iter().any(|g| g.name == "schedtrace"), "who prints: {gs:?}");
    // A G that has left its result is counted until it has left its CPU.
    check::wait_until(|| num_goroutines() == 2); // main and this one
}

fn events_are_not_started_without_a_port() {
    assert_eq!(trace::start(), Err(trace::StartError::NoPort));
    assert!(!trace::stop());
}
