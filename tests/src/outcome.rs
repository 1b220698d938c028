//! What came of a boot, and the sentences that tests say about it.
//!
//! Every assertion that fails shows the end of the log and where the whole of it
//! is: a test that fails on another machine must be readable from its
//! message alone.

use std::fmt;
use std::path::PathBuf;

use boot::exit::{self, End};

use crate::hang::Hang;
use crate::screen::Screen;

/// How many of the last lines a message shows.
const TAIL: usize = 40;

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// QEMU left by itself.
    Exit(End),
    /// What was waited for was seen, and the machine was stopped.
    Seen,
    /// The time limit passed.
    Hang(Hang),
}

/// What came of one boot.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The name of the run, which is that of its log.
    pub name: String,
    /// How it ended.
    pub ended: Ended,
    /// What the serial port said, line by line, without control sequences.
    pub lines: Vec<String>,
    /// The serial port's bytes as they came.
    pub log: PathBuf,
    /// The last screenshot, if any was taken.
    pub screen: Option<Screen>,
    /// What QEMU itself had to say.
    pub qemu_said: String,
}

impl Outcome {
    /// The code that the guest ended with, if it did.
    pub fn code(&self) -> Option<u8> {
        match self.ended {
            Ended::Exit(End::Code(code)) => Some(code),
            _ => None,
        }
    }

    /// Why the run hung, if it did.
    pub fn hang(&self) -> Option<&Hang> {
        match &self.ended {
            Ended::Hang(hang) => Some(hang),
            _ => None,
        }
    }

    /// The first line that contains `text`.
    pub fn line(&self, text: &str) -> Option<&str> {
        self.lines.iter().find(|line| line.contains(text)).map(String::as_str)
    }

    /// How many lines contain `text`.
    pub fn count(&self, text: &str) -> usize {
        self.lines.iter().filter(|line| line.contains(text)).count()
    }

    /// The program ended well.
    #[track_caller]
    pub fn assert_ok(&self) {
        self.assert_code(exit::OK);
    }

    /// The guest ended with `code`.
    #[track_caller]
    pub fn assert_code(&self, code: u8) {
        if self.code() != Some(code) {
            panic!("expected the end with code {code}\n{self}");
        }
    }

    /// Some line contains `text`.
    #[track_caller]
    pub fn assert_line(&self, text: &str) {
        if self.line(text).is_none() {
            panic!("expected a line with {text:?}\n{self}");
        }
    }

    /// No line contains `text`.
    #[track_caller]
    pub fn assert_no_line(&self, text: &str) {
        if let Some(line) = self.line(text) {
            panic!("expected no line with {text:?}, found {line:?}\n{self}");
        }
    }

    /// The guest reported its test `name` as passed.
    #[track_caller]
    pub fn assert_test(&self, name: &str) {
        match verdict(&self.lines, name) {
            Some(Verdict::Ok) => {}
            Some(Verdict::Failed(why)) => panic!("{name} failed in the guest: {why}\n{self}"),
            None => panic!("the guest said nothing about the test {name}\n{self}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ended {
            Ended::Exit(end) => writeln!(f, "{}: {end}", self.name)?,
            Ended::Seen => writeln!(f, "{}: stopped as planned", self.name)?,
            Ended::Hang(hang) => writeln!(f, "{}: {hang}", self.name)?,
        }
        if !self.qemu_said.is_empty() {
            writeln!(f, "QEMU said: {}", self.qemu_said.trim())?;
        }
        // Wherever in the log they stand.
        for (name, verdict) in verdicts(&self.lines) {
            if let Verdict::Failed(why) = verdict {
                writeln!(f, "failed in the guest: {name}: {why}")?;
            }
        }
        let skipped = self.lines.len().saturating_sub(TAIL);
        writeln!(f, "--- last lines of {} ---", self.log.display())?;
        for line in &self.lines[skipped..] {
            writeln!(f, "{line}")?;
        }
        write!(f, "---")
    }
}

/// What the guest said about one of its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `TEST <name> ok`
    Ok,
    /// `TEST <name> FAILED: <why>`
    Failed(String),
}

/// The verdict on `name`. Said twice, the worse one counts.
///
/// ```
/// use tests::outcome::{Verdict, verdict};
///
/// let lines = ["TEST heap ok".to_string(), "TEST clock FAILED: runs backwards".to_string()];
/// assert_eq!(verdict(&lines, "heap"), Some(Verdict::Ok));
/// assert_eq!(verdict(&lines, "clock"), Some(Verdict::Failed("runs backwards".into())));
/// ```
pub fn verdict(lines: &[String], name: &str) -> Option<Verdict> {
    let mut found = None;
    for line in lines {
        match parse_verdict(line) {
            Some((said, failed @ Verdict::Failed(_))) if said == name => return Some(failed),
            Some((said, Verdict::Ok)) if said == name => found = Some(Verdict::Ok),
            _ => {}
        }
    }
    found
}

/// All tests that the guest spoke of.
pub fn verdicts(lines: &[String]) -> Vec<(&str, Verdict)> {
    lines.iter().filter_map(|line| parse_verdict(line)).collect()
}

fn parse_verdict(line: &str) -> Option<(&str, Verdict)> {
    let (name, said) = line.trim().strip_prefix("TEST ")?.split_once(' ')?;
    match said.strip_prefix("FAILED") {
        Some(why) => Some((name, Verdict::Failed(why.trim_start_matches(':').trim().into()))),
        None if said == "ok" => Some((name, Verdict::Ok)),
        None => None,
    }
}

/// The serial port's bytes as lines: no carriage returns, no control sequences
/// (UEFI's firmware clears the screen several times), broken UTF-8 replaced.
pub fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().filter(|&c| c != '\r');
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => {
                // "[", parameters, one letter; or a single letter.
                if letters.next() == Some('[') {
                    letters.find(|c| ('@'..='~').contains(c));
                }
            }
            _ => plain.push(letter),
        }
    }
    plain.lines().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ended: Ended, text: &str) -> Outcome {
        let lines = lines_of(text.as_bytes());
        Outcome {
            name: "x".into(),
            ended,
            lines,
            log: "x.log".into(),
            screen: None,
            qemu_said: "".into(),
        }
    }

    fn message(check: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let payload = std::panic::catch_unwind(check).expect_err("must fail");
        payload.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn only_exact_verdicts_count() {
        let lines = lines_of(b"TEST a ok\nTEST b okay\nTEST c\nxTEST d ok\nTEST e FAILED\n");
        assert_eq!(verdict(&lines, "a"), Some(Verdict::Ok));
        for name in ["b", "c", "d"] {
            assert_eq!(verdict(&lines, name), None, "{name}");
        }
        assert_eq!(verdict(&lines, "e"), Some(Verdict::Failed(String::new())));
        assert_eq!(verdicts(&lines).len(), 2);
    }

    #[test]
    fn a_check_that_failed_long_before_the_end_is_named() {
        let log = format!("TEST early FAILED: too soon\n{}", "line\n".repeat(2 * TAIL));
        let shown = outcome(Ended::Seen, &log).to_string();
        assert!(shown.contains("failed in the guest: early: too soon"), "{shown}");
    }

    #[test]
    fn a_failure_outweighs_a_success() {
        for text in ["TEST a ok\nTEST a FAILED: x", "TEST a FAILED: x\nTEST a ok"] {
            let verdict = verdict(&lines_of(text.as_bytes()), "a");
            assert_eq!(verdict, Some(Verdict::Failed("x".into())), "{text:?}");
        }
    }

    #[test]
    fn a_silent_guest_fails_the_test_and_shows_its_log() {
        let quiet = outcome(Ended::Exit(End::Code(0)), "the last line");
        let said = message(move || quiet.assert_test("heap"));
        assert!(said.contains("said nothing about the test heap"), "{said}");
        assert!(said.contains("the last line") && said.contains("x.log"), "{said}");
    }

    #[test]
    fn control_sequences_are_not_text() {
        let lines = lines_of(b"\x1b[2J\x1b[01;01H\x1b[=3hBdsDxe\r\nsecond\xff\x1b");
        assert_eq!(lines, ["BdsDxe", "second\u{fffd}"]);
    }

    #[test]
    fn another_end_is_not_ok() {
        for end in [End::Code(101), End::Off, End::Failed(1), End::Killed] {
            let bad = outcome(Ended::Exit(end), "");
            assert_ne!(bad.code(), Some(0));
            assert!(message(move || bad.assert_ok()).contains("expected the end with code 0"));
        }
    }
}
