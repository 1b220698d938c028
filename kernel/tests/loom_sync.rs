//! All interleavings of the locks and wait queues of `cell`, in small models.
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

use loom::{cell::UnsafeCell, sync::Arc, thread};
use run::door::{large_model, model_with_clock};
use wait::held::{self, NotTaken};
use wait::mutex::{self, Guarded};
use wait::queue::{Place, WaitQueue, Waited};
use wait::rwlock::GuardedRw;
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

/// Three lock and add; `step_ns` says whether they barge or are served in turn.
fn three_lock(step_ns: u64) {
    model_with_clock(step_ns, || {
        let lock = Arc::new(Guarded::new(Watched::new()));
        let add = |lock: &Guarded<Watched>| lock.lock(None).expect("no limit").0.add();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || add(&lock))
            })
            .collect();
        add(&lock);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(lock.try_lock().expect("free").0.get(), 3);
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

/// One waits for ever, one gives up at once, whoever is nudged or granted.
fn one_gives_up(step_ns: u64) {
    model_with_clock(step_ns, || {
        let lock = Arc::new(Guarded::new(Watched::new()));
        let held = lock.lock(None).expect("no limit").0;
        let patient = {
            let lock = lock.clone();
            thread::spawn(move || lock.lock(None).expect("no limit").0.add())
        };
        let gives_up = {
            let lock = lock.clone();
            thread::spawn(move || lock.lock(Some(AT_ONCE)).map(|(held, _)| held.add()).is_ok())
        };
        held.add();
        drop(held);
        patient.join().unwrap();
        let took = gives_up.join().unwrap();
        assert_eq!(lock.try_lock().expect("free").0.get(), 2 + u32::from(took));
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

#[test]
fn a_reader_and_two_writers_exclude_each_other_and_all_get_in() {
    large_model(|| {
        let lock = Arc::new(GuardedRw::new(Watched::new()));
        let writer = {
            let lock = lock.clone();
            thread::spawn(move || lock.write(None).expect("no limit").0.add())
        };
        let reader = {
            let lock = lock.clone();
            thread::spawn(move || lock.read(None).expect("no limit").0.get())
        };
        lock.write(None).expect("no limit").0.add();
        writer.join().unwrap();
        assert!(reader.join().unwrap() <= 2);
        assert_eq!(lock.try_read().expect("free").0.get(), 2);
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
        let lock = Arc::new(GuardedRw::new(Watched::new()));
        let mut reading = lock.read(None).ok();
        let gives_up = {
            let lock = lock.clone();
            thread::spawn(move || lock.write(Some(AT_ONCE)).map(|(held, _)| held.add()).is_ok())
        };
        let reader = {
            let lock = lock.clone();
            thread::spawn(move || lock.read(None).expect("no limit").0.get())
        };
        if first == First::Leaves {
            reading = None;
        }
        let wrote = gives_up.join().unwrap();
        reader.join().unwrap();
        drop(reading);
        assert_eq!(lock.try_write().expect("free").0.get(), u32::from(wrote));
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
/// so. `take` waits for the lock, and says why it was not taken.
fn one_is_gone<L: Send + Sync + 'static>(
    lock: fn() -> L,
    keep: fn(&L),
    owner: fn(&L) -> u64,
    take: fn(&L) -> Option<NotTaken>,
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
        assert_eq!(other.join().unwrap(), Some(NotTaken::Abandoned));
        assert_eq!(take(&lock), Some(NotTaken::Abandoned), "it has opened again");
    });
}

#[test]
fn the_mutex_of_one_that_is_gone_never_opens() {
    let keep = |lock: &Guarded<Watched>| std::mem::forget(lock.lock(None));
    let new = || Guarded::new(Watched::new());
    one_is_gone(new, keep, Guarded::owner, |lock| lock.lock(None).err());
}

#[test]
fn the_rwlock_of_a_writer_that_is_gone_never_opens() {
    let keep = |lock: &GuardedRw<Watched>| std::mem::forget(lock.write(None));
    let new = || GuardedRw::new(Watched::new());
    one_is_gone(new, keep, GuardedRw::owner, |lock| lock.write(None).err());
    one_is_gone(new, keep, GuardedRw::owner, |lock| lock.read(None).err());
}

/// A call that does not wait replaces the name of the owner that is gone, while the one
/// that is gone looks for those who wait for that name.
#[test]
fn one_that_notes_that_the_owner_is_gone_hides_no_waiter() {
    model_with_clock(PATIENT, || {
        run::door::somebody_goes();
        let lock = Arc::new(Guarded::new(Watched::new()));
        std::mem::forget(lock.lock(None));
        let (tx, rx) = loom::sync::mpsc::channel();
        let waits = {
            let lock = lock.clone();
            thread::spawn(move || {
                tx.send(run::door::this()).unwrap();
                lock.lock(None).err()
            })
        };
        let comes = {
            let lock = lock.clone();
            thread::spawn(move || lock.try_lock().err())
        };
        run::door::abandon_locks(rx.recv().unwrap(), |_| (), || lock.owner(), held::ABANDONED);
        assert!(comes.join().unwrap().is_some());
        assert_eq!(waits.join().unwrap(), Some(NotTaken::Abandoned));
    });
}

/// What is done to a lock when one of its waiters is gone.
struct Queueing<L> {
    new: fn() -> L,
    hold: for<'a> fn(&'a L) -> Box<dyn Guard + 'a>,
    vanish: fn(&L),
    forget: fn(&L, u64),
    owner: fn(&L) -> u64,
    /// Waits for the lock, and says why it was not taken.
    take: fn(&L) -> Option<NotTaken>,
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
        assert!(matches!(found, None | Some(NotTaken::Abandoned)));
        assert!(found.is_none() || take(&lock) == found, "it has opened again");
    });
}

#[test]
fn a_mutex_passes_over_a_waiter_that_is_gone() {
    let lock = || Queueing::<Guarded<Watched>> {
        new: || Guarded::new(Watched::new()),
        hold: |lock| Box::new(lock.lock(None)),
        vanish: Guarded::vanish,
        forget: Guarded::forget_waiter,
        owner: Guarded::owner,
        take: |lock| lock.lock(None).err(),
    };
    one_is_gone_in_the_queue(PATIENT, lock());
    one_is_gone_in_the_queue(IMPATIENT, lock());
}

#[test]
fn a_rwlock_passes_over_a_writer_that_is_gone_while_it_waits() {
    let lock = || Queueing::<GuardedRw<Watched>> {
        new: || GuardedRw::new(Watched::new()),
        hold: |lock| Box::new(lock.write(None)),
        vanish: GuardedRw::vanish,
        forget: GuardedRw::forget_waiter,
        owner: GuardedRw::owner,
        take: |lock| lock.read(None).err(),
    };
    one_is_gone_in_the_queue(PATIENT, lock());
    let hold: for<'a> fn(&'a GuardedRw<Watched>) -> Box<dyn Guard + 'a> =
        |lock| Box::new(lock.read(None));
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
                    match queue.wait(locked, place, |_| false) {
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
                        let _ = queue.wait(locked, place, |_| false);
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
