//! `make explore`: one program under many interleavings, and the first that fails.
//!
//! Each seed is a run in virtual time ([`Case`]): `chaos=` draws preemptions, delays and late
//! wake-ups from it, and the length of the CPUs' turns follows from it. All runs start from
//! one snapshot ([`crate::snapshot`]), as many at once as the host has cores, and each repeats
//! exactly. So all are traced: the events of a failure are those of the run that failed, and
//! not of a later one that tracing has made another.
//!
//! A seed fails if the program deadlocks, panics, ends with a code that is not 0, or does not
//! end within a limit of virtual time. The first is shrunk ([`Explorer::shrink`]): as long as
//! a run ends in the same way, it gets fewer CPUs, no chaos, longer turns.

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result, anyhow};
use boot::exit::{End, OK, PANIC};

use crate::files::trace_of;
use crate::guest::Boot;
use crate::outcome::{Ended, Outcome};

/// The lengths of turns that seeds have by turns, in microseconds for all CPUs together; the
/// longest first. Under 20 QEMU takes several times as long.
const TURNS_US: [u32; 5] = [1000, 400, 150, 60, 20];
/// Room in the ring of each CPU: a small program fits, and the kernel zeroes it in every run.
const EVENTS: u32 = 1 << 12;
/// How many seeds are tried for each thing that shrinking tries.
const SHRINK_SEEDS: u64 = 24;
/// The usual limit, in seconds of virtual time.
pub const LIMIT_S: u64 = 10;

/// What is explored, and on which machine.
#[derive(Clone, Debug)]
pub struct Explorer {
    /// The kernel with the program.
    pub kernel: PathBuf,
    /// The image with that kernel.
    pub image: PathBuf,
    /// The program, if the image has several.
    pub program: Option<String>,
    /// Further words for the kernel, and behind `--` for the program.
    pub words: String,
    /// The machine's CPUs.
    pub cpus: usize,
    /// Its memory.
    pub mem: String,
    /// When a run is a hang, in seconds of virtual time.
    pub limit_s: u64,
    /// What the logs of the runs are called.
    pub name: String,
}

/// One run: all that it depends on, beside the program and the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What the order of stealing, and chaos, is drawn from.
    pub seed: u64,
    /// CPUs that start.
    pub cpus: usize,
    /// Whether there is chaos.
    pub has_chaos: bool,
    /// The length of turns.
    pub turns_us: u32,
}

impl Case {
    /// The case of a seed on so many CPUs.
    ///
    /// ```
    /// use tests::explore::Case;
    /// assert_eq!(Case::of(7, 4).to_string(), "maxcpus=4 turns=150 seed=7 chaos=7");
    /// ```
    pub fn of(seed: u64, cpus: usize) -> Self {
        let turns_us = TURNS_US[(seed % TURNS_US.len() as u64) as usize];
        Self { seed, cpus, has_chaos: true, turns_us }
    }
}

/// The words for the kernel.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, cpus, has_chaos, turns_us } = self;
        write!(f, "maxcpus={cpus} turns={turns_us} seed={seed}")?;
        if *has_chaos { write!(f, " chaos={seed}") } else { Ok(()) }
    }
}

/// How a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It ended with this code.
    Code(u8),
    /// It did not end.
    Hang,
    /// The machine reset, or QEMU failed.
    Machine,
}

impl Failure {
    /// That of a run, if it failed.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.ended {
            Ended::Exit(End::Code(OK)) | Ended::Seen => None,
            Ended::Exit(End::Code(code)) => Some(Self::Code(code)),
            Ended::Exit(_) => Some(Self::Machine),
            Ended::Hang(_) => Some(Self::Hang),
        }
    }
}

/// The codes are those of docs/failures.md.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(100) => write!(f, "the program panicked (code 100)"),
            Self::Code(PANIC) => write!(f, "the kernel panicked (code {PANIC})"),
            Self::Code(104) => write!(f, "deadlock (code 104)"),
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Hang => write!(f, "hang: no end within the limit of virtual time"),
            Self::Machine => write!(f, "the machine reset or QEMU failed"),
        }
    }
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which run.
    pub case: Case,
    /// How it failed.
    pub failure: Failure,
    /// All that it left.
    pub outcome: Outcome,
    /// Its events.
    pub events: Vec<u8>,
}

impl Explorer {
    /// The first of these cases that fails, by their order and not by the host's speed, and
    /// how many runs there were. With `like`, only a failure of that kind counts.
    ///
    /// # Errors
    /// The harness cannot go on.
    pub fn first(&self, cases: &[Case], like: Option<Failure>) -> Result<(usize, Option<Found>)> {
        let (next, runs, is_over) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        // The earliest failure so far, with its place among the cases.
        let best: Mutex<Option<(usize, Result<Found>)>> = Mutex::new(None);
        let work = |worker: usize| {
            while !is_over.load(Relaxed) {
                let at = next.fetch_add(1, Relaxed);
                // All before this one are under way or done.
                let Some(case) = cases.get(at) else { return };
                runs.fetch_add(1, Relaxed);
                let run = self.run(case, worker);
                let is_wanted = |found: &Found| like.is_none_or(|like| like == found.failure);
                let Some(found) = run.transpose() else { continue };
                if found.as_ref().is_ok_and(|found| !is_wanted(found)) {
                    continue;
                }
                is_over.store(true, Relaxed);
                let mut best = best.lock().expect("no worker panics");
                if best.as_ref().is_none_or(|(earliest, _)| at < *earliest) {
                    *best = Some((at, found));
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from).min(cases.len());
        thread::scope(|scope| {
            (0..workers).for_each(|worker| drop(scope.spawn(move || work(worker))));
        });
        let best = best.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
        Ok((runs.into_inner(), best.map(|(_, found)| found).transpose()?))
    }

    /// One run; what it left if it failed. `worker` keeps the files of runs apart.
    fn run(&self, case: &Case, worker: usize) -> Result<Option<Found>> {
        let name = format!("{}-{worker}", self.name);
        let stream = trace_of(&name);
        let program = self.program.as_ref().map(|name| format!("program={name} "));
        let words = format!(
            "{}log=warn trace=stream events={EVENTS} {case} {}",
            program.unwrap_or_default(),
            self.words
        );
        let outcome = Boot::built(name, self.kernel.clone(), self.image.clone())
            .smp(self.cpus)
            .mem(&self.mem)
            .debugcon(&stream)
            .virtual_time_of(case.seed)
            .virtual_limit(self.limit_s)
            .cmdline(&words)
            .try_run()?;
        let Some(failure) = Failure::of(&outcome) else { return Ok(None) };
        let events = std::fs::read(&stream).with_context(|| stream.display().to_string())?;
        Ok(Some(Found { case: *case, failure, outcome, events }))
    }

    /// Makes what was found as simple as it can be: on fewer CPUs, then without chaos, then
    /// in longer turns. Another machine runs otherwise from the same seed, so some seeds are
    /// tried for each. Gives the simplest case that fails in the same way, and the runs.
    ///
    /// # Errors
    /// The harness cannot go on.
    pub fn shrink(&self, found: Found) -> Result<(usize, Found)> {
        let (mut runs, mut found) = (0, found);
        // Whether one of them fails in the same way; then it is the one from here on.
        let mut attempt = |found: &mut Found, change: &dyn Fn(Case) -> Case| -> Result<bool> {
            let first = found.case.seed;
            let seeds = first..first + SHRINK_SEEDS;
            let cases: Vec<_> = seeds.map(|seed| change(Case { seed, ..found.case })).collect();
            let (tried, simpler) = self.first(&cases, Some(found.failure))?;
            runs += tried;
            let Some(simpler) = simpler else { return Ok(false) };
            *found = simpler;
            Ok(true)
        };
        for cpus in 1..found.case.cpus {
            if attempt(&mut found, &|case| Case::of(case.seed, cpus))? {
                break;
            }
        }
        let turns_of = |case: Case| Case::of(case.seed, case.cpus).turns_us;
        attempt(&mut found, &|case| Case { has_chaos: false, turns_us: turns_of(case), ..case })?;
        for turns_us in TURNS_US {
            if turns_us <= found.case.turns_us
                || attempt(&mut found, &|case| Case { turns_us, ..case })?
            {
                break;
            }
        }
        Ok((runs, found))
    }
}
