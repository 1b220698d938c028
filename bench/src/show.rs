//! The tables, for a terminal and for Markdown.
//!
//! A table is made once as text in cells; who shows it decides on the look.

use crate::budgets::{Budgets, Row};
use crate::results::{Results, Spread};

/// Cells of text: the head, then the lines, each as long as the head.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The names of the columns. Figures go to the right; the first is a name.
    pub head: Vec<String>,
    /// What stands below.
    pub lines: Vec<Vec<String>>,
}

/// Instructions for each operation: ours, Go's, the ratio, the budget.
pub fn counted(budgets: &Budgets, results: &Results) -> Table {
    let head = ["workload", "ours", "Go", "Go ÷ ours", "budget", "aim", ""];
    let lines = budgets.rows.iter().filter(|row| results.counted("ours", &row.name).is_some());
    let lines = lines.map(|row| {
        let ours = results.counted("ours", &row.name);
        let go = results.counted("go", &row.name);
        vec![
            row.name.clone(),
            number(ours),
            number(go),
            ratio(go, ours),
            number(row.budget),
            number(row.aim),
            remark(budgets, row, ours, go),
        ]
    });
    Table { head: head.map(String::from).to_vec(), lines: lines.collect() }
}

/// Nanoseconds for each operation on so many CPUs: medians, spreads, the ratio of
/// the pairs.
pub fn timed(budgets: &Budgets, results: &Results, cpus: u32) -> Table {
    let head = ["workload", "ours, ns", "min–max", "Go, ns", "min–max", "Go ÷ ours", "min–max"];
    let mut lines = Vec::new();
    for row in &budgets.rows {
        let ours = results.timed("ours", &row.name, cpus);
        let go = results.timed("go", &row.name, cpus);
        let ratios: Vec<f64> = ours.iter().zip(&go).map(|(ours, go)| go / ours).collect();
        if let Some(spread) = Spread::of(&ours).filter(|_| row.name != "million_bytes") {
            let mut line = vec![row.name.clone(), number(Some(spread.median)), range(Some(spread))];
            let go = Spread::of(&go);
            line.extend([number(go.map(|go| go.median)), range(go)]);
            let ratio = Spread::of(&ratios);
            line.push(ratio.map_or(String::new(), |r| format!("{:.2}", r.median)));
            line.push(ratio.map_or(String::new(), |r| format!("{:.2}–{:.2}", r.min, r.max)));
            lines.push(line);
        }
    }
    Table { head: head.map(String::from).to_vec(), lines }
}

impl Table {
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
        let mut rule = vec!["---:".to_string(); self.head.len()];
        if let Some(first) = rule.first_mut() {
            *first = "---".into();
        }
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
fn remark(budgets: &Budgets, row: &Row, ours: Option<f64>, go: Option<f64>) -> String {
    let over = |limit: f64, figure: f64| format!("over by {:.0} %", (figure / limit - 1.0) * 100.0);
    match (ours, row.budget, row.aim) {
        (Some(ours), Some(budget), _) if budgets.judge(row, Some(ours)).is_over() => {
            over(budget, ours)
        }
        (Some(ours), _, Some(aim)) if ours <= aim => "aim reached".into(),
        (Some(ours), None, _) if go.is_some_and(|go| ours > go) => "slower than Go".into(),
        _ => String::new(),
    }
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
        let text = "[[row]]\nname='a'\nwhat='x'\nbudget=100\naim=50\n[[row]]\nname='b'\nwhat='y'";
        let mut results = Results::default();
        results.set_counted("ours", "a", 110.0);
        results.set_counted("go", "a", 1100.0);
        (Budgets::parse(text).expect("good"), results)
    }

    #[test]
    fn a_row_says_by_how_much_it_is_over() {
        let (budgets, mut results) = example();
        let over = ["a", "110", "1,100", "10.00", "100", "50", "over by 10 %"];
        assert_eq!(counted(&budgets, &results).lines, [over.map(String::from).to_vec()]);
        results.set_counted("ours", "a", 50.0);
        assert_eq!(counted(&budgets, &results).lines[0][6], "aim reached");
    }

    #[test]
    fn ratios_are_those_of_pairs() {
        let (budgets, mut results) = example();
        results.set_timed("ours", "a", 2, &[1.0, 10.0, 2.0]);
        results.set_timed("go", "a", 2, &[2.0, 30.0, 2.0]);
        let line = &timed(&budgets, &results, 2).lines[0];
        assert_eq!(line[5..], ["2.00".to_string(), "1.00–3.00".to_string()]);
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
