//! All interleavings of park and unpark by handle, on small models.
//!
//! The file under test is the kernel's own; behind the door `park` is a G whose
//! states are those of `sched`, with loom's atomics. A lost unpark is a G that
//! waits for ever, which loom calls a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --release --test loom_gref`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

#[path = "../src/gref.rs"]
pub mod gref;

pub mod time {
    pub use core::time::Duration;
}

pub mod park {
    use crate::gref::Permit;
    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicUsize, Ordering::*};
    use std::sync::Arc;

    const RUNNING: usize = 0;
    const PARKING: usize = 1;
    const WOKEN: usize = 2;

    #[derive(Clone)]
    pub struct GHandle(Arc<G>);

    struct G {
        state: AtomicUsize,
        permit: Permit,
        notify: Notify,
    }

    loom::thread_local! {
        static CURRENT: Arc<G> = Arc::new(G {
            state: AtomicUsize::new(RUNNING),
            permit: Permit::default(),
            notify: Notify::new(),
        });
    }

    pub fn this() -> GHandle {
        CURRENT.with(|g| GHandle(g.clone()))
    }

    pub fn begin_park() -> GHandle {
        // Relaxed, as in `sched`: the permit's word must do the ordering.
        CURRENT.with(|g| g.state.store(PARKING, Relaxed));
        this()
    }

    pub fn park() {
        CURRENT.with(|g| {
            // A notice of an earlier wait may be there: look again.
            while g.state.compare_exchange(WOKEN, RUNNING, Acquire, Relaxed).is_err() {
                g.notify.wait();
            }
        });
    }

    /// Time does not pass while anybody can run: the deadline comes at once.
    pub fn park_until(_: u64) -> bool {
        CURRENT.with(|g| g.state.swap(RUNNING, AcqRel) == WOKEN)
    }

    pub fn ready(GHandle(g): GHandle) {
        if g.state.load(Relaxed) == PARKING
            && g.state.compare_exchange(PARKING, WOKEN, AcqRel, Relaxed).is_ok()
        {
            g.notify.notify();
        }
    }

    pub fn permit(GHandle(g): &GHandle) {
        g.permit.give(0);
    }

    pub fn take_permit() -> bool {
        CURRENT.with(|g| g.permit.take(0))
    }

    pub fn now_ns() -> u64 {
        0
    }

    pub fn current_id() -> u64 {
        0
    }
}

use gref::{Permit, current, park as wait, park_timeout};
use loom::thread;
use std::sync::Arc;

#[test]
fn an_unpark_at_any_moment_ends_the_wait() {
    loom::model(|| {
        let g = current();
        let other = thread::spawn(move || g.unpark());
        wait();
        other.join().unwrap();
    });
}

/// The time comes at once; the unpark is seen by this wait or by the next.
#[test]
fn an_unpark_that_meets_a_timeout_is_not_lost() {
    loom::model(|| {
        let g = current();
        let other = thread::spawn(move || g.unpark());
        if !park_timeout(time::Duration::ZERO) {
            wait();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_late_permit_of_an_earlier_life_replaces_none() {
    loom::model(|| {
        let permit = Arc::new(Permit::default());
        let late = permit.clone();
        let other = thread::spawn(move || late.give(4));
        permit.give(5);
        assert!(permit.take(5), "replaced by one for an earlier life");
        other.join().unwrap();
        assert!(!permit.take(5), "there were two");
    });
}
