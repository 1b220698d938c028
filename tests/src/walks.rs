//! The walks of `docs/walks.md`, held: every function that a walk names exists, and no walk is
//! longer than it may be.
//!
//! A walk is a section of that page: a heading, and below it a numbered list whose items begin with
//! the path of a function in backquotes, `room::module::function` or
//! `room::module::Type::function`; paths that begin with `sched` lead into that crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The walks, by a word of their heading: at most that many functions, in that many files.
///
/// These are the present counts: a walk may get shorter, and then its limit is lowered, but not
/// longer.
const LIMITS: [(&str, usize, usize); 4] =
    [("go(f)", 20, 8), ("rendezvous", 24, 8), ("tick", 23, 10), ("blocking call", 25, 8)];

/// One section: its heading and the functions that it names.
struct Walk<'a> {
    heading: &'a str,
    functions: Vec<&'a str>,
}

fn walks(page: &str) -> Vec<Walk<'_>> {
    let mut walks = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            walks.push(Walk { heading, functions: Vec::new() });
        }
        let item = line.split_once(". `").filter(|(number, _)| number.parse::<u32>().is_ok());
        if let (Some((_, rest)), Some(walk)) = (item, walks.last_mut()) {
            walk.functions.extend(rest.split('`').next());
        }
    }
    walks.retain(|walk| !walk.functions.is_empty());
    walks
}

/// The file that has the function, if there is one.
fn file_of(root: &Path, function: &str) -> Option<PathBuf> {
    let mut path: Vec<&str> = function.split("::").collect();
    let name = path.pop()?;
    let source = match path.first() {
        Some(&"sched") => {
            path.remove(0);
            root.join("kernel/sched/src")
        }
        _ => root.join("kernel/src"),
    };
    let on = path.pop_if(|last| last.starts_with(char::is_uppercase));
    let module = path.iter().fold(source, |dir, part| dir.join(part));
    let files = [module.with_extension("rs"), module.join("mod.rs"), module.join("lib.rs")];
    files.into_iter().find(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let defines = |line: &str| {
            let rest = line.split_once("fn ").and_then(|(_, rest)| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['(', '<']))
        };
        let is_for = |line: &str, ty: &str| {
            line.trim_start().starts_with("impl")
                && line.split(|c: char| !c.is_alphanumeric()).any(|w| w == ty)
        };
        text.lines().any(defines) && on.is_none_or(|ty| text.lines().any(|line| is_for(line, ty)))
    })
}

/// What is wrong with the page.
fn wrong(root: &Path, page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let walks = walks(page);
    for (word, most, most_files) in LIMITS {
        let Some(walk) = walks.iter().find(|walk| walk.heading.contains(word)) else {
            wrong.push(format!("no walk of {word}"));
            continue;
        };
        let mut files = BTreeSet::new();
        for function in &walk.functions {
            match file_of(root, function) {
                Some(file) => drop(files.insert(file)),
                None => wrong.push(format!("{}: there is no function {function}", walk.heading)),
            }
        }
        let functions: BTreeSet<_> = walk.functions.iter().collect();
        if functions.len() > most || files.len() > most_files {
            let [have, in_files] = [functions.len(), files.len()];
            wrong.push(format!(
                "{}: {have} functions in {in_files} files, at most {most} in {most_files}",
                walk.heading
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walks_name_functions_that_exist_and_are_short() {
        let root = boot::root();
        let page = fs::read_to_string(root.join("docs/walks.md")).expect("the page of walks");
        let wrong = wrong(&root, &page);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_function_that_is_gone_and_a_walk_that_is_too_long_are_named() {
        let root = boot::root();
        let step = |n: usize| format!("{n}. `sched::p::P::function_{n}` — …\n");
        let (_, most, _) = LIMITS[1];
        let steps = most + 1;
        let long: String = (1..=steps).map(step).collect();
        let page = format!("## go(f)\n1. `sched::lib::nope` — …\n## A rendezvous\n{long}");
        let wrong = wrong(&root, &page);
        assert_eq!(wrong[0], "go(f): there is no function sched::lib::nope");
        assert_eq!(wrong.len(), 1 + steps + 1 + 2, "{wrong:?}");
        let too_long = format!("A rendezvous: {steps} functions in 0 files, at most {most} in ");
        assert!(wrong[1 + steps].starts_with(&too_long), "{}", wrong[1 + steps]);
    }
}
