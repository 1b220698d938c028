//! Are hogs treated alike? `program=fair -- <hogs> <placement>`.
//!
//! Counts the slices that each hog is granted in two seconds after a warm-up.
//! For virtual time (`-icount`): there a slice is exact.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runnext::inspect;
use runnext::prelude::*;

runnext::main!(fair, main);

const WARM_UP: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_secs(2);

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    let hogs: usize = args()[0].parse().expect("the number of hogs");
    let slices: &'static [AtomicU64] = Vec::leak((0..hogs).map(|_| AtomicU64::new(0)).collect());
    match args()[1].as_str() {
        // All of them made by one G, so they begin in the queue of one P.
        "one" => slices.iter().for_each(start),
        // Each CPU makes its share.
        "spread" => {
            let makers: Vec<_> = (0..num_cpus())
                .map(|cpu| {
                    let share = move || slices.iter().skip(cpu).step_by(num_cpus()).for_each(start);
                    Go::new().pin(cpu).spawn(share).expect("memory for a G")
                })
                .collect();
            makers.into_iter().for_each(|maker| maker.join().expect("no panic"));
        }
        other => panic!("no such placement: {other:?}"),
    }
    sleep(WARM_UP);
    let before = read(slices);
    sleep(MEASURED);
    let granted: Vec<_> = read(slices).iter().zip(before).map(|(now, then)| now - then).collect();
    STOP.store(true, Ordering::Relaxed);
    let (min, max) = (granted.iter().min().unwrap_or(&0), granted.iter().max().unwrap_or(&0));
    println!("FAIR {hogs} hogs: {min} to {max} slices, {} in all", granted.iter().sum::<u64>());
    println!("{granted:?}");
}

fn start(slices: &'static AtomicU64) {
    drop(go(move || {
        while !STOP.load(Ordering::Relaxed) {
            slices.store(inspect::slices(), Ordering::Relaxed);
            // Under -icount a turn ends at a `pause`: often enough to be fair,
            // seldom enough to come to an end.
            for _ in 0..1000 {
                core::hint::black_box(());
            }
            core::hint::spin_loop();
        }
    }));
}

fn read(slices: &[AtomicU64]) -> Vec<u64> {
    slices.iter().map(|slices| slices.load(Ordering::Relaxed)).collect()
}
