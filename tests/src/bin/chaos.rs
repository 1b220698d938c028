//! `make chaos SEEDS=200 FIRST=1`: boots once per seed with random preemption and delays.
//!
//! A line a seed; of one that failed, the machine's last lines. The last line is
//! `N seeds, M failed`, with the seeds that did: each is repeated by
//! `make chaos SEEDS=1 FIRST=<seed>`.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use tests::sweep::Run;
use tool::args::Args;

const USAGE: &str = "usage: chaos [--seeds N] [--first N]";

fn main() -> ExitCode {
    tool::end("chaos", sweep(Args::of_process(USAGE)))
}

fn sweep(mut args: Args) -> Result<ExitCode> {
    let (mut seeds, mut first) = (200, 1);
    while let Some(key) = args.next()? {
        match &*key {
            "--seeds" => seeds = args.number()?.unwrap_or(seeds),
            "--first" => first = args.number()?.unwrap_or(first),
            _ => return Err(args.unknown()),
        }
    }
    if seeds == 0 {
        bail!("a sweep has at least one seed");
    }
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
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
