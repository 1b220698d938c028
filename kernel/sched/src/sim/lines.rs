//! Cache lines: which CPUs have a copy of each, and what it costs to fetch one.
//!
//! A model with three rules: a CPU that reads a line it has no copy of fetches it from the nearest CPU
//! that has one; a CPU that writes a line which others have too fetches it, or has it invalidated, as
//! far as the farthest of them; what no CPU has comes from memory and costs nothing here. Capacity is
//! not modelled: a line is lost only to a writer.

extern crate std;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

const LINE_BYTES: usize = 64;

#[derive(Default)]
struct Lines {
    /// What it costs to fetch a line, by the CPU that wants it and the CPU that has it.
    weights: Vec<Vec<u64>>,
    /// The CPUs with a copy, by line.
    copies: BTreeMap<usize, Vec<usize>>,
    moved: u64,
    cost: u64,
}

std::thread_local! {
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// From now on fetches are counted on this thread, each with its weight.
pub fn count(weights: Vec<Vec<u64>>) {
    LINES.set(Some(Lines { weights, ..Lines::default() }));
}

/// Ends that: how many lines were fetched, and their weights in all.
#[must_use]
pub fn counted() -> (u64, u64) {
    LINES.take().map_or((0, 0), |lines| (lines.moved, lines.cost))
}

/// The CPU reads or writes the line of that address.
pub(super) fn access(at: usize, cpu: usize, writes: bool) {
    LINES.with_borrow_mut(|lines| {
        let Some(lines) = lines else { return };
        let copies = lines.copies.entry(at / LINE_BYTES).or_default();
        let others =
            || copies.iter().filter(|&&other| other != cpu).map(|&o| lines.weights[cpu][o]);
        let has_copy = copies.contains(&cpu);
        let cost = if writes { others().max() } else { others().min().filter(|_| !has_copy) };
        lines.moved += u64::from(cost.is_some());
        lines.cost += cost.unwrap_or(0);
        if writes {
            copies.clear();
        }
        if writes || !has_copy {
            copies.push(cpu);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fetched_once_by_each_reader_and_by_each_writer_after_another() {
        let far = |a: u64, b: u64| if a / 2 == b / 2 { 1 } else { 10 };
        count((0..4).map(|a| (0..4).map(|b| far(a, b)).collect()).collect());
        let run = |steps: &[(usize, bool)]| steps.iter().for_each(|&(cpu, w)| access(64, cpu, w));
        run(&[(0, true), (0, true), (0, false)]); // from memory, then its own
        run(&[(1, false), (1, false)]); // from CPU 0: 1
        run(&[(2, false), (3, false)]); // from afar, and from its neighbour: 10 and 1
        run(&[(1, true)]); // the farthest copy is invalidated: 10
        run(&[(0, true), (65, true)][..1]); // from CPU 1: 1
        assert_eq!(counted(), (5, 23));
        assert_eq!(counted(), (0, 0), "it is over");
    }
}
