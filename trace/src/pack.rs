//! A model in few bytes, column by column, for the page's script to read.
//!
//! All is variable-length numbers: times as the difference to the one before,
//! indices likewise where neighbours are alike. A page with a million events has
//! some fifteen megabytes, most of it about the Gs if each runs only once. `page/data.js` reads the
//! columns in the same order.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::model::{Cpu, Left, Model, Point, Wait};

/// The columns, and the texts that they have as numbers.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    /// The columns.
    pub bytes: Vec<u8>,
    /// Names and spawn sites.
    pub texts: Vec<String>,
}

/// Packs all that the page shows.
///
/// ```
/// use trace::{model::Model, pack};
/// assert_eq!(pack::pack(&Model::default()).bytes.len(), 10);
/// ```
pub fn pack(model: &Model) -> Packed {
    let mut columns = Columns::default();
    columns.number(model.end_ns);
    columns.number(model.cpus.len() as u64);
    let texts = gs(model, &mut columns);
    for cpu in &model.cpus {
        spans(cpu, &mut columns);
        lasting(cpu.idle.iter().map(|idle| (idle.from, idle.to)), &mut columns);
        lasting(cpu.gaps.iter().map(|gap| (gap.time.from, gap.time.to)), &mut columns);
        columns.all(cpu.gaps.iter().map(|gap| gap.lost));
        lasting(cpu.elsewhere.iter().map(|time| (time.from, time.to)), &mut columns);
    }
    rest(model, &mut columns);
    Packed { bytes: columns.0, texts }
}

fn gs(model: &Model, columns: &mut Columns) -> Vec<String> {
    let mut texts = Texts::default();
    let gs = &model.gs;
    columns.number(gs.len() as u64);
    columns.rising(gs.iter().map(|g| u64::from(g.number)));
    columns.all(gs.iter().map(|g| texts.number(&g.name)));
    columns.all(gs.iter().map(|g| texts.number(&g.site)));
    columns.all(gs.iter().map(|g| u64::from(g.colour) << 1 | u64::from(g.is_kernels())));
    columns.all(gs.iter().map(|g| g.queued_ns));
    columns.all(gs.iter().map(|g| g.parked_ns));
    // Plus 1, and 0 for what was not seen; the end from the begin on.
    columns.wavering(gs.iter().map(|g| g.created.map_or(0, |at| at as i64 + 1)));
    columns.all(
        gs.iter().map(|g| g.ended.map_or(0, |at| at.saturating_sub(g.created.unwrap_or(0)) + 1)),
    );
    texts.list
}

fn spans(cpu: &Cpu, columns: &mut Columns) {
    let spans = &cpu.spans;
    lasting(spans.iter().map(|span| (span.time.from, span.time.to)), columns);
    columns.wavering(spans.iter().map(|span| i64::from(span.g)));
    columns.wavering(spans.iter().map(|span| i64::from(span.m)));
    columns.all(spans.iter().map(|span| {
        let how = span.woken.map_or(0, |woken| woken.how as u64);
        left_number(span.left) | how << 4
    }));
    columns.all(spans.iter().map(|span| match span.left {
        Left::Parked(reason) => u64::from(reason),
        _ => 0,
    }));
    let woken = || spans.iter().filter_map(|span| Some((span, span.woken?)));
    columns.all(woken().map(|(_, woken)| u64::from(woken.cpu)));
    columns.all(woken().map(|(span, woken)| span.time.from.saturating_sub(woken.at)));
    // Often a neighbour: how far from the G itself, plus 1; 0 for none.
    columns.all(woken().map(|(span, woken)| {
        woken.by.map_or(0, |by| signed(i64::from(span.g) - i64::from(by)) + 1)
    }));
}

fn rest(model: &Model, columns: &mut Columns) {
    let Model { mounts, steals, instants, .. } = model;
    columns.number(mounts.len() as u64);
    columns.all(mounts.iter().map(|mount| u64::from(mount.m)));
    columns.all(mounts.iter().map(|mount| u64::from(mount.cpu)));
    columns.all(mounts.iter().map(|mount| mount.time.from));
    columns.all(mounts.iter().map(|mount| mount.time.ns()));

    columns.number(steals.len() as u64);
    columns.rising(steals.iter().map(|steal| steal.at));
    columns.all(steals.iter().map(|steal| u64::from(steal.thief)));
    columns.all(steals.iter().map(|steal| u64::from(steal.victim)));
    columns.all(steals.iter().map(|steal| u64::from(steal.count)));
    columns.all(steals.iter().map(|steal| steal.g.map_or(0, |g| u64::from(g) + 1)));

    columns.number(instants.len() as u64);
    columns.rising(instants.iter().map(|instant| instant.at));
    columns.all(instants.iter().map(|instant| u64::from(instant.cpu)));
    columns.all(instants.iter().map(|instant| instant.kind as u64));
    columns.all(instants.iter().map(|instant| u64::from(instant.arg)));

    points(&model.runnable, columns);
    points(&model.idle_ps, columns);
    waits(&model.longest_queued, columns);
    waits(&model.longest_parked, columns);
}

fn points(points: &[Point], columns: &mut Columns) {
    columns.number(points.len() as u64);
    columns.rising(points.iter().map(|point| point.at));
    columns.wavering(points.iter().map(|point| i64::from(point.value)));
}

fn waits(waits: &[Wait], columns: &mut Columns) {
    columns.number(waits.len() as u64);
    columns.all(waits.iter().map(|wait| u64::from(wait.g)));
    columns.all(waits.iter().map(|wait| wait.time.from));
    columns.all(waits.iter().map(|wait| wait.time.ns()));
    columns.all(waits.iter().map(|wait| u64::from(wait.cpu)));
    columns.all(waits.iter().map(|wait| u64::from(wait.reason)));
}

/// Intervals that follow each other: the pauses between, then the lengths.
fn lasting(times: impl ExactSizeIterator<Item = (u64, u64)> + Clone, columns: &mut Columns) {
    columns.number(times.len() as u64);
    let mut end = 0;
    columns.all(times.clone().map(|(from, to)| from - std::mem::replace(&mut end, to)));
    columns.all(times.map(|(from, to)| to - from));
}

/// As `page/data.js` names them.
fn left_number(left: Left) -> u64 {
    match left {
        Left::Unseen => 0,
        Left::Yielded => 1,
        Left::Preempted => 2,
        Left::Parked(_) => 3,
        Left::Exited => 4,
        Left::Displaced => 5,
        Left::InCall => 6,
        Left::StillRunning => 7,
    }
}

#[derive(Default)]
struct Columns(Vec<u8>);

impl Columns {
    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn all(&mut self, numbers: impl Iterator<Item = u64>) {
        numbers.for_each(|number| self.number(number));
    }

    /// Numbers of which none is below the one before.
    fn rising(&mut self, numbers: impl Iterator<Item = u64>) {
        let mut last = 0;
        self.all(numbers.map(|number| number - std::mem::replace(&mut last, number)));
    }

    /// Numbers that go up and down a little.
    fn wavering(&mut self, numbers: impl Iterator<Item = i64>) {
        let mut last = 0;
        self.all(numbers.map(|number| signed(number - std::mem::replace(&mut last, number))));
    }
}

/// The sign in the lowest bit: small ones stay small.
fn signed(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Each text once.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    known: HashMap<String, u64>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.known.get(text) {
            return number;
        }
        let number = self.list.len() as u64;
        self.list.push(text.into());
        self.known.insert(text.into(), number);
        number
    }
}

/// In the alphabet that pages can read.
///
/// ```
/// assert_eq!(trace::pack::base64(b"runnext"), "cnVubmV4dA==");
/// ```
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
        let word = word << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let letter = ALPHABET[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::simulate::{Plan, stream};

    #[test]
    fn it_is_smaller_than_the_stream() {
        let bytes = stream(Plan { cpus: 8, events: 50_000, seed: 1 });
        let model = Model::new(&decode(&bytes).expect("a stream"));
        let packed = pack(&model);
        assert!(packed.bytes.len() < bytes.len() * 4 / 5, "{} bytes", packed.bytes.len());
        assert_eq!(packed.texts.len(), 5, "{:?}", packed.texts);
    }

    #[test]
    fn numbers_are_written_seven_bits_at_a_time() {
        let mut columns = Columns::default();
        columns.all([0, 127, 128, u64::MAX].into_iter());
        assert_eq!(columns.0.len(), 1 + 1 + 2 + 10);
        assert_eq!(columns.0[..4], [0, 127, 0x80, 1]);
    }

    #[test]
    fn small_steps_down_are_small() {
        let mut columns = Columns::default();
        columns.wavering([5, 4, 70].into_iter());
        assert_eq!(columns.0, [10, 1, 0x84, 1]);
    }
}
