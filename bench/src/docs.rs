//! The page: tables and picture of `docs/benchmarks.md`, of what was measured.
//!
//! What stands between the two marks is replaced; the rest is written by hand.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::budgets::{Budgets, Unit};
use crate::origin::Origins;
use crate::results::Results;
use crate::{chart, curves, show};

const BEGIN: &str = "<!-- figures: written by make bench-docs -->\n";
const END: &str = "<!-- end of the figures -->\n";

/// Puts the figures into the page.
pub fn write(budgets: &Budgets, results: &Results) -> Result<()> {
    let path = boot::root().join("docs/benchmarks.md");
    let page = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let page = replace(&page, &figures(budgets, results))?;
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    chart::write(budgets, results, &path.with_extension("svg"))?;
    curves::write(results, &path.with_file_name("growth.svg"))
}

fn replace(page: &str, figures: &str) -> Result<String> {
    match (page.split_once(BEGIN), page.split_once(END)) {
        (Some((before, _)), Some((_, after))) => {
            Ok(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
        }
        _ => bail!("the page has lost the marks between which the figures stand"),
    }
}

/// Above each table stands when and with what it was measured: a run may be of a
/// part only.
fn figures(budgets: &Budgets, results: &Results) -> String {
    let operations = Origins::counted(budgets, results, &[Unit::Cost, Unit::Bytes]);
    let mut text = format!(
        "### What each row is\n\n{}\n\
         ### Instructions per operation, one CPU\n\n{}\n\n{}",
        show::meanings(budgets).to_markdown(),
        operations.sentence(),
        show::counted(budgets, results).to_markdown(),
    );
    let wide = show::wide(budgets, results);
    if !wide.lines.is_empty() {
        text += &format!(
            "\n### Instructions per operation by the number of CPUs that work\n\n\
             What all CPUs execute together, in short turns; what a halted CPU does not execute \
             is not counted.\n\n{}",
            wide.to_markdown()
        );
    }
    let others = show::others(budgets, results);
    if !others.lines.is_empty() {
        let origins = Origins::counted(budgets, results, &[Unit::Nanoseconds, Unit::Share]);
        text += &format!(
            "\n### Lateness and shares, in virtual time\n\n\
             {} Two figures: the two runs differ.\n\n{}",
            origins.sentence(),
            others.to_markdown()
        );
    }
    text += &growth(results);
    text += &times(budgets, results);
    text + &losses(budgets, results)
}

fn growth(results: &Results) -> String {
    let mut text = String::new();
    for (of, what) in [("gs", "waiting Gs"), ("ps", "Ps")] {
        let table = show::grown(results, of);
        if !table.lines.is_empty() {
            let (table, origin) = (table.to_markdown(), Origins::grown(results, &[of]).sentence());
            text += &format!(
                "\n### Instructions per operation by the number of {what}\n\n{origin}\n\n{table}"
            );
        }
    }
    if !text.is_empty() {
        text += "\n![How the cost of an operation grows](growth.svg)\n";
    }
    text
}

fn times(budgets: &Budgets, results: &Results) -> String {
    let mut text = String::new();
    for cpus in 1..=256 {
        let table = show::timed(budgets, results, cpus);
        if !table.lines.is_empty() {
            let plural = if cpus == 1 { "CPU" } else { "CPUs" };
            text += &format!(
                "\n### Time per operation, {cpus} {plural}\n\n{} Samples of each: {}.\n\n{}",
                Origins::timed(budgets, results, cpus).sentence(),
                samples(budgets, results, cpus),
                table.to_markdown()
            );
        }
    }
    text
}

/// How many there are of each row, or from how many to how many.
fn samples(budgets: &Budgets, results: &Results, cpus: u32) -> String {
    let many = budgets.rows.iter().map(|row| results.timed("ours", &row.name, cpus).len());
    let many: BTreeSet<usize> = many.filter(|&many| many > 0).collect();
    match (many.first(), many.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.copied().unwrap_or(0).to_string(),
    }
}

/// By the figures; the reasons are written down with the budgets.
fn losses(budgets: &Budgets, results: &Results) -> String {
    let mut text = "\n### Where we lose, and why\n\n".to_string();
    for (row, said) in show::losses(budgets, results) {
        let why = row.why.as_deref().unwrap_or("Why is not known yet.");
        text += &format!("- **{}**: {said}. {why}\n", row.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_comes_with_its_reason() {
        let text = "[[row]]\nname='a'\nwhat='x'\nbudget=9\nwhy='So.'\n[[row]]\nname='b'\nwhat='y'";
        let budgets = Budgets::parse(text).expect("good");
        let mut results = Results::default();
        for row in ["a", "b"] {
            results.set_counted("ours", row, 18.0, 18.0);
            results.set_counted("go", row, 17.0, 17.0);
        }
        let text = losses(&budgets, &results);
        assert!(text.contains("- **a**: over by 100 %; worse than Go. So.\n"), "{text}");
        assert!(text.contains("- **b**: worse than Go. Why is not known yet.\n"), "{text}");
    }

    #[test]
    fn each_table_says_when_it_was_measured() {
        let text = "[[row]]\nname='a'\nwhat='x'\n[[row]]\nname='s'\nwhat='y'\nunit='share'";
        let budgets = Budgets::parse(text).expect("good");
        let mut results = Results::default();
        let begin = |day: &str, results: &mut Results| {
            results.begin(day, &[("date", day.into()), ("commit", "c".into())]);
        };
        begin("monday", &mut results);
        results.set_counted("ours", "a", 1.0, 1.0);
        begin("tuesday", &mut results);
        results.set_counted("ours", "s", 900.0, 900.0);
        begin("wednesday", &mut results);
        results.set_grown("gs", 10, "ours", "yield", 1.0);
        begin("thursday", &mut results);
        results.set_timed("ours", "a", 4, &[1.0, 2.0]);
        results.set_timed("ours", "s", 4, &[1.0]);
        let text = figures(&budgets, &results);
        for (head, said) in [
            ("### Instructions per operation, one CPU", "Measured monday at c."),
            ("### Lateness and shares, in virtual time", "Measured tuesday at c. Two figures"),
            ("### Instructions per operation by the number of waiting Gs", "Measured wednesday"),
            ("### Time per operation, 4 CPUs", "Measured thursday at c. Samples of each: 1 to 2."),
        ] {
            assert!(text.contains(&format!("{head}\n\n{said}")), "{head}: {text}");
        }
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let new = replace(&page, "new\n").expect("it has its marks");
        assert_eq!(new, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(replace(&new, "new\n").expect("they are still there"), new);
        assert!(replace("no marks", "new").is_err());
    }
}
