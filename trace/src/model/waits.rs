//! The longest of many waits, in little memory.

use super::Wait;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many are kept.
pub(super) const KEPT: usize = 100;

/// The longest ones of those that were shown to it.
#[derive(Default)]
pub(super) struct Longest {
    /// By length, the shortest on top; then by when they were shown, so that of
    /// equals the first stay.
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>)>>,
    waits: std::collections::HashMap<u64, Wait>,
    shown: u64,
}

impl Longest {
    pub(super) fn show(&mut self, wait: Wait) {
        self.shown += 1;
        let (ns, number) = (wait.time.ns(), self.shown);
        let shortest = self.heap.peek().map_or(0, |&Reverse((ns, _))| ns);
        if ns == 0 || (self.heap.len() == KEPT && ns <= shortest) {
            return;
        }
        self.heap.push(Reverse((ns, Reverse(number))));
        self.waits.insert(number, wait);
        if self.heap.len() > KEPT
            && let Some(Reverse((_, Reverse(number)))) = self.heap.pop()
        {
            self.waits.remove(&number);
        }
    }

    /// Longest first.
    pub(super) fn into_waits(self) -> Vec<Wait> {
        let Longest { heap, waits, .. } = self;
        let sorted = heap.into_sorted_vec();
        sorted.iter().filter_map(|Reverse((_, Reverse(n)))| waits.get(n).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Interval;

    #[test]
    fn the_longest_stay_longest_first() {
        let mut longest = Longest::default();
        for ns in (1..=1000).chain([0]) {
            let time = Interval { from: 5, to: 5 + ns * 7919 % 1009 };
            longest.show(Wait { g: 1, time, cpu: 0, reason: 0 });
        }
        let lengths: Vec<u64> = longest.into_waits().iter().map(|wait| wait.time.ns()).collect();
        assert_eq!(lengths.len(), KEPT);
        assert!(lengths.is_sorted_by(|a, b| a >= b));
        let mut all: Vec<u64> = (1..=1000).map(|ns| ns * 7919 % 1009).collect();
        all.sort_unstable_by_key(|&ns| Reverse(ns));
        assert_eq!(lengths, all[..KEPT]);
    }
}
