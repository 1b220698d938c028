//! The tool behind `make bench`, `bench-go`, `bench-check` and `bench-docs`.
//!
//! ```text
//! bench run   [--only NAMES] [--samples N] [--cpus LIST]    ours
//! bench go    [the same]                                    ours and Go's
//! bench check [--only NAMES] [--known] [--quick]            ours, by its budgets
//! bench docs                                                the page, from what was measured
//! bench systems                                             the six scheduling systems, and their page
//! ```
//!
//! What is asked for is read and checked first; then something is built.

use std::process::ExitCode;

use anyhow::{Result, bail};
use bench::budgets::{Budgets, Verdict};
use bench::check::judge;
use bench::counted::counted;
use bench::machine::{System, has_turns};
use bench::options::{Options, USAGE};
use bench::results::Results;
use bench::{chart, curves, docs, linux, locked, measure, origin, show, systems};
use boot::image;
use boot::kernel::Source;
use boot::qemu::Firmware;
use tool::args::Args;

fn main() -> ExitCode {
    tool::end("bench", obey(Args::of_process(USAGE)).map(|()| ExitCode::SUCCESS))
}

fn obey(mut args: Args) -> Result<()> {
    boot::tree::find()?;
    let budgets = Budgets::load()?;
    let command = args.command()?;
    let options = Options::parse(args, &budgets)?;
    match command.as_str() {
        "run" => compare(&budgets, &options, &[ours()?]),
        "go" => compare(&budgets, &options, &[ours()?, linux::system()?]),
        "check" => check(&budgets, &options),
        "systems" => systems::compare(&ours()?),
        "docs" => docs::write(&budgets, &Results::load()),
        _ => bail!("{USAGE}"),
    }
}

/// Measures the systems, keeps it, shows it. What fails keeps nothing else from
/// being measured, and is the result when all is done.
fn compare(budgets: &Budgets, options: &Options, systems: &[System]) -> Result<()> {
    let workloads = options.measured(budgets);
    let mut results = Results::load();
    let is_wide = options.has_growth() || workloads.iter().any(|workload| workload.cpus > 1);
    origin::begin(&mut results, is_wide);
    let mut failed = Vec::new();
    // Only these rows: what else is known is of other runs.
    let rows = budgets.part(&workloads);
    failed.extend(counted(systems, &workloads, options.has_growth(), &mut results).err());
    print!("{}", show::counted(&rows, &results).titled("instructions per operation"));
    let title = "instructions of all CPUs per operation, by the number of CPUs";
    print!("{}", show::wide(&rows, &results).titled(title));
    print!("{}", show::others(&rows, &results).titled("lateness and shares"));
    for (of, what) in [("gs", "waiting Gs"), ("ps", "Ps")].iter().filter(|_| options.has_growth()) {
        let title = format!("instructions per operation by the number of {what}");
        print!("{}", show::grown(&results, of).titled(&title));
    }
    for &cpus in options.cpus.iter().filter(|_| options.samples > 0) {
        let samples = (cpus, options.samples);
        failed.extend(measure::timed(budgets, systems, &workloads, samples, &mut results).err());
        let plural = if cpus == 1 { "CPU" } else { "CPUs" };
        let title = format!("time per operation, {cpus} {plural}");
        print!("{}", show::timed(&rows, &results, cpus).titled(&title));
    }
    failed.extend(chart::write(budgets, &results, &boot::target_dir().join("bench.svg")).err());
    failed.extend(curves::write(&results, &boot::target_dir().join("growth.svg")).err());
    let files = ["bench.json", "bench.svg", "growth.svg"].iter();
    let files = files.filter(|file| boot::target_dir().join(file).exists());
    println!("\n{}", files.map(|file| format!("target/{file}")).collect::<Vec<_>>().join(", "));
    if systems.iter().any(|system| matches!(system, System::Go { .. })) {
        say_where_go_is_ahead(&rows, &results);
    }
    measure::together(failed)
}

fn say_where_go_is_ahead(rows: &Budgets, results: &Results) {
    let behind = show::behind_go(rows, results);
    if behind.is_empty() {
        println!("\nGo is ahead on no row that both were measured on");
    } else {
        println!("\nGo is ahead on {} of {} rows:", behind.len(), rows.rows.len());
    }
    for (row, said) in behind {
        println!("  {}: {said}", row.name);
    }
}

/// Counts, and fails when something is over its budget. With `--known`, only
/// when that is news. What was counted is judged and forgotten: the figures on
/// the page are of runs that keep them.
fn check(budgets: &Budgets, options: &Options) -> Result<()> {
    let mut workloads = options.checked(budgets)?;
    if workloads.iter().any(|workload| workload.cpus > 1) && !has_turns() {
        eprintln!("note: nothing on several CPUs is checked: that takes QEMU 8 or newer");
        workloads.retain(|workload| workload.cpus == 1);
    }
    let mut results = Results::default();
    let counted = counted(&[ours()?], &workloads, false, &mut results);
    let judged = judge(budgets, &results, &workloads, locked::is_countable());
    judged.iter().for_each(|line| println!("{line}"));
    counted?; // said after what is there
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
    let name = Source::Bench.image_name();
    let image = image::build(Firmware::Bios, &kernel, &cmdline, &boot::target_dir(), name)?;
    Ok(System::Ours { image, program: kernel })
}
