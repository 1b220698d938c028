//! All interleavings of the inbox: several senders, one receiver.
#![cfg(loom)]

use loom::thread;
use sched::{G, Inbox};

fn g(n: usize) -> &'static G<usize> {
    Box::leak(Box::new(G::new(n)))
}

fn take(inbox: &'static Inbox<usize>) -> Vec<usize> {
    let mut list = inbox.take_all();
    std::iter::from_fn(|| list.pop()).map(|g| g.kernel).collect()
}

#[test]
fn two_senders_and_a_taker_lose_nothing_and_keep_each_senders_order() {
    loom::model(|| {
        let inbox: &'static Inbox<usize> = Box::leak(Box::new(Inbox::new()));
        let senders = [[0, 1], [2, 3]]
            .map(|numbers| thread::spawn(move || numbers.map(|n| inbox.push(g(n)))));
        let mut all = take(inbox);
        for sender in senders {
            sender.join().unwrap();
        }
        all.extend(take(inbox));
        let at = |n| all.iter().position(|&k| k == n).expect("lost");
        assert!(at(0) < at(1) && at(2) < at(3), "{all:?}");
        assert_eq!(all.len(), 4, "{all:?}");
    });
}

#[test]
fn whoever_finds_it_empty_is_told_so() {
    loom::model(|| {
        let inbox: &'static Inbox<usize> = Box::leak(Box::new(Inbox::new()));
        let sender = thread::spawn(move || inbox.push(g(1)));
        let mine = inbox.push(g(2));
        let theirs = sender.join().unwrap();
        assert!(mine != theirs, "one interrupt for the two");
        assert_eq!(take(inbox).len(), 2);
    });
}
