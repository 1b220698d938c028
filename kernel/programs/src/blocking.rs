//! Blocking calls: a G that waits in a call keeps no other G waiting.
//!
//! Three scenes. In the first a hundred Gs wait in calls, each on the stack of an M of its
//! own, while other Gs compute on every CPU. The second is the trap of schedulers with a
//! fixed number of threads: every thread waits for a lock in a call, and the G that holds the
//! lock has no thread to run on; here a spare M takes the P, and the scene ends. The third
//! measures how long a P is without work when its G's call begins to wait. Boot it with
//! `handoff=sysmon` to compare Go's monitor, which must guess that a call waits; and with
//! `handoff=never -- trap` to fall into the trap, where the deadlock report names the G that has no
//! thread.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::{Mutex, Semaphore};

runnext::main!(blocking, main);

fn main() {
    if args().first().is_some_and(|word| word == "trap") {
        return the_trap();
    }
    a_hundred_calls();
    the_trap();
    the_gap();
}

fn a_hundred_calls() {
    let gate = Arc::new(Semaphore::new(0));
    let call = |_| {
        let gate = gate.clone();
        go(move || blocking(|| gate.acquire(1)))
    };
    let calls: Vec<_> = (0..100).map(call).collect();
    while stats().ms.blocked < 100 {
        yield_now();
    }
    let workers = 4 * num_cpus();
    let work = || (0..200_000u64).fold(0, |sum: u64, n| sum.wrapping_add(n * n));
    let computed: Vec<_> = (0..workers).map(|_| go(work)).collect();
    let ended = computed.into_iter().filter_map(|g| g.join().ok()).count();
    let ms = stats().ms;
    println!(
        "{} calls wait on {} Ms; {ended} of {workers} others ended meanwhile",
        ms.blocked, ms.created
    );
    gate.release(100);
    let ended = calls.into_iter().filter_map(|g| g.join().ok()).count();
    println!("{ended} calls ended, {} Ms are spare again", stats().ms.spare);
}

fn the_trap() {
    let lock = Arc::new(Mutex::new(0));
    let n = 2 * num_cpus() as u64;
    let held = lock.lock().expect("nobody panics");
    let call = |_| {
        let lock = lock.clone();
        go(move || blocking(|| *lock.lock().expect("nobody panics") += 1))
    };
    let calls: Vec<_> = (0..n).map(call).collect();
    while stats().ms.blocked < n {
        yield_now();
    }
    println!("{n} calls on {} CPUs wait for a lock, and its holder runs", num_cpus());
    drop(held);
    calls.into_iter().for_each(|g| g.join().expect("nobody panics"));
    println!("no deadlock: each had it once ({})", *lock.lock().expect("nobody panics"));
}

fn the_gap() {
    static WAITS_FROM: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    let since_start = move || start.elapsed().as_nanos() as u64;
    let on_cpu_0 = || Go::new().pin(0);
    let measure = move || {
        let other = on_cpu_0().spawn(move || since_start() - WAITS_FROM.load(Relaxed));
        blocking(|| {
            WAITS_FROM.store(since_start(), Relaxed);
            sleep(Duration::from_millis(30));
        });
        other.map(JoinHandle::join)
    };
    let mut gaps: Vec<u64> =
        (0..20).filter_map(|_| on_cpu_0().spawn(measure).ok()?.join().ok()?.ok()?.ok()).collect();
    gaps.sort_unstable();
    let [best, .., worst] = gaps[..] else { return println!("no memory to measure with") };
    println!("from a call that waits to the next G on its P: {best} to {worst} ns");
}
