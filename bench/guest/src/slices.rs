//! Workloads that ask what the end of a slice costs, and how soon another G runs.
//!
//! A G that never lets go stores the time again and again ([`Watch::stamp`]). The G that runs next
//! sees how long ago that was: all that happened in between is the kernel's, from the first
//! instruction of the timer's vector to the first of the next G. Two readings of one G are a *step*
//! apart, which is taken off.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;

use crate::latency::nanoseconds;
use crate::report::{figure, middle_and_last};

/// How long the sleeper of [`displace`] sleeps.
const NAP: Duration = Duration::from_micros(200);
/// How many hogs there are. Two would hand over by way of the global queue only.
const HOGS: u64 = 8;
/// How many gaps a hog has room for.
const GAPS: usize = 4_096;

/// Bits of [`Watch::last`] for the number of a G.
const NUMBER_BITS: u32 = 8;

/// The time that the running G has stored last.
struct Watch {
    /// That time, and the number of the G below it: one word, as a slice may end between two.
    last: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    fn new() -> &'static Self {
        let (last, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        Box::leak(Box::new(Watch { last, stop }))
    }

    /// Stores the time; says how long ago it was stored before, if by another G.
    #[inline(always)]
    fn stamp(&self, me: u64) -> Result<u64, u64> {
        let now = Instant::now().as_nanos();
        let word = self.last.swap(now << NUMBER_BITS | me, Relaxed);
        let (last, by) = (word >> NUMBER_BITS, word & ((1 << NUMBER_BITS) - 1));
        if last > now {
            // Another G ran between the two lines: as if this one had not begun yet.
            self.last.store(word, Relaxed);
            return Err(u64::MAX);
        }
        if by != me { Ok(now - last) } else { Err(now - last) }
    }

    /// Stores the time until it is told to stop. Gives how long no hog ran, where another had run
    /// before, and what a step takes.
    fn hog(&self, me: u64) -> (Vec<u64>, u64) {
        let (mut gaps, mut step) = (Vec::with_capacity(GAPS), u64::MAX);
        while !self.stop.load(Relaxed) {
            match self.stamp(me) {
                Ok(gap) => gaps.push(gap),
                Err(own) => step = step.min(own),
            }
        }
        (gaps, step)
    }
}

/// Hogs that the timer lets run in turn: the mean of what lies between them.
pub fn vector_to_g(us: u64) {
    let (gaps, _) = hogs(us);
    figure("vector_to_g", mean(&gaps));
}

/// The same: what part of the CPU the hogs have, in thousandths, by the length of a slice.
pub fn share_5us(us: u64) {
    share("share_5us", us);
}

pub fn share_50us(us: u64) {
    share("share_50us", us);
}

pub fn share_500us(us: u64) {
    share("share_500us", us);
}

fn share(row: &str, us: u64) {
    let (gaps, took) = hogs(us);
    figure(row, 1_000 - gaps.iter().sum::<u64>() * 1_000 / took);
}

/// Lets [`HOGS`] hogs run for so many microseconds. Gives the gaps between them, and how long it took.
fn hogs(us: u64) -> (Vec<u64>, u64) {
    let (watch, start) = (Watch::new(), Instant::now());
    let hogs: Vec<_> = (1..=HOGS).map(|me| go(move || watch.hog(me))).collect();
    sleep(Duration::from_micros(us));
    watch.stop.store(true, Relaxed);
    let took = nanoseconds(start.elapsed());
    let hogs: Vec<_> = hogs.into_iter().filter_map(|hog| hog.join().ok()).collect();
    let step = hogs.iter().map(|&(_, step)| step).min().unwrap_or(0);
    let gaps = hogs.iter().flat_map(|(gaps, _)| gaps.iter().skip(1)); // the first is its start
    (gaps.map(|gap| gap.saturating_sub(step)).collect(), took)
}

/// A hog, and a G whose time comes meanwhile: from the hog's last instruction until `sleep` returns.
pub fn displace(rounds: u64) {
    let watch = Watch::new();
    let hog = go(move || watch.hog(1));
    // Naps of different lengths, so that the hog is interrupted at every place of its loop.
    let late = (0..rounds).map(|n| {
        sleep(NAP + Duration::from_nanos(17 * n));
        watch.stamp(0).unwrap_or(0)
    });
    let late: Vec<u64> = late.collect();
    watch.stop.store(true, Relaxed);
    let step = hog.join().map_or(0, |(_, step)| step);
    figure("displace", mean(&late).saturating_sub(step));
}

/// A hog readies an urgent G, beside another hog: from its call until the urgent G runs.
pub fn urgent_to_g(rounds: u64) {
    let watch = Watch::new();
    let hog = go(move || watch.hog(1));
    let (tell, told) = chan::bounded(1);
    let urgent = Go::new().priority(Priority::Urgent).spawn(move || {
        if tell.send(current()).is_err() {
            return Vec::new();
        }
        let sample = |_| {
            park();
            watch.stamp(2).unwrap_or(0)
        };
        (0..rounds).map(sample).collect::<Vec<_>>()
    });
    let (Ok(urgent), Ok(alarm)) = (urgent, told.recv()) else { return };
    while !urgent.is_finished() {
        // This G is a hog as well, between its calls: a slice is long enough for some of them.
        let until = Instant::now() + NAP;
        while Instant::now() < until {
            core::hint::black_box(());
        }
        let _ = watch.stamp(0);
        alarm.unpark();
    }
    watch.stop.store(true, Relaxed);
    let step = hog.join().map_or(0, |(_, step)| step);
    let late = urgent.join().unwrap_or_default();
    figure("urgent_to_g", mean(&late).saturating_sub(step));
}

/// A call that waits, and a G that is ready: from `park` in the call until that one runs. The middle
/// of the samples: the mean would depend on how many ends of slices fall between the two.
pub fn call_to_g(rounds: u64) {
    let (watch, next) = (Watch::new(), current());
    let _ = watch.stamp(2);
    let step = watch.stamp(2).err().unwrap_or(0);
    let (tell, told) = chan::bounded(1);
    let waits = go(move || {
        tell.send(current()).expect("it is awaited");
        while !watch.stop.load(Relaxed) {
            blocking(|| {
                next.unpark();
                let _ = watch.stamp(1);
                park();
            });
        }
    });
    let waiter = told.recv().expect("it is there");
    let samples = (0..rounds).map(|_| {
        park();
        let gap = watch.stamp(2);
        waiter.unpark();
        gap.unwrap_or(0)
    });
    let mut samples: Vec<u64> = samples.collect();
    watch.stop.store(true, Relaxed);
    waiter.unpark();
    let _ = waits.join();
    samples.sort_unstable();
    let middle = samples.get(samples.len() / 2).copied().unwrap_or(0);
    figure("call_to_g", middle.saturating_sub(step));
}

/// Gs that sleep and then compute for 10 µs, behind two hogs on each P: how long after its time each
/// is done.
pub fn short1(rounds: u64) {
    short("short1", rounds);
}

pub fn short4(rounds: u64) {
    short("short4", rounds);
}

fn short(row: &str, rounds: u64) {
    const GS: u64 = 32;
    let stop: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let hog = move || {
        while !stop.load(Relaxed) {
            crate::latency::work();
        }
    };
    let hogs: Vec<_> = (0..2 * gomaxprocs()).map(|_| go(hog)).collect();
    let request = |n: u64| {
        let nap = Duration::from_micros(5_000 + 130 * n);
        move || {
            let mut took = Vec::with_capacity(rounds as usize);
            for _ in 0..rounds {
                let due = Instant::now() + nap;
                sleep(nap);
                (0..4).for_each(|_| crate::latency::work());
                took.push(nanoseconds(due.elapsed()));
            }
            took
        }
    };
    let requests: Vec<_> = (0..GS).map(|n| go(request(n))).collect();
    let took = requests.into_iter().filter_map(|request| request.join().ok()).flatten().collect();
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|hog| drop(hog.join()));
    middle_and_last(row, took);
}

fn mean(samples: &[u64]) -> u64 {
    samples.iter().sum::<u64>() / (samples.len() as u64).max(1)
}
