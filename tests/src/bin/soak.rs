//! `make soak MINUTES=30`: half of the time on 8 CPUs, half of it on 16.
//!
//! Prints the ledger of each: what was created and ended, and what the pools held
//! at most in each half.

use std::process::ExitCode;

use anyhow::{Result, bail};
use tool::args::Args;

/// A month.
const MAX_MINUTES: u64 = 60 * 24 * 31;

/// How much longer than it is meant to take a run may take before it hangs.
const GRACE_S: u64 = 600;

const USAGE: &str = "usage: soak [--minutes N]";

fn main() -> ExitCode {
    tool::end("soak", soak(Args::of_process(USAGE)))
}

fn soak(mut args: Args) -> Result<ExitCode> {
    let mut minutes = 30;
    while let Some(key) = args.next()? {
        match &*key {
            "--minutes" => minutes = args.number()?.unwrap_or(minutes),
            _ => return Err(args.unknown()),
        }
    }
    if !(1..=MAX_MINUTES).contains(&minutes) {
        bail!("MINUTES is a number from 1 to {MAX_MINUTES}");
    }
    let seconds = minutes * 30;
    let mut went_well = true;
    for cpus in [8, 16] {
        let outcome =
            tests::soak::boot(cpus, &format!("{seconds}s")).limit(seconds + GRACE_S).run();
        let ledger = outcome
            .lines
            .iter()
            .filter(|line| ["SOAK ", "LEDGER ", "TEST "].iter().any(|word| line.starts_with(word)));
        ledger.for_each(|line| println!("{line}"));
        if outcome.code() != Some(boot::exit::OK) {
            println!("{outcome}");
            went_well = false;
        }
    }
    Ok(if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
