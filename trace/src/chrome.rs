//! `trace.json`: the Chrome Trace Event form, for Perfetto and the like.
//!
//! Three processes stand for the kinds of tracks: the Ps with the Gs that ran, the
//! Ms with the same, the CPUs with the M on them, halts and interrupts. Wake-ups
//! and thefts are flows from one P to another. The file is written as it is made:
//! a million events need no more memory than the model has.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::{Result, Write};

use crate::model::{Left, Model, Point, Span, Steal, Wake};
use crate::reason;
use crate::wire::Kind;

const P: u32 = 1;
const M: u32 = 2;
const CPU: u32 = 3;

/// Writes the whole document.
///
/// ```
/// use trace::{chrome, model::Model};
/// let mut json = Vec::new();
/// chrome::write(&Model::default(), &mut json).unwrap();
/// assert!(json.starts_with(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":["));
/// ```
pub fn write(model: &Model, out: impl Write) -> Result<()> {
    let mut writer = Writer { out, is_first: true };
    write!(writer.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    names(model, &mut writer)?;
    spans(model, &mut writer)?;
    cpus(model, &mut writer)?;
    steals(model, &mut writer)?;
    counter("runnable", &model.runnable, model.end_ns, &mut writer)?;
    counter("idle Ps", &model.idle_ps, model.end_ns, &mut writer)?;
    write!(
        writer.out,
        "\n],\"otherData\":{{\"events\":{},\"lost\":{}}}}}",
        model.events, model.lost
    )?;
    writer.out.flush()
}

/// One event after the other, with commas between.
struct Writer<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> Writer<W> {
    /// An event of that phase: `rest` are further members of the object.
    fn event(&mut self, phase: char, track: (u32, u32), at: u64, rest: &str) -> Result<()> {
        let comma = if std::mem::take(&mut self.is_first) { "" } else { "," };
        let ((pid, tid), (us, ns)) = (track, (at / 1000, at % 1000));
        write!(
            self.out,
            "{comma}\n{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{us}.{ns:03}{rest}}}"
        )
    }
}

fn names(model: &Model, writer: &mut Writer<impl Write>) -> Result<()> {
    for (pid, name) in
        [(P, "P: which G ran"), (M, "M: which G ran"), (CPU, "CPU: M, halts, interrupts")]
    {
        let rest = format!(",\"name\":\"process_name\",\"args\":{{\"name\":\"{name}\"}}");
        writer.event('M', (pid, 0), 0, &rest)?;
        let rest = format!(",\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{pid}}}");
        writer.event('M', (pid, 0), 0, &rest)?;
    }
    let ms: BTreeSet<u32> = model.mounts.iter().map(|mount| mount.m).collect();
    let of_cpus = |pid| (0..model.cpus.len() as u32).map(move |tid| (pid, tid));
    let tracks = of_cpus(P).chain(ms.into_iter().map(|m| (M, m))).chain(of_cpus(CPU));
    for (pid, tid) in tracks {
        let letter = ["P", "M", "CPU "][pid as usize - 1];
        let rest = format!(",\"name\":\"thread_name\",\"args\":{{\"name\":\"{letter}{tid}\"}}");
        writer.event('M', (pid, tid), 0, &rest)?;
    }
    Ok(())
}

fn spans(model: &Model, writer: &mut Writer<impl Write>) -> Result<()> {
    let mut flow = 0u64;
    let mut is_placed = vec![false; model.gs.len()];
    for (cpu, facts) in model.cpus.iter().enumerate() {
        let p = (P, cpu as u32);
        for span in &facts.spans {
            let (what, more) = slice(model, span, &mut is_placed[span.g as usize]);
            writer.event('X', p, span.time.from, &(what.clone() + &more))?;
            writer.event('X', (M, span.m), span.time.from, &what)?;
            if let Some(woken) = span.woken {
                flow += 1;
                let name = if woken.how == Wake::Created { "create" } else { "wake" };
                let rest = format!(",\"cat\":\"wake\",\"name\":\"{name}\",\"id\":{flow}");
                writer.event('s', (P, woken.cpu), woken.at, &rest)?;
                writer.event('f', p, span.time.from, &format!("{rest},\"bp\":\"e\""))?;
            }
        }
    }
    Ok(())
}

/// The members of a G's slice after its time: what it is, and more about it. The
/// spawn site is said once for each G: that is what makes such files long.
fn slice(model: &Model, span: &Span, is_placed: &mut bool) -> (String, String) {
    let g = &model.gs[span.g as usize];
    let label = match g.name.as_str() {
        "" => format!("G{}", g.number),
        name => format!("G{} {name}", g.number),
    };
    let (ns, left) = (span.time.ns(), span.left.text());
    let what = format!(",\"dur\":{}.{:03},\"name\":{}", ns / 1000, ns % 1000, quoted(&label));
    let mut more = format!(",\"args\":{{\"g\":{},\"m\":{},\"left\":\"{left}\"", g.number, span.m);
    if let Left::Parked(number) = span.left {
        more += &format!(",\"reason\":{}", quoted(reason::text(number)));
    }
    if !g.site.is_empty() && !std::mem::replace(is_placed, true) {
        more += &format!(",\"spawned at\":{}", quoted(&g.site));
    }
    (what, more + "}")
}

fn cpus(model: &Model, writer: &mut Writer<impl Write>) -> Result<()> {
    let lasting = |name: &str, ns: u64| {
        format!(",\"dur\":{}.{:03},\"name\":\"{name}\"", ns / 1000, ns % 1000)
    };
    for mount in &model.mounts {
        let rest = lasting(&format!("M{}", mount.m), mount.time.ns());
        writer.event('X', (CPU, mount.cpu), mount.time.from, &rest)?;
    }
    for (cpu, facts) in model.cpus.iter().enumerate() {
        let track = (CPU, cpu as u32);
        for idle in &facts.idle {
            writer.event('X', track, idle.from, &lasting("halted", idle.ns()))?;
        }
        for gap in &facts.gaps {
            let rest = lasting(&format!("{} events lost", gap.lost), gap.time.ns());
            writer.event('X', track, gap.time.from, &rest)?;
        }
    }
    for instant in &model.instants {
        let name = match instant.kind {
            Kind::Tick => "tick".into(),
            Kind::WakeSent => format!("wakes CPU {}", instant.arg),
            Kind::WakeReceived => "woken".into(),
            Kind::Irq => format!("interrupt {}", instant.arg),
            Kind::Fire => "timer".into(),
            kind => format!("{kind:?} {}", instant.arg),
        };
        let rest = format!(",\"s\":\"t\",\"name\":\"{name}\"");
        writer.event('i', (CPU, instant.cpu), instant.at, &rest)?;
    }
    Ok(())
}

fn steals(model: &Model, writer: &mut Writer<impl Write>) -> Result<()> {
    for (id, steal) in model.steals.iter().enumerate() {
        let Steal { at, thief, victim, count, .. } = *steal;
        let name = format!(",\"name\":\"steals {count} from P{victim}\"");
        writer.event('i', (P, thief), at, &format!(",\"s\":\"t\"{name}"))?;
        let spans = &model.cpus[thief as usize].spans;
        let next = spans.partition_point(|span| span.time.from < at);
        if let Some(span) = spans.get(next) {
            let rest = format!(",\"cat\":\"steal\",\"name\":\"steal\",\"id\":\"s{id}\"");
            writer.event('s', (P, victim), at, &rest)?;
            writer.event('f', (P, thief), span.time.from, &format!("{rest},\"bp\":\"e\""))?;
        }
    }
    Ok(())
}

/// Of changes that no screen could tell apart the last one.
fn counter(
    name: &str,
    points: &[Point],
    end_ns: u64,
    writer: &mut Writer<impl Write>,
) -> Result<()> {
    let bucket = |point: &Point| point.at / (end_ns / 50_000 + 1);
    for (i, point) in points.iter().enumerate() {
        if points.get(i + 1).is_some_and(|next| bucket(next) == bucket(point)) {
            continue;
        }
        let rest = format!(",\"name\":\"{name}\",\"args\":{{\"{name}\":{}}}", point.value);
        writer.event('C', (P, 0), point.at, &rest)?;
    }
    Ok(())
}

/// `text` as JSON has it. Also safe within a page's script: no `<` is left.
pub fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            ' '..='~' if character != '<' => json.push(character),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    json += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::simulate::{Plan, stream};
    use serde_json::Value;

    fn json(events: usize) -> (Model, Vec<Value>) {
        let bytes = stream(Plan { cpus: 4, events, seed: 3 });
        let model = Model::new(&decode(&bytes).expect("a stream"));
        let mut out = Vec::new();
        write(&model, &mut out).expect("memory takes it");
        let mut document: Value = serde_json::from_slice(&out).expect("JSON");
        let events = document["traceEvents"].take();
        (model, events.as_array().expect("a list").clone())
    }

    fn of_phase<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == phase).collect()
    }

    #[test]
    fn every_span_is_a_slice_of_its_p_and_of_its_m() {
        let (model, events) = json(5000);
        let slices = of_phase(&events, "X");
        let of = |pid| slices.iter().filter(|slice| slice["pid"] == pid).count();
        assert_eq!((of(P), of(M)), (model.num_spans(), model.num_spans()));
        let span = model.cpus[2].spans[1];
        let slice = slices.iter().find(|slice| {
            slice["tid"] == 2 && slice["ts"].as_f64() == Some(span.time.from as f64 / 1000.0)
        });
        let number = model.gs[span.g as usize].number;
        assert_eq!(slice.expect("its slice")["args"]["g"], number);
    }

    #[test]
    fn flows_come_in_pairs_that_go_forward() {
        let (model, events) = json(5000);
        let (begins, ends) = (of_phase(&events, "s"), of_phase(&events, "f"));
        assert_eq!(begins.len(), ends.len());
        assert!(begins.len() > model.steals.len() && !model.steals.is_empty());
        for (begin, end) in begins.iter().zip(ends) {
            assert_eq!(begin["id"], end["id"]);
            assert!(begin["ts"].as_f64() <= end["ts"].as_f64());
        }
    }

    #[test]
    fn tracks_have_names_and_counters_are_there() {
        let (_, events) = json(2000);
        let names: Vec<_> = of_phase(&events, "M")
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| event["args"]["name"].as_str().unwrap_or("").to_string())
            .collect();
        for name in ["P0", "P3", "M0", "CPU 3"] {
            assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
        }
        let counters = of_phase(&events, "C");
        assert!(counters.iter().any(|event| event["args"]["runnable"].as_u64() > Some(0)));
        assert!(counters.iter().any(|event| event["name"] == "idle Ps"));
    }

    #[test]
    fn any_text_survives_as_json() {
        for text in ["a\"b\\c", "</script>\n\u{0}\u{7f}", "größer 𝄞", ""] {
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).ok().as_deref(), Some(text));
            assert!(!quoted(text).contains('<'));
        }
    }
}
