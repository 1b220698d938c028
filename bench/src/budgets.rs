//! What an operation may cost: `bench/budgets.toml`, and the judgement by it.
//!
//! Pure: figures come in as a function from a row's name. The command `check`
//! measures them and prints what is said here.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use toml::{Table, Value};

/// By how much a figure that is known to be over its budget may grow.
const GRACE: f64 = 1.02;

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name in the table and in the results.
    pub name: String,
    /// The workload that gives it, mostly of the same name.
    pub workload: String,
    /// What one operation is.
    pub what: String,
    /// What Go took when the budgets were made.
    pub go: Option<f64>,
    /// The most that is allowed.
    pub budget: Option<f64>,
    /// What is hoped for.
    pub aim: Option<f64>,
}

/// The table, and what is over it today.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// In the order of the file.
    pub rows: Vec<Row>,
    /// Rows that are over their budget, with the figure of the day.
    pub known_over: BTreeMap<String, f64>,
}

/// What is said about one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Within its budget, or it has none.
    Good,
    /// Over its budget, and nobody knew.
    Over,
    /// Over its budget as is known, and not worse than that.
    KnownOver,
    /// Over its budget, and worse than is known: the known figure.
    Worse(f64),
    /// Known to be over and it no longer is: the list must shrink.
    Recovered,
    /// There is no figure.
    Missing,
}

impl Budgets {
    /// The project's own.
    pub fn load() -> Result<Self> {
        let path = boot::root().join("bench/budgets.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Reads the text of such a file.
    ///
    /// ```
    /// let text = "[[row]]\nname = 'yield'\nwhat = 'a switch'\nbudget = 160\n";
    /// let budgets = bench::budgets::Budgets::parse(text).expect("good");
    /// assert_eq!(budgets.rows[0].budget, Some(160.0));
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse().context("not TOML")?;
        let rows = table.get("row").and_then(Value::as_array).context("no [[row]]")?;
        let known_over = table.get("known_over").and_then(Value::as_table);
        let known_over = known_over.into_iter().flatten();
        Ok(Self {
            rows: rows.iter().map(row).collect::<Result<_>>()?,
            known_over: known_over
                .map(|(name, v)| Ok((name.clone(), number(v).context("not a number")?)))
                .collect::<Result<_>>()?,
        })
    }

    /// The names of the workloads that give the rows, each once. With `only`, those
    /// that are named there, as a workload or as a row.
    pub fn workloads(&self, only: &[String]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for row in &self.rows {
            let wanted =
                only.is_empty() || only.contains(&row.name) || only.contains(&row.workload);
            if wanted && !names.contains(&row.workload) {
                names.push(row.workload.clone());
            }
        }
        names
    }

    /// What is to be said of `figure` in this row.
    pub fn judge(&self, row: &Row, figure: Option<f64>) -> Verdict {
        let Some(figure) = figure else { return Verdict::Missing };
        let is_over = row.budget.is_some_and(|budget| figure > budget);
        match (is_over, self.known_over.get(&row.name)) {
            (false, None) => Verdict::Good,
            (false, Some(_)) => Verdict::Recovered,
            (true, None) => Verdict::Over,
            (true, Some(&known)) if figure > known * GRACE => Verdict::Worse(known),
            (true, Some(_)) => Verdict::KnownOver,
        }
    }
}

impl Verdict {
    /// Whether `make bench-check` fails by it: whatever is over its budget does.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Over | Self::KnownOver | Self::Worse(_) | Self::Missing)
    }

    /// Whether it is news: what is known to be over does not count.
    pub fn is_news(self) -> bool {
        matches!(self, Self::Over | Self::Worse(_) | Self::Missing)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => write!(f, "ok"),
            Self::Over => write!(f, "OVER"),
            Self::KnownOver => write!(f, "OVER, as is known"),
            Self::Worse(known) => write!(f, "OVER, and worse than the known {known:.0}"),
            Self::Recovered => write!(f, "ok: take it out of known_over"),
            Self::Missing => write!(f, "NOT MEASURED"),
        }
    }
}

fn row(value: &Value) -> Result<Row> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
    let name = text("name").context("a row without a name")?;
    Ok(Row {
        workload: text("of").unwrap_or_else(|| name.clone()),
        what: text("what").with_context(|| format!("{name} does not say what it is"))?,
        go: value.get("go").and_then(number),
        budget: value.get("budget").and_then(number),
        aim: value.get("aim").and_then(number),
        name,
    })
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        [[row]]
        name = 'a'
        what = 'x'
        budget = 100
        [[row]]
        name = 'b_one'
        of = 'b'
        what = 'y'
        budget = 50.5
        [[row]]
        name = 'b_two'
        of = 'b'
        what = 'z'
        [known_over]
        b_one = 60";

    fn judge(row: usize, figure: Option<f64>) -> Verdict {
        let budgets = Budgets::parse(TEXT).expect("good");
        budgets.judge(&budgets.rows[row], figure)
    }

    #[test]
    fn a_figure_over_its_budget_is_over_known_or_not() {
        assert_eq!(judge(0, Some(100.0)), Verdict::Good);
        assert_eq!(judge(0, Some(100.1)), Verdict::Over);
        assert_eq!(judge(1, Some(60.0)), Verdict::KnownOver);
        assert!(judge(0, Some(100.1)).is_over() && judge(1, Some(60.0)).is_over());
        assert!(judge(0, Some(100.1)).is_news() && !judge(1, Some(60.0)).is_news());
    }

    #[test]
    fn what_is_known_may_not_grow_by_more_than_two_percent() {
        assert_eq!(judge(1, Some(61.0)), Verdict::KnownOver);
        assert_eq!(judge(1, Some(61.3)), Verdict::Worse(60.0));
        assert!(judge(1, Some(61.3)).is_news());
    }

    #[test]
    fn what_is_under_its_budget_again_leaves_the_list() {
        assert_eq!(judge(1, Some(50.0)), Verdict::Recovered);
        assert!(!judge(1, Some(50.0)).is_over());
    }

    #[test]
    fn a_figure_that_is_missing_is_not_good() {
        assert!(judge(0, None).is_over() && judge(0, None).is_news());
        assert_eq!(judge(2, Some(1e9)), Verdict::Good, "no budget, no fault");
    }

    #[test]
    fn a_workload_of_two_rows_is_run_once_by_either_name() {
        let budgets = Budgets::parse(TEXT).expect("good");
        assert_eq!(budgets.workloads(&[]), ["a", "b"]);
        assert_eq!(budgets.workloads(&["b_two".into()]), ["b"]);
        assert_eq!(budgets.workloads(&["b".into()]), ["b"]);
    }

    #[test]
    fn the_projects_own_table_can_be_read() {
        let budgets = Budgets::load().expect("good");
        assert!(budgets.rows.len() >= 11);
        for name in budgets.known_over.keys() {
            assert!(budgets.rows.iter().any(|row| row.name == *name), "{name} is no row");
        }
    }
}
