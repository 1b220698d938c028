//! What channels promise, on threads in place of Gs.

use super::*;
use crate::api::go::{JoinError, go};
use crate::run::door;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;
use std::vec::Vec;

const SOON: Duration = Duration::from_millis(if cfg!(miri) { 2 } else { 10 });
const MANY: usize = if cfg!(miri) { 8 } else { 5000 };

/// Counts how often it is dropped.
#[derive(Clone)]
struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counter() -> (Arc<Count>, impl Fn() -> Counted) {
    let count = Arc::new(Count::new(0));
    (count.clone(), move || Counted(count.clone()))
}

/// Waits until `f` is true of something that another thread will do.
fn wait_until(f: impl Fn() -> bool) {
    while !f() {
        std::thread::yield_now();
    }
}

fn waits<T>(chan: &Chan<T>, list: usize) -> bool {
    chan.lock.looks_waited_for(list)
}

#[test]
fn values_come_out_in_the_order_they_went_in() {
    for (tx, rx) in [bounded(1), bounded(7), rendezvous(), unbounded()] {
        let sender = go(move || (0..MANY).try_for_each(|i| tx.send(i)));
        assert!(rx.iter().eq(0..MANY));
        assert_eq!(sender.join(), Ok(Ok(())));
    }
}

#[test]
fn nothing_is_lost_or_doubled_with_many_on_both_ends() {
    const ENDS: usize = 3;
    for (tx, rx) in [bounded(1), bounded(4), rendezvous(), unbounded()] {
        let senders: Vec<_> = (0..ENDS)
            .map(|s| {
                let tx = tx.clone();
                go(move || (0..MANY).try_for_each(|i| tx.send(s * MANY + i)))
            })
            .collect();
        let receivers: Vec<_> = (0..ENDS)
            .map(|_| {
                let rx = rx.clone();
                go(move || rx.iter().collect::<Vec<_>>())
            })
            .collect();
        drop((tx, rx));
        let mut all = Vec::new();
        for receiver in receivers {
            let got = receiver.join().expect("no panic");
            // Of one sender's values, each receiver gets them in order.
            for s in 0..ENDS {
                assert!(got.iter().filter(|&&v| v / MANY == s).is_sorted());
            }
            all.extend(got);
        }
        for sender in senders {
            assert_eq!(sender.join(), Ok(Ok(())));
        }
        all.sort_unstable();
        assert!(all.into_iter().eq(0..ENDS * MANY));
    }
}

#[test]
fn a_rendezvous_send_returns_after_its_receive_began() {
    let (tx, rx) = rendezvous();
    let met = Arc::new(Count::new(0));
    let seen = met.clone();
    let sender = go(move || {
        tx.send(()).expect("open");
        seen.load(Ordering::SeqCst)
    });
    wait_until(|| waits(rx.chan(), SENDERS));
    assert_eq!(rx.len(), 0, "nothing lies in a rendezvous channel");
    met.store(1, Ordering::SeqCst);
    assert_eq!(rx.recv(), Ok(()));
    assert_eq!(sender.join(), Ok(1));
}

#[test]
fn waiting_senders_are_served_first_come_first_served() {
    let (tx, rx) = bounded(1);
    tx.send(0).expect("open");
    let mut senders = Vec::new();
    for i in 1..4 {
        let sender = tx.clone();
        senders.push(go(move || sender.send(i)));
        wait_until(|| line_length(tx.chan(), i));
    }
    // The freed place goes to the longest-waiting: nobody can barge in.
    assert_eq!(rx.recv(), Ok(0));
    assert_eq!(tx.try_send(9), Err(TrySendError::Full(9)));
    assert_eq!([rx.recv(), rx.recv(), rx.recv()], [Ok(1), Ok(2), Ok(3)]);
    for sender in senders {
        assert_eq!(sender.join(), Ok(Ok(())));
    }
}

/// Whether `n` senders wait.
fn line_length<T>(chan: &Chan<T>, n: usize) -> bool {
    chan.lock.lock().waiting(SENDERS) == n
}

#[test]
fn closing_leaves_what_was_sent_to_the_receivers() {
    type Close = fn(Sender<u8>, &Receiver<u8>);
    let ways: [Close; 3] = [|tx, _| drop(tx), |tx, _| tx.close(), |_, rx| rx.close()];
    for close in ways {
        let (tx, rx) = bounded(2);
        tx.send(1).expect("open");
        close(tx, &rx);
        assert!(rx.is_closed());
        assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(rx.recv_timeout(SOON), Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn closing_wakes_all_receivers() {
    let (tx, rx) = bounded::<u8>(1);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.recv())
        })
        .collect();
    wait_until(|| tx.chan().lock.lock().waiting(RECEIVERS) == 3);
    tx.close();
    for receiver in waiting {
        assert_eq!(receiver.join(), Ok(Err(RecvError)));
    }
}

#[test]
fn closing_gives_waiting_senders_their_values_back() {
    let (tx, rx) = rendezvous();
    let waiting: Vec<_> = (0..3)
        .map(|i| {
            let tx = tx.clone();
            go(move || tx.send(i))
        })
        .collect();
    wait_until(|| line_length(tx.chan(), 3));
    drop(rx);
    for (i, sender) in waiting.into_iter().enumerate() {
        assert_eq!(sender.join(), Ok(Err(SendError(i))));
    }
}

#[test]
fn a_receive_in_the_middle_of_a_close_takes_nothing_from_waiting_senders() {
    let (tx, rx) = bounded(1);
    tx.send(0).expect("open");
    let sender = tx.clone();
    let waiting = go(move || sender.send(1));
    wait_until(|| line_length(tx.chan(), 1));
    // What `close` does first; it wakes one after the other, without the lock.
    let mut locked = tx.chan().lock.lock();
    tx.chan().closed.store(1, core::sync::atomic::Ordering::Release);
    locked.seal();
    drop(locked);
    assert_eq!((rx.recv(), rx.recv()), (Ok(0), Err(RecvError)));
    tx.close();
    assert_eq!(waiting.join(), Ok(Err(SendError(1))));
}

#[test]
fn a_value_that_nobody_receives_comes_back() {
    let (tx, rx) = bounded(1);
    drop(rx);
    assert_eq!(tx.send(1), Err(SendError(1)));
    assert_eq!(tx.try_send(2), Err(TrySendError::Disconnected(2)));
    assert_eq!(tx.send_timeout(3, SOON), Err(SendTimeoutError::Disconnected(3)));
}

#[test]
fn a_clone_keeps_its_end_open() {
    let (tx, rx) = bounded(1);
    let (tx2, rx2) = (tx.clone(), rx.clone());
    drop((tx, rx));
    assert_eq!(tx2.send(1), Ok(()));
    assert_eq!(rx2.recv(), Ok(1));
}

#[test]
fn a_timeout_gives_the_value_back_and_leaves_the_line() {
    let (tx, rx) = rendezvous();
    assert_eq!(tx.send_timeout(1, SOON), Err(SendTimeoutError::Timeout(1)));
    assert_eq!(rx.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
    assert_eq!(rx.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    assert!(!waits(rx.chan(), SENDERS) && !waits(rx.chan(), RECEIVERS));
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn a_timeout_against_a_send_loses_nothing() {
    let (tx, rx) = bounded(1);
    let sender = go(move || {
        for i in 0..MANY {
            let mut value = i;
            while let Err(error) = tx.send_timeout(value, Duration::from_micros(3)) {
                value = error.into_inner();
            }
        }
    });
    let mut expected = 0;
    loop {
        match rx.recv_timeout(Duration::from_micros(2)) {
            Ok(value) => assert_eq!(value, expected),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        }
        expected += 1;
    }
    assert_eq!((expected, sender.join()), (MANY, Ok(())));
}

#[test]
fn the_longest_timeout_is_no_timeout() {
    let (tx, rx) = bounded(1);
    let receiver = go(move || rx.recv_timeout(Duration::MAX));
    wait_until(|| waits(tx.chan(), RECEIVERS));
    assert_eq!(tx.send(1), Ok(()));
    assert_eq!(receiver.join(), Ok(Ok(1)));
}

#[test]
fn undelivered_values_are_dropped_once() {
    for (tx, rx) in [bounded(4), unbounded()] {
        let (count, new) = counter();
        (0..3).try_for_each(|_| tx.send(new())).expect("open");
        drop(rx.recv());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop(rx);
        assert_eq!(count.load(Ordering::Relaxed), 3, "no receiver: no use in keeping them");
        drop(tx.send(new()));
        assert_eq!(count.load(Ordering::Relaxed), 4);
        drop(tx);
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }
}

#[test]
fn values_left_by_the_last_sender_are_dropped_with_the_receiver() {
    let (count, new) = counter();
    let (tx, rx) = bounded(2);
    tx.send(new()).expect("open");
    drop(tx);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(rx);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_channel_that_holds_its_own_sender_is_freed() {
    let (count, new) = counter();
    struct Knot(Sender<Knot>, Counted);
    let (tx, rx) = bounded(1);
    let knot = Knot(tx.clone(), new());
    assert!(knot.0.is_empty() && knot.1.0.load(Ordering::Relaxed) == 0);
    assert!(tx.send(knot).is_ok());
    drop((tx, rx));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn a_receiver_that_panics_closes_its_end() {
    let (tx, rx) = rendezvous();
    let receiver = go(move || {
        let value: u32 = rx.recv().expect("open");
        assert_eq!(value, 0, "as planned");
    });
    assert_eq!(tx.send(1), Ok(()));
    assert!(matches!(receiver.join(), Err(JoinError::Panicked(_))));
    assert_eq!(tx.send(2), Err(SendError(2)));
}

#[test]
fn an_unbounded_channel_takes_what_comes() {
    let (tx, rx) = unbounded();
    (0..MANY).try_for_each(|i| tx.try_send(i)).expect("memory");
    assert_eq!((tx.len(), tx.capacity()), (MANY, None));
    assert!(rx.try_iter().eq(0..MANY));
    assert!(rx.is_empty());
}

#[test]
fn values_without_a_size_are_counted() {
    let (tx, rx) = bounded(2);
    assert_eq!((tx.try_send(()), tx.try_send(())), (Ok(()), Ok(())));
    assert_eq!(tx.try_send(()), Err(TrySendError::Full(())));
    assert_eq!(rx.try_iter().count(), 2);
}

#[test]
fn an_old_wake_up_does_not_end_a_wait() {
    let (tx, rx) = bounded(1);
    let (handle_tx, handle_rx) = bounded(1);
    let receiver = go(move || {
        // A handle from an earlier wait, as a timed-out one leaves behind.
        let handle = door::begin_park(door::Wait::default());
        assert!(!door::park_until(door::now_ns()));
        handle_tx.send(handle).expect("open");
        rx.recv()
    });
    let old = handle_rx.recv().expect("sent");
    for _ in 0..MANY.min(100) {
        door::ready(old.clone());
        std::thread::yield_now();
    }
    wait_until(|| waits(tx.chan(), RECEIVERS));
    door::ready(old);
    assert_eq!(tx.send(5), Ok(()));
    assert_eq!(receiver.join(), Ok(Ok(5)));
}

#[test]
fn errors_say_what_happened_without_the_value() {
    struct Mute;
    assert_eq!(std::format!("{:?}", SendError(Mute)), "SendError(..)");
    assert_eq!(std::format!("{}", TrySendError::Full(Mute)), "sending on a full channel");
    let error: Box<dyn core::error::Error> = Box::new(SendTimeoutError::Timeout(7));
    assert_eq!(error.to_string(), "no room to send in time");
}
