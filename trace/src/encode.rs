//! Writes streams, as the machine does: for tests, fuzzing and [`crate::simulate`].
#![forbid(unsafe_code)]

use crate::wire::{Counters, Event, HEADER_BYTES, Header, MAGIC, VERSION, tag};

/// A stream that grows.
///
/// ```
/// use trace::{decode, encode::Encoder, wire::{Event, Header, Kind}};
/// let mut stream = Encoder::new(Header { cpus: 1, hz: 1_000_000_000, zero: 0 });
/// stream.events(0, 0, &[Event::new(5, 1, Kind::Start, 1), Event::new(9, 1, Kind::Exit, 0)]);
/// stream.done(0);
/// let stream = decode::decode(stream.bytes()).unwrap();
/// assert_eq!(stream.tracks[0].events.len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// A stream without blocks.
    pub fn new(header: Header) -> Encoder {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(header.cpus.to_le_bytes());
        bytes.extend(header.hz.to_le_bytes());
        bytes.extend(header.zero.to_le_bytes());
        Encoder(bytes)
    }

    /// A block of any tag.
    pub fn block(&mut self, tag: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).expect("a block of less than 4 GiB");
        self.0.extend(tag.to_le_bytes());
        self.0.extend(len.to_le_bytes());
        self.0.extend(payload);
    }

    /// Events of a CPU, of which the first is its number `first`.
    pub fn events(&mut self, cpu: u32, first: u64, events: &[Event]) {
        let mut payload = Vec::with_capacity(16 + 16 * events.len());
        payload.extend(cpu.to_le_bytes());
        payload.extend(0u32.to_le_bytes());
        payload.extend(first.to_le_bytes());
        payload.extend(events.iter().flat_map(|event| event.to_bytes()));
        self.block(tag::EVENTS, &payload);
    }

    /// What a G is called, and where it was spawned. Long ones are cut.
    pub fn name(&mut self, g: u32, name: &str, site: &str) {
        let mut payload = g.to_le_bytes().to_vec();
        for text in [name, site] {
            let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
            payload.extend((text.len() as u16).to_le_bytes());
            payload.extend(text);
        }
        self.block(tag::NAME, &payload);
    }

    /// What a CPU has counted.
    pub fn stat(&mut self, cpu: u32, counters: Counters) {
        let mut payload = cpu.to_le_bytes().to_vec();
        payload.extend((Counters::LEN as u32).to_le_bytes());
        payload.extend(counters.to_words().iter().flat_map(|word| word.to_le_bytes()));
        self.block(tag::STAT, &payload);
    }

    /// How far each CPU is from `cpu`.
    pub fn distances(&mut self, cpu: u32, distances: &[u8]) {
        self.block(tag::DISTANCES, &[&cpu.to_le_bytes()[..], distances].concat());
    }

    /// The end of the program.
    pub fn done(&mut self, code: u32) {
        self.block(tag::DONE, &code.to_le_bytes());
    }

    /// What was written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
