//! `make chaos SEEDS=200 FIRST=1`: one boot for each seed, as unkind as it says.
//!
//! A line a seed; of one that failed, what its machine said last. The last line is
//! `N seeds, M failed`, with the seeds that did: each is repeated by
//! `make chaos SEEDS=1 FIRST=<seed>`.

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use tests::sweep::Run;

fn main() -> ExitCode {
    let (Some(seeds @ 1..), Some(first)) = (number("SEEDS", 200), number("FIRST", 1)) else {
        eprintln!("chaos: SEEDS and FIRST are numbers, and a sweep has at least one seed");
        return ExitCode::FAILURE;
    };
    let mut failed = Vec::new();
    for seed in (first..).take(seeds as usize) {
        let (run, started) = (Run::of(seed), Instant::now());
        let outcome = run.run();
        let went_well = outcome.code() == Some(boot::exit::OK);
        let verdict = if went_well { "ok" } else { "FAILED" };
        println!("{run} {verdict} {:.1} s", started.elapsed().as_secs_f64());
        if !went_well {
            println!("{outcome}");
            failed.push(seed);
        }
    }
    let list: String = failed.iter().map(|seed| format!(" {seed}")).collect();
    let colon = if failed.is_empty() { "" } else { ":" };
    println!("{seeds} seeds, {} failed{colon}{list}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A number from the environment; that one if it says nothing.
fn number(name: &str, otherwise: u64) -> Option<u64> {
    match env::var(name) {
        Ok(word) if !word.is_empty() => word.parse().ok(),
        _ => Some(otherwise),
    }
}
