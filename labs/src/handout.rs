//! The hand-out: a work tree without history in which the lab's regions have their stubs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::copy;
use crate::lab::Lab;
use crate::region::{self, Bodies};

/// The file that says which files a hand-out had.
pub const LIST: &str = "labs/handout.json";

/// Letters of a line from which a solution is known.
const LEAST_LINE: usize = 12;

/// What a hand-out was: for `make grade` without LAB, and to notice edits outside the regions.
#[derive(Debug, Deserialize, Serialize)]
pub struct Handout {
    /// The lab's number.
    pub lab: u32,
    /// A sum of each file, regions left out.
    pub files: BTreeMap<String, String>,
}

impl Handout {
    /// That of a tree, if it is one.
    pub fn of(tree: &Path) -> Option<Handout> {
        serde_json::from_str(&region::read(&tree.join(LIST)).ok()?).ok()
    }

    /// Files of the tree that were edited outside the regions.
    pub fn edited(&self, tree: &Path, lab: &Lab) -> Vec<String> {
        let changed = |file: &&String| {
            let path = tree.join(file);
            // The list is theirs, too: nothing outside the tree, and no pipe.
            let is_inside = Path::new(file).components().all(|c| matches!(c, Component::Normal(_)));
            let is_plain = fs::symlink_metadata(&path).is_ok_and(|data| data.is_file());
            let bytes = if is_inside && is_plain { fs::read(path) } else { Ok(vec![]) };
            let bytes = bytes.unwrap_or_default();
            self.files.get(*file) != Some(&sum(&without_regions(&bytes, lab)))
        };
        self.files.keys().filter(changed).cloned().collect()
    }
}

/// Writes the hand-out of a lab to `out`.
///
/// # Errors
/// `out` is not empty or in the tree, or a file cannot be written.
pub fn write(root: &Path, lab: &Lab, out: &Path) -> Result<()> {
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty", out.display());
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let out = out.canonicalize()?;
    if out.starts_with(root) && !out.starts_with(root.join("target")) {
        bail!("{} is in the source tree: name a directory outside", out.display());
    }
    let stubs = lab.stubs();
    let reference = lab.bodies_of(root)?;
    for name in stubs.keys().filter(|name| !reference.contains_key(*name)) {
        if !lab.hidden().contains_key(name) {
            bail!("lab {} has no region {name}", lab.number);
        }
    }
    let answers = answers(&reference);
    let mut files = BTreeMap::new();
    copy::sync(root, &out, &[], |file, bytes| {
        if is_teachers(file) {
            return Ok(None);
        }
        let bytes = match std::str::from_utf8(&bytes) {
            Ok(text) if is_source(file) => region::replace(text, lab.number, &stubs).into_bytes(),
            Ok(text) if is_page(file) => without_answers(text, lab.number, &answers).into_bytes(),
            _ => bytes,
        };
        let name = file.to_string_lossy().into_owned();
        files.insert(name, sum(&without_regions(&bytes, lab)));
        Ok(Some(bytes))
    })?;
    if let Some(teacher) = &lab.teacher
        && let Ok(text) = fs::read(teacher.join("README.md"))
    {
        let dir = lab.dir.strip_prefix(root).unwrap_or(&lab.dir);
        copy::write(&out.join(dir).join("VARIANT.md"), &text)?;
    }
    copy::write(&out.join(".github/workflows/classroom.yml"), workflow(lab).as_bytes())?;
    let list = serde_json::to_string_pretty(&Handout { lab: lab.number, files })?;
    copy::write(&out.join(LIST), list.as_bytes())
}

/// Wrong bodies and variants show too much.
fn is_teachers(file: &Path) -> bool {
    let parts: Vec<Component> = file.components().collect();
    let named = |at: usize, name: &str| parts.get(at).is_some_and(|part| part.as_os_str() == name);
    named(0, "labs") && (named(2, "wrong") || named(2, "variant"))
}

fn is_source(file: &Path) -> bool {
    file.starts_with("kernel") && file.extension().is_some_and(|ext| ext == "rs")
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|ext| ext == "md")
}

/// Whether a line of a solution is one that other code has hardly: no comment, and no brace alone.
fn tells_much(line: &str) -> bool {
    line.len() >= LEAST_LINE && !line.starts_with("//")
}

/// The lines of a solution that the book may show.
fn answers(reference: &Bodies) -> BTreeSet<&str> {
    let lines = reference.values().flat_map(|body| body.lines()).map(str::trim);
    lines.filter(|line| tells_much(line)).collect()
}

/// The page with the code of the lab's own regions cut out of its blocks: the book shows the kernel.
fn without_answers(page: &str, lab: u32, answers: &BTreeSet<&str>) -> String {
    let mut out = String::new();
    let (mut is_code, mut is_cut) = (false, false);
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        is_code = if is_fence { !is_code && line.starts_with("```rust") } else { is_code };
        let cuts = is_code && !is_fence && answers.contains(line.trim());
        if cuts && !is_cut {
            out.push_str(&format!("// \u{2026} (lab {lab}: you write this)\n"));
        }
        // Short lines between two that are cut say nothing by themselves.
        is_cut = cuts || is_cut && is_code && !is_fence && !tells_much(line.trim());
        if !is_cut {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn without_regions(bytes: &[u8], lab: &Lab) -> Vec<u8> {
    let empty: Bodies = lab.stubs().into_keys().map(|name| (name, String::new())).collect();
    match std::str::from_utf8(bytes) {
        Ok(text) if text.contains("// lab ") => {
            region::replace(text, lab.number, &empty).into_bytes()
        }
        _ => bytes.to_vec(),
    }
}

/// FNV-1a: against accidents, not against attacks.
fn sum(bytes: &[u8]) -> String {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The workflow for GitHub Classroom: grades once, then reports each test by itself.
pub fn workflow(lab: &Lab) -> String {
    let n = lab.number;
    let id = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let visible = || lab.plan.tests.iter().filter(|test| !test.hidden);
    let mut steps = String::new();
    for test in visible() {
        steps.push_str(&format!(
            "      - name: {name}\n        id: {id}\n        if: always()\n        \
             uses: classroom-resources/autograding-command-grader@v1\n        with:\n          \
             test-name: {name}\n          setup-command: ''\n          \
             command: target/debug/labs verdict --test {name}\n          timeout: 1\n          \
             max-score: {points}\n",
            name = test.name,
            id = id(&test.name),
            points = test.points,
        ));
    }
    let results: String = visible()
        .map(|test| {
            let upper = id(&test.name).to_uppercase();
            format!(
                "          {upper}_RESULTS: ${{{{ steps.{}.outputs.result }}}}\n",
                id(&test.name)
            )
        })
        .collect();
    let runners: Vec<String> = visible().map(|test| id(&test.name)).collect();
    format!(
        "# Written by `make handout LAB={n}`.\n\
         name: Lab {n}\n\
         on: [push, workflow_dispatch]\n\
         permissions:\n  checks: write\n  actions: read\n  contents: read\n\
         jobs:\n  grade:\n    runs-on: ubuntu-latest\n    timeout-minutes: 30\n    steps:\n      \
         - uses: actions/checkout@v4\n      \
         - uses: actions/cache@v4\n        with:\n          path: |\n            ~/.cargo/registry\n            \
         target\n          key: lab-{n}-${{{{ hashFiles('Cargo.lock', 'rust-toolchain.toml') }}}}\n      \
         - name: Grade\n        run: make grade LAB={n} || true\n{steps}      \
         - uses: actions/upload-artifact@v4\n        if: always()\n        with:\n          name: grade\n          \
         path: |\n            target/grade/results.json\n            target/grade/*.html\n      \
         - name: Report\n        if: always()\n        \
         uses: classroom-resources/autograding-grading-reporter@v1\n        env:\n{results}        \
         with:\n          runners: {}\n",
        runners.join(",")
    )
}

/// The lab of a hand-out, for `make grade` without LAB.
pub fn current(root: &Path) -> Option<u32> {
    Handout::of(root).map(|handout| handout.lab)
}

/// How deep the folders are in which a student's files may lie: archives are unpacked into folders
/// of their names.
const DEPTH: usize = 4;

/// Where a student's files are in a submission: its top, or the one folder in it, however deep.
pub fn top_of(submission: &Path) -> PathBuf {
    let mut level = vec![submission.to_path_buf()];
    for _ in 0..=DEPTH {
        let mut tops = level.iter().filter(|dir| region::is_dir(&dir.join("kernel")));
        match (tops.next(), tops.next()) {
            (Some(only), None) => return only.clone(),
            (Some(_), Some(_)) => break, // which one is meant?
            (None, _) => {}
        }
        let below = level.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        level = below.map(|entry| entry.path()).filter(|path| region::is_dir(path)).collect();
    }
    submission.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_a_hand_out_does_not_show_the_answer() {
        let answers = BTreeSet::from(["let n = len - len / 2;", "queue.take(n)?;"]);
        let page = "Half: `let n = len - len / 2;`\n```rust\n// a.rs\nfn steal() {\n    \
                    let n = len - len / 2;\n    // so\n    queue.take(n)?;\n}\n```\n```rust\n// b.rs\n\
                    fn other() { queue.len() }\n```\nmore\n";
        let wanted = "Half: `let n = len - len / 2;`\n```rust\n// a.rs\nfn steal() {\n\
                      // \u{2026} (lab 4: you write this)\n```\n```rust\n// b.rs\n\
                      fn other() { queue.len() }\n```\nmore\n";
        assert_eq!(without_answers(page, 4, &answers), wanted);
    }

    /// The chapters show what the labs ask for: none of it is left in any hand-out's book.
    #[test]
    fn no_hand_out_shows_its_solution_in_the_book() {
        let root = tool::tree::root();
        let pages = copy::files(&root.join("book/src")).expect("the book");
        let pages: Vec<_> = pages.iter().filter(|file| is_page(file)).collect();
        for lab in Lab::all(&root).expect("the labs") {
            let reference = lab.bodies_of(&root).expect("the regions");
            let answers = answers(&reference);
            for page in &pages {
                let text = fs::read_to_string(root.join("book/src").join(page)).expect("a page");
                let text = without_answers(&text, lab.number, &answers);
                let shown = text.lines().find(|line| answers.contains(line.trim()));
                assert_eq!(shown, None, "lab {}: {}", lab.number, page.display());
            }
        }
    }

    #[test]
    fn the_files_of_an_archive_are_found_in_its_folders() {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let make = |path: &str| fs::create_dir_all(dir.path().join(path)).expect("a folder");
        let top = || top_of(dir.path()).strip_prefix(dir.path()).expect("below").to_path_buf();
        make("ada/lab 5/runnext/kernel/kernel");
        make("__MACOSX/ada");
        assert_eq!(top(), Path::new("ada/lab 5/runnext"));
        make("ada/lab 5/old/kernel");
        assert_eq!(top(), Path::new(""), "two, and none is better");
        make("kernel");
        assert_eq!(top(), Path::new(""), "the top");
    }
}
