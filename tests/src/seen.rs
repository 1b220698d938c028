//! The page `docs/seeds.md`, held: whatever it says shows a statement exists.
//!
//! The last column of its tables names that, each by a link or in backquotes:
//!
//! - a link: the file is there;
//! - `scene`, `test` or `shell` and a name: the tour has a scene of that title, some source a test
//!   or a guest's check of that name, the shell that command;
//! - `make …`: the Makefile has the target, the image the program, the folder of the app is there,
//!   and the words for the kernel are boot words;
//! - `word=value`: a word of the command line, which takes that value.
//!
//! What else is in backquotes there is wrong. The other columns are prose, of which only the links
//! are checked.

use std::fs;
use std::path::{Path, PathBuf};

use crate::links::{links, wrong_link};

/// The sources by which names are known.
struct Known {
    root: PathBuf,
    makefile: String,
    words: String,
    programs: String,
    scenes: String,
    shell: String,
    /// All sources in which tests are.
    tests: String,
}

impl Known {
    fn at(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of ours");
        Known {
            root: root.into(),
            makefile: read("Makefile"),
            words: read("kernel/src/init/cmdline.rs"),
            programs: sources(root, &["kernel/programs/src", "examples"]),
            scenes: read("kernel/programs/src/tour/scenes.rs"),
            shell: read("kernel/programs/src/shell/parse.rs"),
            tests: sources(root, &["tests/tests", "tests/guest/src", "kernel", "bench/src"]),
        }
    }

    /// Whether the Makefile's command does what it says, as far as names go.
    fn has_command(&self, command: &str) -> bool {
        let mut words = command.split_whitespace().skip(1);
        let target = words.next().unwrap_or_default();
        let arguments = command.split_once(target).map_or("", |(_, rest)| rest);
        let (plain, kernels) = match arguments.split_once("ARGS=\"") {
            Some((plain, quoted)) => (plain, quoted.trim_end_matches('"')),
            None => (arguments, ""),
        };
        let is_set = |word: &str| match word.split_once('=') {
            Some(("PROGRAM", name)) => self.programs.contains(&format!("main!({name}, ")),
            Some(("APP", path)) => self.root.join(path).join("Cargo.toml").exists(),
            Some((variable, _)) => self.makefile.contains(&format!("\n{variable} ?=")),
            None => false,
        };
        let is_word = |word: &&str| *word != "--";
        self.makefile.contains(&format!("\n{target}:"))
            && plain.split_whitespace().all(is_set)
            && kernels.split_whitespace().take_while(is_word).all(|word| self.has_word(word))
    }

    /// Whether that is a word of the command line with a value that it takes. A value that is chosen
    /// from a list stands in the table, or in the systems' files; numbers are the parser's matter.
    fn has_word(&self, word: &str) -> bool {
        let Some((key, value)) = word.split_once('=') else { return false };
        let starts = format!("    \"{key}\" ");
        let Some((_, spec)) = self.words.split_once(&starts) else { return false };
        let spec = spec.split_once("    ///").map_or(spec, |(spec, _)| spec);
        let is_number = value.starts_with(|c: char| c.is_ascii_digit());
        let is_listed = spec.contains(&format!("\"{value}\""))
            || spec.split(['"', '|', ' ']).any(|listed| listed == value)
            || key == "system" && self.programs.contains(&format!("name: \"{value}\""));
        is_listed || is_number && spec.contains("\"<")
    }

    /// What is wrong with one thing in backquotes, after the word `kind`.
    fn wrong(&self, kind: &str, span: &str) -> Option<String> {
        let is_there = match kind {
            "scene" => self.scenes.contains(&format!("title: \"{span}\"")),
            "test" => self.tests.contains(&format!("fn {span}(")),
            "shell" => {
                let name = span.split(' ').next().unwrap_or_default();
                self.shell.contains(&format!("spec(\"{name}\", "))
            }
            _ if span.starts_with("make ") => self.has_command(span),
            _ => self.has_word(span),
        };
        (!is_there).then(|| format!("there is no {kind} `{span}`"))
    }
}

/// All Rust sources below these folders, one after another.
fn sources(root: &Path, folders: &[&str]) -> String {
    let mut text = String::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of ours").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                text += &fs::read_to_string(&path).unwrap_or_default();
            }
        }
    }
    text
}

/// The things in backquotes in a cell, each after the word before it; the texts of links are none.
fn spans(cell: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = cell.split('`').collect();
    let pairs: Vec<_> =
        parts.chunks(2).filter_map(|pair| pair.get(1).map(|s| (pair[0], *s))).collect();
    pairs.into_iter().filter_map(|(before, span)| {
        let kind = before.trim_end().rsplit([' ', ',']).next().unwrap_or_default();
        (!before.ends_with('[')).then_some((kind, span))
    })
}

/// What is wrong with the page.
fn wrong(root: &Path, page: &str) -> Vec<String> {
    let known = Known::at(root);
    let mut wrong = Vec::new();
    let mut is_table = false;
    for line in page.lines() {
        wrong.extend(links(line).filter_map(|link| wrong_link(&root.join("docs/seeds.md"), link)));
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let is_head = cells.last() == Some(&"seen by");
        is_table = is_head || is_table && line.starts_with('|');
        let (true, false, [_, _, seen]) = (is_table, is_head, &cells[..]) else { continue };
        if !seen.starts_with("---") {
            wrong.extend(spans(seen).filter_map(|(kind, span)| known.wrong(kind, span)));
            if spans(seen).next().is_none() && links(seen).next().is_none() {
                wrong.push(format!("nothing shows it: {line}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        fs::read_to_string(boot::root().join("docs/seeds.md")).expect("the page of statements")
    }

    #[test]
    fn all_that_shows_a_statement_exists() {
        let wrong = wrong(&boot::root(), &page());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_page_has_its_statements() {
        let rows =
            page().lines().filter(|line| line.starts_with("| ") && !line.contains("---")).count();
        assert!(rows > 60, "{rows} rows: is it read right?");
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let row =
            |seen: &str| format!("| said | here | seen by |\n|---|---|---|\n| a | b | {seen} |\n");
        let wrong = |seen: &str| wrong(&boot::root(), &row(seen));
        for right in [
            "scene `Stealing`, shell `sched -v`, [map](../README.md)",
            "test `newest_runs_first_and_the_rest_in_order`, `place=queue`",
            "`make run PROGRAM=hog SMP=2 ARGS=\"slice=5 system=lifo -- x=y\"`, `make systems`",
        ] {
            assert_eq!(wrong(right), [""; 0], "{right}");
        }
        for bad in [
            "scene `Steeling`",
            "shell `scheduler`",
            "test `no_such_test_is_there`",
            "[map](../READ.md)",
            "`make ran PROGRAM=hog`",
            "`make run PROGRAM=hogs`",
            "`make run APP=examples/none`",
            "`make run COLOUR=red`",
            "`make run PROGRAM=hog ARGS=\"place=there\"`",
            "`place=there`",
            "`nice=3`",
            "`slice=x`",
            "`go`",
            "nothing at all",
        ] {
            assert_eq!(wrong(bad).len(), 1, "{bad}: {:?}", wrong(bad));
        }
    }
}
