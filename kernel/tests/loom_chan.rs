//! All interleavings of channels and `select!`, on small models.
//!
//! The kernel itself cannot be built under loom (its statics want constant
//! atomics), so this file takes the sources of channel, select and wait queue
//! as they are, and puts loom's threads and locks behind the two doors through
//! which they see the rest: `lock` and `park`. What loom watches is the lock, the
//! ticket's word and the slots; it fails a model that deadlocks (a wake-up was
//! lost), that touches a slot from two sides, or whose assertions fail.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --release --test loom_chan`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "../src/chan/mod.rs"]
pub mod chan;
#[path = "../src/cell/ring.rs"]
pub mod ring;
#[path = "../src/select/mod.rs"]
pub mod select;
#[path = "../src/cell/wait/mod.rs"]
pub mod wait;

pub mod cell {
    pub use crate::{ring, wait};

    /// Ownership is not what is modelled here.
    pub struct Shared<T>(std::sync::Arc<T>);

    impl<T> Shared<T> {
        pub fn try_new(value: T) -> Result<Self, T> {
            Ok(Shared(std::sync::Arc::new(value)))
        }
    }

    impl<T> Clone for Shared<T> {
        fn clone(&self) -> Self {
            Shared(self.0.clone())
        }
    }

    impl<T> core::ops::Deref for Shared<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }
}

pub mod lock {
    pub struct IrqLock<T>(loom::sync::Mutex<T>);
    pub type IrqGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    impl<T> IrqLock<T> {
        pub fn new(value: T) -> Self {
            IrqLock(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> IrqGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

/// As on the machine: one state word for each G, `begin_park` a plain store, and a
/// `ready` that finds the G running is lost.
pub mod park {
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
        // Not `unpark`: loom's also wakes a thread that waits for a mutex.
        notify: Notify,
    }

    loom::thread_local! {
        static CURRENT: Arc<G> =
            Arc::new(G { state: AtomicUsize::new(RUNNING), notify: Notify::new() });
    }

    pub fn begin_park() -> GHandle {
        CURRENT.with(|g| {
            g.state.store(PARKING, Relaxed);
            GHandle(g.clone())
        })
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

    pub fn now_ns() -> u64 {
        0
    }

    pub fn random() -> u64 {
        0
    }
}

use chan::{RecvError, RecvTimeoutError, SendError, SendTimeoutError};
use core::time::Duration;
use loom::thread;

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

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
        let old = park::begin_park();
        assert!(!park::park_until(0));
        let waker = thread::spawn(move || park::ready(old));
        let sender = thread::spawn(move || tx.send(1));
        assert_eq!(rx.recv(), Ok(1));
        assert_eq!(sender.join().unwrap(), Ok(()));
        waker.join().unwrap();
    });
}
