//! Gs that close a ring of waits at the same time: one of them sees it.
//!
//! Each does what `wait::held::watch_wait` and `deadlock::cycle` do: it stores which G it
//! waits for, has a fence, walks, and leaves its CPU, which changes the stamp of its wait.
//! The walk is the kernel's own file.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_ring`
#![cfg(loom)]

#[path = "../src/fail/deadlock/ring.rs"]
mod ring;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*, fence};
use loom::thread;

/// Waits for nobody.
const NOBODY: usize = usize::MAX;

/// Of a G: the one that it waits for, and whether it has left its CPU.
struct Link {
    to: AtomicUsize,
    has_left: AtomicBool,
}

/// `me` waits for `other`, looks whether that closes a ring, and leaves its CPU.
fn wait_for(links: &[Link], me: usize, other: usize) -> bool {
    // Relaxed, as on the machine: the fence must do it.
    links[me].to.store(other, Relaxed);
    fence(SeqCst);
    let is_ring = ring::is_ring(me, |g| {
        let (next, stamp) = (links[g].to.load(Relaxed), links[g].has_left.load(Relaxed));
        (next != NOBODY).then_some((stamp.into(), next))
    });
    links[me].has_left.store(true, Relaxed);
    is_ring
}

/// So many Gs close a ring together.
fn close_together(gs: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let new = |_| Link { to: AtomicUsize::new(NOBODY), has_left: AtomicBool::new(false) };
        let links: Arc<Vec<_>> = Arc::new((0..gs).map(new).collect());
        let others: Vec<_> = (1..gs)
            .map(|me| {
                let links = links.clone();
                thread::spawn(move || wait_for(&links, me, (me + 1) % gs))
            })
            .collect();
        let mut seen = wait_for(&links, 0, 1 % gs);
        for other in others {
            seen |= other.join().unwrap();
        }
        assert!(seen, "nobody has seen it");
    });
}

#[test]
fn of_two_that_close_a_ring_together_one_sees_it() {
    close_together(2);
}

#[test]
fn of_three_that_close_a_ring_together_one_sees_it() {
    close_together(3);
}
