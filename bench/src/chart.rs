//! The picture: ours and Go's on one scale.
//!
//! Dots on a logarithmic scale, for a bar's length would say nothing there; the
//! line between the two is the ratio, and a tick marks the budget. Colours follow
//! the reader's light or dark mode.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::budgets::{Budgets, Row, Unit};
use crate::origin::Origins;
use crate::results::Results;
use crate::show::number;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 800.0;
const TOP: f64 = 92.0;
const STEP: f64 = 34.0;

/// What all pictures look like.
pub(crate) const STYLE: &str = "
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 17px; font-weight: 600 }
  .faint { fill: #6e7781 } .end { text-anchor: end } .middle { text-anchor: middle }
  .background { fill: #ffffff }
  .grid { stroke: #d8dee4 } .link { stroke: #afb8c1; stroke-width: 3 }
  .ours { fill: #0969da; stroke: #0969da } .go { fill: #bc4c00; stroke: #bc4c00 }
  .curve { fill: none; stroke-width: 2 } text { stroke: none } .budget { stroke: #24292f; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .faint { fill: #9198a1 } .background { fill: #0d1117 }
    .grid { stroke: #2a313c } .link { stroke: #57606a } .budget { stroke: #e6edf3 }
    .ours { fill: #58a6ff; stroke: #58a6ff } .go { fill: #f0883e; stroke: #f0883e }
    .curve { fill: none }
  }
";

/// Draws what is known into the file at `path`.
pub fn write(budgets: &Budgets, results: &Results, path: &Path) -> Result<()> {
    fs::write(path, draw(budgets, results)).with_context(|| format!("writing {}", path.display()))
}

/// The picture as text.
pub fn draw(budgets: &Budgets, results: &Results) -> String {
    let rows: Vec<&Row> = budgets
        .rows
        .iter()
        .filter(|row| results.counted("ours", &row.name).is_some() && row.unit == Unit::Cost)
        .collect();
    let bottom = TOP + STEP * rows.len() as f64;
    let origins = Origins::counted(budgets, results, &[Unit::Cost]);
    let mut svg = head(bottom + 40.0, &origins.short());
    svg += &grid(bottom);
    for (i, row) in rows.iter().enumerate() {
        svg += &line(row, results, TOP + STEP * (i as f64 + 0.5));
    }
    svg + "</svg>\n"
}

fn head(height: f64, when: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Instructions per operation, runnext and Go\">\n<style>{STYLE}</style>\n\
         <rect class=\"background\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n"
    );
    svg += &text(20.0, 30.0, "title", "Instructions per operation: fewer is better");
    let about = format!("one CPU, counted by the emulator · {when}");
    svg += &text(20.0, 50.0, "faint", &about);
    let legend = TOP - 22.0;
    svg += &dot(LEFT + 6.0, legend, "ours");
    svg += &text(LEFT + 18.0, legend + 4.0, "", "runnext");
    svg += &dot(LEFT + 96.0, legend, "go");
    svg += &text(LEFT + 108.0, legend + 4.0, "", "Go on Linux");
    svg += &tick(LEFT + 206.0, legend);
    svg += &text(LEFT + 216.0, legend + 4.0, "", "budget");
    svg + &text(WIDTH - 20.0, legend + 4.0, "faint end", "Go ÷ ours")
}

fn grid(bottom: f64) -> String {
    let mut svg = String::new();
    for (at, label) in [(10.0, "10"), (100.0, "100"), (1000.0, "1,000"), (10000.0, "10,000")] {
        let x = x_of(at);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
        );
        svg += &text(x, bottom + 20.0, "faint middle", label);
    }
    svg
}

fn line(row: &Row, results: &Results, y: f64) -> String {
    let [ours, go] = ["ours", "go"].map(|who| results.counted(who, &row.name));
    let mut svg = text(20.0, y + 4.0, "", &row.name);
    if let (Some(ours), Some(go)) = (ours, go) {
        let [from, to] = [ours, go].map(x_of);
        let _ = writeln!(
            svg,
            "<line class=\"link\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y}\" y2=\"{y}\"/>"
        );
        svg += &text(WIDTH - 20.0, y + 4.0, "end", &format!("{:.1}×", go / ours));
    }
    svg += &row.cost.budget.map_or(String::new(), |budget| tick(x_of(budget), y));
    // Labels on the outer sides, so that the line between stays free.
    let is_ours_left = go.is_none_or(|go| ours.is_some_and(|ours| ours <= go));
    for (figure, class, is_left) in [(go, "go", !is_ours_left), (ours, "ours", is_ours_left)] {
        if let Some(figure) = figure {
            let x = x_of(figure);
            let (at, side) = if is_left { (x - 11.0, "faint end") } else { (x + 11.0, "faint") };
            svg += &dot(x, y, class);
            svg += &text(at, y + 4.0, side, &number(Some(figure)));
        }
    }
    svg
}

/// From 5 to 20,000; what is beyond stays at the edge.
fn x_of(figure: f64) -> f64 {
    let [low, high] = [5.0_f64, 20_000.0].map(f64::log10);
    let part = (figure.max(1.0).log10() - low) / (high - low);
    LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
}

fn dot(x: f64, y: f64, class: &str) -> String {
    format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y}\" r=\"6\"/>\n")
}

fn tick(x: f64, y: f64) -> String {
    let (from, to) = (y - 10.0, y + 10.0);
    format!("<line class=\"budget\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from}\" y2=\"{to}\"/>\n")
}

/// A line of text at that place.
pub(crate) fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">{}</text>\n", escape(text))
}

/// As SVG wants it.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_that_was_measured_has_its_dots() {
        let text = "[[row]]\nname='a'\nwhat='x'\nbudget=9\n[[row]]\nname='b'\nwhat='y'";
        let budgets = Budgets::parse(text).expect("good");
        let mut results = Results::default();
        results.set_counted("ours", "a", 10.0, 10.0);
        let legend = 2;
        let dots = |svg: &str| svg.matches("<circle").count() - legend;
        assert_eq!(dots(&draw(&budgets, &results)), 1);
        results.set_counted("go", "a", 100.0, 100.0);
        assert_eq!(dots(&draw(&budgets, &results)), 2);
        assert!(draw(&budgets, &results).contains("10.0×"));
    }

    #[test]
    fn the_scale_is_logarithmic_and_stays_inside() {
        let step = x_of(100.0) - x_of(10.0);
        assert!((x_of(1000.0) - x_of(100.0) - step).abs() < 1e-6);
        assert_eq!((x_of(0.0), x_of(1e9)), (LEFT, RIGHT));
    }
}
