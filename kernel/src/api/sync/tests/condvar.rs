//! `Condvar`: no notification is lost, and waiters are notified in order.

use super::*;

#[test]
fn ping_pong_loses_no_wake_up() {
    let (turn, changed) = (Mutex::new(0usize), Condvar::new());
    let last = rounds(2000);
    on_threads(2, |me| {
        loop {
            let guard = turn.lock().unwrap();
            let mut guard =
                changed.wait_while(guard, |turn| *turn < last && *turn % 2 != me).unwrap();
            if *guard >= last {
                break;
            }
            *guard += 1;
            drop(guard);
            changed.notify_one();
        }
        changed.notify_all();
    });
    assert_eq!(turn.into_inner().unwrap(), last);
}

#[test]
fn notify_one_wakes_the_one_who_waits_longest() {
    let (woken, changed) = (Mutex::new(vec![]), Condvar::new());
    thread::scope(|s| {
        for i in 0..4 {
            let (woken, changed) = (&woken, &changed);
            s.spawn(move || changed.wait(woken.lock().unwrap()).unwrap().push(i));
            until(|| changed.queued_ever() == i + 1);
        }
        for i in 0..4 {
            changed.notify_one();
            until(|| woken.lock().unwrap().len() == i + 1);
        }
    });
    assert_eq!(woken.into_inner().unwrap(), [0, 1, 2, 3]);
}

#[test]
fn notify_all_wakes_all_who_wait_and_only_them() {
    let many = if cfg!(miri) { 10 } else { 40 }; // more than one batch
    let (woken, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|s| {
        for _ in 0..many {
            s.spawn(|| *changed.wait(woken.lock().unwrap()).unwrap() += 1);
        }
        until(|| changed.queued_ever() == many);
        drop(woken.lock().unwrap()); // the last waiter has freed it: it waits
        changed.notify_all();
        until(|| *woken.lock().unwrap() == many);
        let late = s.spawn(|| changed.wait_timeout(woken.lock().unwrap(), SHORT).unwrap().1);
        assert_eq!(late.join().unwrap(), Err(TimedOut));
    });
}

#[test]
fn a_notification_goes_to_one_who_has_not_timed_out() {
    // The first in the queue leaves; the notification must reach the second.
    let (lock, changed) = (Mutex::new(()), Condvar::new());
    thread::scope(|s| {
        let first = s.spawn(|| changed.wait_timeout(lock.lock().unwrap(), SHORT).unwrap().1);
        assert_eq!(first.join().unwrap(), Err(TimedOut));
        let second = s.spawn(|| changed.wait_timeout(lock.lock().unwrap(), LONG).unwrap().1);
        until(|| changed.queued_ever() == 2);
        changed.notify_one();
        assert_eq!(second.join().unwrap(), Ok(()));
    });
}

#[test]
fn each_notification_wakes_one_although_others_time_out() {
    // There are as many notifications as tokens; a G that takes a token was notified or found it.
    // If a timeout swallowed a notification, a G would wait for ever.
    let (tokens, changed) = (Mutex::new(0u32), Condvar::new());
    let n = rounds(300);
    thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..n {
                let guard = tokens.lock().unwrap();
                *changed.wait_while(guard, |tokens| *tokens == 0).unwrap() -= 1;
            }
        });
        for _ in 0..n {
            let guard = tokens.lock().unwrap();
            let limit = Duration::from_nanos(500);
            drop(changed.wait_timeout(guard, limit).unwrap());
            *tokens.lock().unwrap() += 1;
            changed.notify_one();
        }
    });
    assert_eq!(tokens.into_inner().unwrap(), 0);
}

#[test]
fn a_wait_whose_condition_never_holds_ends_by_its_limit() {
    let (lock, changed) = (Mutex::new(0), Condvar::new());
    let guard = lock.lock().unwrap();
    let (guard, waited) = changed.wait_timeout_while(guard, SHORT, |n| *n == 0).unwrap();
    assert_eq!((*guard, waited), (0, Err(TimedOut)));
}

#[test]
fn a_waiter_whose_mutex_was_abandoned_meanwhile_is_told() {
    let (lock, changed) = (Mutex::new(()), Condvar::new());
    thread::scope(|s| {
        let waits = || changed.wait(lock.lock().unwrap()).is_err_and(|e| e.guard().is_none());
        let waiter = s.spawn(waits);
        let limited = s.spawn(|| {
            let waited = changed.wait_timeout(lock.lock().unwrap(), LONG);
            matches!(waited, Err(LockError::Abandoned))
        });
        let asks = s.spawn(|| {
            let waited = changed.wait_while(lock.lock().unwrap(), |()| true);
            matches!(waited, Err(LockError::Abandoned))
        });
        let asks_for_a_while = s.spawn(|| {
            let waited = changed.wait_timeout_while(lock.lock().unwrap(), LONG, |()| true);
            matches!(waited, Err(LockError::Abandoned))
        });
        until(|| changed.queued_ever() == 4);
        s.spawn(|| {
            std::mem::forget(lock.lock());
            crate::run::door::abandon_locks(crate::run::door::current_id());
        })
        .join()
        .unwrap();
        changed.notify_all();
        assert!(waiter.join().unwrap() && limited.join().unwrap());
        assert!(asks.join().unwrap() && asks_for_a_while.join().unwrap());
    });
}

#[test]
fn a_waiter_is_warned_of_a_mutex_poisoned_meanwhile() {
    let (lock, changed) = (Mutex::new(()), Condvar::new());
    thread::scope(|s| {
        let waiter = s.spawn(|| changed.wait(lock.lock().unwrap()).is_err());
        until(|| changed.queued_ever() == 1);
        panicking(|| {
            let _guard = lock.lock().unwrap();
            panic_quietly();
        });
        changed.notify_one();
        assert!(waiter.join().unwrap());
    });
}
