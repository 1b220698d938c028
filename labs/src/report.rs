//! A verdict on the terminal, as Gradescope's JSON, and as a row of a table.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use tool::tree::shown;

use crate::contest;
use crate::grade::Report;
use crate::lab::Lab;

/// What a student reads. `hint`: how many hints of a lost test are shown.
pub fn text(report: &Report, hint: usize) -> String {
    let mut out = format!("Lab {}: {}\n", report.lab, report.title);
    let width = report.tests.iter().map(|graded| graded.test.name.len()).max().unwrap_or(0);
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    if let Some(said) = &report.refused {
        out.push_str("\nThe solution was not run:\n");
        out.push_str(&indented(said));
        out.push('\n');
    }
    for graded in &report.tests {
        let test = &graded.test;
        let word = match &graded.waits_for {
            Some(_) => "-   ",
            None if graded.losses.is_empty() => "ok  ",
            None => "FAIL",
        };
        let _ = writeln!(
            out,
            "{word} {:>3}/{:<3} {:<width$}  {}",
            graded.score(),
            test.points,
            test.name,
            test.says
        );
        if let Some(other) = &graded.waits_for {
            let _ =
                writeln!(out, "    not judged before {other} is passed: it would find the same");
        }
        if graded.losses.is_empty() || report.refused.is_some() {
            continue;
        }
        for loss in &graded.losses {
            let _ = writeln!(out, "    {}:", loss.by);
            out.push_str(&indented(&loss.text));
            if let Some(page) = &loss.page {
                let _ = writeln!(out, "      {}", shown(page));
            }
        }
        for said in test.hints.iter().take(hint).skip(hint.saturating_sub(1)) {
            let _ = writeln!(out, "    hint: {said}");
        }
        if test.hints.len() > hint {
            let _ = writeln!(out, "    (HINT={} for the next hint)", hint + 1);
        }
    }
    if !report.contest.is_empty() {
        out.push_str(&contest::table(&report.contest));
    }
    let took: Vec<String> = report
        .took
        .iter()
        .map(|(stage, time)| format!("{stage} {:.1} s", time.as_secs_f64()))
        .collect();
    if !took.is_empty() {
        let all = report.took().as_secs_f64();
        let _ = writeln!(out, "{}; {all:.1} s in all", took.join(", "));
    }
    let (score, of) = report.score();
    let _ = writeln!(out, "Score: {score}/{of}");
    out
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("      {line}\n")).collect()
}

/// Gradescope's `results.json`.
pub fn json(report: &Report) -> Value {
    let (score, _) = report.score();
    let tests: Vec<Value> = report
        .tests
        .iter()
        .map(|graded| {
            let mut output: Vec<String> =
                graded.losses.iter().map(|loss| format!("{}:\n{}", loss.by, loss.text)).collect();
            let waits = graded.waits_for.as_ref();
            output.extend(waits.map(|other| format!("not judged before {other} is passed")));
            let passed = graded.is_passed();
            json!({
                "name": format!("{}: {}", graded.test.name, graded.test.says),
                "extra_data": { "test": graded.test.name },
                "score": graded.score(),
                "max_score": graded.test.points,
                "status": if passed { "passed" } else { "failed" },
                "output": output.join("\n\n"),
                "visibility": if graded.test.hidden { "hidden" } else { "visible" },
            })
        })
        .collect();
    json!({
        "score": score,
        "output": report.refused.clone().unwrap_or_default(),
        "execution_time": report.took().as_secs_f64(),
        "visibility": "visible",
        "tests": tests,
    })
}

/// The head of the table of all submissions.
pub fn csv_head(tests: &[&str]) -> String {
    format!("submission,score,of,{},note\n", tests.join(","))
}

/// A row of it.
pub fn csv_row(name: &str, report: &Report) -> String {
    let (score, of) = report.score();
    let points: Vec<String> =
        report.tests.iter().map(|graded| graded.score().to_string()).collect();
    let note = report.refused.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
    format!("{},{score},{of},{},{}\n", field(name), points.join(","), field(note))
}

/// The row of a submission that was not graded: no points, and why.
pub fn csv_row_of_error(name: &str, lab: &Lab, error: &str) -> String {
    let of: u32 = lab.plan.tests.iter().map(|test| test.points).sum();
    let points = vec!["0"; lab.plan.tests.len()].join(",");
    let note = format!("not graded: {}", error.lines().next().unwrap_or_default());
    format!("{},0,{of},{points},{}\n", field(name), field(&note))
}

/// A field of a CSV file.
fn field(text: &str) -> String {
    // A sheet takes a field that begins so for a formula.
    let text =
        if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.into() };
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// The name of a submission's folder.
pub fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grade::{Graded, Loss};
    use crate::lab::Test;

    fn report() -> Report {
        let test = |name: &str, points, lost: bool| {
            let hints = vec!["first".into(), "second".into()];
            let test = Test {
                name: name.into(),
                points,
                says: "it holds".into(),
                hints,
                ..Test::default()
            };
            let loss = Loss { by: "host test f".into(), text: "panicked".into(), page: None };
            Graded { test, losses: if lost { vec![loss] } else { vec![] }, waits_for: None }
        };
        Report {
            lab: 2,
            title: "The ring".into(),
            tests: vec![test("order", 70, false), test("claim", 30, true)],
            refused: None,
            notes: vec![],
            contest: vec![],
            took: vec![],
        }
    }

    #[test]
    fn a_lost_test_has_its_cause_and_one_hint() {
        let said = text(&report(), 1);
        assert!(said.contains("ok    70/70  order  it holds\n"), "{said}");
        assert!(
            said.contains("FAIL   0/30  claim  it holds\n    host test f:\n      panicked\n"),
            "{said}"
        );
        assert!(said.contains("hint: first\n    (HINT=2 for the next hint)\n"), "{said}");
        assert!(said.ends_with("Score: 70/100\n"), "{said}");
        let said = text(&report(), 2);
        assert!(
            said.contains("hint: second\n") && !said.contains("first") && !said.contains("HINT="),
            "{said}"
        );
    }

    #[test]
    fn json_is_gradescopes() {
        let json = json(&report());
        assert_eq!(json["score"], 70);
        assert_eq!(json["tests"][1]["max_score"], 30);
        assert_eq!(json["tests"][1]["score"], 0);
        assert_eq!(json["tests"][1]["status"], "failed");
        assert_eq!(json["tests"][0]["visibility"], "visible");
        let mut hidden = report();
        hidden.tests[0].test.hidden = true;
        assert_eq!(super::json(&hidden)["tests"][0]["visibility"], "hidden");
    }

    #[test]
    fn a_field_with_a_comma_is_quoted_and_no_field_is_a_formula() {
        assert_eq!(csv_row("a,\"b\"", &report()), "\"a,\"\"b\"\"\",70,100,70,0,\n");
        assert!(csv_row("=1+1", &report()).starts_with("'=1+1,"));
        assert_eq!(csv_head(&["order", "claim"]), "submission,score,of,order,claim,note\n");
    }
}
