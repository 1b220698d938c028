//! The variant of lab 6.

use runnext::prelude::*;
use runnext::sync::Semaphore;

runnext::main!(teacher, main);

fn main() {
    crate::lab::run(&[("the_displaced_m_takes_over", the_displaced_m_takes_over)]);
}

fn m_here() -> u32 {
    stats().cpus[0].m
}

/// On one CPU. The first call leaves with its M; another one, which does not wait, sees to it that
/// there is a spare M again; then the first comes back and displaces the M that is here.
fn the_displaced_m_takes_over() {
    static GATE: Semaphore = Semaphore::new(0);
    let first = go(|| blocking(|| GATE.acquire(1)));
    while stats().ms.blocked != 1 {
        yield_now();
    }
    blocking(|| ());
    let displaced = m_here();
    GATE.release(1);
    first.join().expect("no panic");
    assert_ne!(m_here(), displaced, "the M of the call is back");
    let second = go(|| blocking(|| GATE.acquire(1)));
    while stats().ms.blocked != 1 {
        yield_now();
    }
    assert_eq!(m_here(), displaced, "the M that was displaced last");
    GATE.release(1);
    second.join().expect("no panic");
}
