//! Results as JSON, beside the logs: one file a suite, one line a boot.
//!
//! Every boot appends a line to `target/tests/boots.jsonl`, in all tools. The
//! suite writes `target/tests/results.json` from what its stages counted.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::outcome::{Ended, Outcome};

/// Where boots are recorded.
pub fn boots_file() -> PathBuf {
    crate::out_dir().join("boots.jsonl")
}

/// Records one boot, which took so long and so much of the host's CPUs. A record that cannot be written fails no test.
pub fn append_run(outcome: &Outcome, took: Duration, cpu: Duration) {
    let line = format!("{}\n", run_record(outcome, took, cpu));
    let file = OpenOptions::new().create(true).append(true).open(boots_file());
    // One write a line: lines of several processes do not mix.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        eprintln!("the boot {} is not recorded: {error}", outcome.name);
    }
}

fn run_record(outcome: &Outcome, took: Duration, cpu: Duration) -> Value {
    let ended = match &outcome.ended {
        Ended::Exit(end) => end.to_string(),
        Ended::Seen => "stopped as planned".into(),
        Ended::Hang(hang) => hang.to_string(),
    };
    json!({
        "name": outcome.name,
        // Libtest calls the thread of a test by the test's name.
        "test": std::thread::current().name(),
        "ended": ended,
        "code": outcome.code(),
        "hang": outcome.hang().is_some(),
        "seconds": seconds(took),
        "cpu_seconds": cpu.as_secs_f64(),
        "log": outcome.log.to_string_lossy(),
    })
}

/// One test, as libtest reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestLine {
    /// Its path.
    pub name: String,
    /// What it came to.
    pub result: TestResult,
}

/// What a test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestResult {
    /// It held.
    Ok,
    /// It did not.
    Failed,
    /// It was not asked.
    Ignored,
}

/// Reads a line of libtest's: `test path::name ... ok`.
///
/// ```
/// use tests::results::{TestResult, parse_test_line};
///
/// let line = parse_test_line("test boot::eight_cpus ... ok").expect("a test");
/// assert_eq!((line.name.as_str(), line.result), ("boot::eight_cpus", TestResult::Ok));
/// ```
pub fn parse_test_line(line: &str) -> Option<TestLine> {
    let (name, said) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let result = match said.split([' ', ',']).next()? {
        "ok" => TestResult::Ok,
        "FAILED" => TestResult::Failed,
        "ignored" => TestResult::Ignored,
        _ => return None,
    };
    let name = name.trim_end_matches(" - should panic").to_string();
    Some(TestLine { name, result })
}

/// Reads libtest's last line: how many passed and failed.
pub fn parse_test_result(line: &str) -> Option<(u32, u32)> {
    let counts = line.trim().strip_prefix("test result: ")?;
    let count = |word: &str| {
        let before = counts.split(word).next()?;
        before.rsplit([' ', '.', ';']).find(|w| !w.is_empty())?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

/// One stage of the suite.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// What it is called.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// What its commands had of the host's CPUs.
    pub cpu: Duration,
    /// What it counted.
    pub passed: u32,
    /// What it counted, too.
    pub failed: u32,
    /// Its output.
    pub log: PathBuf,
    /// Its tests by name, where it has any.
    pub tests: Vec<TestLine>,
}

/// What the whole suite came to.
pub fn totals(stages: &[Stage]) -> (u32, u32) {
    stages.iter().fold((0, 0), |(passed, failed), s| (passed + s.passed, failed + s.failed))
}

/// What the boots of one test took.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    /// The name of the test. Of several tests that share a boot, that which came first.
    pub name: String,
    /// From the first core taken to the end, summed over its boots.
    pub seconds: f64,
    /// What QEMU had of the host's CPUs.
    pub cpu_seconds: f64,
}

/// The `n` tests whose boots took longest, from what [`append_run`] has recorded.
pub fn slowest(boots: &str, n: usize) -> Vec<Slow> {
    let mut tests: Vec<Slow> = Vec::new();
    for boot in boots.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let name = boot["test"].as_str().or(boot["name"].as_str()).unwrap_or_default();
        let seconds = boot["seconds"].as_f64().unwrap_or_default();
        let cpu_seconds = boot["cpu_seconds"].as_f64().unwrap_or_default();
        match tests.iter_mut().find(|test| test.name == name) {
            Some(test) => {
                test.seconds += seconds;
                test.cpu_seconds += cpu_seconds;
            }
            None => tests.push(Slow { name: name.into(), seconds, cpu_seconds }),
        }
    }
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    tests.truncate(n);
    tests
}

/// Writes all stages, and the boots that were recorded meanwhile, to `file`.
pub fn write(file: &Path, stages: &[Stage], boots: &str) -> Result<()> {
    let (passed, failed) = totals(stages);
    let boots: Vec<Value> =
        boots.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let stages: Vec<Value> = stages.iter().map(stage_record).collect();
    let all = json!({ "passed": passed, "failed": failed, "stages": stages, "boots": boots });
    let text = serde_json::to_string_pretty(&all)?;
    fs::write(file, text + "\n").with_context(|| file.display().to_string())
}

fn stage_record(stage: &Stage) -> Value {
    let tests: Vec<Value> = stage
        .tests
        .iter()
        .map(|test| json!({ "name": test.name, "result": format!("{:?}", test.result) }))
        .collect();
    json!({
        "name": stage.name,
        "seconds": seconds(stage.took),
        "cpu_seconds": seconds(stage.cpu),
        "passed": stage.passed,
        "failed": stage.failed,
        "log": stage.log.to_string_lossy(),
        "tests": tests,
    })
}

fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use boot::exit::End;

    use super::*;

    #[test]
    fn lines_of_libtest_are_read() {
        let result = |line| parse_test_line(line).map(|test| test.result);
        assert_eq!(result("test a::b ... ok"), Some(TestResult::Ok));
        assert_eq!(result("test a::b ... FAILED"), Some(TestResult::Failed));
        assert_eq!(result("test a::b ... ignored, slow"), Some(TestResult::Ignored));
        assert_eq!(result("test a::b ... ok <1.2s>"), Some(TestResult::Ok));
        let doc =
            parse_test_line("test kernel/src/x.rs - x::f (line 3) ... ok").expect("a doctest");
        assert_eq!(doc.name, "kernel/src/x.rs - x::f (line 3)");
        for other in
            ["running 3 tests", "test result: ok. 1 passed", "tests a ... ok", "test a ... what"]
        {
            assert_eq!(result(other), None, "{other}");
        }
    }

    #[test]
    fn counts_of_libtest_are_read() {
        let good = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out";
        assert_eq!(parse_test_result(good), Some((12, 0)));
        let bad = "test result: FAILED. 1 passed; 20 failed; 0 ignored";
        assert_eq!(parse_test_result(bad), Some((1, 20)));
        assert_eq!(parse_test_result("test result: nothing"), None);
        assert_eq!(parse_test_result("12 passed; 0 failed"), None);
    }

    #[test]
    fn the_file_sums_the_stages_and_keeps_the_boots() {
        let stage = |passed, failed| Stage { passed, failed, ..Stage::default() };
        let file = std::env::temp_dir().join(format!("runnext-results-{}", std::process::id()));
        write(&file, &[stage(2, 0), stage(3, 1)], "{\"name\": \"x\"}\nbroken\n").expect("written");
        let text = fs::read_to_string(&file).expect("a file");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&value["passed"], &value["failed"]), (&json!(5), &json!(1)));
        assert_eq!(value["boots"], json!([{ "name": "x" }]));
        fs::remove_file(file).ok();
    }

    #[test]
    fn the_slowest_tests_are_those_whose_boots_took_longest_together() {
        let boot = |test: &str, seconds: f64| {
            json!({ "name": "x", "test": test, "seconds": seconds, "cpu_seconds": 1.0 }).to_string()
        };
        let boots = [boot("a", 3.0), boot("b", 4.0), boot("a", 2.0), boot("c", 1.0)].join("\n");
        let slow = slowest(&boots, 2);
        let said: Vec<_> =
            slow.iter().map(|s| (s.name.as_str(), s.seconds, s.cpu_seconds)).collect();
        assert_eq!(said, [("a", 5.0, 2.0), ("b", 4.0, 1.0)]);
        assert_eq!(slowest("broken\n", 10), []);
    }

    #[test]
    fn a_boot_is_recorded_with_its_code() {
        let outcome = Outcome {
            name: "x".into(),
            ended: Ended::Exit(End::Code(7)),
            lines: Vec::new(),
            log: "x.log".into(),
            screen: None,
            qemu_said: String::new(),
        };
        let record = run_record(&outcome, Duration::from_millis(1249), Duration::from_millis(310));
        assert_eq!(record["cpu_seconds"], json!(0.31));
        assert_eq!((&record["code"], &record["hang"]), (&json!(7), &json!(false)));
        assert_eq!(record["seconds"], json!(1.2));
    }
}
