//! Tests of the decoder: what it takes, what it skips, what it says.

use super::*;
use crate::encode::Encoder;
use crate::wire::Kind;

const HEADER: Header = Header { cpus: 2, hz: 1_000_000_000, zero: 100 };

fn event(tsc: u64) -> Event {
    Event::new(tsc, 1, Kind::Tick, 0)
}

/// Two blocks of CPU 1 with a gap of 3 between, a name, counters, an end.
fn sample() -> Vec<u8> {
    let mut stream = Encoder::new(HEADER);
    stream.events(1, 0, &[event(1), event(2)]);
    stream.name(7, "leaf", "skynet.rs:42");
    stream.events(1, 5, &[event(9)]);
    stream.stat(1, Counters { events: 6, lost: 3, ..Counters::default() });
    stream.done(0);
    stream.into_bytes()
}

fn warnings(stream: &Stream) -> String {
    stream.warnings.lines().collect::<Vec<_>>().join("; ")
}

#[test]
fn what_was_written_is_read() {
    let stream = decode(&sample()).expect("a good stream");
    assert_eq!(stream.header, HEADER);
    assert_eq!(stream.tracks[1].events, [event(1), event(2), event(9)]);
    assert_eq!(stream.tracks[1].gaps, [Gap { at: 2, lost: 3 }]);
    assert!(stream.tracks[0].events.is_empty());
    let leaf = Name { g: 7, name: "leaf".into(), site: "skynet.rs:42".into() };
    assert_eq!(stream.names, [leaf]);
    assert_eq!(stream.counters[1].map(|counters| counters.events), Some(6));
    assert_eq!((stream.exit, stream.lost(), stream.events()), (Some(0), 3, 3));
    assert!(stream.warnings.is_empty(), "{}", warnings(&stream));
}

#[test]
fn a_stream_cut_anywhere_is_used_up_to_the_cut() {
    let whole = sample();
    let mut most = 0;
    for len in 0..whole.len() {
        match decode(&whole[..len]) {
            Ok(stream) => {
                assert!(!stream.warnings.is_empty(), "cut at {len}");
                assert!(stream.events() >= most);
                most = stream.events();
            }
            Err(error) => assert!(len < HEADER_BYTES, "{len}: {error}"),
        }
    }
    assert_eq!(most, 3);
}

#[test]
fn whole_events_of_a_cut_block_count() {
    let mut stream = Encoder::new(HEADER);
    stream.events(0, 0, &[event(1), event(2), event(3)]);
    let bytes = stream.into_bytes();
    let stream = decode(&bytes[..bytes.len() - 20]).expect("a header");
    assert_eq!(stream.tracks[0].events, [event(1)]);
    assert!(warnings(&stream).contains("cut within a block EVTS"), "{}", warnings(&stream));
}

#[test]
fn unknown_blocks_are_skipped_with_a_warning() {
    let mut stream = Encoder::new(HEADER);
    stream.block(u32::from_le_bytes(*b"WHAT"), &[1; 9]);
    stream.block(3, &[]);
    stream.done(4);
    let stream = decode(stream.bytes()).expect("a header");
    assert_eq!(stream.exit, Some(4));
    assert_eq!(
        warnings(&stream),
        "a block WHAT of 9 bytes is skipped; a block 0x00000003 of 0 bytes is skipped"
    );
}

#[test]
fn a_cpu_that_the_machine_has_not_is_skipped() {
    let mut stream = Encoder::new(HEADER);
    stream.events(2, 0, &[event(1)]);
    stream.stat(u32::MAX, Counters::default());
    let stream = decode(stream.bytes()).expect("a header");
    assert_eq!(stream.events(), 0);
    assert_eq!(stream.warnings.lines().count(), 3); // and no end
}

#[test]
fn events_that_come_twice_are_taken_once() {
    let mut stream = Encoder::new(HEADER);
    stream.events(0, 0, &[event(1), event(2)]);
    stream.events(0, 1, &[event(2), event(3)]);
    let stream = decode(stream.bytes()).expect("a header");
    assert_eq!(stream.tracks[0].events, [event(1), event(2), event(3)]);
    assert!(warnings(&stream).contains("1 events of CPU 0 came twice"));
}

#[test]
fn numbers_near_the_end_of_the_world_do_not_overflow() {
    let mut stream = Encoder::new(HEADER);
    stream.events(0, u64::MAX, &[event(1)]);
    stream.events(0, u64::MAX, &[event(2)]);
    stream.events(0, 0, &[event(3)]);
    let stream = decode(stream.bytes()).expect("a header");
    assert_eq!(stream.lost(), u64::MAX);
}

#[test]
fn what_stands_before_the_header_is_skipped() {
    let bytes = [b"SeaBIOS RNTRACE0 ", &sample()[..]].concat();
    let stream = decode(&bytes).expect("a header");
    assert_eq!(stream.events(), 3);
    assert!(warnings(&stream).starts_with("17 bytes before"), "{}", warnings(&stream));
}

#[test]
fn headers_that_cannot_be_used_are_errors() {
    let bytes = |cpus, hz| Encoder::new(Header { cpus, hz, zero: 0 }).into_bytes();
    assert_eq!(decode(&bytes(0, 1)).err(), Some(Unusable::Cpus(0)));
    assert_eq!(decode(&bytes(257, 1)).err(), Some(Unusable::Cpus(257)));
    assert_eq!(decode(&bytes(1, 0)).err(), Some(Unusable::Frequency));
    let mut newer = bytes(1, 1);
    newer[8] = 2;
    assert_eq!(decode(&newer).err(), Some(Unusable::Version(2)));
    assert_eq!(decode(b"").err(), Some(Unusable::NoHeader));
}

#[test]
fn ten_thousand_bad_blocks_make_few_warnings() {
    let mut stream = Encoder::new(HEADER);
    (0..10_000).for_each(|i| stream.block(i, &[]));
    let stream = decode(stream.bytes()).expect("a header");
    let lines: Vec<_> = stream.warnings.lines().collect();
    assert_eq!(lines.len(), MAX_WARNINGS + 1);
    assert_eq!(lines[MAX_WARNINGS], "9969 more");
}
