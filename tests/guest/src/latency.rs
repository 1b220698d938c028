//! How long a G that a device has readied waits for a CPU, when all are busy.
//!
//! For virtual time (`-icount`), where an instruction is a nanosecond: as many
//! hogs as CPUs, and a G that asks a simulated device again and again. Counted is
//! from the moment at which the device's interrupt handler takes the answer to
//! that at which the G looks at the clock.

use crate::check::{counters, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::simulated::{Config, Device, Latency};

runnext::main!(latency, main);

const ANSWERS: u64 = 100;

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    let progress = counters::<AtomicU64>(num_cpus());
    let hogs: Vec<_> = progress.iter().map(|count| go(move || hog(count))).collect();
    wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    let mut took = go(measure).join().expect("no panic");
    STOP.store(true, Relaxed);
    join_all(hogs);
    took.sort_unstable();
    let (min, median, max) = (took[0], took[took.len() / 2], took[took.len() - 1]);
    println!("LATENCY {min} {median} {max}");
    println!("ns from the interrupt to the G, least, middle and most of {ANSWERS} answers");
    println!("as many hogs as CPUs: {}; a slice is 10,000,000 ns", num_cpus());
}

fn measure() -> Vec<u64> {
    let latency = Latency::Uniform { min_ns: 50_000, max_ns: 3_000_000 };
    let device = Device::new(Config { seed: 1, latency, ..Config::default() }).expect("memory");
    (0..ANSWERS)
        .map(|word| {
            let request = device.submit(word).expect("memory");
            let answer = request.wait_for_answer(None).expect("it answers");
            Instant::now().as_nanos() - answer.done_ns
        })
        .collect()
}

/// With a pause, at which the emulator lets the next CPU have its turn.
fn hog(count: &AtomicU64) {
    while !STOP.load(Relaxed) {
        count.fetch_add(1, Relaxed);
        core::hint::spin_loop();
    }
}
