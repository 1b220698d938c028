//! Gs that borrow are gone before what they borrow is: `program=scopes`.
//!
//! However their owner ends: by a return, a panic, a kill, a full stack in frames that no
//! table lists, or abandoned, by itself or by force. `scoped_hog` is a program of which a G
//! that owns scopes must be abandoned when it ends.

use crate::check::{self, checks, wait_until};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use runnext::prelude::*;
use runnext::program::{self, Ended, abandoned};
use runnext::scope::{ScopedJoinHandle, join, par_chunks, par_for_each};
use runnext::sync::{Mutex, Semaphore};
use runnext::tasks;
use runnext::waiting::Reason;

runnext::main!(scopes, main);
runnext::main!(scoped_hog, scoped_hog);

fn main() {
    check::run(checks![
        members_on_all_cpus_change_what_they_borrow,
        fork_join_divides_and_loops_visit_each_element_once,
        a_panic_in_the_closure_or_of_a_member_waits_for_the_others,
        a_scope_in_a_member_in_a_call_and_in_a_destructor,
        an_owner_that_is_killed_waits_for_its_members,
        an_owner_that_overflows_unwinds_and_drops_what_members_wait_for,
        an_overflow_in_a_callee_that_cannot_unwind_waits_before_frames_are_lost,
        an_overflow_there_in_a_call_waits_too,
        an_owner_that_panics_twice_keeps_its_place_in_the_scope_around_it,
        a_result_whose_destructor_panics_twice_keeps_its_place,
        members_that_are_abandoned_are_counted,
        a_forced_kill_of_an_owner_keeps_its_place,
        births_and_ends_in_scopes_leave_nothing,
    ]);
}

/// What members borrow. Dropped while one still does, it says so.
struct Lent {
    borrowers: AtomicUsize,
    gate: Semaphore,
    is_wanted_back_early: &'static AtomicBool,
}

static EARLY: AtomicBool = AtomicBool::new(false);

impl Lent {
    fn new() -> Self {
        EARLY.store(false, SeqCst);
        let gate = Semaphore::new(0);
        Lent { borrowers: AtomicUsize::new(0), gate, is_wanted_back_early: &EARLY }
    }

    /// A member: borrows until the gate is opened once for it.
    fn borrow(&self) {
        let _borrowed = Borrowed::of(self);
        self.gate.acquire(1);
    }

    fn check(&self) {
        let is_early = self.borrowers.load(SeqCst) != 0;
        self.is_wanted_back_early.fetch_or(is_early, SeqCst);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.check();
    }
}

struct Borrowed<'a>(&'a Lent);

impl<'a> Borrowed<'a> {
    fn of(lent: &'a Lent) -> Self {
        lent.borrowers.fetch_add(1, SeqCst);
        Borrowed(lent)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.0.borrowers.fetch_sub(1, SeqCst);
    }
}

#[track_caller]
fn assert_not_early() {
    assert!(!EARLY.load(SeqCst), "borrowed by a G that has not ended");
}

/// Waits until that G waits for a scope, or has ended.
fn until_it_waits(id: u64) {
    wait_until(|| {
        let gs = tasks::gs();
        let g = gs.iter().find(|g| g.id == id);
        g.is_none_or(|g| g.wait.is_some_and(|wait| wait.reason == Reason::Scope))
    });
}

/// Recurses with nothing but arithmetic, so that no table knows of it.
#[inline(never)]
#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn recurse_plainly(depth: usize) -> usize {
    let frame = black_box([depth; 24]);
    recurse_plainly(depth + 1) + frame[0]
}

/// Recurses with something to drop.
#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = black_box(Box::new([depth; 24]));
    assert!(black_box(depth) < usize::MAX, "so that it may unwind");
    recurse(depth + 1) + frame[0]
}

/// Its destructor panics.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("second");
    }
}

fn members_on_all_cpus_change_what_they_borrow() {
    for round in 0..50 {
        let mut counts = vec![0; 4 * num_cpus()];
        let sum = Mutex::new(0);
        scope(|s| {
            for (n, count) in counts.iter_mut().enumerate() {
                s.go(|| {
                    *count += round;
                    yield_now();
                    *count += 1;
                });
                let pinned = Go::new().name("pinned").pin(n % num_cpus());
                s.spawn(pinned, || *sum.lock().unwrap() += 1).expect("memory for a G");
            }
        });
        assert!(counts.iter().all(|&count| count == round + 1));
        assert_eq!(sum.into_inner().ok(), Some(4 * num_cpus()));
    }
}

fn fork_join_divides_and_loops_visit_each_element_once() {
    fn leaves(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let (left, right) = join(|| leaves(depth - 1), || leaves(depth - 1));
        left + right
    }
    assert_eq!(leaves(10), 1 << 10);
    let mut numbers: Vec<usize> = (0..10_000).collect();
    par_for_each(&mut numbers, |n| *n += 1);
    par_chunks(&mut numbers, 97, |first, chunk| {
        chunk.iter_mut().enumerate().for_each(|(i, n)| *n -= first + i);
    });
    assert!(numbers.iter().all(|&n| n == 1));
}

fn a_panic_in_the_closure_or_of_a_member_waits_for_the_others() {
    for in_member in [false, true] {
        let (tx, rx) = chan::bounded(1);
        let g = go(move || {
            let lent = &Lent::new();
            scope(|s| {
                s.go(|| lent.borrow());
                s.go(|| {
                    tx.send(()).unwrap();
                    lent.borrow();
                    assert!(!in_member, "expected");
                });
                // Opened when the owner waits for them, or has not.
                let owner = current().id();
                s.go(move || {
                    until_it_waits(owner);
                    lent.gate.release(2);
                });
                wait_until(|| lent.borrowers.load(SeqCst) == 2);
                assert!(in_member, "expected");
            });
        });
        rx.recv().unwrap();
        assert_eq!(g.join(), Err(JoinError::Panicked("expected".into())));
        assert_not_early();
    }
}

fn a_scope_in_a_member_in_a_call_and_in_a_destructor() {
    struct Scopes<'a>(&'a Lent);
    impl Drop for Scopes<'_> {
        fn drop(&mut self) {
            scope(|s| {
                s.go(|| self.0.borrow());
                s.go(|| self.0.gate.release(1));
            });
        }
    }
    let joined = go(|| {
        let lent = Lent::new();
        scope(|s| {
            s.go(|| blocking(|| scope(|t| drop((t.go(|| lent.borrow()), lent.gate.release(1))))));
            s.go(|| scope(|t| drop((t.go(|| lent.borrow()), lent.gate.release(1)))));
        });
        let _scopes = Scopes(&lent);
        panic!("expected");
    });
    assert_eq!(joined.join(), Err::<(), _>(JoinError::Panicked("expected".into())));
    assert_not_early();
}

/// Starts an owner that has lent to members of nested scopes, and does `last` in the inner one.
/// The gate is opened when it waits for a scope, or has ended.
fn owner_of_two(in_call: bool, last: fn(&Lent)) -> Result<(), JoinError> {
    let (tx, rx) = chan::bounded(1);
    let g = go(move || {
        let lent = Lent::new();
        let nested = || {
            scope(|s| {
                s.go(|| lent.borrow());
                scope(|t| {
                    t.go(|| lent.borrow());
                    // Opens the gate when the owner waits, or is about to lose its frames.
                    let (owner, lent) = (current().id(), &lent);
                    t.go(move || {
                        until_it_waits(owner);
                        lent.gate.release(2);
                    });
                    wait_until(|| lent.borrowers.load(SeqCst) == 2);
                    tx.send(owner).unwrap();
                    last(lent);
                });
            });
        };
        if in_call { blocking(nested) } else { nested() }
    });
    rx.recv().unwrap();
    let ended = g.join();
    assert_not_early();
    ended
}

fn an_owner_that_is_killed_waits_for_its_members() {
    for in_call in [false, true] {
        let ended = owner_of_two(in_call, |lent| {
            let me = current().id();
            let _killer = go(move || tasks::kill(me));
            lent.gate.acquire(3); // there are two
        });
        assert_eq!(ended, Err(JoinError::Killed));
    }
    // As it waits for the scope.
    let (tx, rx) = chan::bounded(1);
    let (open, opened) = chan::bounded::<()>(1);
    let g = go(move || {
        let lent = Lent::new();
        scope(|s| {
            s.go(|| lent.borrow());
            s.go(|| {
                let _ = opened.recv();
                lent.gate.release(1);
            });
            tx.send(current().id()).unwrap();
        });
        unreachable!("it was killed");
    });
    let id = rx.recv().unwrap();
    until_it_waits(id);
    let _ = tasks::kill(id);
    drop(open);
    assert_eq!(g.join(), Err::<(), _>(JoinError::Killed));
    assert_not_early();
}

fn an_owner_that_overflows_unwinds_and_drops_what_members_wait_for() {
    let (tx, rx) = chan::bounded::<()>(1);
    let g = go(move || {
        let lent = Lent::new();
        scope(|s| {
            let (owner, lent) = (current().id(), &lent);
            s.go(move || {
                let _borrowed = Borrowed::of(lent);
                let received = rx.recv(); // an error when the owner has dropped the sender
                until_it_waits(owner);
                received
            });
            let _tx = tx;
            wait_until(|| lent.borrowers.load(SeqCst) == 1);
            recurse(0)
        })
    });
    assert_eq!(g.join(), Err(JoinError::StackOverflow));
    assert_not_early();
}

fn overflow_plainly(_: &Lent) {
    black_box(recurse_plainly(0));
}

fn an_overflow_in_a_callee_that_cannot_unwind_waits_before_frames_are_lost() {
    let before = abandoned();
    assert_eq!(owner_of_two(false, overflow_plainly), Err(JoinError::StackOverflow));
    assert_eq!(
        owner_of_two(false, |_| {
            black_box(recurse(0));
        }),
        Err(JoinError::StackOverflow)
    );
    // All in one function, which has no other call that may unwind.
    let g = go(|| {
        let lent = Lent::new();
        black_box(lose_a_scope as fn(&Lent))(&lent);
    });
    assert_eq!(g.join(), Err(JoinError::StackOverflow));
    assert_not_early();
    assert_eq!(abandoned(), before, "they unwind");
}

#[inline(never)]
fn lose_a_scope(lent: &Lent) {
    let owner = current().id();
    scope(|s| {
        s.go(|| lent.borrow());
        s.go(move || {
            wait_until(|| lent.borrowers.load(SeqCst) == 1);
            until_it_waits(owner);
            lent.gate.release(1);
        });
        wait_until(|| lent.borrowers.load(SeqCst) == 1);
        black_box(recurse_plainly(0));
    });
}

fn an_overflow_there_in_a_call_waits_too() {
    assert_eq!(owner_of_two(true, overflow_plainly), Err(JoinError::StackOverflow));
    let g = go(|| {
        let lent = Lent::new();
        blocking(|| black_box(lose_a_scope as fn(&Lent))(&lent));
    });
    assert_eq!(g.join(), Err(JoinError::StackOverflow));
    assert_not_early();
}

/// Abandoned, the owner's frames stay; but what it has borrowed itself may be borrowed on.
fn an_owner_that_panics_twice_keeps_its_place_in_the_scope_around_it() {
    static GATE: Semaphore = Semaphore::new(0);
    fn borrow(lent: &Lent) {
        let _borrowed = Borrowed::of(lent);
        GATE.acquire(1);
    }
    let before = abandoned();
    for in_call in [false, true] {
        let lent = Lent::new();
        // Not a member, so that only the owner's members keep the scope open.
        let me = current().id();
        let opener = go(move || {
            until_it_waits(me);
            GATE.release(2);
        });
        let ended = scope(|s| {
            let owner = s.go(|| {
                let nested = || {
                    scope(|t| {
                        t.go(|| borrow(&lent));
                        scope(|u| {
                            u.go(|| borrow(&lent));
                            wait_until(|| lent.borrowers.load(SeqCst) == 2);
                            let _panics = Panics;
                            panic!("first");
                        })
                    })
                };
                if in_call { blocking(nested) } else { nested() }
            });
            let ended: Result<(), _> = owner.join(); // at once
            assert_eq!(lent.borrowers.load(SeqCst), 2, "they wait");
            ended
        });
        lent.check(); // no member of the owner's scopes is left either
        opener.join().expect("it opens the gate");
        assert_eq!(ended, Err(JoinError::Panicked("while it panicked: second".into())));
        assert_not_early();
    }
    assert_eq!(abandoned(), before + 2);
}

/// The result of a member is dropped at its root if the destructor of a local has failed; what that
/// drop starts may borrow what the result has borrowed.
fn a_result_whose_destructor_panics_twice_keeps_its_place() {
    static GATE: Semaphore = Semaphore::new(0);
    runnext::g_local! {
        static FAILS: Panics = Panics;
    }
    struct Scopes<'a>(&'a Lent);
    impl Drop for Scopes<'_> {
        fn drop(&mut self) {
            let lent = self.0;
            scope(|s| {
                s.go(|| {
                    let _borrowed = Borrowed::of(lent);
                    GATE.acquire(1);
                });
                wait_until(|| lent.borrowers.load(SeqCst) == 1);
                let _panics = Panics;
                panic!("first");
            })
        }
    }
    let before = abandoned();
    let lent = Lent::new();
    let me = current().id();
    let opener = go(move || {
        wait_until(|| abandoned() > before);
        until_it_waits(me);
        GATE.release(1);
    });
    let ended = scope(|s| {
        let member = s.go(|| {
            FAILS.with(|_| ());
            Scopes(&lent)
        });
        member.join().map(drop)
    });
    lent.check(); // no member of the scope in the destructor is left
    assert_not_early();
    opener.join().expect("it opens the gate");
    assert_eq!(ended, Err(JoinError::Panicked("while it panicked: second".into())));
}

fn members_that_are_abandoned_are_counted() {
    let before = abandoned();
    let lent = Lent::new();
    let failed = scope(|s| {
        let ask = |g: ScopedJoinHandle<'_, ()>| g.join().is_err();
        ask(s.go(|| {
            let _panics = Panics;
            lent.check();
            panic!("first");
        }))
    });
    assert!(failed);
    assert_eq!(abandoned(), before + 1);
}

static HOG_STATE: AtomicUsize = AtomicUsize::new(0);

/// A main, a member that computes for ever, and members of its scopes, which end last.
fn scoped_hog() {
    struct EndsLate(usize);
    impl Drop for EndsLate {
        fn drop(&mut self) {
            wait_until(|| abandoned() > self.0); // it unwinds
        }
    }
    let (lent, before) = (Lent::new(), abandoned());
    let late = || {
        let _borrowed = Borrowed::of(&lent);
        let _late = EndsLate(before); // dropped first
        lent.gate.acquire(1);
    };
    scope(|s| {
        s.go(|| {
            scope(|t| {
                t.go(late);
                scope(|u| {
                    u.go(late);
                    wait_until(|| lent.borrowers.load(SeqCst) == 2);
                    HOG_STATE.store(1, SeqCst);
                    loop {
                        core::hint::spin_loop();
                    }
                })
            })
        });
    });
}

fn a_forced_kill_of_an_owner_keeps_its_place() {
    let before = abandoned();
    HOG_STATE.store(0, SeqCst);
    let run = program::start("scoped_hog", Vec::new()).expect("there, and memory");
    wait_until(|| HOG_STATE.load(SeqCst) == 1);
    run.stop();
    assert_eq!(run.wait(), Ended::Stopped);
    assert_eq!(abandoned(), before + 1, "the hog, and nothing else");
    assert_not_early();
}

fn births_and_ends_in_scopes_leave_nothing() {
    let round = || {
        scope(|s| {
            for n in 0..100_usize {
                let g = s.go(move || [n; 30]);
                match n % 3 {
                    0 => drop(g),
                    1 => assert_eq!(g.join().unwrap()[29], n),
                    _ => wait_until(|| g.is_finished()),
                }
            }
        });
    };
    (0..10).for_each(|_| round());
    let before = num_goroutines();
    (0..100).for_each(|_| round());
    wait_until(|| num_goroutines() == before);
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    scope(|s| drop(s.go(|| SEEN.fetch_add(1, Relaxed))));
    assert_eq!(SEEN.load(Relaxed), 1);
}
