//! The six scheduling systems side by side: boots each, and writes `docs/systems.md` and its picture.
//!
//! Two machines for each system, both in virtual time: one CPU, where an instruction is a
//! nanosecond, and four, which take short turns.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use crate::chart::STYLE;
use crate::machine::{Figure, Reading, Shape, System, run};
use crate::show::{Table, number};

/// In the order in which each mends what the one before lacks.
const NAMES: [&str; 6] = ["1to1", "n1", "pool", "shared", "distributed", "mpn"];

/// What is measured, and why each system has its figure.
struct Measure {
    /// As the guest reports it.
    row: &'static str,
    title: &'static str,
    unit: &'static str,
    /// A line for each system, in the order of [`NAMES`].
    why: [&'static str; 6],
}

const ON_ONE: [&str; 5] =
    ["yield=50000", "chan_pingpong=20000", "spawn_join=20000", "blocking_nop=50000", "handoff=50"];
const ON_FOUR: [&str; 4] = ["contended", "elsewhere=0", "elsewhere=100", "elsewhere=1000"];

#[rustfmt::skip]
const MEASURES: [Measure; 12] = [
    Measure { row: "task_bytes", title: "Memory of a G that waits", unit: "bytes", why: [
        "two stacks: a page of its own, and the four pages of its M",
        "one page of stack; the one M is shared",
        "as 1to1: the thread is used again, but each G that waits has one",
        "one page of stack, and its share of the record",
        "as shared: a G without a call has no M",
        "as shared",
    ]},
    Measure { row: "spawn_join", title: "Start a G and join it", unit: "instructions", why: [
        "two stacks are taken from the pool of stacks, mapped, and given back",
        "**wins with mpn**: the same code on one P",
        "the thread is kept with the record: reuse is most of what Go gains over 1to1",
        "the lock of the queue for the new G, and again to take it",
        "the code of mpn, and the test for its system",
        "a record from the P's own list, the run-next slot, no lock",
    ]},
    Measure { row: "yield", title: "Switch to another G", unit: "instructions", why: [
        "the M under the CPU changes, and the queue's lock is taken twice",
        "**wins with mpn**: one rotation of the ring",
        "as 1to1: what differs is how threads are made, not how they switch",
        "out of the queue and into it, under its lock",
        "a rotation of the ring, and the test for its system",
        "a rotation of the ring",
    ]},
    Measure { row: "chan_pingpong", title: "A value there and one back", unit: "instructions", why: [
        "two switches of threads for each value",
        "**wins with mpn**: run-next in one slice",
        "as 1to1",
        "each wake-up goes through the queue, and begins a slice",
        "run-next, and the test for its system",
        "run-next: the G that is readied goes on in the same slice",
    ]},
    Measure { row: "blocking_nop", title: "A call that does not block", unit: "instructions", why: [
        "**wins**: the G is on its M already, and nothing changes hands",
        "to the M's stack and back",
        "**wins with 1to1**, for the same reason",
        "to the M's stack and back",
        "to the M's stack and back",
        "to the M's stack and back",
    ]},
    Measure { row: "handoff_p50", title: "A call blocks: until the next G runs", unit: "instructions", why: [
        "a switch like any other: no call is special",
        "nothing runs until the call is over, here 1 ms later",
        "as 1to1",
        "a spare M takes over CPU and P, and takes the next G from the queue",
        "a spare M takes over with a ring of its own; the next G is stolen from the ring that has left",
        "a spare M takes over CPU and P, with the ring",
    ]},
    Measure { row: "call_new_m", title: "Start a G that waits in a call, on a new M", unit: "instructions", why: [
        "its M is made with it, as for any other G",
        "never: the call stops the G that would count it",
        "as 1to1: there is no thread yet to be used again",
        "the spare M that the call leaves behind is made: a stack, mapped",
        "as shared, with a ring; and a thief reads the ring of each M that waits",
        "as shared",
    ]},
    Measure { row: "call_spare_m", title: "The same, on an M that another call has left", unit: "instructions", why: [
        "no M is kept, but its stack was used before, and has its pages",
        "never, as above",
        "the thread is kept with the record",
        "from the list of spare Ms: what is saved is the new stack",
        "as shared, and the rings are read as before",
        "as shared",
    ]},
    Measure { row: "locks", title: "Locks of a shared queue for 1,000 yields, 4 CPUs", unit: "locks", why: [
        "two for each yield, of the one list of threads",
        "none: one P has one ring",
        "as 1to1",
        "two for each yield: one to put the G, one to take the next",
        "none",
        "none",
    ]},
    Measure { row: "elsewhere_0", title: "A new G until another CPU runs it, 4 CPUs", unit: "ns", why: [
        "one list, one look; then the G's M is mounted",
        "never: there is no other CPU",
        "as 1to1",
        "**wins**: one list, one look, no victim to choose",
        "the woken CPU steals it from the ring of an M",
        "the woken CPU steals it from the ring of a P",
    ]},
    Measure { row: "elsewhere_100", title: "The same while 100 calls are blocked", unit: "ns", why: [
        "a blocked thread is in no list",
        "never: one blocked call stops all",
        "a blocked thread is in no list",
        "blocked calls have no queue",
        "grows: a thief, and a CPU that goes idle, reads the ring of each M that there is",
        "as many rings are read as CPUs work",
    ]},
    Measure { row: "elsewhere_1000", title: "The same while 1,000 calls are blocked", unit: "ns", why: [
        "a blocked thread is in no list",
        "never: one blocked call stops all",
        "a blocked thread is in no list",
        "blocked calls have no queue",
        "grows: ten times as many rings as in the row above",
        "flat, as no ring more is read",
    ]},
];

/// The numbers of CPUs of the curves.
const CPUS: [u32; 4] = [1, 2, 4, 8];

type Measured = Vec<(&'static str, Vec<Figure>)>;

/// Boots all six, prints the table, writes page and picture.
pub fn compare(ours: &System) -> Result<()> {
    let mut all: Measured = Vec::new();
    for name in NAMES {
        eprintln!("{name}: one CPU, then four");
        let boot = format!("system={name}");
        let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let memory = Shape { boot: boot.clone(), ..Shape::counted() };
        let one = Shape { boot: boot.clone(), ..Shape::counted() };
        let four = Shape { cpus: 4, boot, reading: Reading::Turns, ..Shape::counted() };
        let mut figures = run(ours, &memory, &words(&["waiting_g"]), None, |_| ())?;
        // In a machine where no M is spare yet, and none is left for the others.
        figures.extend(run(ours, &one, &words(&["calls=200"]), None, |_| ())?);
        figures.extend(run(ours, &one, &words(&ON_ONE), None, |_| ())?);
        figures.extend(run(ours, &four, &words(&ON_FOUR), None, |_| ())?);
        for cpus in CPUS {
            let shape = Shape { cpus, ..four.clone() };
            figures.extend(run(ours, &shape, &words(&["turns"]), None, |_| ())?);
        }
        all.push((name, figures));
    }
    print!("{}", table(&all).titled("six scheduling systems"));
    let path = boot::root().join("docs/systems.md");
    fs::write(&path, page(&all)).with_context(|| format!("writing {}", path.display()))?;
    let picture = path.with_extension("svg");
    fs::write(&picture, draw(&all)).with_context(|| format!("writing {}", picture.display()))?;
    let curves = path.with_file_name("systems-cpus.svg");
    fs::write(&curves, draw_curves(&all))
        .with_context(|| format!("writing {}", curves.display()))?;
    println!("\ndocs/systems.md, docs/systems.svg, docs/systems-cpus.svg");
    Ok(())
}

fn value(figures: &[Figure], row: &str) -> Option<f64> {
    figures.iter().find(|figure| figure.row == row).map(|figure| figure.value)
}

fn cell(figures: &[Figure], row: &str) -> String {
    value(figures, row).map_or("—".into(), |value| number(Some(value)))
}

fn table(all: &Measured) -> Table {
    let head = ["", "unit"].into_iter().chain(NAMES).map(String::from).collect();
    let line = |measure: &Measure| {
        let cells = all.iter().map(|(_, figures)| cell(figures, measure.row));
        [measure.title.into(), measure.unit.into()].into_iter().chain(cells).collect()
    };
    Table { head, lines: MEASURES.iter().map(line).collect() }
}

/// The whole page: nothing on it is written by hand.
fn page(all: &Measured) -> String {
    let mut text = String::from(
        "# Six scheduling systems\n\n\
         Written by `make systems`, which boots this kernel six times with `system=`. What each system \
         is, its four answers and its drawback stand in one file each in `kernel/sched/src/system`; \
         a seventh is one file and one line in a crate of your own, as `examples/system` has it: \
         `make run APP=examples/system ARGS=system=lifo`. One CPU counts instructions; four take short turns in \
         virtual time, in which a nanosecond is an instruction of one of them.\n\n\
         ![the figures below as bars](systems.svg)\n\n",
    );
    text += &table(all).to_markdown();
    text += "\nAll but `n1` and `mpn` go the slow way round the fast paths, which costs them some \
             dozens of instructions at each switch that are this kernel's and not the system's.\n\n\
             Three figures differ from those of other pages, as they are of other machines. The \
             memory of a G that waits counts 500 Gs here; a million share partly filled pages \
             better, and the README has their figure. A value there and one back takes some \
             instructions less in `docs/benchmarks.md`, where nothing precedes it in its machine \
             but itself. A call that blocks is timed from outside, with a send before it and two \
             readings of the clock; `call_to_g` in `docs/benchmarks.md` counts the kernel's part \
             alone.\n\n\
             The rows in ns include making the G, and vary by some µs with where the turns of \
             the CPUs fall. `pool` does with a blocked call what `1to1` does: for figures of it \
             in these rows that are above those of `1to1`, or fall as calls are added, no other \
             cause has been found.\n";
    text += &by_cpus(all);
    for measure in &MEASURES {
        let _ = write!(text, "\n## {}\n\n", measure.title);
        for ((name, figures), why) in all.iter().zip(measure.why) {
            let _ = writeln!(text, "- `{name}`, {}: {why}.", cell(figures, measure.row));
        }
    }
    text
}

/// The section with the curves.
fn by_cpus(all: &Measured) -> String {
    let head = ["CPUs"].into_iter().chain(NAMES).map(String::from).collect();
    let line = |cpus: u32| {
        let cells = all.iter().map(|(_, figures)| cell(figures, &turns_row(cpus)));
        [cpus.to_string()].into_iter().chain(cells).collect()
    };
    let table = Table { head, lines: CPUS.map(line).to_vec() };
    format!(
        "\n## With more CPUs\n\n\
         ![turns by the number of CPUs](systems-cpus.svg)\n\n\
         Turns that Gs get while each CPU executes a million instructions; four Gs for each CPU work \
         for some 50 instructions and yield.\n\n{}\n\
         Counted is what the CPUs that run Gs execute. So `n1` stays where it is, and the others \
         grow with the CPUs, each from what a switch costs under it. **What this count cannot show** is \
         why `1to1`, `pool` and `shared` stop growing on hardware: a CPU that waits for the queue's \
         lock pauses, which costs the emulator nothing, and neither does a cache line that \
         moves between CPUs. The row of locks above says how often all CPUs must pass the one lock, and \
         program `falseshare` counts what becomes of such a line.\n",
        table.to_markdown()
    )
}

fn turns_row(cpus: u32) -> String {
    format!("turns_{cpus}")
}

/// The curves: both scales are logarithmic, so a straight line upwards is perfect.
fn draw_curves(all: &Measured) -> String {
    const LEFT: f64 = 90.0;
    const RIGHT: f64 = 520.0;
    const TOP: f64 = 70.0;
    const BOTTOM: f64 = 360.0;
    const LINE: f64 = 17.0;
    let values = || all.iter().flat_map(|(_, f)| CPUS.map(|n| value(f, &turns_row(n)))).flatten();
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(1.0, f64::max));
    let x = |cpus: f64| LEFT + cpus.log2() / 3.0 * (RIGHT - LEFT);
    let part = |value: f64| (value / least).ln() / (most / least).ln().max(f64::MIN_POSITIVE);
    let y = |value: f64| BOTTOM - part(value) * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 660 410\" width=\"660\" height=\"410\">\n\
         <style>{STYLE}</style>\n<rect class=\"background\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"20\" y=\"32\">Turns while each CPU executes a million instructions</text>\n"
    );
    for cpus in CPUS {
        let at = x(cpus.into());
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/>\
             <text class=\"faint middle\" x=\"{at:.1}\" y=\"{}\">{cpus}</text>",
            BOTTOM + 20.0
        );
    }
    let _ = writeln!(svg, "<text class=\"faint middle\" x=\"305\" y=\"400\">CPUs</text>");
    let mut names = Vec::new();
    for (name, figures) in all {
        let class = if *name == "mpn" { "ours" } else { "go" };
        let points = CPUS.map(|n| Some((x(n.into()), y(value(figures, &turns_row(n))?))));
        let points: Vec<_> = points.into_iter().flatten().collect();
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline class=\"{class} curve\" points=\"{}\"/>", path.join(" "));
        for (x, y) in &points {
            let _ =
                writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        let last = cell(figures, &turns_row(CPUS[CPUS.len() - 1]));
        names.extend(points.last().map(|&(_, y)| (y, format!("{name} {last}"))));
        let first = points.first().zip(value(figures, &turns_row(1)));
        if let Some((&(x, y), first)) = first.filter(|_| matches!(*name, "mpn" | "1to1")) {
            let _ = writeln!(
                svg,
                "<text class=\"faint end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x - 8.0,
                y + 4.0,
                number(Some(first))
            );
        }
    }
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (at, name) in names {
        let at = at.max(free);
        free = at + LINE;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\">{name}</text>", RIGHT + 10.0, at + 4.0);
    }
    svg + "</svg>\n"
}

/// Small bar charts, each on a scale of its own that begins at zero.
fn draw(all: &Measured) -> String {
    const COLUMNS: usize = 3;
    const WIDE: f64 = 330.0;
    const HIGH: f64 = 190.0;
    const BARS: f64 = 130.0;
    let height = 60.0 + HIGH * MEASURES.len().div_ceil(COLUMNS) as f64;
    let width = WIDE * COLUMNS as f64 + 20.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\">\n<style>{STYLE}</style>\n\
         <rect class=\"background\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"20\" y=\"32\">Six scheduling systems, less is better</text>\n"
    );
    for (i, measure) in MEASURES.iter().enumerate() {
        let (x, y) = (20.0 + WIDE * (i % COLUMNS) as f64, 60.0 + HIGH * (i / COLUMNS) as f64);
        let (title, unit) = short(measure);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\">{title}<tspan class=\"faint\">, {unit}</tspan></text>"
        );
        let values = all.iter().filter_map(|(_, figures)| value(figures, measure.row));
        let most = values.fold(1.0, f64::max);
        for (j, (name, figures)) in all.iter().enumerate() {
            let at = y + 22.0 + 22.0 * j as f64;
            let _ = writeln!(
                svg,
                "<text class=\"faint end\" x=\"{}\" y=\"{at}\">{name}</text>",
                x + 82.0
            );
            let length = value(figures, measure.row).map_or(0.0, |value| value / most * BARS);
            let class = if *name == "mpn" { "ours" } else { "go" };
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{length:.1}\" height=\"13\"/>\
                 <text x=\"{:.1}\" y=\"{at}\">{}</text>",
                x + 90.0,
                at - 11.0,
                x + 96.0 + length,
                cell(figures, measure.row),
            );
        }
    }
    svg + "</svg>\n"
}

/// A title that fits over its bars, and its unit.
fn short(measure: &Measure) -> (&'static str, &'static str) {
    let title = match measure.row {
        "task_bytes" => "A G that waits",
        "spawn_join" => "Start and join",
        "yield" => "Switch",
        "chan_pingpong" => "Ping-pong",
        "blocking_nop" => "A call that does not block",
        "handoff_p50" => "A call blocks, the next G runs",
        "call_new_m" => "A G in a call, on a new M",
        "call_spare_m" => "… on a spare M",
        "locks" => "1,000 yields on 4 CPUs",
        "elsewhere_0" => "A new G runs elsewhere",
        "elsewhere_100" => "… with 100 blocked calls",
        _ => "… with 1,000 blocked calls",
    };
    (title, measure.unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        let figure = |row: &str| Figure { row: row.into(), value: 1234.0, locked: None };
        let of = |name| (name, vec![figure("yield"), figure("locks")]);
        NAMES.map(of).to_vec()
    }

    #[test]
    fn page_has_a_line_for_each_cell_and_says_where_there_is_no_figure() {
        let page = page(&measured());
        let lines = page.lines().filter(|line| line.starts_with("- `"));
        assert_eq!(lines.count(), MEASURES.len() * NAMES.len());
        assert!(page.contains("- `shared`, 1,234: out of the queue"));
        assert!(page.contains("- `mpn`, —: as shared."));
    }

    #[test]
    fn curves_have_a_point_for_each_system_and_number_of_cpus() {
        let figure =
            |cpus: u32| Figure { row: turns_row(cpus), value: 1e3 * f64::from(cpus), locked: None };
        let all: Measured = NAMES.map(|name| (name, CPUS.map(figure).to_vec())).to_vec();
        let svg = draw_curves(&all);
        assert_eq!(svg.matches("<circle").count(), NAMES.len() * CPUS.len());
        assert_eq!(svg.matches("<polyline").count(), NAMES.len());
        assert!(svg.contains(">mpn 8,000</text>") && !svg.contains("NaN"), "{svg}");
        assert!(page(&all).contains("| 8 | 8,000 |"), "{}", by_cpus(&all));
    }

    #[test]
    fn picture_has_a_bar_for_each_cell() {
        assert_eq!(draw(&measured()).matches("<rect").count(), 1 + MEASURES.len() * NAMES.len());
    }
}
