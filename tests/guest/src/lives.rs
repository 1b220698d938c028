//! What a G has of its own, from its start to its end: `program=lives`.
//!
//! Handles that say which G it is and end it, locals, names that are freed, a CPU for a while,
//! and an end in the middle. `leaves` and `leaves_alone` are programs whose main leaves.

use crate::check::{self, checks, wait_until};
use core::cell::{Cell, RefCell};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::g_local;
use runnext::go::{PinError, goexit, lock_to_cpu, set_name};
use runnext::local::AccessError;
use runnext::prelude::*;
use runnext::program::{self, Ended, abandoned};
use runnext::sync::{Mutex, Semaphore};
use runnext::tasks::{self, KillError, Killed};

runnext::main!(lives, main);
runnext::main!(leaves, leaves);
runnext::main!(leaves_alone, leaves_alone);

fn main() {
    check::run(checks![
        a_handle_says_which_g_it_is_until_that_has_ended,
        a_handle_kills_its_g,
        locals_are_dropped_on_every_end_before_the_join_tells,
        a_local_is_not_that_of_the_next_life,
        an_abandoned_g_leaks_its_locals,
        names_that_are_freed_are_read_whole,
        a_g_stays_on_the_cpu_that_it_is_locked_to,
        goexit_drops_everything_and_the_join_says_so,
        the_others_go_on_when_main_has_left,
        a_program_without_main_or_any_g_is_deadlocked,
    ]);
}

fn a_handle_says_which_g_it_is_until_that_has_ended() {
    static GATE: Semaphore = Semaphore::new(0);
    for large in [false, true] {
        let ballast = [0_u64; 40];
        let (tx, rx) = chan::bounded(1);
        let named = Go::new().name("named");
        // The cell of the larger closure is on the heap.
        let g = match large {
            true => named.spawn(move || {
                tx.send(current().id()).unwrap();
                GATE.acquire(1);
                assert_eq!(black_box(ballast)[7], 0);
            }),
            false => named.spawn(move || {
                tx.send(current().id()).unwrap();
                GATE.acquire(1);
            }),
        };
        let g = g.expect("memory for a G");
        let id = rx.recv().unwrap();
        assert_eq!((g.id(), g.gref().map(|g| g.id())), (Some(id), Some(id)));
        assert_eq!(g.name().as_deref(), Some("named"));
        GATE.release(1);
        wait_until(|| g.is_finished());
        assert_eq!((g.id(), g.name()), (None, None));
        assert_eq!(g.kill(), Err(KillError::NoSuchG));
        g.join().unwrap();
    }
    // While lives begin and end, a handle never names another's.
    let gs: Vec<_> = (0..2 * num_cpus())
        .map(|_| {
            go(|| {
                for _ in 0..300 {
                    let g = go(|| current().id());
                    let seen = g.id();
                    let id = g.join().unwrap();
                    assert!(seen.is_none_or(|seen| seen == id), "{seen:?} is not {id}");
                }
            })
        })
        .collect();
    check::join_all(gs);
}

fn a_handle_kills_its_g() {
    let g = go(|| sleep(Duration::from_secs(3600)));
    wait_until(|| !matches!(g.kill(), Ok(Killed::Pending | Killed::Computing)));
    assert_eq!(g.join(), Err(JoinError::Killed));
}

/// Counts drops, and asks for itself meanwhile.
struct Counted(&'static AtomicUsize);

static DROPPED: AtomicUsize = AtomicUsize::new(0);

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(COUNTED.try_with(|_| ()), Err(AccessError::Dropped));
        self.0.fetch_add(1, Relaxed);
        COUNT.with(|count| count.set(count.get() + 1)); // another, made here perhaps
    }
}

g_local! {
    static COUNTED: Counted = Counted(&DROPPED);
    static COUNT: Cell<usize> = Cell::new(0);
    static WORDS: RefCell<Vec<String>> = RefCell::new(Vec::new());
}

/// Recurses with something to drop.
#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = black_box(Box::new([depth; 24]));
    assert!(black_box(depth) < usize::MAX, "so that it may unwind");
    recurse(depth + 1) + frame[0]
}

fn locals_are_dropped_on_every_end_before_the_join_tells() {
    type End = (fn(), Result<(), JoinError>);
    let ends: [End; 5] = [
        (|| (), Ok(())),
        (|| panic!("expected"), Err(JoinError::Panicked("expected".into()))),
        (|| assert_eq!(recurse(0), 0), Err(JoinError::StackOverflow)),
        (|| goexit(), Err(JoinError::Exited)),
        (
            || {
                let me = current().id();
                drop(go(move || tasks::kill(me)));
                park();
            },
            Err(JoinError::Killed),
        ),
    ];
    for round in 0..10 {
        for &(end, ref expected) in &ends {
            let before = DROPPED.load(Relaxed);
            let joined = go(move || {
                COUNTED.with(|_| WORDS.with(|words| words.borrow_mut().push(round.to_string())));
                end();
            });
            assert_eq!(&joined.join(), expected);
            assert_eq!(DROPPED.load(Relaxed), before + 1, "{expected:?}");
        }
    }
    // In a scope, too, and in a call.
    let before = DROPPED.load(Relaxed);
    scope(|s| {
        s.go(|| COUNTED.with(|_| ()));
        s.go(|| blocking(|| COUNTED.with(|_| ())));
    });
    assert_eq!(DROPPED.load(Relaxed), before + 2);
}

fn a_local_is_not_that_of_the_next_life() {
    let gs: Vec<_> = (0..num_cpus())
        .map(|cpu| {
            check::go_on(cpu, || {
                for _ in 0..200 {
                    let g = go(|| COUNT.with(|count| count.replace(1)));
                    assert_eq!(g.join(), Ok(0));
                }
            })
        })
        .collect();
    check::join_all(gs);
}

fn an_abandoned_g_leaks_its_locals() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("second");
        }
    }
    let (before, dropped) = (abandoned(), DROPPED.load(Relaxed));
    let g = go(|| {
        COUNTED.with(|_| ());
        let _panics = Panics;
        panic!("first");
    });
    assert!(g.join().is_err());
    assert_eq!((abandoned(), DROPPED.load(Relaxed)), (before + 1, dropped));
}

fn names_that_are_freed_are_read_whole() {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Relaxed);
    let name = |n: usize| format!("made up {n} ").repeat(1 + n % 9);
    let namers: Vec<_> = (0..2 * num_cpus())
        .map(|first| {
            go(move || {
                let mut n = first;
                while !STOP.load(Relaxed) {
                    let g = go(move || {
                        set_name(name(n));
                        yield_now();
                        set_name(name(n + 1));
                        current().name()
                    });
                    let seen = g.join().unwrap().unwrap();
                    assert!(name(n + 1).starts_with(&seen) && !seen.is_empty(), "{seen}");
                    n += 1;
                }
            })
        })
        .collect();
    let mut seen = 0;
    while seen < 100 {
        for g in tasks::gs().into_iter().filter(|g| g.name.starts_with("made up")) {
            let n: usize = g.name.split(' ').nth(2).and_then(|n| n.parse().ok()).expect("whole");
            assert!(name(n).starts_with(&*g.name), "{}", g.name);
            seen += 1;
        }
        yield_now();
    }
    STOP.store(true, Relaxed);
    check::join_all(namers);
    assert!(!tasks::gs().iter().any(|g| g.name.starts_with("made up")), "the next life's");
}

fn a_g_stays_on_the_cpu_that_it_is_locked_to() {
    assert_eq!(lock_to_cpu(num_cpus()).err(), Some(PinError::NoSuchCpu));
    let gs: Vec<_> = (0..4 * num_cpus())
        .map(|n| {
            go(move || {
                for step in 0..20 {
                    let cpu = (n + step) % num_cpus();
                    let lock = lock_to_cpu(cpu).unwrap();
                    let is_here = || current_cpu() == cpu;
                    assert!(is_here());
                    yield_now();
                    sleep(Duration::from_micros(10));
                    blocking(yield_now);
                    assert!(is_here());
                    let other = (cpu + 1) % num_cpus();
                    let inner = lock_to_cpu(other).unwrap();
                    assert_eq!(current_cpu(), other);
                    drop(inner);
                    assert!(is_here(), "it comes back");
                    drop(lock);
                    let pin = tasks::gs().into_iter().find(|g| g.id == current().id());
                    assert_eq!(pin.and_then(|g| g.pin), None);
                }
                blocking(|| assert_eq!(lock_to_cpu(0).err(), Some(PinError::InCall)));
            })
        })
        .collect();
    check::join_all(gs);
    // To the end of its life, and no longer.
    go(|| core::mem::forget(lock_to_cpu(num_cpus() - 1).unwrap())).join().unwrap();
    let pinned = |g: &tasks::GInfo| g.pin == Some(num_cpus() - 1);
    assert!(!tasks::gs().iter().any(pinned));
}

fn goexit_drops_everything_and_the_join_says_so() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let g = go(|| {
        let mut held = LOCK.lock().expect("not poisoned yet");
        *held += 1;
        blocking(|| goexit());
    });
    assert_eq!(g.join(), Err(JoinError::Exited));
    let held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
    assert_eq!(*held, 1);
    let scoped = scope(|s| s.go(|| goexit()).join());
    assert_eq!(scoped, Err::<(), _>(JoinError::Exited));
    let owner = go(|| {
        scope(|s| {
            s.go(yield_now);
            goexit()
        })
    });
    assert_eq!(owner.join(), Err::<(), _>(JoinError::Exited));
}

static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Leaves, and another G ends the program later.
fn leaves() {
    drop(go(|| {
        sleep(Duration::from_millis(5));
        LEFT.fetch_add(1, Relaxed);
        exit(7);
    }));
    goexit();
}

fn the_others_go_on_when_main_has_left() {
    let before = LEFT.load(Relaxed);
    let run = program::start("leaves", Vec::new()).expect("there, and memory");
    assert_eq!((run.wait(), LEFT.load(Relaxed)), (Ended::Code(7), before + 1));
}

/// Leaves, and so does the last of its Gs.
fn leaves_alone() {
    drop(go(|| LEFT.fetch_add(1, Relaxed)));
    goexit();
}

fn a_program_without_main_or_any_g_is_deadlocked() {
    let before = LEFT.load(Relaxed);
    let run = program::start("leaves_alone", Vec::new()).expect("there, and memory");
    assert_eq!((run.wait(), LEFT.load(Relaxed)), (Ended::Deadlock, before + 1));
}
