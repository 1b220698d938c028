//! Lab 2 on a machine: its ring has 1,024 places, and not the few of the simulator.
#![no_std]
#![no_main]

extern crate alloc;

mod lab;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(lab, main);

fn main() {
    lab::run(&[("each_g_has_its_turns", each_g_has_its_turns)]);
}

/// As many Gs as three rings hold. Each has a turn when it is started, and one after a yield.
fn each_g_has_its_turns() {
    const GS: usize = 3_000;
    let turns: &[AtomicU32] = Vec::leak((0..GS).map(|_| AtomicU32::new(0)).collect());
    let start = |turns: &'static AtomicU32| {
        go(move || {
            turns.fetch_add(1, Relaxed);
            yield_now();
            turns.fetch_add(1, Relaxed);
        })
    };
    let gs: Vec<_> = turns.iter().map(start).collect();
    for g in gs {
        g.join().expect("no panic");
    }
    let wrong = turns.iter().position(|turns| turns.load(Relaxed) != 2);
    assert_eq!(wrong, None, "the first G that had not two turns");
}
