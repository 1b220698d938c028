//! Machines that boot the kernel with a student's code in it.
//!
//! The guest is the tests' own (`tests/guest`) with the lab's `guest.rs` as its `main.rs`, built
//! without link-time optimisation. Each check has a boot of its own, from a snapshot after the
//! loader and in virtual time, so that a verdict repeats. A panic, a reset and a machine that does
//! not end are verdicts. A verdict counts only with the number that was drawn for this boot.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::tests::guest::Boot;
use ::tests::outcome::{Ended, Outcome};
use anyhow::{Context, Result};
use boot::image;
use boot::qemu::Firmware;
use serde_json::Value;
use tool::tree::shown as shown_path;

use crate::process::{self, Ended as Exited};

/// When a machine hangs, in seconds of virtual time.
const LIMIT_S: u64 = 20;
/// Lines of the console that a failure shows.
const SHOWN: usize = 14;

/// Builds the guest of `tree`; its ELF file, or what the compiler said. What is not the
/// student's is shared with `make run FAST=1` of `root`.
///
/// # Errors
/// Cargo cannot be run, or built no guest.
pub fn build(
    tree: &Path,
    root: &Path,
    log: &Path,
    limit: Duration,
) -> Result<Result<PathBuf, Exited>> {
    let mut cargo = Command::new("cargo");
    // Not in `tree`, which is below `root`: cargo would take the settings of both.
    cargo.current_dir(root).args(["fast", "-p=guest", "--message-format=json-render-diagnostics"]);
    cargo.arg("--manifest-path").arg(tree.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(root.join("target"));
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR").env("CARGO_TERM_COLOR", "never");
    let ended = process::run(&mut cargo, limit, log)?;
    if !ended.is_ok() {
        return Ok(Err(ended));
    }
    let artifacts = ended.out.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut guest =
        artifacts.filter_map(|artifact: Value| Some(artifact["executable"].as_str()?.into()));
    Ok(Ok(guest.next_back().context("cargo built no guest")?))
}

/// The image with that kernel.
///
/// # Errors
/// It cannot be written.
pub fn image(root: &Path, kernel: &Path, dir: &Path) -> Result<PathBuf> {
    image::build(Firmware::Bios, kernel, &root.join("boot/cmdline.txt"), dir, "grade")
}

/// Boots for one check, `name@2 chaos=7`: what went wrong, if it did.
///
/// # Errors
/// There is no QEMU, or the check is written wrongly.
pub fn boot(lab: u32, check: &str, kernel: &Path, image: &Path) -> Result<Option<String>> {
    let (which, words) = check.split_once(' ').unwrap_or((check, ""));
    let (name, cpus) = which.split_once('@').unwrap_or((which, "1"));
    let (program, name) = name.split_once("::").unwrap_or(("lab", name));
    let cpus: usize = cpus.parse().with_context(|| format!("CPUs of the check {check:?}"))?;
    let nonce = format!("{:016x}", RandomState::new().hash_one(check));
    let file = check.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let outcome = Boot::built(format!("lab{lab}-{file}"), kernel.into(), image.into())
        .smp(cpus)
        .virtual_time_of(1)
        .virtual_limit(LIMIT_S)
        .cmdline(&format!("program={program} {words} -- {nonce} {name}"))
        .try_run()?;
    Ok(failure(&outcome, &nonce))
}

fn failure(outcome: &Outcome, nonce: &str) -> Option<String> {
    let mut verdicts = outcome.lines.iter().filter_map(|line| line.strip_prefix("VERDICT "));
    let verdict = verdicts.find_map(|said| said.strip_prefix(nonce));
    let why = match (verdict.map(str::trim), &outcome.ended) {
        (Some("ok"), _) if outcome.code() == Some(0) => return None,
        (Some(why), _) if why != "ok" => return Some(why.into()),
        (_, Ended::Exit(end)) => end.to_string(),
        (_, Ended::Hang(hang)) => hang.to_string(),
        (_, Ended::Seen) => "it was stopped".into(),
    };
    // A panic is followed by what each CPU did, which is long; else the end says most.
    let end = outcome.lines.len().saturating_sub(SHOWN);
    let panic = outcome.lines.iter().position(|line| line.contains("panicked at"));
    let shown: Vec<&str> =
        outcome.lines[panic.unwrap_or(end)..].iter().take(SHOWN).map(String::as_str).collect();
    Some(format!("{why}; of {}:\n{}", shown_path(&outcome.log), shown.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use boot::exit::End;

    fn said(lines: &[&str], end: End) -> Option<String> {
        let outcome = Outcome {
            name: "x".into(),
            ended: Ended::Exit(end),
            lines: lines.iter().map(ToString::to_string).collect(),
            log: "x.log".into(),
            screen: None,
            qemu_said: String::new(),
        };
        failure(&outcome, "77")
    }

    #[test]
    fn a_verdict_counts_with_the_number_of_this_boot_only() {
        assert_eq!(said(&["VERDICT 77 ok"], End::Code(0)), None);
        for forged in ["VERDICT ok", "VERDICT 78 ok", " VERDICT 77 ok", "TEST 77 ok"] {
            assert!(said(&[forged], End::Code(0)).is_some(), "{forged:?}");
        }
        assert_eq!(said(&["VERDICT 77 panicked: x"], End::Code(0)), Some("panicked: x".into()));
    }

    #[test]
    fn a_machine_that_ends_otherwise_is_a_verdict_with_its_panic() {
        assert!(said(&["VERDICT 77 ok"], End::Code(101)).is_some(), "it went wrong after that");
        let lines = ["hello", "kernel panic: panicked at x.rs:1", "why", "CPU 0"];
        let text = said(&lines, End::Code(101)).expect("a failure");
        assert!(text.contains("panicked at x.rs:1\nwhy\nCPU 0"), "{text}");
        assert!(!text.contains("hello"), "{text}");
        assert!(said(&["hello"], End::Off).expect("a failure").contains("hello"));
    }
}
