//! A program with a limit: what it printed, and how it ended.
//!
//! The limit of a student's program is in CPU time, and in time in which none of its threads could
//! run: on a busy machine a right solution takes long, and is no hang.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};

/// Memory, as addresses, that a student's program may have.
const MEMORY: u64 = 8 << 30;
/// Bytes that it may print.
const PRINTED: u64 = 64 << 20;

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

/// What a signal that ended a program says.
pub fn crashed(signal: i32) -> String {
    match signal {
        _ if signal == Signal::XFSZ.as_raw() => {
            format!("printed more than {} MiB, and was ended", PRINTED >> 20)
        }
        _ if signal == Signal::ABORT.as_raw() => {
            "aborted: a panic in a panic, or no memory is left".into()
        }
        _ => format!("crashed with signal {signal}"),
    }
}

/// Runs a program for `limit` at most. What it prints is left in `log`, with `.out` and `.err`.
///
/// # Errors
/// It cannot be started.
pub fn run(command: &mut Command, limit: Duration, log: &Path) -> Result<Ended> {
    let begun = Instant::now();
    run_with(command, limit, log, |_| Ok(()), |_| begun.elapsed() > limit)
}

/// As [`run`], for a program with a student's code: it can fill neither memory nor disk, and has
/// `limit` of CPU time, or as long for waiting.
///
/// # Errors
/// As above.
pub fn run_student(command: &mut Command, limit: Duration, log: &Path) -> Result<Ended> {
    let mut usage = Usage::new();
    let is_over = |child: &Child| usage.is_over(child.id(), limit);
    let confine = |child: &Child| {
        let pid = Pid::from_child(child);
        for (resource, most) in [(Resource::As, MEMORY), (Resource::Fsize, PRINTED)] {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            match prlimit(Some(pid), resource, limit) {
                Ok(_) => {}
                Err(rustix::io::Errno::SRCH) => {} // it has ended already
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    };
    run_with(command, limit, log, confine, is_over)
}

/// What a program has used, by Linux's `/proc`.
struct Usage {
    /// When one of its threads ran last, or could have run.
    ran: Instant,
}

impl Usage {
    fn new() -> Self {
        Usage { ran: Instant::now() }
    }

    fn is_over(&mut self, pid: u32, limit: Duration) -> bool {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let stats = tasks.filter_map(|task| Stat::read(&task.path().join("stat")));
        // Waiting for the disk is not the program's doing.
        if { stats }.any(|stat| matches!(stat.state, 'R' | 'D')) {
            self.ran = Instant::now();
        }
        let cpu = Stat::read(Path::new(&format!("/proc/{pid}/stat"))).map(|stat| stat.cpu);
        self.ran.elapsed() > limit || cpu.is_some_and(|cpu| cpu > limit)
    }
}

/// Of the line of a process or a thread in `/proc`.
struct Stat {
    state: char,
    cpu: Duration,
}

impl Stat {
    fn read(file: &Path) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(file).ok()?)
    }

    fn parse(line: &str) -> Option<Stat> {
        // The name stands in parentheses, and may have some in it.
        let words: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| words.get(at)?.parse::<u64>().ok();
        let cpu = Duration::from_millis((ticks(11)? + ticks(12)?) * 10); // 100 ticks a second
        Some(Stat { state: words.first()?.chars().next()?, cpu })
    }
}

fn run_with(
    command: &mut Command,
    limit: Duration,
    log: &Path,
    confine: impl Fn(&Child) -> Result<()>,
    mut is_over: impl FnMut(&Child) -> bool,
) -> Result<Ended> {
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let (out, err) = (log.with_extension("out"), log.with_extension("err"));
    // Files, not pipes: a program that prints without end fills no buffer of ours.
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
    // A group of its own, which ends with it: cargo starts compilers.
    command.process_group(0);
    let mut child =
        command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    let group = Pid::from_child(&child);
    confine(&child)?;
    let mut pause = Duration::from_millis(1);
    let end = loop {
        if let Some(status) = child.try_wait()? {
            break match status.code() {
                Some(code) => End::Status(code),
                None => End::Signal(status.signal().unwrap_or(0)),
            };
        }
        if is_over(&child) {
            let _ = kill_process_group(group, Signal::KILL); // it may just have ended
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

    fn student(script: &str, limit: Duration) -> Ended {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_student(&mut command, limit, &dir.path().join("log")).expect("sh starts")
    }

    #[test]
    fn a_student_has_cpu_time_and_time_to_wait() {
        let limit = Duration::from_millis(300);
        assert_eq!(student("while :; do :; done", limit).end, End::Limit(limit), "it computes");
        assert_eq!(student("exec sleep 60", limit).end, End::Limit(limit), "it waits");
        let stat = "77 (a) b) R 1 77 77 0 -1 4194304 93 0 0 0 12 3 0 0 20 0 1 0 5000 2 1";
        let stat = Stat::parse(stat).expect("as Linux writes it");
        assert_eq!((stat.state, stat.cpu), ('R', Duration::from_millis(150)));
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

    #[test]
    fn what_it_has_started_ends_with_it() {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]);
        let ended = run(&mut command, Duration::from_millis(500), &dir.path().join("log"));
        let pid = ended.expect("sh starts").out.trim().to_string();
        // Without a parent it is reaped by the first process, or stays as a zombie.
        let is_over = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|state| state.is_empty() || state.starts_with('Z'))
        };
        assert!((0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            is_over()
        }));
    }

    #[test]
    fn a_students_program_fills_neither_disk_nor_memory() {
        let run = |script: &str| student(script, Duration::from_secs(60));
        assert_eq!(run("exec yes").end, End::Signal(Signal::XFSZ.as_raw()));
        let limits = "while [ $(ulimit -v) = unlimited ]; do :; done; ulimit -v";
        assert_eq!(run(limits).out.trim(), (MEMORY >> 10).to_string());
        assert_eq!(crashed(11), "crashed with signal 11");
    }
}
