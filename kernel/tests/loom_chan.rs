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

pub use wait::limit as context;

pub mod sync {
    pub use crate::wait::semaphore::Semaphore;
}

pub mod api {
    pub use crate::{chan, select};
}

/// What `select!` expands to.
pub mod __private {
    pub use crate::select::{
        AnyOrder, AtOnce, Case, Ever, InOrder, Otherwise, Selection, Until, acquire_case, attempt,
        done_case, line, recv_case, send_case,
    };
}

use chan::{RecvError, RecvTimeoutError, SendError, SendTimeoutError};
use core::time::Duration;
use loom::thread;
use run::door::{large_model, model};
use run::time::Instant;
use wait::limit::Context;
use wait::semaphore::Semaphore;

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

/// The clock of a channel whose time never comes, and the end by which it is set.
fn timer() -> (chan::Sender<Instant>, chan::Receiver<Instant>) {
    let receiver = chan::Receiver::from_clock(Instant::NEVER, None).unwrap();
    (receiver.setter(), receiver)
}

/// Sets the clock on another thread; the caller keeps the setter, as its drop would end waits, too.
fn set_at_once(setter: &chan::Sender<Instant>) -> thread::JoinHandle<bool> {
    let setter = setter.clone();
    thread::spawn(move || setter.set_clock(Instant::now(), None))
}

/// Only the reset can end this wait, whenever it comes.
#[test]
fn a_reset_at_any_moment_ends_a_receive() {
    model(|| {
        let (setter, rx) = timer();
        let setting = set_at_once(&setter);
        assert!(rx.recv().is_ok());
        assert!(setting.join().unwrap());
    });
}

#[test]
fn a_reset_at_any_moment_ends_a_select() {
    model(|| {
        let (setter, rx) = timer();
        let (_open, never) = chan::rendezvous::<u8>();
        let setting = set_at_once(&setter);
        crate::select! {
            recv(rx) -> at => assert!(at.is_ok()),
            recv(never) => unreachable!("nobody sends"),
        }
        assert!(setting.join().unwrap());
    });
}

/// A stopped timer is in the select as any channel is, until it is set.
#[test]
fn a_stopped_timer_that_is_set_ends_a_select() {
    model(|| {
        let (setter, rx) = timer();
        setter.stop_clock();
        let setting = set_at_once(&setter);
        crate::select! { recv(rx) -> at => assert!(at.is_ok()) }
        assert!(!setting.join().unwrap());
    });
}

/// The value is due: it is received, or the stop was in time.
#[test]
fn a_stop_against_a_value_that_is_due_is_one_or_the_other() {
    for selects in [false, true] {
        model(move || {
            let (setter, rx) = timer();
            setter.set_clock(Instant::now(), None);
            let stopping = thread::spawn(move || setter.stop_clock());
            let got = match selects {
                false => rx.recv_timeout(Duration::ZERO).is_ok(),
                true => crate::select! {
                    recv(rx) -> at => at.is_ok(),
                    after(Duration::ZERO) => false,
                },
            };
            // Dropped, the setter closes the channel: an error, if the stop came first.
            assert!(got != stopping.join().unwrap());
        });
    }
}

/// What a lock holder gives and what only readies the G come at once.
#[test]
fn a_value_against_the_end_of_a_context_is_not_lost() {
    large_model(|| {
        let (tx, rx) = chan::rendezvous();
        let context = Context::new();
        let canceller = {
            let context = context.clone();
            thread::spawn(move || context.cancel())
        };
        let sender = thread::spawn(move || tx.send(1));
        let got = crate::select! {
            recv(rx) -> v => v.ok(),
            done(context) => None,
        };
        drop(rx); // a sender that is too late does not wait
        assert_eq!(sender.join().unwrap().is_ok(), got == Some(1));
        canceller.join().unwrap();
    });
}

#[test]
fn a_value_and_permits_that_compete_for_a_select_win_it_once() {
    large_model(|| {
        let (tx, rx) = chan::rendezvous();
        let gate = std::sync::Arc::new(Semaphore::new(0));
        let sender = thread::spawn(move || tx.send(1));
        let releaser = {
            let gate = gate.clone();
            thread::spawn(move || gate.release(1))
        };
        let is_permit = crate::select! {
            acquire(gate, 1) -> permit => { permit.forget(); true }
            recv(rx) -> v => { assert_eq!(v, Ok(1)); false }
        };
        // The loser is still there.
        if is_permit {
            assert_eq!(rx.recv(), Ok(1));
        } else {
            gate.acquire(1);
        }
        assert_eq!(sender.join().unwrap(), Ok(()));
        releaser.join().unwrap();
        assert_eq!(gate.available(), 0);
    });
}

/// A timer, a value and a reset at once: two wake-ups of different kinds.
#[test]
fn a_value_against_a_reset_is_not_lost() {
    large_model(|| {
        let (setter, late) = timer();
        let (tx, rx) = chan::rendezvous();
        let setting = set_at_once(&setter);
        let sender = thread::spawn(move || tx.send(1));
        let is_value = crate::select! {
            recv(rx) -> v => { assert_eq!(v, Ok(1)); true }
            recv(late) -> at => { assert!(at.is_ok()); false }
        };
        if is_value {
            assert!(late.recv().is_ok());
        } else {
            assert_eq!(rx.recv(), Ok(1));
        }
        assert_eq!(sender.join().unwrap(), Ok(()));
        assert!(setting.join().unwrap());
    });
}
