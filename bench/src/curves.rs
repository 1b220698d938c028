//! The other picture: how cost grows with the number of Gs and of Ps.
//!
//! Two panels on one logarithmic scale of cost, each with a curve for each row and
//! system. Flat is the aim. Style and text are those of `chart`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::chart::{STYLE, text};
use crate::counted::GROWN;
use crate::origin::Origins;
use crate::results::Results;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 430.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 380.0;
/// How far apart two lines of text are at least.
const LINE: f64 = 15.0;
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
        right: 340.0,
        range: (10.0, 1e6),
        marks: &[(10.0, "10"), (1e3, "10³"), (1e5, "10⁵"), (1e6, "10⁶")],
    },
    Panel {
        of: "ps",
        title: "by the number of Ps",
        left: 540.0,
        right: 770.0,
        range: (1.0, 255.0),
        marks: &[(1.0, "1"), (8.0, "8"), (64.0, "64"), (255.0, "255")],
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
    let when = Origins::grown(results, &PANELS.map(|panel| panel.of)).short();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Instructions per operation by the number of Gs and Ps\">\n\
         <style>{STYLE}</style>\n\
         <rect class=\"background\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>\n"
    );
    svg += &text(20.0, 30.0, "title", "How the cost of an operation grows: flat is the aim");
    let about = format!("instructions, counted by the emulator · runnext blue, Go orange · {when}");
    svg += &text(20.0, 50.0, "faint", &about);
    for panel in &PANELS {
        svg += &panel.axes();
        let mut names = Vec::new();
        for row in GROWN {
            for who in ["go", "ours"] {
                let points = results.grown(panel.of, who, row);
                svg += &panel.curve(&points, who);
                names.extend(points.last().map(|last| (y_of(last.1), row)));
            }
        }
        svg += &panel.names(names);
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

    /// A curve with a dot for each figure. The colour says whose it is.
    fn curve(&self, points: &[(u64, f64)], who: &str) -> String {
        let mut path = String::new();
        let mut dots = String::new();
        for &(many, cost) in points {
            let (x, y) = (self.x_of(many as f64), y_of(cost));
            let _ = write!(path, "{x:.1},{y:.1} ");
            let _ = writeln!(dots, "<circle class=\"{who}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        match path.trim_end() {
            "" => String::new(),
            path => format!("<polyline class=\"{who} curve\" points=\"{path}\"/>\n{dots}"),
        }
    }

    /// The names behind the ends of the curves, each below the one above it.
    fn names(&self, mut names: Vec<(f64, &str)>) -> String {
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = TOP;
        let place = |(y, name): (f64, &str)| {
            let at = y.max(free);
            free = at + LINE;
            text(self.right + 8.0, at + 4.0, "", name)
        };
        names.into_iter().map(place).collect()
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
    fn names_do_not_stand_on_each_other() {
        let svg = PANELS[0].names(vec![(200.0, "b"), (199.0, "a"), (300.0, "c")]);
        let lines: Vec<&str> = svg.lines().collect();
        let y = |line: &str| line.split('"').nth(5).and_then(|y| y.parse::<f64>().ok());
        assert_eq!([y(lines[0]), y(lines[1])], [Some(203.0), Some(203.0 + LINE)]);
        assert_eq!(y(lines[2]), Some(304.0));
    }

    #[test]
    fn what_is_beyond_stays_at_the_edge() {
        assert_eq!((y_of(1.0), y_of(1e9)), (BOTTOM, TOP));
        assert_eq!((PANELS[0].x_of(10.0), PANELS[0].x_of(1e6)), (70.0, 340.0));
    }
}
