//! `compare.html`: two traces of one program side by side, and what differs.
//!
//! Both pictures have one time axis, so that lengths can be compared by eye; the table has what a
//! change of the scheduler changes. Figures of virtual time repeat exactly, so every difference is the
//! change's; by the host's clock they are one sample each.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::model::{Model, findings};
use crate::page::escaped;
use crate::picture::{self, grouped, time};
use crate::wire::Kind;

/// A trace and its name.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it shows.
    pub model: &'a Model,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Time,
    Percent,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Count => grouped(value as u64),
            Unit::Time => time(value as u64),
            Unit::Percent => format!("{value:.1} %"),
        }
    }
}

/// A figure that both traces have.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub what: &'static str,
    /// Of the first trace and of the second.
    pub values: [f64; 2],
    unit: Unit,
}

impl Figure {
    /// How far the second is from the first, in percent; `None` if the first is 0.
    pub fn change(&self) -> Option<f64> {
        let [a, b] = self.values;
        (a != 0.0).then(|| (b - a) / a * 100.0)
    }

    /// The columns of a table: the two values and the change.
    pub fn columns(&self) -> [String; 3] {
        let [a, b] = self.values.map(|value| self.unit.show(value));
        let change = match (self.unit, self.change()) {
            _ if self.values[0] == self.values[1] => "same".into(),
            (Unit::Percent, _) => format!("{:+.1} points", self.values[1] - self.values[0]),
            (_, Some(change)) => format!("{change:+.1} %"),
            (_, None) => "new".into(),
        };
        [a, b, change]
    }
}

/// All figures.
///
/// ```
/// use trace::{compare::{Side, figures}, decode::decode, model::Model, simulate};
/// let stream = simulate::stream(simulate::Plan { cpus: 2, events: 500, seed: 1 });
/// let model = Model::new(&decode(&stream)?);
/// let side = Side { name: "before", model: &model };
/// assert!(figures([side, side]).iter().all(|figure| figure.columns()[2] == "same"));
/// # Ok::<(), trace::decode::Unusable>(())
/// ```
pub fn figures(sides: [Side; 2]) -> Vec<Figure> {
    let figure = |what, unit, of: &dyn Fn(&Model) -> f64| Figure {
        what,
        values: sides.map(|side| of(side.model)),
        unit,
    };
    let sum =
        |model: &Model, kind| model.cpus.iter().map(|cpu| cpu.counts.of(kind)).sum::<u64>() as f64;
    let total = |model: &Model, of: fn(&crate::model::G) -> u64| {
        model.gs.iter().map(of).fold(0u64, u64::saturating_add) as f64
    };
    let longest =
        |waits: &[crate::model::Wait]| waits.first().map_or(0, |wait| wait.time.ns()) as f64;
    vec![
        figure("from the first G to the last", Unit::Time, &|model| makespan(model) as f64),
        figure("busy", Unit::Percent, &|model| model.share_run() * 100.0),
        figure("Gs", Unit::Count, &|model| model.gs.len() as f64),
        figure("switches", Unit::Count, &|model| model.num_spans() as f64),
        figure("preemptions", Unit::Count, &|model| sum(model, Kind::Expire)),
        figure("thefts", Unit::Count, &|model| model.steals.len() as f64),
        figure("Gs stolen", Unit::Count, &|model| {
            model.steals.iter().map(|steal| f64::from(steal.count)).sum()
        }),
        figure("wake-ups sent", Unit::Count, &|model| sum(model, Kind::WakeSent)),
        figure("halts", Unit::Count, &|model| sum(model, Kind::Halt)),
        figure("ticks", Unit::Count, &|model| sum(model, Kind::Tick)),
        figure("waited for a P, all Gs", Unit::Time, &|model| total(model, |g| g.queued_ns)),
        figure("waited for a P, longest", Unit::Time, &|model| longest(&model.longest_queued)),
        figure("waited for something, all Gs", Unit::Time, &|model| total(model, |g| g.parked_ns)),
        figure("host was elsewhere", Unit::Percent, &|model| model.share_elsewhere() * 100.0),
    ]
}

/// From the begin of the first span to the end of the last.
fn makespan(model: &Model) -> u64 {
    let spans = || model.cpus.iter().flat_map(|cpu| &cpu.spans).map(|span| span.time);
    let (first, last) = (spans().map(|time| time.from).min(), spans().map(|time| time.to).max());
    last.unwrap_or(0) - first.unwrap_or(0)
}

/// The figures for a terminal.
pub fn table(sides: [Side; 2]) -> String {
    let mut lines = vec![["", sides[0].name, sides[1].name, "change"].map(String::from)];
    for figure in figures(sides) {
        let [a, b, change] = figure.columns();
        lines.push([figure.what.into(), a, b, change]);
    }
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for [what, a, b, change] in &lines {
        let [first, second, third, fourth] = widths;
        let line = format!("{what:first$}  {a:>second$}  {b:>third$}  {change:>fourth$}");
        writeln!(text, "{}", line.trim_end()).ok();
    }
    text
}

/// The whole page.
pub fn draw(sides: [Side; 2]) -> String {
    let title = format!("{} and {}", sides[0].name, sides[1].name);
    let end_ns = sides.map(|side| side.model.end_ns).into_iter().max().unwrap_or(0);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n<style>{STYLE}</style></head>\n\
         <body><h1>{0}</h1>\n",
        escaped(&title)
    );
    writeln!(
        page,
        "<table><thead><tr><th scope=\"col\"></th><th scope=\"col\">{}</th><th scope=\"col\">{}</th>\
         <th scope=\"col\">change</th></tr></thead><tbody>",
        escaped(sides[0].name),
        escaped(sides[1].name)
    )
    .ok();
    for figure in figures(sides) {
        let [a, b, change] = figure.columns();
        let class = if change == "same" { " class=\"same\"" } else { "" };
        let what = figure.what;
        writeln!(
            page,
            "<tr{class}><th scope=\"row\">{what}</th><td>{a}</td><td>{b}</td><td>{change}</td></tr>"
        )
        .ok();
    }
    page += "</tbody></table>\n";
    for side in sides {
        page += "<section>\n";
        page += &picture::draw_until(side.model, side.name, end_ns);
        page += "<ul>";
        for finding in findings::find(side.model) {
            let class = if finding.is_bad { " class=\"bad\"" } else { "" };
            write!(page, "<li{class}>{}</li>", escaped(&finding.text)).ok();
        }
        page += "</ul>\n</section>\n";
    }
    page + "</body></html>\n"
}

const STYLE: &str = "\
:root{--page:#f6f7f8;--card:#fff;--ink:#1b1f24;--soft:#545d68;--line:#dfe3e8;--bad:#c22f2f}\
@media(prefers-color-scheme:dark){:root{--page:#0c0f13;--card:#14181e;--ink:#e8ecf1;--soft:#9fa9b5;\
--line:#2a313a;--bad:#ff7b72}}\
body{margin:0 auto;max-width:1000px;padding:20px 16px 32px;background:var(--page);color:var(--ink);\
font:14px/1.5 system-ui,sans-serif;font-variant-numeric:tabular-nums}\
h1{font-size:20px;overflow-wrap:anywhere}\
table{width:100%;border-collapse:collapse;background:var(--card);border:1px solid var(--line)}\
th,td{padding:4px 12px;text-align:right;border-bottom:1px solid var(--line)}\
th[scope=row]{text-align:left;font-weight:500}thead th{color:var(--soft);font-weight:500}\
.same td:last-child{color:var(--soft)}section{margin-top:20px}\
svg{display:block;width:100%;height:auto}ul{margin:8px 0 0;padding-left:20px}.bad{color:var(--bad)}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::simulate::{Plan, stream};

    fn model(seed: u64, events: usize) -> Model {
        Model::new(&decode(&stream(Plan { cpus: 4, events, seed })).expect("a stream"))
    }

    #[test]
    fn what_differs_is_counted_and_what_does_not_is_called_the_same() {
        let models = [model(1, 2000), model(1, 4000)];
        let sides = [Side { name: "a", model: &models[0] }, Side { name: "b", model: &models[1] }];
        let figures = figures(sides);
        let of = |what| figures.iter().find(|figure| figure.what == what).expect("a figure");
        let switches = of("switches");
        assert_eq!(switches.values, models.each_ref().map(|model| model.num_spans() as f64));
        assert!(switches.columns()[2].starts_with('+'), "{:?}", switches.columns());
        assert_eq!(of("host was elsewhere").columns()[2], "same");
        assert_eq!(table(sides).lines().count(), figures.len() + 1);
    }

    #[test]
    fn both_pictures_have_one_time_axis() {
        let models = [model(1, 1000), model(1, 8000)];
        let page =
            draw([Side { name: "<a>", model: &models[0] }, Side { name: "b", model: &models[1] }]);
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("&lt;a&gt;") && !page.contains("<a>"));
        let (first, second) = page.split_once("</svg>").expect("two pictures");
        let lines = |part: &str| {
            part.lines()
                .filter(|line| line.contains("class=\"grid\""))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(first), lines(second));
    }
}
