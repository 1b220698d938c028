//! Locks that change hands or kind: owned guards, downgrade and upgrade, and notifications.
//!
//! As in `loom_sync`: what is guarded is a cell of loom's, and a lost wake-up is a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_owned`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "../src/api/sync/notify.rs"]
mod notify;
#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

use loom::{cell::UnsafeCell, thread};
use notify::Notify;
use run::door::{large_model, model, model_with_clock};
use std::sync::Arc;
use wait::mutex::{self, Mutex};
use wait::rwlock::{RwLock, RwLockWriteGuard};
use wait::upgrade::RwLockUpgradableGuard;

/// Waiters are woken to try, or are served in turn.
const STEPS_NS: [u64; 2] = [0, 2 * mutex::PATIENCE_NS];

/// A number that loom watches.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn new() -> Self {
        Watched(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|n| unsafe { *n })
    }
}

// SAFETY: loom checks every access.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

fn go<T: 'static>(f: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(f)
}

#[test]
fn an_owned_guard_that_another_g_drops_lets_one_waiter_in() {
    for step_ns in STEPS_NS {
        model_with_clock(step_ns, || {
            let lock = Arc::new(Mutex::new(Watched::new()));
            let held = lock.lock_owned().expect("free");
            let waiter = {
                let lock = lock.clone();
                go(move || lock.lock_by(None).expect("no limit").add())
            };
            let other = go(move || {
                held.add();
                drop(held);
            });
            lock.lock_by(None).expect("no limit").add();
            waiter.join().unwrap();
            other.join().unwrap();
            assert_eq!(lock.try_lock().expect("free").get(), 3);
        });
    }
}

#[test]
fn an_owned_writer_that_another_g_drops_lets_reader_and_writer_in() {
    large_model(|| {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let held = lock.write_owned().expect("free");
        let reader = {
            let lock = lock.clone();
            go(move || lock.read().expect("no limit").get())
        };
        let other = go(move || {
            held.add();
            drop(held);
        });
        lock.write().expect("no limit").add();
        reader.join().unwrap();
        other.join().unwrap();
        assert_eq!(lock.try_read().expect("free").get(), 2);
    });
}

#[test]
fn no_writer_comes_between_a_writer_and_the_reader_that_it_becomes() {
    large_model(|| {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let writing = lock.write().expect("free");
        let reader = {
            let lock = lock.clone();
            go(move || lock.read().expect("no limit").get())
        };
        let writer = {
            let lock = lock.clone();
            go(move || lock.write().expect("no limit").add())
        };
        writing.add();
        let reading = RwLockWriteGuard::downgrade(writing);
        assert_eq!(reading.get(), 1);
        drop(reading);
        assert!(reader.join().unwrap() >= 1);
        writer.join().unwrap();
        assert_eq!(lock.try_read().expect("free").get(), 2);
    });
}

#[test]
fn no_writer_comes_between_a_reader_and_the_writer_that_it_becomes() {
    large_model(|| {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let reading = lock.upgradable_read().expect("free");
        let reader = {
            let lock = lock.clone();
            go(move || lock.read().expect("no limit").get())
        };
        let writer = {
            let lock = lock.clone();
            go(move || lock.write().expect("no limit").add())
        };
        let before = reading.get();
        let writing = RwLockUpgradableGuard::upgrade(reading).expect("no panic");
        assert_eq!(writing.get(), before);
        writing.add();
        drop(writing);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(lock.try_read().expect("free").get(), 2);
    });
}

#[test]
fn an_upgrade_that_comes_too_late_leaves_a_reader_and_keeps_nobody_out() {
    large_model(|| {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let reading = lock.upgradable_read().expect("free");
        let others = [false, true].map(|writes| {
            let lock = lock.clone();
            go(move || match writes {
                true => lock.write().expect("no limit").add(),
                false => assert!(lock.read().expect("no limit").get() <= 2),
            })
        });
        let at_once = core::time::Duration::ZERO;
        let added = match RwLockUpgradableGuard::upgrade_until(reading, at_once) {
            Ok(writing) => {
                writing.expect("no panic").add();
                1
            }
            Err(reading) => {
                assert!(reading.get() <= 1);
                0
            }
        };
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.try_read().expect("free").get(), 1 + added);
    });
}

#[test]
fn a_notification_meets_the_g_that_looks_and_waits() {
    model(|| {
        let shared = Arc::new((Mutex::new(Watched::new()), Notify::new()));
        let other = {
            let shared = shared.clone();
            go(move || {
                shared.0.lock_by(None).expect("no limit").add();
                shared.1.notify_one();
            })
        };
        while shared.0.lock_by(None).expect("no limit").get() == 0 {
            shared.1.wait();
        }
        other.join().unwrap();
    });
}

#[test]
fn a_waiter_that_gives_up_takes_no_notification_along() {
    model(|| {
        let notify = Arc::new(Notify::new());
        let patient = {
            let notify = notify.clone();
            go(move || notify.wait())
        };
        let gives_up = {
            let notify = notify.clone();
            go(move || notify.wait_until(core::time::Duration::ZERO).is_ok())
        };
        notify.notify_one();
        if gives_up.join().unwrap() {
            notify.notify_one();
        }
        patient.join().unwrap();
    });
}
