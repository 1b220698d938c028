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
use bench::budgets::Budgets;
use bench::machine::System;
use bench::results::Results;
use bench::{chart, docs, linux, measure, show};
use boot::image::Images;
use boot::kernel::Source;

const USAGE: &str =
    "usage: bench run|go|check|docs [--only NAMES] [--samples N] [--cpus LIST] [--known]";

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

    fn workloads(&self, budgets: &Budgets) -> Result<Vec<String>> {
        let workloads = budgets.workloads(&self.only);
        if workloads.is_empty() {
            let all = budgets.workloads(&[]).join(" ");
            bail!("no workload is called {}; there are: {all}", self.only.join(" "));
        }
        Ok(workloads)
    }
}

/// Measures the systems, keeps it, shows it.
fn compare(options: &Options, systems: &[System]) -> Result<ExitCode> {
    let budgets = Budgets::load()?;
    let workloads = options.workloads(&budgets)?;
    let mut results = Results::load();
    note_versions(&mut results, &workloads);
    for system in systems {
        measure::counted(system, &workloads, &mut results)?;
        results.save()?;
    }
    println!("\ninstructions per operation, one CPU\n");
    println!("{}", show::counted(&budgets, &results).to_text());
    for &cpus in options.cpus.iter().filter(|_| options.samples > 0) {
        measure::timed(systems, &workloads, cpus, options.samples, &mut results)?;
        results.save()?;
        println!("\ntime per operation, {cpus} CPUs\n");
        println!("{}", show::timed(&budgets, &results, cpus).to_text());
    }
    chart::write(&budgets, &results, &boot::target_dir().join("bench.svg"))?;
    println!("target/bench.json, target/bench.svg");
    Ok(ExitCode::SUCCESS)
}

/// Counts, and fails when something is over its budget. With `--known`, only
/// when that is news.
fn check(options: &Options) -> Result<ExitCode> {
    let budgets = Budgets::load()?;
    let mut workloads = options.workloads(&budgets)?;
    if options.only.is_empty() {
        workloads.retain(|name| name != "million"); // minutes, not seconds
    }
    let mut results = Results::load();
    note_versions(&mut results, &workloads);
    measure::counted(&ours()?, &workloads, &mut results)?;
    results.save()?;
    let mut failed = 0;
    for row in budgets.rows.iter().filter(|row| workloads.contains(&row.workload)) {
        let figure = results.counted("ours", &row.name);
        let verdict = budgets.judge(row, figure);
        let fails = if options.is_known_good { verdict.is_news() } else { verdict.is_over() };
        failed += u32::from(fails);
        let [figure, budget] = [figure, row.budget].map(show::number);
        println!("{:<16} {figure:>8} of {budget:>6}  {verdict}", row.name);
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
    Ok(System::Ours(images.bios))
}

fn note_versions(results: &mut Results, workloads: &[String]) {
    if workloads.iter().any(|name| name == "million") {
        for who in ["ours", "go"] {
            results.note(&format!("million_{who}"), ""); // all of it is tried again
        }
    }
    let (linux, go) = linux::versions();
    results.note("linux", linux);
    results.note("go", go);
    let qemu = std::env::var("QEMU").ok().filter(|q| !q.is_empty());
    let qemu = qemu.as_deref().unwrap_or("qemu-system-x86_64");
    let commands: [(&str, &str, &[&str]); 4] = [
        ("qemu", qemu, &["--version"]),
        ("rustc", "rustc", &["--version"]),
        ("commit", "git", &["describe", "--always", "--dirty"]),
        ("date", "date", &["-u", "+%Y-%m-%d"]),
    ];
    for (key, program, args) in commands {
        let output = Command::new(program).args(args).current_dir(boot::root()).output();
        let Ok(output) = output else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        results.note(key, text.lines().next().unwrap_or_default());
    }
}
