//! The host's cores, shared out among the machines that run on it.
//!
//! Tests, benchmarks, `make soak` and `make chaos` may run side by side. Each machine takes one
//! core before it starts; a benchmark that is timed takes all. They give them back by dropping
//! them. A core is a file that is locked, so the host's kernel gives back those of a
//! process that dies. Takers stand in line at one more such file: without a line, a machine that
//! needs all cores would never find them free at the same time.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// How often the first in line looks for a free core.
const POLL: Duration = Duration::from_millis(5);

/// Cores that are taken until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Cores(#[expect(dead_code, reason = "closing the files unlocks them")] Vec<File>);

impl Cores {
    /// Waits for `wanted` cores of this host, or for all if it has fewer.
    pub fn take(wanted: usize) -> Result<Self> {
        let dir = crate::target_dir().join("cores");
        Self::take_in(&dir, wanted, number_of_cores())
    }

    fn take_in(dir: &Path, wanted: usize, number: usize) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let open = |name: &str| {
            let path = dir.join(name);
            File::create(&path).with_context(|| path.display().to_string())
        };
        let line = open("line")?;
        line.lock().context("standing in line for a core")?;
        let mut taken = Vec::new();
        let mut free: Vec<_> = (0..number).map(|n| open(&n.to_string())).collect::<Result<_>>()?;
        while taken.len() < wanted.min(number) {
            let mut locked = None;
            for (at, core) in free.iter().enumerate() {
                match core.try_lock() {
                    Ok(()) => locked = Some(at),
                    Err(TryLockError::WouldBlock) => continue,
                    Err(TryLockError::Error(error)) => return Err(error).context("locking a core"),
                }
                break;
            }
            match locked {
                Some(at) => taken.push(free.swap_remove(at)),
                None => thread::sleep(POLL),
            }
        }
        Ok(Self(taken))
    }
}

/// The cores of this host.
pub fn number_of_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[test]
    fn no_more_cores_are_taken_than_there_are_and_takers_of_all_come_to_their_turn() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let dir = std::env::temp_dir().join(format!("runnext-cores-{}", std::process::id()));
        let work = |wanted: usize| {
            for _ in 0..20 {
                let cores = Cores::take_in(&dir, wanted, 2).expect("cores");
                let taken = TAKEN.fetch_add(wanted, SeqCst) + wanted;
                assert!(taken <= 2, "{taken} of 2 are taken");
                MOST.fetch_max(taken, SeqCst);
                thread::yield_now();
                TAKEN.fetch_sub(wanted, SeqCst);
                drop(cores);
            }
        };
        thread::scope(|scope| {
            for wanted in [1, 1, 1, 2] {
                scope.spawn(move || work(wanted));
            }
        });
        assert_eq!(MOST.load(SeqCst), 2, "two machines never ran side by side");
        fs::remove_dir_all(dir).ok();
    }

    /// Without the line each would have one of them and wait for the other.
    #[test]
    fn two_that_want_all_cores_get_them_one_after_the_other() {
        let dir = std::env::temp_dir().join(format!("runnext-all-cores-{}", std::process::id()));
        let (say, said) = std::sync::mpsc::channel();
        for _ in 0..30 {
            let held = Cores::take_in(&dir, 1, 2).expect("the first core");
            for _ in 0..2 {
                let (dir, say) = (dir.clone(), say.clone());
                thread::spawn(move || {
                    say.send("wants").expect("the test waits");
                    let cores = Cores::take_in(&dir, 2, 2).expect("cores");
                    say.send("has").expect("the test waits");
                    drop(cores);
                });
            }
            let next = || said.recv_timeout(Duration::from_secs(60)).expect("both have one core");
            assert_eq!([next(), next()], ["wants"; 2]);
            let other = File::create(dir.join("1")).expect("its file");
            while other.try_lock().is_ok() {
                other.unlock().expect("it was locked");
                thread::sleep(POLL);
            }
            drop(held);
            assert_eq!([next(), next()], ["has"; 2]);
        }
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn a_machine_that_wants_more_than_there_is_gets_all() {
        let dir = std::env::temp_dir().join(format!("runnext-few-cores-{}", std::process::id()));
        let cores = Cores::take_in(&dir, 2, 1).expect("the only core");
        let path = dir.join("0");
        let other = File::create(&path).expect("its file");
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)), "it is taken");
        drop(cores);
        other.try_lock().expect("it is free");
        fs::remove_dir_all(dir).ok();
    }
}
