//! The tool behind `make bench`, `bench-go`, `bench-check` and `bench-docs`.
//!
//! ```text
//! bench run   [--only NAMES] [--samples N] [--cpus LIST]    ours
//! bench go    [the same]                                    ours and Go's
//! bench check [--only NAMES] [--known] [--quick]            ours, by its budgets
//! bench docs                                                the page, from what was measured
//! ```
//!
//! What is asked for is read and checked first; then something is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use bench::budgets::{Budgets, Verdict};
use bench::check::judge;
use bench::counted::counted;
use bench::machine::System;
use bench::options::{Options, USAGE};
use bench::results::Results;
use bench::{chart, curves, docs, linux, locked, measure, origin, show};
use boot::image::Images;
use boot::kernel::Source;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    match obey(&command, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn obey(command: &str, words: impl Iterator<Item = String>) -> Result<()> {
    let budgets = Budgets::load()?;
    let options = Options::parse(words, &budgets)?;
    match command {
        "run" => compare(&budgets, &options, &[ours()?]),
        "go" => compare(&budgets, &options, &[ours()?, linux::system()?]),
        "check" => check(&budgets, &options),
        "docs" => docs::write(&budgets, &Results::load()),
        _ => bail!("{USAGE}"),
    }
}

/// Measures the systems, keeps it, shows it.
fn compare(budgets: &Budgets, options: &Options, systems: &[System]) -> Result<()> {
    let workloads = options.measured(budgets);
    let mut results = Results::load();
    let is_wide = options.has_growth() || workloads.iter().any(|workload| workload.cpus > 1);
    origin::begin(&mut results, is_wide);
    let counted = counted(systems, &workloads, options.has_growth(), &mut results);
    println!("\ninstructions per operation\n\n{}", show::counted(budgets, &results).to_text());
    println!("lateness and shares\n\n{}", show::others(budgets, &results).to_text());
    for (of, what) in [("gs", "waiting Gs"), ("ps", "Ps")].iter().filter(|_| options.has_growth()) {
        let table = show::grown(&results, of).to_text();
        println!("instructions per operation by the number of {what}\n\n{table}");
    }
    counted?;
    for &cpus in options.cpus.iter().filter(|_| options.samples > 0) {
        let samples = (cpus, options.samples);
        measure::timed(budgets, systems, &workloads, samples, &mut results)?;
        results.save()?;
        println!("\ntime per operation, {cpus} CPUs\n");
        println!("{}", show::timed(budgets, &results, cpus).to_text());
    }
    chart::write(budgets, &results, &boot::target_dir().join("bench.svg"))?;
    curves::write(&results, &boot::target_dir().join("growth.svg"))?;
    println!("target/bench.json, target/bench.svg, target/growth.svg");
    Ok(())
}

/// Counts, and fails when something is over its budget. With `--known`, only
/// when that is news. What was counted is judged and forgotten: the figures on
/// the page are of runs that keep them.
fn check(budgets: &Budgets, options: &Options) -> Result<()> {
    let workloads = options.checked(budgets)?;
    let mut results = Results::default();
    let counted = counted(&[ours()?], &workloads, false, &mut results);
    let judged = judge(budgets, &results, &workloads, locked::is_countable());
    judged.iter().for_each(|line| println!("{line}"));
    counted?;
    let is_fault = |verdict: Verdict| match options.is_known_good {
        true => verdict.is_news(),
        false => verdict.is_over(),
    };
    match judged.iter().filter(|line| is_fault(line.verdict)).count() {
        0 => Ok(()),
        faults => bail!("{faults} figures are over their budget (bench/budgets.toml)"),
    }
}

/// Builds our side.
fn ours() -> Result<System> {
    let kernel = Source::Bench.build()?;
    let cmdline = boot::root().join("boot/cmdline.txt");
    let images = Images::build(&kernel, &cmdline, &boot::target_dir(), Source::Bench.image_name())?;
    Ok(System::Ours { image: images.bios, program: kernel })
}
