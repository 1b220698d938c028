//! Workloads that start Gs, or make calls.

extern crate alloc;

use alloc::sync::Arc;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
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

/// A call that may block and does not.
pub fn blocking_nop(calls: u64) -> u64 {
    for n in 0..calls {
        assert_eq!(blocking(|| black_box(n)), n);
    }
    calls
}
