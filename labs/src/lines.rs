//! Lines of the graded tree as those of the student's files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::region::Region;

/// Where a student's lines are: for messages.
pub struct Lines {
    /// The regions in the tree that is graded, with the first line in the student's file.
    regions: Vec<(Region, usize)>,
    /// The files that the regions are in, as graded.
    files: Vec<(String, String)>,
}

impl Lines {
    /// Of a tree, and of these regions in it.
    pub fn new(tree: &Path, regions: Vec<(Region, usize)>) -> Self {
        let mut names: Vec<&PathBuf> = regions.iter().map(|(region, _)| &region.file).collect();
        names.dedup();
        let read = |file: &&PathBuf| fs::read_to_string(tree.join(file)).unwrap_or_default();
        let files = names.iter().map(|file| (file.to_string_lossy().into_owned(), read(file)));
        let files = files.collect();
        Lines { regions, files }
    }

    /// The line in the student's file, if the line of the graded file is in a region.
    pub fn theirs(&self, file: &str, line: usize) -> Option<usize> {
        let found = self.regions.iter().find(|(region, _)| {
            region.file.to_string_lossy().ends_with(file) && region.lines.contains(&line)
        });
        found.map(|(region, first)| line - region.lines.start + first)
    }

    /// The text of a line of the graded file, if a region is in that file.
    pub fn text(&self, file: &str, line: usize) -> Option<&str> {
        let (_, text) = self.files.iter().find(|(name, _)| name.ends_with(&format!("/{file}")))?;
        text.lines().nth(line.checked_sub(1)?).map(str::trim)
    }

    /// A message with `file:line` as in the student's file.
    pub fn translate(&self, text: &str) -> String {
        let mut out = String::new();
        for line in text.lines() {
            out.push_str(&self.translate_line(line));
            out.push('\n');
        }
        out
    }

    fn translate_line(&self, line: &str) -> String {
        for (region, _) in &self.regions {
            let file = region.file.to_string_lossy();
            let Some((before, after)) = line.split_once(&*format!("{file}:")) else { continue };
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            let theirs = digits.parse().ok().and_then(|number| self.theirs(&file, number));
            if let Some(theirs) = theirs {
                return format!("{before}{file}:{theirs}{}", &after[digits.len()..]);
            }
        }
        line.into()
    }
}
