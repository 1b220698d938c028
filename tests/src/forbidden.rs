//! What programs must not be able to do does not compile.
//!
//! `kernel/programs/forbidden/` has programs of which each marked line is an error. They
//! are compiled as programs of the standard image are, without the kernel's `internals`.
//! The compiler gives all errors of a file at once, so this is one build for each.

use std::collections::BTreeMap;
use std::process::Command;

/// By line: the code of an error.
type Errors = BTreeMap<usize, String>;

fn cargo(args: &[&str]) -> (String, String) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).current_dir(boot::root()).output();
    let output = output.expect("cargo can be run");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What the marks `//~ E0603` of that program promise.
fn expected(path: &str) -> Errors {
    let text = std::fs::read_to_string(boot::root().join(path)).expect("it is in the tree");
    let marks = text.lines().enumerate();
    marks
        .filter_map(|(i, line)| Some((i + 1, line.split_once("//~ ")?.1.trim().to_string())))
        .collect()
}

/// What the compiler says: `<path>:<line>:<column>: error[<code>]: …`.
fn found(path: &str, said: &str) -> Errors {
    let error = |line: &str| {
        let (number, rest) = line.strip_prefix(path)?.strip_prefix(':')?.split_once(':')?;
        let code = rest.split_once("error[")?.1.split_once(']')?.0;
        Some((number.parse().ok()?, code.to_string()))
    };
    said.lines().filter_map(error).collect()
}

fn all_lines_are_refused(name: &str, path: &str) {
    let (_, said) = cargo(&[
        "check",
        "--message-format=short",
        "--package=programs",
        "--features=forbidden",
        "--example",
        name,
    ]);
    let (expected, found) = (expected(path), found(path, &said));
    assert!(!expected.is_empty());
    assert_eq!(found, expected, "a line compiles, or another does not:\n{said}");
}

#[test]
fn no_program_can_name_what_is_not_for_programs() {
    all_lines_are_refused("forbidden-paths", "kernel/programs/forbidden/paths.rs");
}

#[test]
fn no_program_can_call_what_is_not_for_programs() {
    all_lines_are_refused("forbidden-methods", "kernel/programs/forbidden/methods.rs");
}

#[test]
fn no_g_outlives_what_it_has_borrowed() {
    all_lines_are_refused("forbidden-borrows", "kernel/programs/forbidden/borrows.rs");
}

#[test]
fn programs_are_built_without_the_kernels_internals() {
    let features = |package| {
        let tree = ["tree", "--edges=features", "--target=x86_64-unknown-none", "--package"];
        cargo(&[&tree[..], &[package]].concat()).0
    };
    for (package, has_internals) in [("programs", false), ("workloads", false), ("guest", true)] {
        let tree = features(package);
        assert!(tree.contains("runnext v"), "{tree}");
        assert_eq!(tree.contains("runnext feature \"internals\""), has_internals, "{tree}");
    }
}

#[test]
fn errors_are_found_by_line_and_code() {
    let said = "a.rs:3:5: error[E0603]: module `x` is private: private module\n\
                a.rs:4:1: warning: unused\nb.rs:5:1: error[E0603]: no\nerror: could not compile";
    assert_eq!(found("a.rs", said), [(3, "E0603".to_string())].into());
}
