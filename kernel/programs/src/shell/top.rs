//! `top`: the Ps, live. A frame is made of two readings, half a second apart.
//!
//! Events between two readings are counted, not sampled: switches, steals and preemptions are
//! exact. Time on a CPU is counted when a G leaves it, and idle time when it ends; so a
//! period that began before the first reading is attributed by the P's present state.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use runnext::console::{self, InputError};
use runnext::inspect::{Distance, distance};
use runnext::prelude::*;
use runnext::stats::{PInfo, Stats};

/// The time between two frames.
const PERIOD: Duration = Duration::from_millis(500);
/// Columns of a bar.
const BAR: u64 = 20;
const LEVELS: usize = Distance::ALL.len();

/// Shows frames until a key is pressed.
pub fn run() {
    let _full = runnext::stats::FullAccounting::begin();
    console::write("\x1b[2J");
    let mut before = Reading::take();
    loop {
        match console::read_until(&mut [0; 16], Instant::now() + PERIOD) {
            Err(InputError::TimedOut) => {}
            Ok(_) | Err(_) => return,
        }
        let after = Reading::take();
        console::write(&frame(&before, &after));
        before = after;
    }
}

/// All values of a frame, at one moment.
struct Reading {
    at: Instant,
    stats: Stats,
}

impl Reading {
    fn take() -> Self {
        Reading { at: Instant::now(), stats: stats() }
    }
}

/// The whole screen, from its upper left corner on.
fn frame(before: &Reading, after: &Reading) -> String {
    let ns = (after.at - before.at).as_nanos().clamp(1, u64::MAX.into()) as u64;
    let Stats { ms, global, gomaxprocs, .. } = after.stats;
    let mut text = format!(
        "\x1b[H{} Gs, {} in global queue; {} Ms, {} in calls; {} of {} Ps run Gs\x1b[K\n",
        after.stats.alive(),
        global,
        ms.created,
        ms.blocked,
        gomaxprocs,
        after.stats.cpus.len()
    );
    text.push_str(
        "  P  load                          queue  switches/s  steals/s  preempt/s  idle\x1b[K\n",
    );
    let mut busiest = 0;
    let cpus = before.stats.cpus.iter().zip(&after.stats.cpus);
    for (index, (then, now)) in cpus.enumerate() {
        let percent = load(then, now, ns);
        busiest = busiest.max(percent);
        // To a string: it cannot fail.
        let _ = writeln!(text, "{index:3}  {}\x1b[K", row(then, now, ns, percent));
    }
    if busiest < IDLE_PERCENT {
        text.push_str(NOTHING_RUNS);
    }
    if let Some(line) = by_distance(&before.stats, &after.stats) {
        let _ = writeln!(text, "{line}\x1b[K");
    }
    text.push_str("any key ends this\x1b[K\n\x1b[J");
    text
}

/// How often Ps stole from one another and woke one another, by distance; none on a flat machine.
fn by_distance(then: &Stats, now: &Stats) -> Option<String> {
    distance(0, 0)?;
    let since = |of: fn(&PInfo) -> [u64; LEVELS]| {
        let sum = |stats: &Stats, i: usize| stats.cpus.iter().map(|cpu| of(cpu)[i]).sum::<u64>();
        core::array::from_fn(|i| sum(now, i).saturating_sub(sum(then, i)))
    };
    let (steals, wakes) = (since(|cpu| cpu.steals_at), since(|cpu| cpu.wakes_at));
    Some(format!("steals {}; wakes {}", listed(steals), listed(wakes)))
}

/// Counts over each distance: `core 3, cache 0, …`.
pub fn listed(counts: [u64; LEVELS]) -> String {
    let each = Distance::ALL.iter().zip(counts).map(|(distance, n)| format!("{distance} {n}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Below this load of every P nothing runs but the shell.
const IDLE_PERCENT: u64 = 10;
const NOTHING_RUNS: &str = "nothing runs: press a key, then `run hog 60 &` and `top` again\x1b[K\n";

/// The part of `ns` in which a P ran Gs, in percent.
fn load(then: &PInfo, now: &PInfo, ns: u64) -> u64 {
    let since = |of: fn(&PInfo) -> u64| of(now).saturating_sub(of(then));
    let busy_ns = match now.is_idle {
        true => since(|cpu| cpu.run_ns),
        false => ns.saturating_sub(since(|cpu| cpu.idle_ns)),
    };
    (u128::from(busy_ns.min(ns)) * 100 / u128::from(ns)) as u64
}

/// One P between two readings that are `ns` apart, and its load.
fn row(then: &PInfo, now: &PInfo, ns: u64, percent: u64) -> String {
    let since = |of: fn(&PInfo) -> u64| of(now).saturating_sub(of(then));
    let per_second = |count: u64| (u128::from(count) * 1_000_000_000 / u128::from(ns)) as u64;
    let full = percent * BAR / 100;
    let bar: String = (0..BAR).map(|place| if place < full { '#' } else { '.' }).collect();
    format!(
        "[{bar}] {percent:3}%  {:5}  {:10}  {:8}  {:9}  {:3}%",
        now.queued,
        per_second(since(|cpu| cpu.switches)),
        per_second(since(|cpu| cpu.steals)),
        per_second(since(|cpu| cpu.preemptions)),
        100 - percent
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(switches: u64, run_ns: u64, idle_ns: u64) -> PInfo {
        let mut p = PInfo::default();
        (p.switches, p.run_ns, p.idle_ns) = (switches, run_ns, idle_ns);
        p
    }

    /// A row for a P with these counters, between readings 1 ms apart.
    fn shown(then: PInfo, mut now: PInfo, is_idle: bool) -> String {
        (now.queued, now.is_idle) = (3, is_idle);
        row(&then, &now, 1_000_000, load(&then, &now, 1_000_000))
    }

    #[test]
    fn a_hog_and_a_halt_that_outlast_the_period_count_as_what_they_are() {
        let nothing = did(0, 0, 0);
        assert!(shown(nothing, nothing, false).starts_with("[####################] 100%"));
        assert!(shown(nothing, nothing, true).starts_with("[....................]   0%"));
    }

    #[test]
    fn only_where_nothing_runs_it_says_what_to_start() {
        let start = Instant::now();
        let shown = |run_ns| {
            let mut before = Stats::default();
            before.cpus = std::vec![did(0, 0, 0); 2];
            let mut after = before.clone();
            after.cpus[1] = did(1, run_ns, 0);
            after.cpus.iter_mut().for_each(|p| p.is_idle = true);
            let end = start + Duration::from_millis(1);
            frame(&Reading { at: start, stats: before }, &Reading { at: end, stats: after })
        };
        assert!(shown(20_000).contains(NOTHING_RUNS));
        assert!(!shown(200_000).contains(NOTHING_RUNS), "one P of two is busy for a fifth");
    }

    #[test]
    fn counts_are_listed_by_distance_and_not_at_all_on_a_flat_machine() {
        assert_eq!(listed([3, 0, 1, 0, 2]), "core 3, cache 0, package 1, node 0, remote 2");
        assert_eq!(by_distance(&Stats::default(), &Stats::default()), None);
    }

    #[test]
    fn rates_are_by_the_second_and_shares_by_the_period() {
        let row = shown(did(10, 0, 0), did(15, 500_000, 500_000), true);
        assert!(row.starts_with("[##########..........]  50%"), "{row}");
        assert!(row.contains("  5000  "), "{row}");
        assert!(row.contains("      3  "), "the queue: {row}");
        // Counters of two moments, and a clock that does not advance: no overflow, no
        // division by 0.
        assert!(shown(did(5, 0, 9), did(1, 0, 0), false).contains("100%"));
    }
}
