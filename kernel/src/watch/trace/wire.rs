//! The bytes of a stream: a header, then blocks with a tag and a length each.
//!
//! All little-endian. Written here, read by the crate `trace`, which reports what is wrong with a
//! stream; writing here cannot fail, it can only be cut off.
#![forbid(unsafe_code)]

use super::Event;
use crate::watch::symbols::Clipped;
use arrayvec::ArrayString;
use core::fmt::{self, Write};

/// A destination of bytes, which takes all of them.
pub trait Out {
    fn write(&mut self, bytes: &[u8]);
}

const MAGIC: &[u8; 8] = b"RNTRACE1";
const VERSION: u32 = 1;
/// Maximum length of a name or spawn site: longer ones are cut off.
const MAX_TEXT: usize = 120;
/// The number of counters of each CPU, at the end of a stream.
pub const COUNTERS: usize = 10;

pub fn header(out: &mut dyn Out, cpus: u32, hz: u64, zero: u64) {
    out.write(MAGIC);
    out.write(&VERSION.to_le_bytes());
    out.write(&cpus.to_le_bytes());
    out.write(&hz.to_le_bytes());
    out.write(&zero.to_le_bytes());
}

/// Events of one CPU, the first of which is its `first`th.
pub fn events(out: &mut dyn Out, cpu: u32, first: u64, events: &[Event]) {
    block(out, b"EVTS", 16 + events.len() * Event::BYTES);
    out.write(&cpu.to_le_bytes());
    out.write(&0u32.to_le_bytes());
    out.write(&first.to_le_bytes());
    events.iter().for_each(|event| out.write(&event.to_bytes()));
}

pub fn name(out: &mut dyn Out, g: u32, name: &str, site: &dyn fmt::Display) {
    let text = |_| Clipped { out: ArrayString::<MAX_TEXT>::new(), room: MAX_TEXT };
    let [mut called, mut at] = core::array::from_fn(text);
    // Text that does not fit is cut off: that is no error here.
    let _ = called.write_str(name);
    let _ = write!(at, "{site}");
    let texts = [called.out, at.out];
    block(out, b"NAME", 4 + texts.iter().map(|text| 2 + text.len()).sum::<usize>());
    out.write(&g.to_le_bytes());
    for text in texts {
        out.write(&(text.len() as u16).to_le_bytes());
        out.write(text.as_bytes());
    }
}

pub fn stat(out: &mut dyn Out, cpu: u32, counters: [u64; COUNTERS]) {
    block(out, b"STAT", 8 + 8 * COUNTERS);
    out.write(&cpu.to_le_bytes());
    out.write(&(COUNTERS as u32).to_le_bytes());
    counters.iter().for_each(|counter| out.write(&counter.to_le_bytes()));
}

/// How far each CPU is from this one: a byte each, the index of a `Distance`.
pub fn distances(out: &mut dyn Out, cpu: u32, distances: impl ExactSizeIterator<Item = u8>) {
    block(out, b"DIST", 4 + distances.len());
    out.write(&cpu.to_le_bytes());
    distances.for_each(|distance| out.write(&[distance]));
}

pub fn done(out: &mut dyn Out, code: u32) {
    block(out, b"DONE", 4);
    out.write(&code.to_le_bytes());
}

fn block(out: &mut dyn Out, tag: &[u8; 4], len: usize) {
    out.write(tag);
    out.write(&(len as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::trace::{Kind, What};
    use ::trace::decode::decode;

    impl Out for Vec<u8> {
        fn write(&mut self, bytes: &[u8]) {
            self.extend_from_slice(bytes);
        }
    }

    #[test]
    fn reader_reads_what_is_written_here() {
        let mut bytes = Vec::new();
        header(&mut bytes, 2, 1_000_000_000, 77);
        let event = Event { time: 80, g: 9, what: What::new(Kind::Park, 4) };
        events(&mut bytes, 1, 0, &[event, event]);
        events(&mut bytes, 1, 5, &[event]);
        name(&mut bytes, 9, "worker", &"main.rs:3:1");
        stat(&mut bytes, 1, core::array::from_fn(|i| 100 + i as u64));
        distances(&mut bytes, 1, [4, 0].into_iter());
        done(&mut bytes, 3);

        let stream = decode(&bytes).expect("a stream");
        assert!(stream.warnings.is_empty(), "{:?}", stream.warnings.lines().collect::<Vec<_>>());
        let head = stream.header;
        assert_eq!((head.cpus, head.hz, head.zero), (2, 1_000_000_000, 77));
        let track = &stream.tracks[1];
        assert_eq!((track.events.len(), track.lost), (3, 3));
        let read = track.events[0];
        assert_eq!((read.tsc, read.g, read.arg()), (80, 9, 4));
        assert_eq!(read.kind().map(|kind| kind as u8), Some(Kind::Park as u8));
        assert_eq!(stream.names[0].name, "worker");
        assert_eq!(stream.names[0].site, "main.rs:3:1");
        let counters = stream.counters[1].expect("counters");
        assert_eq!((counters.events, counters.steals), (100, 109));
        assert_eq!(stream.distances, [vec![], vec![4, 0]]);
        assert_eq!(stream.exit, Some(3));
    }

    #[test]
    fn reader_and_writer_give_every_kind_the_same_number() {
        for &kind in Kind::ALL {
            let theirs = ::trace::wire::Kind::from_number(kind as u8).expect("known there");
            assert_eq!(format!("{theirs:?}"), format!("{kind:?}"));
        }
    }

    #[test]
    fn reader_and_kernel_call_distances_the_same() {
        let ours = crate::run::near::Distance::ALL.map(|distance| distance.to_string());
        assert_eq!(ours, ::trace::wire::DISTANCES);
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let mut bytes = Vec::new();
        header(&mut bytes, 1, 1_000_000_000, 0);
        name(&mut bytes, 1, &"é".repeat(MAX_TEXT), &"x".repeat(MAX_TEXT + 1));
        let stream = decode(&bytes).expect("a stream");
        assert_eq!(stream.names[0].name, "é".repeat(MAX_TEXT / 2));
        assert_eq!(stream.names[0].site, "x".repeat(MAX_TEXT));
    }
}
