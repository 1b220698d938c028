//! Makes every pool larger than a round of the soak can need.
//!
//! How many Gs live at the same time is chance, and so is what the kernel makes for
//! them. Here as many live at the same time as there can be, once; so afterwards a
//! pool that grows does so for one reason only: something was not put back.

use super::crews::{MAX_CALLS, PROGRAMS, REQUESTS, start};
use crate::check::{join_all, wait_until};
use core::hint::black_box;
use runnext::prelude::*;
use runnext::program::Ended;
use runnext::simulated::{Config, Device, Latency};
use runnext::sync::Semaphore;

/// Gs that a round starts at most, if all of them lived at the same time.
pub const GS: usize = 2048;
/// Dead Gs and stacks that a CPU keeps for itself, and nobody else finds: two piles
/// of `sched` and the cache of the pool.
const KEPT: usize = 2 * 32 + 16;
/// Stacks that were full, and wait to be closed before they are used again.
const OPEN: usize = 64;
/// More than all buffers of a round: two files of 1 MiB, and what is read ahead.
const HEAP_BYTES: usize = 16 << 20;

/// All of them.
pub fn all() {
    programs(); // the first brings the kernel's watcher of deadlocks along, which stays
    let before = stats().alive();
    static GATE: Semaphore = Semaphore::new(0);
    drop(black_box(Vec::<u8>::with_capacity(HEAP_BYTES)));
    // On each CPU one M that runs and a spare one, and one for each call.
    let calls = MAX_CALLS + 2 * num_cpus();
    let gs = GS + KEPT * num_cpus() + OPEN;
    let wait = |n: usize| move || if n < calls { blocking(pass) } else { pass() };
    fn pass() {
        GATE.acquire(1);
    }
    let all: Vec<_> = (0..gs).map(|n| go(wait(n))).collect();
    wait_until(|| stats().ms.blocked == calls as u64);
    GATE.release(gs);
    join_all(all);
    requests();
    // One that was joined may not have been laid to rest yet. There are fewer than
    // before if one of the kernel's own was still on its way when this began.
    wait_until(|| stats().alive() <= before && stats().ms.blocked == 0);
}

/// As many under way as there can be, and one of the other device.
fn requests() {
    let silent = Device::new(Config { latency: Latency::Never, ..Config::default() });
    let silent = silent.expect("memory for a device");
    let submit = |word| silent.submit(word).expect("memory for a request");
    drop((0..=REQUESTS).map(submit).collect::<Vec<_>>());
}

/// As many as there can be, twice: one that was waited for may not be over yet when
/// the next begins.
fn programs() {
    let runs: Vec<_> = (0..2 * PROGRAMS).map(|_| start("soak_without_end")).collect();
    for run in runs {
        run.stop();
        assert_eq!(run.wait(), Ended::Stopped);
    }
}
