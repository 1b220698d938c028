//! Checks that Gs which wait for each other in a ring are found while others run.
//!
//! `cycles` starts the others of this file, with `c_busy` running beside all the
//! time: so nobody is ever found because all are asleep. `ring` is for the host: it
//! is booted, and ends the machine. Counts and order only.

use crate::check::{self, checks, wait_until};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use runnext::internals::park::abandon_locks;
use runnext::prelude::*;
use runnext::program::{Ended, Run, start};
use runnext::sync::{Condvar, LockError, Mutex, RwLock};
use runnext::tasks::{self, GState};
use runnext::waiting::Reason;

runnext::main!(cycles, main);
runnext::main!(ring, ring);
runnext::main!(c_busy, c_busy);
runnext::main!(c_two, c_two);
runnext::main!(c_three, c_three);
runnext::main!(c_rwlock, c_rwlock);
runnext::main!(c_self, c_self);
runnext::main!(c_self_join, c_self_join);
runnext::main!(c_large_join, c_large_join);
runnext::main!(c_sound, c_sound);
runnext::main!(c_timed, c_timed);
runnext::main!(c_join_timed, c_join_timed);
runnext::main!(c_cancelled, c_cancelled);

fn main() {
    let busy = started("c_busy");
    check::run(checks![
        two_that_hold_what_the_other_wants_are_found,
        three_of_which_one_joins_are_found,
        writers_and_readers_are_found,
        one_that_waits_for_itself_is_found,
        a_join_of_a_g_with_a_large_closure_is_a_link,
        sound_orders_are_not_reported,
        a_wait_with_a_limit_is_no_link,
        a_join_with_a_limit_is_no_link,
        a_wait_under_a_context_is_no_link,
        a_waiting_g_says_who_holds_the_lock,
        locks_of_one_that_is_gone_never_open,
        who_waits_for_one_that_is_gone_is_woken,
        a_leaked_guard_of_an_abandoned_g_stays_the_only_one,
        a_lock_of_an_abandoned_g_never_opens,
    ]);
    busy.stop();
    assert_eq!(busy.wait(), Ended::Stopped);
}

fn started(name: &str) -> Run {
    start(name, Vec::new()).expect("it is in the image, and there is memory")
}

#[track_caller]
fn named<T: Send + 'static>(
    name: &'static str,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Go::new().name(name).spawn(f).expect("memory")
}

/// Waits until so many have come here.
fn meet(came: &AtomicUsize, all: usize) {
    came.fetch_add(1, Relaxed);
    wait_until(|| came.load(Relaxed).is_multiple_of(all));
}

/// Keeps a CPU busy.
fn c_busy() {
    loop {
        yield_now();
    }
}

/// Ends each of these programs as it would not end by itself.
fn long() {
    sleep(Duration::from_secs(3600));
}

static A: Mutex<u32> = Mutex::new(0);
static B: Mutex<u32> = Mutex::new(0);

fn two() {
    static CAME: AtomicUsize = AtomicUsize::new(0);
    drop(named("left", || {
        let _a = A.lock();
        meet(&CAME, 2);
        drop(B.lock());
    }));
    drop(named("right", || {
        let _b = B.lock();
        meet(&CAME, 2);
        drop(A.lock());
    }));
}

fn c_two() {
    two();
    long();
}

/// Booted: one runs on, two do not.
fn ring() {
    two();
    c_busy();
}

fn two_that_hold_what_the_other_wants_are_found() {
    for _ in 0..8 {
        assert_eq!(started("c_two").wait(), Ended::Deadlock);
    }
}

fn c_three() {
    static CAME: AtomicUsize = AtomicUsize::new(0);
    drop(named("holds A", || {
        let _a = A.lock();
        meet(&CAME, 2);
        drop(B.lock());
    }));
    drop(named("joins", || {
        let _b = B.lock();
        meet(&CAME, 2);
        let _ = named("wants A", || drop(A.lock())).join();
    }));
    long();
}

fn three_of_which_one_joins_are_found() {
    for _ in 0..8 {
        assert_eq!(started("c_three").wait(), Ended::Deadlock);
    }
}

fn c_rwlock() {
    static X: RwLock<u32> = RwLock::new(0);
    static Y: RwLock<u32> = RwLock::new(0);
    static CAME: AtomicUsize = AtomicUsize::new(0);
    drop(named("reads", || {
        let _x = X.write();
        meet(&CAME, 2);
        drop(Y.read());
    }));
    drop(named("writes", || {
        let _y = Y.write();
        meet(&CAME, 2);
        drop(X.write());
    }));
    long();
}

fn writers_and_readers_are_found() {
    for _ in 0..8 {
        assert_eq!(started("c_rwlock").wait(), Ended::Deadlock);
    }
}

fn c_self() {
    let _once = A.lock();
    drop(A.lock());
}

fn c_self_join() {
    let (tx, rx) = chan::bounded::<JoinHandle<()>>(1);
    let me = named("joins itself", move || rx.recv().expect("it is sent").join().expect("never"));
    tx.send(me).expect("it waits");
    long();
}

fn one_that_waits_for_itself_is_found() {
    for _ in 0..8 {
        assert_eq!(started("c_self").wait(), Ended::Deadlock);
        assert_eq!(started("c_self_join").wait(), Ended::Deadlock);
    }
}

/// As `c_self_join`, by way of another; both have closures that need the heap.
fn c_large_join() {
    let (tx, rx) = chan::bounded::<JoinHandle<()>>(1);
    let large = [1_u8; 200];
    let first = named("large", move || {
        rx.recv().expect("it is sent").join().expect("never");
        core::hint::black_box(&large);
    });
    let second = named("joins large", move || {
        first.join().expect("never");
        core::hint::black_box(&large);
    });
    tx.send(second).expect("it waits");
    long();
}

fn a_join_of_a_g_with_a_large_closure_is_a_link() {
    for _ in 0..8 {
        assert_eq!(started("c_large_join").wait(), Ended::Deadlock);
    }
}

/// Many Gs that take two or three of five locks, always the lower first; and some
/// that join one which takes what they do not hold.
fn c_sound() {
    const LOCKS: usize = 5;
    const GS: usize = 10;
    const ROUNDS: usize = 10_000;
    static LOCK: [Mutex<usize>; LOCKS] = [const { Mutex::new(0) }; LOCKS];
    let take = |low: usize, high: usize| {
        let low = LOCK[low].lock().expect("no holder panics");
        yield_now(); // so that others come and wait
        *LOCK[high].lock().expect("no holder panics") += 1;
        drop(low);
    };
    let works = (0..GS).map(|i| {
        go(move || {
            for round in 0..ROUNDS {
                let low = (round * 7 + i) % (LOCKS - 1);
                let high = low + 1 + (round / 3 + i) % (LOCKS - 1 - low);
                if round.is_multiple_of(64) {
                    let _low = LOCK[low].lock().expect("no holder panics");
                    let child = go(move || *LOCK[high].lock().expect("no holder panics") += 1);
                    child.join().expect("no panic");
                } else {
                    take(low, high);
                }
            }
        })
    });
    check::join_all(works);
    let sum: usize = LOCK.iter().map(|lock| *lock.lock().expect("no holder panics")).sum();
    assert!(sum.is_multiple_of(GS * ROUNDS));
}

fn sound_orders_are_not_reported() {
    assert_eq!(started("c_sound").wait(), Ended::Code(0));
}

/// As `c_two`, but one of the two gives up after a while.
fn c_timed() {
    for round in 1..=20 {
        static C: Mutex<u32> = Mutex::new(0);
        static D: Mutex<u32> = Mutex::new(0);
        static CAME: AtomicUsize = AtomicUsize::new(0);
        let patient = named("patient", || {
            let _c = C.lock();
            meet(&CAME, 2);
            *D.lock().expect("no holder panics") += 1;
        });
        let hasty = named("hasty", || {
            let _d = D.lock();
            meet(&CAME, 2);
            // The other waits by now or will; that is a link. This is none.
            assert!(C.lock_until(Duration::from_millis(2)).is_err());
        });
        check::join_all([patient, hasty]);
        assert_eq!(*D.lock().expect("no holder panics"), round);
    }
}

fn a_wait_with_a_limit_is_no_link() {
    assert_eq!(started("c_timed").wait(), Ended::Code(0));
}

/// Two that join each other, of which one gives up.
fn c_join_timed() {
    for _ in 0..4 {
        let (tx, rx) = chan::bounded::<JoinHandle<()>>(1);
        let (told, gave_up) = chan::bounded(1);
        let hasty = named("hasty", move || {
            let other = rx.recv().expect("it is sent");
            other.join_until(Duration::from_millis(50)).is_err()
        });
        let patient = named("patient", move || told.send(hasty.join()).expect("it is received"));
        tx.send(patient).expect("it waits");
        assert_eq!(gave_up.recv(), Ok(Ok(true)));
    }
}

fn a_join_with_a_limit_is_no_link() {
    assert_eq!(started("c_join_timed").wait(), Ended::Code(0));
}

/// As `c_timed` and `c_join_timed`, but a third G ends the waits.
fn c_cancelled() {
    static C: Mutex<u32> = Mutex::new(0);
    static D: Mutex<u32> = Mutex::new(0);
    for round in 1..=8 {
        static CAME: AtomicUsize = AtomicUsize::new(0);
        let context = Context::new();
        let patient = named("patient", || {
            let _c = C.lock();
            meet(&CAME, 2);
            *D.lock().expect("no holder panics") += 1;
        });
        let limited = named("limited", {
            let context = context.clone();
            move || {
                let _d = D.lock();
                meet(&CAME, 2);
                assert!(C.lock_until(&context).is_err());
            }
        });
        let (tx, rx) = chan::bounded::<JoinHandle<()>>(1);
        let joins = named("joins", {
            let context = context.clone();
            move || drop(rx.recv().expect("it is sent").join_until(&context))
        });
        let joined = named("is joined", move || joins.join().expect("no panic"));
        tx.send(joined).expect("it waits");
        sleep(Duration::from_millis(20)); // so that all of them wait
        context.cancel();
        check::join_all([patient, limited]);
        assert_eq!(*D.lock().expect("no holder panics"), round);
    }
}

fn a_wait_under_a_context_is_no_link() {
    assert_eq!(started("c_cancelled").wait(), Ended::Code(0));
}

fn a_waiting_g_says_who_holds_the_lock() {
    static M: Mutex<u32> = Mutex::new(0);
    static R: RwLock<u32> = RwLock::new(0);
    let holder = |name: &str| {
        let is_meant = |g: &&tasks::GInfo| g.name == name && g.state == GState::Waiting;
        tasks::gs().iter().find(is_meant).and_then(|g| g.holder)
    };
    let (held, written) = (M.lock(), R.write());
    let locks = named("locks", || drop(M.lock()));
    let reads = named("reads it", || drop(R.read()));
    let me = current().id();
    wait_until(|| holder("locks") == Some(me) && holder("reads it") == Some(me));
    drop((held, written));
    check::join_all([locks, reads]);
    let _read = R.read();
    let writes = named("writes it", || drop(R.write()));
    let waits = |g: &tasks::GInfo| g.name == "writes it" && g.state == GState::Waiting;
    wait_until(|| tasks::gs().iter().any(waits));
    assert_eq!(holder("writes it"), None, "readers have no names");
    drop(_read);
    writes.join().expect("no panic");
}

/// Takes both and ends without giving them back, as one whose stack is gone.
fn leave_taken(lock: &'static Mutex<u32>, shared: &'static RwLock<u32>, found: usize) {
    core::mem::forget((lock.lock(), shared.write()));
    let me = current().id();
    wait_until(|| tasks::gs().iter().filter(|g| g.holder == Some(me)).count() >= found);
    // A G that was woken may have woken the next one.
    let woken = abandon_locks(me);
    assert!(woken <= found && (woken > 0) == (found > 0), "{woken} of {found}");
}

fn locks_of_one_that_is_gone_never_open() {
    static M: Mutex<u32> = Mutex::new(0);
    static R: RwLock<u32> = RwLock::new(0);
    go(|| leave_taken(&M, &R, 0)).join().expect("no panic");
    assert_eq!(abandon_locks(u64::MAX), 0, "there is no such G");
    for _ in 0..2 {
        assert!(matches!(M.lock(), Err(LockError::Abandoned)));
        assert!(matches!(R.read(), Err(LockError::Abandoned)));
        assert!(matches!(R.write(), Err(LockError::Abandoned)));
        // With limits, and without waiting at all.
        let limit = Duration::from_secs(3600);
        assert!(matches!(M.lock_until(limit), Err(LockError::Abandoned)));
        assert!(matches!(R.read_until(limit), Err(LockError::Abandoned)));
        assert!(matches!(R.try_write(), Err(LockError::Abandoned)));
        assert!(matches!(M.try_lock(), Err(LockError::Abandoned)));
        M.clear_poison();
        R.clear_poison();
    }
    assert!(M.is_poisoned() && R.is_poisoned());
}

/// What a G can wait for, and a way to: whether it is told that the lock was abandoned.
struct Locks {
    m: Mutex<u32>,
    r: RwLock<u32>,
    changed: Condvar,
}

type Way = fn(&'static Locks) -> bool;

/// In every form of a wait, those with a limit, too.
fn who_waits_for_one_that_is_gone_is_woken() {
    const HOUR: Duration = Duration::from_secs(3600);
    let at_locks: [Way; 6] = [
        |l| matches!(l.m.lock(), Err(LockError::Abandoned)),
        |l| matches!(l.m.lock_until(HOUR), Err(LockError::Abandoned)),
        |l| matches!(l.r.read(), Err(LockError::Abandoned)),
        |l| matches!(l.r.read_until(HOUR), Err(LockError::Abandoned)),
        |l| matches!(l.r.write(), Err(LockError::Abandoned)),
        |l| matches!(l.r.write_until(HOUR), Err(LockError::Abandoned)),
    ];
    // When these are notified they want the mutex.
    let at_condvar: [Way; 4] = [
        |l| matches!(l.changed.wait(l.m.lock().unwrap()), Err(LockError::Abandoned)),
        |l| {
            let waited = l.changed.wait_timeout(l.m.lock().unwrap(), HOUR);
            matches!(waited, Err(LockError::Abandoned))
        },
        |l| {
            let waited = l.changed.wait_while(l.m.lock().unwrap(), |_| true);
            matches!(waited, Err(LockError::Abandoned))
        },
        |l| {
            let waited = l.changed.wait_timeout_while(l.m.lock().unwrap(), HOUR, |_| true);
            matches!(waited, Err(LockError::Abandoned))
        },
    ];
    for _ in 0..25 {
        let locks = Locks { m: Mutex::new(0), r: RwLock::new(0), changed: Condvar::new() };
        let l: &'static Locks = Box::leak(Box::new(locks));
        let start = |way: Way| go(move || way(l));
        let mut waiting: Vec<_> = at_condvar.into_iter().map(start).collect();
        let waits = |g: &&tasks::GInfo| g.wait.is_some_and(|w| w.reason == Reason::Condvar);
        wait_until(|| tasks::gs().iter().filter(waits).count() == at_condvar.len());
        let all = at_condvar.len() + at_locks.len();
        let left = go(move || leave_taken(&l.m, &l.r, all));
        wait_until(|| l.m.try_lock().is_err() && l.r.try_read().is_err());
        l.changed.notify_all();
        waiting.extend(at_locks.into_iter().map(start));
        left.join().expect("no panic");
        let told = check::join_all(waiting);
        assert!(told.iter().all(|is_told| *is_told), "{told:?}");
    }
}

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("while it unwinds");
    }
}

/// A guard is leaked and its reference given away, by safe code; then its G is abandoned.
fn a_leaked_guard_of_an_abandoned_g_stays_the_only_one() {
    static M: Mutex<u32> = Mutex::new(0);
    static R: RwLock<u32> = RwLock::new(0);
    let (tx, rx) = chan::bounded::<(&'static mut u32, &'static mut u32)>(1);
    let abandoned = runnext::program::abandoned();
    let leaks = go(move || {
        let one = Box::leak(Box::new(M.lock().expect("free")));
        let other = Box::leak(Box::new(R.write().expect("free")));
        tx.send((&mut **one, &mut **other)).expect("open");
        let _panics = Panics;
        panic!("once");
    });
    assert!(leaks.join().is_err());
    assert_eq!(runnext::program::abandoned(), abandoned + 1);
    let (one, other) = rx.recv().expect("it was sent");
    let values = (M.lock().ok().map(|m| *m), R.read().ok().map(|r| *r), R.write().is_ok());
    assert_eq!(values, (None, None, false), "the values have two users");
    (*one, *other) = (1, 1);
}

runnext::main!(c_hog, c_hog);
static HOGGED: Mutex<u32> = Mutex::new(0);

/// Returns while a G of it computes for ever, with a lock that is not its own.
fn c_hog() {
    static HOGS: AtomicUsize = AtomicUsize::new(0);
    HOGS.store(0, Relaxed);
    drop(go(|| {
        let _held = HOGGED.lock();
        HOGS.store(1, Relaxed);
        loop {
            check::spin();
        }
    }));
    wait_until(|| HOGS.load(Relaxed) == 1);
}

fn a_lock_of_an_abandoned_g_never_opens() {
    let run = started("c_hog");
    wait_until(|| HOGGED.try_lock().is_err());
    let waits = go(|| matches!(HOGGED.lock(), Err(LockError::Abandoned)));
    assert_eq!(run.wait(), Ended::Code(0));
    assert_eq!(waits.join(), Ok(true), "it waited, and was told");
    assert!(matches!(HOGGED.try_lock(), Err(LockError::Abandoned)));
}
