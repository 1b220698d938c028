//! The parts of the source that a lab replaces.
//!
//! Two comment lines mark a region, by the number of the lab and a name:
//!
//! ```text
//! // lab 4 begin: steal
//! …the real body…
//! // lab 4 end
//! ```
//!
//! A region is found by its name in any file below `kernel/`, so code may move between
//! files. The kernel's own source is the reference solution; there is no second copy.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// Bytes of a source file; ours have a tenth of it.
const MAX_FILE: u64 = 1 << 20;

/// Bodies by the name of their region.
pub type Bodies = BTreeMap<String, String>;

/// A region in one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name in the markers.
    pub name: String,
    /// The file, relative to the tree.
    pub file: PathBuf,
    /// The lines between the markers, counted from 1.
    pub lines: Range<usize>,
    /// The text between the markers.
    pub body: String,
}

/// All regions of a lab in the tree `root`, or in a folder of single files.
///
/// # Errors
/// A file cannot be read, or markers do not pair.
pub fn find_all(root: &Path, lab: u32) -> Result<Vec<Region>> {
    let mut regions: Vec<Region> = Vec::new();
    let kernel = root.join("kernel");
    for file in sources(if is_dir(&kernel) { &kernel } else { root })? {
        let text = read(&file)?;
        let relative = file.strip_prefix(root).unwrap_or(&file);
        for region in find(&text, lab, relative)? {
            if regions.iter().any(|other| other.name == region.name) {
                bail!("lab {lab} has two regions {}", region.name);
            }
            regions.push(region);
        }
    }
    Ok(regions)
}

/// The regions of one file.
///
/// # Errors
/// Markers do not pair.
pub fn find(text: &str, lab: u32, file: &Path) -> Result<Vec<Region>> {
    let (begin, end) = (format!("// lab {lab} begin: "), format!("// lab {lab} end"));
    let text = text.strip_prefix('\u{feff}').unwrap_or(text); // some editors begin a file so
    let mut regions = Vec::new();
    let mut open: Option<Region> = None;
    for (i, line) in text.lines().enumerate() {
        let at = || format!("{}:{}", file.display(), i + 1);
        if let Some(name) = line.trim().strip_prefix(&begin) {
            if let Some(open) = open {
                bail!("{}: region {} of lab {lab} has no end before this line", at(), open.name);
            }
            open = Some(Region {
                name: name.trim().into(),
                file: file.into(),
                lines: i + 2..i + 2,
                body: String::new(),
            });
        } else if line.trim() == end {
            let Some(mut region) = open.take() else {
                bail!("{}: an end marker of lab {lab} without a begin", at());
            };
            region.lines.end = i + 1;
            regions.push(region);
        } else if let Some(region) = &mut open {
            region.body.push_str(line);
            region.body.push('\n');
        }
    }
    match open {
        Some(open) => bail!("{}: region {} of lab {lab} has no end", file.display(), open.name),
        None => Ok(regions),
    }
}

/// `text` with the bodies of these regions replaced. Bodies are indented as the markers are.
#[must_use]
pub fn replace(text: &str, lab: u32, bodies: &Bodies) -> String {
    let (begin, end) = (format!("// lab {lab} begin: "), format!("// lab {lab} end"));
    let mut out = String::new();
    let mut skips = false;
    for line in text.lines() {
        skips &= line.trim() != end;
        if !skips {
            out.push_str(line);
            out.push('\n');
        }
        let name = line.trim().strip_prefix(&begin).map(str::trim);
        if let Some(body) = name.and_then(|name| bodies.get(name)) {
            let indent = &line[..line.len() - line.trim_start().len()];
            out.push_str(&indented(body, indent));
            skips = true;
        }
    }
    out
}

/// The text with its common indentation replaced by `indent`.
fn indented(text: &str, indent: &str) -> String {
    let lines = || text.trim_end().lines().skip_while(|line| line.trim().is_empty());
    let depth = |line: &str| line.len() - line.trim_start().len();
    let common = lines().filter(|line| !line.trim().is_empty()).map(depth).min().unwrap_or(0);
    let line = |line: &str| match line.trim().is_empty() {
        true => "\n".to_string(),
        false => format!("{indent}{}\n", &line[common..]),
    };
    lines().map(line).collect()
}

/// A file of bodies: `// region: NAME` begins each; what comes before is its head.
#[must_use]
pub fn read_bodies(text: &str) -> (String, Bodies) {
    let (mut head, mut bodies) = (String::new(), Bodies::new());
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix("// region:") {
            bodies.entry(name.trim().to_string()).or_default(); // it may be empty
            current = Some(name.trim().to_string());
            continue;
        }
        let out = match &current {
            None => &mut head,
            Some(name) => bodies.entry(name.clone()).or_default(),
        };
        out.push_str(line);
        out.push('\n');
    }
    (head, bodies)
}

/// Whether that is a directory, and no link to one: what a link leads to is not of the submission.
pub fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|data| data.is_dir())
}

/// A student's file as text: a plain file of a sensible size.
///
/// # Errors
/// It is none, or cannot be read.
pub fn read(file: &Path) -> Result<String> {
    let name = || file.display().to_string();
    let data = fs::symlink_metadata(file).with_context(name)?;
    if !data.is_file() {
        bail!("{}: not a plain file", name());
    }
    if data.len() > MAX_FILE {
        bail!("{}: {} bytes are too many for a source file", name(), data.len());
    }
    let bytes = fs::read(file).with_context(name)?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| anyhow!("{}: is not UTF-8; save it in that encoding", name()))
}

/// The Rust files below a directory, in order. Links, pipes and devices are passed over.
fn sources(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if is_dir(&path) {
            if path.file_name().is_some_and(|name| name != "target") {
                found.extend(sources(&path)?);
            }
        } else if path.extension().is_some_and(|ext| ext == "rs")
            && fs::symlink_metadata(&path).is_ok_and(|data| data.is_file())
        {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn a() {\n    // lab 2 begin: a\n    1\n    // lab 2 end\n}\n\
                        fn b() {\n    // lab 3 begin: b\n    2\n    // lab 3 end\n}\n";

    fn names(text: &str, lab: u32) -> Vec<(String, Range<usize>, String)> {
        let found = find(text, lab, Path::new("x.rs")).expect("they pair");
        found.into_iter().map(|r| (r.name, r.lines, r.body)).collect()
    }

    #[test]
    fn regions_are_found_by_lab_and_name() {
        assert_eq!(names(TEXT, 2), [("a".into(), 3..4, "    1\n".into())]);
        assert_eq!(names(TEXT, 3), [("b".into(), 8..9, "    2\n".into())]);
        assert_eq!(names(TEXT, 4), []);
    }

    #[test]
    fn a_body_is_replaced_and_indented_and_the_rest_stays() {
        let bodies = Bodies::from([("a".into(), "\nif true {\n\n    3\n}\n".into())]);
        let new = replace(TEXT, 2, &bodies);
        assert_eq!(names(&new, 2)[0].2, "    if true {\n\n        3\n    }\n");
        assert_eq!(names(&new, 3)[0].2, "    2\n");
        let own: Bodies = names(TEXT, 2).into_iter().map(|(n, _, b)| (n, b)).collect();
        assert_eq!(replace(&new, 2, &own), TEXT, "and back");
    }

    #[test]
    fn markers_that_do_not_pair_are_named_with_their_line() {
        let said = |text: &str| find(text, 2, Path::new("x.rs")).expect_err("odd").to_string();
        assert_eq!(said("// lab 2 end\n"), "x.rs:1: an end marker of lab 2 without a begin");
        assert_eq!(said("// lab 2 begin: a\n"), "x.rs: region a of lab 2 has no end");
        assert!(said("// lab 2 begin: a\n// lab 2 begin: b\n").starts_with("x.rs:2: region a"));
    }

    #[test]
    fn a_file_of_bodies_has_a_head_and_regions() {
        let (head, bodies) = read_bodies("// loses: x\n// region: a\n// region: b\n2\n3\n");
        assert_eq!(head, "// loses: x\n");
        let wanted = [("a".into(), String::new()), ("b".into(), "2\n3\n".into())];
        assert_eq!(bodies, Bodies::from(wanted), "an empty body is a body");
    }

    #[test]
    fn line_ends_and_byte_order_marks_of_windows_make_no_difference() {
        let windows = format!("\u{feff}{}", TEXT.replace('\n', "\r\n"));
        assert_eq!(names(&windows, 2), names(TEXT, 2));
        let first = "\u{feff}// lab 2 begin: a\r\n1\r\n// lab 2 end\r\n";
        assert_eq!(names(first, 2), [("a".into(), 2..3, "1\n".into())]);
    }

    #[test]
    fn links_and_what_is_no_text_are_not_read() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let (answer, theirs) = (dir.path().join("answer"), dir.path().join("theirs"));
        let run = theirs.join("kernel/run");
        fs::create_dir_all(&answer).expect("a folder");
        fs::create_dir_all(&run).expect("a folder");
        fs::write(answer.join("a.rs"), TEXT).expect("a file");
        symlink(answer.join("a.rs"), run.join("a.rs")).expect("a link to a file");
        symlink(&answer, run.join("answer")).expect("a link to a folder");
        symlink(&run, run.join("again")).expect("a loop");
        let made = std::process::Command::new("mkfifo").arg(run.join("pipe.rs")).status();
        assert!(made.expect("mkfifo").success());
        assert_eq!(find_all(&theirs, 2).expect("nothing is there"), []);
        let linked = dir.path().join("linked");
        fs::create_dir(&linked).expect("a folder");
        symlink(theirs.join("kernel"), linked.join("kernel")).expect("a link");
        assert_eq!(find_all(&linked, 2).expect("nothing is there"), []);

        let said = || find_all(&theirs, 2).expect_err("no text").to_string();
        fs::write(run.join("b.rs"), b"// caf\xe9\n").expect("a file");
        assert!(said().contains("b.rs: is not UTF-8"), "{}", said());
        let large = fs::File::create(run.join("b.rs")).expect("a file");
        large.set_len(1 << 40).expect("a sparse file");
        assert!(said().contains("too many for a source file"), "{}", said());
    }
}
