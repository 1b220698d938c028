//! Checks what Gs wait for each other with, across CPUs: channels, select, locks.
//!
//! The host tests of the kernel check the same things with threads in place of
//! Gs; here the scheduler, its preemption and its CPUs are real.

use crate::check::{self, checks, join_all, wait_until};
use crate::sharing::*;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::{Condvar, LockError, Mutex, Once, RwLock, Semaphore, TimedOut, WaitGroup};
use runnext::tasks::{self, GInfo, GState};
use runnext::waiting::Reason;

runnext::main!(syncing, main);

fn main() {
    check::run(checks![
        a_rendezvous_loses_and_doubles_nothing,
        a_bounded_channel_loses_and_doubles_nothing,
        an_unbounded_channel_loses_and_doubles_nothing,
        a_channel_keeps_the_order_of_a_sender,
        close_wakes_all_who_wait,
        a_failed_send_gives_the_value_back,
        a_receive_times_out,
        a_send_times_out_and_gives_the_value_back,
        select_loses_and_doubles_nothing,
        select_takes_every_ready_case_now_and_then,
        select_waits_for_all_of_its_cases,
        select_after_ends_a_wait,
        a_cancelled_context_ends_every_kind_of_wait,
        a_cancellation_wakes_all_below_it_and_no_other,
        a_cancellation_loses_and_doubles_nothing,
        a_condition_under_a_limit_may_wait_with_another,
        a_join_that_is_late_leaves_the_result_to_the_next,
        a_mutex_excludes,
        a_lock_times_out,
        a_writer_is_alone_and_readers_are_not,
        a_condvar_wakes_those_who_wait,
        a_condvar_times_out,
        a_semaphore_admits_so_many,
        a_wait_group_waits_for_all,
        once_runs_once,
        a_panic_poisons_the_mutex,
        a_panic_poisons_what_is_written,
        a_panic_of_a_reader_lets_the_writer_in,
        a_panic_gives_permits_back,
        a_panic_poisons_the_once,
        a_panic_closes_its_channels,
        an_owned_guard_is_dropped_in_another_g,
        a_killed_g_frees_what_it_owns,
        an_abandoned_g_keeps_what_it_owns,
        no_upgrade_and_no_downgrade_is_lost,
        every_g_of_a_round_passes_the_barrier,
        a_barrier_does_not_count_the_killed,
        a_notification_is_not_lost_with_a_killed_waiter,
        a_broadcast_reaches_all_in_spite_of_kills,
        a_watch_ends_at_the_last_value,
        a_group_ends_with_its_first_error,
        a_join_set_has_every_end_once,
        a_join_set_loses_nothing_with_a_waiter_that_is_killed_or_late,
        kills_at_every_wait_leave_it_usable,
    ]);
}

/// So long that no delay of the host's hides a wait that is too short.
const LITTLE: Duration = Duration::from_millis(20);

/// Many senders, many receivers: every number arrives once.
fn all_arrive_once((tx, rx): (chan::Sender<usize>, chan::Receiver<usize>)) {
    const EACH: usize = 300;
    let senders = 2 * num_cpus();
    let sending: Vec<_> = (0..senders)
        .map(|sender| {
            let tx = tx.clone();
            go(move || (0..EACH).for_each(|i| tx.send(sender * EACH + i).expect("open")))
        })
        .collect();
    drop(tx);
    let receiving: Vec<_> = (0..num_cpus() + 1)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.iter().collect::<Vec<_>>())
        })
        .collect();
    join_all(sending);
    let mut got = join_all(receiving).concat();
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..senders * EACH), "{} of {}", got.len(), senders * EACH);
}

fn a_rendezvous_loses_and_doubles_nothing() {
    all_arrive_once(chan::rendezvous());
}

fn a_bounded_channel_loses_and_doubles_nothing() {
    all_arrive_once(chan::bounded(3));
    all_arrive_once(chan::bounded(100));
}

fn an_unbounded_channel_loses_and_doubles_nothing() {
    all_arrive_once(chan::unbounded());
}

fn a_channel_keeps_the_order_of_a_sender() {
    for (tx, rx) in [chan::rendezvous(), chan::bounded(7), chan::unbounded()] {
        let sender = go(move || (0..2_000).for_each(|i| tx.send(i).expect("open")));
        assert!(rx.iter().eq(0..2_000));
        sender.join().expect("no panic");
    }
}

fn close_wakes_all_who_wait() {
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    let (tx, rx) = chan::rendezvous::<u8>();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let rx = rx.clone();
            go(move || {
                WAITING.fetch_add(1, Relaxed);
                rx.recv()
            })
        })
        .collect();
    wait_until(|| WAITING.load(Relaxed) == 50);
    tx.close();
    assert!(join_all(waiting).into_iter().all(|got| got == Err(chan::RecvError)));
    assert!(rx.is_closed());
}

fn a_failed_send_gives_the_value_back() {
    static COMES: AtomicBool = AtomicBool::new(false);
    let (tx, rx) = chan::bounded(1);
    tx.send("first".to_string()).expect("open");
    let blocked = {
        let tx = tx.clone();
        go(move || {
            COMES.store(true, Relaxed);
            tx.send("second".to_string())
        })
    };
    wait_until(|| COMES.load(Relaxed));
    sleep(LITTLE); // so that it waits
    rx.close();
    let returned = blocked.join().expect("no panic");
    assert_eq!(returned, Err(chan::SendError("second".to_string())));
    assert_eq!(rx.recv(), Ok("first".to_string()), "what was sent before is still there");
    assert_eq!(rx.recv(), Err(chan::RecvError));
}

/// Runs `f`, which must take `LITTLE` at least.
fn takes_a_little<T>(f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = f();
    assert!(start.elapsed() >= LITTLE, "over after {:?}", start.elapsed());
    result
}

fn a_receive_times_out() {
    let (tx, rx) = chan::bounded(1);
    let result = takes_a_little(|| rx.recv_timeout(LITTLE));
    assert_eq!(result, Err(chan::RecvTimeoutError::Timeout));
    tx.send(5).expect("open");
    assert_eq!(rx.recv_timeout(Duration::from_secs(1000)), Ok(5));
}

fn a_send_times_out_and_gives_the_value_back() {
    let (tx, rx) = chan::rendezvous();
    let result = takes_a_little(|| tx.send_timeout(6, LITTLE));
    assert_eq!(result, Err(chan::SendTimeoutError::Timeout(6)));
    assert_eq!(rx.try_recv(), Err(chan::TryRecvError::Empty), "and does not send it as well");
}

/// Gs that send to one of two channels, or receive from one of two.
fn select_loses_and_doubles_nothing() {
    const EACH: usize = 300;
    let ((a, a_rx), (b, b_rx)) = (chan::rendezvous(), chan::bounded(2));
    let senders = num_cpus() + 1;
    let sending: Vec<_> = (0..senders)
        .map(|sender| {
            let (a, b) = (a.clone(), b.clone());
            go(move || {
                for n in sender * EACH..(sender + 1) * EACH {
                    select! {
                        send(a, n) -> sent => sent.expect("open"),
                        send(b, n) -> sent => sent.expect("open"),
                    }
                }
            })
        })
        .collect();
    drop((a, b));
    let receiving: Vec<_> = (0..num_cpus() + 1)
        .map(|_| {
            let (a, b) = (a_rx.clone(), b_rx.clone());
            go(move || receive_from_both(&a, &b))
        })
        .collect();
    join_all(sending);
    let mut got = join_all(receiving).concat();
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..senders * EACH), "{} of {}", got.len(), senders * EACH);
}

fn receive_from_both(a: &chan::Receiver<usize>, b: &chan::Receiver<usize>) -> Vec<usize> {
    let mut got = Vec::new();
    loop {
        let (first, other) = select! {
            recv(a) -> n => (n, b),
            recv(b) -> n => (n, a),
        };
        match first {
            Ok(n) => got.push(n),
            // All senders hold both, so both are closed soon; but not empty.
            Err(_) => {
                got.extend(other.iter());
                return got;
            }
        }
    }
}

fn select_takes_every_ready_case_now_and_then() {
    let [a, b, c] = [(); 3].map(|()| chan::bounded::<()>(1));
    let mut taken = [0; 3];
    for _ in 0..300 {
        for (tx, _) in [&a, &b, &c] {
            let _ = tx.try_send(());
        }
        let case = select! {
            recv(a.1) => 0,
            recv(b.1) => 1,
            recv(c.1) => 2,
        };
        taken[case] += 1;
    }
    // An unlucky seed gives less than 50 of 300 once in 10^13.
    assert!(taken.iter().all(|&n| n >= 50), "{taken:?}");
}

fn select_waits_for_all_of_its_cases() {
    static COME: AtomicUsize = AtomicUsize::new(0);
    for ready in 0..3 {
        let [a, b, c] = [(); 3].map(|()| chan::rendezvous::<usize>());
        let tx = [&a, &b, &c][ready].0.clone();
        let selecting = go(move || {
            COME.fetch_add(1, Relaxed);
            select! {
                recv(a.1) -> n => (0, n),
                recv(b.1) -> n => (1, n),
                recv(c.1) -> n => (2, n),
            }
        });
        wait_until(|| COME.load(Relaxed) == ready + 1);
        sleep(LITTLE); // so that it waits
        tx.send(7).expect("open");
        assert_eq!(selecting.join(), Ok((ready, Ok(7))));
    }
}

fn select_after_ends_a_wait() {
    let (tx, rx) = chan::rendezvous::<u8>();
    let timed_out = takes_a_little(|| {
        select! {
            recv(rx) => false,
            after(LITTLE) => true,
        }
    });
    assert!(timed_out);
    drop(tx);
}

/// One G in each kind of wait, all of which only the cancellation can end.
fn a_cancelled_context_ends_every_kind_of_wait() {
    static MUTEX: Mutex<()> = Mutex::new(());
    static RWLOCK: RwLock<()> = RwLock::new(());
    static PERMITS: Semaphore = Semaphore::new(0);
    static CHANGED: Condvar = Condvar::new();
    static OTHER: Mutex<()> = Mutex::new(());
    static GROUP: WaitGroup = WaitGroup::new();
    static NEVER: Once = Once::new();
    GROUP.add(1);
    let held = (MUTEX.lock().expect("free"), RWLOCK.write().expect("free"));
    let (_tx, rx) = chan::rendezvous::<u8>();
    type Waits = fn(&Context, &chan::Receiver<u8>) -> bool;
    let waits: [Waits; 11] = [
        |context, _| MUTEX.lock_until(context).is_err(),
        |context, _| RWLOCK.read_until(context).is_err(),
        |context, _| RWLOCK.write_until(context).is_err(),
        |context, _| PERMITS.acquire_until(1, context) == Err(TimedOut),
        |context, _| {
            let waited = CHANGED.wait_until(OTHER.lock().expect("free"), context);
            waited.expect("no panic").1 == Err(TimedOut)
        },
        |context, _| GROUP.wait_until(context) == Err(TimedOut),
        |context, _| NEVER.wait_until(context) == Err(TimedOut),
        |context, _| !runnext::gref::park_until(context),
        |context, _| {
            let (tx, _rx) = chan::rendezvous();
            tx.send_until(7, context) == Err(chan::SendTimeoutError::Timeout(7))
        },
        |context, rx| rx.recv_until(context) == Err(chan::RecvTimeoutError::Timeout),
        |context, rx| {
            select! {
                recv(rx) => false,
                after(context) => true,
            }
        },
    ];
    let context = Context::new();
    let waiting = waits.map(|wait| {
        let (context, rx) = (context.clone(), rx.clone());
        go(move || wait(&context, &rx))
    });
    sleep(LITTLE);
    context.cancel();
    assert!(join_all(waiting).into_iter().all(|was_late| was_late));
    drop(held);
    GROUP.done();
    assert!(MUTEX.try_lock().is_ok() && RWLOCK.try_write().is_ok() && OTHER.try_lock().is_ok());
}

fn a_cancellation_wakes_all_below_it_and_no_other() {
    const EACH: usize = 50;
    let root = Context::new();
    let branches = [root.child(), root.child()];
    let (_tx, rx) = chan::rendezvous::<u8>();
    static ENDED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    ENDED.iter().for_each(|ended| ended.store(0, Relaxed));
    let gs = |branch: usize| {
        let (rx, branches) = (&rx, &branches);
        (0..EACH).map(move |i| {
            let context = branches[branch].clone();
            let context = if i % 2 == 0 { context } else { context.child() };
            let rx = rx.clone();
            go(move || {
                assert!(rx.recv_until(&context).is_err());
                ENDED[branch].fetch_add(1, Relaxed);
            })
        })
    };
    let (first, second): (Vec<_>, Vec<_>) = (gs(0).collect(), gs(1).collect());
    branches[0].cancel();
    join_all(first);
    assert_eq!((ENDED[0].load(Relaxed), ENDED[1].load(Relaxed)), (EACH, 0));
    root.cancel();
    join_all(second);
    assert_eq!(ENDED[1].load(Relaxed), EACH);
}

/// Sends and receives that are cancelled at any moment: what was not received is with its sender.
fn a_cancellation_loses_and_doubles_nothing() {
    const ROUNDS: usize = 100;
    for round in 0..ROUNDS {
        let (tx, rx) = chan::rendezvous::<usize>();
        let context = Context::new();
        let senders: Vec<_> = (0..4)
            .map(|i| {
                let (tx, context) = (tx.clone(), context.clone());
                go(move || tx.send_until(i, &context).is_ok())
            })
            .collect();
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let (rx, context) = (rx.clone(), context.clone());
                go(move || rx.recv_until(&context).is_ok())
            })
            .collect();
        (0..round % 8).for_each(|_| yield_now());
        context.cancel();
        let sent = join_all(senders).into_iter().filter(|&sent| sent).count();
        let received = join_all(receivers).into_iter().filter(|&received| received).count();
        assert_eq!(sent, received);
    }
}

/// A limited wait for a condition is cancelled while the condition is computed: that neither ends what
/// the condition waits for, nor is forgotten.
fn a_condition_under_a_limit_may_wait_with_another() {
    static LOCK: Mutex<()> = Mutex::new(());
    static NEVER: Condvar = Condvar::new();
    let (began, begins) = chan::bounded(2);
    let (context, inner) = (Context::new(), Context::new());
    let (_tx, rx) = chan::rendezvous::<u8>();
    let waits = {
        let (context, inner) = (context.clone(), inner.clone());
        go(move || {
            let mut is_first = true;
            let held = LOCK.lock().expect("free");
            let waited = NEVER.wait_until_while(held, &context, |()| {
                if core::mem::take(&mut is_first) {
                    began.send(()).expect("main asks");
                    takes_a_little(|| sleep(LITTLE));
                    began.send(()).expect("main asks");
                    assert!(rx.recv_until(&inner).is_err());
                    assert!(inner.over().is_some(), "ended by another cancellation");
                }
                true
            });
            waited.expect("no panic").1
        })
    };
    begins.recv().expect("it says so");
    context.cancel();
    begins.recv().expect("it says so");
    sleep(LITTLE); // so that it waits again
    inner.cancel();
    assert_eq!(waits.join(), Ok(Err(TimedOut)));
}

/// Joins that give up at any moment, and then one by another G: each result arrives once.
fn a_join_that_is_late_leaves_the_result_to_the_next() {
    for round in 0..200_u32 {
        let (tx, rx) = chan::rendezvous::<u32>();
        let context = Context::new();
        let worker = go(move || rx.recv().expect("open"));
        let other = {
            let context = context.clone();
            go(move || {
                (0..round % 4).for_each(|_| yield_now());
                context.cancel();
            })
        };
        let sender = (round % 2 == 0).then(|| {
            let tx = tx.clone();
            go(move || tx.send(round).expect("the worker receives"))
        });
        let got = match worker.join_until(&context) {
            Ok(got) => got,
            Err(worker) => {
                if sender.is_none() {
                    assert!(!worker.is_finished(), "nothing was sent");
                    tx.send(round).expect("the worker receives");
                }
                go(move || worker.join()).join().expect("no panic")
            }
        };
        assert_eq!(got, Ok(round));
        join_all(sender);
        other.join().expect("no panic");
    }
}

fn a_mutex_excludes() {
    const EACH: u64 = 500;
    static COUNT: Mutex<u64> = Mutex::new(0);
    static INSIDE: AtomicBool = AtomicBool::new(false);
    let gs = 4 * num_cpus() as u64;
    join_all((0..gs).map(|_| {
        go(|| {
            for i in 0..EACH {
                let mut count = COUNT.lock().expect("no panic");
                assert!(!INSIDE.swap(true, Ordering::AcqRel), "two inside");
                *count += 1;
                if i % 64 == 0 {
                    yield_now(); // with the lock held: the others must wait
                }
                INSIDE.store(false, Ordering::Release);
            }
        })
    }));
    assert_eq!(*COUNT.lock().expect("no panic"), EACH * gs);
}

fn a_lock_times_out() {
    static LOCK: Mutex<u8> = Mutex::new(1);
    static SHARED: RwLock<u8> = RwLock::new(1);
    let (held, shared) = (LOCK.lock().expect("no panic"), SHARED.read().expect("no panic"));
    let others = go(|| {
        let timed_out = takes_a_little(|| matches!(LOCK.lock_until(LITTLE), Err(LockError::Held)));
        assert!(timed_out, "the mutex was free");
        let timed_out =
            takes_a_little(|| matches!(SHARED.write_until(LITTLE), Err(LockError::Held)));
        assert!(timed_out, "a writer came in beside a reader");
        assert!(SHARED.read_until(LITTLE).is_ok(), "a second reader, after the writer gave up");
    });
    others.join().unwrap_or_else(|error| panic!("{error}"));
    drop((held, shared));
    let alone = SHARED.write().expect("no panic");
    let timed_out = takes_a_little(|| matches!(SHARED.read_until(LITTLE), Err(LockError::Held)));
    assert!(timed_out, "a reader came in beside a writer");
    drop(alone);
    assert!(LOCK.lock_until(LITTLE).is_ok() && SHARED.write_until(LITTLE).is_ok());
}

fn a_writer_is_alone_and_readers_are_not() {
    const EACH: u64 = 200;
    /// Both are the same, except for the one who writes.
    static PAIR: RwLock<(u64, u64)> = RwLock::new((0, 0));
    let writers = 2 * num_cpus() as u64;
    let writing = (0..writers).map(|_| {
        go(|| {
            for i in 0..EACH {
                let mut pair = PAIR.write().expect("no panic");
                pair.0 += 1;
                if i % 32 == 0 {
                    yield_now();
                }
                pair.1 += 1;
            }
        })
    });
    let writing: Vec<_> = writing.collect();
    join_all((0..2 * num_cpus()).map(|_| {
        go(|| {
            for _ in 0..EACH {
                let pair = PAIR.read().expect("no panic");
                let first = pair.0;
                yield_now();
                assert_eq!((first, first), *pair, "somebody wrote");
            }
        })
    }));
    join_all(writing);
    assert_eq!(*PAIR.read().expect("no panic"), (writers * EACH, writers * EACH));
    two_readers_at_once();
}

/// Each waits for the other while it holds the lock.
fn two_readers_at_once() {
    static SHARED: RwLock<()> = RwLock::new(());
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    join_all((0..2).map(|_| {
        go(|| {
            let _reading = SHARED.read().expect("no panic");
            INSIDE.fetch_add(1, Relaxed);
            wait_until(|| INSIDE.load(Relaxed) == 2);
        })
    }));
}

/// A queue of one place, by hand.
fn a_condvar_wakes_those_who_wait() {
    static PLACE: Mutex<Option<u64>> = Mutex::new(None);
    static CHANGED: Condvar = Condvar::new();
    const ITEMS: u64 = 1_000;
    let takers: Vec<_> = (0..num_cpus() as u64 + 1)
        .map(|_| {
            go(|| {
                let mut sum = 0;
                loop {
                    let place = PLACE.lock().expect("no panic");
                    let mut place = CHANGED.wait_while(place, |p| p.is_none()).expect("no panic");
                    // Zero is the end, and stays for the next taker.
                    match *place {
                        Some(0) => return sum,
                        item => sum += item.unwrap_or(0),
                    }
                    *place = None;
                    CHANGED.notify_all();
                }
            })
        })
        .collect();
    for item in (1..=ITEMS).chain([0]) {
        let place = PLACE.lock().expect("no panic");
        *CHANGED.wait_while(place, |p| p.is_some()).expect("no panic") = Some(item);
        CHANGED.notify_all();
    }
    assert_eq!(join_all(takers).iter().sum::<u64>(), ITEMS * (ITEMS + 1) / 2);
}

fn a_condvar_times_out() {
    static LOCK: Mutex<()> = Mutex::new(());
    static NEVER: Condvar = Condvar::new();
    takes_a_little(|| {
        let held = LOCK.lock().expect("no panic");
        drop(NEVER.wait_timeout_while(held, LITTLE, |_| true));
    });
    assert!(LOCK.try_lock().is_ok(), "the lock was given back");
    static NONE: Semaphore = Semaphore::new(0);
    assert_eq!(takes_a_little(|| NONE.acquire_until(1, LITTLE)), Err(TimedOut));
    static GROUP: WaitGroup = WaitGroup::new();
    GROUP.add(1);
    assert_eq!(takes_a_little(|| GROUP.wait_until(LITTLE)), Err(TimedOut));
    GROUP.done();
}

fn a_semaphore_admits_so_many() {
    static PLACES: Semaphore = Semaphore::new(3);
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static ENTRIES: AtomicUsize = AtomicUsize::new(0);
    let gs = 4 * num_cpus() + 4;
    join_all((0..gs).map(|_| {
        go(|| {
            for i in 0..100 {
                let _permit = PLACES.permit(1);
                assert!(INSIDE.fetch_add(1, Ordering::AcqRel) < 3, "four inside");
                if i % 8 == 0 {
                    yield_now();
                }
                ENTRIES.fetch_add(1, Relaxed);
                INSIDE.fetch_sub(1, Ordering::AcqRel);
            }
        })
    }));
    assert_eq!((ENTRIES.load(Relaxed), PLACES.available()), (100 * gs, 3));
}

fn a_wait_group_waits_for_all() {
    static GROUP: WaitGroup = WaitGroup::new();
    static DONE: AtomicU64 = AtomicU64::new(0);
    for round in 1..=10 {
        for i in 0..200 {
            GROUP.add(1);
            drop(go(move || {
                if i % 10 == 0 {
                    yield_now();
                }
                DONE.fetch_add(1, Relaxed);
                GROUP.done();
            }));
        }
        GROUP.wait();
        assert_eq!(DONE.load(Relaxed), 200 * round);
    }
}

fn once_runs_once() {
    static SETUP: Once = Once::new();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    static COME: AtomicUsize = AtomicUsize::new(0);
    let gs = 8 * num_cpus();
    join_all((0..gs).map(|_| {
        go(move || {
            COME.fetch_add(1, Relaxed);
            SETUP.call_once(|| {
                wait_until(|| COME.load(Relaxed) == gs);
                sleep(LITTLE); // so that they wait
                RUNS.fetch_add(1, Relaxed);
            });
            assert_eq!(RUNS.load(Relaxed), 1, "back before it was done");
        })
    }));
}

fn a_panic_poisons_the_mutex() {
    static LOCK: Mutex<u8> = Mutex::new(0);
    let panicked = go(|| {
        let mut held = LOCK.lock().expect("no panic yet");
        *held = 1;
        yield_now();
        panic!("on purpose");
    });
    let result: Result<(), _> = panicked.join();
    assert_eq!(result, Err(JoinError::Panicked("on purpose".into())));
    let value = match LOCK.lock() {
        Ok(_) => panic!("not poisoned"),
        Err(poisoned) => *poisoned.into_inner(),
    };
    assert_eq!(value, 1, "the lock is free, and has what the G left");
    LOCK.clear_poison();
    assert!(LOCK.lock().is_ok());
}

/// Panics when so many Gs wait for that reason.
fn panic_before(waiting: &[(Reason, usize)]) {
    for &(reason, all) in waiting {
        let waits = |g: &&GInfo| {
            g.state == GState::Waiting && g.wait.is_some_and(|wait| wait.reason == reason)
        };
        wait_until(|| tasks::gs().iter().filter(waits).count() >= all);
    }
    panic!("on purpose");
}

#[track_caller]
fn has_panicked(g: JoinHandle<()>) {
    assert_eq!(g.join(), Err(JoinError::Panicked("on purpose".into())));
}

fn a_panic_poisons_what_is_written() {
    static LOCK: RwLock<u8> = RwLock::new(0);
    let writer = go(|| {
        let mut held = LOCK.write().expect("no panic yet");
        *held = 1;
        panic_before(&[(Reason::RwLockRead, 2), (Reason::RwLockWrite, 2)]);
    });
    wait_until(|| LOCK.try_read().is_err());
    let reads = (0..2).map(|_| go(|| LOCK.read().is_err()));
    let writes = (0..2).map(|_| go(|| LOCK.write().is_err()));
    let waiting: Vec<_> = reads.chain(writes).collect();
    has_panicked(writer);
    assert!(join_all(waiting).into_iter().all(|is_poisoned| is_poisoned));
    assert!(LOCK.read().is_err_and(|poisoned| *poisoned.into_inner() == 1));
    LOCK.clear_poison();
    assert!(LOCK.try_write().is_ok(), "nobody is inside");
}

fn a_panic_of_a_reader_lets_the_writer_in() {
    static LOCK: RwLock<u8> = RwLock::new(0);
    let reader = go(|| {
        let _held = LOCK.read();
        panic_before(&[(Reason::RwLockWrite, 1), (Reason::RwLockRead, 1)]);
    });
    wait_until(|| LOCK.try_write().is_err());
    let waiting = [
        go(|| LOCK.write().is_ok()),
        go(|| {
            wait_until(|| LOCK.try_read().is_err()); // the writer waits
            LOCK.read().is_ok()
        }),
    ];
    has_panicked(reader);
    assert_eq!(join_all(waiting), [true, true], "who reads leaves nothing half done");
    assert!(LOCK.try_write().is_ok(), "nobody is inside");
}

fn a_panic_gives_permits_back() {
    static PLACES: Semaphore = Semaphore::new(3);
    let holder = go(|| {
        let _permits = PLACES.permit(3);
        panic_before(&[(Reason::Semaphore, 2)]);
    });
    wait_until(|| PLACES.available() == 0);
    let waiting: Vec<_> = (1..=2).map(|n| go(move || drop(PLACES.permit(n)))).collect();
    has_panicked(holder);
    join_all(waiting);
    assert_eq!(PLACES.available(), 3);
}

fn a_panic_poisons_the_once() {
    static SETUP: Once = Once::new();
    static INSIDE: AtomicBool = AtomicBool::new(false);
    let first = go(|| {
        SETUP.call_once(|| {
            INSIDE.store(true, Relaxed);
            panic_before(&[(Reason::Once, 2)]);
        });
    });
    wait_until(|| INSIDE.load(Relaxed));
    let waiting = [go(|| SETUP.call_once(|| ())), go(|| SETUP.wait())];
    has_panicked(first);
    let is_told = |g: JoinHandle<()>| matches!(g.join(), Err(JoinError::Panicked(_)));
    assert!(waiting.into_iter().all(is_told) && SETUP.is_poisoned());
    SETUP.call_once_force(|| ());
    SETUP.call_once(|| panic!("it is done"));
}

fn a_panic_closes_its_channels() {
    let (tx, rx) = chan::bounded(2);
    let (rx_gone, tx_gone) = {
        let (tx, rx) = chan::rendezvous::<u8>();
        (rx, tx)
    };
    let panicked = go(move || {
        let _receiver = rx_gone;
        tx.send(1).expect("open");
        panic!("on purpose");
    });
    assert_eq!(tx_gone.send(7), Err(chan::SendError(7)), "its only receiver is gone");
    assert!(rx.iter().eq([1]), "its only sender is gone, what it sent is not");
    assert!(panicked.join().map(|()| "ended well").is_err());
}
