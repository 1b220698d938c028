//! A crate of one's own: written, run and tested as `make new`, `make run` and `make test` do it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use boot::Scratch;
use boot::cores::Cores;

/// What `boot <command> --app <path> …` ends with, and says on its two streams.
fn boot_tool(command: &str, app: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    let _cores = Cores::take(1).expect("a core");
    let output = Command::new(boot::target_dir().join("debug/boot"))
        .arg(command)
        .arg("--app")
        .arg(app)
        .args(options)
        .current_dir(boot::root())
        .stdin(Stdio::null())
        .output()
        .expect("the tool is there (make tool?)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// One CPU in virtual time, in which a test that waits for an hour takes no time of the host's.
const MACHINE: [&str; 4] = ["--smp", "1", "--icount", "shift=0,sleep=off"];

/// In place of the tests that `make new` writes.
const TESTS: &str = "
#[cfg(test)]
mod tests {
    use super::*;

    runnext::tests![
        sums, panics, sleeps, computes, deadlocks, exits, leaves_a_g, goes_on,
    ];

    fn sums() {
        assert_eq!(sum_of_squares(4, 2), 14);
    }

    fn panics() {
        assert_eq!(sum_of_squares(4, 2), 15);
    }

    fn sleeps() {
        sleep(Duration::from_secs(3600));
    }

    fn computes() {
        (0_u64..).for_each(|n| drop(core::hint::black_box(n)));
    }

    fn deadlocks() {
        let (tx, rx) = chan::rendezvous::<u32>();
        let _ = (rx.recv(), tx);
    }

    fn exits() {
        exit(7);
    }

    fn leaves_a_g() {
        let _detached = go(|| sleep(Duration::from_secs(3600)));
    }

    fn goes_on() {
        assert_eq!(sum_of_squares(5, 3), 30);
    }
}
";

/// What becomes of them with a limit of one second.
const VERDICTS: [(&str, &str); 8] = [
    ("sums", "ok"),
    ("panics", "FAILED: panicked"),
    ("sleeps", "FAILED: it took longer than 1 s, and was stopped"),
    ("computes", "FAILED: it took longer than 1 s, and was stopped"),
    ("deadlocks", "FAILED: deadlock"),
    ("exits", "FAILED: exit 7"),
    ("leaves_a_g", "ok"),
    ("goes_on", "ok"),
];

#[test]
fn a_new_crate_runs_and_one_test_that_fails_does_not_stop_the_others() {
    let dir = Scratch::new().expect("a writable directory");
    let app = dir.path().join("my first app");
    let (code, _, notes) = boot_tool("new", &app, &[]);
    assert_eq!(code, Some(0), "{notes}");
    let (code, _, notes) = boot_tool("new", &app, &[]);
    assert_eq!(code, Some(1), "{notes}");
    assert!(notes.contains("is there already, and not empty"), "{notes}");

    let main = app.join("src/main.rs");
    let text = fs::read_to_string(&main).expect("it was written");
    let (program, _) = text.split_once("#[cfg(test)]").expect("it has tests");
    fs::write(&main, format!("{program}{TESTS}")).expect("a writable file");
    let (code, said, notes) = boot_tool("test", &app, &[&MACHINE[..], &["--limit", "1"]].concat());
    assert_eq!(code, Some(1), "{said}\n{notes}");
    let verdicts: Vec<_> = said.lines().filter(|line| line.starts_with("test ")).collect();
    let mut expected =
        VERDICTS.map(|(name, verdict)| format!("test my_first_app::tests::{name} ... {verdict}"));
    expected.sort();
    assert_eq!(verdicts, expected, "{said}");
    assert!(said.contains("\ntests: 3 passed, 5 failed, 0 left out"), "{said}");

    let sums = [&MACHINE[..], &["--test", "sums"]].concat();
    let (code, said, notes) = boot_tool("test", &app, &sums);
    assert_eq!(code, Some(0), "{said}\n{notes}");
    assert!(said.contains("\ntests: 1 passed, 0 failed, 7 left out"), "{said}");
    let (code, said, notes) = boot_tool("test", &app, &["--test", "nope"]);
    assert_eq!((code, said.as_str()), (Some(1), ""), "nothing was booted: {notes}");
    assert!(notes.contains("TEST=nope: no test has this in its name; there are my_f"), "{notes}");

    let words = [&MACHINE[..], &["--cmdline", "-- 4"]].concat();
    let (code, said, notes) = boot_tool("run", &app, &words);
    assert_eq!(code, Some(0), "{said}\n{notes}");
    assert!(said.contains("the squares below 4 add up to 14"), "{said}");
}

/// A test that ends the machine, with success even, has ended the others with it.
#[test]
#[ignore = "make test-full"]
fn tests_that_were_not_run_have_not_passed() {
    let dir = Scratch::new().expect("a writable directory");
    let app = dir.path().join("off");
    assert_eq!(boot_tool("new", &app, &[]).0, Some(0));
    let main = app.join("src/main.rs");
    let text = fs::read_to_string(&main).expect("it was written");
    let text =
        text.replace("assert_eq!(sum_of_squares(4, 2), 1 + 4 + 9);", "runnext::power_off();");
    fs::write(&main, text).expect("a writable file");
    let (code, said, notes) = boot_tool("test", &app, &MACHINE);
    assert_eq!(code, Some(1), "{said}\n{notes}");
    assert!(notes.contains("the machine ended before all tests had"), "{notes}");
}

/// What an editor does: cargo, started in the crate, with the flags that it finds there.
#[test]
#[ignore = "make test-full"]
fn cargo_checks_and_runs_a_new_crate_where_it_lies() {
    let dir = Scratch::new().expect("a writable directory");
    let app = dir.path().join("here");
    assert_eq!(boot_tool("new", &app, &[]).0, Some(0));
    // Not the toolchain of the tests, but the one that the crate names.
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(args).current_dir(&app).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        cargo.stdin(Stdio::null()).output().expect("cargo starts")
    };
    let checked = cargo(&["check", "--all-targets"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let _cores = Cores::take(1).expect("a core");
    let ran = cargo(&["test", "--release"]);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("tests: 2 passed, 0 failed"), "{said}");
}
