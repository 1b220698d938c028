//! Timers, tickers and delayed calls, on threads in place of Gs.

use super::*;
use crate::api::chan::{self, RecvError, RecvTimeoutError, TryRecvError};
use crate::api::go::go;
use crate::run::time::sleep;
use crate::select;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_timer_gives_its_moment_once() {
    let at = Instant::now() + 3 * MS;
    let timer = Timer::at(at);
    assert_eq!((timer.len(), timer.capacity()), (0, Some(0)), "as Go's, since 1.23");
    assert_eq!(timer.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(timer.recv(), Ok(at));
    assert!(Instant::now() >= at);
    assert_eq!(timer.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout), "once");
}

#[test]
fn a_stop_or_reset_leaves_no_value_from_before_it() {
    let timer = Timer::new(Duration::ZERO);
    sleep(2 * MS);
    assert!(timer.stop(), "due, and not received: it did not happen");
    assert!(!timer.stop());
    assert_eq!(timer.try_recv(), Err(TryRecvError::Empty), "stale");
    assert!(!timer.reset(Duration::ZERO), "it was stopped");
    sleep(2 * MS);
    assert!(timer.reset(HOUR), "due, and not received");
    assert_eq!(timer.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout), "stale");
    assert!(timer.reset(MS));
    assert!(timer.recv().is_ok());
    assert!(!timer.stop(), "it was received");
}

#[test]
fn a_reset_to_an_earlier_time_ends_a_wait_under_way() {
    for selects in [false, true] {
        let timer = Arc::new(Timer::new(HOUR));
        let other = timer.clone();
        let (_tx, never) = chan::bounded::<u8>(1);
        let waits = go(move || match selects {
            false => other.recv().is_ok(),
            true => select! {
                recv(other) -> at => at.is_ok(),
                recv(never) => false,
            },
        });
        sleep(5 * MS);
        assert!(timer.reset(MS));
        assert_eq!(waits.join(), Ok(true));
    }
}

#[test]
fn a_timer_that_was_stopped_is_set_while_a_select_waits_for_it() {
    let timer = Arc::new(Timer::new(HOUR));
    assert!(timer.stop());
    let other = timer.clone();
    let waits = go(move || select! { recv(other) -> at => at.is_ok() });
    sleep(5 * MS);
    assert!(!timer.reset(MS));
    assert_eq!(waits.join(), Ok(true));
}

#[test]
fn one_of_several_receivers_gets_a_value() {
    let timer = Timer::new(5 * MS);
    let receivers: Vec<_> = (0..4)
        .map(|_| {
            let rx = timer.clone();
            go(move || rx.recv_timeout(200 * MS).is_ok())
        })
        .collect();
    let got = receivers.into_iter().filter(|_| true).map(|g| g.join().expect("no panic"));
    assert_eq!(got.filter(|&got| got).count(), 1);
}

#[test]
fn what_a_dropped_timer_was_set_for_still_comes() {
    let timer = Timer::new(5 * MS);
    let rx = timer.clone();
    let waits = go({
        let rx = rx.clone();
        move || rx.recv()
    });
    drop(timer);
    assert!(waits.join().expect("no panic").is_ok());
    assert_eq!(rx.recv(), Err(RecvError), "and then no G can set it");
    let ticker = Ticker::new(2 * MS);
    let rx = ticker.clone();
    drop(ticker);
    assert_eq!(rx.iter().count(), 1);
    let stopped = Timer::new(HOUR);
    let rx = stopped.clone();
    assert!(stopped.stop());
    drop(stopped);
    assert_eq!(rx.recv(), Err(RecvError));
}

#[test]
fn a_closed_timer_with_a_limit_waits_for_the_earlier() {
    let timer = Timer::new(HOUR);
    let rx = timer.clone();
    drop(timer);
    assert_eq!(rx.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
    let got = select! {
        recv(rx) => 1,
        after(2 * MS) => 2,
    };
    assert_eq!(got, 2);
}

#[test]
fn ticks_that_no_g_receives_are_dropped() {
    let start = Instant::now();
    let ticker = Ticker::new(10 * MS);
    sleep(35 * MS);
    let first = ticker.recv().expect("open");
    let second = ticker.recv().expect("open");
    assert!(first < start + 20 * MS, "the oldest");
    let periods = (second - first).as_nanos() / 10_000_000;
    assert!((second - first).as_nanos().is_multiple_of(10_000_000) && periods >= 3, "{periods}");
    ticker.reset(3 * MS);
    let next = ticker.recv().expect("open");
    assert_eq!(ticker.recv().expect("open").duration_since(next).as_nanos() % 3_000_000, 0);
    ticker.stop();
    assert_eq!(ticker.recv_timeout(10 * MS), Err(RecvTimeoutError::Timeout));
}

#[test]
fn a_context_ends_a_wait_for_a_timer() {
    let (timer, context) = (Timer::new(HOUR), crate::context::Context::new());
    let other = context.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(5 * MS);
        other.cancel();
    });
    assert_eq!(timer.recv_until(&context), Err(RecvTimeoutError::Timeout));
    canceller.join().unwrap();
    assert!(timer.stop(), "nothing was taken");
}

#[test]
fn a_select_among_timers_takes_the_first() {
    let late = Timer::new(HOUR);
    let soon = chan::after(3 * MS);
    let ticks = chan::tick(HOUR);
    let got = select! {
        recv(late) => 1,
        recv(soon) => 2,
        recv(ticks) => 3,
        after(HOUR) => 4,
    };
    assert_eq!(got, 2);
    let got = select! {
        recv(soon) => 2,
        recv(late) => 1,
        default => 5,
    };
    assert_eq!(got, 5, "it came once");
}

#[test]
fn a_delayed_call_is_made_again_when_it_is_set_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (done, ended) = chan::bounded(8);
    let call = after_func(HOUR, move || {
        counted.fetch_add(1, SeqCst);
        done.send(()).expect("open");
    });
    assert!(call.stop());
    assert!(!call.stop());
    for n in 1..=3 {
        assert!(!call.reset(MS), "not set");
        ended.recv().expect("it is called");
        assert_eq!(calls.load(SeqCst), n);
    }
    drop(call);
    assert_eq!(ended.recv(), Err(RecvError), "its G ends, and drops what it has");
}

#[test]
fn a_delayed_call_is_made_when_its_handle_was_dropped() {
    let (tx, rx) = chan::bounded(1);
    drop(after_func(2 * MS, move || tx.send(7).expect("open")));
    assert_eq!(rx.recv(), Ok(7));
}

#[test]
fn a_period_of_zero_is_refused() {
    for make in [|| drop(Ticker::new(Duration::ZERO)), || drop(chan::tick(Duration::ZERO))] {
        assert!(catch_unwind(make).is_err());
    }
    let ticker = Ticker::new(HOUR);
    assert!(catch_unwind(AssertUnwindSafe(|| ticker.reset(Duration::ZERO))).is_err());
}

/// Resets and stops of one thread against receives of another: each round ends with a receive or a
/// stop that was in time, never both, never neither.
#[test]
fn a_stop_against_a_receive_is_one_or_the_other() {
    let rounds = if cfg!(miri) { 10 } else { 2_000 };
    let timer = Arc::new(Timer::new(HOUR));
    timer.stop();
    for round in 0..rounds {
        timer.reset(Duration::from_nanos(round % 64 * 200));
        let other = timer.clone();
        let receiver = go(move || other.recv_timeout(MS / 10).is_ok());
        (0..round % 100).for_each(|_| std::hint::spin_loop());
        let stopped = timer.stop();
        let received = receiver.join().expect("no panic");
        assert!(stopped != received, "round {round}: {stopped} and {received}");
    }
}
