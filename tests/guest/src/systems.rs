//! Checks the scheduling system that was booted (`system=`): that programs run right under it, that
//! what it promises holds, and that what it does not promise does not hold.
//!
//! Each drawback is a count, printed as `SYSTEM <what> <number>`.

use crate::check::{self, checks, join_all, wait_until};
use crate::shares::a_share_is_refused_unless_it_is_promised;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use runnext::go::SpawnError;
use runnext::inspect;
use runnext::prelude::*;
use runnext::stats::PInfo;
use runnext::sync::{Mutex, Semaphore};
use runnext::system::{self, OwnM};
use runnext::tasks;

extern crate alloc;

runnext::main!(systems, main);

fn main() {
    println!("SYSTEM name {}", system::running().name);
    check::run(checks![
        a_g_with_an_m_has_two_stacks, // first, when no M is spare
        channels_locks_timers_and_joins_work,
        gs_run_at_once_if_that_is_promised,
        a_call_that_blocks_lets_others_run_if_that_is_promised,
        a_switch_takes_the_shared_lock_unless_that_is_excluded,
        a_readied_g_runs_next_in_the_same_slice_if_that_is_promised,
        a_search_reads_more_rings_with_more_blocked_calls_unless_it_is_flat,
        a_sleeper_displaces_a_hog_if_that_is_promised,
        an_urgent_g_runs_at_once_if_that_is_promised,
        a_share_is_refused_unless_it_is_promised,
        a_holder_inherits_if_that_is_promised,
        a_hog_that_has_blocked_shares_its_cpu,
        a_lock_that_a_full_stack_has_lost_is_abandoned,
        an_m_is_made_for_each_g_or_used_again,
        there_are_no_more_gs_than_ms_unless_many_are_promised,
        invariants_hold,
    ]);
}

fn figure(name: &str, value: u64) {
    println!("SYSTEM {name} {value}");
}

fn total(count: fn(&PInfo) -> u64) -> u64 {
    stats().cpus.iter().map(count).sum()
}

fn channels_locks_timers_and_joins_work() {
    let (tx, rx) = chan::bounded::<u64>(4);
    let sum = go(move || rx.iter().sum::<u64>());
    let lock = Arc::new(Mutex::new(0u64));
    let senders = (0..8u64).map(|n| {
        let (tx, lock) = (tx.clone(), lock.clone());
        go(move || {
            for i in 0..100 {
                tx.send(n * 100 + i).expect("the receiver is there");
                *lock.lock().expect("nobody dies") += 1;
                if i % 25 == 0 {
                    sleep(Duration::from_micros(50));
                }
                if i % 10 == 0 {
                    yield_now();
                }
            }
        })
    });
    join_all(senders);
    tx.close();
    assert_eq!(sum.join(), Ok((0..800).sum()));
    assert_eq!(*lock.lock().expect("nobody died"), 800);
    let (ping, pinged) = chan::rendezvous();
    let (pong, ponged) = chan::rendezvous();
    let other = go(move || pinged.iter().try_for_each(|n: u32| pong.send(n + 1)).is_ok());
    for n in 0..500 {
        ping.send(n).expect("it is there");
        assert_eq!(ponged.recv(), Ok(n + 1));
    }
    ping.close();
    assert_eq!(other.join(), Ok(true));
    assert!(go(|| panic!("on purpose")).join().is_err());
    // Hogs share a CPU with Gs that call: they are preempted.
    static STOP: AtomicBool = AtomicBool::new(false);
    let hogs: Vec<_> = (0..2 * num_cpus())
        .map(|_| {
            go(|| {
                while !STOP.load(Relaxed) {
                    check::spin();
                }
            })
        })
        .collect();
    assert_eq!(join_all((0..10).map(|n| go(move || n))).len(), 10);
    STOP.store(true, Relaxed);
    join_all(hogs);
    // Thousands of lives, one after the other and in bursts.
    for _ in 0..20 {
        assert_eq!(join_all((0..100u64).map(|n| go(move || n))).into_iter().sum::<u64>(), 4_950);
    }
}

/// As many Gs as CPUs wait for each other without leaving their CPUs.
fn gs_run_at_once_if_that_is_promised() {
    let cpus = num_cpus();
    if system::running().promises.parallel {
        let arrived = Arc::new(AtomicUsize::new(0));
        let meet = |_| {
            let arrived = arrived.clone();
            go(move || {
                arrived.fetch_add(1, Relaxed);
                while arrived.load(Relaxed) < cpus {
                    core::hint::spin_loop();
                }
            })
        };
        join_all((0..cpus).map(meet));
        figure("cpus_used", cpus as u64);
    } else {
        assert_eq!((gomaxprocs(), set_gomaxprocs(cpus), gomaxprocs()), (1, 1, 1));
        let used = join_all((0..200).map(|_| {
            go(|| {
                yield_now();
                current_cpu()
            })
        }));
        assert!(used.iter().all(|&cpu| cpu == used[0]), "more than one CPU: {used:?}");
        figure("cpus_used", 1);
    }
}

/// How often another G got the CPU while a call waited for a clock, on one P.
fn a_call_that_blocks_lets_others_run_if_that_is_promised() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    let ps = set_gomaxprocs(1);
    let other = go(|| {
        while !STOP.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
            yield_now();
        }
    });
    wait_until(|| COUNT.load(Relaxed) > 0);
    let during = blocking(|| {
        let before = COUNT.load(Relaxed);
        sleep(Duration::from_millis(20));
        COUNT.load(Relaxed) - before
    });
    STOP.store(true, Relaxed);
    other.join().expect("it counts");
    set_gomaxprocs(ps);
    figure("others_during_a_call", during);
    match system::running().promises.calls_let_others_run {
        true => assert!(during > 0, "the call stopped the other G"),
        // The sleeper itself may be preempted when it wakes: then the other had a slice.
        false => assert_eq!(during, 0, "the other G ran"),
    }
}

/// Two Gs yield to each other, alone on one P.
fn a_switch_takes_the_shared_lock_unless_that_is_excluded() {
    const YIELDS: u64 = 1_000;
    let ps = set_gomaxprocs(1);
    let before = total(|p| p.locked);
    let twice = || go(|| (0..YIELDS).for_each(|_| yield_now()));
    join_all([twice(), twice()]);
    let locked = total(|p| p.locked) - before;
    set_gomaxprocs(ps);
    figure("locks_in_2000_yields", locked);
    match system::running().promises.no_shared_lock {
        true => assert_eq!(locked, 0),
        false => assert!(locked >= 2 * 2 * YIELDS, "{locked} locks for {} yields", 2 * YIELDS),
    }
}

fn a_readied_g_runs_next_in_the_same_slice_if_that_is_promised() {
    const ROUNDS: u64 = 1_000;
    if check::chaos_on() {
        return;
    }
    let ps = set_gomaxprocs(1);
    let (ping, pinged) = chan::rendezvous();
    let (pong, ponged) = chan::rendezvous();
    let first = go(move || {
        (0..ROUNDS).for_each(|n| {
            ping.send(n).expect("it is there");
            assert_eq!(ponged.recv(), Ok(n));
        });
        inspect::slices()
    });
    let second = go(move || {
        pinged.iter().for_each(|n| pong.send(n).expect("it is there"));
        inspect::slices()
    });
    let slices: u64 = join_all([first, second]).into_iter().sum();
    set_gomaxprocs(ps);
    figure("slices_in_1000_rounds", slices);
    match system::running().promises.run_next {
        true => assert!(slices < ROUNDS / 4, "{slices} slices in {ROUNDS} rounds"),
        false => assert!(slices >= ROUNDS, "{slices} slices in {ROUNDS} rounds"),
    }
}

/// How many rings are read until a G is found that another CPU has, with more and more calls that
/// wait.
fn a_search_reads_more_rings_with_more_blocked_calls_unless_it_is_flat() {
    const ROUNDS: u64 = 20;
    let promises = system::running().promises;
    if !promises.calls_let_others_run || !promises.parallel || num_cpus() < 2 {
        return figure("rings_read_with_200_calls", 0); // a call would stop all; one CPU finds all
    }
    let mut scanned = [0; 3];
    for (calls, scanned) in [0, 50, 200].into_iter().zip(&mut scanned) {
        let gate = Arc::new(Semaphore::new(0));
        let (held, away) = (gate.clone(), stats().ms.blocked);
        let callers: Vec<_> = (0..calls)
            .map(|_| {
                let held = held.clone();
                go(move || blocking(|| held.acquire(1)))
            })
            .collect();
        wait_until(|| stats().ms.blocked >= away + calls);
        let before = total(|p| p.scanned);
        for _ in 0..ROUNDS {
            // The spawner keeps its CPU: another one must find the new G.
            let done = Arc::new(AtomicBool::new(false));
            let told = done.clone();
            let g = go(move || told.store(true, Relaxed));
            while !done.load(Relaxed) {
                core::hint::spin_loop();
            }
            g.join().expect("it says so");
        }
        *scanned = (total(|p| p.scanned) - before) / ROUNDS;
        gate.release(calls as usize);
        join_all(callers);
    }
    figure("rings_read_with_200_calls", scanned[2]);
    match promises.flat_search {
        true => assert_eq!(scanned, [0; 3], "only the rings of Ps are read"),
        false => assert!(scanned[1] >= 50 && scanned[2] >= 200, "{scanned:?} rings"),
    }
}

fn a_sleeper_displaces_a_hog_if_that_is_promised() {
    static STOP: AtomicBool = AtomicBool::new(false);
    if check::chaos_on() {
        return;
    }
    let hog = |_| {
        go(|| {
            while !STOP.load(Relaxed) {
                check::spin();
            }
        })
    };
    let hogs: Vec<_> = (0..2 * num_cpus()).map(hog).collect();
    let before = total(|p| p.displacements);
    // If no sleeper displaces a hog, each waits for the end of a slice or more.
    (0..5).for_each(|_| sleep(Duration::from_millis(1)));
    let displaced = total(|p| p.displacements) - before;
    STOP.store(true, Relaxed);
    join_all(hogs);
    figure("displaced_by_5_sleeps", displaced);
    match system::running().promises.displaces {
        true => assert!(displaced > 0),
        false => assert_eq!(displaced, 0),
    }
}

/// An urgent G has run when the call that readied it returns, beside hogs; else it waits its turn.
fn an_urgent_g_runs_at_once_if_that_is_promised() {
    const ROUNDS: u64 = 5;
    static STOP: AtomicBool = AtomicBool::new(false);
    static SEEN: AtomicU64 = AtomicU64::new(0);
    if check::chaos_on() {
        return;
    }
    let (tx, rx) = chan::bounded(1);
    let urgent = Go::new().priority(Priority::Urgent).spawn(move || {
        tx.send(current()).expect("it is awaited");
        while !STOP.load(Relaxed) {
            park();
            SEEN.fetch_add(1, Relaxed);
        }
    });
    let urgent = (urgent.expect("memory"), rx.recv().expect("it says"));
    let hog = |_| {
        go(|| {
            while !STOP.load(Relaxed) {
                check::spin();
            }
        })
    };
    let hogs: Vec<_> = (0..2 * num_cpus()).map(hog).collect();
    let at_once = (0..ROUNDS).filter(|_| {
        sleep(Duration::from_millis(1)); // it parks meanwhile
        let before = SEEN.load(Relaxed);
        urgent.1.unpark();
        SEEN.load(Relaxed) > before
    });
    let at_once = at_once.count() as u64;
    STOP.store(true, Relaxed);
    urgent.1.unpark();
    join_all(hogs);
    urgent.0.join().expect("no panic");
    figure("urgent_at_once", at_once);
    match system::running().promises.priorities {
        true => assert_eq!(at_once, ROUNDS),
        false => assert!(at_once < ROUNDS, "{at_once} of {ROUNDS}"),
    }
}

/// A background G holds a lock, then is joined, while an urgent G waits for it. Its priority is kept
/// under each system.
fn a_holder_inherits_if_that_is_promised() {
    static LOCK: Mutex<()> = Mutex::new(());
    static JOINS: AtomicBool = AtomicBool::new(false);
    let is_promised = system::running().promises.priorities;
    let (tx, rx) = chan::bounded(1);
    let (unlocks, unlocked) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (its_unlocks, its_unlocked) = (unlocks.clone(), unlocked.clone());
    let holder = Go::new().priority(Priority::Background).spawn(move || {
        let held = LOCK.lock().expect("no panic");
        tx.send(current().id()).expect("it is awaited");
        its_unlocks.acquire(1);
        drop(held);
        its_unlocked.acquire(1);
    });
    let holder = holder.expect("memory");
    let id = rx.recv().expect("it says");
    let is_lent = move || {
        let g = tasks::gs().into_iter().find(|g| g.id == id).expect("it lives");
        assert_eq!(g.priority, Priority::Background, "its own");
        g.rank != if is_promised { Priority::Background } else { Priority::Normal }
    };
    let holds = || match is_promised {
        true => wait_until(is_lent),
        false => assert!(!(0..10).any(|_| {
            sleep(Duration::from_micros(200));
            is_lent()
        })),
    };
    let urgent = Go::new().priority(Priority::Urgent).spawn(move || {
        drop(LOCK.lock().expect("no panic"));
        JOINS.store(true, Relaxed); // what the lock was lent is over
        holder.join().expect("no panic");
    });
    let urgent = urgent.expect("memory");
    holds();
    unlocks.release(1);
    wait_until(|| JOINS.load(Relaxed));
    holds();
    unlocked.release(1);
    urgent.join().expect("no panic");
}

/// Both on one CPU. The timer that has ended the wait must not be the last of the slice.
fn a_hog_that_has_blocked_shares_its_cpu() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Relaxed);
    let counts = check::go_on(0, || {
        while !STOP.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
        }
    });
    let waits = check::go_on(0, || {
        blocking(|| sleep(Duration::from_micros(100)));
        let before = COUNT.load(Relaxed);
        while COUNT.load(Relaxed) == before {
            core::hint::spin_loop();
        }
        STOP.store(true, Relaxed);
    });
    assert!(waits.join().is_ok() && counts.join().is_ok());
}

fn a_lock_that_a_full_stack_has_lost_is_abandoned() {
    let lock = crate::overflow::lose_a_lock();
    assert!(lock.try_lock().is_err(), "free");
    assert!(lock.is_poisoned(), "held for ever");
}

fn an_m_is_made_for_each_g_or_used_again() {
    const LIVES: u64 = 500;
    let before = stats().ms.made;
    for n in 0..LIVES {
        assert_eq!(go(move || n).join(), Ok(n));
    }
    let made = stats().ms.made - before;
    figure("ms_made_for_500_gs", made);
    match system::running().rules.m {
        OwnM::Fresh => {
            assert!(made >= LIVES, "{made} Ms for {LIVES} Gs");
            // And freed: there are as many as Gs, and two for each CPU.
            let (ms, most) = (stats().ms.created, stats().alive() + 2 * num_cpus() as u64);
            assert!(ms <= most, "{ms} Ms, {most} at most");
        }
        _ => assert!(made <= 2 * num_cpus() as u64, "{made} Ms for {LIVES} Gs"),
    }
}

/// The memory of a G that waits.
fn a_g_with_an_m_has_two_stacks() {
    const GS: usize = 400;
    // Each CPU makes an M when it comes up, and some may do so only now.
    wait_until(|| stats().ms.created >= num_cpus() as u64);
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Arc::new(AtomicUsize::new(0));
    let before = inspect::memory().frames.free;
    let ms = stats().ms.created;
    let wait = |_| {
        let (gate, waiting) = (gate.clone(), waiting.clone());
        go(move || {
            waiting.fetch_add(1, Relaxed);
            gate.acquire(1);
        })
    };
    let gs: Vec<_> = (0..GS).map(wait).collect();
    wait_until(|| waiting.load(Relaxed) == GS);
    let bytes = before.saturating_sub(inspect::memory().frames.free) * inspect::PAGE_SIZE / GS;
    let more = stats().ms.created - ms;
    gate.release(GS);
    join_all(gs);
    figure("bytes_of_a_waiting_g", bytes as u64);
    figure("ms_for_400_waiting_gs", more);
    match system::running().rules.m {
        OwnM::InCalls => assert!(more == 0, "{more} Ms for Gs that wait"),
        // Some were there: for each CPU one, and one that it keeps.
        _ => assert!(more + 2 * num_cpus() as u64 >= GS as u64, "{more} Ms for {GS} Gs"),
    }
}

fn there_are_no_more_gs_than_ms_unless_many_are_promised() {
    const GS: usize = 10_500;
    let gate = Arc::new(Semaphore::new(0));
    let wait = || {
        let gate = gate.clone();
        Go::new().spawn(move || gate.acquire(1))
    };
    let mut gs = Vec::new();
    let refused = loop {
        match wait() {
            Ok(g) => gs.push(g),
            Err(error) => break Some(error),
        }
        if gs.len() == GS {
            break None;
        }
    };
    let n = gs.len();
    gate.release(n);
    join_all(gs);
    figure("gs_at_once", n as u64);
    match system::running().promises.many_gs {
        true => assert_eq!((refused, n), (None, GS)),
        false => assert!(refused == Some(SpawnError::TooManyMs) && n > 9_000, "{refused:?}, {n}"),
    }
    // The others go on, also with a stack of another size than those that have ended had.
    assert_eq!(go(|| 1).join(), Ok(1));
    let large = Go::new().stack_size(1 << 20).spawn(|| 2).map(JoinHandle::join);
    assert_eq!(large, Ok(Ok(2)));
}

fn invariants_hold() {
    let census = runnext::internals::invariant::check().expect("memory for a few Gs");
    census.unwrap_or_else(|violated| panic!("{violated}"));
}
