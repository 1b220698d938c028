//! Lab 3 on a machine in virtual time: while one CPU computes, the others halt, and are woken.
#![no_std]
#![no_main]

extern crate alloc;

mod lab;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(lab, main);

fn main() {
    lab::run(&[("no_cpu_halts_while_a_g_waits", no_cpu_halts_while_a_g_waits)]);
}

/// Half a slice: only another CPU can have run the G by then.
const SOON: Duration = Duration::from_millis(5);

/// Starts a G, and keeps the CPU: one that halts must take it. Again and again, so that the CPUs are
/// on their way to the halt, in it, and on their way out of it.
fn no_cpu_halts_while_a_g_waits() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    for round in 1..=300 {
        let begun = Instant::now();
        drop(go(move || RAN.store(round, Relaxed)));
        while RAN.load(Relaxed) != round {
            let waited = begun.elapsed();
            assert!(
                waited < SOON,
                "a G waits for {waited:?}, and {} CPUs halt (round {round})",
                num_cpus() - 1
            );
            core::hint::spin_loop();
        }
        for _ in 0..round % 50 * 20 {
            core::hint::spin_loop();
        }
    }
}
