//! Checks blocking calls: who leaves, who goes on, and that nobody is lost.
//!
//! Counts and order only, except in `handoff_gap`, which is for virtual time.

use crate::check::{self, checks, counters, go_on, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::blocking::{BlockingError, MState, ms};
use runnext::inspect::now_ns;
use runnext::prelude::*;
use runnext::sync::{Mutex, Semaphore};
use runnext::tasks;
use runnext::waiting::Reason;

runnext::main!(blocking, main);
runnext::main!(call_limit, call_limit);
runnext::main!(handoff_gap, handoff_gap);

fn main() {
    check::run(checks![
        a_call_that_does_not_wait_hands_nothing_over,
        a_p_is_handed_over_exactly_when_a_call_waits,
        others_run_while_the_only_cpu_is_left_by_a_call,
        a_thousand_calls_wait_on_a_thousand_stacks,
        ms_are_used_again_and_none_leaks,
        calls_that_end_in_any_order_lose_nobody,
        a_call_goes_on_where_it_was_if_that_cpu_is_idle,
        a_pinned_g_comes_back_to_its_cpu,
        a_call_that_does_not_end_is_preempted,
        a_call_inside_a_call_is_the_same_call,
        a_panic_in_a_call_unwinds_to_its_caller,
        whoever_waits_for_a_lock_in_a_call_keeps_nobody_from_letting_it_go,
        sleepers_in_calls_wake_in_time,
        calls_that_wake_each_other_lose_nothing,
        gomaxprocs_changes_while_calls_wait,
    ]);
}

fn handoffs() -> u64 {
    stats().cpus.iter().map(|cpu| cpu.handoffs).sum()
}

/// For how many hand-overs since `before` a call has waited. A G may also be taken off
/// its CPU in the middle of a call, by the end of its slice or because another is to
/// run there, and then its P is handed over as well: so on a slow host there may be
/// as many more. They are counted before the P is handed over, and so read after.
fn handed_over(before: (u64, u64)) -> core::ops::RangeInclusive<u64> {
    let handed = handoffs() - before.0;
    handed.saturating_sub(interruptions() - before.1)..=handed
}

fn interruptions() -> u64 {
    stats().cpus.iter().map(|cpu| cpu.preemptions + cpu.displacements).sum()
}

fn is_blocked(calls: u64) -> bool {
    stats().ms.blocked == calls
}

fn a_call_that_does_not_wait_hands_nothing_over() {
    if check::chaos_on() {
        return;
    }
    assert_eq!(blocking(|| 1), 1); // there is a spare M from here on
    let before = (handoffs(), interruptions());
    let created = stats().ms.created;
    let sum: u64 = (0..1_000u64).map(|n| blocking(move || n)).sum();
    assert_eq!(sum, 499_500);
    assert!(handed_over(before).contains(&0), "{:?}", handed_over(before));
    assert!(stats().ms.created <= created + num_cpus() as u64, "an M for every CPU will do");
}

fn a_p_is_handed_over_exactly_when_a_call_waits() {
    if check::chaos_on() {
        return;
    }
    const ROUNDS: u64 = 100;
    let before = (handoffs(), interruptions());
    for round in 0..ROUNDS {
        let (tx, rx) = chan::rendezvous();
        let caller = go(move || blocking(|| rx.recv()));
        wait_until(|| is_blocked(1));
        assert!(handed_over(before).contains(&(round + 1)), "{:?}", handed_over(before));
        tx.send(round).expect("it waits");
        assert_eq!(caller.join(), Ok(Ok(round)));
    }
    assert!(handed_over(before).contains(&ROUNDS), "{:?}", handed_over(before));
}

fn others_run_while_the_only_cpu_is_left_by_a_call() {
    let (tx, rx) = chan::rendezvous();
    // All on one CPU, whatever there is.
    let caller = go_on(0, move || blocking(|| rx.recv()));
    wait_until(|| is_blocked(1));
    let others = (0..10).map(|n| {
        go_on(0, move || {
            for _ in 0..100 {
                yield_now();
            }
            n
        })
    });
    assert_eq!(join_all(others), (0..10).collect::<Vec<_>>());
    assert!(is_blocked(1), "the call waits still");
    tx.send(7).expect("it waits");
    assert_eq!(caller.join(), Ok(Ok(7)));
}

const CALLS: usize = 1_000;

/// So that its name is in the backtrace.
#[inline(never)]
fn waits_in_its_call(gate: &Semaphore) {
    gate.acquire(1);
    core::hint::black_box(gate);
}

fn a_thousand_calls_wait_on_a_thousand_stacks() {
    static GATE: Semaphore = Semaphore::new(0);
    let callers: Vec<_> =
        (0..CALLS).map(|_| go(|| blocking(|| waits_in_its_call(&GATE)))).collect();
    // Not only off its CPU: a call that was preempted in the first instructions of `acquire` has
    // no frame there yet, and a walk along the frames would miss its caller.
    let waits = |g: &tasks::GInfo| g.wait.is_some_and(|wait| wait.reason == Reason::Semaphore);
    let all_wait = || tasks::gs().iter().filter(|g| waits(g)).count() == CALLS;
    wait_until(|| is_blocked(CALLS as u64) && all_wait());

    let mut stacks: Vec<_> = ms().into_iter().filter(|m| m.state == MState::InCall).collect();
    assert_eq!(stacks.len(), CALLS);
    for m in &stacks {
        let calls = tasks::backtrace(m.g).expect("it waits");
        let in_its_call = |frame: &tasks::Frame| frame.to_string().contains("waits_in_its_call");
        assert!(calls.iter().any(in_its_call), "M {} is elsewhere: {calls:x?}", m.id);
    }
    let mut gs: Vec<_> = stacks.iter().map(|m| m.g).collect();
    gs.sort_unstable();
    gs.dedup();
    assert_eq!(gs.len(), CALLS, "each with a G of its own");
    stacks.sort_unstable_by_key(|m| m.stack.start);
    assert!(
        stacks.windows(2).all(|two| two[0].stack.end <= two[1].stack.start),
        "two share a stack"
    );

    // Everybody else runs as if nothing were: four times as many as there are CPUs.
    let progress: &'static [AtomicU64] = counters(4 * num_cpus());
    join_all(progress.iter().map(|count| {
        go(move || {
            for _ in 0..1_000 {
                count.fetch_add(1, Relaxed);
                yield_now();
            }
        })
    }));
    assert!(progress.iter().all(|count| count.load(Relaxed) == 1_000));
    assert!(is_blocked(CALLS as u64));
    GATE.release(CALLS);
    join_all(callers);
    wait_until(|| is_blocked(0));
}

fn ms_are_used_again_and_none_leaks() {
    static GATE: Semaphore = Semaphore::new(0);
    let round = || {
        let callers: Vec<_> = (0..100).map(|_| go(|| blocking(|| GATE.acquire(1)))).collect();
        wait_until(|| is_blocked(100));
        GATE.release(100);
        join_all(callers);
        wait_until(|| is_blocked(0));
        stats().ms
    };
    let first = round();
    for _ in 0..10 {
        let now = round();
        // Each CPU may keep a spare one that it did not need before.
        assert!(now.created <= first.created + num_cpus() as u64, "{first:?}, then {now:?}");
    }
    let now = stats().ms;
    wait_until(|| {
        let now = stats().ms;
        now.spare + num_cpus() as u64 == now.created
    });
    assert_eq!(now.blocked, 0);
}

fn calls_that_end_in_any_order_lose_nobody() {
    const N: usize = 300;
    let (txs, rxs): (Vec<_>, Vec<_>) = (0..N).map(|_| chan::bounded::<usize>(1)).unzip();
    let callers: Vec<_> =
        rxs.into_iter().map(|rx| go(move || blocking(|| rx.recv().expect("open")))).collect();
    wait_until(|| is_blocked(N as u64));
    // 7 has no factor in common with 300: every one, but in no order.
    for i in 0..N {
        let i = i * 7 % N;
        txs[i].send(i).expect("open");
        if i.is_multiple_of(5) {
            yield_now();
        }
    }
    assert_eq!(join_all(callers), (0..N).collect::<Vec<_>>());
}

fn a_call_goes_on_where_it_was_if_that_cpu_is_idle() {
    if check::chaos_on() {
        return;
    }
    const ROUNDS: usize = 40;
    if num_cpus() == 1 {
        return; // the CPU is not idle: who readies the call is there
    }
    // Who readies the call is on the first CPU, the call on another.
    let rounds = || core::iter::from_fn(|| Some(comes_back())).flatten().take(ROUNDS);
    let same = go_on(0, move || rounds().filter(|&same| same).count()).join().expect("no panic");
    // A third CPU may take the G from there when it is readied.
    assert!(same * 2 >= ROUNDS, "{same} of {ROUNDS}");
}

/// Whether a call that waits goes on where it was, on a CPU that has halted since.
/// None if it was on this one.
fn comes_back() -> Option<bool> {
    static HOME: AtomicUsize = AtomicUsize::new(0);
    static HALTS: AtomicU64 = AtomicU64::new(0);
    let halts = |cpu: usize| stats().cpus[cpu].halts;
    let (tx, rx) = chan::rendezvous();
    let call = move || {
        let before = current_cpu();
        HALTS.store(halts(before), Relaxed);
        HOME.store(before, Relaxed);
        blocking(|| rx.recv().expect("open"));
        before == current_cpu()
    };
    // It runs next there, and is not pinned.
    let caller = go_on(num_cpus() - 1, || go(call)).join().expect("no panic");
    wait_until(|| is_blocked(1));
    let home = HOME.load(Relaxed);
    wait_until(|| home == current_cpu() || halts(home) > HALTS.load(Relaxed));
    // Our own CPU may have been woken to look for work, and then wakes another when
    // it finds us: its home would be about to look, not idle. A timer does not.
    sleep(Duration::from_millis(2));
    tx.send(()).expect("it waits");
    let same = caller.join().expect("no panic");
    (home != current_cpu()).then_some(same)
}

fn a_pinned_g_comes_back_to_its_cpu() {
    for cpu in 0..num_cpus() {
        let (tx, rx) = chan::rendezvous();
        let caller = go_on(cpu, move || {
            let inside = blocking(|| {
                rx.recv().expect("open");
                current_cpu()
            });
            (inside, current_cpu())
        });
        wait_until(|| is_blocked(1));
        // From here on another CPU would be better.
        let stop = &counters::<AtomicBool>(1)[0];
        let hog = go_on(cpu, || {
            while !stop.load(Relaxed) {
                check::spin();
            }
        });
        tx.send(()).expect("it waits");
        assert_eq!(caller.join(), Ok((cpu, cpu)));
        stop.store(true, Relaxed);
        hog.join().expect("no panic");
    }
}

fn a_call_that_does_not_end_is_preempted() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let hog = go_on(0, || {
        blocking(|| {
            while !STOP.load(Relaxed) {
                check::spin();
            }
        });
    });
    go_on(0, || STOP.store(true, Relaxed)).join().expect("no panic");
    hog.join().expect("no panic");
}

fn a_call_inside_a_call_is_the_same_call() {
    let (outer, inner) = blocking(|| {
        let here = |_: ()| core::ptr::from_ref(&core::hint::black_box(0u8)).addr();
        (here(()), blocking(|| here(())))
    });
    let is_on = |address: usize| ms().iter().position(|m| m.stack.contains(&(address as u64)));
    assert!(is_on(outer).is_some(), "a call is on the stack of an M");
    assert_eq!(is_on(outer), is_on(inner));
}

fn a_panic_in_a_call_unwinds_to_its_caller() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
    for _ in 0..10 {
        let joined = go(|| {
            let _outside = Guard;
            blocking(|| {
                let _inside = Guard;
                yield_now(); // perhaps on another CPU from here on
                panic!("in its call");
            })
        })
        .join();
        assert_eq!(joined, Err(JoinError::Panicked("in its call".into())));
    }
    assert_eq!(DROPPED.load(Relaxed), 20);
    assert_eq!(blocking(|| 5), 5);
}

/// The trap of a fixed number of threads: all of them wait for a lock whose
/// holder waits for a thread.
fn whoever_waits_for_a_lock_in_a_call_keeps_nobody_from_letting_it_go() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    let calls = 4 * num_cpus();
    let mut held = LOCK.lock().expect("no panic");
    let callers: Vec<_> =
        (0..calls).map(|_| go(|| blocking(|| *LOCK.lock().expect("no panic") += 1))).collect();
    wait_until(|| is_blocked(calls as u64));
    *held += 1;
    drop(held);
    join_all(callers);
    assert_eq!(*LOCK.lock().expect("no panic"), calls + 1);
}

fn sleepers_in_calls_wake_in_time() {
    const NAP: Duration = Duration::from_millis(2);
    join_all((0..100).map(|_| {
        go(|| {
            let start = Instant::now();
            blocking(|| sleep(NAP));
            assert!(start.elapsed() >= NAP);
        })
    }));
}

/// Every value is a hand-over there and one back, and often the one who is woken
/// has not left its CPU yet.
fn calls_that_wake_each_other_lose_nothing() {
    const ROUNDS: u64 = 200;
    let pairs = (0..8).map(|_| {
        let (ping, ping_rx) = chan::rendezvous::<u64>();
        let (pong, pong_rx) = chan::rendezvous::<u64>();
        let echo = go(move || {
            blocking(|| ping_rx.iter().for_each(|n| pong.send(n + 1).expect("open")));
        });
        let sum = go(move || {
            blocking(|| {
                (0..ROUNDS).fold(0, |n, _| {
                    ping.send(n).expect("open");
                    pong_rx.recv().expect("open")
                })
            })
        });
        (echo, sum)
    });
    let (echos, sums): (Vec<_>, Vec<_>) = pairs.unzip();
    assert_eq!(join_all(sums), [ROUNDS; 8]);
    join_all(echos);
    wait_until(|| is_blocked(0));
}

fn gomaxprocs_changes_while_calls_wait() {
    static GATE: Semaphore = Semaphore::new(0);
    const CALLS: usize = 50;
    let callers: Vec<_> = (0..CALLS)
        .map(|n| {
            go(move || {
                blocking(|| GATE.acquire(1));
                n
            })
        })
        .collect();
    wait_until(|| is_blocked(CALLS as u64));
    let all = gomaxprocs();
    for n in [1, all, 1.max(all / 2)] {
        set_gomaxprocs(n);
        GATE.release(CALLS / 5);
        yield_now();
    }
    set_gomaxprocs(1);
    GATE.release(CALLS - 3 * (CALLS / 5));
    assert_eq!(join_all(callers), (0..CALLS).collect::<Vec<_>>());
    set_gomaxprocs(all);
}

/// More calls than there may be Ms: an error for each that is too many, and all
/// others go on.
fn call_limit() {
    const N: usize = 10_050;
    static GATE: Semaphore = Semaphore::new(0);
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let callers: Vec<_> = (0..N)
        .map(|_| {
            go(|| match try_blocking(|| GATE.acquire(1)) {
                Ok(()) => true,
                Err(error) => {
                    assert_eq!(error, BlockingError::TooMany);
                    REFUSED.fetch_add(1, Relaxed);
                    false
                }
            })
        })
        .collect();
    wait_until(|| stats().ms.blocked as usize + REFUSED.load(Relaxed) == N);
    println!("LIMIT {} Ms, {} refused", stats().ms.created, REFUSED.load(Relaxed));
    GATE.release(N);
    let made = join_all(callers).into_iter().filter(|&made| made).count();
    assert_eq!(made + REFUSED.load(Relaxed), N);
    assert_eq!(try_blocking(|| 1), Ok(1));
}

/// How long another G waits for the P of a call that waits, in virtual time.
fn handoff_gap() {
    const ROUNDS: usize = 100;
    let mut gaps: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            static WAITS_FROM: AtomicU64 = AtomicU64::new(0);
            let caller = go_on(0, || {
                let other = go_on(0, || now_ns() - WAITS_FROM.load(Relaxed));
                blocking(|| {
                    WAITS_FROM.store(now_ns(), Relaxed);
                    sleep(Duration::from_millis(50));
                });
                other.join().expect("no panic")
            });
            caller.join().expect("no panic")
        })
        .collect();
    gaps.sort_unstable();
    println!("GAP {} {} {}", gaps[0], gaps[ROUNDS / 2], gaps[ROUNDS - 1]);
}
