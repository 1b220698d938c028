//! Which machines are booted, and what counts as a figure.
//!
//! Counted: where a virtual nanosecond is an instruction. Two boots must agree,
//! or the figure is none; the second of them has the plugin that counts locked
//! instructions. Timed: as many CPUs as are asked for, and samples of all systems
//! in turn, so that whatever else the host does meanwhile hits them alike. Grown:
//! counted, with more and more Gs and Ps that have no part in it.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};

use anyhow::{Result, bail};

use crate::budgets::{Budgets, Workload};
use crate::locked::Plugin;
use crate::machine::{Figure, Shape, System, run};
use crate::results::Results;

/// How far apart two counted runs may be, as a part of the figure.
const TOLERANCE: f64 = 0.005;
/// How many Gs [`MILLION`] has, and how many if those do not fit. What a G costs
/// can be told from half a million too; that they are fewer is noted.
const SIZES: [&str; 2] = ["1000000", "500000"];
/// The one whose size is ours to choose.
const MILLION: &str = "million";
/// What is measured while other Gs and Ps are there.
pub const GROWN: [&str; 3] = ["yield", "chan_pingpong", "spawn_join"];
/// How many other Gs there are, waiting.
const OTHER_GS: [u64; 4] = [10, 1_000, 100_000, 1_000_000];
/// How many Ps there are, with as many CPUs.
const PS: [u32; 3] = [1, 8, 64];

/// Counts instructions for the workloads, twice, and keeps them in `results`.
pub fn counted(
    budgets: &Budgets,
    system: &System,
    workloads: &[Workload],
    results: &mut Results,
) -> Result<()> {
    let plugin = Plugin::new(system.program())?;
    for (shape, names) in machines(workloads, true, |workload| workload.cpus) {
        let rows = rows_of(budgets, &names);
        let mut once = |round: u32, plugin| {
            let title = format!("{}: instructions, run {round} of 2", system.name());
            boot(system, &shape, &names, plugin, Progress::new(title, rows), results)
        };
        // The plugin is for one CPU, and what runs on several has no marks.
        let plugin = plugin.as_ref().filter(|_| shape.cpus == 1);
        let (first, second) = match once(1, None).and_then(|first| Ok((first, once(2, plugin)?))) {
            Ok(both) => both,
            // Several CPUs that take turns are hard on a kernel that was not made
            // for it; the other figures are worth having without these.
            Err(error) if matches!(system, System::Go { .. }) && shape.cpus > 1 => {
                eprintln!("bench: no figures for {} of Go: {error:#}", names.join(" "));
                continue;
            }
            Err(error) => return Err(error),
        };
        let apart = apart(&first, &second);
        if !apart.is_empty() {
            // Go's runtime draws random numbers where it likes; and where several
            // CPUs take turns, what one was about to do when the other was started
            // depends on the firmware.
            if matches!(system, System::Ours { .. }) && shape.cpus == 1 {
                bail!("two runs differ by more than 0.5 %: {apart}");
            }
            eprintln!("note: two runs of {} differ: {apart}", system.name());
        }
        for (figure, again) in first.iter().zip(&second) {
            results.set_counted(system.name(), &figure.row, figure.value, again.value);
        }
        for figure in &second {
            if let Some(locked) = figure.locked {
                results.set_locked(system.name(), &figure.row, locked);
            }
        }
    }
    Ok(())
}

/// Times the workloads on so many CPUs, all systems in turn.
pub fn timed(
    budgets: &Budgets,
    systems: &[System],
    workloads: &[Workload],
    (cpus, samples): (u32, u32),
    results: &mut Results,
) -> Result<()> {
    let is_timed = |w: &&Workload| w.timed.as_ref().is_none_or(|list| list.contains(&cpus));
    let workloads: Vec<Workload> = workloads.iter().filter(is_timed).cloned().collect();
    for (shape, names) in machines(&workloads, false, |_| cpus) {
        let rows = rows_of(budgets, &names);
        let mut all: BTreeMap<(&str, String), Vec<f64>> = BTreeMap::new();
        for sample in 1..=samples {
            for system in systems {
                let who = system.name();
                let title = format!("{who}: {cpus} CPUs, sample {sample} of {samples}");
                let progress = Progress::new(title, rows);
                for figure in boot(system, &shape, &names, None, progress, results)? {
                    all.entry((who, figure.row)).or_default().push(figure.value);
                }
            }
        }
        for ((who, row), samples) in &all {
            results.set_timed(who, row, cpus, samples);
        }
    }
    Ok(())
}

/// Counts some of them again, among many other Gs and with many Ps. A machine
/// that does not get there is no figure, and no reason to give up.
pub fn grown(system: &System, results: &mut Results) -> Result<()> {
    let plain: Vec<String> = GROWN.map(String::from).to_vec();
    let gs = OTHER_GS.map(|gs| {
        let words = [vec![format!("live={gs}")], plain.clone()].concat();
        let mem = if gs > 10_000 { "6G" } else { "1G" };
        ("gs", gs, Shape { cpus: 1, is_counted: true, mem: mem.into() }, words)
    });
    let ps = PS.map(|cpus| {
        let shape = Shape { cpus, is_counted: true, mem: "1G".into() };
        ("ps", cpus.into(), shape, plain.clone())
    });
    for (of, many, shape, words) in gs.into_iter().chain(ps) {
        let title = format!("{}: instructions with {many} {of}", system.name());
        let progress = Progress::new(title, GROWN.len());
        match run(system, &shape, &words, None, progress.step()) {
            Ok(figures) => {
                for Figure { row, value, .. } in figures {
                    results.set_grown(of, many, system.name(), &row, value);
                }
                results.save()?;
            }
            Err(error) => eprintln!("bench: {many} {of}: {error:#}"),
        }
    }
    Ok(())
}

/// One boot with all of `names`; a second one with half a million where a million
/// was too much.
fn boot(
    system: &System,
    shape: &Shape,
    names: &[String],
    plugin: Option<&Plugin>,
    progress: Progress,
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
        match run(system, shape, &words, plugin, progress.clone().step()) {
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

/// The workloads by the machine that they need, in their order. Those that have
/// a large one have it to themselves: what they leave behind is large too.
fn machines(
    workloads: &[Workload],
    is_counted: bool,
    cpus: impl Fn(&Workload) -> u32,
) -> Vec<(Shape, Vec<String>)> {
    let mut machines: Vec<(Shape, Vec<String>)> = Vec::new();
    for workload in workloads {
        let shape = Shape { cpus: cpus(workload), is_counted, mem: workload.mem.clone() };
        let name = workload.name.clone();
        match machines.iter_mut().find(|(other, _)| *other == shape && other.mem == "1G") {
            Some((_, names)) => names.push(name),
            None => machines.push((shape, vec![name])),
        }
    }
    machines
}

fn rows_of(budgets: &Budgets, names: &[String]) -> usize {
    budgets.rows.iter().filter(|row| names.contains(&row.workload)).count()
}

/// The rows whose figures differ too much, with both; empty if none does.
fn apart(first: &[Figure], second: &[Figure]) -> String {
    let second: BTreeMap<&str, f64> = second.iter().map(|f| (f.row.as_str(), f.value)).collect();
    let differs = |Figure { row, value: a, .. }: &&Figure| {
        second.get(row.as_str()).is_none_or(|b| (a - b).abs() > TOLERANCE * a.max(*b))
    };
    let words = first.iter().filter(differs).map(|Figure { row, value, .. }| {
        let b = second.get(row.as_str()).map_or("nothing".into(), |b| format!("{b:.1}"));
        format!("{row} {value:.1} and {b}")
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A line on the terminal that says how far one machine is.
#[derive(Clone)]
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
        } else if self.done == 0 {
            eprintln!("{}", self.title);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, f64)]) -> Vec<Figure> {
        let figure = |(row, value): &(&str, f64)| (row.to_string(), *value);
        let figures = list.iter().map(figure);
        figures.map(|(row, value)| Figure { row, value, locked: None }).collect()
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
    fn workloads_share_a_machine_of_their_shape_unless_it_is_large() {
        let text = ["a", "b", "large", "huge", "wide"]
            .map(|name| format!("[[row]]\nname = '{name}'\nwhat = 'x'\n"));
        let text = text.concat()
            + "[workload.large]\nmem = '6G'\n[workload.huge]\nmem = '6G'\n[workload.wide]\ncpus = 4";
        let workloads = Budgets::parse(&text).expect("good").workloads(&[]);
        let machines = machines(&workloads, true, |workload| workload.cpus);
        let names: Vec<_> = machines.iter().map(|(_, names)| names.join(" ")).collect();
        assert_eq!(names, ["a b", "large", "huge", "wide"]);
        assert_eq!(machines.last().map(|(shape, _)| shape.cpus), Some(4));
        assert_eq!(super::machines(&workloads, false, |_| 8).len(), 3, "timed: all have 8");
    }
}
