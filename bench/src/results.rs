//! The figures: kept in `target/bench.json`, replaced one by one.
//!
//! A run of one workload leaves the others as they were, so the file is what
//! was last measured of each. Beside each figure stands the run that it is of, and
//! of each run what was noted: when it was, of which commit, with which versions.
//! Two times are a pair only if they are of one run. Written by `measure` and
//! `counted`, read by everything that shows something.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// All that was measured, and in which run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    figures: Value,
    /// The run that is measuring, which every figure is marked with.
    run: String,
    /// Where they are kept; `None` for figures that are not kept.
    file: Option<PathBuf>,
}

/// Some samples of one thing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// As many are below as above.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// `None` if there are no samples.
    ///
    /// ```
    /// let spread = bench::results::Spread::of(&[3.0, 1.0, 10.0]).expect("samples");
    /// assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 10.0));
    /// ```
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Some(Self { median, min, max })
    }
}

impl Results {
    /// What is there; nothing if there is nothing that can be read.
    pub fn load() -> Self {
        let file = boot::target_dir().join("bench.json");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let figures = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
        Self { figures, run: String::new(), file: Some(file) }
    }

    /// Writes it where [`load`](Self::load) finds it, if it came from there. What
    /// began as nothing, by `default`, is not kept.
    pub fn save(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = serde_json::to_string_pretty(&self.in_use()).context("making JSON")?;
        fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))
    }

    /// Starts a run, with what is to be known of it. What is kept from here on is
    /// marked with its name.
    pub fn begin(&mut self, run: &str, notes: &[(&str, String)]) {
        self.run = run.to_string();
        for (key, value) in notes {
            self.figures["runs"][run][*key] = json!(value);
        }
    }

    /// What was noted of a run.
    pub fn noted(&self, run: &str, key: &str) -> Option<&str> {
        self.figures["runs"][run][key].as_str()
    }

    /// Keeps what an operation of `row` takes `who` in instructions, and what it
    /// took the second time. The locked ones among them are not known then.
    pub fn set_counted(&mut self, who: &str, row: &str, figure: f64, again: f64) {
        self.put(&["instructions", row, who], json!(round(figure)));
        self.put(&["again", row, who], json!(round(again)));
        self.put(&["locked", row, who], Value::Null);
    }

    /// What it took the second time.
    pub fn counted_again(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["again"][row][who].as_f64()
    }

    /// What an operation takes in instructions.
    pub fn counted(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["instructions"][row][who].as_f64()
    }

    /// The run in which it was counted.
    pub fn counted_in(&self, who: &str, row: &str) -> Option<&str> {
        self.run_of(&["instructions", row, who])
    }

    /// Keeps how many locked instructions an operation of `row` has.
    pub fn set_locked(&mut self, who: &str, row: &str, figure: f64) {
        self.put(&["locked", row, who], json!(round(figure)));
    }

    /// How many locked instructions an operation has.
    pub fn locked(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["locked"][row][who].as_f64()
    }

    /// Keeps what an operation takes in instructions where there are so many of
    /// something.
    pub fn set_grown(&mut self, of: &str, many: u64, who: &str, row: &str, figure: f64) {
        self.put(&["growth", of, row, who, &many.to_string()], json!(round(figure)));
    }

    /// What an operation takes in instructions by how many there are, the fewest
    /// first.
    pub fn grown(&self, of: &str, who: &str, row: &str) -> Vec<(u64, f64)> {
        let points = self.figures["growth"][of][row][who].as_object().into_iter().flatten();
        let mut points: Vec<(u64, f64)> = points
            .filter_map(|(many, value)| Some((many.parse().ok()?, value.as_f64()?)))
            .collect();
        points.sort_by_key(|point| point.0);
        points
    }

    /// The run in which it was counted with so many.
    pub fn grown_in(&self, of: &str, many: u64, who: &str, row: &str) -> Option<&str> {
        self.run_of(&["growth", of, row, who, &many.to_string()])
    }

    /// Keeps the samples of what an operation takes in nanoseconds.
    pub fn set_timed(&mut self, who: &str, row: &str, cpus: u32, samples: &[f64]) {
        let samples: Vec<f64> = samples.iter().copied().map(round).collect();
        self.put(&["nanoseconds", &cpus.to_string(), row, who], json!(samples));
    }

    /// What an operation takes in nanoseconds, in the order of the samples.
    pub fn timed(&self, who: &str, row: &str, cpus: u32) -> Vec<f64> {
        let samples = self.figures["nanoseconds"][cpus.to_string()][row][who].as_array();
        samples.into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// The run in which it was timed.
    pub fn timed_in(&self, who: &str, row: &str, cpus: u32) -> Option<&str> {
        self.run_of(&["nanoseconds", &cpus.to_string(), row, who])
    }

    /// Go's time by ours, sample by sample. Nothing if they were not timed in turn:
    /// what the host did meanwhile may be all that such a ratio says.
    pub fn ratios(&self, row: &str, cpus: u32) -> Vec<f64> {
        let [ours, go] = ["ours", "go"].map(|who| self.timed_in(who, row, cpus));
        if ours.is_none() || ours != go {
            return Vec::new();
        }
        let [ours, go] = ["ours", "go"].map(|who| self.timed(who, row, cpus));
        ours.iter().zip(&go).map(|(ours, go)| go / ours).collect()
    }

    /// Puts a figure in its place and the run's name in the same place below
    /// `run_of`.
    fn put(&mut self, place: &[&str], figure: Value) {
        *at(&mut self.figures, place) = figure;
        *at(&mut self.figures["run_of"], place) = json!(self.run);
    }

    fn run_of(&self, place: &[&str]) -> Option<&str> {
        place.iter().fold(&self.figures["run_of"], |value, key| &value[*key]).as_str()
    }

    /// All of it but the runs of which no figure is left.
    fn in_use(&self) -> Value {
        let mut figures = self.figures.clone();
        let used = names(&figures["run_of"]);
        if let Some(runs) = figures["runs"].as_object_mut() {
            runs.retain(|run, _| used.contains(run));
        }
        figures
    }
}

/// The value at that place, which is made if it is not there.
fn at<'a>(value: &'a mut Value, place: &[&str]) -> &'a mut Value {
    place.iter().fold(value, |value, key| &mut value[*key])
}

/// All words in it, wherever they stand.
fn names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::String(name) => BTreeSet::from([name.clone()]),
        Value::Object(parts) => parts.values().flat_map(names).collect(),
        _ => BTreeSet::new(),
    }
}

/// Three decimals: more would be noise in the file.
fn round(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_and_leave_their_neighbours_alone() {
        let mut results = Results::default();
        results.set_counted("ours", "yield", 152.04964, 152.0);
        results.set_counted("go", "yield", 801.0, 802.0);
        assert_eq!(results.counted_again("go", "yield"), Some(802.0));
        results.set_timed("ours", "yield", 4, &[3.0, 1.0]);
        results.set_locked("ours", "yield", 2.5);
        assert_eq!(results.locked("ours", "yield"), Some(2.5));
        assert_eq!(results.locked("go", "yield"), None);
        assert_eq!(results.counted("ours", "yield"), Some(152.05));
        assert_eq!(results.counted("go", "yield"), Some(801.0));
        assert_eq!(results.timed("ours", "yield", 4), [3.0, 1.0]);
        assert_eq!(results.counted("ours", "select4"), None);
        assert!(results.timed("go", "yield", 4).is_empty());
    }

    #[test]
    fn a_figure_is_of_the_run_that_measured_it() {
        let mut results = Results::default();
        results.begin("1", &[("date", "monday".into())]);
        results.set_counted("ours", "yield", 150.0, 150.0);
        results.set_counted("ours", "mutex8", 16.0, 16.0);
        results.set_locked("ours", "mutex8", 2.0);
        results.set_grown("gs", 10, "ours", "yield", 150.0);
        results.begin("2", &[("date", "tuesday".into())]);
        results.set_counted("ours", "mutex8", 17.0, 17.0);
        results.set_grown("gs", 1000, "ours", "yield", 150.0);
        assert_eq!(results.counted_in("ours", "yield"), Some("1"));
        assert_eq!(results.counted_in("ours", "mutex8"), Some("2"));
        assert_eq!(results.counted_in("go", "mutex8"), None);
        assert_eq!(results.locked("ours", "mutex8"), None, "that was of the first run");
        assert_eq!(results.grown_in("gs", 10, "ours", "yield"), Some("1"));
        assert_eq!(results.grown_in("gs", 1000, "ours", "yield"), Some("2"));
        assert_eq!(results.noted("1", "date"), Some("monday"));
        assert_eq!(results.noted("1", "commit"), None);
    }

    #[test]
    fn times_of_two_runs_are_no_pairs() {
        let mut results = Results::default();
        results.begin("1", &[]);
        results.set_timed("ours", "yield", 4, &[1.0, 2.0]);
        results.set_timed("go", "yield", 4, &[3.0, 4.0]);
        assert_eq!(results.ratios("yield", 4), [3.0, 2.0]);
        results.begin("2", &[]);
        results.set_timed("ours", "yield", 4, &[1.0, 2.0]);
        assert!(results.ratios("yield", 4).is_empty());
        assert_eq!(results.timed("go", "yield", 4), [3.0, 4.0], "still what it took then");
    }

    #[test]
    fn figures_of_no_known_run_are_no_pairs() {
        let old = json!({ "nanoseconds": { "1": { "yield": { "ours": [1.0], "go": [2.0] } } } });
        let results = Results { figures: old, ..Results::default() };
        assert_eq!(results.timed("go", "yield", 1), [2.0]);
        assert!(results.ratios("yield", 1).is_empty());
    }

    #[test]
    fn a_run_is_forgotten_with_its_last_figure() {
        let mut results = Results::default();
        for run in ["1", "2"] {
            results.begin(run, &[("date", "a day".into())]);
            results.set_counted("ours", "yield", 150.0, 150.0);
        }
        assert_eq!(results.noted("1", "date"), Some("a day"));
        let kept = results.in_use();
        assert_eq!(kept["runs"], json!({ "2": { "date": "a day" } }));
        assert_eq!(kept["instructions"], results.figures["instructions"]);
    }

    #[test]
    fn what_grows_comes_back_in_order_of_number() {
        let mut results = Results::default();
        for (many, figure) in [(1000, 3.0), (10, 1.0), (200, 2.0)] {
            results.set_grown("gs", many, "ours", "yield", figure);
        }
        let points = [(10, 1.0), (200, 2.0), (1000, 3.0)];
        assert_eq!(results.grown("gs", "ours", "yield"), points);
        assert!(results.grown("ps", "ours", "yield").is_empty());
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]).map(|s| s.median), Some(3.0));
        assert_eq!(Spread::of(&[]), None);
    }
}
