//! The other picture: how cost grows with the number of Gs and of Ps.
//!
//! Two panels on one logarithmic scale of cost, each with a curve for each row and
//! system. Flat is the aim. Style and text are those of `chart`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::chart::{STYLE, escape, text};
use crate::measure::GROWN;
use crate::results::Results;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 430.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 380.0;
/// The range of cost that is shown.
const COSTS: (f64, f64) = (50.0, 20_000.0);

/// One half of the picture.
struct Panel {
    of: &'static str,
    title: &'static str,
    left: f64,
    right: f64,
    /// The range that is shown, and what is written below it.
    range: (f64, f64),
    marks: &'static [(f64, &'static str)],
}

const PANELS: [Panel; 2] = [
    Panel {
        of: "gs",
        title: "by the number of waiting Gs, one P",
        left: 70.0,
        right: 400.0,
        range: (10.0, 1e6),
        marks: &[(10.0, "10"), (1e3, "1,000"), (1e5, "100,000"), (1e6, "1,000,000")],
    },
    Panel {
        of: "ps",
        title: "by the number of Ps",
        left: 500.0,
        right: 740.0,
        range: (1.0, 64.0),
        marks: &[(1.0, "1"), (8.0, "8"), (64.0, "64")],
    },
];

/// Draws what is known into the file at `path`; nothing if nothing is known.
pub fn write(results: &Results, path: &Path) -> Result<()> {
    let is_known = |of: &str| GROWN.iter().any(|row| !results.grown(of, "ours", row).is_empty());
    if !PANELS.iter().any(|panel| is_known(panel.of)) {
        return Ok(());
    }
    fs::write(path, draw(results)).with_context(|| format!("writing {}", path.display()))
}

/// The picture as text.
pub fn draw(results: &Results) -> String {
    let [date, commit] = ["date", "commit"].map(|key| escape(results.noted(key)));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Instructions per operation by the number of Gs and Ps\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"background\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>\n"
    );
    svg += &text(20.0, 30.0, "title", "How the cost of an operation grows: flat is the aim");
    let about = format!(
        "instructions, counted by the emulator · runnext blue, Go orange · {date} · {commit}"
    );
    svg += &text(20.0, 50.0, "faint", &about);
    for panel in &PANELS {
        svg += &panel.axes();
        for row in GROWN {
            for who in ["go", "ours"] {
                svg += &panel.curve(&results.grown(panel.of, who, row), who, row);
            }
        }
    }
    svg + "</svg>\n"
}

impl Panel {
    fn axes(&self) -> String {
        let mut svg = text(self.left, TOP - 14.0, "", self.title);
        for (cost, label) in [(100.0, "100"), (1000.0, "1,000"), (10_000.0, "10,000")] {
            svg += &line("grid", (self.left, y_of(cost)), (self.right, y_of(cost)));
            svg += &text(self.left - 8.0, y_of(cost) + 4.0, "faint end", label);
        }
        for &(many, label) in self.marks {
            svg += &line("grid", (self.x_of(many), TOP), (self.x_of(many), BOTTOM));
            svg += &text(self.x_of(many), BOTTOM + 20.0, "faint middle", label);
        }
        svg
    }

    /// A curve with a dot for each figure, and its name behind the last.
    fn curve(&self, points: &[(u64, f64)], who: &str, row: &str) -> String {
        let at = |&(many, cost): &(u64, f64)| (self.x_of(many as f64), y_of(cost));
        let Some(last) = points.last().map(at) else { return String::new() };
        let mut path = String::new();
        let mut dots = String::new();
        for (x, y) in points.iter().map(at) {
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = writeln!(dots, "<circle class=\"{who}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        let curve = format!("<polyline class=\"{who} curve\" points=\"{}\"/>\n", path.trim_end());
        // Go's is above where it is; the colour says whose it is.
        curve + &dots + &text(last.0 + 8.0, last.1 + 4.0, "", row)
    }

    fn x_of(&self, many: f64) -> f64 {
        self.left + part(many, self.range) * (self.right - self.left)
    }
}

fn y_of(cost: f64) -> f64 {
    BOTTOM - part(cost, COSTS) * (BOTTOM - TOP)
}

/// Where it lies in the range, from 0 to 1; what is beyond stays at the edge.
fn part(value: f64, (low, high): (f64, f64)) -> f64 {
    let [value, low, high] = [value.max(1.0), low, high].map(f64::log10);
    ((value - low) / (high - low)).clamp(0.0, 1.0)
}

fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_dot_and_each_row_a_curve() {
        let mut results = Results::default();
        assert!(!draw(&results).contains("<polyline"));
        for (many, cost) in [(10, 150.0), (1_000_000, 151.0)] {
            results.set_grown("gs", many, "ours", "yield", cost);
        }
        results.set_grown("ps", 64, "go", "spawn_join", 9000.0);
        let svg = draw(&results);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<polyline").count(), 2);
    }

    #[test]
    fn what_is_beyond_stays_at_the_edge() {
        assert_eq!((y_of(1.0), y_of(1e9)), (BOTTOM, TOP));
        assert_eq!((PANELS[0].x_of(10.0), PANELS[0].x_of(1e6)), (70.0, 400.0));
    }
}
