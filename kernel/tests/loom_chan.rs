//! All interleavings of channels and `select!`, on small models.
//!
//! What loom watches is the lock, the selection's word and the slots; it fails a
//! model that deadlocks (a wake-up was lost), that touches a slot from two
//! sides, or whose assertions fail. How the sources get here is said in
//! `loom/run.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_chan`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "../src/api/chan/mod.rs"]
pub mod chan;
#[path = "loom/run.rs"]
pub mod run;
#[path = "../src/api/select/mod.rs"]
pub mod select;
#[path = "loom/wait.rs"]
pub mod wait;

/// What `select!` expands to.
pub mod api {
    pub use crate::{chan, select};
}

pub mod __private {
    pub use crate::select::{
        AtOnce, Ever, Otherwise, Selection, Until, attempt, line, recv_case, send_case,
    };
}

use chan::{RecvError, RecvTimeoutError, SendError, SendTimeoutError};
use core::time::Duration;
use loom::thread;
use run::door::model;
use wait::limit::Context;

#[test]
fn a_value_is_handed_over_whoever_comes_first() {
    model(|| {
        let (tx, rx) = chan::rendezvous();
        let sender = thread::spawn(move || tx.send(1));
        assert_eq!(rx.recv(), Ok(1));
        assert_eq!(sender.join().unwrap(), Ok(()));
        assert_eq!(rx.recv(), Err(RecvError));
    });
}

#[test]
fn two_senders_through_one_place_lose_nothing() {
    model(|| {
        let (tx, rx) = chan::bounded(1);
        let tx2 = tx.clone();
        let senders = [thread::spawn(move || tx.send(1)), thread::spawn(move || tx2.send(2))];
        assert_eq!(rx.recv().unwrap() + rx.recv().unwrap(), 3);
        for sender in senders {
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn a_close_wakes_a_receiver_and_a_sender() {
    model(|| {
        let (tx, rx) = chan::rendezvous::<u8>();
        let receiver = thread::spawn(move || rx.recv());
        drop(tx);
        assert_eq!(receiver.join().unwrap(), Err(RecvError));
    });
    model(|| {
        let (tx, rx) = chan::rendezvous::<u8>();
        let sender = thread::spawn(move || tx.send(1));
        drop(rx);
        assert_eq!(sender.join().unwrap(), Err(SendError(1)));
    });
}

#[test]
fn a_timeout_against_a_hand_over_is_one_or_the_other() {
    model(|| {
        let (tx, rx) = chan::rendezvous();
        let sender = thread::spawn({
            let tx = tx.clone();
            move || tx.send_timeout(1, Duration::ZERO)
        });
        let got = rx.recv_timeout(Duration::ZERO);
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(got, Ok(1)),
            Err(SendTimeoutError::Timeout(1)) => assert_eq!(got, Err(RecvTimeoutError::Timeout)),
            other => panic!("{other:?}"),
        }
        drop(tx);
    });
}

/// A cancellation that comes with the value takes it from neither side.
#[test]
fn a_cancellation_against_a_hand_over_is_one_or_the_other() {
    model(|| {
        let (tx, rx) = chan::rendezvous();
        let context = Context::new();
        let canceller = {
            let context = context.clone();
            thread::spawn(move || context.cancel())
        };
        let sender = thread::spawn(move || tx.send(1));
        let got = rx.recv_until(&context);
        drop(rx); // a sender that is too late does not wait
        match sender.join().unwrap() {
            Ok(()) => assert_eq!(got, Ok(1)),
            Err(SendError(1)) => assert_eq!(got, Err(RecvTimeoutError::Timeout)),
            other => panic!("{other:?}"),
        }
        canceller.join().unwrap();
    });
}

/// Only the cancellation can end this wait.
#[test]
fn a_cancellation_at_any_moment_ends_a_receive() {
    model(|| {
        let (_tx, rx) = chan::rendezvous::<u8>();
        let context = Context::new();
        let child = context.child();
        let canceller = thread::spawn(move || context.cancel());
        assert_eq!(rx.recv_until(&child), Err(RecvTimeoutError::Timeout));
        canceller.join().unwrap();
    });
}

#[test]
fn two_channels_that_compete_for_a_select_win_it_once() {
    model(|| {
        let (tx1, rx1) = chan::rendezvous();
        let (tx2, rx2) = chan::rendezvous();
        let senders = [thread::spawn(move || tx1.send(1)), thread::spawn(move || tx2.send(2))];
        let first = crate::select! {
            recv(rx1) -> v => v.unwrap(),
            recv(rx2) -> v => v.unwrap(),
        };
        // The loser's value is still there.
        let second = if first == 1 { rx2.recv() } else { rx1.recv() };
        assert_eq!(first + second.unwrap(), 3);
        for sender in senders {
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn two_selects_that_meet_agree() {
    model(|| {
        let (tx1, rx1) = chan::rendezvous();
        let (tx2, rx2) = chan::rendezvous();
        let other = thread::spawn(move || {
            crate::select! {
                send(tx1, 1) -> r => (1, r.is_ok()),
                send(tx2, 2) -> r => (2, r.is_ok()),
            }
        });
        // In the opposite order, so that each finds the other half-way.
        let got = crate::select! {
            recv(rx2) -> v => v,
            recv(rx1) -> v => v,
        };
        assert_eq!(other.join().unwrap(), (got.unwrap(), true));
    });
}

#[test]
fn an_old_wake_up_neither_ends_nor_loses_a_wait() {
    model(|| {
        let (tx, rx) = chan::rendezvous();
        let old = run::door::begin_park(run::door::Wait::default());
        assert!(!run::door::park_until(0));
        let waker = thread::spawn(move || run::door::ready(old));
        let sender = thread::spawn(move || tx.send(1));
        assert_eq!(rx.recv(), Ok(1));
        assert_eq!(sender.join().unwrap(), Ok(()));
        waker.join().unwrap();
    });
}

#[test]
fn an_old_wake_up_neither_ends_nor_loses_a_select() {
    model(|| {
        let (tx, rx) = chan::rendezvous();
        let (_open, never) = chan::rendezvous::<u8>();
        let old = run::door::begin_park(run::door::Wait::default());
        assert!(!run::door::cancel_park());
        let waker = thread::spawn(move || run::door::ready(old));
        let sender = thread::spawn(move || tx.send(1));
        let got = crate::select! {
            recv(rx) -> v => v.unwrap(),
            recv(never) => unreachable!("nobody sends"),
        };
        assert_eq!(got, 1);
        assert_eq!(sender.join().unwrap(), Ok(()));
        waker.join().unwrap();
    });
}
