//! Lab 4 on a machine in virtual time: which CPUs run what one CPU has started.
#![no_std]
#![no_main]

extern crate alloc;

mod lab;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(lab, main);

fn main() {
    lab::run(&[("work_spreads", work_spreads), ("a_theft_is_short", a_theft_is_short)]);
}

/// How often any CPU stole, and how many Gs.
fn thefts() -> (u64, u64) {
    let stats = stats();
    let cpus = || stats.cpus.iter();
    (cpus().map(|cpu| cpu.steals).sum(), cpus().map(|cpu| cpu.stolen).sum())
}

/// Fewer Gs than a ring holds, all from one CPU: only by thefts do others get them.
fn work_spreads() {
    const GS: usize = 400;
    let work = || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(100) {
            core::hint::spin_loop();
        }
        current_cpu()
    };
    let (before, _) = thefts();
    let gs: Vec<_> = (0..GS).map(|_| go(work)).collect();
    let mut ran = alloc::vec![0; num_cpus()];
    for g in gs {
        ran[g.join().expect("no panic")] += 1;
    }
    let least = GS / num_cpus() / 4;
    assert!(ran.iter().all(|n| *n >= least), "of {GS} equal Gs the CPUs ran {ran:?}");
    let took = thefts().0 - before;
    assert!(took <= GS as u64 / 4, "{took} thefts spread {GS} Gs: a thief takes half of a ring");
}

/// A thief has interrupts off, so it takes `STEAL_MAX` Gs at most, however many there are.
fn a_theft_is_short() {
    const STEAL_MAX: u64 = 128;
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let spin_until = |is_over: &dyn Fn() -> bool| {
        while !is_over() {
            core::hint::spin_loop();
        }
    };
    // The other CPU computes until the ring here is nearly full.
    static RUNS: AtomicBool = AtomicBool::new(false);
    let other = (current_cpu() + 1) % num_cpus();
    let hog = Go::new().pin(other).spawn(move || {
        RUNS.store(true, Relaxed);
        spin_until(&|| GO_ON.load(Relaxed));
    });
    spin_until(&|| RUNS.load(Relaxed));
    let before = thefts();
    let gs: Vec<_> = (0..1_000).map(|_| go(|| ())).collect();
    GO_ON.store(true, Relaxed);
    spin_until(&|| thefts().0 != before.0);
    let after = thefts();
    for g in gs {
        g.join().expect("no panic");
    }
    hog.expect("memory for a G").join().expect("no panic");
    let (took, gs) = (after.0 - before.0, after.1 - before.1);
    assert!(gs <= took * STEAL_MAX, "{took} theft(s) of {gs} Gs: interrupts were off meanwhile");
}
