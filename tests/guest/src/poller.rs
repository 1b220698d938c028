//! Checks the poller with simulated devices: edges, deadlines, closes.
//!
//! Host time says nothing here, so every check waits for counts, and a lost edge
//! is a hang.

use crate::check::{self, checks, counters, go_on, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::internals::poller::{PollDesc, PollError};
use runnext::prelude::*;
use runnext::simulated::{Config, Device, IoError, Latency, Request};

runnext::main!(poller, main);

fn main() {
    check::run(checks![
        ten_thousand_outstanding_requests_are_answered_once_and_out_of_order,
        ten_thousand_gs_wait_for_a_device_each,
        errors_come_as_the_seed_says,
        a_device_that_never_answers_ends_at_the_deadline,
        a_close_ends_every_wait,
        requests_dropped_at_any_time_harm_nobody,
        a_g_that_waits_blocks_neither_cpu_nor_p,
        a_blocking_call_waits_for_a_device_as_well,
        an_answer_reaches_its_g_although_every_cpu_has_a_hog,
        an_edge_from_a_g_reaches_another_on_a_busy_cpu,
        an_interrupt_on_one_cpu_readies_a_g_that_is_pinned_to_another,
        edges_and_deadlines_lose_nothing,
    ]);
}

const REQUESTS: u64 = 10_000;

fn device(config: Config) -> Device {
    Device::new(config).expect("memory for a device")
}

fn submit(device: &Device, word: u64) -> Request {
    device.submit(word).expect("memory for a request")
}

fn silent() -> Device {
    device(Config { latency: Latency::Never, ..Config::default() })
}

/// All of them by one G, so that they are outstanding at once.
fn ten_thousand_outstanding_requests_are_answered_once_and_out_of_order() {
    let latency = Latency::Uniform { min_ns: 20_000_000, max_ns: 60_000_000 };
    let device = device(Config { seed: 1, latency, ..Config::default() });
    let requests: Vec<_> = (0..REQUESTS).map(|word| submit(&device, word)).collect();
    for (word, request) in requests.into_iter().enumerate() {
        assert_eq!(request.wait(None), Ok(!(word as u64)));
    }
    let stats = device.stats();
    assert_eq!((stats.submitted, stats.answered, stats.failed), (REQUESTS, REQUESTS, 0));
    assert!(stats.overtaken > REQUESTS / 2, "{stats:?}");
}

/// From every CPU, so that every CPU's timer is at work.
fn ten_thousand_gs_wait_for_a_device_each() {
    let latency = Latency::Uniform { min_ns: 0, max_ns: 10_000_000 };
    let device = device(Config { seed: 2, latency, ..Config::default() });
    let gs: Vec<_> = (0..REQUESTS)
        .map(|word| {
            let device = device.clone();
            let ask = move || submit(&device, word).wait(None);
            match word % 4 {
                0 => go_on(word as usize % num_cpus(), ask),
                _ => go(ask),
            }
        })
        .collect();
    for (word, answer) in join_all(gs).into_iter().enumerate() {
        assert_eq!(answer, Ok(!(word as u64)));
    }
    assert_eq!(device.stats().answered, REQUESTS);
}

fn errors_come_as_the_seed_says() {
    for seed in [3, 4] {
        let latency = Latency::Uniform { min_ns: 0, max_ns: 1_000_000 };
        let config = Config { seed, latency, errors_per_million: 200_000 };
        let expected: Vec<bool> = (0..1_000).map(|n| config.fate(n).fails).collect();
        let device = device(config);
        let requests: Vec<_> = (0..1_000).map(|word| submit(&device, word)).collect();
        let failed = requests.into_iter().map(|request| request.wait(None) == Err(IoError::Failed));
        assert_eq!(failed.collect::<Vec<_>>(), expected);
        let count = expected.iter().filter(|fails| **fails).count() as u64;
        assert!(count > 0 && device.stats().failed == count, "{:?}", device.stats());
    }
}

fn a_device_that_never_answers_ends_at_the_deadline() {
    let device = silent();
    join_all((0..100).map(|i| {
        let device = device.clone();
        go(move || {
            let deadline = Instant::now() + Duration::from_micros(i * 50);
            let answer = submit(&device, i).wait(Some(deadline.as_nanos()));
            assert_eq!(answer, Err(IoError::TimedOut));
            assert!(Instant::now() >= deadline, "over early");
        })
    }));
    assert_eq!(device.stats().answered, 0);
}

fn a_close_ends_every_wait() {
    static WAITING: AtomicU64 = AtomicU64::new(0);
    let device = silent();
    let waiters: Vec<_> = (0..1_000)
        .map(|word| {
            let request = submit(&device, word);
            go(move || {
                WAITING.fetch_add(1, Relaxed);
                request.wait(None)
            })
        })
        .collect();
    wait_until(|| WAITING.load(Relaxed) == 1_000);
    device.close();
    assert!(join_all(waiters).into_iter().all(|answer| answer == Err(IoError::Closed)));
    assert_eq!(device.submit(1).err(), Some(IoError::Closed));
}

fn requests_dropped_at_any_time_harm_nobody() {
    let latency = Latency::Uniform { min_ns: 0, max_ns: 200_000 };
    let device = device(Config { seed: 5, latency, ..Config::default() });
    join_all((0..4 * num_cpus() as u64).map(|g| {
        let device = device.clone();
        go(move || {
            for i in 0..300 {
                let word = g << 32 | i;
                let request = submit(&device, word);
                match i % 3 {
                    0 => drop(request),
                    1 => {
                        let at = Instant::now() + Duration::from_micros(i);
                        match request.wait(Some(at.as_nanos())) {
                            Ok(answer) => assert_eq!(answer, !word),
                            Err(error) => assert_eq!(error, IoError::TimedOut),
                        }
                    }
                    _ => assert_eq!(request.wait(None), Ok(!word)),
                }
            }
        })
    }));
}

/// On one P, others run while a G waits.
fn a_g_that_waits_blocks_neither_cpu_nor_p() {
    let before = set_gomaxprocs(1);
    let device = silent();
    let request = submit(&device, 1);
    let waiter = go(move || request.wait(None));
    let others = join_all((0..100u64).map(|i| go(move || i)));
    device.close();
    let answer = waiter.join();
    set_gomaxprocs(before);
    assert_eq!(others, (0..100).collect::<Vec<_>>());
    assert_eq!(answer, Ok(Err(IoError::Closed)));
}

/// As a call that takes its M along, in the same words.
fn a_blocking_call_waits_for_a_device_as_well() {
    let device = device(Config { seed: 8, ..Config::default() });
    join_all((0..50u64).map(|word| {
        let device = device.clone();
        go(move || {
            let answer = blocking(|| submit(&device, word).wait(None));
            assert_eq!(answer, Ok(!word));
        })
    }));
    let silent = silent();
    let soon = Instant::now() + Duration::from_micros(200);
    let answer = blocking(|| submit(&silent, 1).wait(Some(soon.as_nanos())));
    assert_eq!(answer, Err(IoError::TimedOut));
}

/// Runs `f` while a hog that calls nothing sits on every CPU.
fn with_hogs(f: impl FnOnce()) {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Relaxed);
    let progress = counters::<AtomicU64>(num_cpus());
    let hog = |count: &AtomicU64| {
        while !STOP.load(Relaxed) {
            count.store(count.load(Relaxed) + 1, Relaxed);
            check::spin();
        }
    };
    let hogs: Vec<_> = progress.iter().map(|count| go(move || hog(count))).collect();
    wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    f();
    STOP.store(true, Relaxed);
    join_all(hogs);
}

fn an_answer_reaches_its_g_although_every_cpu_has_a_hog() {
    with_hogs(|| {
        let device = device(Config { seed: 6, ..Config::default() });
        join_all((0..num_cpus() as u64).map(|word| {
            let device = device.clone();
            go(move || (0..5).for_each(|_| assert_eq!(submit(&device, word).wait(None), Ok(!word))))
        }));
    });
}

/// The edge does not come from an interrupt, and the CPU of the G that makes it
/// is not given up: the G that waits must run elsewhere, or by preemption. Each
/// edge comes when the G that makes it has been alone for three slices, so that
/// no timer is left that would bring the other one in by chance.
fn an_edge_from_a_g_reaches_another_on_a_busy_cpu() {
    static DESC: PollDesc = PollDesc::new();
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    const ALL: u64 = 5;
    let reader = go(|| {
        while ROUNDS.load(Relaxed) < ALL {
            DESC.wait(None).expect("an edge");
            ROUNDS.fetch_add(1, Relaxed);
        }
    });
    while ROUNDS.load(Relaxed) < ALL {
        let before = ROUNDS.load(Relaxed);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            check::spin();
        }
        DESC.ready();
        while ROUNDS.load(Relaxed) == before {
            check::spin(); // no call that would let the other run
        }
    }
    join_all([reader]);
}

/// The device answers on the CPU that has asked it.
fn an_interrupt_on_one_cpu_readies_a_g_that_is_pinned_to_another() {
    let last = num_cpus() - 1;
    let latency = Latency::Uniform { min_ns: 1_000_000, max_ns: 2_000_000 };
    let device = device(Config { seed: 7, latency, ..Config::default() });
    let asked = go_on(0, move || (0..20).map(|word| submit(&device, word)).collect::<Vec<_>>());
    let requests = asked.join().expect("no panic");
    let waiters = requests
        .into_iter()
        .map(|request| go_on(last, move || request.wait(None).map(|_| current_cpu())));
    assert_eq!(join_all(waiters), vec![Ok(last); 20]);
}

fn edges_and_deadlines_lose_nothing() {
    static TO: PollDesc = PollDesc::new();
    static BACK: PollDesc = PollDesc::new();
    const ROUNDS: usize = 2_000;
    let other = go(|| {
        for _ in 0..ROUNDS {
            TO.ready();
            BACK.wait(None).expect("an answer");
        }
    });
    for _ in 0..ROUNDS {
        let soon = || Some(Instant::now().as_nanos() + 2_000);
        while let Err(error) = TO.wait(soon()) {
            assert_eq!(error, PollError::TimedOut);
        }
        BACK.ready();
    }
    join_all([other]);
}
