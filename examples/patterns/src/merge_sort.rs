//! Parallel merge sort: both halves of a slice are sorted at once, in place.
//!
//! `join` lets a G sort the right half while its parent sorts the left one, and both may borrow
//! from the slice. A G costs some 200 instructions, so halves are split as long as sorting them
//! costs much more. The scheduler spreads them: a P that has nothing to do steals the oldest, which
//! is the largest.

use runnext::prelude::*;
use runnext::scope::join;

runnext::main!(merge_sort, main);

/// What one G sorts by itself.
const SHORT: usize = 1_000;

fn main() {
    let mut numbers: Vec<u64> = (0..50_000).map(|_| random() % 1_000_000).collect();
    let sum: u64 = numbers.iter().sum();
    sort(&mut numbers);
    assert!(numbers.is_sorted());
    assert_eq!(numbers.iter().sum::<u64>(), sum, "none is lost");
    println!("{} numbers are in order", numbers.len());
}

fn sort(numbers: &mut [u64]) {
    if numbers.len() <= SHORT {
        return numbers.sort_unstable();
    }
    let (left, right) = numbers.split_at_mut(numbers.len() / 2);
    join(|| sort(left), || sort(right));
    let merged = merge(left, right);
    numbers.copy_from_slice(&merged);
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
