//! Runs cases, and tells of the first that fails so that it can be done again.
//!
//! A case that panics is caught; one that does not come back in [`PATIENCE`] is a
//! hang. Either way the number of the case is in the message, and its bytes are
//! in a file that `fuzz --target <name> --file <path>` reads.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Target, case};

/// How long one case may take. They take microseconds; a busy host may stop us.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of many cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were tried.
    pub cases: u64,
    /// Of how many the reader made something.
    pub used: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of which target.
    pub target: &'static str,
    /// The number of the case.
    pub number: u64,
    /// It did not come back; else it panicked, and has said why.
    pub is_hang: bool,
    /// Where its bytes are, if they could be written.
    pub file: Option<PathBuf>,
}

/// Until when to go on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many cases.
    Rounds(u64),
    /// So much time.
    Time(Duration),
}

/// Runs cases of `target` from number `first` on.
///
/// # Errors
/// The first that broke a promise.
///
/// ```
/// use fuzz::run::Until;
///
/// let cmdline = fuzz::target("cmdline").expect("it is there");
/// let tally = fuzz::run(cmdline, 1, Until::Rounds(20)).expect("no promise is broken");
/// assert_eq!(tally.cases, 20);
/// ```
pub fn run(target: &'static Target, first: u64, until: Until) -> Result<Tally, Failure> {
    // In a thread of its own, so that one that hangs is told all the same.
    let now_at = Arc::new(AtomicU64::new(first));
    let (sender, receiver) = channel();
    let shared = now_at.clone();
    std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(|| go_through(target, first, until, &shared));
        // The receiver is gone if it was taken for a hang.
        let _ = sender.send(outcome);
    });
    let mut seen = (first, Instant::now());
    loop {
        match receiver.recv_timeout(PATIENCE / 20) {
            Ok(Ok(tally)) => return Ok(tally),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::of(target, now_at.load(Relaxed), false));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let number = now_at.load(Relaxed);
        if number != seen.0 {
            seen = (number, Instant::now());
        } else if seen.1.elapsed() > PATIENCE {
            return Err(Failure::of(target, number, true));
        }
    }
}

fn go_through(target: &Target, first: u64, until: Until, now_at: &AtomicU64) -> Tally {
    let seeds = (target.seeds)();
    let begun = Instant::now();
    let mut tally = Tally::default();
    let is_over = |cases| match until {
        Until::Rounds(rounds) => cases >= rounds,
        Until::Time(time) => begun.elapsed() >= time,
    };
    while !is_over(tally.cases) {
        let number = first.wrapping_add(tally.cases);
        now_at.store(number, Relaxed);
        tally.used += u64::from((target.check)(&case(target, &seeds, number)));
        tally.cases += 1;
    }
    tally
}

impl Failure {
    fn of(target: &Target, number: u64, is_hang: bool) -> Failure {
        let root = tool::tree::root().join("target/found");
        let file = root.join(format!("{}-{number}.bin", target.name));
        let bytes = case(target, &(target.seeds)(), number);
        let written = std::fs::create_dir_all(&root).and_then(|()| std::fs::write(&file, bytes));
        let file = written.is_ok().then_some(file);
        Failure { target: target.name, number, is_hang, file }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { target, number, .. } = self;
        let what = if self.is_hang { "does not come back from" } else { "broke a promise in" };
        writeln!(f, "{target} {what} case {number}; again with")?;
        write!(f, "  cargo run -p fuzz -- --target {target} --seed {number} --rounds 1")?;
        match &self.file {
            Some(file) => write!(f, "\nits bytes are in {}", file.display()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(_: &mut Vec<u8>, _: u64) {}

    static BROKEN: Target = Target {
        name: "broken",
        seeds: || vec![b"abc".to_vec()],
        words: &[],
        repair: leave,
        check: |bytes| {
            assert!(!bytes.starts_with(b"a\x00"), "found");
            true
        },
        most: 100,
    };

    #[test]
    fn a_failure_is_told_by_a_number_that_fails_again() {
        let failure = run(&BROKEN, 1, Until::Rounds(100_000)).expect_err("it is broken");
        let again = run(&BROKEN, failure.number, Until::Rounds(1)).expect_err("again");
        assert_eq!(again, failure);
        assert!(failure.to_string().contains(&format!("--seed {} --rounds 1", failure.number)));
        let bytes = std::fs::read(failure.file.expect("a file")).expect("its bytes");
        assert!(bytes.starts_with(b"a\x00"));
    }
}
