//! The story of a failure: what each CPU did and saw before it, as a table and as a page.
//!
//! Of a model under loom these are its threads, and the interleaving is the first that failed
//! (`kernel/sched/src/told.rs`); of the simulator it is shortened.
//!
//! The simulator's test `story` (`kernel/sched/tests/sim/story.rs`) gives the last steps of the
//! shortest run that it found. Of these the table shows the steps that the student's lines
//! made, what other lines of the same files changed, and what the machine says about its CPUs
//! (interrupts, halts, Gs that run); other steps are counted.

use std::fmt::Write;

use serde_json::Value;

use crate::lines::Lines;

/// Rows of the table on the terminal.
const ROWS: usize = 16;
/// Rows of the page.
const PAGE_ROWS: usize = 120;
/// Characters of a source line that are shown.
const SOURCE: usize = 56;

/// What a verdict means, by a part of its words.
const MEANINGS: &[(&str, &str)] = &[
    ("not yet implemented", "The region still has its todo!()."),
    (
        "not runnable",
        "A CPU took a G from a queue, and the G was not runnable: two CPUs took the same entry, or \
         the G was in two queues.",
    ),
    (
        "empty slot",
        "A CPU took a G from a slot of the ring that had none yet: the slot was published before it \
         was written.",
    ),
    ("on two CPUs", "Two CPUs took the same G, and both run it on its one stack."),
    (
        "wake-up was lost",
        "A G waits, and a CPU that could run it sleeps. The CPU that submitted the G did not see that \
         the other parks, and the one that parked did not see the G.",
    ),
    ("every CPU halts while", "A G waits, and all CPUs sleep: no interrupt will come for it."),
    (
        "spinning count",
        "The count of spinning Ps is wrong: each P that is counted must be discounted once, when it \
         finds a G or parks.",
    ),
    (
        "makes no progress",
        "The machine ran for a million steps a CPU and did not end: CPUs retry something that never \
         succeeds.",
    ),
    ("broken list", "A G was in two lists at once: it was taken twice."),
    (
        "neither parked nor runnable",
        "A G was taken out of its queue and then dropped: it is in no queue, on no CPU, and nothing \
         will wake it.",
    ),
    (
        "is pinned to CPU",
        "A CPU took a G that may run on another CPU only: pinned Gs are in no queue that others search.",
    ),
    (
        "without a timer while",
        "A G runs and another waits for its slice to end, but no timer is armed that will end it.",
    ),
    (
        "whose call is over",
        "The call that a CPU halts for is over, and the CPU was not told: it halts for ever.",
    ),
    (
        "not running",
        "A G was stopped, parked or put back that no CPU runs: two CPUs believe that they run it.",
    ),
    (
        "not parking",
        "A G was readied that is not in its wait: the wake-up belongs to another wait, or came twice.",
    ),
    (
        "thief full",
        "A thief took more than fits into its own ring, which was not empty, or more than half.",
    ),
    (
        "with overflow",
        "A count or an index went below zero or beyond its type: something was taken away twice.",
    ),
    (
        "deadlock; threads",
        "Each thread waits, and none is left that could wake another: an edge or a wake-up was lost.",
    ),
    (
        "a wake-up of the wait before",
        "The G was readied once more after it had left its wait. That wake-up ends its next wait, of \
         whatever kind, too early.",
    ),
    ("lost or doubled", "A G was taken by two CPUs, and the other that was in its place by none."),
    (
        "maximum number of branches",
        "In this interleaving a loop never ends, or it retries without spin_loop().",
    ),
    (
        "Causality violation",
        "One thread reads what another writes, and nothing orders the two: an order is too weak.",
    ),
];

/// One step.
struct Step {
    cpu: usize,
    kind: String,
    said: String,
    /// File, line in the student's file, and its text, if a file with a region made the step.
    line: Option<(String, usize, String)>,
    /// A region made it.
    ours: bool,
}

impl Step {
    /// Whether the table shows it.
    fn is_shown(&self) -> bool {
        let changes = matches!(&*self.kind, "store" | "change" | "refused");
        self.ours || changes && self.line.is_some() || matches!(&*self.kind, "note" | "visible")
    }
}

/// A failure with its steps.
pub struct Story {
    /// What the simulator said.
    pub said: String,
    at: String,
    facts: String,
    /// `CPU`, or `thread` of a model.
    actor: &'static str,
    /// How stores become visible.
    memory: &'static str,
    cpus: usize,
    steps: Vec<Step>,
}

impl Story {
    /// Reads what the simulator printed, or a model.
    pub fn new(told: &Value, lines: &Lines) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let many = |value: &Value, one: &str, more: &str| match number(value) {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        let short = &told["short"];
        let threads = told["threads"].as_u64();
        let of_seed = || {
            format!(
                "Seed {} ({}, {}), shortened to {}, {}, {}",
                number(&told["seed"]),
                many(&told["cpus"], "CPU", "CPUs"),
                many(&told["switches"], "switch", "switches"),
                many(&short["cpus"], "CPU", "CPUs"),
                many(&short["gs"], "G", "Gs"),
                many(&short["switches"], "switch", "switches"),
            )
        };
        let facts = threads.map_or_else(of_seed, |_| "The first interleaving that fails".into());
        let memory = match threads {
            None => "a store is in its CPU's buffer, unseen by others, until it is visible",
            Some(_) => "which store a load sees is up to the orders, not to time",
        };
        let at = told["at"].as_str().unwrap_or_default();
        let place = at.rsplit_once(':').and_then(|(file, line)| {
            let file = file.rsplit('/').next()?;
            Some(format!("{file}:{}", lines.theirs(file, line.parse().ok()?)?))
        });
        let mut story = Story {
            said: told["said"].as_str().unwrap_or_default().lines().next().unwrap_or("").into(),
            at: place.map(|place| format!(" at {place}")).unwrap_or_default(),
            facts,
            actor: if threads.is_some() { "thread" } else { "CPU" },
            memory,
            cpus: threads.unwrap_or_else(|| number(&short["cpus"])) as usize,
            steps: Vec::new(),
        };
        let mut buffers: Vec<Vec<(String, bool)>> = vec![Vec::new(); story.cpus.max(1)];
        for step in told["steps"].as_array().into_iter().flatten() {
            story.push(step, lines, &mut buffers);
        }
        story
    }

    /// `buffers`: the stores of each CPU that are not visible yet, and whether a region made them.
    fn push(&mut self, step: &Value, lines: &Lines, buffers: &mut [Vec<(String, bool)>]) {
        let text = |key: &str| step[key].as_str().unwrap_or_default().to_string();
        let calls: Vec<(&str, usize)> = step["calls"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|call| Some((call[0].as_str()?, call[1].as_u64()? as usize)))
            .collect();
        let ours =
            calls.iter().find_map(|(file, line)| Some((*file, *line, lines.theirs(file, *line)?)));
        // Of other code the line that the student's file has of it; not what lists and Gs do.
        let other = || {
            calls
                .iter()
                .take(2)
                .find_map(|(file, line)| lines.text(file, *line).map(|_| (*file, *line, *line)))
        };
        let (is_ours, place) = (ours.is_some(), ours.or_else(other));
        let line = place.and_then(|(file, line, theirs)| {
            Some((file.to_string(), theirs, lines.text(file, line)?.to_string()))
        });
        let (kind, object, mut said) = (text("kind"), text("object"), text("said"));
        let cpu = step["cpu"].as_u64().unwrap_or(0) as usize;
        let value: String =
            said.split(' ').filter(|w| w.chars().any(|c| c.is_ascii_digit())).collect();
        let Some(buffer) = buffers.get_mut(cpu) else { return };
        match &*kind {
            "store" => buffer.push((value, line.is_some())), // of a model it stays there
            "visible" => {
                // First in, first out; what was stored before the first step is unknown.
                let at = buffer.iter().position(|(stored, _)| *stored == value);
                let ours =
                    at.is_some_and(|at| buffer.drain(..=at).next_back().is_some_and(|b| b.1));
                if !ours {
                    return;
                }
            }
            _ => {}
        }
        if !object.is_empty() {
            let _ = write!(said, " ({object})");
        }
        self.steps.push(Step { cpu, kind, said, line, ours: is_ours });
    }

    /// What it means, for a student.
    fn meaning(&self) -> String {
        let meaning = MEANINGS.iter().find(|(words, _)| self.said.contains(words));
        let panicked = "The code panics at this line. In the kernel that ends the machine.";
        let other = if self.at.is_empty() { "" } else { panicked };
        meaning.map_or(other, |(_, meaning)| meaning).into()
    }

    /// The rows to show: steps, and how many others were before each.
    fn rows(&self, most: usize) -> (Vec<(usize, &Step)>, usize) {
        let mut rows = Vec::new();
        let mut others = 0;
        for step in &self.steps {
            if step.is_shown() {
                rows.push((std::mem::take(&mut others), step));
            } else {
                others += 1;
            }
        }
        (rows.split_off(rows.len().saturating_sub(most)), others)
    }

    /// The table for the terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}{}\n", self.said, self.at);
        if !self.meaning().is_empty() {
            let _ = writeln!(out, "{}", self.meaning());
        }
        let _ = writeln!(out, "{}; the last steps:", self.facts);
        let _ = writeln!(out, "{} | line of your file | what it saw", self.actor);
        let (rows, after) = self.rows(ROWS);
        for (others, step) in rows {
            if others > 0 {
                let _ = writeln!(out, "    | … {others} steps of other code");
            }
            let place = match &step.line {
                Some((file, line, source)) => format!("{file}:{line}  {}", clipped(source, SOURCE)),
                None => "-".into(),
            };
            let _ = writeln!(out, "{:>3} | {place} | {}", step.cpu, step.said);
        }
        if after > 0 {
            let _ = writeln!(out, "    | … {after} steps of other code");
        }
        let _ = write!(out, "    | {}", self.said);
        out
    }

    /// The page: a column for each CPU, time downwards.
    pub fn page(&self, lab: u32, title: &str) -> String {
        let (rows, after) = self.rows(PAGE_ROWS);
        let mut body = String::new();
        let heads: String =
            (0..self.cpus).map(|cpu| format!("<th>{} {cpu}</th>", self.actor)).collect();
        let span = self.cpus + 1;
        let other = |n: usize| {
            format!("<tr class=o><td></td><td colspan={span}>… {n} steps of other code</td></tr>")
        };
        for (i, (others, step)) in rows.iter().enumerate() {
            if *others > 0 {
                body.push_str(&other(*others));
            }
            let _ = write!(body, "<tr><td class=n>{}</td>", i + 1);
            for cpu in 0..self.cpus {
                if cpu != step.cpu {
                    body.push_str("<td></td>");
                    continue;
                }
                let _ = write!(body, "<td class=\"c {}\">", step.kind);
                if let Some((file, line, source)) = &step.line {
                    let _ = write!(
                        body,
                        "<code>{}:{line}</code> <code>{}</code><br>",
                        html(file),
                        html(source)
                    );
                }
                let _ = write!(body, "{}</td>", html(&step.said));
            }
            body.push_str("</tr>\n");
        }
        if after > 0 {
            body.push_str(&other(after));
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width\">\
             <title>Lab {lab}: {said}</title><style>{STYLE}</style>\
             <h1>Lab {lab}: {title}</h1><p class=v>{said}{at}</p><p>{meaning}</p><p>{facts}. Time runs \
             downwards; {memory}.</p>\
             <table><thead><tr><th></th>{heads}</tr></thead><tbody>\n{body}\
             <tr><td></td><td colspan={span} class=v>{said}</td></tr></tbody></table></html>\n",
            title = html(title),
            said = html(&self.said),
            at = html(&self.at),
            meaning = html(&self.meaning()),
            facts = html(&self.facts),
            memory = self.memory,
        )
    }
}

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:80em;margin:2em auto;padding:0 1em;\
color:#1b1b1b;background:#fff}table{border-collapse:collapse;width:100%;table-layout:fixed}th:first-child{width:2em}th{text-align:left;position:sticky;top:0;\
background:#fff}td,th{padding:.25em .6em;vertical-align:top;border-bottom:1px solid #ddd}.n,.o{color:#777}\
.c{border-left:3px solid #5b8}.store{border-left-color:#c90}.visible{border-left-color:#c90;opacity:.75}\
.change,.refused{border-left-color:#36c}.fence{border-left-color:#a3c}.note{border-left-color:#999;font-style:italic}\
.v{font-weight:600;color:#b00}code{font-size:13px;overflow-wrap:anywhere}@media(prefers-color-scheme:dark){body,th{background:#161616;\
color:#ddd}td,th{border-color:#333}.v{color:#f77}}";

fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path;

    fn told(more: &Value) -> Story {
        let mut told = json!({ "said": "deadlock; threads = 2", "at": "x.rs:1", "steps": [
            { "cpu": 0, "kind": "note", "said": "parks", "object": "", "calls": [["door.rs", 3]] },
            { "cpu": 1, "kind": "read", "said": "reads 7", "object": "", "calls": [["g.rs", 9]] },
            { "cpu": 1, "kind": "note", "said": "readies the G", "object": "", "calls": [] },
        ]});
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(key, value)| told[key] = value.clone());
        Story::new(&told, &Lines::new(Path::new("/nonexistent"), vec![]))
    }

    #[test]
    fn a_model_has_threads_and_its_verdict_a_meaning() {
        let text = told(&json!({ "threads": 2 })).text();
        let wanted = "The first interleaving that fails; the last steps:\n\
                      thread | line of your file | what it saw\n  0 | - | parks\n\
                      \x20   | … 1 steps of other code\n  1 | - | readies the G\n";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("Each thread waits"), "{text}");
    }

    #[test]
    fn the_simulator_has_cpus_and_says_what_it_shortened() {
        let short = json!({ "seed": 5, "cpus": 2, "gs": 1, "switches": 0 });
        let story = told(&json!({ "seed": 9, "cpus": 8, "switches": 1, "short": short }));
        let facts = "Seed 9 (8 CPUs, 1 switch), shortened to 2 CPUs, 1 G, 0 switches; ";
        assert!(story.text().contains(facts), "{}", story.text());
        let page = story.page(4, "Stealing");
        assert!(page.contains("<th>CPU 0</th><th>CPU 1</th>"), "{page}");
        assert!(page.contains("until it is visible"), "{page}");
    }
}
