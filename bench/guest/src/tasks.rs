//! Workloads that start Gs, or make calls.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::scope::join;
use runnext::sync::WaitGroup;

/// How many Gs are started before one waits for them.
const BATCH: u64 = 1_000;

/// Gs that do nothing, a batch at a time.
pub fn spawn_join(gs: u64) -> u64 {
    static GROUP: WaitGroup = WaitGroup::new();
    for _ in 0..gs / BATCH {
        for _ in 0..BATCH {
            GROUP.add(1);
            let _detached = go(|| GROUP.done());
        }
        GROUP.wait();
    }
    gs / BATCH * BATCH
}

/// The same by one G for each P, each of which waits for its own.
pub fn spawn_each(gs: u64) -> u64 {
    let batches = (gs / gomaxprocs() as u64 / BATCH).max(1);
    let ps = on_each_p(|| {
        let group: &WaitGroup = Box::leak(Box::new(WaitGroup::new()));
        move || {
            for _ in 0..batches {
                for _ in 0..BATCH {
                    group.add(1);
                    let _detached = go(|| group.done());
                }
                group.wait();
            }
        }
    });
    ps * batches * BATCH
}

/// Runs what `make` gives in as many Gs as there are Ps, waits for all, and gives their number.
pub fn on_each_p<F: FnOnce() + Send + 'static>(make: impl Fn() -> F) -> u64 {
    static ALL: WaitGroup = WaitGroup::new();
    let ps = gomaxprocs() as u64;
    for _ in 0..ps {
        let work = make();
        ALL.add(1);
        let _detached = go(move || {
            work();
            ALL.done();
        });
    }
    ALL.wait();
    ps
}

/// A binary tree: the left child in a new G, the right one here.
pub fn fork_join(leaves: u64) -> u64 {
    let counted = tree(leaves.ilog2());
    assert_eq!(counted, leaves, "a leaf was lost");
    counted
}

fn tree(depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let join = Arc::new((WaitGroup::new(), AtomicU64::new(0)));
    join.0.add(1);
    let left = Arc::clone(&join);
    let _detached = go(move || {
        left.1.store(tree(depth - 1), Relaxed);
        left.0.done();
    });
    let right = tree(depth - 1);
    join.0.wait();
    right + join.1.load(Relaxed)
}

/// The same tree by `join`: the left child borrows, in a G of a scope.
pub fn fork_join_scoped(leaves: u64) -> u64 {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let (right, left) = join(|| tree(depth - 1), || tree(depth - 1));
        right + left
    }
    let counted = tree(leaves.ilog2());
    assert_eq!(counted, leaves, "a leaf was lost");
    counted
}

/// A tree of Gs, ten below each, whose leaves send their number up: all of them
/// added. The number of leaves is rounded down to a power of ten.
pub fn skynet(leaves: u64) -> u64 {
    let leaves = 10_u64.pow(leaves.max(1).ilog10());
    let (tx, rx) = chan::rendezvous();
    let _detached = go(move || branch(tx, 0, leaves));
    assert_eq!(rx.recv(), Ok(leaves * (leaves - 1) / 2), "a leaf was lost");
    leaves
}

fn branch(up: chan::Sender<u64>, first: u64, leaves: u64) {
    let sum = if leaves == 1 {
        first
    } else {
        let (tx, rx) = chan::rendezvous();
        let each = leaves / 10;
        for i in 0..10 {
            let tx = tx.clone();
            let _detached = go(move || branch(tx, first + i * each, each));
        }
        rx.iter().take(10).sum()
    };
    up.send(sum).expect("whoever is above waits for it");
}

/// A call that may block and does not.
pub fn blocking_nop(calls: u64) -> u64 {
    for n in 0..calls {
        assert_eq!(blocking(|| black_box(n)), n);
    }
    calls
}
