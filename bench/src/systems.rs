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
const MEASURES: [Measure; 10] = [
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
        figures.extend(run(ours, &one, &words(&ON_ONE), None, |_| ())?);
        figures.extend(run(ours, &four, &words(&ON_FOUR), None, |_| ())?);
        all.push((name, figures));
    }
    print!("{}", table(&all).titled("six scheduling systems"));
    let path = boot::root().join("docs/systems.md");
    fs::write(&path, page(&all)).with_context(|| format!("writing {}", path.display()))?;
    let picture = path.with_extension("svg");
    fs::write(&picture, draw(&all)).with_context(|| format!("writing {}", picture.display()))?;
    println!("\ndocs/systems.md, docs/systems.svg");
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
    for measure in &MEASURES {
        let _ = write!(text, "\n## {}\n\n", measure.title);
        for ((name, figures), why) in all.iter().zip(measure.why) {
            let _ = writeln!(text, "- `{name}`, {}: {why}.", cell(figures, measure.row));
        }
    }
    text
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
    fn picture_has_a_bar_for_each_cell() {
        assert_eq!(draw(&measured()).matches("<rect").count(), 1 + MEASURES.len() * NAMES.len());
    }
}
