//! Every figure that has a budget, with what is said of it.
//!
//! Pure: the command `check` has measured and prints the lines. What has no budget
//! is not listed, so that a list without a fault is one of figures that were held
//! to something.

use std::fmt;

use crate::budgets::{Budgets, Limit, Unit, Verdict, Workload};
use crate::results::Results;
use crate::show::number;

/// One figure and its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The row's name.
    pub row: String,
    /// What was counted: nothing for instructions or bytes, else `locked`.
    pub what: &'static str,
    /// What was measured, if it was.
    pub figure: Option<f64>,
    /// What it may be.
    pub limit: Limit,
    /// What is said of it.
    pub verdict: Verdict,
}

/// What is said of all rows of these workloads that have a budget. Locked
/// instructions are left out if the emulator cannot count them.
pub fn judge(
    budgets: &Budgets,
    results: &Results,
    workloads: &[Workload],
    has_locked: bool,
) -> Vec<Judged> {
    let mut all = Vec::new();
    let is_run = |name: &str| workloads.iter().any(|workload| workload.name == name);
    for row in budgets.rows.iter().filter(|row| is_run(&row.workload)) {
        let mut judge = |limit: Limit, figure: Option<f64>, what| {
            if limit.budget.is_some() {
                let verdict = limit.judge(figure);
                all.push(Judged { row: row.name.clone(), what, figure, limit, verdict });
            }
        };
        let counted = results.counted("ours", &row.name);
        // Where CPUs are reset, the emulator's clock jumps, which only adds: of two runs the shorter.
        let cost = match row.unit {
            Unit::Nanoseconds => {
                let again = results.counted_again("ours", &row.name);
                counted.map(|first| again.map_or(first, |again| first.min(again)))
            }
            _ => counted,
        };
        judge(row.cost, cost, "");
        if has_locked {
            judge(row.locked, results.locked("ours", &row.name), "locked");
        }
    }
    all
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [figure, budget] = [self.figure, self.limit.budget].map(number);
        let Self { row, what, verdict, .. } = self;
        write!(f, "{row:<16} {figure:>8} of {budget:>6}  {what:<8}  {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(results: &Results, has_locked: bool) -> Vec<(String, &'static str, Verdict)> {
        let text = "[[row]]\nname='a'\nwhat='x'\nbudget=100\nlocked=2\n\
                    [[row]]\nname='b'\nwhat='y'\nlocked=3\n[[row]]\nname='c'\nwhat='z'";
        let budgets = Budgets::parse(text).expect("good");
        let judged = judge(&budgets, results, &budgets.workloads(&[]), has_locked);
        judged.into_iter().map(|j| (j.row, j.what, j.verdict)).collect()
    }

    #[test]
    fn of_two_boots_the_shorter_is_judged() {
        let text = "[[row]]\nname='boot'\nwhat='x'\nunit='ns'\nbudget=100";
        let budgets = Budgets::parse(text).expect("good");
        for (first, again, good) in
            [(90.0, 300.0, true), (300.0, 90.0, true), (101.0, 300.0, false)]
        {
            let mut results = Results::default();
            results.set_counted("ours", "boot", first, again);
            let judged = judge(&budgets, &results, &budgets.workloads(&[]), true);
            assert_eq!(judged[0].verdict == Verdict::Good, good, "{first} and {again}");
        }
    }

    #[test]
    fn every_budget_is_judged_and_nothing_else() {
        let mut results = Results::default();
        for (row, figure, locked) in [("a", 90.0, 2.5), ("b", 1e9, 3.0), ("c", 1e9, 1e9)] {
            results.set_counted("ours", row, figure, figure);
            results.set_locked("ours", row, locked);
        }
        let said = [
            ("a".into(), "", Verdict::Good),
            ("a".into(), "locked", Verdict::Over),
            ("b".into(), "locked", Verdict::Good),
        ];
        assert_eq!(lines(&results, true), said);
        assert_eq!(lines(&results, false), said[..1]);
    }

    #[test]
    fn a_budget_without_a_figure_is_a_fault() {
        let said = lines(&Results::default(), true);
        assert_eq!(said.len(), 3);
        assert!(said.iter().all(|line| line.2 == Verdict::Missing && line.2.is_over()));
    }
}
