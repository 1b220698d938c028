//! What is packed, and that everybody who waits says why.

use super::*;
use crate::api::chan;
use crate::api::sync::{Condvar, Mutex, Once, RwLock, Semaphore, WaitGroup};
use crate::prelude::*;
use crate::run::door;
use crate::run::door::GHandle;
use crate::run::poller::PollDesc;
use std::sync::mpsc;

#[test]
fn every_reason_has_its_number_and_a_word() {
    for (number, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, number);
        assert_eq!(Reason::from_number(number as u8), reason);
        assert_eq!(reason.as_str().is_empty(), reason == Reason::None);
    }
    assert_eq!(Reason::from_number(200), Reason::None);
}

#[test]
fn a_wait_comes_back_from_its_word() {
    for reason in Reason::ALL {
        for object in [0, 1, 0xffff_8000_0000_0001, 0xffff_ffff_8000_0000, 0x7fff_dead_beef] {
            let wait = Wait::new(reason, object);
            assert_eq!(Wait::unpack(wait.pack()), wait);
            assert_eq!(wait.by(None), wait);
            assert_eq!(wait.by(Some(0)), wait.with_deadline());
            let limited = wait.by(Some(u64::MAX));
            assert!(limited.is_limited && !limited.has_deadline, "by a context");
            for wait in [limited, wait.with_deadline()] {
                assert_eq!(Wait::unpack(wait.pack()), wait);
                assert_eq!(Wait::reason_number(wait.pack()), reason as u8);
            }
        }
    }
    assert_eq!(Wait::unpack(0), Wait::default());
    assert_eq!(Wait::unpack(u64::MAX).reason, Reason::None);
}

/// Lets `wait` wait on a thread, `until` what it waits for is what is meant, and lets `end` end it.
fn waits(reason: Reason, deadline: bool, wait: impl FnOnce() + Send, end: impl FnOnce()) {
    std::thread::scope(|scope| {
        let (tx, rx) = mpsc::channel::<GHandle>();
        let waiter = scope.spawn(move || {
            tx.send(door::this()).expect("heard");
            wait();
        });
        let handle = rx.recv().expect("told");
        while handle.waits_for().reason != reason || handle.waits_for().has_deadline != deadline {
            assert!(!waiter.is_finished(), "it did not wait for {reason:?}");
            std::thread::yield_now();
        }
        end();
    });
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn who_waits_for_a_channel_says_so() {
    let (tx, rx) = chan::rendezvous();
    waits(
        Reason::ChanReceive,
        false,
        || assert_eq!(rx.recv(), Ok(1)),
        || assert!(tx.send(1).is_ok()),
    );
    waits(Reason::ChanSend, false, || assert!(tx.send(1).is_ok()), || assert_eq!(rx.recv(), Ok(1)));
    let recv = || assert_eq!(rx.recv_timeout(HOUR), Ok(1));
    waits(Reason::ChanReceive, true, recv, || assert!(tx.send(1).is_ok()));
    let select = || select! { recv(rx) -> got => assert_eq!(got, Ok(1)) };
    waits(Reason::Select, false, select, || assert!(tx.send(1).is_ok()));
}

#[test]
fn who_waits_for_a_lock_says_so() {
    let (mutex, rw) = (Mutex::new(()), RwLock::new(()));
    let guard = mutex.lock();
    waits(Reason::MutexLock, false, || drop(mutex.lock()), || drop(guard));
    let guard = rw.write();
    waits(Reason::RwLockRead, false, || drop(rw.read()), || drop(guard));
    let guard = rw.read();
    waits(Reason::RwLockWrite, false, || drop(rw.write()), || drop(guard));
    let guard = mutex.lock();
    waits(Reason::MutexLock, true, || drop(mutex.lock_until(HOUR)), || drop(guard));
}

#[test]
fn who_waits_for_others_says_so() {
    let (mutex, changed) = (Mutex::new(false), Condvar::new());
    let wait = || drop(changed.wait_while(mutex.lock().unwrap(), |ready| !*ready));
    waits(Reason::Condvar, false, wait, || {
        *mutex.lock().unwrap() = true;
        changed.notify_all();
    });
    let gate = Semaphore::new(0);
    waits(Reason::Semaphore, false, || gate.acquire(1), || gate.release(1));
    let group = WaitGroup::new();
    group.add(1);
    waits(Reason::WaitGroup, false, || group.wait(), || group.done());
    let once = Once::new();
    waits(Reason::Once, false, || once.wait(), || once.call_once(|| ()));
    let (tx, rx) = chan::rendezvous::<()>();
    let other = go(move || rx.recv());
    waits(Reason::Join, false, move || drop(other.join()), || drop(tx));
}

#[test]
fn who_waits_by_itself_says_so() {
    let (tx, rx) = mpsc::channel();
    let wait = move || {
        tx.send(current()).expect("heard");
        crate::api::gref::park();
    };
    waits(Reason::Park, false, wait, || rx.recv().expect("told").unpark());
    waits(Reason::Sleep, true, || sleep(Duration::from_millis(50)), || ());
    let desc = PollDesc::new();
    let wait = || assert!(desc.wait(None).is_ok());
    waits(Reason::Poll, false, wait, || desc.ready());
}
