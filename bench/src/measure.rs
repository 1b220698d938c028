//! Which machines are booted, and what counts as a figure.
//!
//! Counted: one CPU, where a virtual nanosecond is an instruction. Two boots
//! must agree, or the figure is none. Timed: as many CPUs as are asked for, and
//! samples of all systems in turn, so that whatever else the host does meanwhile
//! hits them alike.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};

use anyhow::{Result, bail};

use crate::machine::{Figure, Shape, System, run};
use crate::results::Results;

/// How far apart two counted runs may be, as a part of the figure.
const TOLERANCE: f64 = 0.005;
/// How many Gs [`MILLION`] has, and how many if those do not fit. What a G costs
/// can be told from half a million too; that they are fewer is noted.
const SIZES: [&str; 2] = ["1000000", "500000"];
/// The one that needs a machine of its own: much memory, and much time.
const MILLION: &str = "million";
/// The CPUs that [`MILLION`] is timed with, of those asked for.
const MILLION_CPUS: [u32; 2] = [1, 4];

/// Counts instructions for the workloads, twice, and keeps them in `results`.
pub fn counted(system: &System, workloads: &[String], results: &mut Results) -> Result<()> {
    for (mem, names) in machines(workloads) {
        let shape = Shape { cpus: 1, is_counted: true, mem };
        let title = |round| format!("{}: instructions, run {round} of 2", system.name());
        let first = boot(system, shape, &names, title(1), results)?;
        let second = boot(system, shape, &names, title(2), results)?;
        let apart = apart(&first, &second);
        match (apart.is_empty(), system) {
            (true, _) => {}
            (false, System::Ours(_)) => bail!("two runs differ by more than 0.5 %: {apart}"),
            // Go's runtime draws random numbers where it likes.
            (false, System::Go(..)) => eprintln!("note: Go's two runs differ: {apart}"),
        }
        for (row, figure) in &first {
            results.set_counted(system.name(), row, *figure);
        }
    }
    Ok(())
}

/// Times the workloads on so many CPUs, all systems in turn.
pub fn timed(
    systems: &[System],
    workloads: &[String],
    cpus: u32,
    samples: u32,
    results: &mut Results,
) -> Result<()> {
    for (mem, names) in machines(workloads) {
        if names.iter().any(|name| name == MILLION) && !MILLION_CPUS.contains(&cpus) {
            continue;
        }
        let shape = Shape { cpus, is_counted: false, mem };
        let mut all: BTreeMap<(&str, String), Vec<f64>> = BTreeMap::new();
        for sample in 1..=samples {
            for system in systems {
                let who = system.name();
                let title = format!("{who}: {cpus} CPUs, sample {sample} of {samples}");
                for (row, figure) in boot(system, shape, &names, title, results)? {
                    all.entry((who, row)).or_default().push(figure);
                }
            }
        }
        for ((who, row), samples) in &all {
            results.set_timed(who, row, cpus, samples);
        }
    }
    Ok(())
}

/// One boot with all of `names`; a second one with half a million where a million
/// was too much.
fn boot(
    system: &System,
    shape: Shape,
    names: &[String],
    title: String,
    results: &mut Results,
) -> Result<Vec<Figure>> {
    let note = format!("million_{}", system.name());
    let has_million = names.iter().any(|name| name == MILLION);
    let known_size = SIZES.iter().copied().find(|size| *size == results.noted(&note));
    let mut size = known_size.unwrap_or(SIZES[0]);
    loop {
        let word = |name: &String| {
            if name == MILLION { format!("{MILLION}={size}") } else { name.clone() }
        };
        let words: Vec<String> = names.iter().map(word).collect();
        let progress = Progress::new(title.clone(), words.len());
        match run(system, shape, &words, progress.step()) {
            Err(error) if has_million && size == SIZES[0] => {
                eprintln!("bench: {size} Gs: {error:#}\nbench: so half as many");
                size = SIZES[1];
            }
            outcome => {
                if has_million {
                    results.note(&note, size);
                }
                return outcome;
            }
        }
    }
}

/// The workloads by the machine that they need.
fn machines(workloads: &[String]) -> Vec<(&'static str, Vec<String>)> {
    let (large, small): (Vec<_>, Vec<_>) =
        workloads.iter().cloned().partition(|name| name == MILLION);
    let mut machines = vec![("1G", small), ("6G", large)];
    machines.retain(|(_, names)| !names.is_empty());
    machines
}

/// The rows whose figures differ too much, with both; empty if none does.
fn apart(first: &[Figure], second: &[Figure]) -> String {
    let second: BTreeMap<&str, f64> = second.iter().map(|(row, f)| (row.as_str(), *f)).collect();
    let differs = |(row, a): &&Figure| {
        second.get(row.as_str()).is_none_or(|b| (a - b).abs() > TOLERANCE * a.max(*b))
    };
    let words = first.iter().filter(differs).map(|(row, a)| {
        let b = second.get(row.as_str()).map_or("nothing".into(), |b| format!("{b:.1}"));
        format!("{row} {a:.1} and {b}")
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A line on the terminal that says how far one machine is.
struct Progress {
    title: String,
    all: usize,
    done: usize,
}

impl Progress {
    fn new(title: String, all: usize) -> Self {
        let progress = Self { title, all, done: 0 };
        progress.show("boots");
        progress
    }

    fn step(mut self) -> impl FnMut(&str) {
        move |row| {
            self.done += 1;
            self.show(row);
        }
    }

    /// Over itself on a terminal; elsewhere one line a machine.
    fn show(&self, row: &str) {
        if stderr().is_terminal() {
            let end = if self.done == self.all { "\n" } else { "" };
            eprint!("\r\x1b[K{} · {}/{} {row}{end}", self.title, self.done, self.all);
            stderr().flush().ok();
        } else if self.done == self.all {
            eprintln!("{}", self.title);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, f64)]) -> Vec<Figure> {
        list.iter().map(|(row, figure)| (row.to_string(), *figure)).collect()
    }

    #[test]
    fn two_runs_agree_within_half_a_percent() {
        let first = figures(&[("a", 1000.0), ("b", 50.0)]);
        assert_eq!(apart(&first, &figures(&[("a", 1004.0), ("b", 50.0)])), "");
        let second = figures(&[("a", 1006.0), ("b", 50.0)]);
        assert_eq!(apart(&first, &second), "a 1000.0 and 1006.0");
        assert_eq!(apart(&first, &figures(&[("a", 1000.0)])), "b 50.0 and nothing");
    }

    #[test]
    fn a_million_gets_a_machine_of_its_own() {
        let names = ["yield", "million"].map(String::from);
        let machines = machines(&names);
        assert_eq!(machines.len(), 2);
        assert_eq!(machines[1], ("6G", vec!["million".to_string()]));
        assert_eq!(super::machines(&names[..1]).len(), 1);
    }
}
