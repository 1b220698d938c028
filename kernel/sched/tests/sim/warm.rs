//! What a cache-warm order saves: the lines that come from memory, by system.
//!
//! On one CPU with room for 256 lines, parents take turns: each writes a message into the lines of
//! a new child, and yields; the child reads the message and ends. A child that runs at once finds
//! the message in the cache. In one queue, first in first out (`shared`), it runs when all that
//! were there before have had their turn, and have pushed its message out. At the head of that
//! queue (`lifo`, the seventh system, from `examples/system`) it runs next; so it does in Go's
//! run-next slot. (Go's ring has eight places here, so that its parents take turns in eights, and
//! are found in the cache, too.)

use crate::lifo::Lifo;
use sched::sim;
use sched::sim::lines::{self, Counted};
use sched::system::{self, System};
use sched::{G, Next, PSlot, Priority, Run, Sched};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CAPACITY: usize = 256;
/// Together they have more lines than the cache.
const PARENTS: usize = 64;
const CHILDREN: usize = 20;

#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its address counts")] [u8; 64]);

struct Task {
    /// Children to be made; a child makes none.
    children: AtomicUsize,
    is_parent: bool,
    lines: [Line; 8],
}

fn task(children: usize) -> &'static G<Task> {
    let lines = [const { Line([0; 64]) }; 8];
    let task = Task { children: AtomicUsize::new(children), is_parent: children > 0, lines };
    Box::leak(Box::new(G::new(task)))
}

/// What one CPU fetches until all have ended.
fn run(system: &'static dyn System<Task>) -> Counted {
    let slots = vec![PSlot::new()].leak();
    let sched: &'static Sched<Task> = Box::leak(Box::new(Sched::new(slots)));
    let mut p = sched.acquire_under(0, 1, system.places()).expect("new");
    lines::count(vec![vec![0]], CAPACITY);
    sim::begin(1, 1, u32::MAX, None, || ());
    sim::set_cpu(Some(0));
    for _ in 0..PARENTS {
        let _ = sched.start_asking(&mut p, task(CHILDREN), None, Priority::Normal);
    }
    while let Next::Run(Run { g, .. }) = sched.find_runnable(&mut p) {
        let Task { children, is_parent, lines } = &g.kernel;
        lines.iter().for_each(|line| sim::touch(line, *is_parent));
        let Some(left) = children.load(Relaxed).checked_sub(1) else {
            g.exit();
            continue;
        };
        children.store(left, Relaxed);
        let child = task(0);
        child.kernel.lines.iter().for_each(|line| sim::touch(line, true));
        let _ = sched.start_asking(&mut p, child, None, Priority::Normal);
        sched.yielded(&mut p, g);
    }
    sim::set_cpu(None);
    sim::end();
    lines::counted()
}

#[test]
fn a_message_is_still_in_the_cache_if_its_reader_runs_next() {
    let named = |name| system::all().into_iter().find(|s| s.about().name == name).expect("it");
    let [fifo, lifo, go] = [named("shared"), &Lifo, named("mpn")].map(|s| run(s).missed);
    println!("lines from memory: shared {fifo}, lifo {lifo}, mpn {go}");
    // The message of each child is fetched once more where its reader comes late.
    let messages = (PARENTS * CHILDREN * 8) as u64;
    assert!(fifo >= lifo + messages * 9 / 10, "a reader that comes late found its message");
    assert!(lifo >= go, "a reader in the run-next slot did not find its message");
}
