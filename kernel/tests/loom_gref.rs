//! All interleavings of park and unpark by handle, on small models.
//!
//! The file under test is the kernel's own; how it gets here is said in
//! `loom/run.rs`. A lost unpark is a G that waits for ever, which loom calls a
//! deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_gref`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;

use core::time::Duration;
use loom::thread;
use run::door::gref::{current, park as wait, park_timeout, park_until};
use run::door::model;
use run::permit::Permit;
use std::sync::Arc;
use wait::limit::Context;

#[test]
fn an_unpark_at_any_moment_ends_the_wait() {
    model(|| {
        let g = current();
        let other = thread::spawn(move || g.unpark());
        wait();
        other.join().unwrap();
    });
}

/// The time comes at once; the unpark is seen by this wait or by the next.
#[test]
fn an_unpark_that_meets_a_timeout_is_not_lost() {
    model(|| {
        let g = current();
        let other = thread::spawn(move || g.unpark());
        if !park_timeout(Duration::ZERO) {
            wait();
        }
        other.join().unwrap();
    });
}

/// A cancellation that is lost is a G that waits for ever: there is no other way out.
#[test]
fn a_cancellation_at_any_moment_ends_the_wait() {
    model(|| {
        let context = Context::new();
        let child = context.child();
        let other = thread::spawn(move || context.cancel());
        assert!(!park_until(&child));
        other.join().unwrap();
    });
}

/// Whichever comes first ends the wait, and the unpark is not lost; the cancellation ends no later
/// wait.
#[test]
fn an_unpark_that_meets_a_cancellation_is_not_lost() {
    model(|| {
        let (context, g) = (Context::new(), current());
        let other = {
            let context = context.clone();
            thread::spawn(move || context.cancel())
        };
        let waker = thread::spawn(move || g.unpark());
        if !park_until(&context) {
            wait();
        }
        other.join().unwrap();
        waker.join().unwrap();
    });
}

#[test]
fn a_late_permit_of_an_earlier_life_replaces_none() {
    model(|| {
        let permit = Arc::new(Permit::default());
        let late = permit.clone();
        let other = thread::spawn(move || late.give(4));
        permit.give(5);
        assert!(permit.take(5), "replaced by one for an earlier life");
        other.join().unwrap();
        assert!(!permit.take(5), "there were two");
    });
}
