//! Breaks streams, and looks whether anything else breaks.
//!
//! A round takes a good stream, spoils some of it, and converts it as `make trace`
//! would. Nothing may panic, no span may overlap another on its CPU, and nothing
//! may grow beyond what the bytes justify. `cargo test` runs some hundred rounds,
//! `cargo run -p trace -- fuzz --seconds N` as many as fit. A round is told by its
//! number, so that one that failed can be run again.
#![forbid(unsafe_code)]

use std::io;

use crate::model::Model;
use crate::random::Random;
use crate::simulate::{Plan, stream};
use crate::wire::{HEADER_BYTES, Kind};
use crate::{check, chrome, decode, page, picture};

/// One round; panics if a promise is broken. Whether the stream was usable.
///
/// ```
/// trace::fuzz::round(1);
/// ```
pub fn round(number: u64) -> bool {
    let mut random = Random::new(number);
    let events = random.below(600) as usize;
    let mut bytes = stream(Plan { cpus: 1 + random.below(6) as u32, events, seed: number });
    for _ in 0..random.below(12) {
        spoil(&mut bytes, &mut random);
    }
    let Ok(stream) = decode::decode(&bytes) else { return false };
    assert!(stream.events() as usize * 16 <= bytes.len(), "more events than bytes");
    let model = Model::new(&stream);
    promises(&model);
    let _ = check::compare(&model).to_string();
    chrome::write(&model, io::sink()).expect("a sink takes all");
    let page = page::draw(&model, &page::Facts::default());
    let picture = picture::draw(&model, "fuzz");
    assert!(page.len() + picture.len() < 1_000_000 + 40 * bytes.len(), "too much of a page");
    true
}

/// Spoils something, anywhere but mostly not in the header.
fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let header = if random.below(20) == 0 { 0 } else { HEADER_BYTES };
    if bytes.len() <= header {
        return;
    }
    let at = header + random.below((bytes.len() - header) as u64) as usize;
    let some = |random: &mut Random| 1 + random.below(40) as usize;
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.any() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..(at + some(random)).min(bytes.len()))),
        4 => {
            let junk: Vec<u8> = (0..some(random)).map(|_| random.any() as u8).collect();
            bytes.splice(at..at, junk);
        }
        // A word that means a lot: a length, a count, a time, a number.
        5 => {
            let words = [0, 1, 255, 256, u64::from(u32::MAX), 1 << 52, u64::MAX, u64::MAX >> 1];
            let word = words[random.below(8) as usize].to_le_bytes();
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&word[..end - at]);
        }
        // An event becomes another one.
        6 => {
            let at = (at / 8 * 8 + 7).min(bytes.len() - 1);
            bytes[at] = 1 + random.below(Kind::ALL.len() as u64 + 1) as u8;
        }
        // A part comes twice.
        _ => {
            let part = bytes[at..(at + 16 * some(random)).min(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// What every model keeps, whatever it was made of.
fn promises(model: &Model) {
    for cpu in &model.cpus {
        assert!(cpu.spans.iter().all(|span| span.time.from <= span.time.to));
        assert!(cpu.spans.windows(2).all(|two| two[0].time.to <= two[1].time.from));
        assert!(cpu.idle.windows(2).all(|two| two[0].to <= two[1].from));
        assert!(cpu.spans.iter().all(|span| (span.g as usize) < model.gs.len()));
    }
    let cpus = model.cpus.len();
    assert!(model.num_spans() as u64 <= model.events);
    assert!(model.gs.len() as u64 <= model.events);
    assert!(model.idle_ps.iter().all(|point| point.value as usize <= cpus));
    assert!(model.runnable.iter().all(|point| point.value as usize <= model.gs.len()));
    assert!(model.runnable.windows(2).all(|two| two[0].at < two[1].at));
    assert!(model.gs.windows(2).all(|two| two[0].number < two[1].number));
}

#[cfg(test)]
mod tests {
    #[test]
    fn spoilt_streams_break_nothing() {
        let used = (0..500).filter(|&number| super::round(number)).count();
        assert!(used > 350, "only {used} of 500 were usable: the rest tests little");
    }
}
