//! A program with a limit: what it printed, and how it ended.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Status(i32),
    /// By a signal: it crashed.
    Signal(i32),
    /// It did not, and was ended.
    Limit(Duration),
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How.
    pub end: End,
    /// What it printed to standard output.
    pub out: String,
    /// What it printed to standard error.
    pub err: String,
}

impl Ended {
    /// Whether it ended well.
    pub fn is_ok(&self) -> bool {
        self.end == End::Status(0)
    }
}

/// Runs a program for `limit` at most. What it prints is left in `log`, with `.out` and `.err`.
///
/// # Errors
/// It cannot be started.
pub fn run(command: &mut Command, limit: Duration, log: &Path) -> Result<Ended> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let (out, err) = (log.with_extension("out"), log.with_extension("err"));
    // Files, not pipes: a program that prints without end fills no buffer of ours.
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    let begun = Instant::now();
    let mut child =
        command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    let mut pause = Duration::from_millis(1);
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break match status.code() {
                Some(code) => End::Status(code),
                None => End::Signal(status.signal().unwrap_or(0)),
            };
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break End::Limit(limit);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    };
    let read = |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into();
    Ok(Ended { end, out: read(&out), err: read(&err) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Ended {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(&mut command, limit, &dir.path().join("log")).expect("sh starts")
    }

    #[test]
    fn every_end_is_told_apart() {
        let long = Duration::from_secs(60);
        let ended = sh("echo a; echo b >&2; exit 3", long);
        assert_eq!((&*ended.out, &*ended.err, ended.end), ("a\n", "b\n", End::Status(3)));
        assert_eq!(sh("kill -SEGV $$", long).end, End::Signal(11));
        let short = Duration::from_millis(50);
        assert_eq!(sh("exec sleep 60", short).end, End::Limit(short));
    }
}
