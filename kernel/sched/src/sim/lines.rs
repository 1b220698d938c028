//! Cache lines: which CPUs have a copy of each, and what it costs to fetch one.
//!
//! A model with four rules: a CPU that reads a line it has no copy of fetches it from the nearest
//! CPU that has one; a CPU that writes a line which others have too fetches it, or has it
//! invalidated, as far as the farthest of them; a line that no CPU has comes from memory, which is
//! counted by itself; and a CPU has room for so many lines, of which the one goes that it has not
//! used for longest.

extern crate std;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

const LINE_BYTES: usize = 64;

/// What was fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Lines that came from another CPU, or had to be invalidated there.
    pub moved: u64,
    /// The weights of these.
    pub cost: u64,
    /// Lines that came from memory.
    pub missed: u64,
}

struct Lines {
    /// What it costs to fetch a line, by the CPU that wants it and the CPU that has it.
    weights: Vec<Vec<u64>>,
    capacity: usize,
    /// The lines of each CPU, and when it used them last.
    caches: Vec<BTreeMap<usize, u64>>,
    /// The same the other way round: the oldest first.
    ages: Vec<BTreeMap<u64, usize>>,
    now: u64,
    counted: Counted,
}

std::thread_local! {
    static LINES: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// From now on fetches are counted on this thread, for CPUs that have room for so many lines each.
pub fn count(weights: Vec<Vec<u64>>, capacity: usize) {
    let (caches, ages) = weights.iter().map(|_| Default::default()).unzip();
    let (now, counted) = (0, Counted::default());
    LINES.set(Some(Lines { weights, capacity, caches, ages, now, counted }));
}

/// Ends that.
#[must_use]
pub fn counted() -> Counted {
    LINES.take().map_or_else(Counted::default, |lines| lines.counted)
}

/// The CPU reads or writes the line of that address.
pub(super) fn access(at: usize, cpu: usize, writes: bool) {
    LINES.with_borrow_mut(|lines| {
        if let Some(lines) = lines {
            lines.access(at / LINE_BYTES, cpu, writes);
        }
    });
}

impl Lines {
    fn access(&mut self, line: usize, cpu: usize, writes: bool) {
        let has_copy = self.caches[cpu].contains_key(&line);
        let holders = self.caches.iter().enumerate().filter(|(_, cache)| cache.contains_key(&line));
        let others = holders.filter(|(other, _)| *other != cpu);
        let weights = others.map(|(other, _)| self.weights[cpu][other]);
        let cost = if writes { weights.max() } else { weights.min().filter(|_| !has_copy) };
        self.counted.moved += u64::from(cost.is_some());
        self.counted.cost += cost.unwrap_or(0);
        self.counted.missed += u64::from(cost.is_none() && !has_copy);
        if writes {
            (0..self.caches.len()).for_each(|other| self.drop_line(other, line));
        } else {
            self.drop_line(cpu, line);
        }
        self.now += 1;
        self.caches[cpu].insert(line, self.now);
        self.ages[cpu].insert(self.now, line);
        if self.caches[cpu].len() > self.capacity
            && let Some((_, oldest)) = self.ages[cpu].pop_first()
        {
            self.caches[cpu].remove(&oldest);
        }
    }

    fn drop_line(&mut self, cpu: usize, line: usize) {
        if let Some(age) = self.caches[cpu].remove(&line) {
            self.ages[cpu].remove(&age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[(usize, usize, bool)]) -> Counted {
        let far = |a: u64, b: u64| if a / 2 == b / 2 { 1 } else { 10 };
        count((0..4).map(|a| (0..4).map(|b| far(a, b)).collect()).collect(), 2);
        steps.iter().for_each(|&(line, cpu, writes)| access(line * LINE_BYTES + 3, cpu, writes));
        counted()
    }

    #[test]
    fn a_line_is_fetched_once_by_each_reader_and_by_each_writer_after_another() {
        let own = [(1, 0, true), (1, 0, true), (1, 0, false)]; // from memory, then its own
        assert_eq!(run(&own), Counted { moved: 0, cost: 0, missed: 1 });
        let read = [(1, 0, true), (1, 1, false), (1, 1, false), (1, 2, false), (1, 3, false)];
        assert_eq!(run(&read), Counted { moved: 3, cost: 12, missed: 1 }, "1, 10, and 1");
        let written = [(1, 0, true), (1, 1, false), (1, 2, false), (1, 1, true), (1, 0, true)];
        assert_eq!(run(&written), Counted { moved: 4, cost: 22, missed: 1 }, "1, 10, 10 and 1");
        assert_eq!(counted(), Counted::default(), "it is over");
    }

    #[test]
    fn the_line_that_was_used_longest_ago_goes() {
        let three = [(1, 0, true), (2, 0, true), (1, 0, false), (3, 0, true), (1, 0, false)];
        assert_eq!(run(&three).missed, 3, "line 2 made room");
        let again = [(1, 0, true), (2, 0, true), (3, 0, true), (1, 0, false)];
        assert_eq!(run(&again).missed, 4);
    }
}
