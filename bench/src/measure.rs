//! Which machines are booted, and the figures that are times.
//!
//! Timed: as many CPUs as are asked for, and samples of all systems in turn, so
//! that whatever else the host does meanwhile hits them alike; the first in one
//! pair is second in the next. More operations are timed than counted, for a count
//! is exact and a time needs a while. What is counted is in `counted`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};

use anyhow::{Error, Result, bail};

use crate::budgets::{Budgets, Workload, split};
use crate::machine::{Reading, Shape, System, run};
use crate::results::Results;

/// Times the workloads on so many CPUs, all systems in turn. All is tried and what
/// is there is kept, also if a machine fails.
pub fn timed(
    budgets: &Budgets,
    systems: &[System],
    workloads: &[Workload],
    (cpus, samples): (u32, u32),
    results: &mut Results,
) -> Result<()> {
    let is_timed = |w: &&Workload| w.timed.as_ref().is_none_or(|list| list.contains(&cpus));
    let workloads: Vec<Workload> = workloads.iter().filter(is_timed).cloned().collect();
    let mut failed = Vec::new();
    for (shape, names) in machines(&workloads, false, |_| cpus) {
        let (rows, words) = (rows_of(budgets, &names), timed_words(&workloads, &names));
        match sampled(systems, &shape, &words, (samples, rows)) {
            Ok(all) => {
                for ((who, row), samples) in &all {
                    results.set_timed(who, row, cpus, samples);
                }
                failed.extend(results.save().err());
            }
            Err(error) => failed.push(error.context(format!("{cpus} CPUs: {}", words.join(" ")))),
        }
    }
    together(failed)
}

/// The samples of one machine by system and by row.
type Samples = BTreeMap<(&'static str, String), Vec<f64>>;

/// Boots the systems in turn, so often; `rows` figures are awaited of each boot.
fn sampled(
    systems: &[System],
    shape: &Shape,
    words: &[String],
    (samples, rows): (u32, usize),
) -> Result<Samples> {
    let mut all = Samples::new();
    for sample in 1..=samples {
        for system in in_turn(systems, sample) {
            let who = system.name();
            let title = format!("{who}: {} CPUs, sample {sample} of {samples}", shape.cpus);
            let progress = Progress::new(title, rows);
            for figure in run(system, shape, words, None, progress.step())? {
                all.entry((who, figure.row)).or_default().push(figure.value);
            }
        }
    }
    Ok(all)
}

/// One error of several, a line each; none if there is none.
pub fn together(errors: Vec<Error>) -> Result<()> {
    let lines: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
    if lines.is_empty() { Ok(()) } else { bail!("{}", lines.join("\n")) }
}

/// The systems in the order in which a sample boots them.
fn in_turn<T>(systems: &[T], sample: u32) -> Vec<&T> {
    let mut order: Vec<&T> = systems.iter().collect();
    if sample.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// The words for the guest: the names, with how many operations are to be timed.
fn timed_words(workloads: &[Workload], names: &[String]) -> Vec<String> {
    let count = |name: &String| workloads.iter().find(|w| w.name == *name)?.timed_count;
    let word = |name| count(name).map_or(name.clone(), |count| format!("{name}={count}"));
    names.iter().map(word).collect()
}

/// The workloads, as the guest calls them, by the machine that they need, in their order. Those
/// that have a large one have it to themselves: what they leave behind is large too.
pub(crate) fn machines(
    workloads: &[Workload],
    is_counted: bool,
    cpus: impl Fn(&Workload) -> u32,
) -> Vec<(Shape, Vec<String>)> {
    let mut machines: Vec<(Shape, Vec<String>)> = Vec::new();
    for workload in workloads {
        let reading = if is_counted { workload.reading } else { Reading::Clock };
        let (mem, boot) = (workload.mem.clone(), workload.boot.clone());
        let shape = Shape { cpus: cpus(workload), is_counted, mem, reading, boot };
        let name = split(&workload.name).0.to_string();
        match machines.iter_mut().find(|(other, _)| *other == shape && !other.is_large()) {
            Some((_, names)) => names.push(name),
            None => machines.push((shape, vec![name])),
        }
    }
    machines
}

/// How many figures these workloads give.
fn rows_of(budgets: &Budgets, names: &[String]) -> usize {
    budgets.rows.iter().filter(|row| names.contains(&row.workload)).count()
}

/// A line on the terminal that says how far one machine is.
struct Progress {
    title: String,
    all: usize,
    done: usize,
}

impl Progress {
    /// Says that it boots. `all` is how many figures are awaited.
    fn new(title: String, all: usize) -> Self {
        let progress = Self { title, all, done: 0 };
        progress.show("boots");
        progress
    }

    /// For each figure.
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

    #[test]
    fn no_error_hides_another() {
        assert!(together(Vec::new()).is_ok());
        let inner = Error::msg("inner").context("outer");
        let all = together(vec![inner, Error::msg("other")]).expect_err("there are two");
        assert_eq!(format!("{all:#}"), "outer: inner\nother");
    }

    #[test]
    fn who_was_first_is_second_the_next_time() {
        let orders = [1, 2, 3].map(|sample| in_turn(&["ours", "go"], sample));
        assert_eq!(orders, [[&"ours", &"go"], [&"go", &"ours"], [&"ours", &"go"]]);
    }

    #[test]
    fn what_is_timed_is_told_how_often() {
        let text = "[[row]]\nname='a'\nwhat='x'\n[[row]]\nname='b'\nwhat='y'\n\
                    [workload.b]\ntimed_count = 500";
        let workloads = Budgets::parse(text).expect("good").workloads(&[]);
        let names = ["b", "a"].map(String::from);
        assert_eq!(timed_words(&workloads, &names), ["b=500", "a"]);
    }
}
