//! The book, held: what a chapter of `book/src` shows and names is in the tree.
//!
//! - A Rust block begins with the path of a file in a comment, and the lines below it stand in that
//!   file as they stand in the block, but for the indentation of the whole, and the markers of labs
//!   in the file. A line `// …` skips some. So code cannot drift, and the chapters read as plain
//!   Markdown without a tool.
//! - A command of make, in a block or in backquotes, has a target and variables that the Makefile
//!   has, a program that exists, a lab that exists, a system that exists. `run x`, for the shell,
//!   has a program, too.
//! - A path in backquotes exists; so does the file of a link, and the heading that it leads to.
//! - `SUMMARY.md` has every chapter.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::links::{links, wrong_link};

/// The words that a chapter may name.
struct Known {
    targets: BTreeSet<String>,
    variables: BTreeSet<String>,
    programs: BTreeSet<String>,
    labs: BTreeSet<String>,
    systems: BTreeSet<String>,
}

impl Known {
    fn of(root: &Path) -> Self {
        let makefile = read(&root.join("Makefile"));
        let is_name =
            |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let target = |line: &str| line.split_once(':').map(|(name, _)| name.to_string());
        let targets = makefile.lines().filter_map(target).filter(|name| is_name(name)).collect();
        let variable = |line: &str| line.split_once(" ?=").map(|(name, _)| name.to_string());
        let labs = entries(&root.join("labs"));
        let lab = |dir: &PathBuf| {
            let number = dir.file_name()?.to_str()?.split_once('-')?.0.parse::<u32>().ok()?;
            Some(number.to_string())
        };
        Known {
            targets,
            variables: makefile.lines().filter_map(variable).collect(),
            programs: between(&root.join("kernel/programs/src"), "runnext::main!(", ','),
            labs: labs.iter().filter_map(lab).collect(),
            systems: between(&root.join("kernel/sched/src/system"), "name: \"", '"'),
        }
    }

    /// What is wrong with a command of make, if it is one.
    fn wrong_in(&self, root: &Path, line: &str) -> Option<String> {
        let mut words = split(line.split(" #").next()?).into_iter();
        if words.next()? != "make" {
            return None;
        }
        let mut words: Vec<String> =
            words.take_while(|word| !"<>|&".contains(&word[..1])).collect();
        if words.is_empty() {
            return None; // the word alone
        }
        let target = words.iter().position(|word| !word.contains('='));
        let target = target.map(|at| words.remove(at)).unwrap_or_default();
        if !self.targets.contains(&target) {
            return Some(format!("`{line}`: no target {target}"));
        }
        words
            .iter()
            .find_map(|word| self.wrong_word(root, word))
            .map(|why| format!("`{line}`: {why}"))
    }

    fn wrong_word(&self, root: &Path, word: &str) -> Option<String> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if !self.variables.contains(name) {
            return Some(format!("no variable {name}"));
        }
        let system = value.split_whitespace().find_map(|word| word.strip_prefix("system="));
        let (what, known, value) = match name {
            "PROGRAM" => ("program", &self.programs, value),
            "LAB" => ("lab", &self.labs, value),
            "APP" if root.join(value).is_dir() => return None,
            "APP" => return Some(format!("no folder {value}")),
            // A system of an application's own is not in the kernel.
            "ARGS" if !word.contains("=lifo") => ("system", &self.systems, system?),
            _ => return None,
        };
        (!known.contains(value)).then(|| format!("no {what} {value}"))
    }
}

/// Words at spaces; what stands in quotes stays together.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.trim().chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            letter => words.last_mut().expect("one at least").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// What stands in the files of a folder, and of those in it, between `start` and `end`.
fn between(dir: &Path, start: &str, end: char) -> BTreeSet<String> {
    let files =
        entries(dir).into_iter().flat_map(|at| if at.is_dir() { entries(&at) } else { vec![at] });
    let mut found = BTreeSet::new();
    for file in files {
        let text = read(&file);
        let parts = text.split(start).skip(1);
        found.extend(
            parts.filter_map(|part| part.split_once(end)).map(|(name, _)| name.to_string()),
        );
    }
    found
}

/// A fenced block: its language, and its lines.
struct Block<'a> {
    language: &'a str,
    lines: Vec<&'a str>,
}

/// The blocks of a page, and its text without them.
fn blocks(page: &str) -> (Vec<Block<'_>>, String) {
    let (mut blocks, mut text, mut is_in) = (Vec::<Block<'_>>::new(), String::new(), false);
    for line in page.lines() {
        match (line.strip_prefix("```"), is_in) {
            (Some(_), true) => is_in = false,
            (Some(language), false) => {
                is_in = true;
                blocks.push(Block { language, lines: Vec::new() });
            }
            (None, true) => blocks.last_mut().expect("begun").lines.push(line),
            (None, false) => text.extend([line, "\n"]),
        }
    }
    (blocks, text)
}

/// What is wrong with a block of Rust.
fn wrong_code(root: &Path, block: &Block<'_>) -> Option<String> {
    let Some((path, code)) = block.lines.split_first() else {
        return Some("an empty block".into());
    };
    let Some(path) = path.strip_prefix("// ").filter(|path| root.join(path).is_file()) else {
        return Some(format!("a block of Rust without the path of its file: {path}"));
    };
    let source = read(&root.join(path));
    let mut rest: &[&str] = &source.lines().filter(|line| !is_marker(line)).collect::<Vec<_>>();
    for piece in code.split(|line| line.trim() == "// \u{2026}").filter(|piece| !piece.is_empty()) {
        let Some(at) = (0..rest.len()).find(|&at| stands(piece, &rest[at..])) else {
            return Some(format!("{path} has no such lines (any more):\n{}", piece.join("\n")));
        };
        rest = &rest[at + piece.len()..];
    }
    None
}

/// Whether the line begins or ends the region of a lab: blocks leave those out.
fn is_marker(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    matches!(words[..], ["//", "lab", _, "begin:" | "end", ..])
}

/// Whether `source` begins with these lines, all of them indented by as much more.
fn stands(piece: &[&str], source: &[&str]) -> bool {
    let Some(more) = source.first().and_then(|line| line.strip_suffix(piece[0])) else {
        return false;
    };
    more.trim().is_empty()
        && source.len() >= piece.len()
        && piece.iter().zip(source).all(|(line, source)| match line.is_empty() {
            true => source.is_empty(),
            false => source.strip_prefix(more) == Some(line),
        })
}

/// The folders at the top of the tree: what begins with one of them is a path.
const TOP: [&str; 11] = [
    "bench/",
    "book/",
    "boot/",
    "docs/",
    "examples/",
    "fuzz/",
    "kernel/",
    "labs/",
    "scripts/",
    "tests/",
    "trace/",
];

/// What is wrong with a page.
fn wrong(root: &Path, known: &Known, from: &Path, page: &str) -> Vec<String> {
    let (blocks, text) = blocks(page);
    let mut wrong = Vec::new();
    for block in &blocks {
        match block.language {
            language if language.starts_with("rust") => wrong.extend(wrong_code(root, block)),
            _ => wrong.extend(block.lines.iter().filter_map(|line| known.wrong_in(root, line))),
        }
    }
    for span in text.split('`').skip(1).step_by(2) {
        wrong.extend(known.wrong_in(root, span));
        let is_path =
            TOP.iter().any(|top| span.starts_with(top)) && !span.contains(['*', '<', ' ']);
        if is_path && !root.join(span).exists() {
            wrong.push(format!("`{span}` is not there"));
        }
        let program = span.strip_prefix("run ").and_then(|words| words.split(' ').next());
        if program.is_some_and(|program| !known.programs.contains(program)) {
            wrong.push(format!("`{span}`: no such program"));
        }
    }
    wrong.extend(links(&text).filter_map(|link| wrong_link(from, link)));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_book_shows_and_names_is_there() {
        let root = boot::root();
        let known = Known::of(&root);
        let pages = entries(&root.join("book/src"));
        let pages: Vec<_> = pages.into_iter().filter(|page| page.extension().is_some()).collect();
        let summary = read(&root.join("book/src/SUMMARY.md"));
        let mut said = Vec::new();
        for page in &pages {
            let name = page.file_name().expect("a file").to_string_lossy();
            if name != "SUMMARY.md" && !summary.contains(&format!("]({name})")) {
                said.push(format!("{name}: not in SUMMARY.md"));
            }
            let wrong = wrong(&root, &known, page, &read(page));
            said.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
        }
        assert!(pages.len() > 1, "no chapters");
        assert!(said.is_empty(), "{}", said.join("\n"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let root = boot::root();
        let known = Known::of(&root);
        let chapter = root.join("book/src/chapter.md");
        for (page, said) in [
            ("`make rum`", "no target rum"),
            ("```sh\nmake run PROGRAM=hogg </dev/null\n```", "no program hogg"),
            ("`make run SPM=2`", "no variable SPM"),
            ("`make grade LAB=44`", "no lab 44"),
            ("`make run APP=examples/none`", "no folder examples/none"),
            ("`make run ARGS=\"log=debug system=other\"`", "no system other"),
            ("`run nonsense`", "no such program"),
            ("`kernel/src/none.rs`", "is not there"),
            ("[x](../../kernel/none.rs)", "which is not there"),
            ("[x](../../README.md#none)", "no such heading"),
            ("[x](#none)", "which is not there"),
            ("```rust\nfn main() {}\n```", "without the path"),
            ("```rust\n// kernel/src/lib.rs\nfn nonsense() {}\n```", "no such lines"),
            ("```rust\n```", "an empty block"),
        ] {
            let wrong = wrong(&root, &known, &chapter, page);
            assert!(wrong.len() == 1 && wrong[0].contains(said), "{page}: {wrong:?}");
        }
        for page in [
            "`make run PROGRAM=hog SMP=2` and `make`-like words, `run hog 60 &`",
            "```sh\nmake run ARGS=system=n1      # one\nmake run APP=examples/system ARGS=system=lifo\n```",
            "[x](../../README.md#the-map), [y](https://rust-lang.org), `kernel/sched/src/runq.rs`",
            "```c\nint main(void) { return 0; }\n```",
        ] {
            let wrong = wrong(&root, &known, &chapter, page);
            assert!(wrong.is_empty(), "{page}: {wrong:?}");
        }
    }

    #[test]
    fn lines_stand_in_a_source_with_the_same_indentation_throughout() {
        let source = ["fn f() {", "    if x {", "        y();", "", "    }", "}"];
        assert!(stands(&["if x {", "    y();", "", "}"], &source[1..]));
        assert!(!stands(&["if x {", "y();"], &source[1..]));
        assert!(!stands(&["x {"], &source[1..]), "a part of a line");
        assert!(!stands(&["}", "}"], &source[5..]));
        let block = |lines: &str| {
            let lines = format!("// tests/src/book.rs\n{lines}");
            wrong_code(&boot::root(), &Block { language: "rust", lines: lines.lines().collect() })
        };
        let skips = "fn read(path: &Path) -> String {\n// \u{2026}\n}";
        assert_eq!(block(skips), None);
        assert!(block("}\n// \u{2026}\nfn read(path: &Path) -> String {x").is_some());
    }
}
