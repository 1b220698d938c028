//! Gs that close a ring of waits at the same time: one of them sees it.
//!
//! Each does what `cell::held::watch_wait` and `deadlock::cycle` do: it says whom it
//! waits for, has a fence, and walks. The walk is the kernel's own file.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --release --test loom_ring`
#![cfg(loom)]

#[path = "../src/deadlock/ring.rs"]
mod ring;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::*, fence};
use loom::thread;

/// Waits for nobody.
const NOBODY: usize = usize::MAX;

/// Says that `me` waits for `other`, and looks whether that closes a ring.
fn wait_for(links: &[AtomicUsize], me: usize, other: usize) -> bool {
    // Relaxed, as on the machine: the fence must do it.
    links[me].store(other, Relaxed);
    fence(SeqCst);
    ring::is_ring(me, |g| {
        let next = links[g].load(Relaxed);
        (next != NOBODY).then_some((0, next))
    })
}

/// So many Gs close a ring together.
fn close_together(gs: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let links: Arc<Vec<_>> = Arc::new((0..gs).map(|_| AtomicUsize::new(NOBODY)).collect());
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
