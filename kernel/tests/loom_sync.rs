//! All interleavings of the locks and wait queues of `wait`, in small models.
//!
//! What is guarded is a cell of loom's, so that two inside at once, or one who
//! does not see what the one before did, is found; a lost wake-up is a deadlock.
//! How the sources get here is said in `loom/run.rs`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext --profile loom --test loom_sync`
#![cfg(loom)]
#![allow(dead_code, missing_docs, reason = "the sources are written for another crate")]

extern crate alloc;

#[path = "loom/run.rs"]
pub mod run;
#[path = "loom/wait.rs"]
pub mod wait;
#[path = "../src/api/sync/waitgroup.rs"]
mod waitgroup;

use core::time::Duration;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use loom::{cell::UnsafeCell, sync::Arc, thread};
use run::door::{self, large_model, large_model_with_clock, model_with_clock};
use wait::held::{self, OWNER};
use wait::limit::Context;
use wait::mutex::{self, Mutex};
use wait::queue::{Place, WaitQueue, Waited};
use wait::rwlock::{self, RwLock};
use waitgroup::WaitGroup;

const PATIENT: u64 = 0;
const IMPATIENT: u64 = 2 * mutex::PATIENCE_NS;
/// Comes when the clock is looked at.
const AT_ONCE: u64 = 0;

/// A number that loom watches.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn new() -> Self {
        Watched(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|n| unsafe { *n })
    }
}

// SAFETY: loom checks every access.
unsafe impl Sync for Watched {}

/// Whether a lock was not taken because its owner is gone; there is no other error here.
fn is_abandoned<G, E: std::fmt::Debug>(taken: Result<G, E>) -> bool {
    let Err(error) = taken else { return false };
    assert_eq!(format!("{error:?}"), "Abandoned");
    true
}

fn owner_of_mutex(lock: &Mutex<Watched>) -> u64 {
    lock.lock.word.load(Relaxed) & OWNER
}

fn owner_of_rwlock(lock: &RwLock<Watched>) -> u64 {
    rwlock::owner_in(lock.lock.word.load(Relaxed))
}

/// Three lock and add; `step_ns` says whether they barge or are served in turn.
fn three_lock(step_ns: u64) {
    model_with_clock(step_ns, || {
        let lock = Arc::new(Mutex::new(Watched::new()));
        let add = |lock: &Mutex<Watched>| lock.lock_by(None).expect("no limit").add();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || add(&lock))
            })
            .collect();
        add(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.try_lock().expect("free").get(), 3);
    });
}

#[test]
fn barging_keeps_one_inside_and_wakes_all() {
    three_lock(PATIENT);
}

#[test]
fn handing_over_keeps_one_inside_and_wakes_all() {
    three_lock(IMPATIENT);
}

/// An urgent G waits while another takes the lock, which holds it until it has the rank, or the
/// urgent G was first.
fn one_is_urgent(step_ns: u64) {
    large_model_with_clock(step_ns, || {
        let lock = Arc::new(Mutex::new(Watched::new()));
        let has_ended = Arc::new(AtomicBool::new(false));
        let held = lock.lock_by(None).expect("no limit");
        let urgent = {
            let (lock, has_ended) = (lock.clone(), has_ended.clone());
            thread::spawn(move || {
                door::be_urgent(0);
                lock.lock_by(None).expect("no limit").add();
                assert!(!door::is_lent(), "its wait is over");
                has_ended.store(true, SeqCst);
                door::tell_lent();
            })
        };
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                let held = lock.lock_by(None).expect("no limit");
                door::wait_until_lent(|| has_ended.load(SeqCst));
                held.add();
            })
        };
        held.add();
        drop(held);
        urgent.join().unwrap();
        other.join().unwrap();
        assert_eq!(lock.try_lock().expect("free").get(), 3);
        assert!(!door::is_lent());
    });
}

#[test]
fn an_urgent_waiter_lends_its_rank_to_whichever_barges() {
    one_is_urgent(PATIENT);
}

#[test]
fn an_urgent_waiter_lends_its_rank_to_whichever_is_granted_the_lock() {
    one_is_urgent(IMPATIENT);
}

/// One waits for ever, one gives up at once, whoever is nudged or granted.
fn one_gives_up(step_ns: u64) {
    model_with_clock(step_ns, || {
        let lock = Arc::new(Mutex::new(Watched::new()));
        let held = lock.lock_by(None).expect("no limit");
        let patient = {
            let lock = lock.clone();
            thread::spawn(move || lock.lock_by(None).expect("no limit").add())
        };
        let gives_up = {
            let lock = lock.clone();
            thread::spawn(move || lock.lock_by(Some(AT_ONCE)).map(|held| held.add()).is_ok())
        };
        held.add();
        drop(held);
        patient.join().unwrap();
        let took = gives_up.join().unwrap();
        assert_eq!(lock.try_lock().expect("free").get(), 2 + u32::from(took));
    });
}

#[test]
fn a_waiter_that_gives_up_takes_no_nudge_along() {
    one_gives_up(PATIENT);
}

#[test]
fn a_waiter_that_gives_up_takes_no_grant_along() {
    one_gives_up(IMPATIENT);
}

/// One waits under a context, which is cancelled while the lock is freed: it takes the lock or gives
/// up, and takes no nudge or grant of the other waiter along.
fn one_is_cancelled(step_ns: u64) {
    model_with_clock(step_ns, || {
        let lock = Arc::new(Mutex::new(Watched::new()));
        let held = lock.lock_by(None).expect("no limit");
        let context = Context::new();
        let limited = {
            let (lock, context) = (lock.clone(), context.clone());
            thread::spawn(move || lock.lock_until(&context).map(|held| held.add()).is_ok())
        };
        let patient = {
            let lock = lock.clone();
            thread::spawn(move || lock.lock_by(None).expect("no limit").add())
        };
        context.cancel();
        drop(held);
        patient.join().unwrap();
        let took = limited.join().unwrap();
        assert_eq!(lock.try_lock().expect("free").get(), 1 + u32::from(took));
    });
}

#[test]
fn a_cancelled_waiter_takes_no_nudge_along() {
    one_is_cancelled(PATIENT);
}

#[test]
fn a_cancelled_waiter_takes_no_grant_along() {
    one_is_cancelled(IMPATIENT);
}

/// Only the cancellation can end this wait.
#[test]
fn a_cancellation_at_any_moment_ends_the_wait_for_a_lock() {
    model_with_clock(PATIENT, || {
        let lock = Arc::new(Mutex::new(Watched::new()));
        let held = lock.lock_by(None).expect("no limit");
        let context = Context::new();
        let limited = {
            let (lock, context) = (lock.clone(), context.child());
            thread::spawn(move || lock.lock_until(&context).is_err())
        };
        context.cancel();
        assert!(limited.join().unwrap());
        drop(held);
    });
}

#[test]
fn a_reader_and_two_writers_exclude_each_other_and_all_get_in() {
    large_model(|| {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let writer = {
            let lock = lock.clone();
            thread::spawn(move || lock.write().expect("no limit").add())
        };
        let reader = {
            let lock = lock.clone();
            thread::spawn(move || lock.read().expect("no limit").get())
        };
        lock.write().expect("no limit").add();
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(lock.try_read().expect("free").get(), 2);
    });
}

/// What the one who is inside from the start does.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Leaves,
    Stays,
}

/// One reads from the start; a writer gives up at once, a reader does not.
fn a_writer_gives_up(first: First) {
    model_with_clock(PATIENT, move || {
        let lock = Arc::new(RwLock::new(Watched::new()));
        let mut reading = lock.read().ok();
        let gives_up = {
            let lock = lock.clone();
            thread::spawn(move || lock.write_until(Duration::ZERO).map(|held| held.add()).is_ok())
        };
        let reader = {
            let lock = lock.clone();
            thread::spawn(move || lock.read().expect("no limit").get())
        };
        if first == First::Leaves {
            reading = None;
        }
        let wrote = gives_up.join().unwrap();
        reader.join().unwrap();
        drop(reading);
        assert_eq!(lock.try_write().expect("free").get(), u32::from(wrote));
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_join_the_one_inside() {
    a_writer_gives_up(First::Stays);
}

#[test]
fn a_writer_that_gives_up_leaves_the_way_free() {
    a_writer_gives_up(First::Leaves);
}

/// One takes the lock and is gone with it; one that comes for it, or waits already, is told
/// so. `take` waits for the lock, and says whether it was abandoned.
fn one_is_gone<L: Send + Sync + 'static>(
    lock: fn() -> L,
    keep: fn(&L),
    owner: fn(&L) -> u64,
    take: fn(&L) -> bool,
) {
    model_with_clock(PATIENT, move || {
        run::door::somebody_goes();
        let lock = Arc::new(lock());
        keep(&lock);
        let (tx, rx) = loom::sync::mpsc::channel();
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                tx.send(run::door::this()).unwrap();
                take(&lock)
            })
        };
        run::door::abandon_locks(rx.recv().unwrap(), |_| (), || owner(&lock), held::ABANDONED);
        assert!(other.join().unwrap(), "it was not told");
        assert!(take(&lock), "it has opened again");
    });
}

#[test]
fn the_mutex_of_one_that_is_gone_never_opens() {
    let keep = |lock: &Mutex<Watched>| std::mem::forget(lock.lock_by(None));
    let new = || Mutex::new(Watched::new());
    one_is_gone(new, keep, owner_of_mutex, |lock| is_abandoned(lock.lock_by(None)));
}

#[test]
fn the_rwlock_of_a_writer_that_is_gone_never_opens() {
    let keep = |lock: &RwLock<Watched>| std::mem::forget(lock.write());
    let new = || RwLock::new(Watched::new());
    one_is_gone(new, keep, owner_of_rwlock, |lock| is_abandoned(lock.write()));
    one_is_gone(new, keep, owner_of_rwlock, |lock| is_abandoned(lock.read()));
}

/// A call that does not wait replaces the name of the owner that is gone, while the one
/// that is gone looks for those who wait for that name.
#[test]
fn one_that_notes_that_the_owner_is_gone_hides_no_waiter() {
    model_with_clock(PATIENT, || {
        run::door::somebody_goes();
        let lock = Arc::new(Mutex::new(Watched::new()));
        std::mem::forget(lock.lock_by(None));
        let (tx, rx) = loom::sync::mpsc::channel();
        let waits = {
            let lock = lock.clone();
            thread::spawn(move || {
                tx.send(run::door::this()).unwrap();
                is_abandoned(lock.lock_by(None))
            })
        };
        let comes = {
            let lock = lock.clone();
            thread::spawn(move || lock.try_lock().is_err())
        };
        let owner = || owner_of_mutex(&lock);
        run::door::abandon_locks(rx.recv().unwrap(), |_| (), owner, held::ABANDONED);
        assert!(comes.join().unwrap());
        assert!(waits.join().unwrap(), "it was not told");
    });
}

/// What is done to a lock when one of its waiters is gone.
struct Queueing<L> {
    new: fn() -> L,
    hold: for<'a> fn(&'a L) -> Box<dyn Guard + 'a>,
    vanish: fn(&L),
    forget: fn(&L, u64),
    owner: fn(&L) -> u64,
    /// Waits for the lock, and says whether it was abandoned.
    take: fn(&L) -> bool,
}

trait Guard {}
impl<T> Guard for T {}

/// One queues for the lock and is gone before it parks, while the lock is freed. One that waits
/// for the lock, too, takes it, or is told that the one that is gone has it.
fn one_is_gone_in_the_queue<L: Send + Sync + 'static>(step_ns: u64, lock: Queueing<L>) {
    let Queueing { new, hold, vanish, forget, owner, take } = lock;
    model_with_clock(step_ns, move || {
        run::door::somebody_goes();
        let lock = Arc::new(new());
        let held = hold(&lock);
        let (tx, rx) = loom::sync::mpsc::channel();
        let waits = {
            let lock = lock.clone();
            thread::spawn(move || {
                tx.send(run::door::this()).unwrap();
                take(&lock)
            })
        };
        let waiter = rx.recv().unwrap();
        let (tx, rx) = loom::sync::mpsc::channel();
        let goes = {
            let lock = lock.clone();
            thread::spawn(move || {
                vanish(&lock);
                tx.send(()).unwrap();
                let forget = |name| forget(&lock, name);
                run::door::abandon_locks(waiter, forget, || owner(&lock), held::ABANDONED);
            })
        };
        rx.recv().unwrap();
        drop(held);
        goes.join().unwrap();
        let found = waits.join().unwrap();
        assert!(!found || take(&lock), "it has opened again");
    });
}

#[test]
fn a_mutex_passes_over_a_waiter_that_is_gone() {
    let lock = || Queueing::<Mutex<Watched>> {
        new: || Mutex::new(Watched::new()),
        hold: |lock| Box::new(lock.lock_by(None)),
        vanish: |lock| {
            let locked = lock.lock.queue.lock();
            let begins = |word| mutex::begins_to_wait(word, 0);
            assert!(lock.lock.barge_or_wait(0, begins).is_err(), "it is free");
            locked.enlist_for_ever(mutex::place(run::door::now_ns(), None));
        },
        forget: |lock, name| lock.lock.forget_waiter(name),
        owner: owner_of_mutex,
        take: |lock| is_abandoned(lock.lock_by(None)),
    };
    one_is_gone_in_the_queue(PATIENT, lock());
    one_is_gone_in_the_queue(IMPATIENT, lock());
}

#[test]
fn a_rwlock_passes_over_a_writer_that_is_gone_while_it_waits() {
    let lock = || Queueing::<RwLock<Watched>> {
        new: || RwLock::new(Watched::new()),
        hold: |lock| Box::new(lock.write()),
        vanish: |lock| {
            let locked = lock.lock.queue.lock();
            assert!(!lock.lock.enter_or_mark(rwlock::WRITING), "it is free");
            let (reason, value) = (run::door::Reason::RwLockWrite, Some(run::door::me()));
            let place = Place { reason, list: rwlock::WRITING, value, deadline_ns: None };
            locked.enlist_for_ever(place);
        },
        forget: |lock, name| lock.lock.forget_waiter(name),
        owner: owner_of_rwlock,
        take: |lock| is_abandoned(lock.read()),
    };
    one_is_gone_in_the_queue(PATIENT, lock());
    let hold: for<'a> fn(&'a RwLock<Watched>) -> Box<dyn Guard + 'a> = |lock| Box::new(lock.read());
    one_is_gone_in_the_queue(PATIENT, Queueing { hold, ..lock() });
}

#[test]
fn a_waiter_is_granted_or_gives_up_and_never_both() {
    model_with_clock(PATIENT, || {
        let queue = Arc::new(WaitQueue::<u32>::new(0));
        let waiters: Vec<_> = [Some(AT_ONCE), None]
            .into_iter()
            .map(|deadline_ns| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let mut locked = queue.lock();
                    if *locked > 0 {
                        *locked -= 1;
                        return true;
                    }
                    let place = Place {
                        reason: run::door::Reason::Park,
                        list: 0,
                        value: None,
                        deadline_ns,
                    };
                    match locked.wait(place, |_| false) {
                        Waited::Granted(_) => true,
                        Waited::Took(_) | Waited::TimedOut(..) => false,
                    }
                })
            })
            .collect();
        // Two tokens: to who waits, else into the box.
        for _ in 0..2 {
            let mut locked = queue.lock();
            let first = locked.grant(0);
            if first.is_none() {
                *locked += 1;
            }
            drop(locked);
            first.into_iter().for_each(|wake| wake.ready());
        }
        let took = waiters.into_iter().map(|w| w.join().unwrap());
        let took = took.filter(|took| *took).count() as u32;
        assert_eq!(took + *queue.lock(), 2);
    });
}

#[test]
fn granting_to_all_reaches_all_who_waited() {
    model_with_clock(PATIENT, || {
        let queue = Arc::new(WaitQueue::<bool>::new(false));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    let locked = queue.lock();
                    if !*locked {
                        let place = Place {
                            reason: run::door::Reason::Park,
                            list: 0,
                            value: None,
                            deadline_ns: None,
                        };
                        let _ = locked.wait(place, |_| false);
                    }
                })
            })
            .collect();
        *queue.lock() = true;
        queue.grant_all(0);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn who_waits_for_a_group_goes_on_and_sees_what_was_done() {
    model_with_clock(PATIENT, || {
        let group = Arc::new(WaitGroup::new());
        let works = Arc::new([Watched::new(), Watched::new()]);
        group.add(2);
        let workers: Vec<_> = (0..2)
            .map(|i| {
                let (group, works) = (group.clone(), works.clone());
                thread::spawn(move || {
                    works[i].add();
                    group.done();
                })
            })
            .collect();
        group.wait();
        assert_eq!(works[0].get() + works[1].get(), 2);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
