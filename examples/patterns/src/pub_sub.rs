//! Publish and subscribe: each subscriber gets all news; a slow one is told how many it missed.

use runnext::prelude::*;
use runnext::sync::broadcast::{self, Receiver, RecvError};

runnext::main!(pub_sub, main);

const NEWS: usize = 100;
/// How many are kept for subscribers that are slow.
const KEPT: usize = 16;

fn main() {
    let (publisher, first) = broadcast::channel(KEPT);
    let second = publisher.subscribe();
    // This one does not look before the last of them is out.
    let (publish_is_done, wait) = chan::oneshot::<()>();
    let slow = publisher.subscribe();
    let slow = go(move || {
        wait.recv().ok();
        read(slow)
    });
    let quick = [first, second].map(|news| go(move || read(news)));
    for number in 0..NEWS {
        publisher.send(format!("news {number}"));
        yield_now();
    }
    drop(publisher); // subscribers end when they have read what is left
    publish_is_done.send(()).expect("it waits");
    for (n, subscriber) in quick.into_iter().enumerate() {
        let (read, missed) = subscriber.join().expect("no panic");
        assert_eq!(read + missed, NEWS);
        println!("subscriber {n} has all news, or knows what it missed");
    }
    let (read, missed) = slow.join().expect("no panic");
    println!("the slow one read {read} and missed {missed}");
}

/// Reads to the end: how many news, and how many were overwritten before.
fn read(mut news: Receiver<String>) -> (usize, usize) {
    let (mut read, mut missed) = (0, 0);
    loop {
        match news.recv() {
            Ok(_) => read += 1,
            Err(RecvError::Missed(count)) => missed += count as usize,
            Err(_) => return (read, missed),
        }
    }
}
