//! The whole machine, from outside: boot it, read it, judge it.
//!
//! A test says which machine and which command line, and gets back what the
//! guest printed and how it ended ([`guest`]). A guest that does not end is
//! reported as a hang with its last lines and the place of every CPU ([`hang`]).
//! One boot may carry many tests: the guest prints `TEST <name> ok` or
//! `TEST <name> FAILED: <why>` for each, and `guest_tests!` (`tests/machine/checks.rs`) makes
//! a host test of every name. What the guest is expected to print is in [`expect`] and
//! nowhere else.
//!
//! Two rules hold for every test here. It never asserts a wall-clock window: a
//! time limit is there for hangs alone. And it takes a core of the host before it starts its
//! machine ([`boot::cores`]), so that as many machines run as there are cores. A machine of
//! eight CPUs takes one core like any other: its CPUs halt for most of the time, and
//! company fails no test.
//!
//! ```no_run
//! use tests::guest::Boot;
//!
//! let outcome = Boot::new("hello").smp(8).cmdline("program=hello").run();
//! outcome.assert_ok();
//! outcome.assert_line("hello, world");
//! ```

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod book;
pub mod checks;
pub mod expect;
pub mod explore;
pub mod files;
#[cfg(test)]
mod forbidden;
pub mod gdb;
pub mod guest;
pub mod hang;
#[cfg(test)]
mod links;
pub mod madt;
pub mod memory;
pub mod outcome;
pub mod qmp;
pub mod registers;
pub mod results;
pub mod screen;
#[cfg(test)]
mod seen;
pub mod snapshot;
pub mod soak;
pub mod stage;
pub mod sweep;
pub mod symbols;
pub mod typist;
#[cfg(test)]
mod walks;

use std::path::PathBuf;

/// Where logs, screenshots and results are kept.
pub fn out_dir() -> PathBuf {
    boot::target_dir().join("tests")
}

/// How much to try, where a test can try more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// `make test-quick`.
    Quick,
    /// `make test`, and a bare `cargo test`.
    Sample,
    /// `make test-full`.
    Full,
}

impl Effort {
    /// The word for it in the environment.
    pub fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Sample => "sample",
            Self::Full => "full",
        }
    }
}

/// 8 CPUs, and in `make test-full` also `fewer`: for boots that take ten CPU seconds each.
pub fn eight_or(fewer: usize) -> impl Iterator<Item = usize> {
    let fewer = (effort() == Effort::Full).then_some(fewer);
    [8].into_iter().chain(fewer)
}

/// What `RUNNEXT_TEST` in the environment asks for.
pub fn effort() -> Effort {
    let asked = std::env::var("RUNNEXT_TEST").unwrap_or_default();
    let all = [Effort::Quick, Effort::Sample, Effort::Full];
    all.into_iter().find(|effort| effort.word() == asked).unwrap_or(Effort::Sample)
}
