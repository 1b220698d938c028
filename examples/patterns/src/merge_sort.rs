//! Parallel merge sort: a G sorts one half while its parent sorts the other.
//!
//! A G costs some 200 instructions, so halves go to Gs as long as sorting them costs much more. The
//! scheduler spreads them: a P that has nothing to do steals the oldest, which is the largest.

use runnext::prelude::*;

runnext::main!(merge_sort, main);

/// What one G sorts by itself.
const SHORT: usize = 1_000;

fn main() {
    let numbers: Vec<u64> = (0..50_000).map(|_| random() % 1_000_000).collect();
    let sum: u64 = numbers.iter().sum();
    let sorted = sort(numbers);
    assert!(sorted.is_sorted());
    assert_eq!(sorted.iter().sum::<u64>(), sum, "none is lost");
    println!("{} numbers are in order", sorted.len());
}

fn sort(mut numbers: Vec<u64>) -> Vec<u64> {
    if numbers.len() <= SHORT {
        numbers.sort_unstable();
        return numbers;
    }
    let right = numbers.split_off(numbers.len() / 2);
    let right = go(move || sort(right));
    let left = sort(numbers);
    merge(&left, &right.join().expect("sorting does not panic"))
}

fn merge<'a>(mut left: &'a [u64], mut right: &'a [u64]) -> Vec<u64> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some(a), Some(b)) = (left.first(), right.first()) {
        let from = if a <= b { &mut left } else { &mut right };
        merged.push(from[0]);
        *from = &from[1..];
    }
    merged.extend(left.iter().chain(right));
    merged
}
