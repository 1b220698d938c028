//! Lab 6 on a machine in virtual time: calls that wait, come back, and leave nothing behind.
#![no_std]
#![no_main]

extern crate alloc;

mod lab;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::inspect::now_ns;
use runnext::prelude::*;
use runnext::sync::Semaphore;

runnext::main!(lab, main);

fn main() {
    lab::run(&[
        ("a_call_waits_and_comes_back", a_call_waits_and_comes_back),
        ("a_hundred_calls_wait", a_hundred_calls_wait),
        ("calls_wake_each_other", calls_wake_each_other),
        ("calls_are_preempted", calls_are_preempted),
        ("ms_are_used_again", ms_are_used_again),
        ("budget", budget),
    ]);
}

/// Yields until so many calls wait; not for ever.
fn until_blocked(calls: u64) {
    const LIMIT: Duration = Duration::from_millis(500);
    let begun = Instant::now();
    while stats().ms.blocked != calls {
        let blocked = stats().ms.blocked;
        assert!(
            begun.elapsed() < LIMIT,
            "{calls} calls wait, and {blocked} Ms are away with a call"
        );
        yield_now();
    }
}

/// Fills its frame, waits, and looks whether the frame is as it was.
#[inline(never)]
fn waits(n: usize, gate: &Semaphore) -> bool {
    let frame = core::hint::black_box([n; 32]);
    gate.acquire(1);
    core::hint::black_box(&frame).iter().all(|word| *word == n)
}

fn a_call_waits_and_comes_back() {
    static GATE: Semaphore = Semaphore::new(0);
    let call = go(|| blocking(|| waits(7, &GATE)));
    until_blocked(1);
    let other = go(|| 3);
    assert_eq!(other.join(), Ok(3), "another G ran on the CPU that the call left");
    GATE.release(1);
    assert_eq!(call.join(), Ok(true), "the frame of the call");
    until_blocked(0);
}

fn a_hundred_calls_wait() {
    static GATE: Semaphore = Semaphore::new(0);
    let calls: Vec<_> = (0..100).map(|n| go(move || blocking(|| waits(n, &GATE)))).collect();
    until_blocked(100);
    let others: Vec<_> = (0..20u64)
        .map(|n| {
            go(move || {
                for _ in 0..10 {
                    yield_now();
                }
                n
            })
        })
        .collect();
    let sum: u64 = others.into_iter().map(|g| g.join().expect("no panic")).sum();
    assert_eq!((sum, stats().ms.blocked), (190, 100), "others ran, and the calls wait still");
    GATE.release(100);
    let kept = calls.into_iter().filter(|_| true).map(|g| g.join().expect("no panic"));
    assert_eq!(kept.filter(|kept| *kept).count(), 100, "calls whose frame is as it was");
    until_blocked(0);
}

/// A ring of calls, each of which wakes the next one.
fn calls_wake_each_other() {
    const GS: usize = 8;
    const ROUNDS: usize = 50;
    static GATES: [Semaphore; GS] = [const { Semaphore::new(0) }; GS];
    let gs: Vec<_> = (0..GS)
        .map(|n| {
            go(move || {
                (0..ROUNDS).all(|_| {
                    let kept = blocking(|| {
                        let kept = waits(n, &GATES[n]);
                        GATES[(n + 1) % GS].release(1);
                        kept
                    });
                    yield_now();
                    kept
                })
            })
        })
        .collect();
    GATES[0].release(1);
    for g in gs {
        assert_eq!(g.join(), Ok(true), "the frames of a G in {ROUNDS} calls");
    }
}

/// Calls that compute for longer than a slice, more of them than there are CPUs.
fn calls_are_preempted() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    let long = |n: usize| {
        go(move || {
            blocking(move || {
                RUNNING.fetch_add(1, Relaxed);
                let frame = core::hint::black_box([n; 32]);
                let begun = Instant::now();
                // Each waits until all have begun: none would, if a call kept its CPU.
                while RUNNING.load(Relaxed) < 6 && begun.elapsed() < Duration::from_secs(1) {
                    core::hint::spin_loop();
                }
                core::hint::black_box(&frame).iter().all(|word| *word == n)
                    && RUNNING.load(Relaxed) == 6
            })
        })
    };
    let gs: Vec<_> = (0..6).map(long).collect();
    for g in gs {
        assert_eq!(g.join(), Ok(true), "six calls computed by turns, each with its own frame");
    }
    until_blocked(0);
}

fn ms_are_used_again() {
    static GATE: Semaphore = Semaphore::new(0);
    let round = || {
        let calls: Vec<_> = (0..20).map(|n| go(move || blocking(|| waits(n, &GATE)))).collect();
        until_blocked(20);
        GATE.release(20);
        calls.into_iter().for_each(|g| assert_eq!(g.join(), Ok(true)));
        until_blocked(0);
        stats().ms.created
    };
    let first = round();
    let last = (0..10).map(|_| round()).last().expect("ten rounds");
    // Each CPU may keep one that it did not need before.
    let most = first + num_cpus() as u64;
    assert!(last <= most, "{first} Ms after the first round of 20 calls, {last} after ten more");
}

/// Two calls by turns: each round is two hand-overs. A virtual nanosecond is an instruction.
fn budget() {
    /// What a round may cost in this build, which inlines little: 1,926, and some room.
    const MOST: u64 = 2_010;
    const ROUNDS: u64 = 2_000;
    static PING: Semaphore = Semaphore::new(0);
    static PONG: Semaphore = Semaphore::new(0);
    let echo = go(|| {
        for _ in 0..ROUNDS + 10 {
            blocking(|| PING.acquire(1));
            PONG.release(1);
        }
    });
    let turn = || {
        PING.release(1);
        blocking(|| PONG.acquire(1));
    };
    (0..10).for_each(|_| turn());
    let start = now_ns();
    (0..ROUNDS).for_each(|_| turn());
    let cost = (now_ns() - start) / ROUNDS;
    echo.join().expect("no panic");
    assert!(cost <= MOST, "two calls that wait cost {cost} instructions, and may cost {MOST}");
}
