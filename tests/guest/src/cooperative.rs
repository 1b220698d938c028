//! One CPU, and a G that computes without a call: which of the others ran meanwhile.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;

runnext::main!(cooperative, main);

/// Five slices of the usual length.
const COMPUTES: Duration = Duration::from_millis(50);

fn main() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let waits = go(|| RAN.fetch_add(1, Relaxed));
    // Its timer fires while main computes.
    let sleeps = go(|| {
        sleep(Duration::from_millis(1));
        RAN.fetch_add(1, Relaxed)
    });
    // Both have begun: the one has ended, the other sleeps.
    yield_now();
    waits.join().expect("it only counts");
    let runnable = go(|| RAN.fetch_add(1, Relaxed));
    let (start, before) = (Instant::now(), RAN.load(Relaxed));
    while start.elapsed() < COMPUTES {
        core::hint::spin_loop();
    }
    println!("COOPERATIVE {} ran while main computed", RAN.load(Relaxed) - before);
    for g in [sleeps, runnable] {
        g.join().expect("it only counts");
    }
    assert_eq!(RAN.load(Relaxed), 3, "all run when main waits");
}
