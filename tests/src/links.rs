//! Links between the pages, held: the file of each is there, and so is the heading that it leads to.
//!
//! All Markdown files of the tree are read, without what git ignores and what is built.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The page without its fenced blocks, in which nothing is a link or a heading.
pub fn prose(page: &str) -> String {
    let mut is_in = false;
    let kept = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_in ^= is_fence;
        !is_in && !is_fence
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// The targets of the links in a text.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The headings of a page, as links name them.
fn anchors(page: &str) -> BTreeSet<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    headings.map(|line| slug(line.trim_matches(['#', ' ']))).collect()
}

/// What is wrong with a link of the page at `from`.
pub fn wrong_link(from: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let to = if file.is_empty() { from.into() } else { from.with_file_name("").join(file) };
    if !to.exists() {
        return Some(format!("a link to {link}, which is not there"));
    }
    let is_there = || anchors(&fs::read_to_string(&to).unwrap_or_default()).contains(anchor);
    (!anchor.is_empty() && !is_there()).then(|| format!("a link to {link}: no such heading"))
}

/// The Markdown files below `dir`.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_source = name != "target" && !name.to_string_lossy().starts_with('.');
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && is_source => found.extend(pages(&path)),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|ext| ext == "md") => {
                found.push(path);
            }
            _ => {}
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(root: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        for page in pages(root) {
            let text = prose(&fs::read_to_string(&page).expect("a page of ours"));
            let name = page.strip_prefix(root).unwrap_or(&page).display();
            let of_page = links(&text).filter_map(|link| wrong_link(&page, link));
            wrong.extend(of_page.map(|why| format!("{name}: {why}")));
        }
        wrong
    }

    #[test]
    fn all_links_lead_somewhere() {
        let root = boot::root();
        let read = pages(&root);
        for known in ["README.md", "docs/seeds.md", "book/src/05-stealing.md", "labs/README.md"] {
            assert!(read.contains(&root.join(known)), "{known} was not read");
        }
        let wrong = wrong(&root);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A reader of a chapter finds the lab, and a student in a lab the chapter.
    #[test]
    fn chapters_and_labs_lead_to_each_other() {
        let root = boot::root();
        let read = |page: &Path| fs::read_to_string(page).unwrap_or_default();
        let chapters = pages(&root.join("book/src"));
        let labs: Vec<PathBuf> = pages(&root.join("labs"))
            .into_iter()
            .filter(|page| page.with_file_name("lab.toml").is_file())
            .filter(|page| !page.with_file_name("").ends_with("variant"))
            .collect();
        assert!(labs.len() >= 8, "{} labs", labs.len());
        for lab in labs {
            let text = read(&lab);
            let leads = |from: &Path, text: &str, to: &Path| {
                let to = to.canonicalize().expect("a page that was found");
                let mut leads = links(text).map(|link| from.with_file_name("").join(link));
                leads.any(|link| link.canonicalize().is_ok_and(|link| link == to))
            };
            let both = |chapter: &&PathBuf| {
                leads(chapter, &read(chapter), &lab) && leads(&lab, &text, chapter)
            };
            assert!(chapters.iter().any(|chapter| both(&chapter)), "{}", lab.display());
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let write = |name: &str, text: &str| {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        };
        write("a/right.md", "# One\n\n## Two, and more\n\n[x](../b.md#one) [y](#two-and-more)\n");
        write(
            "b.md",
            "# One\n```sh\n# Two\n[x](none.md)\n```\n[x](a) [y](https://rust-lang.org)\n",
        );
        write("target/c.md", "[x](none.md)\n");
        assert_eq!(wrong(dir.path()), [""; 0]);
        write("d.md", "[x](b.md#two) [y](none.md)\n");
        let said = wrong(dir.path()).join("\n");
        assert!(said.contains("d.md: a link to b.md#two: no such heading"), "{said}");
        assert!(said.contains("d.md: a link to none.md, which is not there"), "{said}");
    }
}
