//! From bytes to events: takes what can be taken, and says what could not.
//!
//! The bytes come from a machine that may have crashed in the middle of a block,
//! through a port that others may have written to. So nothing is believed: a
//! length is compared with what is there, a CPU with how many there are, and no
//! more memory is asked for than the bytes themselves justify. What is wrong with
//! a block costs that block; only a header that cannot be used is an error.
//! What the events mean is left to `model`.
#![forbid(unsafe_code)]

use crate::wire::{
    Counters, DISTANCES, EVENT_BYTES, EVENTS_HEAD, Event, HEADER_BYTES, Header, MAGIC, MAX_CPUS,
    VERSION, tag,
};
use std::fmt;

/// Warnings that are kept in words; further ones are counted only.
const MAX_WARNINGS: usize = 32;
/// Counters that a `STAT` block of a later version may have; more are not read.
const MAX_COUNTERS: usize = 64;

/// A stream, taken apart.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What machine it was.
    pub header: Header,
    /// The events of each CPU.
    pub tracks: Vec<Track>,
    /// What Gs are called, in the order of the stream.
    pub names: Vec<Name>,
    /// What each CPU has counted itself, if it said so.
    pub counters: Vec<Option<Counters>>,
    /// How far each CPU is from the others, as an index of [`DISTANCES`];
    /// empty if all are equally far.
    pub distances: Vec<Vec<u8>>,
    /// How the program ended; `None` if the stream does not say.
    pub exit: Option<u32>,
    /// What was wrong with it.
    pub warnings: Warnings,
}

impl Stream {
    /// Events there are.
    pub fn events(&self) -> u64 {
        self.tracks.iter().map(|track| track.events.len() as u64).sum()
    }

    /// Events that there should have been: the gaps, and what a CPU says it lost
    /// beyond them (at its end, for instance).
    pub fn lost(&self) -> u64 {
        self.tracks.iter().zip(&self.counters).fold(0, |sum: u64, (track, counters)| {
            sum.saturating_add(track.lost.max(counters.map_or(0, |counters| counters.lost)))
        })
    }
}

/// The events of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// In the order in which they were noted.
    pub events: Vec<Event>,
    /// Where some are missing.
    pub gaps: Vec<Gap>,
    /// How many are, in all gaps.
    pub lost: u64,
}

/// Events are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Before the event of this index.
    pub at: usize,
    /// How many.
    pub lost: u64,
}

/// What a G is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The number of the G.
    pub g: u32,
    /// Its name; may be empty.
    pub name: String,
    /// Where it was spawned; may be empty.
    pub site: String,
}

/// What was wrong with a stream, in words.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
    more: u64,
}

impl Warnings {
    /// Adds one; beyond a bound it is counted only. The text is made if needed.
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < MAX_WARNINGS {
            self.texts.push(text());
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// All that were kept, and a last line for the rest.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more", self.more));
        self.texts.iter().cloned().chain(more)
    }

    /// Nothing was wrong.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Why a stream cannot be used at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// There is no header in it.
    NoHeader,
    /// It is of a version that this tool does not know.
    Version(u32),
    /// No machine has that many CPUs.
    Cpus(u32),
    /// A counter that does not count.
    Frequency,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NoHeader => write!(f, "no trace in it (was trace=stream given?)"),
            Unusable::Version(version) => {
                write!(f, "a trace of version {version}; this tool knows {VERSION}")
            }
            Unusable::Cpus(cpus) => {
                write!(f, "a trace of {cpus} CPUs; 1 to {MAX_CPUS} are possible")
            }
            Unusable::Frequency => write!(f, "a trace whose counter has frequency 0"),
        }
    }
}

impl std::error::Error for Unusable {}

/// Takes a stream apart. What stands before the header is skipped, and a stream
/// that is cut is used up to the cut; both are among the warnings.
///
/// ```
/// assert!(trace::decode::decode(b"nothing").is_err());
/// ```
pub fn decode(bytes: &[u8]) -> Result<Stream, Unusable> {
    let start = find(bytes, &MAGIC).ok_or(Unusable::NoHeader)?;
    let header = header(&bytes[start..])?;
    let cpus = header.cpus as usize;
    let mut stream = Stream {
        header,
        tracks: vec![Track::default(); cpus],
        names: Vec::new(),
        counters: vec![None; cpus],
        distances: vec![Vec::new(); cpus],
        exit: None,
        warnings: Warnings::default(),
    };
    if start > 0 {
        stream.warnings.add(|| format!("{start} bytes before the header are skipped"));
    }
    let mut rest = &bytes[start + HEADER_BYTES..];
    while !rest.is_empty() {
        rest = block(&mut stream, rest);
    }
    if stream.exit.is_none() {
        stream.warnings.add(|| "the stream does not say how the program ended".into());
    }
    Ok(stream)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The header at the start of `bytes`, where its magic was found.
fn header(bytes: &[u8]) -> Result<Header, Unusable> {
    let mut reader = Reader(&bytes[MAGIC.len()..]);
    let mut fields = || Some((reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?));
    let (version, cpus, hz, zero) = fields().ok_or(Unusable::NoHeader)?;
    match (version, cpus, hz) {
        (VERSION, 1..=MAX_CPUS, 1..) => Ok(Header { cpus, hz, zero }),
        (VERSION, 1..=MAX_CPUS, 0) => Err(Unusable::Frequency),
        (VERSION, ..) => Err(Unusable::Cpus(cpus)),
        _ => Err(Unusable::Version(version)),
    }
}

/// Takes one block off `bytes`, which are not empty; what is left of them is
/// shorter.
fn block<'a>(stream: &mut Stream, bytes: &'a [u8]) -> &'a [u8] {
    let mut reader = Reader(bytes);
    let (Some(tag), Some(len)) = (reader.u32(), reader.u32()) else {
        stream.warnings.add(|| "the stream is cut within the head of a block".into());
        return &[];
    };
    let rest = reader.0;
    let (payload, rest) = match rest.split_at_checked(len as usize) {
        Some(parts) => parts,
        None => {
            let (name, there) = (tag_name(tag), rest.len());
            stream
                .warnings
                .add(|| format!("the stream is cut within a block {name}: {there} bytes of {len}"));
            (rest, &[][..])
        }
    };
    let understood = match tag {
        tag::EVENTS => events(stream, payload),
        tag::NAME => name(stream, payload),
        tag::STAT => stat(stream, payload),
        tag::DISTANCES => distances(stream, payload),
        tag::DONE => done(stream, payload),
        _ => None,
    };
    if understood.is_none() {
        let (name, len) = (tag_name(tag), payload.len());
        stream.warnings.add(|| format!("a block {name} of {len} bytes is skipped"));
    }
    rest
}

fn events(stream: &mut Stream, payload: &[u8]) -> Option<()> {
    let mut reader = Reader(payload);
    let (cpu, _, first) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let track = stream.tracks.get_mut(cpu as usize)?;
    let (events, odd) = reader.0.as_chunks::<EVENT_BYTES>();
    debug_assert_eq!(payload.len() - EVENTS_HEAD, events.len() * EVENT_BYTES + odd.len());
    if !odd.is_empty() {
        stream.warnings.add(|| format!("{} bytes of CPU {cpu} are no whole event", odd.len()));
    }
    let so_far = (track.events.len() as u64).saturating_add(track.lost);
    if first > so_far {
        track.gaps.push(Gap { at: track.events.len(), lost: first - so_far });
        track.lost += first - so_far; // no more than `first`
    }
    // What we have already is not taken again.
    let again = usize::try_from(so_far.saturating_sub(first)).unwrap_or(usize::MAX);
    if again > 0 && !events.is_empty() {
        let again = again.min(events.len());
        stream.warnings.add(|| format!("{again} events of CPU {cpu} came twice"));
    }
    let new = events.get(again..).unwrap_or_default();
    track.events.extend(new.iter().map(|&bytes| Event::from_bytes(bytes)));
    Some(())
}

fn name(stream: &mut Stream, payload: &[u8]) -> Option<()> {
    let mut reader = Reader(payload);
    let (g, name, site) = (reader.u32()?, reader.text()?, reader.text()?);
    stream.names.push(Name { g, name, site });
    Some(())
}

fn stat(stream: &mut Stream, payload: &[u8]) -> Option<()> {
    let mut reader = Reader(payload);
    let (cpu, len) = (reader.u32()?, reader.u32()?);
    let place = stream.counters.get_mut(cpu as usize)?;
    let len = (len as usize).min(MAX_COUNTERS);
    let words = (0..len).map(|_| reader.u64()).collect::<Option<Vec<_>>>()?;
    *place = Some(Counters::from_words(&words));
    Some(())
}

fn distances(stream: &mut Stream, payload: &[u8]) -> Option<()> {
    let mut reader = Reader(payload);
    let cpu = reader.u32()?;
    let is_known = |&level: &u8| usize::from(level) < DISTANCES.len();
    let is_whole = reader.0.len() == stream.tracks.len() && reader.0.iter().all(is_known);
    let place = stream.distances.get_mut(cpu as usize).filter(|_| is_whole)?;
    *place = reader.0.to_vec();
    Some(())
}

fn done(stream: &mut Stream, payload: &[u8]) -> Option<()> {
    stream.exit = Some(Reader(payload).u32()?);
    Some(())
}

/// A tag as its letters, or as a number if they are none.
fn tag_name(tag: u32) -> String {
    let letters = tag.to_le_bytes();
    if letters.iter().all(u8::is_ascii_graphic) {
        letters.iter().map(|&letter| char::from(letter)).collect()
    } else {
        format!("{tag:#010x}")
    }
}

/// Takes numbers off the front, as long as there are any.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A length and as many bytes; what is no UTF-8 is replaced.
    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.take().map(u16::from_le_bytes)?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests;
