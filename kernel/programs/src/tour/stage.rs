//! Helpers of the scenes: a place for evidence, and a few tools.

use super::{GREEN, RED, print_in};
use alloc::sync::Arc;
use core::fmt::Display;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;

/// Where a scene shows its evidence and its checks.
pub struct Stage {
    checks: usize,
    failed: usize,
}

impl Stage {
    /// An empty stage.
    pub fn new() -> Self {
        Stage { checks: 0, failed: 0 }
    }

    /// Evidence: numbers of this run.
    pub fn show(&self, evidence: impl Display) {
        println!("      {evidence}");
    }

    /// A check: the condition's result and its text.
    pub fn check(&mut self, holds: bool, what: impl Display) {
        self.checks += 1;
        self.failed += usize::from(!holds);
        let (color, mark) = if holds { (GREEN, '\u{2713}') } else { (RED, '\u{2717}') };
        print_in(color, format_args!("    {mark} {what}"));
    }

    /// Whether there were checks and all hold.
    pub fn passed(&self) -> bool {
        self.checks > 0 && self.failed == 0
    }
}

/// Waits for a condition that must come true. It ends in any case: a condition that is not
/// true within half a minute is a failure, not a hang.
pub fn comes(condition: impl Fn() -> bool) -> bool {
    const LOOKS: u32 = 30_000;
    (0..LOOKS).any(|_| {
        let has_come = condition();
        if !has_come {
            sleep(Duration::from_millis(1));
        }
        has_come
    })
}

/// Joins all Gs; returns their results, without the Gs that failed.
pub fn join_all<T>(gs: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    gs.into_iter().filter_map(|g| g.join().ok()).collect()
}

/// A G that stays on `cpu`.
pub fn go_on<T: Send + 'static>(
    cpu: usize,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Go::new().pin(cpu).spawn(f).expect("memory for a G")
}

/// Counters that Gs share.
pub fn counters(n: usize) -> Arc<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

/// Their values.
pub fn counts(counters: &[AtomicU64]) -> Vec<u64> {
    counters.iter().map(|counter| counter.load(Relaxed)).collect()
}

/// The sum of a counter over all CPUs.
pub fn total(of: fn(&runnext::stats::PInfo) -> u64) -> u64 {
    stats().cpus.iter().map(of).sum()
}

/// Gs that compute and never call the kernel, until this is dropped.
pub struct Hogs {
    stop: Arc<AtomicBool>,
    hogs: Vec<JoinHandle<()>>,
    progress: Arc<[AtomicU64]>,
}

impl Hogs {
    /// Starts so many hogs.
    pub fn start(n: usize) -> Self {
        let (stop, progress) = (Arc::new(AtomicBool::new(false)), counters(n));
        let hog = |i: usize| {
            let (stop, progress) = (stop.clone(), progress.clone());
            go(move || {
                let mut word = i as u64;
                while !stop.load(Relaxed) {
                    // No `pause`: where instructions are counted, it ends a turn.
                    word = (0..1_000).fold(word, |word, n| word.rotate_left(5) ^ n);
                    progress[i].fetch_add(1 | core::hint::black_box(word) & 2, Relaxed);
                }
            })
        };
        let hogs = (0..n).map(hog).collect();
        Hogs { stop, hogs, progress }
    }

    /// How many have made progress.
    pub fn running(&self) -> usize {
        counts(&self.progress).into_iter().filter(|count| *count > 0).count()
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        join_all(self.hogs.drain(..));
    }
}
