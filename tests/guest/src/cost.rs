//! What the scheduler's operations cost, in instructions: `program=cost`.
//!
//! For one CPU under `-icount shift=0`, where a virtual nanosecond is an
//! instruction. `YIELD` is held to its budget by a test; the others inform.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::inspect::now_ns;
use runnext::prelude::*;
use runnext::sync::{Mutex, WaitGroup};

runnext::main!(cost, main);

const ROUNDS: u64 = 50_000;

fn main() {
    println!("YIELD {}", yields());
    println!("COST chan_pingpong {}", ping_pong());
    println!("COST chan_buf {}", buffered());
    println!("COST spawn_join {}", spawn_join());
    println!("COST spawn_group {}", spawn_group());
    println!("COST mutex {}", mutex());
    println!("COST select4 {}", select4());
    println!("COST select4_ready {}", select4_ready());
}

/// Instructions for each of `n`, when all of them took so many.
fn each(start: u64, n: u64) -> u64 {
    (now_ns() - start) / n
}

/// Two Gs that do nothing else, so every one is a switch to the other.
fn yields() -> u64 {
    static STOP: AtomicBool = AtomicBool::new(false);
    let other = go(|| {
        while !STOP.load(Relaxed) {
            yield_now();
        }
    });
    let measured = go(|| {
        yield_now(); // both are under way now
        let start = now_ns();
        for _ in 0..ROUNDS {
            yield_now();
        }
        let cost = each(start, 2 * ROUNDS);
        STOP.store(true, Relaxed);
        cost
    });
    let cost = measured.join().expect("no panic");
    other.join().expect("no panic");
    cost
}

/// A round trip over two channels without room.
fn ping_pong() -> u64 {
    let (ping, ping_rx) = chan::rendezvous::<u64>();
    let (pong, pong_rx) = chan::rendezvous::<u64>();
    let echo = go(move || ping_rx.iter().for_each(|n| pong.send(n).expect("open")));
    let start = now_ns();
    for n in 0..ROUNDS {
        ping.send(n).expect("open");
        assert_eq!(pong_rx.recv(), Ok(n));
    }
    let cost = each(start, ROUNDS);
    drop(ping);
    echo.join().expect("no panic");
    cost
}

/// An item through a channel with room for 128.
fn buffered() -> u64 {
    let (tx, rx) = chan::bounded::<u64>(128);
    let start = now_ns();
    let maker = go(move || (0..ROUNDS).for_each(|n| tx.send(n).expect("open")));
    assert_eq!(rx.iter().count() as u64, ROUNDS);
    let cost = each(start, ROUNDS);
    maker.join().expect("no panic");
    cost
}

/// A G that does nothing, from its start until somebody knows that it has ended.
fn spawn_join() -> u64 {
    let turn = || go(|| ()).join().expect("no panic");
    (0..1_000).for_each(|_| turn());
    let start = now_ns();
    (0..ROUNDS).for_each(|_| turn());
    each(start, ROUNDS)
}

/// The same in batches of 1,000 that one waits for together.
fn spawn_group() -> u64 {
    static GROUP: WaitGroup = WaitGroup::new();
    let batch = || {
        for _ in 0..1_000 {
            GROUP.add(1);
            drop(go(|| GROUP.done()));
        }
        GROUP.wait();
    };
    batch();
    let start = now_ns();
    (0..ROUNDS / 1_000).for_each(|_| batch());
    each(start, ROUNDS)
}

fn mutex() -> u64 {
    static COUNT: Mutex<u64> = Mutex::new(0);
    let start = now_ns();
    for _ in 0..ROUNDS {
        *COUNT.lock().expect("no panic") += 1;
    }
    each(start, ROUNDS)
}

/// Receives from whichever of four Gs sends first.
fn select4() -> u64 {
    let [a, b, c, d] = [(); 4].map(|()| {
        let (tx, rx) = chan::rendezvous::<u64>();
        let _detached = go(move || while tx.send(0).is_ok() {});
        rx
    });
    let start = now_ns();
    for _ in 0..ROUNDS {
        select! {
            recv(a) => (),
            recv(b) => (),
            recv(c) => (),
            recv(d) => (),
        }
    }
    each(start, ROUNDS)
}

/// Sends into one of four channels, and receives from whichever is ready.
fn select4_ready() -> u64 {
    let chans = [(); 4].map(|()| chan::bounded::<u64>(1));
    let [(_, a), (_, b), (_, c), (_, d)] = &chans;
    let start = now_ns();
    for n in 0..ROUNDS {
        chans[n as usize % 4].0.send(n).expect("open");
        let got = select! {
            recv(a) -> n => n,
            recv(b) -> n => n,
            recv(c) -> n => n,
            recv(d) -> n => n,
        };
        assert_eq!(got, Ok(n));
    }
    each(start, ROUNDS)
}
