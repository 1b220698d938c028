use super::*;
use crate::api::chan::{self, RecvTimeoutError, SendTimeoutError};
use crate::api::go::go;
use crate::api::gref::{current, park_until};
use crate::api::sync::{Condvar, Mutex, Once, RwLock, Semaphore, TimedOut, WaitGroup};
use crate::run::time::sleep;
use crate::select;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const MS: Duration = Duration::from_millis(1);

/// Calls `wait` with a context that is cancelled before, and with one that is cancelled while it
/// waits; it must end both times.
fn ends_when_cancelled(wait: impl Fn(&Context)) {
    let before = Context::new();
    before.cancel();
    wait(&before);
    let meanwhile = Context::new();
    let other = meanwhile.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(5 * MS);
        other.cancel();
    });
    wait(&meanwhile);
    canceller.join().unwrap();
    assert_eq!(meanwhile.over(), Some(Over::Cancelled));
}

#[test]
fn a_cancelled_receive_ends_and_takes_nothing() {
    let (tx, rx) = chan::bounded(1);
    ends_when_cancelled(|context| {
        assert_eq!(rx.recv_until(context), Err(RecvTimeoutError::Timeout));
    });
    tx.send(7).unwrap();
    let context = Context::new();
    context.cancel();
    assert_eq!(rx.recv_until(&context), Ok(7), "there is a value: no wait");
}

#[test]
fn a_cancelled_send_gives_its_value_back() {
    let (tx, rx) = chan::rendezvous();
    ends_when_cancelled(|context| {
        assert_eq!(tx.send_until("value", context), Err(SendTimeoutError::Timeout("value")));
    });
    assert!(rx.try_recv().is_err());
}

#[test]
fn a_cancelled_lock_is_not_taken() {
    let (mutex, rwlock, semaphore) = (Mutex::new(0), RwLock::new(0), Semaphore::new(1));
    let held = (mutex.lock().unwrap(), rwlock.write().unwrap(), semaphore.permit(1));
    std::thread::scope(|scope| {
        let waiters = || {
            ends_when_cancelled(|context| {
                assert!(mutex.lock_until(context).is_err());
                assert!(rwlock.read_until(context).is_err());
                assert!(rwlock.write_until(context).is_err());
                assert!(semaphore.acquire_until(1, context).is_err());
                assert!(semaphore.permit_until(1, context).is_err());
            });
        };
        scope.spawn(waiters);
    });
    drop(held);
    assert!(mutex.try_lock().is_ok() && rwlock.try_write().is_ok() && semaphore.try_acquire(1));
}

#[test]
fn other_waits_end_when_cancelled() {
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    let (group, once) = (WaitGroup::new(), Once::new());
    group.add(1);
    let (_tx, rx) = chan::bounded::<u32>(1);
    ends_when_cancelled(|context| {
        let (guard, waited) = changed.wait_until(mutex.lock().unwrap(), context).unwrap();
        assert_eq!(waited, Err(TimedOut));
        let (guard, waited) = changed.wait_until_while(guard, context, |()| true).unwrap();
        assert_eq!(waited, Err(TimedOut));
        drop(guard);
        assert_eq!(group.wait_until(context), Err(TimedOut));
        assert_eq!(once.wait_until(context), Err(TimedOut));
        assert!(!park_until(context));
        select! {
            recv(rx) -> _ => panic!("nothing was sent"),
            after(context) => {}
        }
    });
}

#[test]
fn an_instant_and_a_duration_are_limits() {
    let (_tx, rx) = chan::bounded::<u32>(1);
    let begin = Instant::now();
    assert_eq!(rx.recv_until(begin + 3 * MS), Err(RecvTimeoutError::Timeout));
    assert!(begin.elapsed() >= 3 * MS);
    assert_eq!(rx.recv_until(2 * MS), Err(RecvTimeoutError::Timeout));
    assert!(begin.elapsed() >= 5 * MS);
    select! {
        recv(rx) -> _ => panic!("nothing was sent"),
        after(begin + 6 * MS) => assert!(begin.elapsed() >= 6 * MS),
    }
}

#[test]
fn a_child_ends_with_its_parent_and_not_the_other_way() {
    let parent = Context::new();
    let (child, grandchild) = (parent.child(), parent.child().child());
    child.cancel();
    assert_eq!((child.over(), parent.over()), (Some(Over::Cancelled), None));
    let (_tx, rx) = chan::bounded::<u32>(1);
    let waiter = go(move || (rx.recv_until(&grandchild), grandchild.over()));
    sleep(2 * MS);
    parent.cancel();
    let (received, over) = waiter.join().unwrap();
    assert_eq!((received, over), (Err(RecvTimeoutError::Timeout), Some(Over::Cancelled)));
}

#[test]
fn a_child_has_the_earlier_deadline() {
    let parent = Context::new().child_until(3 * MS);
    let child = parent.child_until(Duration::from_secs(3600));
    assert_eq!(child.deadline(), parent.deadline());
    assert!(!park_until(&child));
    assert_eq!(child.over(), Some(Over::TimedOut));
    assert_eq!(Context::new().child_until(&child).deadline(), child.deadline());
    assert!(Context::new().child().deadline() == Instant::NEVER);
}

#[test]
fn why_a_context_is_over_does_not_change() {
    let parent = Context::new();
    let child = parent.child_until(MS);
    sleep(2 * MS);
    parent.cancel();
    assert_eq!((child.over(), parent.over()), (Some(Over::TimedOut), Some(Over::Cancelled)));
    let child = Context::new().child_until(3 * MS);
    child.cancel();
    sleep(4 * MS);
    child.cancel();
    assert_eq!(child.over(), Some(Over::Cancelled));
}

#[test]
fn a_long_chain_of_contexts_is_dropped_without_a_deep_stack() {
    let length = if cfg!(miri) { 100 } else { 200_000 };
    let mut last = Context::new();
    for _ in 0..length {
        last = last.child();
    }
    drop(last);
}

#[test]
fn a_condition_under_a_limit_may_wait_with_another() {
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    let (context, inner) = (Context::new(), Context::new());
    inner.cancel();
    let mut is_first = true;
    let waited = never.wait_until_while(mutex.lock().unwrap(), &context, |()| {
        if std::mem::take(&mut is_first) {
            context.cancel();
            assert!(!park_until(&inner));
        }
        true
    });
    assert_eq!(waited.unwrap().1, Err(TimedOut));
}

#[test]
fn a_later_wait_knows_nothing_of_a_cancelled_one() {
    let context = Context::new();
    context.cancel();
    assert!(!park_until(&context));
    let me = current();
    let waker = go(move || {
        sleep(5 * MS);
        me.unpark();
    });
    assert!(park_until(Duration::from_secs(3600)), "cancelled once more");
    waker.join().unwrap();
}

#[test]
fn a_cancelled_wait_among_many_loses_no_value() {
    const ROUNDS: u32 = if cfg!(miri) { 10 } else { 500 };
    for _ in 0..ROUNDS {
        let (tx, rx) = chan::rendezvous();
        let context = Context::new();
        let (received, returned) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| context.cancel());
            scope.spawn(|| {
                if tx.send_until(1, &context).is_err() {
                    returned.fetch_add(1, SeqCst);
                }
            });
            if rx.recv_until(&context).is_ok() {
                received.fetch_add(1, SeqCst);
            }
        });
        assert_eq!(received.into_inner() + returned.into_inner(), 1);
    }
}

#[test]
fn the_first_cause_counts_and_is_that_of_the_children() {
    let context = Context::new();
    let child = context.child();
    assert!(context.cause().is_none());
    child.cancel_with("the child's");
    context.cancel_with("the parent's");
    context.cancel_with("too late");
    let said = |context: &Context| context.cause().map(|cause| cause.to_string());
    assert_eq!(said(&context).as_deref(), Some("the parent's"));
    assert_eq!(said(&child).as_deref(), Some("the child's"), "it was the first");
    assert_eq!(said(&context.child()).as_deref(), Some("the parent's"));
    let silent = Context::new();
    silent.cancel();
    silent.cancel_with("too late");
    assert!(silent.cause().is_none());
    let timed_out = Context::new().child_until(Instant::now());
    timed_out.cancel_with("after its deadline");
    assert_eq!((timed_out.over(), said(&timed_out)), (Some(Over::TimedOut), None));
}

#[test]
fn the_nearest_value_of_a_type_is_found() {
    let context = Context::new().child_with(1_u32).child_with("word");
    let nearer = context.child().child_with(2_u32);
    assert_eq!((context.value::<u32>(), nearer.value::<u32>()), (Some(&1), Some(&2)));
    assert_eq!((nearer.value::<&str>(), nearer.value::<u64>()), (Some(&"word"), None));
    let deadline = Context::new().child_until(Instant::now());
    assert_eq!(deadline.child_with(3_u32).over(), Some(Over::TimedOut));
}
