//! What a round of the soak does: a crew for each thing that a program can do.
//!
//! Each crew is a function that is told the number of the round, starts what Gs it
//! needs and returns when all of them have ended. It panics if anything was lost.

extern crate alloc;

use crate::check::join_all;
use alloc::sync::Arc;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::program::{self, Ended, Run};
use runnext::simulated::{Config, Device, Latency};
use runnext::sync::{Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use runnext::{fs, tasks};

/// A crew and its name.
pub type Crew = (&'static str, fn(u64));

/// All of them.
pub const ALL: &[Crew] = &[
    ("spawns", spawns),
    ("channels", channels),
    ("selects", selects),
    ("locks", locks),
    ("sleeps", sleeps),
    ("calls", calls),
    ("device", device),
    ("disk", disk),
    ("serial", serial),
    ("panics", panics),
    ("kills", kills),
    ("programs", programs),
    ("overflows", overflows),
];

/// Calls of the crew `calls` that wait at the same time.
const CALLS: usize = 16;
/// Gs that `kills` ends, a fifth of them in calls.
const VICTIMS: u64 = 40;
/// Requests of `device` that wait at the same time.
pub const REQUESTS: u64 = 100;
/// Programs that `programs` starts, each with one G in calls.
pub const PROGRAMS: u64 = 6;
/// Calls of all crews that may wait at the same time: those, one of `disk`, one of
/// `panics`.
pub const MAX_CALLS: usize = CALLS + (VICTIMS / 5 + PROGRAMS) as usize + 2;

/// Gs that start Gs, 2 to the power of 9 of them, some pinned.
fn spawns(_: u64) {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let half = move || tree(depth - 1);
        let pinned = Go::new().pin(depth as usize % num_cpus()).spawn(half);
        let halves = [go(half), pinned.expect("memory for a G")];
        halves.into_iter().map(|half| half.join().expect("no panic")).sum()
    }
    assert_eq!(tree(9), 512);
}

/// A pipeline with a channel of each kind, and a fan at its end.
fn channels(_: u64) {
    const N: u64 = 2_000;
    let (first, numbers) = chan::rendezvous();
    let (second, squares) = chan::bounded(8);
    let (third, results) = chan::unbounded();
    let source = go(move || (0..N).for_each(|n| first.send(n).expect("open")));
    let square = go(move || numbers.iter().for_each(|n: u64| second.send(n * n).expect("open")));
    let fan: Vec<_> = (0..4)
        .map(|_| {
            let (squares, third) = (squares.clone(), third.clone());
            go(move || squares.iter().for_each(|n| third.send(n).expect("open")))
        })
        .collect();
    drop((squares, third));
    assert_eq!(results.iter().sum::<u64>(), (0..N).map(|n| n * n).sum());
    join_all([source, square]);
    join_all(fan);
}

/// Two who send and two who receive, each by whichever way is open.
fn selects(_: u64) {
    const N: u64 = 1_000;
    let (a_tx, a) = chan::rendezvous::<u64>();
    let (b_tx, b) = chan::bounded::<u64>(2);
    let senders = (0..2).map(|_| {
        let (a_tx, b_tx) = (a_tx.clone(), b_tx.clone());
        go(move || {
            for n in 0..N {
                select! {
                    send(a_tx, n) -> sent => sent.expect("open"),
                    send(b_tx, n) -> sent => sent.expect("open"),
                }
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    let receivers = (0..2).map(|_| {
        let (a, b) = (a.clone(), b.clone());
        go(move || {
            (0..N).fold(0, |sum, _| {
                sum + select! {
                    recv(a) -> n => n.expect("open"),
                    recv(b) -> n => n.expect("open"),
                    after(Duration::from_secs(3600)) => 0,
                }
            })
        })
    });
    let sum: u64 = join_all(receivers).into_iter().sum();
    join_all(senders);
    assert_eq!(sum, N * (N - 1));
}

/// Locks of all kinds, held over yields.
fn locks(_: u64) {
    static COUNT: Mutex<u64> = Mutex::new(0);
    static PAIR: RwLock<(u64, u64)> = RwLock::new((0, 0));
    static BELL: Condvar = Condvar::new();
    static PLACES: Semaphore = Semaphore::new(3);
    const GS: u64 = 40;
    const TURNS: u64 = 20;
    let before = *COUNT.lock().expect("no panic");
    static GROUP: WaitGroup = WaitGroup::new();
    let work = |i: u64| {
        let _ticket = WaitGroup::ticket(&GROUP);
        for turn in 0..TURNS {
            let _permit = PLACES.permit(1);
            let mut count = COUNT.lock().expect("no panic");
            if (i + turn).is_multiple_of(8) {
                yield_now();
                let timeout = Duration::from_micros(50);
                count = BELL.wait_timeout(count, timeout).expect("no panic").0;
            }
            *count += 1;
            drop(count);
            BELL.notify_one();
            if i.is_multiple_of(4) {
                let mut pair = PAIR.write().expect("no panic");
                *pair = (pair.0 + 1, pair.1 + 1);
            } else {
                let pair = *PAIR.read().expect("no panic");
                assert_eq!(pair.0, pair.1, "somebody writes");
            }
        }
    };
    let gs: Vec<_> = (0..GS).map(|i| go(move || work(i))).collect();
    GROUP.wait();
    join_all(gs);
    assert_eq!(*COUNT.lock().expect("no panic") - before, GS * TURNS);
}

/// Short ones, and long ones that somebody ends.
fn sleeps(round: u64) {
    let naps =
        (0..200u64).map(|n| go(move || sleep(Duration::from_micros(n * 13 % 1_000 + round % 7))));
    let naps: Vec<_> = naps.collect();
    let parked: Vec<_> = (0..50)
        .map(|_| {
            let (tx, rx) = chan::bounded(1);
            let g = go(move || {
                drop(tx.send(current()));
                while !park_timeout(Duration::from_secs(3600)) {}
            });
            (rx.recv().expect("it lives"), g)
        })
        .collect();
    parked.iter().for_each(|(g, _)| g.unpark());
    join_all(parked.into_iter().map(|(_, g)| g));
    join_all(naps);
}

/// Calls that wait, so many at a time.
fn calls(_: u64) {
    static PLACES: Semaphore = Semaphore::new(CALLS);
    let call = |n: u64| {
        let _place = PLACES.permit(1);
        blocking(|| sleep(Duration::from_micros(n % 300)));
        blocking(move || n)
    };
    let sum: u64 = join_all((0..100).map(|n| go(move || call(n)))).into_iter().sum();
    assert_eq!(sum, 4_950);
}

/// A device that answers in any order, and one that does not.
fn device(round: u64) {
    let latency = Latency::Uniform { min_ns: 1_000, max_ns: 500_000 };
    let device = Device::new(Config { seed: round, latency, ..Config::default() });
    let device = device.expect("memory for a device");
    let gs = (0..REQUESTS).map(|word| {
        let device = device.clone();
        go(move || device.submit(word).expect("memory for a request").wait(None))
    });
    for (word, answer) in join_all(gs).into_iter().enumerate() {
        assert_eq!(answer, Ok(!(word as u64)));
    }
    let silent = Device::new(Config { latency: Latency::Never, ..Config::default() });
    let silent = silent.expect("memory for a device");
    let waits = silent.submit(1).expect("memory for a request");
    let waits = go(move || waits.wait(None));
    silent.close();
    assert!(waits.join().expect("no panic").is_err());
}

/// The same file both ways, if there is a disk. One that was promised must be there.
fn disk(_: u64) {
    const FILE: &str = "pattern.bin";
    if let Err(error) = runnext::disk::size() {
        assert!(!args().iter().any(|word| word == "disk"), "no disk: {error}");
        return;
    }
    let sum = |bytes: Vec<u8>| {
        bytes.iter().fold(0u64, |sum, &byte| sum * 31 % 1_000_003 + u64::from(byte))
    };
    let polled = go(move || sum(fs::read(FILE).expect("a file")));
    let blocked = go(move || sum(blocking(|| fs::read(FILE)).expect("a file")));
    assert_eq!(polled.join(), blocked.join());
}

/// Lines from several at once.
fn serial(round: u64) {
    join_all((0..4).map(|n| go(move || println!("round {round}, line {n}"))));
}

/// Some with a lock held, some in a call, some with others waiting for them.
fn panics(_: u64) {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.clone();
    let holder = go(move || {
        let _held = held.lock();
        panic!("with a lock");
    });
    assert!(holder.join().is_err());
    assert!(lock.lock().is_err(), "poisoned");
    let (tx, rx) = chan::rendezvous::<()>();
    let sender = go(move || {
        let _tx = tx;
        blocking(|| panic!("in a call"));
    });
    assert!(rx.recv().is_err(), "its channel is closed");
    assert!(sender.join().is_err());
}

/// Some that yield on their way down.
fn overflows(_: u64) {
    #[inline(never)]
    #[expect(unconditional_recursion, reason = "the stack is to overflow")]
    fn recurse(depth: u64, step: u64) -> u64 {
        let frame = black_box([depth; 40]);
        if (depth + 1).is_multiple_of(step) {
            yield_now();
        }
        recurse(depth + 1, step) + frame[0]
    }
    let gs: Vec<_> = [20, 50, 1 << 40].map(|step| go(move || recurse(0, step))).into();
    for g in gs {
        assert_eq!(g.join(), Err(JoinError::StackOverflow));
    }
}

/// Gs in the middle of anything are ended from outside.
fn kills(_: u64) {
    static LOCK: Mutex<u64> = Mutex::new(0);
    static ENDED: AtomicU64 = AtomicU64::new(0);
    struct Ends;
    impl Drop for Ends {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
        }
    }
    let before = ENDED.load(Relaxed);
    let (tx, rx) = chan::bounded::<u64>(1);
    let victim = |n: u64, tx: chan::Sender<u64>, rx: chan::Receiver<u64>| loop {
        match n % 5 {
            0 => drop(tx.send(1)),
            1 => drop(rx.recv()),
            2 => *LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1,
            3 => blocking(|| sleep(Duration::from_micros(20))),
            _ => sleep(Duration::from_micros(10)),
        }
        yield_now();
    };
    let (ids, named) = chan::unbounded();
    let victims: Vec<JoinHandle<()>> = (0..VICTIMS)
        .map(|n| {
            let (tx, rx, ids) = (tx.clone(), rx.clone(), ids.clone());
            go(move || {
                let _ends = Ends;
                ids.send(current().id()).expect("open");
                victim(n, tx, rx)
            })
        })
        .collect();
    for id in named.iter().take(VICTIMS as usize) {
        // It ends at its next wait, if not by now.
        let _ = tasks::kill(id);
    }
    for g in victims {
        assert_eq!(g.join(), Err(JoinError::Killed));
    }
    assert_eq!(ENDED.load(Relaxed) - before, VICTIMS, "destructors ran");
}

/// Programs that come to their end, and some that are stopped in the middle of it.
fn programs(round: u64) {
    // By name and not by an argument: what a program was told is kept for ever.
    let start = |n: u64| start(if n.is_multiple_of(2) { "soak_without_end" } else { "soak_part" });
    let runs: Vec<_> = (0..PROGRAMS).map(start).collect();
    sleep(Duration::from_micros(round % 5 * 300));
    for (n, run) in runs.into_iter().enumerate() {
        let is_stopped = n.is_multiple_of(2);
        if is_stopped {
            run.stop();
        }
        assert_eq!(run.wait(), if is_stopped { Ended::Stopped } else { Ended::Code(7) });
    }
}

/// Starts a program of this image.
pub fn start(name: &str) -> Run {
    program::start(name, Vec::new()).expect("it is in the image, and there is memory")
}

runnext::main!(soak_part, part);
runnext::main!(soak_without_end, without_end);

/// Ends with 7.
fn part() {
    work(20);
    exit(7);
}

/// Ends when it is stopped.
fn without_end() {
    work(u64::MAX);
}

/// What a program does: two who send to each other, one that sleeps, one in calls, two
/// of whom one holds a lock.
///
/// All of them wait most of the time, and for so short a time that it is up before
/// anybody can wake them: they must notice by themselves that they are to end.
fn work(turns: u64) {
    let nap = || sleep(Duration::from_micros(50));
    let (ping, pings) = chan::rendezvous::<u64>();
    let lock = Arc::new(Mutex::new(()));
    let other = lock.clone();
    let hold = move |lock: &Mutex<()>| {
        let _held = lock.lock();
        (0..turns).for_each(|_| nap());
    };
    join_all([
        go(move || (0..turns).for_each(|n| ping.send(n).expect("open"))),
        go(move || pings.iter().for_each(|_| nap())),
        go(move || (0..turns).for_each(|_| nap())),
        go(move || (0..turns).for_each(|_| blocking(nap))),
        go(move || hold(&lock)),
        go(move || hold(&other)),
    ]);
}

/// Who changes gomaxprocs until dismissed.
pub struct Meddler {
    stop: &'static AtomicBool,
    g: JoinHandle<()>,
}

/// Begins to change gomaxprocs.
pub fn meddler() -> Meddler {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Relaxed);
    let g = go(|| {
        for n in (1..=num_cpus()).rev().cycle() {
            if STOP.load(Relaxed) {
                break;
            }
            set_gomaxprocs(n);
            sleep(Duration::from_millis(2));
        }
        set_gomaxprocs(num_cpus());
    });
    Meddler { stop: &STOP, g }
}

impl Meddler {
    /// Ends that.
    pub fn dismiss(self) {
        self.stop.store(true, Relaxed);
        self.g.join().expect("no panic");
    }
}
