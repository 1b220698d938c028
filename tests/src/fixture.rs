//! One boot that carries many tests.
//!
//! The guest prints `TEST <name> ok` or `TEST <name> FAILED: <why>` for each, and
//! `guest_tests!` (`tests/machine/checks.rs`) makes a host test of every name. The guest
//! is booted once a process. Under nextest, where every test is a process of its
//! own, it is booted once a run: the first one leaves its outcome for the others.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use boot::exit::End;
use serde_json::{Value, json};

use crate::guest::Boot;
use crate::hang::Hang;
use crate::outcome::{Ended, Outcome, lines_of};

/// Runs `boot`, or finds what came of it earlier in the same run of nextest.
pub fn once(boot: &Boot) -> Outcome {
    match std::env::var("NEXTEST_RUN_ID") {
        Ok(id) => shared(&crate::out_dir(), boot.name(), &id, || boot.run()),
        Err(_) => boot.run(),
    }
}

fn shared(dir: &Path, name: &str, id: &str, run: impl FnOnce() -> Outcome) -> Outcome {
    fs::create_dir_all(dir).ok();
    // Whoever comes second waits here until the first has written.
    let lock = File::create(dir.join(format!("{name}.fixture.lock")));
    let _held = lock.and_then(|file| file.lock().map(|()| file));
    let path = dir.join(format!("{name}.fixture.json"));
    let earlier = fs::read_to_string(&path).ok().and_then(|text| decode(&text, id));
    earlier.unwrap_or_else(|| {
        let outcome = run();
        fs::write(&path, encode(&outcome, id)).ok();
        outcome
    })
}

fn encode(outcome: &Outcome, id: &str) -> String {
    let (kind, detail) = match &outcome.ended {
        Ended::Exit(End::Code(code)) => ("code", json!(code)),
        Ended::Exit(End::Failed(status)) => ("failed", json!(status)),
        Ended::Exit(End::Off) => ("off", Value::Null),
        Ended::Exit(End::Killed) => ("killed", Value::Null),
        Ended::Seen => ("seen", Value::Null),
        Ended::Hang(hang) => ("hang", json!(hang.to_string())),
    };
    let log = outcome.log.to_string_lossy();
    json!({ "run": id, "name": outcome.name, "kind": kind, "detail": detail, "log": log })
        .to_string()
}

fn decode(text: &str, id: &str) -> Option<Outcome> {
    let value: Value = serde_json::from_str(text).ok()?;
    if value["run"] != id {
        return None;
    }
    let detail = &value["detail"];
    let ended = match value["kind"].as_str()? {
        "code" => Ended::Exit(End::Code(detail.as_u64()?.try_into().ok()?)),
        "failed" => Ended::Exit(End::Failed(detail.as_i64()?.try_into().ok()?)),
        "off" => Ended::Exit(End::Off),
        "killed" => Ended::Exit(End::Killed),
        "seen" => Ended::Seen,
        "hang" => {
            let trouble = detail.as_str().map(str::to_string);
            Ended::Hang(Hang { waited: Duration::ZERO, trouble, ..Hang::default() })
        }
        _ => return None,
    };
    let log = value["log"].as_str()?.into();
    let lines = lines_of(&fs::read(&log).ok()?);
    let name = value["name"].as_str()?.to_string();
    Some(Outcome { name, ended, lines, log, screen: None, qemu_said: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_of_nextest_boots_once_and_the_next_one_again() {
        let dir = std::env::temp_dir().join(format!("runnext-fixture-{}", std::process::id()));
        let mut boots = 0;
        let mut boot = |id: &str| {
            shared(&dir, "x", id, || {
                boots += 1;
                let log = dir.join("x.log");
                fs::write(&log, "TEST a ok\n").expect("a log");
                let ended = Ended::Exit(End::Code(boots));
                let lines = vec!["TEST a ok".to_string()];
                let qemu_said = String::new();
                Outcome { name: "x".into(), ended, lines, log, screen: None, qemu_said }
            })
        };
        let codes = ["first", "first", "second"].map(|id| boot(id).code());
        assert_eq!(codes, [Some(1), Some(1), Some(2)]);
        boot("second").assert_test("a");
        fs::remove_dir_all(dir).ok();
    }
}
