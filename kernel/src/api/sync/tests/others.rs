//! `Semaphore`, `WaitGroup`, `Once`, `OnceLock`.

use super::*;
use crate::run::door::Reason;
use std::sync::Arc;

#[test]
fn never_more_than_the_permits_are_inside() {
    let desks = Semaphore::new(2);
    let inside = AtomicUsize::new(0);
    on_threads(4, |_| {
        for _ in 0..rounds(500) {
            let _permit = desks.permit(1);
            assert!(inside.fetch_add(1, Ordering::Relaxed) < 2);
            thread::yield_now();
            inside.fetch_sub(1, Ordering::Relaxed);
        }
    });
    assert_eq!(desks.available(), 2);
}

#[test]
fn permits_go_to_who_came_first_however_many_it_wants() {
    let gate = Semaphore::new(0);
    let served = Mutex::new(vec![]);
    thread::scope(|s| {
        for (i, n) in [3, 1, 2].into_iter().enumerate() {
            let (gate, served) = (&gate, &served);
            s.spawn(move || {
                gate.acquire(n);
                served.lock().unwrap().push(n);
            });
            until(|| gate.queued_ever() == i as u64 + 1);
        }
        gate.release(2); // not enough for the first: no waiter gets any
        assert!(!gate.try_acquire(1));
        assert_eq!(gate.available(), 2);
        for (i, n) in [1, 1, 2].into_iter().enumerate() {
            gate.release(n);
            until(|| served.lock().unwrap().len() == i + 1);
        }
    });
    assert_eq!(served.into_inner().unwrap(), [3, 1, 2]);
}

#[test]
fn a_large_request_that_gives_up_lets_the_small_ones_behind_it_through() {
    let gate = Semaphore::new(1);
    thread::scope(|s| {
        let large = s.spawn(|| gate.acquire_until(5, Duration::from_millis(20)));
        until(|| gate.queued_ever() == 1);
        let small = s.spawn(|| gate.acquire_until(1, LONG));
        assert_eq!(large.join().unwrap(), Err(TimedOut));
        assert_eq!(small.join().unwrap(), Ok(()));
    });
    assert_eq!(gate.available(), 0);
}

#[test]
fn one_release_serves_more_than_a_batch() {
    let many = if cfg!(miri) { 10 } else { 40 };
    let gate = Semaphore::new(0);
    thread::scope(|s| {
        (0..many).for_each(|_| drop(s.spawn(|| gate.acquire(1))));
        until(|| gate.queued_ever() == many as u64);
        gate.release(many);
    });
    assert_eq!(gate.available(), 0);
}

#[test]
fn permits_are_neither_lost_nor_made_when_timeouts_race_with_releases() {
    let gate = Semaphore::new(3);
    on_threads(4, |i| {
        for round in 0..rounds(500) {
            let limit = Duration::from_nanos((round * 37 % 3000) as u64);
            let n = 1 + (i + round) % 3;
            if gate.acquire_until(n, limit).is_ok() {
                thread::yield_now();
                gate.release(n);
            }
        }
    });
    assert_eq!(gate.available(), 3);
}

#[test]
fn too_many_permits_are_refused_and_change_nothing() {
    let gate = Semaphore::new(usize::MAX);
    assert!(crate::run::unwind::catch(|| gate.release(1)).is_err());
    assert_eq!(gate.available(), usize::MAX);
}

#[test]
fn all_who_wait_for_a_group_go_on_when_it_is_done() {
    let group = WaitGroup::new();
    let gone_on = AtomicUsize::new(0);
    group.add(2);
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                group.wait();
                gone_on.fetch_add(1, Ordering::Relaxed);
            });
        }
        until(|| group.queued_ever() == 3);
        group.done();
        assert_eq!(gone_on.load(Ordering::Relaxed), 0);
        group.done();
    });
    assert_eq!(gone_on.into_inner(), 3);
}

#[test]
fn a_group_can_be_used_again_and_loses_no_wake_up() {
    let group = WaitGroup::new();
    let mut work = 0;
    for _ in 0..rounds(200) {
        group.add(2);
        thread::scope(|s| {
            let workers = (s.spawn(|| group.done()), s.spawn(|| group.done()));
            group.wait();
            assert_eq!(group.count(), 0);
            drop(workers);
        });
        work += 1;
    }
    assert_eq!(work, rounds(200));
}

#[test]
fn what_was_done_before_done_is_seen_after_wait() {
    static DATA: AtomicUsize = AtomicUsize::new(0);
    let group = WaitGroup::new();
    group.add(2);
    on_threads(3, |i| match i {
        0 => {
            group.wait();
            assert_eq!(DATA.load(Ordering::Relaxed), 2);
        }
        _ => {
            DATA.fetch_add(1, Ordering::Relaxed);
            group.done();
        }
    });
}

#[test]
fn done_without_add_panics_and_the_count_stays_at_zero() {
    let group = WaitGroup::new();
    assert!(crate::run::unwind::catch(|| group.done()).is_err());
    assert_eq!(group.count(), 0);
    group.wait();
}

#[test]
fn more_than_can_be_counted_are_refused_and_the_count_stays() {
    let group = WaitGroup::new();
    group.add(1);
    for n in [isize::MAX.cast_unsigned(), isize::MAX.cast_unsigned() + 1, usize::MAX] {
        assert!(crate::run::unwind::catch(|| group.add(n)).is_err(), "{n}");
        assert_eq!(group.count(), 1);
    }
    group.done();
    group.wait();
}

#[test]
fn a_ticket_is_done_even_if_its_g_panics() {
    let group = Arc::new(WaitGroup::new());
    let ticket = WaitGroup::ticket(group.clone());
    let second = ticket.clone();
    panicking(move || {
        let _ticket = ticket;
        panic_quietly();
    });
    assert_eq!(group.wait_until(SHORT), Err(TimedOut));
    drop(second);
    group.wait();
}

#[test]
fn it_is_done_once_and_all_wait_until_it_is() {
    let once = Once::new();
    let (runs, ready) = (AtomicUsize::new(0), AtomicBool::new(false));
    on_threads(4, |_| {
        once.call_once(|| {
            runs.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            ready.store(true, Ordering::Relaxed);
        });
        assert!(ready.load(Ordering::Relaxed));
    });
    assert_eq!(runs.into_inner(), 1);
}

#[test]
fn who_waits_for_a_call_that_panics_is_told() {
    let once = Once::new();
    thread::scope(|s| {
        let waiter = s.spawn(|| crate::run::unwind::catch(|| once.wait()).is_err());
        until(|| once.queued_ever() == 1);
        panicking(|| once.call_once(panic_quietly));
        assert!(waiter.join().unwrap());
    });
    assert!(once.is_poisoned());
    assert!(crate::run::unwind::catch(|| once.call_once(|| ())).is_err());
    once.call_once_force(|| ());
    assert!(once.is_completed());
}

#[test]
fn waiting_for_what_nobody_does_ends_by_its_limit() {
    assert_eq!(Once::new().wait_until(SHORT), Err(TimedOut));
}

#[test]
fn a_value_is_made_once_and_again_only_if_making_it_panicked() {
    static VALUE: OnceLock<usize> = OnceLock::new();
    panicking(|| {
        VALUE.get_or_init(|| {
            panic_quietly();
            0
        });
    });
    let makers = AtomicUsize::new(0);
    on_threads(3, |_| {
        let value = VALUE.get_or_init(|| 10 + makers.fetch_add(1, Ordering::Relaxed));
        assert_eq!(*value, 10);
    });
    assert_eq!(VALUE.set(11), Err(11));
}

#[test]
fn a_wait_that_unwinds_leaves_the_queue() {
    use crate::wait::queue::{Place, WaitQueue};
    let queue: WaitQueue = WaitQueue::new(());
    let place = Place { reason: Reason::Park, list: 0, value: None, deadline_ns: None };
    let wait = || drop(queue.lock().wait_watching(place, Some(panic_quietly), |()| false));
    assert!(crate::run::unwind::catch(wait).is_err());
    assert!(queue.lock().is_empty(0));
}

/// Whether the call would have to wait or not: checking only when it must would be too late.
#[test]
#[cfg(debug_assertions)]
fn whoever_may_wait_says_so_also_with_a_limit() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let (lock, shared, free) = (Mutex::new(()), RwLock::new(()), Semaphore::new(2));
    let (group, once) = (WaitGroup::new(), Once::new());
    let calls: [(&str, &dyn Fn()); 10] = [
        ("lock", &|| drop(lock.lock())),
        ("lock_until", &|| drop(lock.lock_until(LONG))),
        ("read", &|| drop(shared.read())),
        ("read_until", &|| drop(shared.read_until(LONG))),
        ("write", &|| drop(shared.write())),
        ("write_until", &|| drop(shared.write_until(LONG))),
        ("acquire", &|| free.acquire(1)),
        ("acquire_until", &|| assert!(free.acquire_until(1, LONG).is_ok())),
        ("wait_until", &|| assert!(group.wait_until(LONG).is_ok())),
        ("call_once", &|| once.call_once(|| ())),
    ];
    let kernels = crate::arch::lock::IrqLock::new(());
    for (name, call) in calls {
        let held = kernels.lock();
        let panicked = catch_unwind(AssertUnwindSafe(call)).expect_err(name);
        drop(held);
        let said = panicked.downcast_ref::<String>().expect("a text");
        assert!(said.starts_with("might park with the Plain lock"), "{name}: {said}");
        call(); // without it the call does not wait
    }
}
