//! What is asked for on the command line, read and checked before anything is done.
//!
//! Machines take minutes, and downloads for them do too: a misspelt name is refused
//! before either.

use anyhow::{Context, Result, bail};
use tool::args::Args;

use crate::budgets::{Budgets, Workload};

/// How the tool is called.
pub const USAGE: &str = "usage: bench run|go|check|docs|systems [--only NAMES] [--samples N] \
                         [--cpus LIST] [--known] [--quick]";

/// What one says instead of a workload's name to be told how cost grows.
pub const GROWTH: &str = "growth";

/// The most CPUs that the machine can have.
const MOST_CPUS: u32 = 255;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Names of workloads and rows, and maybe [`GROWTH`]; empty for all.
    pub only: Vec<String>,
    /// How often the workloads are timed.
    pub samples: u32,
    /// On how many CPUs they are.
    pub cpus: Vec<u32>,
    /// Whether what is known to be over its budget does not fail the check.
    pub is_known_good: bool,
    /// Whether the check leaves out what is slow.
    pub is_quick: bool,
}

impl Options {
    /// Reads the options behind the command.
    ///
    /// # Errors
    /// An option that is unknown, or a value that is not allowed.
    pub fn parse(mut args: Args, budgets: &Budgets) -> Result<Self> {
        let mut options = Self {
            only: Vec::new(),
            samples: 5,
            cpus: vec![1, 2, 4, 8],
            is_known_good: false,
            is_quick: false,
        };
        while let Some(key) = args.next()? {
            match &*key {
                "--known" => options.is_known_good = true,
                "--quick" => options.is_quick = true,
                "--only" => given(args.text()?, |v| names(v, budgets), &mut options.only)?,
                "--samples" => given(args.text()?, samples, &mut options.samples)?,
                "--cpus" => given(args.text()?, cpus, &mut options.cpus)?,
                _ => return Err(args.unknown()),
            }
        }
        Ok(options)
    }

    /// The workloads to be measured: those that are named, all if none is.
    pub fn measured(&self, budgets: &Budgets) -> Vec<Workload> {
        budgets.workloads(&self.only)
    }

    /// Whether it is asked for how cost grows.
    pub fn has_growth(&self) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == GROWTH)
    }

    /// The workloads to be held to their budgets: those of them that have one. To
    /// name one that has none is an error, for a check of nothing must not pass.
    pub fn checked(&self, budgets: &Budgets) -> Result<Vec<Workload>> {
        for name in &self.only {
            if !budgets.rows.iter().any(|row| row.is_named(name) && row.has_budget()) {
                bail!("{name} has no budget in bench/budgets.toml, so there is nothing to check");
            }
        }
        let has_budget = |workload: &Workload| {
            budgets.rows.iter().any(|row| row.workload == workload.name && row.has_budget())
        };
        let mut workloads = self.measured(budgets);
        workloads.retain(|w| has_budget(w) && !(self.is_quick && w.is_slow));
        if workloads.is_empty() {
            bail!("nothing that is quick has a budget among {}", self.only.join(" "));
        }
        Ok(workloads)
    }
}

/// Reads the value, if there is one, into `place`.
fn given<T>(value: Option<String>, read: impl Fn(&str) -> Result<T>, place: &mut T) -> Result<()> {
    if let Some(value) = value {
        *place = read(&value)?;
    }
    Ok(())
}

fn names(value: &str, budgets: &Budgets) -> Result<Vec<String>> {
    let names = list(value);
    let is_known = |name: &str| name == GROWTH || budgets.rows.iter().any(|row| row.is_named(name));
    let unknown: Vec<&str> = names.iter().copied().filter(|name| !is_known(name)).collect();
    if names.is_empty() || !unknown.is_empty() {
        let all: Vec<String> = budgets.workloads(&[]).into_iter().map(|w| w.name).collect();
        let (what, all) = (unknown.join(" "), all.join(" "));
        bail!("no workload is called {what:?}; there are: {all} {GROWTH}");
    }
    Ok(names.into_iter().map(String::from).collect())
}

fn samples(value: &str) -> Result<u32> {
    value.trim().parse().with_context(|| format!("--samples: {value:?} is not a number"))
}

/// Each number once, in the order given.
fn cpus(value: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for word in list(value) {
        match word.parse() {
            Ok(cpus) if (1..=MOST_CPUS).contains(&cpus) => {
                if !found.contains(&cpus) {
                    found.push(cpus);
                }
            }
            _ => bail!("--cpus: {word:?} is not a number from 1 to {MOST_CPUS}"),
        }
    }
    if found.is_empty() {
        bail!("--cpus: there is no number in {value:?}");
    }
    Ok(found)
}

fn list(value: &str) -> Vec<&str> {
    value.split([' ', ',']).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(Args::new(words, USAGE), &Budgets::for_tests())
    }

    fn error(words: &[&str]) -> String {
        parse(words).expect_err("it cannot be meant").to_string()
    }

    fn checked(words: &[&str]) -> Result<Vec<String>> {
        let found = parse(words)?.checked(&Budgets::for_tests())?;
        Ok(found.into_iter().map(|workload| workload.name).collect())
    }

    #[test]
    fn an_empty_value_is_like_none() {
        let none = parse(&[]).expect("nothing is asked for");
        let empty = parse(&["--only", "", "--samples", "", "--cpus", ""]);
        assert_eq!(empty.expect("nothing either"), none);
        assert_eq!((none.samples, none.cpus), (5, vec![1, 2, 4, 8]));
    }

    #[test]
    fn an_unknown_name_among_known_ones_is_named() {
        let error = error(&["--only", "a nonsense b"]);
        assert_eq!(error, "no workload is called \"nonsense\"; there are: a b locks free growth");
        let found = parse(&["--only", "a, b_one growth"]).expect("all are known");
        assert_eq!(found.only, ["a", "b_one", "growth"]);
        assert!(parse(&["--only", " "]).is_err(), "a list without a name");
    }

    #[test]
    fn a_machine_has_from_1_to_255_cpus() {
        assert_eq!(parse(&["--cpus", "4 1,255 4"]).expect("good").cpus, [4, 1, 255]);
        for bad in ["0", "256", "1 x", "-1", "4294967297"] {
            assert!(error(&["--cpus", bad]).contains("from 1 to 255"), "{bad}");
        }
        assert!(error(&["--cpus", " , "]).contains("no number"));
    }

    #[test]
    fn samples_are_a_number() {
        assert_eq!(parse(&["--samples", "0"]).expect("good").samples, 0);
        for bad in ["many", "-1", "1.5", " "] {
            assert!(error(&["--samples", bad]).contains("not a number"), "{bad}");
        }
    }

    #[test]
    fn an_option_that_is_none_is_an_error_whatever_its_value() {
        assert!(error(&["--fast", ""]).contains("unknown option"));
        assert!(error(&["--cpus"]).contains("needs a value"));
    }

    #[test]
    fn everything_that_has_a_budget_is_checked_and_what_is_slow_unless_quick() {
        assert_eq!(checked(&[]).expect("good"), ["a", "b", "locks"]);
        assert_eq!(checked(&["--quick"]).expect("good"), ["a", "b"]);
        assert_eq!(checked(&["--only", "locks"]).expect("good"), ["locks"]);
    }

    #[test]
    fn a_check_of_nothing_does_not_pass() {
        for words in ["growth", "free", "a free", "a growth"] {
            assert!(checked(&["--only", words]).is_err(), "{words}");
        }
        assert!(checked(&["--quick", "--only", "locks"]).is_err());
    }

    #[test]
    fn growth_is_asked_for_by_its_name_or_by_none() {
        let has_growth = |words: &[&str]| parse(words).expect("good").has_growth();
        assert!(has_growth(&[]) && has_growth(&["--only", "a growth"]));
        assert!(!has_growth(&["--only", "a"]));
        assert!(
            parse(&["--only", "growth"]).expect("good").measured(&Budgets::for_tests()).is_empty()
        );
    }
}
