//! `make contest`: ranks scheduling systems on workloads.
//!
//! Each file (bodies, as those in `wrong/`) or folder (a student's tree) is graded as usual. One
//! that loses a test other than that of the contest itself is not ranked: a system that loses Gs is
//! quick. The others run each workload in virtual time (`tests.rs` of the lab; a teacher's folder
//! adds hidden ones), and are compared with first come, first served, which has 100 points.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::grade::{Effort, Grader, Report};
use crate::handout;
use crate::lab::Lab;
use crate::region;
use crate::report::name_of;

/// What a system made of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Students do not see it.
    pub is_hidden: bool,
    /// The name of the workload.
    pub workload: String,
    /// 100 is as good as first come, first served.
    pub points: f64,
    /// Throughput, the 99th of 100 waits in µs, fairness, halts: as printed.
    pub figures: [String; 4],
}

impl Row {
    /// That of a line of the lab's test `contest`.
    pub fn parse(line: &str) -> Option<Row> {
        // The first one comes behind the test's name.
        let (_, words) = line.split_once("CONTEST ")?;
        let words: Vec<&str> = words.split(' ').collect();
        let [kind, workload, points, figures @ ..] = &words[..] else { return None };
        Some(Row {
            is_hidden: *kind == "hidden",
            workload: workload.to_string(),
            points: points.parse().ok()?,
            figures: figures.iter().map(ToString::to_string).collect::<Vec<_>>().try_into().ok()?,
        })
    }
}

/// The mean of the points.
pub fn mean(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.points).sum::<f64>() / rows.len().max(1) as f64
}

/// A table of what a student may see.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "workload     points  throughput  99 of 100 waits  fairness   halts   (first come: 100)\n",
    );
    for row in rows.iter().filter(|row| !row.is_hidden) {
        let [throughput, p99, fairness, halts] = &row.figures;
        let _ = writeln!(
            out,
            "{:<12} {:>6.1} {throughput:>11} {p99:>13} µs {fairness:>9} {halts:>7}",
            row.workload, row.points
        );
    }
    out
}

/// Ranks all in `dir`; the best first, and then those that are not ranked, with the reason.
///
/// # Errors
/// Nothing is in `dir`, or the lab has no contest.
pub fn run(grader: &Grader, lab: &Lab, dir: &Path) -> Result<String> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let is_file = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "rs");
    paths.retain(|path| region::is_dir(path) || is_file(path));
    paths.sort();
    if paths.is_empty() {
        bail!("{} has neither files nor folders of systems", dir.display());
    }
    let (mut ranked, mut others) = (Vec::new(), Vec::new());
    for path in &paths {
        let name = name_of(path);
        match graded(grader, lab, path) {
            Ok(report) if report.contest.is_empty() => others.push((name, reason(&report))),
            Ok(report) => ranked.push((name, report.contest)),
            Err(error) => others.push((name, format!("{error:#}"))),
        }
    }
    ranked.sort_by(|(_, a), (_, b)| mean(b).total_cmp(&mean(a)));
    let first = ranked.first().map(|(_, rows)| rows.clone()).unwrap_or_default();
    let heads: Vec<String> = first.iter().map(|row| format!("{:>10}", row.workload)).collect();
    let mut out = format!("{:>4} {:<24} {:>7}{}\n", "", "system", "points", heads.join(""));
    for (i, (name, rows)) in ranked.iter().enumerate() {
        let points: Vec<String> = rows.iter().map(|row| format!("{:>10.1}", row.points)).collect();
        let _ = writeln!(out, "{:>3}. {name:<24} {:>7.1}{}", i + 1, mean(rows), points.join(""));
    }
    for (name, why) in others {
        let _ = writeln!(out, "   - {name:<24} not ranked: {why}");
    }
    Ok(out)
}

fn graded(grader: &Grader, lab: &Lab, path: &Path) -> Result<Report> {
    if region::is_dir(path) {
        return grader.grade_tree(lab, &handout::top_of(path), Effort::default());
    }
    let text = region::read(path)?;
    let (_, bodies) = region::read_bodies(&text);
    grader.grade_bodies(lab, &bodies, Effort::default())
}

fn reason(report: &Report) -> String {
    match &report.refused {
        Some(said) => said.lines().next().unwrap_or_default().into(),
        None => format!("it loses {}", report.lost().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_contest_is_a_row_and_others_are_not() {
        let row = Row::parse("CONTEST hidden crowd 131.5 0.9912 4200 0.970 12").expect("a row");
        assert_eq!((row.is_hidden, &*row.workload, row.points), (true, "crowd", 131.5));
        assert_eq!(row.figures, ["0.9912", "4200", "0.970", "12"]);
        assert!(!table(&[row]).contains("crowd"), "it is hidden");
        for line in ["CONTEST public x", "CONTEST public x y 1 2 3 4", "test contest ... ok", ""] {
            assert_eq!(Row::parse(line), None, "{line:?}");
        }
    }
}
