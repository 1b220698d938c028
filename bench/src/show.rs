//! The tables, for a terminal and for Markdown.
//!
//! A table is made once as text in cells; the caller decides on the look.

use std::collections::BTreeSet;

use crate::budgets::{Budgets, Limit, Row, Unit, split};
use crate::counted::{GROWN, IDLE};
use crate::results::{Results, Spread};

/// Cells of text: the head, then the lines, each as long as the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The names of the columns. Figures go to the right; the first is a name.
    pub head: Vec<String>,
    /// What stands below.
    pub lines: Vec<Vec<String>>,
}

/// Instructions for each operation: ours, Go's, the ratio, the budget; then the
/// locked ones among them.
pub fn counted(budgets: &Budgets, results: &Results) -> Table {
    let head =
        ["workload", "ours", "Go", "Go ÷ ours", "budget", "aim", "locked", "Go's", "budget", ""];
    let rows = rows(budgets, results, |unit| unit == Unit::Cost || unit == Unit::Bytes);
    let lines = rows.filter(|row| !row.is_wide()).map(|row| {
        let [ours, go] = ["ours", "go"].map(|who| results.counted(who, &row.name));
        let [our_locks, go_locks] = ["ours", "go"].map(|who| results.locked(who, &row.name));
        vec![
            row.name.clone(),
            number(ours),
            number(go),
            ratio(go, ours),
            number(row.cost.budget),
            number(row.aim),
            number(our_locks),
            number(go_locks),
            number(row.locked.budget),
            remark(row, ours, go, our_locks),
        ]
    });
    Table { head: head.map(String::from).to_vec(), lines: lines.collect() }
}

/// What all CPUs together execute for an operation, by how many they are: a line for each
/// workload that is counted on several, from the figure on one.
pub fn wide(budgets: &Budgets, results: &Results) -> Table {
    let known = |name: &str| results.counted("ours", name);
    let rows = || budgets.rows.iter().filter(|row| row.is_wide() && known(&row.name).is_some());
    let cpus: BTreeSet<u32> = rows().filter_map(|row| split(&row.name).1).chain([1]).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows() {
        let base = split(&row.name).0;
        if lines.iter().any(|line| line[0] == base) {
            continue;
        }
        let on = |cpus: u32| {
            let plain = (cpus == 1).then(|| known(base)).flatten();
            known(&format!("{base}@{cpus}")).or(plain)
        };
        let over = rows().filter(|row| split(&row.name).0 == base).filter_map(|row| {
            let over = row.cost.judge(known(&row.name)).is_over();
            over.then(|| format!("over on {}", split(&row.name).1.unwrap_or(1)))
        });
        let mut line = vec![base.to_string()];
        line.extend(cpus.iter().map(|&cpus| number(on(cpus))));
        line.push(over.collect::<Vec<_>>().join(", "));
        lines.push(line);
    }
    let mut head = vec!["workload".to_string()];
    head.extend(cpus.iter().map(|cpus| number(Some((*cpus).into()))));
    head.push(String::new());
    Table { head, lines }
}

/// What one operation is, for all rows that are about operations.
pub fn meanings(budgets: &Budgets) -> Table {
    let rows = budgets.rows.iter().filter(|row| matches!(row.unit, Unit::Cost | Unit::Bytes));
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let base = split(&row.name).0;
        if !lines.iter().any(|line| line[0] == base) {
            lines.push(vec![base.to_string(), row.what.clone()]);
        }
    }
    Table { head: ["workload", "one operation"].map(String::from).to_vec(), lines }
}

/// What is about lateness and shares.
pub fn others(budgets: &Budgets, results: &Results) -> Table {
    let head = ["figure", "ours", "Go", "", "what it is"];
    let lines = rows(budgets, results, |unit| matches!(unit, Unit::Nanoseconds | Unit::Share));
    let lines = lines.map(|row| {
        let [ours, go] = ["ours", "go"].map(|who| results.counted(who, &row.name));
        let [ours_text, go_text] = ["ours", "go"].map(|who| both(row, results, who));
        let remark = if is_worse(row, ours, go) { "Go is better" } else { "" };
        vec![row.name.clone(), ours_text, go_text, remark.into(), row.what.clone()]
    });
    Table { head: head.map(String::from).to_vec(), lines: lines.collect() }
}

/// A figure of lateness or share, with that of the second run if it is another.
fn both(row: &Row, results: &Results, who: &str) -> String {
    let text = |figure: f64| match row.unit {
        Unit::Share => format!("{:.3}", figure / 1000.0),
        _ => number(Some(figure / 1000.0)),
    };
    let unit = if row.unit == Unit::Share { "" } else { " µs" };
    let Some(first) = results.counted(who, &row.name).map(text) else { return String::new() };
    match results.counted_again(who, &row.name).map(text) {
        Some(second) if second != first => format!("{first}, {second}{unit}"),
        _ => first + unit,
    }
}

fn rows<'a>(
    budgets: &'a Budgets,
    results: &'a Results,
    is_wanted: impl Fn(Unit) -> bool,
) -> impl Iterator<Item = &'a Row> {
    let is_known = |row: &&Row| results.counted("ours", &row.name).is_some();
    budgets.rows.iter().filter(is_known).filter(move |row| is_wanted(row.unit))
}

/// Nanoseconds for each operation on so many CPUs: medians, spreads, the ratio of
/// the pairs, and which is faster if that is outside the spread. Times of two runs
/// stand beside each other without a ratio.
pub fn timed(budgets: &Budgets, results: &Results, cpus: u32) -> Table {
    let head =
        ["workload", "ours, ns", "min–max", "Go, ns", "min–max", "Go ÷ ours", "min–max", "faster"];
    let mut lines = Vec::new();
    for row in budgets.rows.iter().filter(|row| row.unit == Unit::Cost) {
        let ours = results.timed("ours", &row.name, cpus);
        let go = results.timed("go", &row.name, cpus);
        if let Some(spread) = Spread::of(&ours) {
            let mut line = vec![row.name.clone(), number(Some(spread.median)), range(Some(spread))];
            let go = Spread::of(&go);
            line.extend([number(go.map(|go| go.median)), range(go)]);
            let ratio = Spread::of(&results.ratios(&row.name, cpus));
            line.push(ratio.map_or(String::new(), |r| format!("{:.2}", r.median)));
            line.push(ratio.map_or(String::new(), |r| format!("{:.2}–{:.2}", r.min, r.max)));
            let unpaired = if go.is_some() { "not in turn" } else { "" };
            line.push(ratio.map_or(unpaired, faster).to_string());
            lines.push(line);
        }
    }
    Table { head: head.map(String::from).to_vec(), lines }
}

/// Which is faster, if all pairs say the same.
fn faster(ratio: Spread) -> &'static str {
    match ratio {
        Spread { min, .. } if min > 1.0 => "ours",
        Spread { max, .. } if max < 1.0 => "Go",
        _ => "neither",
    }
}

/// The rows that are over a budget or worse than Go, and in what.
pub fn losses<'a>(budgets: &'a Budgets, results: &Results) -> Vec<(&'a Row, String)> {
    let said = |row: &Row| {
        let (ours, locked) =
            (results.counted("ours", &row.name), results.locked("ours", &row.name));
        let mut said = over(row, ours, locked);
        said.extend(behind(row, results));
        said
    };
    named(budgets, said)
}

/// The rows on which Go is ahead, and in what.
pub fn behind_go<'a>(budgets: &'a Budgets, results: &Results) -> Vec<(&'a Row, String)> {
    named(budgets, |row| behind(row, results))
}

/// The rows of which something is said, with that.
fn named(budgets: &Budgets, say: impl Fn(&Row) -> Vec<String>) -> Vec<(&Row, String)> {
    let all = budgets.rows.iter().map(|row| (row, say(row).join("; ")));
    all.filter(|(_, said)| !said.is_empty()).collect()
}

/// In what Go is ahead.
fn behind(row: &Row, results: &Results) -> Vec<String> {
    let [ours, go] = ["ours", "go"].map(|who| results.counted(who, &row.name));
    let [our_locks, go_locks] = ["ours", "go"].map(|who| results.locked(who, &row.name));
    let mut said = Vec::new();
    if is_worse(row, ours, go) {
        said.push("worse than Go".into());
    }
    if is_worse(row, our_locks, go_locks) {
        said.push("more locked instructions than Go".into());
    }
    let slower = (1..=256).filter(|&cpus| {
        let ratio = Spread::of(&results.ratios(&row.name, cpus));
        row.unit == Unit::Cost && ratio.map(faster) == Some("Go")
    });
    let slower: Vec<String> = slower.map(|cpus| cpus.to_string()).collect();
    if !slower.is_empty() {
        let plural = if slower == ["1"] { "CPU" } else { "CPUs" };
        said.push(format!("slower than Go on {} {plural}", slower.join(", ")));
    }
    said
}

/// How cost grows with the number of something: a line for each row and system.
pub fn grown(results: &Results, of: &str) -> Table {
    let mut all: Vec<(String, Vec<(u64, f64)>)> = Vec::new();
    for row in GROWN.into_iter().chain([IDLE]) {
        for (who, name) in [("ours", ""), ("go", ", Go")] {
            let points = results.grown(of, who, row);
            if !points.is_empty() {
                all.push((format!("{row}{name}"), points));
            }
        }
    }
    let many: BTreeSet<u64> = all.iter().flat_map(|(_, points)| points).map(|p| p.0).collect();
    let mut head = vec!["workload".to_string()];
    head.extend(many.iter().map(|&many| number(Some(many as f64))));
    let line = |(name, points): (String, Vec<(u64, f64)>)| {
        let at = |many: u64| points.iter().find(|point| point.0 == many).map(|point| point.1);
        [name].into_iter().chain(many.iter().map(|&many| number(at(many)))).collect()
    };
    Table { lines: all.into_iter().map(line).collect(), head }
}

impl Table {
    /// Under a title for a terminal; nothing at all if it has no lines.
    pub fn titled(&self, title: &str) -> String {
        if self.lines.is_empty() {
            String::new()
        } else {
            format!("\n{title}\n\n{}", self.to_text())
        }
    }

    /// With spaces, for a terminal.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
                let last = i + 1 == widths.len();
                if i == 0 || last { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
        };
        line(&self.head) + &self.lines.iter().map(|cells| line(cells)).collect::<String>()
    }

    /// With bars, for Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        // Names and remarks to the left, figures to the right.
        let is_text = |name: &String| {
            matches!(name.as_str(), "workload" | "figure" | "one operation" | "what it is" | "")
        };
        let rule = self.head.iter().map(|name| if is_text(name) { "---" } else { "---:" });
        let rule: Vec<String> = rule.map(String::from).collect();
        let body: String = self.lines.iter().map(|cells| line(cells)).collect();
        line(&self.head) + &line(&rule) + &body
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.lines.iter().chain([&self.head]);
            cells.filter_map(|cells| cells.get(column)).map(|c| c.chars().count()).max()
        };
        (0..self.head.len()).map(|column| width(column).unwrap_or(0)).collect()
    }
}

/// By how much it is over, or what it has reached.
fn remark(row: &Row, ours: Option<f64>, go: Option<f64>, locked: Option<f64>) -> String {
    let said = over(row, ours, locked);
    match (ours, row.aim) {
        _ if !said.is_empty() => said.join(", "),
        (Some(ours), Some(aim)) if ours <= aim => "aim reached".into(),
        _ if is_worse(row, ours, go) => "Go is better".into(),
        _ => String::new(),
    }
}

/// By how much it is over its two budgets.
fn over(row: &Row, ours: Option<f64>, locked: Option<f64>) -> Vec<String> {
    let over = |limit: Limit, figure: Option<f64>, what: &str| {
        let part = figure? / limit.budget? - 1.0;
        limit.judge(figure).is_over().then(|| format!("{what}over by {:.0} %", part * 100.0))
    };
    [over(row.cost, ours, ""), over(row.locked, locked, "locked ")].into_iter().flatten().collect()
}

/// Whether Go's figure is the better one.
fn is_worse(row: &Row, ours: Option<f64>, go: Option<f64>) -> bool {
    let (Some(ours), Some(go)) = (ours, go) else { return false };
    if row.unit == Unit::Share { ours < go } else { ours > go }
}

fn ratio(go: Option<f64>, ours: Option<f64>) -> String {
    match (go, ours) {
        (Some(go), Some(ours)) if ours > 0.0 => format!("{:.2}", go / ours),
        _ => String::new(),
    }
}

/// Small figures with a decimal, large ones with commas.
pub fn number(figure: Option<f64>) -> String {
    let Some(figure) = figure else { return String::new() };
    if figure < 100.0 {
        let text = format!("{figure:.1}");
        return text.strip_suffix(".0").unwrap_or(&text).to_string();
    }
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn range(spread: Option<Spread>) -> String {
    spread.map_or(String::new(), |s| format!("{}–{}", number(Some(s.min)), number(Some(s.max))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Budgets, Results) {
        let text = "[[row]]\nname='a'\nwhat='x'\nbudget=100\naim=50\nlocked=2\n[[row]]\nname='b'\nwhat='y'";
        let mut results = Results::default();
        results.set_counted("ours", "a", 110.0, 110.0);
        results.set_counted("go", "a", 1100.0, 1100.0);
        (Budgets::parse(text).expect("good"), results)
    }

    #[test]
    fn a_row_says_by_how_much_it_is_over() {
        let (budgets, mut results) = example();
        results.set_locked("ours", "a", 3.0);
        let said = "over by 10 %, locked over by 50 %";
        let over = ["a", "110", "1,100", "10.00", "100", "50", "3", "", "2", said];
        assert_eq!(counted(&budgets, &results).lines, [over.map(String::from).to_vec()]);
        results.set_counted("ours", "a", 50.0, 50.0);
        results.set_locked("ours", "a", 2.0);
        assert_eq!(counted(&budgets, &results).lines[0][9], "aim reached");
    }

    #[test]
    fn several_cpus_stand_beside_one_and_not_in_its_table() {
        let row = |name: &str| format!("[[row]]\nname='{name}'\nwhat='x'\nbudget=130\n");
        let budgets = Budgets::parse(&["a", "a@2", "a@8", "b@8"].map(row).concat()).expect("good");
        let mut results = Results::default();
        for (name, figure) in [("a", 100.0), ("a@2", 110.0), ("a@8", 131.0), ("b@8", 7.0)] {
            results.set_counted("ours", name, figure, figure);
        }
        assert_eq!(counted(&budgets, &results).lines.len(), 1);
        let table = wide(&budgets, &results);
        assert_eq!(table.head, ["workload", "1", "2", "8", ""]);
        assert_eq!(table.lines[0], ["a", "100", "110", "131", "over on 8"]);
        assert_eq!(table.lines[1], ["b", "", "", "7", ""]);
        assert_eq!(meanings(&budgets).lines.len(), 2, "each workload once");
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let (budgets, mut results) = example();
        results.set_timed("ours", "a", 2, &[1.0, 10.0, 2.0]);
        results.set_timed("go", "a", 2, &[2.0, 30.0, 2.0]);
        let line = &timed(&budgets, &results, 2).lines[0];
        assert_eq!(line[5..], ["2.00", "1.00–3.00", "neither"].map(String::from));
    }

    #[test]
    fn times_of_two_runs_have_no_ratio_and_nobody_is_faster() {
        let (budgets, mut results) = example();
        results.begin("1", &[]);
        results.set_timed("ours", "a", 2, &[9.0]);
        results.set_timed("go", "a", 2, &[2.0]);
        assert!(losses(&budgets, &results)[0].1.contains("slower than Go on 2 CPUs"));
        results.begin("2", &[]);
        results.set_timed("ours", "a", 2, &[9.0]);
        let line = &timed(&budgets, &results, 2).lines[0];
        assert_eq!(line[1..], ["9", "9–9", "2", "2–2", "", "", "not in turn"].map(String::from));
        assert!(!losses(&budgets, &results)[0].1.contains("slower"));
    }

    #[test]
    fn who_is_faster_is_said_if_all_pairs_agree() {
        let of = |samples: &[f64]| Spread::of(samples).map(faster);
        assert_eq!(of(&[1.1, 2.0]), Some("ours"));
        assert_eq!(of(&[0.9, 0.5]), Some("Go"));
        assert_eq!(of(&[0.9, 5.0]), Some("neither"));
    }

    #[test]
    fn a_share_is_the_better_the_larger() {
        let text =
            "[[row]]\nname='s'\nwhat='x'\nunit='share'\n[[row]]\nname='t'\nwhat='y'\nunit='ns'";
        let budgets = Budgets::parse(text).expect("good");
        let mut results = Results::default();
        for (who, figure) in [("ours", 900.0), ("go", 500.0)] {
            results.set_counted(who, "s", figure, figure);
            results.set_counted(who, "t", figure, 700.0);
        }
        let lines = others(&budgets, &results).lines;
        assert_eq!(lines[0][1..4], ["0.900", "0.500", ""].map(String::from));
        assert_eq!(
            lines[1][1..4],
            ["0.9, 0.7 µs", "0.5, 0.7 µs", "Go is better"].map(String::from)
        );
    }

    #[test]
    fn every_way_of_losing_is_named() {
        let (budgets, mut results) = example();
        results.set_locked("ours", "a", 4.0);
        results.set_locked("go", "a", 3.0);
        results.set_counted("ours", "b", 9.0, 9.0);
        results.set_counted("go", "b", 8.0, 8.0);
        results.set_timed("ours", "b", 4, &[2.0, 3.0]);
        results.set_timed("go", "b", 4, &[1.0, 2.0]);
        let said: Vec<String> = losses(&budgets, &results).into_iter().map(|loss| loss.1).collect();
        assert_eq!(said[0], "over by 10 %; locked over by 100 %; more locked instructions than Go");
        assert_eq!(said[1], "worse than Go; slower than Go on 4 CPUs");
        assert!(losses(&budgets, &Results::default()).is_empty());
        results.set_timed("ours", "b", 1, &[2.0]);
        results.set_timed("go", "b", 1, &[1.0]);
        assert!(losses(&budgets, &results)[1].1.ends_with("on 1, 4 CPUs"));
        results.set_timed("ours", "b", 4, &[0.5]);
        assert!(losses(&budgets, &results)[1].1.ends_with("on 1 CPU"));
    }

    #[test]
    fn a_budget_is_nothing_that_go_is_ahead_in() {
        let (budgets, mut results) = example();
        assert!(behind_go(&budgets, &results).is_empty(), "over its budget, and before Go");
        results.set_counted("go", "a", 109.0, 109.0);
        let said = behind_go(&budgets, &results);
        assert_eq!((said[0].0.name.as_str(), said[0].1.as_str()), ("a", "worse than Go"));
    }

    #[test]
    fn a_table_without_lines_is_not_shown() {
        let (budgets, results) = example();
        assert_eq!(others(&budgets, &results).titled("lateness"), "");
        assert!(counted(&budgets, &results).titled("costs").starts_with("\ncosts\n\nworkload"));
    }

    #[test]
    fn the_large_workloads_are_in_the_table_of_the_cpus_that_they_are_timed_with() {
        let budgets = Budgets::load().expect("good");
        let large = budgets.workloads(&["million".into(), "skynet".into()]);
        assert!(large.iter().all(|workload| workload.timed == Some(vec![4])));
        let mut results = Results::default();
        let rows = ["million_create", "million_wake", "skynet"];
        for row in rows {
            results.set_timed("ours", row, 4, &[1.0]);
            results.set_timed("go", row, 4, &[2.0]);
        }
        results.set_timed("ours", "million_bytes", 4, &[4_224.0]);
        let table = timed(&budgets, &results, 4);
        assert_eq!(table.lines.iter().map(|line| line[0].as_str()).collect::<Vec<_>>(), rows);
    }

    #[test]
    fn growth_has_a_column_for_each_number() {
        let mut results = Results::default();
        results.set_grown("gs", 1000, "ours", "yield", 150.0);
        results.set_grown("gs", 10, "go", "yield", 800.0);
        let table = grown(&results, "gs");
        assert_eq!(table.head, ["workload", "10", "1,000"]);
        assert_eq!(table.lines, [["yield", "", "150"], ["yield, Go", "800", ""]]);
    }

    #[test]
    fn numbers_are_easy_to_read() {
        let texts = [17.04, 18.0, 151.6, 2706.2, 1_234_567.0].map(|n| number(Some(n)));
        assert_eq!(texts, ["17", "18", "152", "2,706", "1,234,567"]);
    }

    #[test]
    fn columns_stand_below_each_other() {
        let (budgets, results) = example();
        let text = counted(&budgets, &results).to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("ours"), lines[1].find("110").map(|at| at - 1));
        assert!(counted(&budgets, &results).to_markdown().contains("| --- | ---: |"));
    }
}
