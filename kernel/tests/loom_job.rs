//! All interleavings of a G's end and of who waits for it, on small models.
//!
//! The file under test is the kernel's own; how it gets here is said in
//! `loom/cell.rs`. A lost wake-up is a deadlock; work and result are cells of
//! loom's, so that two sides that touch one at a time are found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --release --test loom_job`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/cell.rs"]
pub mod cell;
#[path = "loom/park.rs"]
pub mod park;

use cell::job::Job;
use loom::{sync::Arc, thread};
use park::model;

#[test]
fn the_result_is_there_whoever_comes_first() {
    model(|| {
        let job = Arc::new(Job::new(6));
        let runner = job.clone();
        let other = thread::spawn(move || runner.run(|n| n * 7));
        assert_eq!(job.join(), 42);
        other.join().unwrap();
    });
}

#[test]
fn an_old_wake_up_neither_ends_nor_loses_the_wait() {
    model(|| {
        let old = park::begin_park(park::Wait::default());
        assert!(!park::cancel_park());
        let job = Arc::new(Job::new(6));
        let runner = job.clone();
        let waker = thread::spawn(move || park::ready(old));
        let other = thread::spawn(move || runner.run(|n| n * 7));
        assert_eq!(job.join(), 42);
        other.join().unwrap();
        waker.join().unwrap();
    });
}
