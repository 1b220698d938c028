//! A program of your own: `make run APP=examples/app`, `make test APP=examples/app`.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use runnext::prelude::*;

runnext::main!(app, main);

/// Sums the squares below a limit on as many Gs as there are CPUs. The limit is
/// an argument: `make run APP=examples/app ARGS="-- 1000"`.
fn main() {
    let limit = args().first().and_then(|word| word.parse().ok()).unwrap_or(100);
    println!("the squares below {limit} add up to {}", sum_of_squares(limit, num_cpus()));
}

/// Each G takes every `workers`-th number.
fn sum_of_squares(limit: u64, workers: usize) -> u64 {
    let part = move |first| (first..limit).step_by(workers).map(|n| n * n).sum::<u64>();
    let parts: Vec<_> = (0..workers as u64).map(|first| go(move || part(first))).collect();
    parts.into_iter().map(|part| part.join().expect("no worker panics")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    runnext::tests![squares_add_up, the_number_of_workers_does_not_matter];

    fn squares_add_up() {
        assert_eq!(sum_of_squares(4, 2), 1 + 4 + 9);
    }

    fn the_number_of_workers_does_not_matter() {
        for workers in 1..20 {
            assert_eq!(sum_of_squares(10, workers), 285);
        }
    }
}
