//! The page: tables and picture of `docs/benchmarks.md`, of what was measured.
//!
//! What stands between the two marks is replaced; the rest is written by hand.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::budgets::Budgets;
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

fn figures(budgets: &Budgets, results: &Results) -> String {
    let [date, commit, qemu, rustc, linux, go] =
        ["date", "commit", "qemu", "rustc", "linux", "go"].map(|key| results.noted(key));
    let go = go.trim_start_matches("go");
    let mut text = format!(
        "Measured {date} at {commit}: {qemu}; {rustc}; Go {go} on Linux {linux}.\n\n\
         ### What each row is\n\n{}\n\
         ### Instructions per operation, one CPU\n\n{}",
        show::meanings(budgets).to_markdown(),
        show::counted(budgets, results).to_markdown(),
    );
    let others = show::others(budgets, results);
    if !others.lines.is_empty() {
        text += &format!(
            "\n### Lateness and shares, in virtual time\n\n{}. Two figures: the two runs differ.\n\n{}",
            results.noted("newer_qemu"),
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
            let table = table.to_markdown();
            text += &format!("\n### Instructions per operation by the number of {what}\n\n{table}");
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
            let samples = |name: &str| results.timed("ours", name, cpus).len();
            let samples = budgets.rows.iter().map(|row| samples(&row.name)).max();
            text += &format!(
                "\n### Time per operation, {cpus} {plural}\n\nSamples of each: {}.\n\n{}",
                samples.unwrap_or(0),
                table.to_markdown()
            );
        }
    }
    text
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
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let new = replace(&page, "new\n").expect("it has its marks");
        assert_eq!(new, format!("before\n{BEGIN}\nnew\n\n{END}after\n"));
        assert_eq!(replace(&new, "new\n").expect("they are still there"), new);
        assert!(replace("no marks", "new").is_err());
    }
}
