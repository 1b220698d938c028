//! Runs one stage of the suite: commands, their log, and what they counted.
//!
//! Everything a command prints goes to the stage's log. The terminal gets one
//! line a stage when it has ended; where one test takes seconds, a line a test; and, when the
//! stage fails, what the failed tests said or the last words of the command that failed. Stages
//! run side by side ([`lanes`]), so their lines go through one [`Terminal`], whose last
//! line says what is going on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use boot::cost::CpuTime;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::results::{Stage, TestLine, TestResult, parse_test_line, parse_test_result};

/// How many of the last lines of a failed command are shown.
const TAIL: usize = 60;
/// How much of what failed tests said is shown.
const MAX_SHOWN: usize = 400;

/// What a stage's commands print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything; the stage counts as one.
    Check,
    /// Libtest's lines, many and quick.
    Tests,
    /// Libtest's lines, few and slow.
    SlowTests,
}

/// A stage to be.
#[derive(Debug)]
#[must_use]
pub struct Job {
    name: &'static str,
    kind: Kind,
    commands: Vec<Command>,
}

impl Job {
    /// A stage without commands.
    pub fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, commands: Vec::new() }
    }

    /// Adds `cargo` with these arguments, run at the top of the source tree.
    pub fn cargo(self, args: &[&str]) -> Self {
        self.cargo_with(args, &[])
    }

    /// The same, with more in its environment.
    pub fn cargo_with(mut self, args: &[&str], environment: &[(&str, &str)]) -> Self {
        // As rustup's proxy would find it for this directory.
        let mut command = Command::new("cargo");
        command.args(args).envs(environment.iter().copied());
        // We run under cargo ourselves; what it told us is not meant for them.
        command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
        command.current_dir(boot::root());
        self.commands.push(command);
        self
    }

    /// Runs the commands one after the other, all of them, and prints the line.
    pub fn run(self) -> Stage {
        let started = Instant::now();
        let log = crate::out_dir().join(format!("{}.log", self.name.replace(' ', "-")));
        let mut watch = Watch::new(self.name, self.kind, log);
        let mut went_well = true;
        for command in self.commands {
            went_well &= watch.follow(command).unwrap_or_else(|error| {
                watch.shown.push(format!("{error:#}"));
                false
            });
        }
        watch.finish(went_well, started.elapsed())
    }
}

/// Runs lanes of stages side by side, the stages of a lane one after the other.
pub fn lanes(lanes: Vec<Vec<Job>>) -> Vec<Stage> {
    thread::scope(|scope| {
        let run = |jobs: Vec<Job>| jobs.into_iter().map(Job::run).collect::<Vec<_>>();
        let lanes: Vec<_> = lanes.into_iter().map(|jobs| scope.spawn(move || run(jobs))).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("a stage does not panic")).collect()
    })
}

/// What stages print, line by line, and below it a line that moves: what each stage in progress
/// has come to. Without a terminal nothing moves.
struct Terminal {
    is_terminal: bool,
    running: Vec<(String, String)>,
}

impl Terminal {
    /// Does something with the only one.
    fn with(f: impl FnOnce(&mut Self)) {
        static ONLY: Mutex<Option<Terminal>> = Mutex::new(None);
        let mut only = ONLY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let new = || Self { is_terminal: io::stdout().is_terminal(), running: Vec::new() };
        f(only.get_or_insert_with(new));
    }

    /// How far a stage is.
    fn progress(&mut self, stage: &str, progress: &str) {
        self.running.retain(|(name, _)| name != stage);
        self.running.push((stage.into(), progress.into()));
        self.redraw("");
    }

    fn end(&mut self, stage: &str) {
        self.running.retain(|(name, _)| name != stage);
    }

    fn redraw(&self, above: &str) {
        if self.is_terminal {
            let running: Vec<_> =
                self.running.iter().map(|(name, progress)| format!("{name} {progress}")).collect();
            print!("\r\x1b[K{above}{}", running.join(" · "));
            io::stdout().flush().ok();
        } else {
            print!("{above}");
        }
    }

    /// Lines that stay.
    fn lines(&self, text: &str) {
        self.redraw(&format!("{}\n", text.trim_end()));
    }
}

/// Follows the output of a stage.
struct Watch {
    kind: Kind,
    stage: Stage,
    file: Option<File>,
    /// The last lines of the current command, without tests that passed.
    tail: VecDeque<String>,
    /// Between libtest's `failures:` and its result.
    in_failures: bool,
    /// What to show if the stage fails.
    shown: Vec<String>,
}

impl Watch {
    fn new(name: &str, kind: Kind, log: PathBuf) -> Self {
        let file = File::create(&log).ok();
        Terminal::with(|terminal| terminal.progress(name, "…"));
        Self {
            kind,
            stage: Stage { name: name.into(), log, ..Stage::default() },
            file,
            tail: VecDeque::new(),
            in_failures: false,
            shown: Vec::new(),
        }
    }

    fn follow(&mut self, mut command: Command) -> Result<bool> {
        let (reader, writer) = io::pipe().context("making a pipe")?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        self.note(&format!("$ {command:?}"));
        self.tail.clear();
        let shown_before = self.shown.len();
        let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        // The command holds our ends of the pipe; without them we see its end.
        drop(command);
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).context("reading")? > 0 {
            self.take(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        self.stage.cpu += cpu_of_ended(&child);
        let went_well = child.wait().context("waiting")?.success();
        if !went_well && self.shown.len() == shown_before {
            self.shown.extend(self.tail.drain(..));
        }
        Ok(went_well)
    }

    fn take(&mut self, line: &str) {
        self.note(line);
        if self.kind == Kind::Check {
            return self.remember(line);
        }
        match (line, parse_test_line(line)) {
            (_, Some(test)) => self.count(line, test),
            ("failures:", _) => self.in_failures = true,
            _ if self.in_failures && self.shown.len() < MAX_SHOWN => self.shown.push(line.into()),
            _ => self.remember(line),
        }
        if let Some((passed, failed)) = parse_test_result(line) {
            self.stage.passed += passed;
            self.stage.failed += failed;
            self.in_failures = false;
        }
    }

    fn remember(&mut self, line: &str) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.into());
    }

    fn count(&mut self, line: &str, test: TestLine) {
        let is_shown = self.kind == Kind::SlowTests && test.result != TestResult::Ignored;
        self.stage.tests.push(test);
        let (name, tests) = (&self.stage.name, self.stage.tests.len());
        Terminal::with(|terminal| {
            if is_shown {
                terminal.lines(&format!("  {line}"));
            }
            terminal.progress(name, &format!("{tests} tests"));
        });
    }

    fn finish(mut self, went_well: bool, took: Duration) -> Stage {
        self.stage.took = took;
        match self.kind {
            Kind::Check if went_well => self.stage.passed = 1,
            Kind::Check => self.stage.failed = 1,
            // It did not build, or it died in the middle.
            _ if !went_well && self.stage.failed == 0 => self.stage.failed = 1,
            _ => {}
        }
        let mut said = summary(&self.stage) + "\n";
        if self.stage.failed > 0 {
            said += &failure(&self.stage, &self.shown);
        }
        Terminal::with(|terminal| {
            terminal.end(&self.stage.name);
            terminal.lines(&said);
        });
        self.stage
    }

    fn note(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}").ok();
        }
    }
}

/// CPU time of `child` with all its children: waits for its end without reaping it, because
/// after that the figures are gone.
fn cpu_of_ended(child: &Child) -> Duration {
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).ok();
    CpuTime::of(child.id()).map_or(Duration::ZERO, |cpu| cpu.own + cpu.children)
}

/// The line of a stage: `clippy           12.3 s   10.1 CPU s    1 passed`.
pub fn summary(stage: &Stage) -> String {
    let failed = match stage.failed {
        0 => String::new(),
        failed => format!(", {failed} FAILED"),
    };
    let [seconds, cpu] = [stage.took, stage.cpu].map(|time| time.as_secs_f64());
    let passed = stage.passed;
    format!("{:<16} {seconds:>7.1} s {cpu:>7.1} CPU s {passed:>5} passed{failed}", stage.name)
}

/// What a reader needs who sees only the terminal.
fn failure(stage: &Stage, shown: &[String]) -> String {
    let mut out = String::new();
    for line in shown {
        out += &format!("    {line}\n");
    }
    for test in stage.tests.iter().filter(|test| test.result == TestResult::Failed) {
        out += &format!("    FAILED {}\n", test.name);
    }
    out + &format!("    all of it: {}\n", stage.log.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(kind: Kind) -> Watch {
        let log = std::env::temp_dir().join(format!("runnext-stage-{}", std::process::id()));
        Watch {
            kind,
            stage: Stage { name: "x".into(), log, ..Stage::default() },
            file: None,
            tail: VecDeque::new(),
            in_failures: false,
            shown: Vec::new(),
        }
    }

    fn counts(kind: Kind, went_well: bool, lines: &[&str]) -> (u32, u32) {
        let mut watch = watch(kind);
        lines.iter().for_each(|line| watch.take(line));
        let stage = watch.finish(went_well, Duration::ZERO);
        (stage.passed, stage.failed)
    }

    #[test]
    fn lanes_run_side_by_side_and_stages_of_a_lane_in_order() {
        let dir = std::env::temp_dir().join(format!("runnext-lanes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        // Each waits for what the other lane has made: one after the other they would not end.
        let job = |name: &'static str, makes: &str, awaits: &str| {
            let script = format!("touch {makes}; until [ -e {awaits} ]; do sleep 0.01; done");
            let mut command = Command::new("timeout");
            command.args(["60", "sh", "-c", &script]).current_dir(&dir);
            Job { name, kind: Kind::Check, commands: vec![command] }
        };
        let first = vec![job("lane-a1", "a1", "b1"), job("lane-a2", "a2", "b2")];
        let second = vec![job("lane-b1", "b1", "a1"), job("lane-b2", "b2", "a2")];
        let stages = lanes(vec![first, second]);
        let names: Vec<_> =
            stages.iter().map(|stage| (stage.name.as_str(), stage.passed)).collect();
        assert_eq!(names, [("lane-a1", 1), ("lane-a2", 1), ("lane-b1", 1), ("lane-b2", 1)]);
        std::fs::remove_dir_all(dir).ok();
        for stage in stages {
            std::fs::remove_file(stage.log).ok();
        }
    }

    #[test]
    fn a_check_counts_as_one() {
        assert_eq!(counts(Kind::Check, true, &["test result: ok. 9 passed; 0 failed"]), (1, 0));
        assert_eq!(counts(Kind::Check, false, &[]), (0, 1));
    }

    #[test]
    fn the_counts_of_several_test_binaries_are_summed() {
        let lines =
            ["test result: ok. 9 passed; 0 failed", "test result: FAILED. 3 passed; 2 failed"];
        assert_eq!(counts(Kind::Tests, false, &lines), (12, 2));
    }

    #[test]
    fn tests_that_did_not_build_are_a_failure() {
        assert_eq!(counts(Kind::Tests, false, &["error: could not compile"]), (0, 1));
        assert_eq!(
            counts(Kind::SlowTests, false, &["test result: ok. 2 passed; 0 failed"]),
            (2, 1)
        );
    }

    #[test]
    fn the_line_of_a_stage_says_how_long_and_how_many() {
        let [took, cpu] = [12_340, 20_700].map(Duration::from_millis);
        let name = "clippy".into();
        let stage = Stage { name, took, cpu, passed: 1, failed: 2, ..Stage::default() };
        let line = "clippy              12.3 s    20.7 CPU s     1 passed, 2 FAILED";
        assert_eq!(summary(&stage), line);
    }

    #[test]
    fn what_failed_tests_said_is_shown_and_the_rest_is_not() {
        let mut watch = watch(Kind::Tests);
        for line in ["test a ... ok", "test b ... FAILED", "failures:", "---- b stdout ----"] {
            watch.take(line);
        }
        watch.take("expected a line");
        watch.take("test result: FAILED. 1 passed; 1 failed");
        watch.take("something after it");
        let shown = failure(&watch.stage, &watch.shown);
        for part in ["---- b stdout ----", "expected a line", "FAILED b", "runnext-stage"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("something after") && !shown.contains("test a"), "{shown}");
    }

    #[test]
    fn the_last_words_of_a_failed_command_are_shown() {
        let mut watch = watch(Kind::Check);
        let mut command = Command::new("sh");
        command.args(["-c", "seq 100; echo the reason; exit 1"]);
        assert!(!watch.follow(command).expect("sh is there"));
        let mut busy = Command::new("sh");
        busy.args(["-c", "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done)"]);
        assert!(watch.follow(busy).expect("sh is there"));
        assert!(watch.stage.cpu > Duration::ZERO, "its child computes");
        let mut quiet = Command::new("sh");
        quiet.args(["-c", "echo another thing"]);
        assert!(watch.follow(quiet).expect("sh is there"));
        assert_eq!(watch.shown.len(), TAIL);
        assert_eq!(watch.shown.last().map(String::as_str), Some("the reason"));
    }

    #[test]
    fn a_command_that_does_not_exist_fails_its_stage() {
        let mut watch = watch(Kind::Check);
        assert!(watch.follow(Command::new("/nonexistent")).is_err());
    }
}
