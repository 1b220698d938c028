//! Lab 5 on a machine in virtual time: hogs, and a G that is alone.
#![no_std]
#![no_main]

extern crate alloc;

mod lab;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;

runnext::main!(lab, main);

fn main() {
    lab::run(&[("hogs_share", hogs_share), ("a_lone_g_takes_no_ticks", a_lone_g_takes_no_ticks)]);
}

const SLICE: Duration = Duration::from_millis(10);
static STOP: AtomicBool = AtomicBool::new(false);

/// Computes, and never yields. Each turn of a virtual CPU ends at a `pause`.
fn hog(slices: &AtomicU64) {
    while !STOP.load(Relaxed) {
        slices.store(inspect::slices(), Relaxed);
        for _ in 0..1_000 {
            core::hint::black_box(());
        }
        core::hint::spin_loop();
    }
}

fn start_hogs(cpu: Option<usize>, n: usize) -> &'static [AtomicU64] {
    let slices: &[AtomicU64] = Vec::leak((0..n).map(|_| AtomicU64::new(0)).collect());
    for slices in slices {
        let hog = move || hog(slices);
        let started = match cpu {
            Some(cpu) => Go::new().pin(cpu).spawn(hog),
            None => Go::new().spawn(hog),
        };
        drop(started.expect("memory for a G"));
    }
    slices
}

fn read(slices: &[AtomicU64]) -> Vec<u64> {
    slices.iter().map(|slices| slices.load(Relaxed)).collect()
}

/// The slices that each hog is granted in that time.
fn granted(slices: &[AtomicU64], time: Duration) -> Vec<u64> {
    let before = read(slices);
    sleep(time);
    read(slices).iter().zip(before).map(|(now, then)| now - then).collect()
}

/// Five hogs on each CPU, 50 slices' time: ten slices for each.
fn hogs_share() {
    for cpu in 0..num_cpus() {
        let slices = start_hogs(Some(cpu), 5);
        sleep(SLICE * 10);
        let granted = granted(slices, SLICE * 50);
        STOP.store(true, Relaxed);
        let is_fair = granted.iter().all(|granted| (8..=12).contains(granted));
        assert!(is_fair, "five hogs on CPU {cpu} had {granted:?} slices of 50: ten each is fair");
        sleep(SLICE * 10); // they notice
        STOP.store(false, Relaxed);
    }
}

/// Nor after the interrupt that has brought it here.
fn a_lone_g_takes_no_ticks() {
    let cpu = num_cpus() - 1;
    let ticks = move || stats().cpus[cpu].ticks;
    let spin_for = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            core::hint::spin_loop();
        }
    };
    let alone = Go::new().pin(cpu).spawn(move || {
        spin_for(SLICE * 4); // beyond what was armed before
        let before = ticks();
        spin_for(SLICE * 10);
        ticks() - before
    });
    let taken = alone.expect("memory for a G").join().expect("no panic");
    assert_eq!(taken, 0, "ticks of CPU {cpu}, where one G ran for ten slices and no other waited");
}
