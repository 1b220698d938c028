//! Devices on the host, where a thread ticks.

use super::*;
use crate::prelude::*;
use std::collections::HashSet;

fn device(latency: Latency, errors_per_million: u32) -> Device {
    Device::new(Config { seed: 3, latency, errors_per_million }).expect("memory")
}

const QUICK: Latency = Latency::Uniform { min_ns: 0, max_ns: 2_000_000 };

#[test]
fn every_request_gets_its_own_answer_once() {
    let device = device(QUICK, 100_000);
    let n: u64 = if cfg!(miri) { 15 } else { 5_000 };
    let requests: Vec<_> = (0..n).map(|word| device.submit(word).expect("memory")).collect();
    let mut failed = 0;
    for (word, request) in requests.into_iter().enumerate() {
        match request.wait(None) {
            Ok(answer) => assert_eq!(answer, !(word as u64)),
            Err(error) => {
                assert_eq!(error, IoError::Failed);
                failed += 1;
            }
        }
    }
    let config = Config { seed: 3, latency: QUICK, errors_per_million: 100_000 };
    assert_eq!(failed, (0..n).filter(|&n| config.fate(n).fails).count() as u64);
    let stats = device.stats();
    assert_eq!((stats.submitted, stats.answered, stats.failed), (n, n, failed));
    // Under Miri the clock advances while the requests are made.
    assert!(cfg!(miri) || stats.overtaken > 0, "{stats:?}");
}

#[test]
fn a_deadline_cancels_and_the_record_serves_again() {
    let silent = device(Latency::Never, 0);
    for _ in 0..3 {
        let request = silent.submit(1).expect("memory");
        assert_eq!(request.wait(Some(crate::run::door::now_ns())), Err(IoError::TimedOut));
    }
    let quick = device(QUICK, 0);
    assert_eq!(quick.submit(5).expect("memory").wait(None), Ok(!5));
    assert_eq!(silent.stats().answered, 0);
}

#[test]
fn close_ends_the_requests_of_that_device_only() {
    let (a, b) = (device(Latency::Never, 0), device(QUICK, 0));
    let (first, second) = (a.submit(1).expect("memory"), b.submit(2).expect("memory"));
    let waiter = go(move || first.wait(None));
    a.close();
    assert_eq!(waiter.join(), Ok(Err(IoError::Closed)));
    assert_eq!(second.wait(None), Ok(!2));
    assert!(matches!(a.submit(3), Err(IoError::Closed)));
}

#[test]
fn a_request_may_be_dropped_at_any_time() {
    let device = device(Latency::Uniform { min_ns: 0, max_ns: 100_000 }, 0);
    for word in 0..if cfg!(miri) { 9 } else { 2_000 } {
        let request = device.submit(word).expect("memory");
        if word % 3 == 0 {
            yield_now();
        }
        drop(request);
    }
    assert_eq!(device.submit(1).expect("memory").wait(None), Ok(!1));
    // A record with two owners would have given a wrong answer.
    let last = device.submit(77).expect("memory");
    drop(device);
    assert_eq!(last.wait(None), Ok(!77), "its device is dropped, and works on");
}

#[test]
fn records_are_given_to_one_at_a_time() {
    let many = if cfg!(miri) { 70 } else { 200 }; // more than are made at once
    let taken: Vec<_> = (0..many).map(|_| take().expect("memory")).collect();
    let places: HashSet<_> = taken.iter().map(|record| core::ptr::from_ref(*record)).collect();
    assert_eq!(places.len(), many);
    assert!(ALL.iter().count() >= many);
    taken.into_iter().for_each(give_back);
}
