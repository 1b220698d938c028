//! Event sequences on the state machine, and descriptors between threads.

use super::*;
use crate::prelude::*;
use core::sync::atomic::AtomicU32;
use std::sync::Arc;

const NEW: Edge<u32> = Edge::NEW;

/// A G of that number is in a wait.
fn waiting(g: u32) -> Edge<u32> {
    let mut edge = NEW;
    assert_eq!(edge.enter(), None);
    edge.state = State::Waiting(g);
    edge
}

#[test]
fn an_edge_before_the_wait_is_taken_once() {
    let mut edge = NEW;
    assert_eq!(edge.ready(), None);
    assert_eq!(edge.ready(), None);
    assert_eq!(edge.enter(), Some(Ok(())));
    assert_eq!(edge.enter(), None, "two edges before a look are one");
}

#[test]
fn an_edge_wakes_who_waits_once() {
    let mut edge = waiting(7);
    assert_eq!(edge.ready(), Some(7));
    assert_eq!(edge.ready(), None, "it was readied before");
    assert_eq!(edge.leave(true), Some(Ok(())));
    assert_eq!(edge, NEW, "both edges came before its look");
}

#[test]
fn a_foreign_wake_up_does_not_end_the_wait() {
    let mut edge = waiting(7);
    assert_eq!(edge.leave(true), None);
    edge.state = State::Waiting(8);
    assert_eq!(edge.ready(), Some(8), "the handle of the wait under way");
}

#[test]
fn a_deadline_ends_the_wait_and_the_late_edge_is_kept() {
    let mut edge = waiting(7);
    assert_eq!(edge.leave(false), Some(Err(PollError::TimedOut)));
    assert_eq!(edge.ready(), None, "nobody waits");
    assert_eq!(edge.enter(), Some(Ok(())));
}

#[test]
fn an_edge_that_comes_with_the_deadline_wins() {
    let mut edge = waiting(7);
    assert_eq!(edge.ready(), Some(7));
    assert_eq!(edge.leave(false), Some(Ok(())));
    assert_eq!(edge, NEW);
}

#[test]
fn a_second_g_is_turned_away_until_the_first_has_left() {
    let mut edge = waiting(7);
    assert_eq!(edge.enter(), Some(Err(PollError::Busy)));
    assert_eq!(edge.ready(), Some(7));
    assert_eq!(edge.enter(), Some(Err(PollError::Busy)), "the edge is taken");
    assert_eq!(edge.leave(true), Some(Ok(())));
    assert_eq!(edge.enter(), None);
}

#[test]
fn close_wakes_the_waiter_and_ends_every_wait_for_ever() {
    let mut edge = waiting(7);
    assert_eq!(edge.close(), Some(7));
    assert_eq!(edge.leave(true), Some(Err(PollError::Closed)));
    assert_eq!(edge.ready(), None);
    assert_eq!(edge.enter(), Some(Err(PollError::Closed)));
    assert_eq!(edge.close(), None);
}

#[test]
fn close_outweighs_an_edge_and_a_deadline() {
    for in_time in [true, false] {
        let mut edge = waiting(7);
        assert_eq!(edge.ready(), Some(7));
        assert_eq!(edge.close(), None, "readied before");
        assert_eq!(edge.leave(in_time), Some(Err(PollError::Closed)));
    }
}

#[test]
fn reset_forgets_everything_but_somebody_who_waits() {
    let mut edge = NEW;
    assert_eq!(edge.ready(), None);
    assert_eq!(edge.close(), None);
    assert_eq!(edge.reset(), Ok(()));
    assert_eq!(edge, NEW);
    let mut edge = waiting(7);
    assert_eq!(edge.reset(), Err(PollError::Busy));
    assert_eq!(edge.ready(), Some(7));
    assert_eq!(edge.reset(), Err(PollError::Busy), "it has not left yet");
    assert_eq!(edge.close(), None);
}

/// As a driver and its caller: data first, then the edge; check after the wait.
#[test]
fn no_edge_is_lost_between_threads() {
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let shared = Arc::new((PollDesc::new(), AtomicU32::new(0)));
    let device = shared.clone();
    let sender = go(move || {
        for n in 1..=rounds {
            device.1.store(n, Relaxed);
            device.0.ready();
        }
    });
    while shared.1.load(Relaxed) < rounds {
        assert_eq!(shared.0.wait(None), Ok(()));
    }
    sender.join().expect("no panic");
}

#[test]
fn edges_against_deadlines_lose_nothing() {
    let rounds = if cfg!(miri) { 10 } else { 2_000 };
    let shared = Arc::new((PollDesc::new(), PollDesc::new()));
    let device = shared.clone();
    let sender = go(move || {
        for _ in 0..rounds {
            device.0.ready();
            device.1.wait(None).expect("an answer");
        }
    });
    let mut timeouts = 0u64;
    for _ in 0..rounds {
        while let Err(error) = shared.0.wait(Some(crate::run::door::now_ns() + 500)) {
            assert_eq!(error, PollError::TimedOut);
            timeouts += 1;
        }
        shared.1.ready();
    }
    sender.join().expect("no panic");
    assert!(cfg!(miri) || timeouts > 0, "no deadline ever came first");
}

#[test]
fn close_ends_a_wait_under_way() {
    let desc = Arc::new(PollDesc::new());
    let waiter = desc.clone();
    let waiter = go(move || {
        loop {
            match waiter.wait(None) {
                // The thread that checks, below, was there just now.
                Err(PollError::Busy) => yield_now(),
                outcome => return outcome,
            }
        }
    });
    while desc.wait(Some(0)) != Err(PollError::Busy) {
        yield_now();
    }
    desc.close();
    assert_eq!(waiter.join(), Ok(Err(PollError::Closed)));
}
