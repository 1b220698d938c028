//! The heap against a model, its shape, and how much work it does.

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::vec::Vec;

/// A record with a number.
pub(crate) struct Sleeper {
    pub(crate) number: usize,
    pub(crate) node: Node,
}

impl Timed for Sleeper {
    fn timer(&'static self) -> &'static Node {
        &self.node
    }

    fn due(&'static self, now_ns: u64) -> Option<GHandle> {
        FIRED.with_borrow_mut(|fired| fired.push((self.number, now_ns)));
        None
    }
}

/// The entries that were called by this thread since the last time, and when.
pub(crate) fn fired() -> Vec<(usize, u64)> {
    FIRED.take()
}

/// Records for a test. They live for ever, as Gs do.
pub(crate) fn sleepers(n: usize) -> &'static [Sleeper] {
    static ALL: Mutex<Vec<&[Sleeper]>> = Mutex::new(Vec::new()); // so that Miri finds no leak
    let sleepers: Vec<_> = (0..n).map(|number| Sleeper { number, node: Node::new() }).collect();
    let sleepers: &[Sleeper] = sleepers.leak();
    for s in sleepers {
        s.node.record.call_once(|| s);
    }
    ALL.lock().unwrap().push(sleepers);
    sleepers
}

/// A small generator (xorshift), so that a failure can be reproduced.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

thread_local! {
    static FIRED: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn count_a_step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// How many entries an operation visited.
fn steps_of<R>(operation: impl FnOnce() -> R) -> (R, usize) {
    STEPS.with(|steps| steps.set(0));
    (operation(), STEPS.with(Cell::get))
}

/// Order, ranks, links and number are as the head of the file says.
fn check(heap: &Heap) {
    let mut seen = 0;
    let mut to_visit: Vec<&Node> = heap.root.into_iter().collect();
    assert!(heap.root.is_none_or(|root| root.up.get().is_none()));
    while let Some(entry) = to_visit.pop() {
        seen += 1;
        let (left, right) = (entry.left.get(), entry.right.get());
        assert!(rank(left) >= rank(right), "not leftist");
        assert_eq!(rank_of(entry), rank(right) + 1, "wrong rank");
        for below in [left, right].into_iter().flatten() {
            assert!(key(entry) < key(below), "not a heap");
            assert!(below.up.get().is_some_and(|up| ptr::eq(up, entry)), "wrong link up");
            to_visit.push(below);
        }
    }
    assert_eq!(seen, heap.len());
}

fn rank_of(entry: &Node) -> u8 {
    entry.rank.load(Relaxed)
}

/// Removes the first, if it is due; its number.
fn pop(heap: &mut Heap, now_ns: u64) -> Option<usize> {
    heap.pop_due(now_ns)?.record.get().expect("a sleeper").due(now_ns);
    fired().pop().map(|(number, _)| number)
}

fn drain(heap: &mut Heap) -> Vec<usize> {
    std::iter::from_fn(|| pop(heap, u64::MAX)).collect()
}

const N: usize = if cfg!(miri) { 60 } else { 100_000 };

/// log2(N + 1), rounded up: the greatest rank.
const MAX_RANK: usize = (N + 1).next_power_of_two().ilog2() as usize;

#[test]
fn entries_come_out_by_deadline() {
    let mut random = Random(1);
    let mut heap = Heap::new();
    let mut expected = Vec::new();
    for s in sleepers(N) {
        let deadline = random.below(1 << 40);
        heap.insert(&s.node, deadline);
        expected.push((deadline, s.number));
    }
    check(&heap);
    expected.sort_unstable();
    assert!(drain(&mut heap).into_iter().eq(expected.into_iter().map(|(_, number)| number)));
    check(&heap);
}

#[test]
fn entries_of_one_deadline_come_out_in_the_order_they_went_in() {
    let mut random = Random(2);
    let mut heap = Heap::new();
    let mut expected = Vec::new();
    for s in sleepers(N / 10) {
        let deadline = random.below(3);
        heap.insert(&s.node, deadline);
        expected.push((deadline, s.number));
    }
    // Entries that leave and come back queue up again.
    let returning = sleepers(1);
    heap.insert(&returning[0].node, 0);
    assert!(heap.remove(&returning[0].node));
    expected.sort_unstable();
    assert!(drain(&mut heap).into_iter().eq(expected.into_iter().map(|(_, number)| number)));
}

#[test]
fn heap_does_what_a_sorted_map_does() {
    let (seeds, rounds) = if cfg!(miri) { (1, 60) } else { (20, 2_000) };
    for seed in 1..=seeds {
        let mut random = Random(seed);
        let all = sleepers(64);
        let mut heap: Heap = Heap::new();
        let mut model = BTreeMap::new(); // by deadline and turn
        let mut turn_of = [None; 64];
        for turn in 0..rounds {
            let s = &all[random.below(64) as usize];
            match (random.below(4), turn_of[s.number]) {
                (0, _) => {
                    let now = random.below(100);
                    let due = model.first_key_value().map(|(&key, &number)| (key, number));
                    let due = due.filter(|&((deadline, _), _)| deadline <= now);
                    assert_eq!(pop(&mut heap, now), due.map(|(_, number)| number));
                    if let Some((key, number)) = due {
                        model.remove(&key);
                        turn_of[number] = None;
                    }
                }
                (_, None) => {
                    let key = (random.below(100), turn);
                    model.insert(key, s.number);
                    turn_of[s.number] = Some(key);
                    let is_first = model.first_key_value().is_some_and(|(first, _)| *first == key);
                    assert_eq!(heap.insert(&s.node, key.0), is_first);
                }
                (1, Some(key)) => {
                    assert!(heap.remove(&s.node));
                    assert!(!heap.remove(&s.node), "removed twice");
                    model.remove(&key);
                    turn_of[s.number] = None;
                }
                _ => {}
            }
            assert_eq!(heap.first_deadline(), model.keys().next().map(|key| key.0));
            if !cfg!(miri) || turn % 16 == 0 {
                check(&heap);
            }
        }
    }
}

#[test]
fn no_single_operation_takes_more_than_a_few_log_n_steps() {
    let mut random = Random(3);
    let n = N as u64;
    let mut shuffled = |_| random.below(n);
    let orders: [&mut dyn FnMut(u64) -> u64; 5] = [
        &mut |i| i,
        &mut |i| n - i,
        &mut |_| 7,
        &mut |i| if i % 2 == 0 { i } else { n - i },
        &mut shuffled,
    ];
    for deadline_of in orders {
        let all = sleepers(N);
        let mut heap = Heap::new();
        for s in all {
            let (_, steps) = steps_of(|| heap.insert(&s.node, deadline_of(s.number as u64)));
            assert!(steps <= MAX_RANK + 1, "insert took {steps}");
        }
        for s in all.iter().step_by(3) {
            let (removed, steps) = steps_of(|| heap.remove(&s.node));
            assert!(removed && steps <= 3 * MAX_RANK + 1, "remove took {steps}");
        }
        check(&heap);
        while let (Some(_), steps) = steps_of(|| heap.pop_due(n)) {
            assert!(steps <= 2 * MAX_RANK, "pop took {steps}");
        }
        check(&heap);
    }
}

#[test]
fn entry_can_be_used_again_after_it_left_either_way() {
    let s = &sleepers(1)[0];
    let (mut here, mut there) = (Heap::new(), Heap::new());
    here.insert(&s.node, 1);
    assert!(here.pop_due(1).is_some());
    assert!(!here.remove(&s.node));
    there.insert(&s.node, 2);
    assert!(there.remove(&s.node));
    here.insert(&s.node, 3);
    assert_eq!((here.len(), there.len()), (1, 0));
}

#[test]
#[should_panic(expected = "timer armed")]
fn entry_that_is_in_cannot_go_in_again() {
    let s = &sleepers(1)[0];
    let mut heap = Heap::new();
    heap.insert(&s.node, 1);
    heap.insert(&s.node, 2);
}

#[test]
fn deadline_is_due_at_its_very_nanosecond_and_not_before() {
    let all = sleepers(2);
    let mut heap = Heap::new();
    heap.insert(&all[0].node, 10);
    heap.insert(&all[1].node, u64::MAX);
    assert!(heap.pop_due(9).is_none());
    assert!(heap.pop_due(10).is_some());
    assert!(heap.pop_due(u64::MAX - 1).is_none());
}
