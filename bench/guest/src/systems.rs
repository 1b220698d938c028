//! Workloads for the comparison of scheduling systems (`make systems`): what each drawback costs.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect;
use runnext::prelude::*;
use runnext::sync::{Semaphore, WaitGroup};
use runnext::system;

use crate::latency::nanoseconds;
use crate::report::figure;

/// So many Gs that wait: the memory of each, in bytes.
pub fn waiting_g(gs: u64) {
    static GATE: Semaphore = Semaphore::new(0);
    static ALL: WaitGroup = WaitGroup::new();
    let wait = || {
        ALL.done();
        GATE.acquire(1);
    };
    let before = inspect::memory().frames.free;
    ALL.add(gs as usize);
    let waiting: Vec<_> = (0..gs).map(|_| go(wait)).collect();
    ALL.wait();
    let frames = before.saturating_sub(inspect::memory().frames.free);
    figure("task_bytes", (frames * inspect::PAGE_SIZE) as u64 / gs);
    GATE.release(gs as usize);
    waiting.into_iter().for_each(|g| drop(g.join()));
}

/// Two Gs for each P that work a little and yield: how often the lock of a queue that all share is
/// taken for a thousand yields, and how many spin hints CPUs wait for it.
pub fn contended(yields: u64) {
    static ALL: WaitGroup = WaitGroup::new();
    let gs = 2 * gomaxprocs() as u64;
    let counters = || {
        let stats = stats();
        (stats.cpus.iter().map(|cpu| cpu.locked).sum::<u64>(), stats.lock_spins)
    };
    let before = counters();
    for _ in 0..gs {
        ALL.add(1);
        let _detached = go(move || {
            for _ in 0..yields / gs {
                (0..50).for_each(|n| _ = core::hint::black_box(n));
                yield_now();
            }
            ALL.done();
        });
    }
    ALL.wait();
    let now = counters();
    figure("locks", (now.0 - before.0) * 1_000 / yields);
    figure("lock_spins", (now.1 - before.1) * 1_000 / yields);
}

/// From the creation of a G until another P has run it, while so many calls are blocked; the middle
/// of some. Not under a system in which a call that blocks stops all.
pub fn elsewhere(calls: u64) {
    static GATE: Semaphore = Semaphore::new(0);
    static RAN: AtomicBool = AtomicBool::new(false);
    static BLOCKED: AtomicU64 = AtomicU64::new(0);
    let promises = system::running().promises;
    if !promises.parallel || !promises.calls_let_others_run {
        return;
    }
    let away = stats().ms.blocked;
    let call = || {
        blocking(|| {
            BLOCKED.fetch_add(1, Relaxed);
            GATE.acquire(1);
        })
    };
    let callers: Vec<_> = (0..calls).map(|_| go(call)).collect();
    while stats().ms.blocked < away + calls {
        sleep(Duration::from_micros(100));
    }
    let mut took: Vec<u64> = (0..21)
        .map(|_| {
            RAN.store(false, Relaxed);
            sleep(Duration::from_micros(200)); // the others have gone idle
            let start = Instant::now();
            let _detached = go(|| RAN.store(true, Relaxed));
            while !RAN.load(Relaxed) {
                core::hint::spin_loop();
            }
            nanoseconds(start.elapsed())
        })
        .collect();
    took.sort_unstable();
    figure(&format!("elsewhere_{calls}"), took[took.len() / 2]);
    GATE.release(calls as usize);
    callers.into_iter().for_each(|g| drop(g.join()));
}

/// From the start of a G until it waits in a call, once while each such G needs an M that is made
/// for it, and once while Ms of calls that have ended are spare. Not under a system in which a call
/// that blocks stops all.
pub fn calls(calls: u64) {
    static GATE: Semaphore = Semaphore::new(0);
    static ALL: WaitGroup = WaitGroup::new();
    if !system::running().promises.calls_let_others_run {
        return;
    }
    let call = || {
        blocking(|| {
            ALL.done();
            GATE.acquire(1);
        })
    };
    for row in ["call_new_m", "call_spare_m"] {
        ALL.add(calls as usize);
        let start = Instant::now();
        let callers: Vec<_> = (0..calls).map(|_| go(call)).collect();
        ALL.wait();
        figure(row, nanoseconds(start.elapsed()) / calls);
        GATE.release(calls as usize);
        callers.into_iter().for_each(|g| drop(g.join()));
    }
}

/// Four Gs for each CPU work a little and yield: how many turns the machine does while each of its
/// Ps executes a million instructions. The CPUs take turns, and the clock advances by what all of
/// them execute together.
pub fn turns(turns: u64) {
    static ALL: WaitGroup = WaitGroup::new();
    let gs = 4 * num_cpus() as u64;
    ALL.add(gs as usize);
    let start = Instant::now();
    for _ in 0..gs {
        let _detached = go(move || {
            for _ in 0..turns / gs {
                (0..50).for_each(|n| _ = core::hint::black_box(n));
                yield_now();
            }
            ALL.done();
        });
    }
    ALL.wait();
    let by_each = (nanoseconds(start.elapsed()) / gomaxprocs() as u64).max(1);
    figure(&format!("turns_{}", num_cpus()), turns * 1_000_000 / by_each);
}
