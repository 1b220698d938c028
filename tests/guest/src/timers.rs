//! Checks timers, contexts and selections of every kind where the clock, the CPUs and the kills are
//! real. The rules of the timer's state machine are checked on the host; here it is counted what
//! came of many of them at once.

extern crate alloc;

use crate::check::{self, checks, join_all, wait_until};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::console::{self, InputError, InterruptKey};
use runnext::context::Over;
use runnext::inspect::now_ns;
use runnext::internals::mem;
use runnext::prelude::*;
use runnext::select::Select;
use runnext::sync::Semaphore;
use runnext::tasks::{self, GState, KillError, Killed};
use runnext::time::{AfterFunc, Ticker, Timer, after_func};

runnext::main!(timers, main);

fn main() {
    check::run(checks![
        a_timer_comes_once_and_not_before_its_time,
        a_stop_against_a_receive_is_one_or_the_other,
        a_reset_wakes_all_that_wait_for_a_later_time,
        ticks_are_periods_apart_whoever_receives_them,
        a_period_of_zero_panics_and_changes_nothing,
        a_million_timers_leave_nothing,
        a_delayed_call_is_made_once_or_stopped,
        a_delayed_call_that_panics_ends_its_g_only,
        a_g_killed_in_a_new_wait_takes_nothing_along,
        a_panic_in_a_body_gives_back_what_its_arm_took,
        a_cancelled_context_ends_every_new_kind_of_wait,
        a_cancellation_against_every_kind_of_arm_loses_nothing,
        two_arms_at_once_are_one_or_the_other,
    ]);
}

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_micros(300);

/// Starts a G, and waits until it is parked.
fn go_until_it_waits<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> (u64, JoinHandle<T>) {
    let (told, tell) = chan::bounded(1);
    let g = go(move || {
        told.send(current().id()).expect("main asks");
        f()
    });
    let id = tell.recv().expect("it says so");
    wait_until(|| tasks::gs().iter().any(|g| g.id == id && g.state == GState::Waiting));
    (id, g)
}

/// Kills a G that listens, however long it takes.
fn end(id: u64) {
    wait_until(|| !matches!(tasks::kill(id), Ok(Killed::Pending | Killed::Computing)));
    assert_eq!(tasks::kill(id), Err(KillError::NoSuchG));
}

fn a_timer_comes_once_and_not_before_its_time() {
    let timers: Vec<_> = (0..200)
        .map(|n| {
            let due = Instant::now() + n % 7 * SOON;
            (due, Timer::at(due))
        })
        .collect();
    for (due, timer) in timers {
        assert_eq!(timer.recv(), Ok(due));
        assert!(Instant::now() >= due);
        assert!(!timer.stop() && timer.try_recv().is_err());
    }
}

fn a_stop_against_a_receive_is_one_or_the_other() {
    for round in 0..200 {
        let timer = Timer::new(round % 8 * Duration::from_micros(20));
        let receivers: Vec<_> = (0..3)
            .map(|n| {
                let rx = timer.clone();
                go(move || match n {
                    0 => rx.recv_timeout(SOON).is_ok(),
                    _ => select! {
                        recv(rx) -> at => at.is_ok(),
                        after(SOON) => false,
                    },
                })
            })
            .collect();
        (0..round % 16).for_each(|_| yield_now());
        let stopped = usize::from(timer.stop());
        let received = join_all(receivers).into_iter().filter(|&received| received).count();
        assert_eq!(stopped + received, 1, "round {round}");
    }
}

fn a_reset_wakes_all_that_wait_for_a_later_time() {
    let timer = Timer::new(HOUR);
    let waiting: Vec<_> = (0..6)
        .map(|n| {
            let rx = timer.clone();
            let wait = move || match n % 2 {
                0 => rx.recv().is_ok(),
                _ => select! { recv(rx) -> at => at.is_ok() },
            };
            go_until_it_waits(wait).1
        })
        .collect();
    // One value for each of them.
    for left in (0..waiting.len()).rev() {
        timer.reset(Duration::ZERO);
        wait_until(|| waiting.iter().filter(|g| !g.is_finished()).count() == left);
    }
    assert!(join_all(waiting).into_iter().all(|got| got));
}

fn ticks_are_periods_apart_whoever_receives_them() {
    const PERIOD: Duration = Duration::from_micros(500);
    let (ticker, ticks) = (Ticker::new(PERIOD), chan::tick(PERIOD));
    let first = ticker.recv().expect("open");
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            let (a, b) = (ticker.clone(), ticks.clone());
            go(move || {
                let next = || select! { recv(a) -> at => (0, at), recv(b) -> at => (1, at) };
                (0..20).map(|_| next()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut got = join_all(receivers).concat();
    ticker.stop();
    assert!(ticker.recv_timeout(2 * PERIOD).is_err(), "it is stopped");
    got.sort_unstable_by_key(|(from, at)| (*from, at.expect("open")));
    for pair in got.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let apart = pair[1].1.expect("open") - pair[0].1.expect("open");
        assert!(!apart.is_zero(), "one tick was received twice");
        assert!(apart.as_nanos().is_multiple_of(PERIOD.as_nanos()), "it drifts");
    }
    assert!(got.iter().all(|(from, at)| *from == 1 || at.expect("open") > first));
}

/// It panics in the G that asks, where it may unwind: not under the lock of the channel.
fn a_period_of_zero_panics_and_changes_nothing() {
    let ticker = Ticker::new(SOON);
    let refused = catch(|| ticker.reset(Duration::ZERO)).expect_err("it panics");
    assert_eq!(refused.message(), "a ticker with a period of zero");
    assert!(ticker.recv().is_ok(), "it goes on as before");
}

/// Each costs the same, however many there are; and memory is as before.
fn a_million_timers_leave_nothing() {
    // In virtual time instructions are counted; elsewhere the host's time is spared.
    let n = if num_cpus() == 1 && !check::chaos_on() { 1_000_000 } else { 20_000 };
    let all = |n: usize| {
        let mut timers = Vec::with_capacity(n);
        let begin = now_ns();
        timers.extend((0..n as u32).map(|n| Timer::new(HOUR + n * SOON)));
        assert!(timers.iter().all(Timer::stop));
        assert!(timers.iter().all(|timer| !timer.reset(HOUR)));
        drop(timers);
        (now_ns() - begin) / n as u64
    };
    let few = all(1_000);
    let before = mem::stats().heap.in_use;
    let many = all(n);
    let after = mem::stats().heap.in_use;
    println!("COST timer {few} of a thousand, {many} of {n}");
    assert!(after <= before + 4096, "{} bytes are left", after - before);
    if num_cpus() == 1 && !check::chaos_on() {
        assert!(many < 3 * few, "{many} instructions each, {few} with few");
    }
}

fn a_delayed_call_is_made_once_or_stopped() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    CALLS.store(0, Relaxed);
    let mut stopped = 0;
    for round in 0..200 {
        let delay = round % 8 * Duration::from_micros(20);
        let call = after_func(delay, || _ = CALLS.fetch_add(1, Relaxed));
        (0..round % 16).for_each(|_| yield_now());
        match round % 3 {
            0 => stopped += usize::from(call.stop()),
            // Once more, if it was made already.
            1 => stopped -= usize::from(!call.reset(SOON)),
            _ => drop(call), // it is made all the same
        }
    }
    wait_until(|| CALLS.load(Relaxed).wrapping_add(stopped) >= 200);
    wait_until(|| tasks::gs().iter().all(|g| g.name != "after_func"));
    assert_eq!(CALLS.load(Relaxed).wrapping_add(stopped), 200);
}

fn a_delayed_call_that_panics_ends_its_g_only() {
    let (tx, rx) = chan::bounded::<u32>(1);
    let call: AfterFunc = after_func(SOON, move || {
        let _owned = &tx;
        panic!("on purpose");
    });
    assert!(rx.recv().is_err(), "what it has is dropped");
    assert!(!call.reset(Duration::ZERO) && !call.stop(), "no G is left to make it");
}

/// What a G waits for, and is killed in: the value, the permits and the result are still there.
fn a_g_killed_in_a_new_wait_takes_nothing_along() {
    type Waits = fn(chan::Receiver<Instant>, &'static Semaphore, JoinHandle<u32>, Context);
    let waits: [Waits; 6] = [
        |timer, _, _, _| _ = timer.recv(),
        |timer, _, _, _| select! { recv(timer) => (), after(HOUR) => () },
        |_, gate, _, _| select! { acquire(gate, 2) => (), after(HOUR) => () },
        |timer, _, mut g, _| select! { join(g) => (), recv(timer) => () },
        |timer, gate, mut g, context| {
            let mut any = Select::new();
            any.recv(&timer, |_| ()).acquire(gate, 2, |_| ()).join(&mut g, || ());
            any.done(&context, |_| ());
            any.wait();
        },
        |_, _, _, context| _ = context.sleep(HOUR),
    ];
    for wait in waits {
        static GATE: Semaphore = Semaphore::new(0);
        let timer = Timer::new(HOUR);
        let (stop, stopped) = chan::rendezvous::<u32>();
        let worker = go(move || stopped.recv().unwrap_or(0));
        let (rx, context) = (timer.clone(), Context::new());
        let held = context.clone();
        GATE.release(1);
        let (id, g) = go_until_it_waits(move || wait(rx, &GATE, worker, held));
        end(id);
        assert_eq!(g.join(), Err(JoinError::Killed));
        GATE.acquire(1); // none waits before us
        assert_eq!(GATE.available(), 0);
        assert!(timer.reset(Duration::ZERO) && timer.recv().is_ok());
        context.cancel();
        let _ = stop.send_timeout(7, HOUR); // it ends, and no G joins it
    }
}

fn a_panic_in_a_body_gives_back_what_its_arm_took() {
    static GATE: Semaphore = Semaphore::new(2);
    let panics = go(|| {
        select! { acquire(GATE, 2) -> _permit => panic!("on purpose") }
    });
    assert!(panics.join().is_err());
    let panics = go(|| {
        let mut any = Select::<()>::new();
        any.acquire(&GATE, 2, |_permit| panic!("on purpose"));
        any.wait();
    });
    assert!(panics.join().is_err());
    assert_eq!(GATE.available(), 2);
}

/// With a context that is over before the wait, and one that is cancelled while the G waits.
fn a_cancelled_context_ends_every_new_kind_of_wait() {
    type Waits = fn(&Context, &Timer) -> bool;
    let waits: [Waits; 7] = [
        |context, _| context.sleep(HOUR) == Err(Over::Cancelled),
        |context, timer| timer.recv_until(context) == Err(chan::RecvTimeoutError::Timeout),
        |context, timer| select! { recv(timer) => false, after(context) => true },
        |context, timer| select! { recv(timer) => false, done(context) => true },
        |context, timer| {
            let mut any = Select::new();
            any.recv(timer, |_| ());
            any.wait_until(context).is_err()
        },
        |context, _| console::read_line_until(context) == Err(InputError::TimedOut),
        |context, _| InterruptKey::wait_until(context).is_err(),
    ];
    let _key = InterruptKey::catch();
    for wait in waits {
        let timer = Arc::new(Timer::new(HOUR));
        let before = Context::new();
        before.cancel();
        assert!(wait(&before, &timer));
        let context = Context::new().child();
        let (held, rx) = (context.clone(), timer.clone());
        let (_, waiting) = go_until_it_waits(move || wait(&held, &rx));
        context.cancel();
        assert_eq!(waiting.join(), Ok(true));
        assert!(timer.stop(), "nothing was taken");
    }
}

/// Arms that are cancelled before, while and after they become possible.
fn a_cancellation_against_every_kind_of_arm_loses_nothing() {
    for round in 0..120 {
        let gate: &'static Semaphore = Box::leak(Box::new(Semaphore::new(0)));
        let (tx, rx) = chan::bounded(1);
        let context = if round % 2 == 0 { Context::new() } else { Context::new().child() };
        let held = context.clone();
        let selects = go(move || {
            let mut worker = go(yield_now);
            let mut taken = [0; 3];
            let over = loop {
                select! {
                    recv(rx) -> n if taken[0] == 0 => taken[0] = n.expect("open"),
                    acquire(gate, 1) -> permit if taken[1] == 0 => {
                        permit.forget();
                        taken[1] = 1;
                    }
                    join(worker) if taken[2] == 0 => taken[2] = 1,
                    done(held) -> why => break why,
                }
            };
            assert!(worker.join().is_ok());
            (taken, over, rx.len())
        });
        (0..round % 5).for_each(|_| yield_now());
        tx.send(1).expect("open");
        (0..round % 3).for_each(|_| yield_now());
        gate.release(1);
        (0..round % 7).for_each(|_| yield_now());
        context.cancel();
        let ([values, permits, _], over, left) = selects.join().expect("no panic");
        assert_eq!((values + left, over), (1, Over::Cancelled), "round {round}");
        assert_eq!(permits + gate.available(), 1, "round {round}");
    }
}

/// A value and permits that come at once from two CPUs, to Gs that wait for both.
fn two_arms_at_once_are_one_or_the_other() {
    static GATE: Semaphore = Semaphore::new(0);
    const EACH: usize = 300;
    let (tx, rx) = chan::rendezvous::<usize>();
    let takers: Vec<_> = (0..4)
        .map(|_| {
            let rx = rx.clone();
            go(move || {
                let timer = Timer::new(HOUR);
                let mut taken = [0; 2];
                for _ in 0..2 * EACH / 4 {
                    select! {
                        recv(rx) -> n => taken[0] += n.expect("open"),
                        acquire(GATE, 1) -> permit => {
                            permit.forget();
                            taken[1] += 1;
                        }
                        recv(timer) => unreachable!("not within an hour"),
                    }
                }
                taken
            })
        })
        .collect();
    let other = tx.clone(); // so that the channel is not closed while permits are left
    let sender = go(move || (0..EACH).for_each(|_| other.send(1).expect("open")));
    let releaser = go(|| {
        (0..EACH).for_each(|n| {
            GATE.release(1);
            if n % 8 == 0 {
                yield_now();
            }
        });
    });
    let taken = join_all(takers);
    drop(tx);
    (sender.join(), releaser.join()).0.expect("no panic");
    let sum = |i: usize| taken.iter().map(|taken| taken[i]).sum::<usize>();
    assert_eq!((sum(0), sum(1), GATE.available()), (EACH, EACH, 0));
}
