//! All interleavings of edges, waits, deadlines and closes of a `PollDesc`.
//!
//! The file under test is the kernel's own; behind the doors `park` and `lock`
//! are a G whose states are those of `sched` and a lock, both of loom's. A lost
//! edge is a G that waits for ever, which loom calls a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_poller`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the source is written for another crate")]

extern crate alloc;

#[path = "../src/run/poller.rs"]
pub mod poller;
#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

pub mod arch {
    pub const MAX_CPUS: usize = 1;

    pub use crate::lock;

    pub fn cpu_index() -> usize {
        0
    }
}

pub mod time {
    pub struct Instant;
}

pub mod lock {
    use loom::sync::{Mutex, MutexGuard};

    pub struct IrqLock<T>(Mutex<T>);

    impl<T> IrqLock<T> {
        pub fn new(value: T) -> Self {
            IrqLock(Mutex::new(value))
        }

        #[track_caller]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            let guard = self.0.lock().unwrap();
            crate::run::told::note("has the lock");
            guard
        }
    }
}

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use poller::{PollDesc, PollError};
use run::door::model;
use std::sync::Arc;

const AT_ONCE: Option<u64> = Some(0);

/// What is left behind by a wait would end the next one, of whatever kind.
fn assert_nothing_is_left_behind() {
    run::door::begin_park(run::door::Wait::default());
    assert!(!run::door::park_until(0), "a wake-up of the wait before");
}

fn on_a_thread(
    desc: &Arc<PollDesc>,
    f: impl FnOnce(&PollDesc) + 'static,
) -> thread::JoinHandle<()> {
    let desc = desc.clone();
    thread::spawn(move || f(&desc))
}

/// What the device wrote before the edge is seen by the G after its wait.
#[test]
fn an_edge_at_any_moment_ends_the_wait_and_shows_the_data() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let data = Arc::new(UnsafeCell::new(0));
        let device = {
            let data = data.clone();
            on_a_thread(&desc, move |desc| {
                // SAFETY: loom checks that nobody else is here.
                data.with_mut(|data| unsafe { *data = 7 });
                desc.ready();
            })
        };
        assert_eq!(desc.wait(None), Ok(()));
        // SAFETY: loom checks that nobody writes.
        assert_eq!(data.with(|data| unsafe { *data }), 7);
        device.join().unwrap();
    });
}

#[test]
fn an_edge_that_meets_a_deadline_is_not_lost() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let device = on_a_thread(&desc, |desc| desc.ready());
        match desc.wait(AT_ONCE) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, PollError::TimedOut);
                assert_eq!(desc.wait(None), Ok(()));
            }
        }
        assert_nothing_is_left_behind();
        device.join().unwrap();
        assert_eq!(desc.wait(AT_ONCE), Err(PollError::TimedOut), "an edge taken twice");
    });
}

/// Two edges, and a G that looks until it has seen what both were about.
#[test]
fn two_edges_are_one_or_two_but_never_none() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let count = Arc::new(AtomicU32::new(0));
        let devices: Vec<_> = (0..2)
            .map(|_| {
                let count = count.clone();
                on_a_thread(&desc, move |desc| {
                    count.fetch_add(1, Relaxed);
                    desc.ready();
                })
            })
            .collect();
        while count.load(Relaxed) < 2 {
            assert_eq!(desc.wait(None), Ok(()));
        }
        devices.into_iter().for_each(|device| device.join().unwrap());
    });
}

#[test]
fn a_wait_has_one_outcome_when_edge_deadline_and_close_meet() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let device = on_a_thread(&desc, |desc| desc.ready());
        let closer = on_a_thread(&desc, PollDesc::close);
        let outcome = desc.wait(AT_ONCE);
        assert_ne!(outcome, Err(PollError::Busy));
        assert_nothing_is_left_behind();
        device.join().unwrap();
        closer.join().unwrap();
        assert_eq!(desc.wait(None), Err(PollError::Closed));
    });
}

#[test]
fn close_ends_a_wait_at_any_moment() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let closer = on_a_thread(&desc, PollDesc::close);
        assert_eq!(desc.wait(None), Err(PollError::Closed));
        assert_nothing_is_left_behind();
        closer.join().unwrap();
    });
}

/// Somebody readies the G by a handle that was left elsewhere.
#[test]
fn a_foreign_wake_up_does_not_end_the_wait() {
    model(|| {
        let desc = Arc::new(PollDesc::new());
        let handle = run::door::this();
        let stranger = thread::spawn(move || run::door::ready_from_interrupt(handle));
        let done = Arc::new(AtomicU32::new(0));
        let device = {
            let done = done.clone();
            on_a_thread(&desc, move |desc| {
                done.store(1, Relaxed);
                desc.ready();
            })
        };
        assert_eq!(desc.wait(None), Ok(()));
        assert_eq!(done.load(Relaxed), 1, "woken by somebody else");
        stranger.join().unwrap();
        device.join().unwrap();
    });
}
