//! Chaos, seed by seed: which machine a seed stands for, and what came of it.
//!
//! A seed names a whole run: the program, the number of CPUs and what the kernel
//! draws (`chaos=SEED`). So a failure is repeated by its number, and a sweep over
//! consecutive seeds goes through all programs at all numbers of CPUs.
//!
//! `make chaos` (`src/bin/chaos.rs`) sweeps; `tests/machine/chaos.rs` has a few seeds for
//! every `make test`.

use crate::guest::Boot;
use crate::outcome::Outcome;

/// What is run, with its arguments: programs of `tests/guest` whose checks count,
/// and do not assume that anything happens soon, or undisturbed.
pub const PROGRAMS: [(&str, &str); 14] = [
    ("stress", "20000"),
    ("syncing", ""),
    ("blocking", ""),
    ("poller", ""),
    ("killing", ""),
    ("programs", ""),
    ("tasks", ""),
    ("scheduling", ""),
    ("overflow", ""),
    ("memory", ""),
    ("cycles", ""),
    ("unwinding", ""),
    ("invariants", "5"),
    ("soak", "4"),
];

/// The memory of the machine: what is filled to the last page should be little.
fn mem_of(program: &str) -> &'static str {
    if program == "memory" { "128M" } else { "2G" }
}

/// On so many CPUs, by turns.
pub const CPUS: [usize; 4] = [8, 4, 2, 1];

/// Longer than any of them takes on a busy host.
const LIMIT_S: u64 = 300;

/// What is run under a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static str,
    /// The number of CPUs.
    pub cpus: usize,
}

impl Run {
    /// That of a seed.
    ///
    /// ```
    /// use tests::sweep::{CPUS, PROGRAMS, Run};
    /// let all = PROGRAMS.len() * CPUS.len();
    /// let mut runs: Vec<_> = (1..=all as u64).map(|n| Run::of(n)).map(|r| (r.program, r.cpus)).collect();
    /// runs.sort();
    /// runs.dedup();
    /// assert_eq!(runs.len(), all, "each program once on each machine");
    /// ```
    pub fn of(seed: u64) -> Run {
        let programs = PROGRAMS.len() as u64;
        let (program, args) = PROGRAMS[(seed % programs) as usize];
        let cpus = CPUS[(seed / programs) as usize % CPUS.len()];
        Run { seed, program, args, cpus }
    }

    /// Boots it.
    pub fn run(&self) -> Outcome {
        let Run { seed, program, args, cpus } = self;
        let cmdline = format!("program={program} log=error chaos={seed} -- {args}");
        let name = format!("chaos-{seed}");
        Boot::guest(name).smp(cpus).mem(mem_of(program)).cmdline(&cmdline).limit(LIMIT_S).run()
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Run { seed, program, cpus, .. } = self;
        write!(f, "chaos={seed} {program} on {cpus} CPUs")
    }
}
