//! A pipeline: stages of several workers, joined by buffered channels.
//!
//! Numbers come from one G, are processed by a G per CPU, and are summed up by one G. Workers
//! are not counted: each stage ends when the stage before it has dropped its last sender.
//! `program=pipeline -- 50000` sends so many numbers.

use runnext::prelude::*;

runnext::main!(pipeline, main);

const NUMBERS: u64 = 50_000;
/// Capacity between two stages: enough that a stage need not wait for each value.
const BUFFER: usize = 64;

fn main() {
    let numbers = args().first().and_then(|word| word.parse().ok()).unwrap_or(NUMBERS);
    let (source, jobs) = chan::bounded(BUFFER);
    let (results, sink) = chan::bounded(BUFFER);

    let producer = go(move || (1..=numbers).try_for_each(|n| source.send(n)));
    for _ in 0..num_cpus() {
        let (jobs, results) = (jobs.clone(), results.clone());
        // Detached: the sink sees its end.
        drop(go(move || jobs.iter().try_for_each(|n| results.send((n, collatz(n))))));
    }
    drop((jobs, results));

    let (mut seen, mut longest) = (0, (1, 0));
    for (n, steps) in sink {
        seen += 1;
        // The smallest of the longest, in whatever order they arrive.
        if steps > longest.1 || (steps == longest.1 && n < longest.0) {
            longest = (n, steps);
        }
    }
    producer.join().expect("no panic").expect("the workers were there");
    assert_eq!(seen, numbers, "numbers were lost");
    println!("{numbers} numbers; {} takes the most steps to 1: {}", longest.0, longest.1);
}

/// How many steps the rule "half, or three times and one" takes to 1.
fn collatz(mut n: u64) -> u32 {
    let mut steps = 0;
    while n > 1 {
        n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}
