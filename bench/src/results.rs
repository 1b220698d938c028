//! The figures: kept in `target/bench.json`, replaced one by one.
//!
//! A run of one workload leaves the others as they were, so the file is what
//! was last measured of each. Written by `measure`, read by everything that
//! shows something.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// All that was measured, and with what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    figures: Value,
    /// Where they are kept; `None` for figures that nobody will ask for again.
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
        Self { figures, file: Some(file) }
    }

    /// Writes it where [`load`](Self::load) finds it, if it came from there. What
    /// began as nothing, by `default`, is not kept.
    pub fn save(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = serde_json::to_string_pretty(&self.figures).context("making JSON")?;
        fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))
    }

    /// Notes something about how it was measured, such as a version.
    pub fn note(&mut self, key: &str, value: impl Into<String>) {
        self.figures["about"][key] = json!(value.into());
    }

    /// What was noted.
    pub fn noted(&self, key: &str) -> &str {
        self.figures["about"][key].as_str().unwrap_or("unknown")
    }

    /// Keeps what an operation of `row` takes `who` in instructions, and what it
    /// took the second time.
    pub fn set_counted(&mut self, who: &str, row: &str, figure: f64, again: f64) {
        self.figures["instructions"][row][who] = json!(round(figure));
        self.figures["again"][row][who] = json!(round(again));
    }

    /// What it took the second time.
    pub fn counted_again(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["again"][row][who].as_f64()
    }

    /// What an operation takes in instructions.
    pub fn counted(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["instructions"][row][who].as_f64()
    }

    /// Keeps how many locked instructions an operation of `row` has.
    pub fn set_locked(&mut self, who: &str, row: &str, figure: f64) {
        self.figures["locked"][row][who] = json!(round(figure));
    }

    /// How many locked instructions an operation has.
    pub fn locked(&self, who: &str, row: &str) -> Option<f64> {
        self.figures["locked"][row][who].as_f64()
    }

    /// Keeps what an operation takes in instructions where there are so many of
    /// something.
    pub fn set_grown(&mut self, of: &str, many: u64, who: &str, row: &str, figure: f64) {
        self.figures["growth"][of][row][who][many.to_string()] = json!(round(figure));
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

    /// Keeps the samples of what an operation takes in nanoseconds.
    pub fn set_timed(&mut self, who: &str, row: &str, cpus: u32, samples: &[f64]) {
        let samples: Vec<f64> = samples.iter().copied().map(round).collect();
        self.figures["nanoseconds"][cpus.to_string()][row][who] = json!(samples);
    }

    /// What an operation takes in nanoseconds, in the order of the samples.
    pub fn timed(&self, who: &str, row: &str, cpus: u32) -> Vec<f64> {
        let samples = self.figures["nanoseconds"][cpus.to_string()][row][who].as_array();
        samples.into_iter().flatten().filter_map(Value::as_f64).collect()
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
        results.note("qemu", "7.2");
        assert_eq!(results.counted("ours", "yield"), Some(152.05));
        assert_eq!(results.counted("go", "yield"), Some(801.0));
        assert_eq!(results.timed("ours", "yield", 4), [3.0, 1.0]);
        assert_eq!(results.counted("ours", "select4"), None);
        assert!(results.timed("go", "yield", 4).is_empty());
        assert_eq!((results.noted("qemu"), results.noted("go")), ("7.2", "unknown"));
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
