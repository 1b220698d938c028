//! The tool behind `make bench`, `bench-go`, `bench-check` and `bench-docs`.
//!
//! ```text
//! bench run   [--only NAMES] [--samples N] [--cpus LIST]    ours
//! bench go    [the same]                                    ours and Go's
//! bench check [--only NAMES] [--known]                      ours, by its budgets
//! bench docs                                                the page, from what was measured
//! ```
//!
//! Options may come from make with an empty value, which is like not giving them.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use bench::budgets::{Budgets, Limit, Workload};
use bench::counted::counted;
use bench::machine::System;
use bench::results::Results;
use bench::{chart, curves, docs, linux, machine, measure, show};
use boot::image::Images;
use boot::kernel::Source;

const USAGE: &str =
    "usage: bench run|go|check|docs [--only NAMES] [--samples N] [--cpus LIST] [--known]";

/// What one says instead of a workload's name to be told how cost grows.
const GROWTH: &str = "growth";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let done = Options::parse(words).and_then(|options| match command.as_str() {
        "run" => compare(&options, &[ours()?]),
        "go" => compare(&options, &[ours()?, linux::system()?]),
        "check" => check(&options),
        "docs" => docs::write(&Budgets::load()?, &Results::load()).map(|()| ExitCode::SUCCESS),
        _ => bail!("{USAGE}"),
    });
    done.unwrap_or_else(|error| {
        eprintln!("bench: {error:#}");
        ExitCode::FAILURE
    })
}

/// What was asked for.
struct Options {
    only: Vec<String>,
    samples: u32,
    cpus: Vec<u32>,
    is_known_good: bool,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options =
            Self { only: Vec::new(), samples: 5, cpus: vec![1, 2, 4, 8], is_known_good: false };
        while let Some(key) = words.next() {
            if key == "--known" {
                options.is_known_good = true;
                continue;
            }
            let value = words.next().with_context(|| format!("{key} needs a value\n{USAGE}"))?;
            let list = || value.split([' ', ',']).filter(|word| !word.is_empty());
            if value.is_empty() {
                continue;
            }
            match key.as_str() {
                "--only" => options.only = list().map(String::from).collect(),
                "--samples" => options.samples = value.parse().context("--samples: a number")?,
                "--cpus" => {
                    options.cpus = list()
                        .map(str::parse)
                        .collect::<Result<_, _>>()
                        .context("--cpus: numbers")?;
                }
                _ => bail!("unknown option {key}\n{USAGE}"),
            }
        }
        Ok(options)
    }

    /// Those that were asked for, and all if none was.
    fn workloads(&self, budgets: &Budgets) -> Result<Vec<Workload>> {
        let workloads = budgets.workloads(&self.only);
        if workloads.is_empty() && !self.has_growth() {
            let all: Vec<String> = budgets.workloads(&[]).into_iter().map(|w| w.name).collect();
            let all = all.join(" ");
            bail!("no workload is called {}; there are: {all} {GROWTH}", self.only.join(" "));
        }
        Ok(workloads)
    }

    /// Whether it is asked for how cost grows.
    fn has_growth(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == GROWTH)
    }
}

/// Measures the systems, keeps it, shows it.
fn compare(options: &Options, systems: &[System]) -> Result<ExitCode> {
    let budgets = Budgets::load()?;
    let workloads = options.workloads(&budgets)?;
    let mut results = Results::load();
    note_versions(&mut results, &workloads);
    let counted = counted(&budgets, systems, &workloads, options.has_growth(), &mut results);
    println!("\ninstructions per operation\n\n{}", show::counted(&budgets, &results).to_text());
    println!("lateness and shares\n\n{}", show::others(&budgets, &results).to_text());
    for (of, what) in [("gs", "waiting Gs"), ("ps", "Ps")].iter().filter(|_| options.has_growth()) {
        let table = show::grown(&results, of).to_text();
        println!("instructions per operation by the number of {what}\n\n{table}");
    }
    counted?;
    for &cpus in options.cpus.iter().filter(|_| options.samples > 0) {
        let samples = (cpus, options.samples);
        measure::timed(&budgets, systems, &workloads, samples, &mut results)?;
        results.save()?;
        println!("\ntime per operation, {cpus} CPUs\n");
        println!("{}", show::timed(&budgets, &results, cpus).to_text());
    }
    chart::write(&budgets, &results, &boot::target_dir().join("bench.svg"))?;
    curves::write(&results, &boot::target_dir().join("growth.svg"))?;
    println!("target/bench.json, target/bench.svg, target/growth.svg");
    Ok(ExitCode::SUCCESS)
}

/// Counts, and fails when something is over its budget. With `--known`, only
/// when that is news.
fn check(options: &Options) -> Result<ExitCode> {
    let budgets = Budgets::load()?;
    let mut workloads = options.workloads(&budgets)?;
    if options.only.is_empty() {
        workloads.retain(|workload| !workload.is_slow);
    }
    let mut results = Results::load();
    note_versions(&mut results, &workloads);
    counted(&budgets, &[ours()?], &workloads, false, &mut results)?;
    let is_run = |name: &str| workloads.iter().any(|workload| workload.name == name);
    let mut failed = 0;
    for row in budgets.rows.iter().filter(|row| is_run(&row.workload)) {
        let mut judge = |limit: Limit, figure: Option<f64>, what: &str| {
            let verdict = limit.judge(figure);
            let fails = if options.is_known_good { verdict.is_news() } else { verdict.is_over() };
            failed += u32::from(fails);
            let [figure, budget] = [figure, limit.budget].map(show::number);
            println!("{:<16} {figure:>8} of {budget:>6}  {what:<12}  {verdict}", row.name);
        };
        judge(row.cost, results.counted("ours", &row.name), "");
        // Nothing is said where they cannot be counted, which was said above.
        if let (Some(_), Some(locked)) = (row.locked.budget, results.locked("ours", &row.name)) {
            judge(row.locked, Some(locked), "locked");
        }
    }
    if failed > 0 {
        bail!("{failed} figures are over their budget (bench/budgets.toml)");
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds our side.
fn ours() -> Result<System> {
    let kernel = Source::Bench.build()?;
    let cmdline = boot::root().join("boot/cmdline.txt");
    let images = Images::build(&kernel, &cmdline, &boot::target_dir(), Source::Bench.image_name())?;
    Ok(System::Ours { image: images.bios, program: kernel })
}

fn note_versions(results: &mut Results, workloads: &[Workload]) {
    let (linux, go) = linux::versions();
    results.note("linux", linux);
    results.note("go", go);
    let qemu = machine::qemu();
    let mut commands: Vec<(&str, &str, &[&str])> = vec![
        ("qemu", &qemu, &["--version"]),
        ("rustc", "rustc", &["--version"]),
        ("commit", "git", &["describe", "--always", "--dirty"]),
        ("date", "date", &["-u", "+%Y-%m-%d"]),
    ];
    let is_wide = workloads.iter().any(|workload| workload.cpus > 1);
    let newer = if is_wide { machine::newer_qemu() } else { None };
    let newer = newer.map(|root| root.join("bin/qemu-system-x86_64").display().to_string());
    if let Some(newer) = &newer {
        commands.push(("newer_qemu", newer, &["--version"]));
    }
    for (key, program, args) in commands {
        let output = Command::new(program).args(args).current_dir(boot::root()).output();
        let Ok(output) = output else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        results.note(key, text.lines().next().unwrap_or_default());
    }
}
