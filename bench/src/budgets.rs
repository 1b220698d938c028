//! What an operation may cost: `bench/budgets.toml`, and the judgement by it.
//!
//! Pure: figures come in as a function from a row's name. The command `check`
//! measures them and prints what is said here.

use std::fmt;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use crate::machine::{Reading, USUAL_MEM};

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
    /// What its figure counts.
    pub unit: Unit,
    /// What Go took when the budgets were made.
    pub go: Option<f64>,
    /// What it may cost.
    pub cost: Limit,
    /// What is hoped for.
    pub aim: Option<f64>,
    /// How many locked instructions an operation may have.
    pub locked: Limit,
    /// Why it is over its budget or worse than Go, where that is known.
    pub why: Option<String>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Instructions of an operation, or its nanoseconds where it is timed.
    Cost,
    /// Bytes.
    Bytes,
    /// Nanoseconds of the machine's own time.
    Nanoseconds,
    /// Thousandths, of which more are better.
    Share,
}

/// The most that is allowed (or the least), and by how much that is known to be exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limit {
    /// `None` if there is no limit.
    pub budget: Option<f64>,
    /// The figure of the day, where it is over the budget.
    pub known: Option<f64>,
    /// Whether more is better, so that the budget is the least.
    pub is_least: bool,
}

/// The machine that a workload is counted on, and when it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Memory, in QEMU's notation.
    pub mem: String,
    /// CPUs of the machine that it is counted on.
    pub cpus: u32,
    /// How what it costs is read there.
    pub reading: Reading,
    /// Words for the command line of our kernel.
    pub boot: String,
    /// Whether it takes longer than `make test` may, which leaves it out.
    pub is_slow: bool,
    /// Whether it is about our kernel, so that Go has no such workload.
    pub is_ours: bool,
    /// The numbers of CPUs that it is timed with; `None` if all will do.
    pub timed: Option<Vec<u32>>,
    /// How many operations are timed; `None` for as many as are counted.
    pub timed_count: Option<u64>,
}

/// The table.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// In the order of the file.
    pub rows: Vec<Row>,
    machines: Table,
    /// The numbers of CPUs behind an `@` that are quick to count.
    quick_cpus: Vec<u32>,
}

/// What is said about one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Within its budget, or it has none.
    Good,
    /// Over its budget, and not listed as known.
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
    /// assert_eq!(budgets.rows[0].cost.budget, Some(160.0));
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse().context("not TOML")?;
        let rows = table.get("row").and_then(Value::as_array).context("no [[row]]")?;
        let machines = table.get("workload").and_then(Value::as_table);
        Ok(Self {
            rows: rows.iter().map(row).collect::<Result<_>>()?,
            machines: machines.cloned().unwrap_or_default(),
            quick_cpus: table.get("quick_cpus").and_then(counts).unwrap_or_default(),
        })
    }

    /// The workloads that give the rows, each once. With `only`, those that are
    /// named there, as a workload or as a row.
    pub fn workloads(&self, only: &[String]) -> Vec<Workload> {
        let mut found: Vec<Workload> = Vec::new();
        for row in &self.rows {
            let wanted = only.is_empty() || only.iter().any(|name| row.is_named(name));
            if wanted && !found.iter().any(|workload| workload.name == row.workload) {
                found.push(self.workload(&row.workload));
            }
        }
        found
    }

    /// The table with the rows of these workloads alone.
    pub fn part(&self, workloads: &[Workload]) -> Self {
        let mut part = self.clone();
        part.rows.retain(|row| workloads.iter().any(|workload| workload.name == row.workload));
        part
    }

    /// What is said about that workload, or what holds if nothing is. The workload
    /// `a@4` is `a` on four CPUs that take short turns; what is said of `a` counts for it.
    fn workload(&self, name: &str) -> Workload {
        let (base, at) = split(name);
        let of = |name: &str, key: &str| self.machines.get(name)?.get(key);
        let said = |key: &str| of(name, key).or_else(|| of(base, key));
        Workload {
            name: name.to_string(),
            mem: said("mem").and_then(Value::as_str).unwrap_or(USUAL_MEM).to_string(),
            cpus: at.or_else(|| said("cpus").and_then(count)).unwrap_or(1),
            boot: said("boot").and_then(Value::as_str).unwrap_or_default().to_string(),
            reading: match (said("halts").and_then(Value::as_bool), at) {
                (Some(true), _) => Reading::Executed,
                (_, Some(_)) => Reading::Turns,
                _ => Reading::Clock,
            },
            is_slow: said("slow").and_then(Value::as_bool).unwrap_or(false)
                || at.is_some_and(|cpus| !self.quick_cpus.contains(&cpus)),
            is_ours: said("ours").and_then(Value::as_bool).unwrap_or(at.is_some()),
            timed: said("timed")
                .and_then(counts)
                .filter(|_| at.is_none())
                .or(at.map(|_| Vec::new())),
            timed_count: said("timed_count")
                .and_then(Value::as_integer)
                .and_then(|n| u64::try_from(n).ok()),
        }
    }
}

/// The name of the workload in the guest, and the number of CPUs behind its `@`.
///
/// ```
/// use bench::budgets::split;
/// assert_eq!((split("yield"), split("yield@8")), (("yield", None), ("yield", Some(8))));
/// ```
pub fn split(name: &str) -> (&str, Option<u32>) {
    match name.split_once('@') {
        Some((base, cpus)) => (base, cpus.parse().ok()),
        None => (name, None),
    }
}

impl Row {
    /// Whether it is about several CPUs that take short turns, or about CPUs that halt.
    pub fn is_wide(&self) -> bool {
        split(&self.name).1.is_some()
    }

    /// Whether that name means it: its own, or that of its workload.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.workload == name
    }

    /// Whether there is anything to hold it to.
    pub fn has_budget(&self) -> bool {
        self.cost.budget.is_some() || self.locked.budget.is_some()
    }
}

impl Limit {
    /// What is to be said of this figure.
    ///
    /// ```
    /// use bench::budgets::{Limit, Verdict};
    /// let limit = Limit { budget: Some(100.0), known: Some(120.0), is_least: false };
    /// assert_eq!(limit.judge(Some(90.0)), Verdict::Recovered);
    /// assert_eq!(limit.judge(Some(119.0)), Verdict::KnownOver);
    /// ```
    pub fn judge(self, figure: Option<f64>) -> Verdict {
        let Some(figure) = figure else { return Verdict::Missing };
        let is_beyond = |limit| if self.is_least { figure < limit } else { figure > limit };
        let grace = if self.is_least { 1.0 / GRACE } else { GRACE };
        let is_over = self.budget.is_some_and(is_beyond);
        match (is_over, self.known) {
            (false, None) => Verdict::Good,
            (false, Some(_)) => Verdict::Recovered,
            (true, None) => Verdict::Over,
            (true, Some(known)) if is_beyond(known * grace) => Verdict::Worse(known),
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
            Self::Worse(known) => write!(f, "OVER, and worse than the known {known}"),
            Self::Recovered => write!(f, "ok: take out what is known"),
            Self::Missing => write!(f, "NOT MEASURED"),
        }
    }
}

fn row(value: &Value) -> Result<Row> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_string);
    let figure = |key: &str| value.get(key).and_then(number);
    let name = text("name").context("a row without a name")?;
    let is_least = text("unit").as_deref() == Some("share");
    Ok(Row {
        workload: text("of").unwrap_or_else(|| name.clone()),
        what: text("what").with_context(|| format!("{name} does not say what it is"))?,
        unit: match text("unit").as_deref() {
            None => Unit::Cost,
            Some("bytes") => Unit::Bytes,
            Some("ns") => Unit::Nanoseconds,
            Some("share") => Unit::Share,
            Some(other) => bail!("{name} counts {other:?}, which is unknown"),
        },
        go: figure("go"),
        cost: Limit { budget: figure("budget"), known: figure("known"), is_least },
        aim: figure("aim"),
        locked: Limit { budget: figure("locked"), known: figure("locked_known"), is_least: false },
        why: text("why"),
        name,
    })
}

fn count(value: &Value) -> Option<u32> {
    value.as_integer().and_then(|n| u32::try_from(n).ok())
}

fn counts(value: &Value) -> Option<Vec<u32>> {
    value.as_array().map(|list| list.iter().filter_map(count).collect())
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

#[cfg(test)]
impl Budgets {
    /// Some rows: one plain, two of a workload with a machine of its own, one that is slow and
    /// has a budget of locked operations only, one without any budget.
    pub(crate) fn for_tests() -> Self {
        let text = "
            [[row]]
            name = 'a'
            what = 'v'
            budget = 100
            [[row]]
            name = 'b_one'
            of = 'b'
            what = 'w'
            budget = 50.5
            known = 60
            [[row]]
            name = 'b_two'
            of = 'b'
            unit = 'share'
            what = 'x'
            [[row]]
            name = 'locks'
            what = 'y'
            locked = 2
            [[row]]
            name = 'free'
            what = 'z'
            [workload.b]
            mem = '6G'
            cpus = 4
            timed = [1, 8]
            timed_count = 1_000
            [workload.locks]
            slow = true";
        Budgets::parse(text).expect("good")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(row: usize, figure: Option<f64>) -> Verdict {
        Budgets::for_tests().rows[row].cost.judge(figure)
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
    fn what_is_under_its_budget_again_is_no_longer_known_to_be_over() {
        assert_eq!(judge(1, Some(50.0)), Verdict::Recovered);
        assert!(!judge(1, Some(50.0)).is_over());
    }

    #[test]
    fn a_figure_that_is_missing_is_not_good() {
        assert!(judge(0, None).is_over() && judge(0, None).is_news());
        assert_eq!(judge(2, Some(1e9)), Verdict::Good, "no budget, no fault");
    }

    #[test]
    fn locked_operations_have_a_limit_of_their_own() {
        let row = &Budgets::for_tests().rows[3];
        assert_eq!(row.locked, Limit { budget: Some(2.0), ..Limit::default() });
        assert_eq!(row.locked.judge(Some(2.1)), Verdict::Over);
    }

    #[test]
    fn a_workload_of_two_rows_is_run_once_by_either_name() {
        let budgets = Budgets::for_tests();
        let names = |only: &[String]| {
            budgets.workloads(only).into_iter().map(|w| w.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["a", "b", "locks", "free"]);
        assert_eq!(names(&["b_two".into()]), ["b"]);
        assert_eq!(names(&["b".into()]), ["b"]);
    }

    #[test]
    fn a_part_has_the_rows_of_its_workloads() {
        let budgets = Budgets::for_tests();
        let part = budgets.part(&budgets.workloads(&["b_one".into()]));
        let names: Vec<&str> = part.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["b_one", "b_two"]);
        assert_eq!(budgets.part(&budgets.workloads(&[])), budgets);
    }

    #[test]
    fn a_workload_has_a_small_machine_unless_it_says_more() {
        let found = Budgets::for_tests().workloads(&[]);
        assert_eq!((found[0].mem.as_str(), found[0].cpus, &found[0].timed), ("1G", 1, &None));
        assert_eq!((found[1].mem.as_str(), found[1].cpus), ("6G", 4));
        assert_eq!(found[1].timed, Some(vec![1, 8]));
        assert_eq!((found[0].timed_count, found[1].timed_count), (None, Some(1000)));
    }

    #[test]
    fn workload_with_an_at_has_so_many_cpus_in_turns_and_is_not_timed() {
        let text = "quick_cpus=[4]\n[[row]]\nname='a@4'\nwhat='x'\n[[row]]\nname='a@8'\nwhat='x'\n\
                    [[row]]\nname='z@1'\nwhat='y'\n[workload.z]\nhalts=true\n[workload.a]\nmem='2G'";
        let found = Budgets::parse(text).expect("good").workloads(&[]);
        let seen: Vec<_> = found.iter().map(|w| (w.cpus, w.reading, w.is_slow)).collect();
        let (turns, executed) = (Reading::Turns, Reading::Executed);
        assert_eq!(seen, [(4, turns, false), (8, turns, true), (1, executed, true)]);
        assert_eq!((found[0].mem.as_str(), &found[1].timed), ("2G", &Some(Vec::new())));
    }

    #[test]
    fn the_projects_own_table_can_be_read() {
        let budgets = Budgets::load().expect("good");
        assert!(budgets.rows.len() >= 11);
        for name in budgets.machines.keys() {
            let is_of = |row: &Row| row.workload == *name || split(&row.workload).0 == name;
            assert!(budgets.rows.iter().any(is_of), "{name} is no workload");
        }
    }
}
