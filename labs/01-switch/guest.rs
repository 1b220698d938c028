//! Lab 1 on a machine in virtual time: Gs that start, talk, and are preempted.
#![no_std]
#![no_main]

mod lab;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect::now_ns;
use runnext::prelude::*;

runnext::main!(lab, main);

fn main() {
    lab::run(&[("hello", hello), ("pingpong", pingpong), ("hogs", hogs), ("budget", budget)]);
}

fn hello() {
    let started: Vec<_> = (0..100u64).map(|n| go(move || n * n)).collect();
    let sum: u64 = started.into_iter().map(|g| g.join().expect("no panic")).sum();
    assert_eq!(sum, 328_350, "a hundred Gs computed a sum of squares");
}

fn pingpong() {
    let (ping, ping_rx) = chan::rendezvous::<u64>();
    let (pong, pong_rx) = chan::rendezvous::<u64>();
    let echo = go(move || ping_rx.iter().for_each(|n| pong.send(n + 1).expect("open")));
    for n in 0..1_000 {
        ping.send(n).expect("open");
        assert_eq!(pong_rx.recv(), Ok(n + 1), "the answer to {n}");
    }
    drop(ping);
    echo.join().expect("no panic");
}

/// Three Gs that never yield: each is taken off the CPU in the middle, and goes on there.
fn hogs() {
    static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    static STOP: AtomicBool = AtomicBool::new(false);
    let hog = |count: &'static AtomicU64| {
        go(move || {
            let mut sums = [1u64, 2, 3, 4, 5, 6];
            while !STOP.load(Relaxed) {
                sums.iter_mut().for_each(|sum| *sum = sum.wrapping_mul(3).wrapping_add(1));
                let first = sums[0];
                sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = first + i as u64);
                count.fetch_add(1, Relaxed);
                core::hint::spin_loop();
            }
            sums.iter().enumerate().all(|(i, sum)| *sum == sums[0] + i as u64)
        })
    };
    let started: Vec<_> = COUNTS.iter().map(hog).collect();
    sleep(Duration::from_millis(200));
    STOP.store(true, Relaxed);
    for g in started {
        assert!(g.join().expect("no panic"), "a hog that was preempted lost its sums");
    }
    assert!(COUNTS.iter().all(|count| count.load(Relaxed) > 100), "a hog did not go on");
}

/// A virtual nanosecond is an instruction.
fn budget() {
    /// What a yield may cost in this build, which inlines little: 150, and some room.
    const MOST: u64 = 162;
    const ROUNDS: u64 = 20_000;
    static STOP: AtomicBool = AtomicBool::new(false);
    let other = go(|| {
        while !STOP.load(Relaxed) {
            yield_now();
        }
    });
    yield_now();
    let start = now_ns();
    for _ in 0..ROUNDS {
        yield_now();
    }
    let cost = (now_ns() - start) / (2 * ROUNDS);
    STOP.store(true, Relaxed);
    other.join().expect("no panic");
    assert!(cost <= MOST, "a yield costs {cost} instructions, and may cost {MOST}");
}
