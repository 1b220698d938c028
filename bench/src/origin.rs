//! When and with what the figures were measured: noted by a run, said of a table.
//!
//! Runs measure parts, so the figures of one table may be of several. Its sentence
//! names the run that most of them are of, then each other with what is of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use boot::host::Qemu;

use crate::budgets::{Budgets, Unit};
use crate::counted::GROWN;
use crate::results::Results;
use crate::{linux, machine};

/// Whose figures there are.
const SYSTEMS: [&str; 2] = ["ours", "go"];

/// Figures of one table, and the run that each is of.
pub struct Origins<'a> {
    results: &'a Results,
    figures: Vec<Figure<'a>>,
    /// Whether some of its machines have several CPUs whose instructions count.
    is_wide: bool,
}

struct Figure<'a> {
    row: &'a str,
    who: &'static str,
    /// Empty if not known.
    run: &'a str,
}

/// Starts a run in the results and notes what it measures with. `is_wide` is for
/// counting on several CPUs, which takes another QEMU.
pub fn begin(results: &mut Results, is_wide: bool) {
    let (linux, go) = linux::versions();
    let mut notes = vec![("linux", linux), ("go", go)];
    let qemu = Qemu::installed().binary.display().to_string();
    let newer = is_wide.then(|| machine::newest_qemu().display().to_string());
    let newer = newer.filter(|newer| *newer != qemu);
    let mut commands: Vec<(&str, &str, &[&str])> = vec![
        ("qemu", &qemu, &["--version"]),
        ("rustc", "rustc", &["--version"]),
        ("commit", "git", &["describe", "--always", "--dirty"]),
        ("date", "date", &["-u", "+%Y-%m-%d"]),
    ];
    commands.extend(newer.as_deref().map(|newer| ("newer_qemu", newer, &["--version"][..])));
    for (key, program, args) in commands {
        let output = Command::new(program).args(args).current_dir(boot::root()).output();
        let Ok(output) = output else { continue };
        let text = String::from_utf8_lossy(&output.stdout);
        notes.push((key, text.lines().next().unwrap_or_default().to_string()));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    results.begin(&format!("{}-{}", since.as_secs(), std::process::id()), &notes);
}

impl<'a> Origins<'a> {
    /// Of what is counted in that unit, or in one of those.
    pub fn counted(budgets: &'a Budgets, results: &'a Results, units: &[Unit]) -> Self {
        let mut figures = Vec::new();
        for row in budgets.rows.iter().filter(|row| units.contains(&row.unit)) {
            for who in SYSTEMS.into_iter().filter(|who| results.counted(who, &row.name).is_some()) {
                let run = results.counted_in(who, &row.name).unwrap_or_default();
                figures.push(Figure { row: &row.name, who, run });
            }
        }
        Self { results, figures, is_wide: units.contains(&Unit::Share) }
    }

    /// Of how cost grows with the number of something, or of each of some things.
    pub fn grown(results: &'a Results, things: &[&str]) -> Self {
        let mut figures = Vec::new();
        let all = things.iter().flat_map(|of| GROWN.map(|row| (of, row)));
        for ((of, row), who) in all.flat_map(|place| SYSTEMS.map(|who| (place, who))) {
            for (many, _) in results.grown(of, who, row) {
                let run = results.grown_in(of, many, who, row).unwrap_or_default();
                figures.push(Figure { row, who, run });
            }
        }
        Self { results, figures, is_wide: things.contains(&"ps") }
    }

    /// Of times on so many CPUs.
    pub fn timed(budgets: &'a Budgets, results: &'a Results, cpus: u32) -> Self {
        let mut figures = Vec::new();
        for row in &budgets.rows {
            let is_there = |who: &&str| !results.timed(who, &row.name, cpus).is_empty();
            for who in SYSTEMS.into_iter().filter(is_there) {
                let run = results.timed_in(who, &row.name, cpus).unwrap_or_default();
                figures.push(Figure { row: &row.name, who, run });
            }
        }
        Self { results, figures, is_wide: false }
    }

    /// The sentence above a table; empty if there is nothing.
    pub fn sentence(&self) -> String {
        let mut runs: BTreeMap<&str, Vec<&Figure<'_>>> = BTreeMap::new();
        for figure in &self.figures {
            runs.entry(figure.run).or_default().push(figure);
        }
        let mut runs: Vec<_> = runs.into_iter().collect();
        runs.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.len()));
        let mut text = String::new();
        for (i, (run, figures)) in runs.iter().enumerate() {
            let about = self.about(run, figures);
            text += &match i {
                0 => format!("Measured {about}."),
                _ => format!(" But {}: {about}.", self.names(figures)),
            };
        }
        text
    }

    /// In a few words, for a picture: the day and the commit, of the first run and
    /// the last if there are several.
    pub fn short(&self) -> String {
        let when = |figure: &Figure<'_>| {
            let noted = |key| self.results.noted(figure.run, key).unwrap_or("unknown");
            format!("{} · {}", noted("date"), noted("commit"))
        };
        let all: BTreeSet<String> = self.figures.iter().map(when).collect();
        match (all.first(), all.last()) {
            (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
            (first, _) => first.cloned().unwrap_or_default(),
        }
    }

    /// The run in words; versions of what had a part in these figures.
    fn about(&self, run: &str, figures: &[&Figure<'_>]) -> String {
        let noted = |key| self.results.noted(run, key);
        let Some(date) = noted("date") else { return "on an unknown day".into() };
        let mut text = format!("{date} at {}", noted("commit").unwrap_or("an unknown commit"));
        let mut parts: Vec<String> = noted("qemu").map(String::from).into_iter().collect();
        if let Some(newer) = noted("newer_qemu").filter(|_| self.is_wide) {
            parts.push(format!("on several CPUs {newer}"));
        }
        let is_of = |who: &str| figures.iter().any(|figure| figure.who == who);
        parts.extend(noted("rustc").filter(|_| is_of("ours")).map(String::from));
        if let (Some(go), Some(linux), true) = (noted("go"), noted("linux"), is_of("go")) {
            parts.push(format!("Go {} on Linux {linux}", go.trim_start_matches("go")));
        }
        if !parts.is_empty() {
            text += &format!(": {}", parts.join("; "));
        }
        text
    }

    /// Which figures these are: all of a system's, or by name.
    fn names(&self, figures: &[&Figure<'_>]) -> String {
        let mut names = Vec::new();
        for (who, whose) in [("ours", "ours"), ("go", "Go's")] {
            let all = self.figures.iter().filter(|figure| figure.who == who).count();
            let mut rows: Vec<&str> = figures
                .iter()
                .filter(|figure| figure.who == who)
                .map(|figure| figure.row)
                .collect();
            let is_all = rows.len() == all;
            rows.dedup();
            match rows.as_slice() {
                [] => {}
                _ if is_all => names.push(whose.to_string()),
                rows => names.push(format!("{whose} of {}", rows.join(", "))),
            }
        }
        names.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[[row]]\nname='a'\nwhat='x'\n[[row]]\nname='b'\nwhat='y'";

    fn note(results: &mut Results, run: &str) {
        let notes = [("date", "d"), ("commit", "c"), ("qemu", "Q"), ("rustc", "R"), ("go", "go1")];
        let mut notes: Vec<_> = notes.map(|(key, value)| (key, value.to_string())).to_vec();
        notes.push(("newer_qemu", "N".into()));
        notes.push(("linux", "6".into()));
        notes[0].1 += run;
        notes[1].1 += run;
        results.begin(run, &notes);
    }

    fn counted(results: &Results) -> String {
        let budgets = Budgets::parse(TEXT).expect("good");
        Origins::counted(&budgets, results, &[Unit::Cost]).sentence()
    }

    #[test]
    fn figures_of_one_run_have_one_origin() {
        let mut results = Results::default();
        note(&mut results, "1");
        results.set_counted("ours", "a", 1.0, 1.0);
        assert_eq!(counted(&results), "Measured d1 at c1: Q; R.");
        results.set_counted("go", "a", 1.0, 1.0);
        assert_eq!(counted(&results), "Measured d1 at c1: Q; R; Go 1 on Linux 6.");
        assert_eq!(counted(&Results::default()), "");
    }

    #[test]
    fn a_later_run_of_a_part_is_said_of_that_part_alone() {
        let mut results = Results::default();
        note(&mut results, "1");
        for row in ["a", "b"] {
            results.set_counted("ours", row, 1.0, 1.0);
            results.set_counted("go", row, 1.0, 1.0);
        }
        note(&mut results, "2");
        results.set_counted("ours", "b", 1.0, 1.0);
        let old = "Measured d1 at c1: Q; R; Go 1 on Linux 6.";
        assert_eq!(counted(&results), format!("{old} But ours of b: d2 at c2: Q; R."));
        results.set_counted("ours", "a", 1.0, 1.0);
        assert!(counted(&results).contains("ours: d2 at c2"), "{}", counted(&results));
    }

    #[test]
    fn a_run_that_measures_nothing_changes_nothing() {
        let mut results = Results::default();
        note(&mut results, "1");
        results.set_counted("ours", "a", 1.0, 1.0);
        let before = counted(&results);
        note(&mut results, "2");
        assert_eq!(counted(&results), before);
    }

    #[test]
    fn what_was_kept_before_runs_were_noted_says_so() {
        let mut results = Results::default();
        results.set_counted("ours", "a", 1.0, 1.0);
        assert_eq!(counted(&results), "Measured on an unknown day.");
    }

    #[test]
    fn the_newer_qemu_is_named_where_it_is_used() {
        let mut results = Results::default();
        note(&mut results, "1");
        results.set_grown("ps", 8, "ours", "yield", 1.0);
        results.set_grown("gs", 10, "ours", "yield", 1.0);
        assert_eq!(
            Origins::grown(&results, &["ps"]).sentence(),
            "Measured d1 at c1: Q; on several CPUs N; R."
        );
        assert_eq!(Origins::grown(&results, &["gs"]).sentence(), "Measured d1 at c1: Q; R.");
    }

    #[test]
    fn times_have_an_origin_for_each_number_of_cpus() {
        let budgets = Budgets::parse(TEXT).expect("good");
        let mut results = Results::default();
        for (run, cpus) in [("1", 2), ("2", 4)] {
            note(&mut results, run);
            results.set_timed("ours", "a", cpus, &[1.0]);
        }
        let sentence = |cpus| Origins::timed(&budgets, &results, cpus).sentence();
        assert_eq!(sentence(2), "Measured d1 at c1: Q; R.");
        assert_eq!(sentence(4), "Measured d2 at c2: Q; R.");
    }

    #[test]
    fn a_picture_names_the_first_run_and_the_last() {
        let budgets = Budgets::parse(TEXT).expect("good");
        let mut results = Results::default();
        let short = |results: &Results| Origins::counted(&budgets, results, &[Unit::Cost]).short();
        note(&mut results, "1");
        results.set_counted("ours", "a", 1.0, 1.0);
        assert_eq!(short(&results), "d1 · c1");
        note(&mut results, "2");
        results.set_counted("ours", "b", 1.0, 1.0);
        assert_eq!(short(&results), "d1 · c1 to d2 · c2");
    }
}
