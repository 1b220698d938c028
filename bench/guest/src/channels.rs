//! Workloads over channels.

use super::tasks::on_each_p;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::WaitGroup;

/// A value there and one back over two rendezvous channels.
pub fn ping_pong(trips: u64) -> u64 {
    let (ping, ping_rx) = chan::rendezvous::<u64>();
    let (pong, pong_rx) = chan::rendezvous::<u64>();
    let _detached = go(move || {
        for n in ping_rx.iter() {
            pong.send(n).expect("the other end is open");
        }
    });
    for n in 0..trips {
        ping.send(n).expect("the other end is open");
        assert_eq!(pong_rx.recv(), Ok(n));
    }
    ping.close();
    trips
}

/// Items through a channel with room for 128, one producer and one consumer.
pub fn buffered_1x1(items: u64) -> u64 {
    buffered(1, items)
}

/// The same with four of each.
pub fn buffered_4x4(items: u64) -> u64 {
    buffered(4, items / 4)
}

/// Items through channels of capacity 128: one for each P, with one producer and one
/// consumer.
pub fn pairs(items: u64) -> u64 {
    let each = items / gomaxprocs() as u64;
    let pair = || {
        let (tx, rx) = chan::bounded::<u64>(128);
        move || {
            let _detached = go(move || {
                for n in 0..each {
                    tx.send(n).expect("closed when all have been sent");
                }
                tx.close();
            });
            assert!(rx.iter().eq(0..each), "an item was lost, doubled or overtaken");
        }
    };
    on_each_p(pair) * each
}

fn buffered(pairs: u64, each: u64) -> u64 {
    static PRODUCERS: WaitGroup = WaitGroup::new();
    static CONSUMERS: WaitGroup = WaitGroup::new();
    static GOT: AtomicU64 = AtomicU64::new(0);
    let (tx, rx) = chan::bounded::<u64>(128);
    GOT.store(0, Relaxed);
    for _ in 0..pairs {
        let (tx, rx) = (tx.clone(), rx.clone());
        PRODUCERS.add(1);
        let _detached = go(move || {
            for n in 0..each {
                tx.send(n).expect("closed when all have been sent");
            }
            PRODUCERS.done();
        });
        CONSUMERS.add(1);
        let _detached = go(move || {
            GOT.fetch_add(rx.iter().map(|_| 1).sum(), Relaxed);
            CONSUMERS.done();
        });
    }
    PRODUCERS.wait();
    tx.close();
    CONSUMERS.wait();
    assert_eq!(GOT.load(Relaxed), pairs * each, "an item was lost or doubled");
    pairs * each
}

/// Receives from whichever of four Gs sends first.
pub fn select4(receives: u64) -> u64 {
    let [a, b, c, d] = [(); 4].map(|()| {
        let (tx, rx) = chan::rendezvous::<u64>();
        let _detached = go(move || while tx.send(0).is_ok() {});
        rx
    });
    for _ in 0..receives {
        select! {
            recv(a) => (),
            recv(b) => (),
            recv(c) => (),
            recv(d) => (),
        }
    }
    for rx in [a, b, c, d] {
        rx.close();
    }
    receives
}

/// Sends into one of four channels in turn, and receives from whichever is ready.
pub fn select4_ready(pairs: u64) -> u64 {
    let chans = [(); 4].map(|()| chan::bounded::<u64>(1));
    let [(_, a), (_, b), (_, c), (_, d)] = &chans;
    for n in 0..pairs {
        chans[n as usize % 4].0.send(n).expect("both ends are here");
        let got = select! {
            recv(a) -> n => n,
            recv(b) -> n => n,
            recv(c) -> n => n,
            recv(d) -> n => n,
        };
        assert_eq!(got, Ok(n));
    }
    pairs
}
