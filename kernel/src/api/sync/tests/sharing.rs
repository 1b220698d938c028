//! Owned guards, upgrades, barriers, notifications, and what is told to many.

use super::*;
use crate::api::chan::RecvTimeoutError;
use crate::prelude::{Context, chan, go};
use crate::select;
use broadcast::RecvError;
use std::sync::Arc;

#[test]
fn an_owned_guard_is_dropped_by_another_thread_and_waiters_get_the_lock() {
    let lock = Arc::new(Mutex::new(0));
    for _ in 0..rounds(200) {
        let mut held = lock.lock_owned().expect("no panic");
        assert!(matches!(lock.try_lock_owned(), Err(LockError::Held)));
        assert!(matches!(lock.lock_owned_until(SHORT), Err(LockError::Held)));
        thread::scope(|s| {
            let waiter = s.spawn(|| *lock.lock().expect("no panic"));
            s.spawn(move || *held += 1);
            assert_eq!(waiter.join().expect("no panic") % 2, 1);
        });
        *lock.lock().expect("no panic") += 1;
    }
}

#[test]
fn an_owned_guard_poisons_if_the_panic_began_while_it_was_held() {
    let lock = Arc::new(Mutex::new(0));
    let held = lock.lock_owned().expect("no panic");
    panicking(move || {
        let _held = held;
        panic_quietly();
    });
    assert!(matches!(lock.try_lock(), Err(LockError::Poisoned(_))));
    lock.clear_poison();
    let lock = Arc::new(RwLock::new(0));
    let held = lock.write_owned().expect("no panic");
    panicking(move || {
        let _held = held;
        panic_quietly();
    });
    assert!(lock.is_poisoned());
    lock.clear_poison();
    let held = lock.read_owned().expect("no poison");
    panicking(move || {
        let _held = held;
        panic_quietly();
    });
    assert!(lock.try_write().is_ok(), "a reader poisons nothing, and has left");
}

#[test]
fn one_reader_may_become_the_writer_and_others_read_beside_it() {
    let lock = RwLock::new(1);
    let upgradable = lock.upgradable_read().expect("no panic");
    let beside = lock.try_read().expect("readers enter");
    assert!(matches!(lock.upgradable_read_until(SHORT), Err(LockError::Held)));
    let upgradable = match RwLockUpgradableGuard::upgrade_until(upgradable, SHORT) {
        Err(upgradable) => upgradable,
        Ok(_) => panic!("there is another reader"),
    };
    assert!(lock.try_read().is_ok(), "the upgrade that was too late keeps none out");
    drop(beside);
    *RwLockUpgradableGuard::upgrade(upgradable).expect("no panic") += 1;
    let mut writing = lock.try_write().expect("free");
    *writing += 1;
    let reading = RwLockWriteGuard::downgrade(writing);
    assert!(lock.try_write().is_err());
    assert_eq!((*reading, lock.try_read().map(|value| *value).ok()), (3, Some(3)));
}

#[test]
fn no_upgrade_is_lost_among_readers_and_writers() {
    let lock = RwLock::new(0);
    on_threads(4, |i| {
        for _ in 0..rounds(500) {
            match i {
                0 => drop(lock.read().expect("no panic")),
                1 => *lock.write().expect("no panic") += 1,
                2 => {
                    let mut writing = lock.write().expect("no panic");
                    *writing += 1;
                    let mine = *writing;
                    assert_eq!(*RwLockWriteGuard::downgrade(writing), mine);
                }
                _ => {
                    let reading = lock.upgradable_read().expect("no panic");
                    let before = *reading;
                    let upgraded = RwLockUpgradableGuard::upgrade(reading);
                    let mut writing = upgraded.expect("no panic");
                    assert_eq!(*writing, before);
                    *writing += 1;
                }
            }
        }
    });
    assert_eq!(lock.into_inner().expect("no panic"), 3 * rounds(500));
}

#[test]
fn each_round_of_a_barrier_has_one_leader_and_is_complete() {
    let (barrier, leaders, arrived) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
    on_threads(4, |_| {
        for round in 1..=rounds(200) {
            arrived.fetch_add(1, Ordering::Relaxed);
            if barrier.wait().is_leader() {
                leaders.fetch_add(1, Ordering::Relaxed);
            }
            assert!(arrived.load(Ordering::Relaxed) >= 4 * round);
        }
    });
    assert_eq!(leaders.into_inner(), rounds(200));
}

#[test]
fn a_call_that_gives_up_at_a_barrier_does_not_count() {
    let barrier = Barrier::new(2);
    assert_eq!(barrier.wait_until(SHORT), Err(TimedOut));
    assert_eq!(barrier.wait_until(SHORT), Err(TimedOut), "alone again");
    thread::scope(|s| {
        let other = s.spawn(|| barrier.wait().is_leader());
        assert!(barrier.wait().is_leader() != other.join().expect("no panic"));
    });
    assert!(Barrier::new(0).wait().is_leader());
}

#[test]
fn one_notification_is_kept_for_the_next_waiter() {
    let notify = Notify::new();
    notify.notify_all();
    assert_eq!(notify.wait_until(SHORT), Err(TimedOut), "those are for waiters only");
    notify.notify_one();
    notify.notify_one();
    notify.wait();
    assert_eq!(notify.wait_until(SHORT), Err(TimedOut), "two count as one");
}

#[test]
fn a_lazy_value_is_made_once_and_not_again_after_a_panic() {
    let made = AtomicUsize::new(0);
    let lazy = LazyLock::new(|| made.fetch_add(1, Ordering::Relaxed) + 41);
    on_threads(4, |_| assert_eq!(*lazy, 41));
    assert_eq!(made.load(Ordering::Relaxed), 1);
    let broken: LazyLock<u32, _> = LazyLock::new(|| std::panic::resume_unwind(Box::new("no")));
    for _ in 0..2 {
        assert!(crate::run::unwind::catch(|| *broken).is_err());
    }
}

#[test]
fn a_oneshot_has_room_for_its_value_and_gives_it_back_if_it_comes_too_late() {
    let (tx, rx) = chan::oneshot();
    assert_eq!(tx.send(1), Ok(()));
    assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(chan::RecvError)));
    let (tx, rx) = chan::oneshot();
    drop(rx);
    assert!(tx.is_closed());
    assert_eq!(tx.send(1), Err(chan::SendError(1)));
}

#[test]
fn every_receiver_gets_every_value_or_hears_how_many_it_missed() {
    let (tx, rx) = broadcast::channel(8);
    let count = rounds(2000) as u64;
    let mut receivers: Vec<_> = (0..3).map(|_| rx.clone()).collect();
    drop(rx);
    thread::scope(|s| {
        for rx in &mut receivers {
            s.spawn(move || {
                let (mut next, mut missed) = (0, 0);
                loop {
                    match rx.recv() {
                        Ok(value) => {
                            assert_eq!(value, next);
                            next += 1;
                        }
                        Err(RecvError::Missed(n)) => (next, missed) = (next + n, missed + n),
                        Err(error) => {
                            assert_eq!((error, next), (RecvError::Closed, count));
                            break assert!(missed < count);
                        }
                    }
                }
            });
        }
        (0..count).for_each(|n| assert_eq!(tx.send(n), 3));
        drop(tx);
    });
}

#[test]
fn a_receiver_that_comes_late_gets_what_is_sent_from_then_on() {
    let (tx, mut rx) = broadcast::channel(1);
    assert_eq!(tx.send('a'), 1);
    let mut late = tx.clone().subscribe();
    assert_eq!(late.try_recv(), Err(RecvError::Empty));
    assert_eq!(late.recv_until(SHORT), Err(RecvError::Empty));
    assert_eq!(tx.send('b'), 2);
    assert_eq!((rx.recv(), rx.recv()), (Err(RecvError::Missed(1)), Ok('b')));
    assert_eq!(late.recv(), Ok('b'));
    drop(rx);
    assert_eq!(tx.send('c'), 1, "a receiver that is gone is forgotten");
    drop(tx);
    assert_eq!(late.clone().recv(), Ok('c'), "a clone is at the same value");
    assert_eq!((late.recv(), late.try_recv()), (Ok('c'), Err(RecvError::Closed)));
}

#[test]
fn a_bell_rings_while_there_are_values() {
    let (tx, mut rx) = broadcast::channel(2);
    (1..=4).for_each(|n| _ = tx.send(n));
    let (mut got, late) = (Vec::new(), rx.clone());
    assert_eq!(late.bell().recv_until(SHORT * 1_000), Ok(()), "a clone has them to come, too");
    while got.len() < 3 {
        select! {
            recv(rx.bell()) => got.push(rx.try_recv()),
            after(SHORT * 1_000) => panic!("no bell with values left, after {got:?}"),
        }
    }
    assert_eq!(got, [Err(RecvError::Missed(2)), Ok(3), Ok(4)]);
    assert_eq!(rx.recv_until(SHORT), Err(RecvError::Empty), "it rings for nothing once at most");
    drop(tx);
    assert_eq!(rx.bell().recv(), Err(chan::RecvError), "closed");
}

#[test]
fn a_watched_value_is_the_latest_and_each_change_is_seen_once() {
    let (tx, mut rx) = watch::channel(0);
    assert!(!rx.has_changed());
    assert!(matches!(rx.changed_until(SHORT), Err(RecvTimeoutError::Timeout)));
    (1..=3).for_each(|n| tx.send(n));
    let mut other = rx.clone();
    assert_eq!(rx.changed().as_deref(), Ok(&3));
    assert!(!rx.has_changed() && other.has_changed());
    assert_eq!(other.bell().recv_until(SHORT * 1_000), Ok(()), "as its bell says");
    assert_eq!(*other.get(), 3);
    tx.send(4);
    drop(tx);
    assert_eq!(rx.changed().as_deref(), Ok(&4), "the last one is seen");
    assert_eq!(rx.changed(), Err(chan::RecvError));
    assert!(matches!(rx.changed_until(LONG), Err(RecvTimeoutError::Disconnected)));
}

#[test]
fn the_first_error_or_panic_cancels_the_group_and_is_its_result() {
    let parent = Context::new();
    let mut group: ErrGroup<&str> = ErrGroup::new(&parent);
    let (_tx, rx) = chan::bounded::<u32>(1);
    group.go(move |context| rx.recv_until(context).map(drop).map_err(|_| "later"));
    group.go(|_| Err("first"));
    assert_eq!(group.wait(), Err(GroupError::Failed("first")));
    let mut group: ErrGroup<&str> = ErrGroup::new(&parent);
    let (_tx, rx) = chan::bounded::<u32>(1);
    group.go(move |context| {
        let _cancelled = rx.recv_until(context);
        Ok(())
    });
    group.go(|_| std::panic::resume_unwind(Box::new("on purpose")));
    assert!(matches!(group.wait(), Err(GroupError::Ended(_))));
    assert_eq!(ErrGroup::<()>::new(&parent).wait(), Ok(()));
    assert_eq!(parent.over(), None);
}

#[test]
fn a_group_with_a_limit_runs_so_many_at_a_time() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    let mut group: ErrGroup<()> = ErrGroup::new(&Context::new()).with_limit(2);
    for _ in 0..rounds(50) {
        group.go(|_| {
            assert!(RUNNING.fetch_add(1, Ordering::Relaxed) < 2);
            thread::yield_now();
            RUNNING.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        });
    }
    assert_eq!(group.wait(), Ok(()));
}

#[test]
fn a_permit_that_is_owned_is_given_back_by_another_thread() {
    let desk = Arc::new(Semaphore::new(1));
    let permit = desk.permit_owned(1);
    assert!(desk.permit_owned_until(1, SHORT).is_err());
    assert_eq!(go(move || drop(permit)).join(), Ok(()));
    desk.permit_owned(1).forget();
    assert_eq!(desk.available(), 0);
}

#[test]
fn a_set_tells_each_end_once_in_its_order() {
    let mut set = JoinSet::new();
    let mut gates = Vec::new();
    for n in 0..4_usize {
        let (tx, rx) = chan::bounded::<()>(1);
        gates.push(tx);
        set.go(move || {
            rx.recv().expect("open");
            n
        });
    }
    assert_eq!((set.len(), set.try_join_next()), (4, None));
    assert_eq!(set.join_next_until(SHORT), Err(TimedOut));
    for n in [2, 0, 3, 1] {
        gates[n].send(()).expect("open");
        assert_eq!(set.join_next(), Some(Ok(n)));
    }
    assert_eq!((set.join_next(), set.is_empty()), (None, true));
    set.go(|| std::panic::resume_unwind(Box::new("on purpose")));
    assert!(matches!(set.join_next(), Some(Err(_))));
}

#[test]
fn a_set_of_many_loses_none_and_frees_what_is_not_taken() {
    let value = Arc::new(());
    for _ in 0..rounds(50) {
        let mut set = JoinSet::new();
        for n in 0..8 {
            let value = value.clone();
            set.go(move || (n, value));
        }
        let mut numbers: Vec<_> = (0..4).map(|_| set.join_next()).collect();
        numbers.sort_by_key(|ended| ended.as_ref().map(|ended| ended.as_ref().map_or(9, |n| n.0)));
        numbers.dedup_by_key(|ended| ended.as_ref().map(|ended| ended.as_ref().map_or(9, |n| n.0)));
        assert_eq!(numbers.len(), 4);
    }
    while Arc::strong_count(&value) > 1 {
        thread::yield_now(); // detached Gs end by themselves
    }
}
