//! `make soak MINUTES=30`: half of the time on 8 CPUs, half of it on 16.
//!
//! Prints the ledger of each: what was created and ended, and what the pools held
//! at most in each half.

use std::env;
use std::process::ExitCode;

use tests::soak;

/// A month.
const MAX_MINUTES: u64 = 60 * 24 * 31;

/// How much longer than it is meant to take a run may take before it hangs.
const GRACE_S: u64 = 600;

fn main() -> ExitCode {
    let said = env::var("MINUTES").unwrap_or_default();
    let minutes = if said.is_empty() { Ok(30) } else { said.parse::<u64>() };
    let Ok(minutes @ 1..=MAX_MINUTES) = minutes else {
        eprintln!("soak: MINUTES is a number from 1 to {MAX_MINUTES}");
        return ExitCode::FAILURE;
    };
    let seconds = minutes * 30;
    let mut went_well = true;
    for cpus in [8, 16] {
        let outcome = soak::boot(cpus, &format!("{seconds}s")).limit(seconds + GRACE_S).run();
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
    if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
