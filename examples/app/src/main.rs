//! A program of your own: `make run APP=examples/app`.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use runnext::prelude::*;

runnext::main!(app, main);

/// Sums the squares below a limit on as many Gs as there are CPUs. The limit is
/// an argument: `make run APP=examples/app ARGS="-- 1000"`.
fn main() {
    let limit: u64 = args().first().and_then(|word| word.parse().ok()).unwrap_or(100);
    let workers = num_cpus() as u64;
    let parts: Vec<_> = (0..workers)
        .map(|first| {
            go(move || (first..limit).step_by(workers as usize).map(|n| n * n).sum::<u64>())
        })
        .collect();
    let sum: u64 = parts.into_iter().map(|part| part.join().expect("no worker panics")).sum();
    println!("the squares below {limit} add up to {sum}");
}
