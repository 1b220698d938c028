//! `make gdb`: a debugger that knows Gs, Ms and Ps (scripts/gdb.py), on a machine that runs.

use std::io::Write;
use std::process::{Command, Stdio};

use boot::cores::Cores;

/// The tool that make calls, with these lines typed into gdb; what gdb said.
fn gdb(program: &str, lines: &[&str]) -> String {
    let _cores = Cores::take(1).expect("a core");
    let mut tool = Command::new(boot::target_dir().join("debug/boot"))
        .args(["gdb", "--smp", "1", "--program", program])
        .current_dir(boot::root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool is there (make tool?)");
    let mut typed = tool.stdin.take().expect("piped");
    lines.iter().for_each(|line| writeln!(typed, "{line}").expect("gdb reads"));
    drop(typed);
    let output = tool.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Main waits in a sleep, and is off its CPU; the first hog's slice is over; later it was preempted,
/// and is off its CPU in another way.
#[test]
#[ignore = "make test-full"]
fn gs_ms_and_ps_are_shown_and_the_calls_of_each_g() {
    const SLEEPS: &str = "thbreak runnext::run::time::sleep";
    let said = gdb(
        "hog",
        &[
            "continue", // to main, where a breakpoint is
            "info gs",
            SLEEPS,
            "continue",
            "thbreak runnext::run::proc::park_m", // main
            "continue",
            "thbreak runnext::run::proc::expire_m", // a hog
            "continue",
            "echo slice-over\\n",
            "info gs",
            "info ms",
            "info ps",
            "bt g 1",
            SLEEPS,
            "continue",
            "echo all-have-run\\n",
            "bt g 5",
            "bt 1",
            "kill",
            "quit",
        ],
    );
    let (main, rest) = said.split_once("slice-over").expect(&said);
    let (over, slept) = rest.split_once("all-have-run").expect(&said);
    let row = |part: &str, words: &[&str]| {
        let has = |line: &str| line.split_whitespace().collect::<Vec<_>>().starts_with(words);
        assert!(
            part.lines().any(|line| has(line.trim_start_matches("(gdb) "))),
            "{words:?}: {said}"
        );
    };
    assert!(main.contains("programs::hog::main () at kernel/programs/src/hog.rs:"), "{said}");
    row(main, &["1", "running", "0", "hog"]);
    row(over, &["1", "waiting", "-", "hog", "lib.rs:263", "Sleep"]);
    assert_eq!(over.matches(" running ").count(), 1, "one of four hogs: {said}");
    assert_eq!(over.matches(" runnable ").count(), 3, "{said}");
    row(over, &["0", "on", "a", "CPU"]);
    assert!(over.contains("0  busy   "), "{said}");
    for frame in ["G 1 is off its CPU", "sleep", "in programs::hog::main"] {
        assert!(over.contains(frame), "{frame}: {said}");
    }
    for frame in ["G 5 is off its CPU", "programs::hog::main::{closure"] {
        assert!(slept.contains(frame), "{frame}: {said}");
    }
    assert!(slept.contains("#0  runnext::run::time::sleep"), "gdb's own: {said}");
}
