//! Guards, an order, and arms of other kinds than channels.

use super::*;

#[test]
fn an_arm_whose_guard_is_false_is_not_there() {
    let (tx, rx) = chan::bounded(4);
    tx.send(1).expect("open");
    for wanted in [false, true] {
        let got = select! {
            recv(rx) -> n if wanted => n.expect("open"),
            send(tx, 9) if false => unreachable!(),
            default => 0,
        };
        assert_eq!(got, u32::from(wanted));
    }
    let got = select! {
        recv(rx) if !tx.is_empty() => 1,
        after(SOON) => 2,
    };
    assert_eq!(got, 2);
}

#[test]
fn a_biased_select_takes_the_first_that_is_ready() {
    let [a, b] = [chan::bounded(1), chan::bounded(1)];
    for i in 0..100 {
        b.0.send(2).expect("open");
        if i % 2 == 0 {
            a.0.send(1).expect("open");
        }
        let got = select! {
            biased;
            recv(a.1) -> n => n,
            recv(b.1) -> n => n,
            default => Ok(3),
        };
        assert_eq!(got, Ok(if i % 2 == 0 { 1 } else { 2 }));
        let _ = b.1.try_recv();
    }
    let sender = go(move || b.0.send(5));
    assert_eq!(select! { biased; recv(a.1) -> n => n, recv(b.1) -> n => n }, Ok(5));
    assert_eq!(sender.join(), Ok(Ok(())));
}

#[test]
fn a_join_is_an_arm_and_leaves_the_result_to_the_body() {
    let (tx, rx) = chan::rendezvous::<u32>();
    let mut worker = go(move || rx.recv());
    let ended = select! {
        join(worker) => true,
        after(SOON) => false,
    };
    assert!(!ended && !worker.is_finished());
    let sender = go(move || tx.send(7));
    select! { join(worker) => assert_eq!(worker.join(), Ok(Ok(7))) }
    assert_eq!(sender.join(), Ok(Ok(())));
}

#[test]
fn permits_are_an_arm_and_are_given_back() {
    let gate = sync::Semaphore::new(2);
    let permit = select! { acquire(gate, 2) -> permit => permit };
    let refused = select! {
        acquire(gate, 1) => true,
        after(SOON) => false,
    };
    assert!(!refused && gate.available() == 0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _permit = select! { acquire(gate, 2) -> permit => permit };
            gate.available()
        });
        std::thread::sleep(SOON);
        drop(permit);
        assert_eq!(waits.join().expect("no panic"), 0);
    });
    assert_eq!(gate.available(), 2);
}

/// A G that selects stands first in line and wants more than the next: when it takes something
/// else, the next is served.
#[test]
fn one_that_leaves_the_line_for_permits_lets_the_next_in() {
    let gate = sync::Semaphore::new(1);
    let (tx, rx) = chan::rendezvous::<u8>();
    std::thread::scope(|scope| {
        let selects = scope.spawn(|| {
            select! {
                acquire(gate, 2) => unreachable!("one is free"),
                recv(rx) -> n => n,
            }
        });
        std::thread::sleep(SOON);
        let waits = scope.spawn(|| gate.acquire(1));
        std::thread::sleep(SOON);
        assert!(!waits.is_finished(), "behind the one that selects");
        tx.send(3).expect("open");
        waits.join().expect("no panic");
        assert_eq!(selects.join().expect("no panic"), Ok(3));
    });
    assert_eq!(gate.available(), 0);
}

/// Permits and values come at once: one of them is taken, and the other is still there.
#[test]
fn a_permit_against_a_value_is_one_or_the_other() {
    for _ in 0..MANY / 10 {
        let gate = sync::Semaphore::new(0);
        let (tx, rx) = chan::bounded(1);
        std::thread::scope(|scope| {
            scope.spawn(|| gate.release(1));
            scope.spawn(|| tx.send(1).expect("open"));
            let is_permit = select! {
                acquire(gate, 1) -> permit => { permit.forget(); true }
                recv(rx) -> n => { n.expect("open"); false }
            };
            match is_permit {
                true => assert_eq!(rx.recv(), Ok(1)),
                false => gate.acquire(1),
            }
        });
        assert_eq!((gate.available(), rx.len()), (0, 0));
    }
}

#[test]
fn the_end_of_a_context_is_an_arm() {
    use crate::context::{Context, Over};
    let (_tx, rx) = chan::rendezvous::<u8>();
    let (first, second) = (Context::new(), Context::new());
    let child = second.child();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SOON);
            second.cancel();
        });
        let over = select! {
            recv(rx) => unreachable!(),
            done(first) => unreachable!(),
            done(child) -> why => why,
        };
        assert_eq!(over, Over::Cancelled);
    });
    assert_eq!(select! { done(child) -> why => why, recv(rx) => unreachable!() }, Over::Cancelled);
    let late = first.child_until(SOON);
    assert_eq!(select! { done(late) -> why => why, done(first) -> why => why }, Over::TimedOut);
    let limited = select! {
        done(first) => 1,
        after(SOON) => 2,
    };
    assert_eq!(limited, 2);
    assert!(rx.recv_until(SOON).is_err(), "a later wait knows nothing of it");
}
