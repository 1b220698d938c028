//! Runs one stage of the suite: commands, their log, and what they counted.
//!
//! Everything a command prints goes to the stage's log. The terminal gets one
//! line a stage, with a count that moves while tests pass; where one test takes
//! seconds, a line a test; and, when the stage fails, what the failed tests said
//! or the last words of the command that failed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

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

/// Follows the output of a stage.
struct Watch {
    kind: Kind,
    stage: Stage,
    file: Option<File>,
    on_terminal: bool,
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
        let on_terminal = io::stdout().is_terminal();
        let watch = Self {
            kind,
            stage: Stage { name: name.into(), log, ..Stage::default() },
            file,
            on_terminal,
            tail: VecDeque::new(),
            in_failures: false,
            shown: Vec::new(),
        };
        // Without a terminal nothing moves, so say at least what is going on.
        match kind {
            Kind::SlowTests => println!("{name} …"),
            _ if on_terminal => watch.show("…"),
            _ => {}
        }
        watch
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
        if self.kind == Kind::SlowTests && test.result != TestResult::Ignored {
            println!("  {line}");
        }
        self.stage.tests.push(test);
        if self.on_terminal && self.kind == Kind::Tests {
            self.show(&format!("{} tests", self.stage.tests.len()));
        }
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
        if self.on_terminal && self.kind != Kind::SlowTests {
            print!("\r\x1b[K");
        }
        println!("{}", summary(&self.stage));
        if self.stage.failed > 0 {
            print!("{}", failure(&self.stage, &self.shown));
        }
        self.stage
    }

    fn note(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}").ok();
        }
    }

    fn show(&self, progress: &str) {
        print!("\r\x1b[K{:<16} {progress}", self.stage.name);
        io::stdout().flush().ok();
    }
}

/// `clippy           12.3 s    1 passed`
fn summary(stage: &Stage) -> String {
    let failed = match stage.failed {
        0 => String::new(),
        failed => format!(", {failed} FAILED"),
    };
    let seconds = stage.took.as_secs_f64();
    format!("{:<16} {seconds:>7.1} s {:>5} passed{failed}", stage.name, stage.passed)
}

/// What somebody needs who sees only the terminal.
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
            on_terminal: false,
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
        let took = Duration::from_millis(12_340);
        let stage = Stage { name: "clippy".into(), took, passed: 1, failed: 2, ..Stage::default() };
        assert_eq!(summary(&stage), "clippy              12.3 s     1 passed, 2 FAILED");
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
