//! The tool behind `make fuzz`.
//!
//! ```text
//! fuzz [--target NAME] [--minutes N] [--seconds N] [--rounds N] [--seed N]
//! fuzz --target NAME --file PATH     one input, from a file
//! fuzz --list                        the names of the targets
//! ```
//!
//! Without a target the time is shared among all. Without a seed the clock gives
//! one, and it is printed.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fuzz::run::Until;
use fuzz::{Target, run, target, targets};
use tool::args::Args;
use tool::tree;

const USAGE: &str =
    "usage: fuzz [--target NAME] [--minutes N] [--seconds N] [--rounds N] [--seed N]
       fuzz --target NAME --file PATH
       fuzz --list";

/// How long a run takes without `--minutes` and `--seconds`.
const MINUTES: u64 = 10;
/// How long each has its turn; the turns go round until the time is over.
const TURN: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    tool::end("fuzz", go(Args::of_process(USAGE)).map(|()| ExitCode::SUCCESS))
}

fn go(mut args: Args) -> Result<()> {
    // Failures are written to it.
    tree::find()?;
    let (mut chosen, mut file, mut seed) = (None, None, None);
    let (mut rounds, mut minutes, mut seconds) = (None, None, None);
    while let Some(key) = args.next()? {
        match &*key {
            "--list" => {
                targets::ALL.iter().for_each(|target| println!("{}", target.name));
                return Ok(());
            }
            "--target" => chosen = args.text()?,
            "--file" => file = args.text()?,
            "--seed" => seed = args.number()?,
            "--rounds" => rounds = args.number()?,
            "--minutes" => minutes = args.number()?,
            "--seconds" => seconds = args.number()?,
            _ => return Err(args.unknown()),
        }
    }
    let chosen = match chosen {
        None => targets::ALL.iter().collect(),
        Some(name) => vec![target(&name).with_context(|| format!("no target {name}"))?],
    };
    if let Some(path) = file {
        let bytes = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
        let [target] = chosen[..] else { bail!("--file needs --target\n{USAGE}") };
        println!("{}: {}", target.name, if (target.check)(&bytes) { "used" } else { "refused" });
        return Ok(());
    }
    let seed = seed.unwrap_or_else(fresh);
    let time = seconds.unwrap_or(minutes.unwrap_or(MINUTES).saturating_mul(60));
    match (rounds, time) {
        (Some(0), _) | (None, 0) => bail!("that would try nothing"),
        (Some(rounds), _) => {
            chosen.iter().try_for_each(|target| turn(target, seed, Until::Rounds(rounds)).map(drop))
        }
        (None, time) => for_a_while(&chosen, seed, Duration::from_secs(time)),
    }
}

/// A turn for each, over and over.
fn for_a_while(chosen: &[&'static Target], seed: u64, time: Duration) -> Result<()> {
    let begun = Instant::now();
    let share = TURN.min(time / chosen.len() as u32).max(Duration::from_millis(100));
    let mut first = seed;
    while begun.elapsed() < time {
        let mut most = 0;
        for target in chosen {
            most = most.max(turn(target, first, Until::Time(share))?);
        }
        first = first.wrapping_add(most);
    }
    Ok(())
}

fn turn(target: &'static Target, seed: u64, until: Until) -> Result<u64> {
    let tally = run(target, seed, until)?;
    let share = 100 * tally.used / tally.cases.max(1);
    println!("{:<8} {:>9} cases from seed {seed}, {share:>3} % used", target.name, tally.cases);
    Ok(tally.cases)
}

/// A seed that was not there before.
fn fresh() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}
