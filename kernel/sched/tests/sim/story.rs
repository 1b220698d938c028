//! Runs seeds until one fails, shortens that run, and tells it step by step. For the grader
//! (`labs/`), which reads what it prints.
//!
//! ```text
//! story [--seeds N] [--steps N] [--large 1] [--system NAME]
//! ```
//!
//! Each seed prints `seed N CPUs`, so that the reader of a run that does not end knows where
//! it stands. A failure prints one line of JSON and ends the run with status 1: the verdict,
//! the seed, the shortened machine and its last steps.
//!
//! A run is shortened in two ways, as long as it fails in the same words: other seeds of
//! smaller machines (fewer CPUs, fewer Gs, rarer switches), then switches of the best one left
//! out, half of them at a time, then a quarter, and so on.

mod world;

use sched::sim::{self, Plan, What};
use std::cell::RefCell;
use std::fmt::Write;
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::{Shape, simulate};

/// Seeds of each smaller machine that are tried.
const SMALLER_SEEDS: u64 = 150;
/// Steps of a CPU after which a shortened run counts as stuck.
const STUCK_STEPS: u64 = 20_000;
/// How long a run may be shortened. The verdict does not depend on it.
const PATIENCE: Duration = Duration::from_secs(6);

/// A run that failed.
#[derive(Clone)]
struct Failure {
    seed: u64,
    shape: Shape,
    left_out: Vec<Range<u64>>,
    switches: u64,
    switched: u64,
    gs: u32,
    said: String,
    at: String,
}

impl Failure {
    /// Whether this is the same mistake: the same words, whatever the numbers.
    fn is_like(&self, other: &Failure) -> bool {
        let words = |said: &str| said.replace(|c: char| c.is_ascii_digit(), "");
        words(&self.said) == words(&other.said)
    }
}

fn main() -> ExitCode {
    let (mut seeds, mut steps, mut large, mut system) = (5_000, 400, false, "mpn");
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let text = words.next().unwrap_or_default();
        let value: u64 = text.parse().unwrap_or(0);
        match &*word {
            "--system" => system = text.leak(),
            "--seeds" => seeds = value,
            "--steps" => steps = value as usize,
            "--large" => large = value != 0,
            _ => panic!("unknown option {word}"),
        }
    }
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
        AT.set(at.unwrap_or_default());
    }));
    let small = (1..=seeds).map(|seed| (seed, [2, 3, 4, 1, 2, 3, 8, 5][seed as usize % 8]));
    let big = (1..=5).flat_map(|seed| [16, 64, 256].map(|cpus| (seed, cpus)));
    let all = small.chain(big.filter(|_| large));
    for (seed, cpus) in all {
        println!("seed {seed} {cpus}");
        let found = run(seed, Shape { system, ..Shape::of(cpus) }, vec![], 0).err();
        if let Some(found) = found {
            println!("failed {}", found.said.lines().next().unwrap_or_default());
            let _ = std::io::stdout().flush();
            let short = shorten(&found);
            println!("{}", tell(&found, &short, steps));
            return ExitCode::FAILURE;
        }
    }
    println!("passed {seeds}");
    ExitCode::SUCCESS
}

thread_local! {
    /// Where the last panic was.
    static AT: RefCell<String> = const { RefCell::new(String::new()) };
}

fn run(seed: u64, shape: Shape, left_out: Vec<Range<u64>>, steps: usize) -> Result<(), Failure> {
    sim::plan(Plan { steps, left_out: left_out.clone() });
    catch_unwind(AssertUnwindSafe(|| simulate(seed, shape, None))).map_err(|panic| {
        sim::end();
        let text = panic.downcast_ref::<String>().cloned();
        let said = text.or(panic.downcast_ref::<&str>().map(|s| s.to_string()));
        let (said, at) = (said.unwrap_or_default(), AT.take());
        let (switches, switched) = sim::switches();
        let gs = world::MADE.get();
        Failure { seed, shape, left_out, switches, switched, gs, said, at }
    })
}

fn shorten(found: &Failure) -> Failure {
    let begun = Instant::now();
    let in_time = || begun.elapsed() < PATIENCE;
    // A machine that is stuck is so after fewer steps, too.
    let is_stuck = found.said.contains("no progress");
    let steps = if is_stuck { STUCK_STEPS } else { found.shape.steps };
    let mut best = found.clone();
    'sizes: for cpus in 1..=found.shape.cpus {
        for gs in [1, 2, 3, 4, 6, 9, 12, 20] {
            let mut fewest: Option<Failure> = None;
            for (seed, every) in (1..=SMALLER_SEEDS).flat_map(|s| [(s, 2), (s, 8), (s, 32)]) {
                if !in_time() {
                    break;
                }
                let (gs, every) = (Some(gs), Some(every));
                let shape =
                    Shape { gs, every, steps, system: found.shape.system, ..Shape::of(cpus) };
                let Err(other) = run(seed, shape, vec![], 0) else { continue };
                let less = fewest.as_ref().is_none_or(|f| other.switches < f.switches);
                if less && other.is_like(found) {
                    fewest = Some(other);
                }
            }
            if let Some(fewest) = fewest {
                best = fewest;
                break 'sizes;
            }
        }
    }
    let mut part = best.switches / 2;
    while part > 0 && in_time() {
        let mut from = 0;
        while from < best.switches && in_time() {
            let mut left_out = best.left_out.clone();
            left_out.push(from..from + part);
            match run(best.seed, best.shape, left_out, 0) {
                Err(other) if other.is_like(found) && other.switches <= best.switches => {
                    best = other
                }
                _ => {}
            }
            from += part;
        }
        part /= 2;
    }
    best
}

/// The failure as JSON, with the steps of the shortened run.
fn tell(found: &Failure, short: &Failure, steps: usize) -> String {
    // Once more, recorded: the same run, as recording takes nothing from its chances.
    let again = run(short.seed, short.shape, short.left_out.clone(), steps).err();
    let log = sim::take_log();
    let again = again.unwrap_or_else(|| short.clone());
    let mut out = String::new();
    let _ = write!(
        out,
        "{{\"seed\":{},\"cpus\":{},\"switches\":{},\"short\":{{\"seed\":{},\"cpus\":{},\"gs\":{},\
         \"switches\":{}}},\"said\":{},\"at\":{},\"steps\":[",
        found.seed,
        found.shape.cpus,
        found.switched,
        short.seed,
        short.shape.cpus,
        again.gs,
        again.switched,
        quoted(&again.said),
        quoted(&again.at),
    );
    for (i, step) in log.iter().enumerate() {
        let (kind, said) = match &step.what {
            What::Read(value) => ("read", format!("reads {value}")),
            What::Store(value) => ("store", format!("stores {value} in its buffer")),
            What::Visible(value) => ("visible", format!("its store of {value} is visible now")),
            What::Change(old, new) if old == new => ("change", format!("leaves {old} (locked)")),
            What::Change(old, new) => ("change", format!("changes {old} to {new} (locked)")),
            What::Refused(found) => ("refused", format!("finds {found}: nothing is changed")),
            What::Fence => ("fence", "fence: all of its stores are visible".into()),
            What::Spin => ("spin", "waits in spin_loop".into()),
            What::Note(said) => ("note", said.clone()),
        };
        let calls = match kind {
            "note" | "visible" => String::new(),
            _ => frames(&step.calls.to_string()),
        };
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(
            out,
            "{comma}{{\"cpu\":{},\"kind\":\"{kind}\",\"said\":{},\"object\":{},\"calls\":[{calls}]}}",
            step.cpu,
            quoted(&said),
            quoted(step.object.as_deref().unwrap_or_default()),
        );
    }
    out.push_str("]}");
    out
}

/// The calls in files of the crate, innermost first: `["file", line], …`.
fn frames(backtrace: &str) -> String {
    let places = backtrace.lines().filter_map(|line| line.trim().strip_prefix("at "));
    let ours = places.filter_map(|place| {
        let (_, place) = place.split_once("sched/src/")?;
        let mut parts = place.split(':');
        let (file, line) = (parts.next()?, parts.next()?);
        (!matches!(file, "sim.rs" | "sync.rs")).then(|| format!("[\"{file}\",{line}]"))
    });
    ours.collect::<Vec<_>>().join(",")
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
