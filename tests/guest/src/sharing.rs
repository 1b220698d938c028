//! Checks of `syncing` about locks that change hands, and about what is told to many Gs: under
//! kills too, at each of their waits.

use crate::check::{join_all, wait_until};
use crate::killing::{end, go_until};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::go::goexit;
use runnext::prelude::*;
use runnext::select::Select;
use runnext::sync::broadcast::{self, RecvError};
use runnext::sync::{
    Barrier, ErrGroup, GroupError, JoinSet, LockError, Mutex, Notify, RwLock,
    RwLockUpgradableGuard, RwLockWriteGuard, Semaphore, TimedOut, watch,
};
use runnext::tasks::GState;

extern crate alloc;

/// A guard, a writer and a permit go through Gs on all CPUs, each of which drops what it gets.
pub fn an_owned_guard_is_dropped_in_another_g() {
    let (lock, table) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let desks = Arc::new(Semaphore::new(2));
    const EACH: usize = 100;
    let adders: Vec<_> = (0..2 * num_cpus())
        .map(|_| {
            let (lock, table, desks) = (lock.clone(), table.clone(), desks.clone());
            go(move || {
                for _ in 0..EACH {
                    let mut held = lock.lock_owned().expect("no panic");
                    let others = go(move || *held += 1);
                    let mut writing = table.write_owned().expect("no panic");
                    let permit = desks.permit_owned(1);
                    let more = go(move || {
                        *writing += 1;
                        drop(permit);
                    });
                    others.join().expect("no panic");
                    more.join().expect("no panic");
                }
            })
        })
        .collect();
    let gs = adders.len();
    join_all(adders);
    assert_eq!(*lock.lock().expect("free"), gs * EACH);
    assert_eq!(*table.read_owned().expect("free"), gs * EACH);
    assert_eq!(desks.available(), 2);
}

pub fn a_killed_g_frees_what_it_owns() {
    let (lock, table) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let desk = Arc::new(Semaphore::new(1));
    let owned = (lock.lock_owned(), table.write_owned(), desk.permit_owned(1));
    let (id, g) = go_until(GState::Waiting, move || {
        let _owned = owned;
        park();
    });
    let (_, next) = {
        let lock = lock.clone();
        go_until(GState::Waiting, move || lock.lock().is_err())
    };
    end(id);
    assert_eq!(g.join(), Err(JoinError::Killed));
    assert_eq!(next.join(), Ok(true), "poisoned, as by a panic");
    assert!(table.is_poisoned() && table.try_write().is_err_and(|error| error.guard().is_some()));
    assert_eq!(desk.available(), 1);
}

/// A destructor that panics while its G unwinds has the G abandoned, with what it owns.
pub fn an_abandoned_g_keeps_what_it_owns() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a second panic, on purpose");
        }
    }
    let lock = Arc::new(Mutex::new(0));
    let held = lock.lock_owned().expect("free");
    let g = go(move || {
        let _held = held;
        let _bad = Bad;
        panic!("the first panic, on purpose");
    });
    assert!(g.join().is_err());
    assert!(matches!(lock.try_lock(), Err(LockError::Held)), "as a permit would be");
    let limit = Duration::from_millis(1);
    assert!(matches!(lock.lock_until(limit), Err(LockError::Held)));
    assert!(!lock.is_poisoned());
}

pub fn no_upgrade_and_no_downgrade_is_lost() {
    let lock = Arc::new(RwLock::new(0_usize));
    const EACH: usize = 100;
    let gs: Vec<_> = (0..3 * num_cpus())
        .map(|n| {
            let lock = lock.clone();
            go(move || {
                for _ in 0..EACH {
                    if n % 3 == 0 {
                        let reading = lock.upgradable_read().expect("no panic");
                        let before = *reading;
                        yield_now();
                        let upgraded = RwLockUpgradableGuard::upgrade(reading);
                        let mut writing = upgraded.expect("no panic");
                        assert_eq!(*writing, before, "a writer came between");
                        *writing += 1;
                    } else if n % 3 == 1 {
                        let mut writing = lock.write().expect("no panic");
                        *writing += 1;
                        let mine = *writing;
                        let reading = RwLockWriteGuard::downgrade(writing);
                        yield_now();
                        assert_eq!(*reading, mine, "a writer came between");
                    } else {
                        assert!(*lock.read().expect("no panic") <= 2 * num_cpus() * EACH);
                    }
                }
            })
        })
        .collect();
    join_all(gs);
    assert_eq!(*lock.read().expect("free"), 2 * num_cpus() * EACH);
}

pub fn every_g_of_a_round_passes_the_barrier() {
    const ROUNDS: usize = 50;
    let gs = 2 * num_cpus() + 1;
    let shared = Arc::new((Barrier::new(gs), AtomicUsize::new(0)));
    let runners: Vec<_> = (0..gs)
        .map(|_| {
            let shared = shared.clone();
            go(move || {
                let (barrier, arrived) = &*shared;
                let mut led = 0;
                for round in 1..=ROUNDS {
                    arrived.fetch_add(1, Relaxed);
                    led += usize::from(barrier.wait().is_leader());
                    assert!(arrived.load(Relaxed) >= gs * round, "before all were there");
                }
                led
            })
        })
        .collect();
    assert_eq!(join_all(runners).iter().sum::<usize>(), ROUNDS);
}

pub fn a_barrier_does_not_count_the_killed() {
    let barrier = Arc::new(Barrier::new(2));
    let waits = |barrier: &Arc<Barrier>| {
        let barrier = barrier.clone();
        go_until(GState::Waiting, move || barrier.wait().is_leader())
    };
    let (id, killed) = waits(&barrier);
    end(id);
    assert_eq!(killed.join(), Err(JoinError::Killed));
    let (_, first) = waits(&barrier);
    assert!(barrier.wait().is_leader());
    assert_eq!(first.join(), Ok(false));
}

pub fn a_notification_is_not_lost_with_a_killed_waiter() {
    let notify = Arc::new(Notify::new());
    let waits = || {
        let notify = notify.clone();
        go_until(GState::Waiting, move || notify.wait())
    };
    let ((id, first), (_, second)) = (waits(), waits());
    end(id);
    notify.notify_one();
    assert_eq!((first.join(), second.join()), (Err(JoinError::Killed), Ok(())));
    notify.notify_one();
    notify.wait();
}

/// Receivers that are killed while they wait, and senders that are while they ring.
pub fn a_broadcast_reaches_all_in_spite_of_kills() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    const SENDERS: usize = 6;
    SENT.store(0, Relaxed);
    let (tx, rx) = broadcast::channel::<usize>(1 << 14);
    let counts: Vec<_> = (0..num_cpus() + 1)
        .map(|_| {
            let mut rx = rx.clone();
            go(move || {
                let mut received = 0;
                loop {
                    match rx.recv() {
                        Ok(_) => received += 1,
                        Err(RecvError::Missed(n)) => received += n as usize,
                        Err(_) => return received,
                    }
                }
            })
        })
        .collect();
    let (idle, idler) = {
        let mut rx = rx.clone();
        assert_eq!(rx.try_recv(), Err(RecvError::Empty));
        go_until(GState::Waiting, move || rx.recv())
    };
    drop(rx);
    end(idle);
    assert!(idler.join().is_err());
    let senders: Vec<_> = (0..SENDERS)
        .map(|n| {
            let tx = tx.clone();
            go_until(GState::Waiting, move || {
                loop {
                    // Counted first: a kill finds it in the middle of sending, or waiting here.
                    sleep(Duration::from_micros(50));
                    SENT.fetch_add(1, Relaxed);
                    tx.send(n);
                }
            })
        })
        .collect();
    wait_until(|| SENT.load(Relaxed) >= 10 * SENDERS);
    for (id, g) in senders {
        end(id);
        assert_eq!(g.join(), Err::<(), _>(JoinError::Killed));
    }
    drop(tx);
    let received = join_all(counts);
    assert!(received.iter().all(|&n| n == received[0]), "{received:?}");
    // A kill between the count and the send takes one of a sender's values at most.
    assert!((SENT.load(Relaxed) - SENDERS..=SENT.load(Relaxed)).contains(&received[0]));
}

pub fn a_watch_ends_at_the_last_value() {
    let (tx, rx) = watch::channel(0_usize);
    let watchers: Vec<_> = (0..num_cpus() + 1)
        .map(|_| {
            let mut rx = rx.clone();
            go(move || {
                let mut last = 0;
                while let Ok(value) = rx.changed() {
                    assert!(*value > last, "twice, or back in time");
                    last = *value;
                }
                last
            })
        })
        .collect();
    (1..=500).for_each(|n| tx.send(n));
    drop(tx);
    assert!(join_all(watchers).iter().all(|&last| last == 500));
}

pub fn a_group_ends_with_its_first_error() {
    let parent = Context::new();
    for way in 0..3 {
        let mut group: ErrGroup<usize> = ErrGroup::new(&parent);
        let (_tx, rx) = chan::bounded::<usize>(1);
        let (tell, told) = chan::oneshot();
        for n in 0..5 {
            let rx = rx.clone();
            group.go(move |context| rx.recv_until(context).map(drop).map_err(|_| 100 + n));
        }
        group.go(move |_| {
            tell.send(current().id()).expect("it is asked");
            match way {
                0 => Err(1),
                1 => panic!("on purpose"),
                _ => {
                    park();
                    Ok(())
                }
            }
        });
        let id = told.recv().expect("it says so");
        if way == 2 {
            end(id);
        }
        let ended = group.wait();
        match way {
            0 => assert_eq!(ended, Err(GroupError::Failed(1))),
            // Of those that it has cancelled, one was the first that gave an error.
            _ => assert!(matches!(ended, Err(GroupError::Failed(100..105))), "{ended:?}"),
        }
    }
    assert_eq!(parent.over(), None, "a group cancels its own Gs only");
}

/// Ends in every way there is, and tells it by its place in the set.
pub fn a_join_set_has_every_end_once() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a second panic, on purpose");
        }
    }
    const EACH: usize = 12;
    let mut set = JoinSet::new();
    for n in 0..EACH {
        set.go(move || n);
        set.go(|| panic!("on purpose"));
        set.go(|| {
            let _bad = Bad;
            panic!("on purpose");
        });
        set.go(|| goexit());
        set.go(|| {
            park();
            0
        });
        // What is not started is not waited for.
        let too_large = Go::new().stack_size(usize::MAX);
        assert_eq!(set.spawn(too_large, || 0), Err(SpawnError::StackTooLarge));
    }
    let (mut returned, mut panicked, mut exited, mut killed) = (0, 0, 0, 0);
    for _ in 0..4 * EACH {
        match set.join_next().expect("they end without a kill") {
            Ok(n) => returned += 1 << n,
            Err(JoinError::Panicked(_)) => panicked += 1,
            Err(JoinError::Exited) => exited += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((returned, panicked, exited), ((1 << EACH) - 1, 2 * EACH, EACH));
    assert_eq!((set.len(), set.try_join_next()), (EACH, None));
    set.kill_all();
    while let Some(ended) = set.join_next() {
        assert_eq!(ended, Err(JoinError::Killed));
        killed += 1;
    }
    assert_eq!((killed, set.is_empty()), (EACH, true));
    assert_eq!(set.join_next_until(Duration::ZERO), Ok(None));
}

pub fn a_join_set_loses_nothing_with_a_waiter_that_is_killed_or_late() {
    const ROUNDS: usize = 30;
    let gate = Arc::new(Semaphore::new(0));
    let set = Arc::new(Mutex::new(JoinSet::new()));
    let gs = 2 * num_cpus();
    for round in 0..ROUNDS {
        let mut held = set.lock().unwrap_or_else(LockError::into_inner);
        for n in 0..gs {
            let gate = gate.clone();
            held.go(move || {
                gate.acquire(1);
                n
            });
        }
        assert_eq!(held.join_next_until(Duration::from_micros(10)), Err(TimedOut));
        drop(held);
        let waits = set.clone();
        let (id, waiter) = go_until(GState::Waiting, move || {
            waits.lock().unwrap_or_else(LockError::into_inner).join_next()
        });
        // Before the first ends, or as it does.
        if round % 2 == 0 {
            end(id);
            gate.release(gs);
        } else {
            gate.release(gs);
            end(id);
        }
        let mut ended: Vec<usize> = Vec::new();
        if let Ok(Some(Ok(n))) = waiter.join() {
            ended.push(n);
        }
        let mut held = set.lock().unwrap_or_else(LockError::into_inner);
        let (_tx, rx) = chan::bounded::<u32>(1);
        loop {
            select! {
                join_next(held) -> next => match next {
                    Some(n) => ended.push(n.expect("no panic")),
                    None => break,
                },
                recv(rx) => unreachable!("it is open and empty"),
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..gs).collect::<Vec<_>>(), "round {round}");
    }
}

/// A G waits in each of the new ways, and is killed there.
pub fn kills_at_every_wait_leave_it_usable() {
    let (lock, table) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let (desk, notify) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let (news, mut heard) = broadcast::channel::<u32>(4);
    let (told, mut seen) = watch::channel(0_u32);
    let held = lock.lock().expect("free");
    let reading = table.read().expect("free");
    let mut waits: Vec<(u64, JoinHandle<()>)> = Vec::new();
    macro_rules! waits {
        ($($shared:ident)*, $wait:expr) => {{
            $(let $shared = $shared.clone();)*
            waits.push(go_until(GState::Waiting, move || $wait));
        }};
    }
    waits!(lock, drop(lock.lock_owned()));
    waits!(table, drop(table.write_owned()));
    waits!(desk, drop(desk.permit_owned(1)));
    waits!(notify, notify.wait());
    waits!(heard, assert!({ heard }.recv().is_err()));
    waits!(seen, drop({ seen }.changed()));
    // The upgrade is before the writer that waits, and keeps readers out.
    end(waits[1].0);
    waits!(table, {
        let reading = table.upgradable_read().expect("no panic");
        drop(RwLockUpgradableGuard::upgrade(reading));
    });
    waits!(table, drop(table.upgradable_read()));
    waits!(table, drop(table.read_owned()));
    let (tell, answer) = chan::oneshot::<u32>();
    waits!(, _ = answer.recv());
    let barrier = Arc::new(Barrier::new(2));
    waits!(barrier, _ = barrier.wait());
    let (gate, ended) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let worker = {
        let (gate, ended) = (gate.clone(), ended.clone());
        move || {
            gate.acquire(1);
            ended.fetch_add(1, Relaxed);
        }
    };
    let mut set = JoinSet::new();
    set.go(worker.clone());
    waits!(, drop(set.join_next()));
    let joined = go(worker.clone());
    waits!(, drop(joined.join_until(Duration::MAX)));
    let mut group: ErrGroup<()> = ErrGroup::new(&Context::new());
    let (cancelled, is_told) = chan::oneshot();
    group.go(move |context| {
        let _ = context.sleep(Duration::MAX);
        cancelled.send(()).map_err(drop)
    });
    waits!(, drop(group.wait()));
    waits!(, {
        let (tx, rx) = chan::rendezvous::<u32>();
        let mut any = Select::new();
        any.recv(&rx, |_| ()).send(&tx, 1, |_| ());
        any.wait();
    });
    // The last first: who waits behind another would be let in by its end.
    let alive = waits.iter().enumerate().rev().filter(|&(n, _)| n != 1);
    alive.for_each(|(_, (id, _))| end(*id));
    waits.into_iter().for_each(|(_, g)| assert_eq!(g.join(), Err(JoinError::Killed)));
    drop((held, reading));
    // What they waited for is as it was: not counted, not lost, detached or cancelled.
    assert_eq!(tell.send(7), Err(chan::SendError(7)), "its receiver is gone");
    let (_, arrives) = {
        let barrier = barrier.clone();
        go_until(GState::Waiting, move || barrier.wait().is_leader())
    };
    assert!(barrier.wait().is_leader());
    assert_eq!(arrives.join(), Ok(false));
    gate.release(2);
    wait_until(|| ended.load(Relaxed) == 2);
    assert_eq!(is_told.recv(), Ok(()), "its group was dropped");
    *lock.lock_owned().expect("nobody held it") += 1;
    let upgradable = table.upgradable_read().expect("nobody held it");
    *RwLockUpgradableGuard::upgrade(upgradable).expect("no panic") += 1;
    desk.release(1);
    drop(desk.permit_owned(1));
    notify.notify_one();
    notify.wait();
    assert_eq!((news.send(7), heard.recv()), (1, Ok(7)));
    told.send(7);
    assert_eq!(seen.changed().as_deref(), Ok(&7));
}
