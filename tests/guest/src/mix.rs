//! A bit of everything, for comparing two runs: `program=mix -- <rounds> <device> <pace>`.
//!
//! Hogs that are preempted, channels, sleepers, Gs that start Gs, locks, a device
//! and somebody who types: all at once, and nothing that depends on the host's time.
//! So the device is the simulated one, and what is typed is typed by a script. What
//! it prints at the end depends on nothing but the arguments: the seed of the device and
//! how fast is typed are among them.

use crate::check;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runnext::console;
use runnext::internals::drivers::input::INPUT;
use runnext::prelude::*;
use runnext::simulated::{Config, Device, Latency};
use runnext::sync::Mutex;

runnext::main!(mix, main);

static STOP: AtomicBool = AtomicBool::new(false);
static SLEPT: AtomicU64 = AtomicU64::new(0);
static SUM: Mutex<u64> = Mutex::new(0);

fn main() {
    let number = |n: usize| args().get(n).and_then(|word| word.parse().ok());
    let rounds: u64 = number(0).unwrap_or(200);
    let (seed, pace_us) = (number(1).unwrap_or(7), number(2).unwrap_or(40));
    let hogs: Vec<_> = (0..num_cpus()).map(|_| go(hog)).collect();
    let workers = [
        go(move || tree(6)),
        go(move || pipe(rounds)),
        go(move || locks(rounds)),
        go(move || choose(rounds)),
        go(move || permits(rounds)),
        go(move || requests(rounds, seed)),
        go(move || typed(rounds, pace_us)),
    ];
    let sleepers: Vec<_> = (1..6).map(|n| go(move || doze(n, rounds / 20))).collect();
    let found = workers.map(|worker| worker.join().expect("no panic"));
    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("no panic"));
    STOP.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().expect("no panic"));
    println!("MIX {found:?} {}", SLEPT.load(Ordering::Relaxed));
}

/// Leaves its CPU only when it must.
fn hog() {
    while !STOP.load(Ordering::Relaxed) {
        check::spin();
    }
}

/// Gs that start Gs: 2 to the power of `depth` of them.
fn tree(depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let halves = [go(move || tree(depth - 1)), go(move || tree(depth - 1))];
    halves.into_iter().map(|half| half.join().expect("no panic")).sum()
}

/// Two stages and a channel of each kind.
fn pipe(rounds: u64) -> u64 {
    let (first, numbers) = chan::rendezvous();
    let (second, squares) = chan::bounded(4);
    drop(go(move || (0..rounds).try_for_each(|n| first.send(n))));
    drop(go(move || numbers.iter().try_for_each(|n| second.send(n * n))));
    squares.iter().sum()
}

fn locks(rounds: u64) -> u64 {
    let adders: Vec<_> = (0..4)
        .map(|_| {
            go(move || {
                for _ in 0..rounds {
                    *SUM.lock().expect("nobody panics") += 1;
                    yield_now();
                }
            })
        })
        .collect();
    adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
    *SUM.lock().expect("nobody panics")
}

/// Which of two is received first is a random choice.
fn choose(rounds: u64) -> u64 {
    let (odd_tx, odd) = chan::bounded(8);
    let (even_tx, even) = chan::bounded(8);
    let _open = (odd_tx.clone(), even_tx.clone()); // until all have come
    let send = |tx: chan::Sender<u64>| move || (0..rounds).try_for_each(|n| tx.send(n));
    drop([go(send(odd_tx)), go(send(even_tx))]);
    let mut sum = 0;
    for _ in 0..2 * rounds {
        sum += select! {
            recv(odd) -> n => n.expect("open"),
            recv(even) -> n => 2 * n.expect("open"),
        };
    }
    sum
}

fn permits(rounds: u64) -> u64 {
    let parker = current();
    drop(go(move || {
        for _ in 0..rounds {
            parker.unpark();
            yield_now();
        }
    }));
    // Two permits in a row may be one.
    while park_timeout(Duration::from_millis(50)) {}
    rounds
}

/// Requests to a device that answers in another order.
fn requests(rounds: u64, seed: u64) -> u64 {
    let latency = Latency::Uniform { min_ns: 1_000, max_ns: 400_000 };
    let device = Device::new(Config { seed, latency, ..Config::default() });
    let device = device.expect("memory for a device");
    let ask = |device: Device| {
        move || {
            let request = |n| device.submit(n).expect("memory for a request");
            (0..rounds / 4)
                .map(|n| request(n).wait(None).expect("an answer"))
                .fold(0, u64::wrapping_add)
        }
    };
    let askers: Vec<_> = (0..4).map(|_| go(ask(device.clone()))).collect();
    askers.into_iter().fold(0, |sum, g| sum.wrapping_add(g.join().expect("no panic")))
}

/// A script types words of all lengths, as the port's interrupt would bring them, and
/// somebody reads.
fn typed(rounds: u64, pace_us: u64) -> u64 {
    let length = |n: u64| n as usize % 7 + 1;
    drop(go(move || {
        for n in 0..rounds {
            sleep(Duration::from_micros(n % 5 * pace_us));
            INPUT.type_in(&b"runnext"[..length(n)]);
        }
    }));
    let all: usize = (0..rounds).map(length).sum();
    let (mut buffer, mut read, mut sum) = ([0; 16], 0, 0u64);
    while read < all {
        let bytes = console::read(&mut buffer).expect("a serial port");
        sum = buffer[..bytes].iter().fold(sum, |sum, &byte| sum * 31 % 1_000_003 + u64::from(byte));
        read += bytes;
    }
    sum
}

fn doze(n: u64, times: u64) {
    for _ in 0..times {
        sleep(Duration::from_micros(700 * n + 13));
        SLEPT.fetch_add(n, Ordering::Relaxed);
    }
}
