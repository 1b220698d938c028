//! `RwLock`: readers share, writers exclude, no starvation.

use super::*;

#[test]
fn a_writer_is_alone_and_readers_see_whole_changes() {
    let pair = RwLock::new((0usize, 0usize));
    on_threads(4, |i| {
        for _ in 0..rounds(2000) {
            if i < 2 {
                let mut pair = pair.write().unwrap();
                pair.0 += 1;
                if pair.0.is_multiple_of(5) {
                    thread::yield_now();
                }
                pair.1 += 1;
            } else {
                let pair = pair.read().unwrap();
                assert_eq!(pair.0, pair.1);
            }
        }
    });
    assert_eq!(pair.into_inner().unwrap().1, 2 * rounds(2000));
}

#[test]
fn readers_are_inside_at_the_same_time() {
    let lock = RwLock::new(());
    let inside = AtomicUsize::new(0);
    on_threads(3, |_| {
        let _guard = lock.read().unwrap();
        inside.fetch_add(1, Ordering::Relaxed);
        until(|| inside.load(Ordering::Relaxed) == 3);
    });
}

#[test]
fn a_writer_that_waits_keeps_new_readers_out() {
    let order = RwLock::new(());
    let done = Mutex::new(vec![]);
    thread::scope(|s| {
        let reading = order.read().unwrap();
        s.spawn(|| {
            let _writing = order.write().unwrap();
            done.lock().unwrap().push("writer");
        });
        until(|| order.queued_ever() == 1);
        assert!(order.try_read().is_err());
        s.spawn(|| {
            let _reading = order.read().unwrap();
            done.lock().unwrap().push("reader");
        });
        until(|| order.queued_ever() == 2);
        drop(reading);
    });
    assert_eq!(done.into_inner().unwrap(), ["writer", "reader"]);
}

#[test]
fn a_writer_lets_in_the_readers_that_waited_before_the_next_writer() {
    let readers = if cfg!(miri) { 10 } else { 40 }; // more than one batch
    let lock = RwLock::new(());
    let log = Mutex::new(vec![]);
    thread::scope(|s| {
        let writing = lock.write().unwrap();
        s.spawn(|| {
            let _writing = lock.write().unwrap();
            log.lock().unwrap().push("writer");
        });
        until(|| lock.queued_ever() == 1); // the writer is first in time
        for _ in 0..readers {
            s.spawn(|| {
                let _reading = lock.read().unwrap();
                log.lock().unwrap().push("reader");
            });
        }
        until(|| lock.queued_ever() == 1 + readers);
        drop(writing);
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log.iter().position(|who| *who == "writer"), Some(readers as usize));
}

#[test]
fn neither_side_starves_the_other() {
    let lock = RwLock::new(0);
    let over = AtomicUsize::new(0);
    on_threads(4, |i| {
        // A writer and a reader that never stop, and a writer and a reader with few rounds.
        let mut left = if i < 2 { usize::MAX } else { rounds(100) };
        while left > 0 && over.load(Ordering::Relaxed) < 2 {
            match i % 2 {
                0 => *lock.write().unwrap() += 1,
                _ => assert!(*lock.read().unwrap() >= 0),
            }
            left -= 1;
        }
        over.fetch_add(1, Ordering::Relaxed);
    });
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let lock = RwLock::new(());
    thread::scope(|s| {
        let _reading = lock.read().unwrap();
        let writer = s.spawn(|| lock.write_until(Duration::from_millis(20)).is_err());
        until(|| lock.queued_ever() == 1);
        let reader = s.spawn(|| lock.read_until(LONG).is_ok());
        assert!(writer.join().unwrap());
        assert!(reader.join().unwrap());
    });
    assert!(lock.try_write().is_ok());
}

#[test]
fn timeouts_that_race_with_phases_lose_no_wake_up() {
    let lock = RwLock::new(0);
    on_threads(4, |i| {
        for round in 0..rounds(500) {
            let limit = Duration::from_nanos((round * 37 % 3000) as u64);
            match i {
                0 => *lock.write().unwrap() += 1,
                1 => drop(lock.read().unwrap()),
                2 => drop(lock.write_until(limit)),
                _ => drop(lock.read_until(limit)),
            }
        }
    });
    assert_eq!(*lock.try_write().unwrap(), rounds(500));
}

#[test]
fn a_writer_that_panics_poisons_and_a_reader_does_not() {
    let lock = RwLock::new(1);
    panicking(|| {
        let _guard = lock.read().unwrap();
        panic_quietly();
    });
    assert!(!lock.is_poisoned());
    panicking(|| {
        let _guard = lock.write().unwrap();
        panic_quietly();
    });
    assert_eq!(*lock.read().unwrap_err().into_inner(), 1);
    assert!(matches!(lock.try_write(), Err(LockError::Poisoned(_))));
    lock.clear_poison();
    assert!(lock.write().is_ok());
    assert!(lock.try_read().is_ok());
}

/// With a waiter, so that the writer unlocks on the slow path.
#[test]
fn a_contended_write_of_a_destructor_that_runs_in_a_panic_poisons_nothing() {
    struct WritesUntilQueued<'a>(&'a RwLock<()>, &'a AtomicBool);
    impl Drop for WritesUntilQueued<'_> {
        fn drop(&mut self) {
            let _guard = self.0.write().unwrap();
            self.1.store(true, Ordering::Relaxed);
            until(|| self.0.queued_ever() == 1);
        }
    }
    let (lock, is_locked) = (RwLock::new(()), AtomicBool::new(false));
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            until(|| is_locked.load(Ordering::Relaxed));
            lock.read().is_ok()
        });
        panicking(|| {
            let _writes = WritesUntilQueued(&lock, &is_locked);
            panic_quietly();
        });
        assert!(waiter.join().unwrap(), "the waiter finds it poisoned");
    });
    assert!(lock.write().is_ok());
}

#[test]
fn the_lock_of_a_writer_that_is_gone_never_opens_again() {
    let mut lock = RwLock::new(1);
    on_threads(1, |_| {
        std::mem::forget(lock.write());
        crate::run::door::abandon_locks(crate::run::door::current_id());
    });
    for _ in 0..2 {
        assert!(matches!(lock.read(), Err(LockError::Abandoned)));
        assert!(matches!(lock.write(), Err(LockError::Abandoned)));
        assert!(matches!(lock.try_read(), Err(LockError::Abandoned)));
        assert!(matches!(lock.try_write(), Err(LockError::Abandoned)));
        assert!(matches!(lock.read_until(LONG), Err(LockError::Abandoned)));
        assert!(matches!(lock.write_until(LONG), Err(LockError::Abandoned)));
        lock.clear_poison();
        assert!(lock.is_poisoned(), "that cannot be cleared");
    }
    assert_eq!(*lock.get_mut().unwrap_err().into_inner(), 1);
    assert_eq!(lock.into_inner().unwrap_err().into_inner(), 1);
}

#[test]
fn a_reader_that_is_gone_keeps_writers_out_and_no_reader() {
    let lock = RwLock::new(1);
    on_threads(1, |_| {
        std::mem::forget(lock.read());
        crate::run::door::abandon_locks(crate::run::door::current_id());
    });
    assert_eq!(lock.read().map(|value| *value).ok(), Some(1));
    assert!(matches!(lock.try_write(), Err(LockError::Held)));
    assert!(matches!(lock.write_until(SHORT), Err(LockError::Held)));
}
