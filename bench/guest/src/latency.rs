//! Workloads that ask how late something is, rather than what it costs.

use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::WaitGroup;

use crate::report::middle_and_last;

/// How often a G sleeps in [`timer_late`].
const ROUNDS: u64 = 20;
/// How long it does.
const NAP: Duration = Duration::from_millis(5);
/// How long the call of [`handoff`] blocks.
const CALL: Duration = Duration::from_millis(1);

/// So many Gs that sleep, in an idle machine: how long after its time each goes on.
pub fn timer_late(gs: u64) {
    let sleepers: Vec<_> = (0..gs).map(|_| go(|| naps(ROUNDS))).collect();
    let late = sleepers.into_iter().filter_map(|sleeper| sleeper.join().ok());
    middle_and_last("timer_late", late.flatten().collect());
}

/// One that sleeps so often while two hogs want each P.
pub fn wake_busy(rounds: u64) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static HOGS: WaitGroup = WaitGroup::new();
    STOP.store(false, Relaxed);
    for _ in 0..2 * gomaxprocs() {
        HOGS.add(1);
        let _detached = go(|| {
            while !STOP.load(Relaxed) {
                work();
            }
            HOGS.done();
        });
    }
    let late = go(move || naps(rounds)).join();
    STOP.store(true, Relaxed);
    HOGS.wait();
    middle_and_last("wake_busy", late.unwrap_or_default());
}

/// A G readies another and makes a call that blocks: how long until that one runs.
pub fn handoff(rounds: u64) {
    let (ask, asked) = chan::bounded::<Instant>(1);
    let next = go(move || asked.iter().map(|at| nanoseconds(at.elapsed())).collect::<Vec<_>>());
    for _ in 0..rounds {
        ask.send(Instant::now()).expect("the other is there");
        blocking(|| sleep(CALL));
    }
    ask.close();
    middle_and_last("handoff", next.join().unwrap_or_default());
}

/// A while of work that gives no chance to switch; it ends with `pause`, where the
/// emulator lets the next CPU have its turn.
pub fn work() {
    for n in 0..1_000 {
        black_box(n);
    }
    core::hint::spin_loop();
}

fn naps(rounds: u64) -> Vec<u64> {
    let mut late = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        let start = Instant::now();
        sleep(NAP);
        late.push(nanoseconds(start.elapsed().saturating_sub(NAP)));
    }
    late
}

/// As a number; the machine does not run for 500 years.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps with nothing else to run: every CPU goes idle, and one of them wakes.
pub fn idle(sleeps: u64) -> u64 {
    for _ in 0..sleeps {
        sleep(Duration::from_millis(1));
    }
    sleeps
}
