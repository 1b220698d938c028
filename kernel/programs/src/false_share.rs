//! False sharing: counters that no two Gs share, in cache lines that all of them share.
//!
//! A cache keeps lines of 64 bytes. To write one byte a CPU must own its line, and the copies of
//! all other CPUs become invalid. So CPUs that write counters which lie beside each other take the
//! line from each other at every write, though none reads what another has written. With each
//! counter in a line of its own, every CPU keeps its line. The kernel lays its own words out that
//! way: fields that different CPUs write are on different lines (`sched`, `Lines`).
//!
//! # What is counted, and what is not
//!
//! **Counted are transfers of lines, by a model beside the run** ([`Lines`]): a line belongs to the
//! CPU that wrote it last, and a write by another CPU moves it. Which line a counter is in is its
//! real address, and the order of writes is that of this run. Each G writes once a round, and a
//! round begins when all have ended the last one: so the counts have bounds that hold on every
//! machine, and the program fails if they do not hold.
//!
//! **What a transfer costs is not counted**: some 50 to 100 ns on hardware, and nothing in QEMU,
//! whose emulation has no caches. A clock would show only how the rounds are held together.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::Semaphore;

runnext::main!(falseshare, main);

const LINE_BYTES: usize = 64;
/// Counters in a line.
const PLACES: usize = LINE_BYTES / size_of::<AtomicU64>();
const ROUNDS: usize = 500;

fn main() {
    let cpus = gomaxprocs();
    if cpus == 1 {
        return println!("sharing takes two Ps: SMP=2 or more");
    }
    println!("{cpus} Gs, one on each CPU, write their own counters {ROUNDS} times");
    let beside = measure("beside each other", cpus, |g| (g / PLACES, g % PLACES));
    let apart = measure("a line each", cpus, |g| (g, 0));
    let lines = cpus.div_ceil(PLACES);
    // In every round a line is moved by each of its writers but the one that has it.
    let least = (cpus - lines) * ROUNDS;
    if beside < least || apart != cpus {
        println!("the model is wrong: at least {least} and exactly {cpus} were expected");
        exit(1);
    }
    println!("false sharing moves lines {} times for each move that is needed", beside / apart);
}

/// Has each G count at its place, the line and the counter in it; returns how often a line moved.
fn measure(layout: &str, cpus: usize, place: fn(usize) -> (usize, usize)) -> usize {
    let memory: Arc<Vec<Line>> = Arc::new((0..cpus).map(|_| Line::default()).collect());
    let model = Arc::new(Lines::of(&memory));
    // A gate for each, or a quick one would go through for a slow one.
    let gates: Arc<Vec<Semaphore>> = Arc::new((0..cpus).map(|_| Semaphore::new(0)).collect());
    let written = Arc::new(Semaphore::new(0));
    let writers = (0..cpus).filter_map(|cpu| {
        let (memory, model) = (memory.clone(), model.clone());
        let (gates, written) = (gates.clone(), written.clone());
        let write = move || {
            let (line, at) = place(cpu);
            let counter = &memory[line].0[at];
            for _ in 0..ROUNDS {
                gates[cpu].acquire(1);
                counter.fetch_add(1, Relaxed);
                model.written(core::ptr::from_ref(counter).addr(), cpu);
                written.release(1);
            }
        };
        Go::new().pin(cpu).spawn(write).ok()
    });
    let writers: Vec<_> = writers.collect();
    if writers.len() < cpus {
        println!("no memory for {cpus} Gs");
        exit(1);
    }
    for _ in 0..ROUNDS {
        gates.iter().for_each(|gate| gate.release(1));
        written.acquire(cpus);
    }
    writers.into_iter().for_each(|g| g.join().expect("a writer does not panic"));
    println!("  {layout}: lines moved {} times", model.moved());
    model.moved()
}

/// A cache line of counters.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; PLACES]);

/// The model: which CPU wrote each line last.
struct Lines {
    /// The address of the first.
    start: usize,
    /// The CPU plus one; 0 at first.
    owners: Vec<AtomicUsize>,
    moved: AtomicUsize,
}

impl Lines {
    fn of(memory: &[Line]) -> Self {
        let owners = memory.iter().map(|_| AtomicUsize::new(0)).collect();
        Lines { start: memory.as_ptr().addr(), owners, moved: AtomicUsize::new(0) }
    }

    /// That CPU has written at that address: its line moves there, unless it is there.
    fn written(&self, address: usize, cpu: usize) {
        let line = (address - self.start) / LINE_BYTES;
        if self.owners[line].swap(cpu + 1, Relaxed) != cpu + 1 {
            self.moved.fetch_add(1, Relaxed);
        }
    }

    fn moved(&self) -> usize {
        self.moved.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// How often a line moves when CPUs write these counters in turn, by line and place.
    fn moves(writes: &[(usize, usize, usize)]) -> usize {
        let memory: Vec<Line> = (0..4).map(|_| Line::default()).collect();
        let model = Lines::of(&memory);
        for &(cpu, line, place) in writes {
            model.written(core::ptr::from_ref(&memory[line].0[place]).addr(), cpu);
        }
        model.moved()
    }

    #[test]
    fn a_line_stays_with_the_cpu_that_writes_it_whatever_it_writes_there() {
        assert_eq!(moves(&[(0, 0, 0), (0, 0, 7), (0, 0, 0)]), 1);
    }

    #[test]
    fn two_counters_of_one_line_move_it_at_every_turn() {
        assert_eq!(moves(&[(0, 0, 0), (1, 0, 7), (0, 0, 0), (1, 0, 7)]), 4);
    }

    #[test]
    fn two_counters_of_two_lines_do_not() {
        assert_eq!(moves(&[(0, 0, 7), (1, 1, 0), (0, 0, 7), (1, 1, 0)]), 2);
    }
}
