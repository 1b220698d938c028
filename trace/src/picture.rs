//! `trace.svg`: the whole run as a still picture, for a report.
//!
//! A row is a P, cut into columns of equal time; a column is as high as the part
//! of its time in which Gs ran, in the colour of the one that ran longest. Below
//! are the runnable Gs and the idle Ps. Colours follow the reader's light or dark
//! mode, and the size does not depend on how many events there are.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::fmt::Write;

use crate::model::{G, Interval, Model, Point, Span};
use crate::page::escaped;
use crate::palette;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 936.0;
const TOP: f64 = 84.0;
const COLUMNS: usize = 440;
/// Of the rows for runnable Gs and idle Ps.
const RUNNABLE: f64 = 60.0;
const IDLE: f64 = 34.0;
const BETWEEN: f64 = 30.0;
/// Gs that are named below.
const LEGEND: usize = 4;

/// The picture as text.
///
/// ```
/// let svg = trace::picture::draw(&trace::model::Model::default(), "skynet");
/// assert!(svg.starts_with("<svg") && svg.contains("skynet"));
/// ```
pub fn draw(model: &Model, title: &str) -> String {
    draw_until(model, title, model.end_ns)
}

/// The same with the time axis up to `end_ns`, so that two pictures have one scale.
pub fn draw_until(model: &Model, title: &str, end_ns: u64) -> String {
    let row = match model.cpus.len() {
        0..=10 => 30.0,
        11..=32 => 18.0,
        _ => 8.0,
    };
    let rows_end = TOP + row * model.cpus.len() as f64;
    let runnable = rows_end + BETWEEN;
    let idle = runnable + RUNNABLE + BETWEEN;
    let end = idle + IDLE;
    let mut svg = head(model, title, end + 64.0);
    legend(model, end + 46.0, &mut svg);
    axis(end_ns, [(TOP - 4.0, rows_end), (runnable, runnable + RUNNABLE), (idle, end)], &mut svg);
    for (cpu, facts) in model.cpus.iter().enumerate() {
        let y = TOP + row * cpu as f64;
        if row > 12.0 || cpu % 4 == 0 {
            label(24.0, y + row / 2.0 + 4.0, "", &format!("P{cpu}"), &mut svg);
        }
        columns(model, &facts.spans, end_ns, y + 2.0, row - 4.0, &mut svg);
    }
    let most = model.runnable.iter().map(|point| point.value).max().unwrap_or(0).max(1);
    label(LEFT, runnable - 8.0, "faint", "runnable Gs, that wait for a P", &mut svg);
    area(&model.runnable, end_ns, most, (runnable, RUNNABLE), "runnable", &mut svg);
    let cpus = (model.cpus.len() as u32).max(1);
    label(LEFT, idle - 8.0, "faint", "idle Ps", &mut svg);
    area(&model.idle_ps, end_ns, cpus, (idle, IDLE), "idle", &mut svg);
    label(LEFT - 8.0, runnable + 10.0, "faint end", &most.to_string(), &mut svg);
    label(LEFT - 8.0, idle + 10.0, "faint end", &cpus.to_string(), &mut svg);
    svg + "</svg>\n"
}

fn head(model: &Model, title: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n\
         <title>{0}</title>\n<style>{1}</style>\n\
         <rect class=\"background\" width=\"{WIDTH}\" height=\"{height}\" rx=\"10\"/>\n",
        escaped(title),
        style()
    );
    label(24.0, 34.0, "title", title, &mut svg);
    let facts = format!(
        "{} Ps · {} · {} events, {} lost · {} Gs · {:.0} % busy",
        model.cpus.len(),
        time(model.end_ns),
        grouped(model.events),
        grouped(model.lost),
        grouped(model.gs.len() as u64),
        model.share_run() * 100.0
    );
    label(24.0, 56.0, "faint", &facts, &mut svg);
    svg
}

/// The Gs that ran longest, if they make a difference, and what the rest means.
fn legend(model: &Model, y: f64, svg: &mut String) {
    let all: u64 = model.gs.iter().fold(0, |sum: u64, g| sum.saturating_add(g.run_ns));
    let mut longest: Vec<&G> = model.gs.iter().filter(|g| g.run_ns > all / 20).collect();
    longest.sort_by_key(|g| Reverse(g.run_ns));
    let mut x = LEFT;
    for g in longest.into_iter().take(LEGEND) {
        let name: String = g.name.chars().take(14).collect();
        let colour = g.colour;
        writeln!(
            svg,
            "<rect class=\"c{colour}\" x=\"{x:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" rx=\"2\"/>",
            y - 9.0
        )
        .ok();
        let text = format!("G{} {name}", g.number);
        label(x + 16.0, y, "", text.trim_end(), svg);
        x += 36.0 + 7.5 * text.chars().count() as f64;
    }
    label(RIGHT, y, "faint end", "colour: a G · height: part of the time it ran", svg);
}

fn style() -> String {
    let colours = |list: &[&str; 16]| {
        list.iter()
            .enumerate()
            .fold(String::new(), |css, (i, colour)| css + &format!(".c{i}{{fill:{colour}}}"))
    };
    format!(
        "text{{font:13px system-ui,sans-serif;fill:#1b1f24}}.title{{font-size:18px;font-weight:600}}\
         .faint{{fill:#545d68}}.end{{text-anchor:end}}.middle{{text-anchor:middle}}\
         .background{{fill:#fff}}.grid{{stroke:#dfe3e8}}.row{{fill:#f3f5f7}}\
         .runnable{{fill:#5b8fd0}}.idle{{fill:#b9c1ca}}{}\
         @media(prefers-color-scheme:dark){{text{{fill:#e8ecf1}}.faint{{fill:#9fa9b5}}\
         .background{{fill:#14181e}}.grid{{stroke:#2a313a}}.row{{fill:#1a1f26}}\
         .runnable{{fill:#5591d8}}.idle{{fill:#4b5561}}{}}}",
        colours(&palette::LIGHT),
        colours(&palette::DARK)
    )
}

fn label(x: f64, y: f64, class: &str, text: &str, svg: &mut String) {
    let text = escaped(text);
    writeln!(svg, "<text x=\"{x:.0}\" y=\"{y:.0}\" class=\"{class}\">{text}</text>").ok();
}

/// Lines at round times, through each of the parts from top to bottom.
fn axis(end_ns: u64, parts: [(f64, f64); 3], svg: &mut String) {
    let step = round_step(end_ns);
    let bottom = parts[2].1 + 18.0;
    for at in (0..).map(|i| i * step).take_while(|&at| at <= end_ns).take(20) {
        let x = LEFT + (RIGHT - LEFT) * at as f64 / end_ns.max(1) as f64;
        for (from, to) in parts {
            writeln!(svg, "<path class=\"grid\" d=\"M{x:.1} {from:.0}V{to:.0}\"/>").ok();
        }
        let text = if at == 0 { "0".into() } else { time(at) };
        label(x, bottom, "faint middle", &text, svg);
    }
}

/// Of 1, 2 and 5 and their tenfolds, what cuts `end_ns` into at most 8 parts.
fn round_step(end_ns: u64) -> u64 {
    let mut ten = 1u64;
    loop {
        let fits = [1, 2, 5].map(|n| ten.saturating_mul(n)).into_iter().find(|n| end_ns / n <= 8);
        if let Some(step) = fits {
            return step;
        }
        ten = ten.saturating_mul(10);
    }
}

/// Columns of one P. Neighbours that are alike become one.
fn columns(model: &Model, spans: &[Span], end_ns: u64, y: f64, height: f64, svg: &mut String) {
    let width = RIGHT - LEFT;
    writeln!(
        svg,
        "<rect class=\"row\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"{height:.1}\"/>"
    )
    .ok();
    let shares = shares(model, spans, end_ns);
    let mut at = 0;
    while at < COLUMNS {
        let (colour, high) = shares[at];
        let run = shares[at..].iter().take_while(|&&other| other == (colour, high)).count();
        if high > 0 {
            let (x, wide) =
                (at as f64 * width / COLUMNS as f64, run as f64 * width / COLUMNS as f64);
            let high = (height * f64::from(high) / 100.0).max(1.0);
            writeln!(
                svg,
                "<rect class=\"c{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"/>",
                LEFT + x,
                y + height - high
            )
            .ok();
        }
        at += run;
    }
}

/// For each column the colour of the G that ran longest, and how much of the time
/// was used, in hundredths.
fn shares(model: &Model, spans: &[Span], end_ns: u64) -> Vec<(usize, u32)> {
    let mut longest = vec![(0.0, 0); COLUMNS];
    let mut busy = vec![0.0; COLUMNS];
    for span in spans {
        let colour = usize::from(model.gs[span.g as usize].colour);
        for (column, part) in parts(span.time, end_ns) {
            busy[column] += part;
            if part > longest[column].0 {
                longest[column] = (part, colour);
            }
        }
    }
    // In steps of five hundredths: finer ones only make the file longer.
    let share = |busy: &f64| ((busy * 20.0).ceil() as u32 * 5).min(100);
    longest.iter().zip(&busy).map(|(&(_, colour), busy)| (colour, share(busy))).collect()
}

/// The columns that `time` is in, and which part of each it takes, from 0 to 1.
fn parts(time: Interval, end_ns: u64) -> impl Iterator<Item = (usize, f64)> {
    let column_ns = (end_ns as f64 / COLUMNS as f64).max(1e-3);
    let (from, to) = (time.from as f64 / column_ns, time.to as f64 / column_ns);
    let columns = (from as usize).min(COLUMNS - 1)..=(to as usize).min(COLUMNS - 1);
    columns.map(move |column| {
        let part = to.min(column as f64 + 1.0) - from.max(column as f64);
        (column, part.max(0.0))
    })
}

/// The mean of a count in each column.
fn area(points: &[Point], end_ns: u64, top: u32, place: (f64, f64), class: &str, svg: &mut String) {
    let (y, height) = place;
    let mut path = format!("M{LEFT} {:.1}", y + height);
    let step = (RIGHT - LEFT) / COLUMNS as f64;
    for (column, mean) in means(points, end_ns).into_iter().enumerate() {
        let at = y + height * (1.0 - mean / f64::from(top));
        let x = LEFT + column as f64 * step;
        write!(path, "L{x:.1} {at:.1}H{:.1}", x + step).ok();
    }
    writeln!(svg, "<path class=\"{class}\" d=\"{path}V{:.1}Z\"/>", y + height).ok();
}

fn means(points: &[Point], end_ns: u64) -> Vec<f64> {
    let mut sums = vec![0.0; COLUMNS];
    let ends = points.iter().skip(1).map(|point| point.at).chain([end_ns]);
    for (point, to) in points.iter().zip(ends) {
        for (column, part) in parts(Interval { from: point.at, to }, end_ns) {
            sums[column] += part * f64::from(point.value);
        }
    }
    sums
}

/// A time in the unit that suits it.
///
/// ```
/// assert_eq!(trace::picture::time(1_500_000), "1.5 ms");
/// assert_eq!(trace::picture::time(20), "20 ns");
/// ```
pub fn time(ns: u64) -> String {
    let (size, unit) = match ns {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let text = format!("{:.2}", ns as f64 / size);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Thousands apart.
///
/// ```
/// assert_eq!(trace::picture::grouped(1234567), "1 234 567");
/// ```
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::simulate::{Plan, stream};

    fn svg(cpus: u32, events: usize) -> (Model, String) {
        let bytes = stream(Plan { cpus, events, seed: 2 });
        let model = Model::new(&decode(&bytes).expect("a stream"));
        let svg = draw(&model, "skynet & <friends>");
        (model, svg)
    }

    #[test]
    fn the_picture_has_rows_axis_title_and_both_modes() {
        let (_, svg) = svg(4, 3000);
        for part in [">P0<", ">P3<", "skynet &amp; &lt;friends&gt;", "prefers-color-scheme", " µs<"]
        {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches("<svg").count(), 1);
    }

    #[test]
    fn gs_that_ran_for_long_are_named() {
        let mut model = svg(2, 500).0;
        model.gs[3].run_ns = 1 << 40;
        model.gs[3].name = "hog".into();
        let svg = draw(&model, "");
        assert!(svg.contains(">G4 hog<"));
        assert!(!svg.contains(">G5 "), "the others ran for less than a twentieth");
    }

    #[test]
    fn its_size_does_not_grow_with_the_events() {
        let (small, large) = (svg(8, 5000).1.len(), svg(8, 60_000).1.len());
        assert!(large < 400_000 && large < 3 * small, "{small} {large}");
    }

    #[test]
    fn a_column_is_as_high_as_the_time_that_was_used() {
        let (model, _) = svg(2, 4000);
        let spans = &model.cpus[0].spans;
        let share: u32 = shares(&model, spans, model.end_ns).iter().map(|&(_, share)| share).sum();
        let run: u64 = spans.iter().map(|span| span.time.ns()).sum();
        let (drawn, real) =
            (f64::from(share) / 100.0 / COLUMNS as f64, run as f64 / model.end_ns as f64);
        assert!((drawn - real).abs() < 0.05, "{drawn} is drawn, {real} is real");
    }

    #[test]
    fn steps_of_the_axis_are_round_and_few() {
        for end in [0, 1, 99, 1234, 9_999_999, 1 << 52, u64::MAX] {
            let step = round_step(end);
            assert!(end / step <= 8, "{end}");
            assert!(step.to_string().trim_end_matches('0').len() <= 1);
        }
    }
}
