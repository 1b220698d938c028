//! No G waits while a P idles, but for as long as a wake-up takes: `program=idle_latency`.
//!
//! For virtual time (`-icount`) and the profile `checked`, which notes how long a
//! runnable G has waited beside an idle P (`runnext::invariant`). In each scene
//! a G makes others runnable in one of the ways that there are, and then computes
//! for much longer than a wake-up takes: if a wake-up is not sent, nothing replaces it
//! meanwhile, and the runnable G waits for all of that time.

use crate::check::{self, checks, go_on, join_all};
use core::hint::{black_box, spin_loop};
use runnext::inspect::now_ns;
use runnext::internals::invariant::{self, IdleLatency};
use runnext::prelude::*;
use runnext::sync::Mutex;

runnext::main!(idle_latency, main);

fn main() {
    if !cfg!(debug_assertions) {
        println!("nothing is noted in this build");
        exit(1);
    }
    check::run(checks![
        a_g_that_is_started_does_not_wait_beside_an_idle_p,
        nor_do_many_that_are_started_at_once,
        nor_does_one_that_is_sent_something,
        nor_does_one_that_is_unparked,
        nor_does_one_that_is_unparked_in_a_slice_that_is_timed,
        nor_does_one_that_was_waiting_for_a_mutex,
        nor_does_one_that_has_slept,
        nor_does_one_that_comes_back_from_a_blocking_call,
        nor_does_one_that_is_pinned_to_the_idle_p,
        nor_does_one_whose_slice_is_over,
    ]);
}

/// How often each scene is played.
const ROUNDS: usize = 4;
/// For how long a G computes after it has readied others.
const LONG: Duration = Duration::from_millis(2);
/// The most that a G may wait beside an idle P: `runnext::invariant`, "Idle
/// latency", says why, and what was measured. If there is one P, what is left of the interrupt
/// that readies the G.
fn bound_ns() -> u64 {
    if num_cpus() == 1 { 2_000 } else { 500_000 }
}

/// Plays a scene, and says how long a G has waited beside an idle P meanwhile.
fn play(mut scene: impl FnMut()) {
    yield_now();
    invariant::reset_idle_latency();
    (0..ROUNDS).for_each(|_| scene());
    let longest = look();
    println!("BESIDE {} ns", longest.map_or(0, |longest| longest.ns));
}

/// Computes for much longer than a wake-up takes, and looks whether one was missing:
/// before anybody is waited for who perhaps does not come.
fn compute_and_look() {
    compute(LONG);
    look();
}

fn look() -> Option<IdleLatency> {
    let longest = invariant::longest_idle_latency();
    if let Some(IdleLatency { ns, g, p, ran_on }) = longest {
        let and = ran_on.map_or("and waits still".to_string(), |p| format!("and ran on P {p}"));
        assert!(ns <= bound_ns(), "G {g} waited for {ns} ns while P {p} was idle, {and}");
    }
    longest
}

/// Computes. A turn of a CPU ends at a spin hint: so often that all get on.
fn compute(time: Duration) {
    let end = now_ns() + time.as_nanos() as u64;
    while now_ns() < end {
        (0..200).for_each(|_| black_box(()));
        spin_loop();
    }
}

fn a_g_that_is_started_does_not_wait_beside_an_idle_p() {
    play(|| {
        let g = go(|| ());
        compute_and_look();
        g.join().expect("no panic");
    });
}

/// Each that is woken must wake the next.
fn nor_do_many_that_are_started_at_once() {
    play(|| {
        let gs: Vec<_> = (0..2 * num_cpus()).map(|_| go(|| compute(LONG))).collect();
        compute_and_look();
        join_all(gs);
    });
}

fn nor_does_one_that_is_sent_something() {
    play(|| {
        let (tx, rx) = chan::rendezvous();
        let receivers: Vec<_> = (0..num_cpus())
            .map(|_| {
                let rx = rx.clone();
                go(move || rx.recv().map(|()| compute(LONG)).expect("something is sent"))
            })
            .collect();
        sleep(LONG);
        receivers.iter().for_each(|_| tx.send(()).expect("somebody receives"));
        compute_and_look();
        join_all(receivers);
    });
}

fn nor_does_one_that_is_unparked() {
    play(|| unpark_one(|| ()));
}

/// There is a shorter way to ready a G when the timer of the slice runs: it does if
/// somebody waits for this very CPU.
fn nor_does_one_that_is_unparked_in_a_slice_that_is_timed() {
    let unparks = || unpark_one(|| drop(go_on(0, || ())));
    play(|| drop(join_all([go_on(0, unparks)])));
}

/// Unparks a G, after `first`.
fn unpark_one(first: impl FnOnce()) {
    let (tx, rx) = chan::bounded(1);
    let g = go(move || {
        tx.send(current()).expect("somebody asks");
        park();
    });
    sleep(LONG);
    let parked = rx.recv().expect("it says so");
    first();
    parked.unpark();
    compute_and_look();
    g.join().expect("no panic");
}

fn nor_does_one_that_was_waiting_for_a_mutex() {
    static LOCK: Mutex<()> = Mutex::new(());
    play(|| {
        let held = LOCK.lock().expect("no panic");
        let g = go(|| drop(LOCK.lock().expect("no panic")));
        sleep(LONG);
        drop(held);
        compute_and_look();
        g.join().expect("no panic");
    });
}

/// While somebody computes, and while nobody does. The timer of one of them is on the
/// CPU where somebody does: the last that is started runs there first.
fn nor_does_one_that_has_slept() {
    let let_sleep = || {
        let sleeps = |n| move || sleep(Duration::from_micros(300 * n as u64));
        let mut sleepers: Vec<_> = (2..=2 * num_cpus()).map(|n| go(sleeps(n))).collect();
        let (tx, rx) = chan::bounded(1);
        sleepers.push(go(move || tx.send(()).map(|()| sleeps(1)()).expect("somebody asks")));
        rx.recv().expect("it says so");
        compute_and_look();
        join_all(sleepers);
    };
    play(|| drop(join_all([go_on(0, let_sleep)])));
}

fn nor_does_one_that_comes_back_from_a_blocking_call() {
    play(|| {
        let call = |n| move || blocking(|| sleep(Duration::from_micros(500 * n as u64)));
        let callers: Vec<_> = (1..=num_cpus()).map(|n| go(call(n))).collect();
        compute_and_look();
        join_all(callers);
    });
}

fn nor_does_one_that_is_pinned_to_the_idle_p() {
    play(|| {
        let pinned: Vec<_> = (0..num_cpus()).map(|cpu| go_on(cpu, || ())).collect();
        compute_and_look();
        join_all(pinned);
    });
}

/// More hogs than CPUs, for longer than a slice: they go through the global queue,
/// and one after the other ends and leaves its P to the rest.
fn nor_does_one_whose_slice_is_over() {
    play(|| {
        let hogs = (1..=num_cpus() + 1).map(|n| go(move || compute(LONG * n as u32)));
        join_all(hogs);
    });
}
