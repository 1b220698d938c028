//! A pipeline whose slowest stage sets the pace: bounded channels hold the others back.
//!
//! The source could read a thousand lines at once. It stops when the channel behind it is full, which
//! is so when the next stage waits for its own; so memory stays bounded, whatever the stages cost.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(back_pressure, main);

const LINES: usize = 500;
const ROOM: usize = 4;

/// Lines that were read and are not stored yet, and the most that there ever were.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let (read, lines) = chan::bounded(ROOM);
    let (parsed, numbers) = chan::bounded(ROOM);
    let source = go(move || {
        for n in 0..LINES {
            MOST.fetch_max(UNDER_WAY.fetch_add(1, Relaxed) + 1, Relaxed);
            read.send(format!("{n}")).expect("a parser is there");
        }
    });
    let parsers: Vec<_> = (0..2)
        .map(|_| {
            let (lines, parsed) = (lines.clone(), parsed.clone());
            go(move || {
                for line in lines {
                    parsed
                        .send(line.parse::<usize>().expect("a number"))
                        .expect("a store is there");
                }
            })
        })
        .collect();
    drop((lines, parsed));
    let store = go(move || {
        numbers.iter().fold(0, |sum, n| {
            sleep(Duration::from_micros(20)); // the slow one
            UNDER_WAY.fetch_sub(1, Relaxed);
            sum + n
        })
    });
    source.join().expect("no panic");
    parsers.into_iter().for_each(|parser| parser.join().expect("no panic"));
    let sum = store.join().expect("no panic");
    assert_eq!(sum, LINES * (LINES - 1) / 2);
    // Both channels, one line in the hands of each of the four Gs.
    assert!(MOST.load(Relaxed) <= 2 * ROOM + 4);
    println!("{LINES} lines, at most {} of them under way", 2 * ROOM + 4);
}
