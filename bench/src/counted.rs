//! The figures that are counted, where a virtual nanosecond is an instruction.
//!
//! Two boots must agree, or the figure is none; the second of them has the plugin
//! that counts locked instructions. How cost grows is counted too, with more and
//! more Gs and Ps that have no part in it. What the host does meanwhile changes
//! nothing, so two machines run at a time, of which one may be large.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Error, Result, bail};

use crate::budgets::Workload;
use crate::locked::Plugin;
use crate::machine::{Figure, Reading, Shape, System, run};
use crate::measure::{machines, together};
use crate::results::Results;

/// How far apart two runs may be, as a part of the figure.
const TOLERANCE: f64 = 0.005;
/// The same of several CPUs in short turns. When the loader enters the kernel depends on
/// the host, so a turn may end some instructions earlier or later; and of two Gs that meet, the one or
/// the other may be the one that waits.
const TURNS_TOLERANCE: f64 = 0.06;
/// What is measured while other Gs and Ps are there.
pub const GROWN: [&str; 3] = ["yield", "chan_pingpong", "spawn_join"];
/// How many other Gs there are, waiting.
const OTHER_GS: [u64; 4] = [10, 1_000, 100_000, 1_000_000];
/// How many Ps there are, with as many CPUs.
const PS: [u32; 4] = [1, 8, 64, 255];
/// What is executed for a sleep while all CPUs halt: going idle is most of it. Counted with
/// more and more Ps, too.
pub const IDLE: &str = "idle";
/// How many machines run at a time, if the host has as many CPUs.
const AT_A_TIME: usize = 2;

/// One machine, booted once or twice.
struct Task<'a> {
    system: &'a System,
    shape: Shape,
    words: Vec<String>,
    /// What there is more of, and how many, if that is what it is about.
    grown: Option<(&'static str, u64)>,
}

/// What a task gave: the figures of its first boot and of its second.
type Figures = (Vec<Figure>, Vec<Figure>);

/// Counts instructions for the workloads and, if that is wanted, how they grow.
/// All is tried and what is there is kept, also if something fails.
pub fn counted(
    systems: &[System],
    workloads: &[Workload],
    with_growth: bool,
    results: &mut Results,
) -> Result<()> {
    let mut tasks = Vec::new();
    for system in systems {
        let is_for = |w: &&Workload| !w.is_ours || system.is_ours();
        let workloads: Vec<Workload> = workloads.iter().filter(is_for).cloned().collect();
        for (shape, words) in machines(&workloads, true, |workload| workload.cpus) {
            tasks.push(Task { system, shape, words, grown: None });
        }
        if with_growth {
            tasks.extend(growth(system));
        }
    }
    tasks.retain(|task| match task.system.hindrance(&task.shape) {
        Some(why) => {
            task.say_none(&why);
            false
        }
        None => true,
    });
    together(work_off(tasks, results))
}

/// The machines that say how cost grows.
fn growth(system: &System) -> Vec<Task<'_>> {
    let plain: Vec<String> = GROWN.map(String::from).to_vec();
    let task = |of, many, cpus, mem: &str, words| Task {
        system,
        shape: Shape { cpus, mem: mem.into(), ..Shape::counted() },
        words,
        grown: Some((of, many)),
    };
    let gs = OTHER_GS.iter().map(|&gs| {
        let words = [vec![format!("live={gs}")], plain.clone()].concat();
        task("gs", gs, 1, if gs > 10_000 { "6G" } else { "1G" }, words)
    });
    let ps = PS.iter().map(|&cpus| task("ps", cpus.into(), cpus, "1G", plain.clone()));
    let idle = PS.iter().filter(|_| system.is_ours()).map(|&cpus| {
        let mut task = task("ps", cpus.into(), cpus, "1G", vec![IDLE.into()]);
        task.shape.reading = Reading::Executed;
        task
    });
    gs.chain(ps).chain(idle).collect()
}

/// Tasks that wait for a worker.
struct Queue<'a> {
    waiting: Vec<Task<'a>>,
    /// How many there were, and how many of them have been taken.
    all: usize,
    taken: usize,
    /// Whether a machine runs that has 6 GiB of the host's memory.
    has_large: bool,
}

impl<'a> Queue<'a> {
    fn new(tasks: Vec<Task<'a>>) -> Self {
        Self { all: tasks.len(), waiting: tasks, taken: 0, has_large: false }
    }

    /// The first that may run now, with its place. A worker that gets none is done:
    /// what is left then is large, and goes to the worker that runs a large one.
    fn take(&mut self) -> Option<(Task<'a>, String)> {
        let may_run = |task: &Task<'_>| !(self.has_large && task.shape.is_large());
        let task = self.waiting.remove(self.waiting.iter().position(may_run)?);
        self.has_large |= task.shape.is_large();
        self.taken += 1;
        Some((task, format!("machine {} of {}", self.taken, self.all)))
    }

    /// That one is off.
    fn is_off(&mut self, task: &Task<'_>) {
        self.has_large &= !task.shape.is_large();
    }
}

/// Runs the tasks, some at a time, in about their order. Gives what failed.
fn work_off(tasks: Vec<Task<'_>>, results: &mut Results) -> Vec<Error> {
    let queue = Mutex::new(Queue::new(tasks));
    let queue = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = Mutex::new((results, Vec::new()));
    let worker = || {
        let next = || queue().take();
        while let Some((task, place)) = next() {
            let done = task.run(&place);
            queue().is_off(&task);
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let (results, failed) = &mut *kept;
            let done = done.and_then(|figures| {
                task.keep(&figures, results);
                results.save()
            });
            match done {
                Ok(()) => {}
                // Several CPUs that take turns, or very many Gs, are hard on a
                // kernel; the other figures are worth having without these.
                Err(error) if task.grown.is_some() || task.is_other_and_wide() => {
                    task.say_none(&format!("{error:#}"));
                }
                Err(error) => failed.push(error.context(task.words.join(" "))),
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(AT_A_TIME);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(worker);
        }
    });
    kept.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

impl Task<'_> {
    /// Boots it: twice, and with the plugin the second time; once for growth.
    fn run(&self, place: &str) -> Result<Figures> {
        let boot = |title: &str, plugin: Option<&Plugin>| {
            let (who, words) = (self.system.name(), self.words.join(" "));
            let title = format!("{place}: {who}: {title}: {words}");
            // Not over itself: another machine may have written the line above.
            eprintln!("{title}");
            let start = Instant::now();
            let figures = run(self.system, &self.shape, &self.words, plugin, |_| ());
            eprintln!("{title}: off after {} s", start.elapsed().as_secs());
            figures
        };
        let plugin = || Plugin::new(self.system.program(), &self.shape);
        let executed = match self.shape.reading {
            Reading::Executed => Some(plugin()?.context("only the plugin can count that")?),
            _ => None,
        };
        if let Some((of, many)) = self.grown {
            let title = format!("instructions with {many} {of}");
            return Ok((boot(&title, executed.as_ref())?, Vec::new()));
        }
        let first = boot("instructions, run 1 of 2", executed.as_ref())?;
        // What runs on several CPUs has no marks for the locked ones.
        let is_narrow = self.shape.cpus == 1;
        let is_plain = self.shape.reading == Reading::Clock;
        let plugin = match executed {
            None if is_narrow && is_plain => plugin()?,
            executed => executed,
        };
        let second = boot("instructions, run 2 of 2", plugin.as_ref())?;
        let is_wide = self.shape.is_wide() && !is_plain;
        let apart = apart(&first, &second, if is_wide { TURNS_TOLERANCE } else { TOLERANCE });
        if !apart.is_empty() {
            // Go's runtime draws random numbers where it likes; and where several
            // CPUs take turns, what one was about to do when the other was started
            // depends on the firmware.
            if (is_narrow || !is_plain) && self.system.is_ours() {
                bail!("two runs differ by too much: {apart}");
            }
            eprintln!("note: two runs of {} differ: {apart}", self.system.name());
        }
        Ok((first, second))
    }

    fn keep(&self, (first, second): &Figures, results: &mut Results) {
        let who = self.system.name();
        if let Some((of, many)) = self.grown {
            for figure in first {
                results.set_grown(of, many, who, &figure.row, figure.value);
            }
        }
        for (figure, again) in first.iter().zip(second) {
            results.set_counted(who, &self.row(figure), figure.value, again.value);
            if let Some(locked) = again.locked {
                results.set_locked(who, &figure.row, locked);
            }
        }
    }

    /// The row that a figure is of: with the number of CPUs, unless it is of the plain table.
    fn row(&self, figure: &Figure) -> String {
        match self.shape.reading {
            Reading::Clock => figure.row.clone(),
            _ => format!("{}@{}", figure.row, self.shape.cpus),
        }
    }

    fn is_other_and_wide(&self) -> bool {
        matches!(self.system, System::Go { .. }) && self.shape.is_wide()
    }

    fn say_none(&self, why: &str) {
        let (who, words) = (self.system.name(), self.words.join(" "));
        eprintln!("bench: no figure of {who} for {words}: {why}");
    }
}

/// The rows whose figures differ too much, with both; empty if none does.
fn apart(first: &[Figure], second: &[Figure], tolerance: f64) -> String {
    let second: BTreeMap<&str, f64> = second.iter().map(|f| (f.row.as_str(), f.value)).collect();
    let differs = |Figure { row, value: a, .. }: &&Figure| {
        second.get(row.as_str()).is_none_or(|b| (a - b).abs() > tolerance * a.max(*b))
    };
    let words = first.iter().filter(differs).map(|Figure { row, value, .. }| {
        let b = second.get(row.as_str()).map_or("nothing".into(), |b| format!("{b:.1}"));
        format!("{row} {value:.1} and {b}")
    });
    words.collect::<Vec<_>>().join(", ")
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
        assert_eq!(apart(&first, &figures(&[("a", 1004.0), ("b", 50.0)]), TOLERANCE), "");
        let second = figures(&[("a", 1006.0), ("b", 50.0)]);
        assert_eq!(apart(&first, &second, TOLERANCE), "a 1000.0 and 1006.0");
        assert_eq!(apart(&first, &figures(&[("a", 1000.0)]), TOLERANCE), "b 50.0 and nothing");
    }

    #[test]
    fn growth_is_asked_for_in_every_size_on_a_machine_that_has_it() {
        let system = System::Ours { image: "i".into(), program: "p".into() };
        let tasks = growth(&system);
        assert_eq!(tasks.len(), OTHER_GS.len() + 2 * PS.len());
        let million = tasks.iter().find(|task| task.grown == Some(("gs", 1_000_000)));
        let million = million.expect("it is one of them");
        assert_eq!((million.words[0].as_str(), million.shape.mem.as_str()), ("live=1000000", "6G"));
        let widest = tasks.last().expect("there are some");
        assert_eq!((widest.grown, widest.shape.cpus), (Some(("ps", 255)), 255));
        assert_eq!((widest.words[0].as_str(), widest.shape.reading), (IDLE, Reading::Executed));
    }

    #[test]
    fn at_most_one_large_machine_runs_at_a_time() {
        let system = System::Ours { image: "i".into(), program: "p".into() };
        let task = |mem: &str, word: &str| Task {
            system: &system,
            shape: Shape { mem: mem.into(), ..Shape::counted() },
            words: vec![word.into()],
            grown: None,
        };
        let tasks = [("6G", "large"), ("6G", "huge"), ("1G", "small"), ("1G", "tiny")];
        let mut queue = Queue::new(tasks.map(|(mem, word)| task(mem, word)).into());
        let mut take = |off: Option<&Task<'_>>| {
            off.into_iter().for_each(|task| queue.is_off(task));
            queue.take()
        };
        let (large, place) = take(None).expect("the first");
        assert_eq!((large.words[0].as_str(), place.as_str()), ("large", "machine 1 of 4"));
        let (small, place) = take(None).expect("one that fits beside it");
        assert_eq!((small.words[0].as_str(), place.as_str()), ("small", "machine 2 of 4"));
        let (tiny, _) = take(Some(&small)).expect("the large one still runs");
        assert_eq!(tiny.words[0], "tiny");
        assert!(take(Some(&tiny)).is_none(), "what is left is large");
        let (huge, _) = take(Some(&large)).expect("now there is room");
        assert_eq!(huge.words[0], "huge");
    }

    #[test]
    fn figures_are_kept_with_those_of_the_second_run() {
        let system = System::Ours { image: "i".into(), program: "p".into() };
        let shape = Shape::counted();
        let task = Task { system: &system, shape, words: vec![], grown: None };
        let mut second = figures(&[("a", 101.0)]);
        second[0].locked = Some(2.0);
        let mut results = Results::default();
        task.keep(&(figures(&[("a", 100.0)]), second), &mut results);
        assert_eq!(results.counted("ours", "a"), Some(100.0));
        assert_eq!(results.counted_again("ours", "a"), Some(101.0));
        assert_eq!(results.locked("ours", "a"), Some(2.0));
    }
}
