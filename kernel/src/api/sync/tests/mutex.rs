//! `Mutex`: mutual exclusion, no starvation, no lost waiter.

use super::*;

#[test]
fn one_g_at_a_time_has_the_value() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    let sum = Mutex::new(0usize);
    on_threads(4, |_| {
        for _ in 0..rounds(2000) {
            let mut sum = sum.lock().unwrap();
            assert_eq!(INSIDE.fetch_add(1, Ordering::Relaxed), 0);
            *sum += 1;
            if (*sum).is_multiple_of(7) {
                thread::yield_now(); // lets other threads queue
            }
            INSIDE.fetch_sub(1, Ordering::Relaxed);
        }
    });
    assert_eq!(sum.into_inner().unwrap(), 4 * rounds(2000));
}

#[test]
fn who_has_lost_patience_is_served_in_order_and_nobody_barges() {
    const WAITERS: usize = 5;
    const BARGER: usize = 99;
    let served = Mutex::new(vec![]);
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        let first = served.lock().unwrap();
        for i in 0..WAITERS {
            let served = &served;
            s.spawn(move || {
                let mut list = served.lock().unwrap();
                list.push(i);
                thread::yield_now(); // lets the barger try
            });
            until(|| served.queued_ever() == i as u64 + 1);
        }
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(mut list) = served.try_lock() {
                    list.push(BARGER);
                    break;
                }
            }
        });
        thread::sleep(Duration::from_millis(3)); // all waiters have waited for more than 1 ms
        drop(first);
        until(|| served.lock().unwrap().len() >= WAITERS);
        over.store(true, Ordering::Relaxed);
    });
    let served = served.into_inner().unwrap();
    assert_eq!(served[..WAITERS], [0, 1, 2, 3, 4]);
}

#[test]
fn a_spinner_that_never_arrives_lets_nobody_barge_past_the_hungry() {
    let lock = Mutex::new(());
    let (first_may_leave, last_may_leave) = (AtomicBool::new(false), AtomicBool::new(false));
    let inside = AtomicUsize::new(0);
    thread::scope(|s| {
        let held = lock.lock().unwrap();
        for (i, may_leave) in [&first_may_leave, &last_may_leave].into_iter().enumerate() {
            let (lock, inside) = (&lock, &inside);
            s.spawn(move || {
                // With a limit: a lock that was freed instead of handed off wakes no waiter.
                let _guard = lock.lock_until(Duration::from_secs(60)).unwrap();
                inside.fetch_add(1, Ordering::Relaxed);
                until(|| may_leave.load(Ordering::Relaxed));
            });
            until(|| lock.queued_ever() == i as u64 + 1);
        }
        thread::sleep(Duration::from_millis(3)); // both have waited for more than 1 ms
        drop(held);
        until(|| inside.load(Ordering::Relaxed) == 1);
        assert!(lock.lock.spin().is_err()); // preempted before it queues
        first_may_leave.store(true, Ordering::Relaxed);
        // The lock is never free while it is handed off to the second.
        until(|| lock.try_lock().is_ok() || inside.load(Ordering::Relaxed) == 2);
        let is_second_inside = inside.load(Ordering::Relaxed) == 2;
        last_may_leave.store(true, Ordering::Relaxed);
        assert!(is_second_inside, "the lock was free before the second waiter had it");
    });
}

#[test]
fn a_waiter_is_served_though_another_never_stops_barging() {
    let lock = Mutex::new(());
    let served = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !served.load(Ordering::Relaxed) {
                let _guard = lock.lock().unwrap();
            }
        });
        for _ in 0..rounds(100) {
            drop(lock.lock().unwrap());
        }
        served.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_waiter_that_times_out_leaves_no_trace() {
    let lock = Mutex::new(0);
    let held = lock.lock().unwrap();
    thread::scope(|s| {
        let timed_out = s.spawn(|| lock.lock_until(SHORT).is_err());
        assert!(timed_out.join().unwrap());
        let patient = s.spawn(|| *lock.lock_until(LONG).unwrap() += 1);
        until(|| lock.queued_ever() == 2);
        drop(held);
        patient.join().unwrap();
    });
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

#[test]
fn a_timeout_in_the_middle_keeps_the_queue_whole() {
    let served = Mutex::new(vec![]);
    thread::scope(|s| {
        let held = served.lock().unwrap();
        let mut timed_out = vec![];
        for i in 0..5 {
            let served = &served;
            let waiter = s.spawn(move || match i {
                1 | 3 => served.lock_until(Duration::from_millis(1)).is_err(),
                _ => served.lock_until(LONG).map(|mut served| served.push(i)).is_err(),
            });
            until(|| served.queued_ever() == i + 1);
            if i % 2 == 1 {
                timed_out.push(waiter);
            }
        }
        assert!(timed_out.into_iter().all(|waiter| waiter.join().unwrap()));
        thread::sleep(Duration::from_millis(3)); // from here on in order
        drop(held);
    });
    assert_eq!(served.into_inner().unwrap(), [0, 2, 4]);
}

#[test]
fn timeouts_that_race_with_unlocks_lose_no_wake_up() {
    // Some take the lock, some give up; every G that waits without a limit is served.
    let lock = Mutex::new(0);
    let taken = AtomicUsize::new(0);
    on_threads(4, |i| {
        for round in 0..rounds(500) {
            let limit = Duration::from_nanos((round * 37 % 3000) as u64);
            let guard = if i == 0 { lock.lock().ok() } else { lock.lock_until(limit).ok() };
            if let Some(mut guard) = guard {
                *guard += 1;
                taken.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        }
    });
    assert_eq!(lock.into_inner().unwrap(), taken.into_inner());
}

#[test]
fn a_panic_with_the_lock_held_poisons_it_until_cleared() {
    let lock = Mutex::new(1);
    panicking(|| {
        let guard = lock.lock().unwrap();
        let _keep = guard;
        panic_quietly();
    });
    assert!(lock.is_poisoned());
    assert_eq!(*lock.lock().unwrap_err().into_inner(), 1);
    assert!(matches!(lock.try_lock(), Err(LockError::Poisoned(_))));
    assert!(matches!(lock.lock_until(LONG), Err(LockError::Poisoned(_))));
    lock.clear_poison();
    assert!(lock.lock().is_ok());
}

#[test]
fn a_destructor_that_locks_while_its_g_panics_poisons_nothing() {
    struct Counts<'a>(&'a Mutex<u32>);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let count = Mutex::new(0);
    panicking(|| {
        let _counts = Counts(&count);
        panic_quietly();
    });
    assert_eq!(*count.lock().unwrap(), 1);
}

/// As above, with a waiter that the unlock must wake: the slow path also checks when the panic
/// began.
#[test]
fn a_contended_lock_of_a_destructor_that_runs_in_a_panic_is_not_poisoned() {
    struct LocksUntilQueued<'a>(&'a Mutex<()>, &'a AtomicBool);
    impl Drop for LocksUntilQueued<'_> {
        fn drop(&mut self) {
            let _guard = self.0.lock().unwrap();
            self.1.store(true, Ordering::Relaxed);
            until(|| self.0.queued_ever() == 1);
        }
    }
    let (lock, is_locked) = (Mutex::new(()), AtomicBool::new(false));
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            until(|| is_locked.load(Ordering::Relaxed));
            lock.lock().is_ok()
        });
        panicking(|| {
            let _locks = LocksUntilQueued(&lock, &is_locked);
            panic_quietly();
        });
        assert!(waiter.join().unwrap(), "the waiter finds it poisoned");
    });
    assert!(lock.lock().is_ok());
}

#[test]
fn who_waits_for_a_lock_that_is_poisoned_meanwhile_is_warned() {
    let lock = Mutex::new(());
    thread::scope(|s| {
        let waits = || s.spawn(|| lock.lock().is_err());
        panicking(|| {
            let _guard = lock.lock().unwrap();
            let _waiter = waits();
            until(|| lock.queued_ever() == 1);
            panic_quietly();
        });
    });
    assert!(lock.lock().is_err());
}

#[test]
fn a_panic_that_was_over_when_the_lock_was_taken_poisons_nothing() {
    let lock = Mutex::new(0);
    panicking(panic_quietly);
    *lock.lock().unwrap() += 1;
    struct Frees<'a>(Option<MutexGuard<'a, u32>>);
    impl Drop for Frees<'_> {
        fn drop(&mut self) {
            self.0 = None;
        }
    }
    let frees = Frees(lock.lock().ok());
    panicking(panic_quietly);
    drop(frees); // it existed during the panic, but is not dropped by it
    assert!(lock.lock().is_ok());
}

#[test]
fn the_lock_of_one_that_is_gone_never_opens_again() {
    let mut lock = Mutex::new(1);
    assert!(!lock.is_poisoned());
    on_threads(1, |_| {
        std::mem::forget(lock.lock());
        crate::run::door::abandon_locks(crate::run::door::current_id());
    });
    for _ in 0..3 {
        assert!(matches!(lock.try_lock(), Err(LockError::Abandoned)));
        assert!(matches!(lock.lock_until(LONG), Err(LockError::Abandoned)));
        assert!(matches!(lock.lock(), Err(LockError::Abandoned)));
        lock.clear_poison();
        assert!(lock.is_poisoned(), "that cannot be cleared");
    }
    assert!(format!("{lock:?}").contains("<locked>"));
    // No guard of it can exist: nothing else has a reference to the lock.
    assert_eq!(*lock.get_mut().unwrap_err().into_inner(), 1);
    assert_eq!(lock.into_inner().unwrap_err().into_inner(), 1);
}

/// With safe code only: the guard is leaked, and its reference given away.
#[test]
fn a_leaked_guard_of_one_that_is_gone_stays_the_only_one() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let (tx, rx) = std::sync::mpsc::channel::<&'static mut u32>();
    on_threads(1, |_| {
        let guard = Box::leak(Box::new(LOCK.lock().unwrap()));
        tx.send(guard).unwrap();
        crate::run::door::abandon_locks(crate::run::door::current_id());
    });
    let value = rx.recv().unwrap();
    assert!(LOCK.lock().is_err_and(|error| error.guard().is_none()), "the value has two users");
    *value += 1;
}

#[test]
#[should_panic(expected = "abandoned lock")]
fn an_abandoned_lock_has_no_guard_to_give() {
    let lock = Mutex::new(1);
    on_threads(1, |_| {
        std::mem::forget(lock.lock());
        crate::run::door::abandon_locks(crate::run::door::current_id());
    });
    let _guard = lock.lock().unwrap_or_else(|error| error.into_inner());
}

#[test]
fn a_lock_that_was_leaked_by_one_that_has_ended_stays_taken() {
    let lock = Mutex::new(1);
    on_threads(1, |_| std::mem::forget(lock.lock()));
    assert!(matches!(lock.try_lock(), Err(LockError::Held)));
    assert!(lock.lock_until(SHORT).is_err());
}

#[test]
fn the_value_is_dropped_once_and_with_the_lock() {
    let drops = std::sync::Arc::new(());
    let lock = Mutex::new(drops.clone());
    drop(lock.lock().unwrap());
    assert_eq!(std::sync::Arc::strong_count(&drops), 2);
    drop(lock);
    assert_eq!(std::sync::Arc::strong_count(&drops), 1);
}

#[test]
fn an_unsized_value_can_be_locked() {
    let lock: Box<Mutex<[u32]>> = Box::new(Mutex::new([1, 2, 3]));
    lock.lock().unwrap()[1] = 5;
    assert_eq!(*lock.lock().unwrap(), [1, 5, 3]);
}
