//! What panics carry, and hooks that do what they should not: `program=panics`.
//!
//! `hooked` is a program with a hook of its own, and `hook_exits` one whose hook ends it.

use crate::check::{self, checks, join_all, wait_until};
use core::hint::black_box;
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::go::goexit;
use runnext::panic::{PanicHookInfo, panic_any, resume_unwind, set_hook, take_hook};
use runnext::prelude::*;
use runnext::program::{self, Ended, abandoned};
use runnext::sync::{Mutex, Semaphore};
use runnext::tasks::{self, Killed};

runnext::main!(panics, main);
runnext::main!(hooked, hooked);
runnext::main!(hook_exits, hook_exits);

fn main() {
    check::run(checks![
        a_value_goes_wherever_a_panic_goes,
        a_hook_is_told_once_of_each_panic_and_of_nothing_else,
        a_hook_that_panics_is_no_harm,
        a_hook_may_wait_and_be_replaced_meanwhile,
        a_killed_g_waits_on_in_its_hook,
        a_hook_that_fills_the_stack_ends_its_g_only,
        a_hook_that_prints_what_panics_ends_its_g_only,
        a_hook_is_its_programs_and_ends_with_it,
        a_hook_may_end_its_program,
        hooks_are_replaced_while_all_cpus_panic,
    ]);
}

#[derive(Debug, PartialEq)]
struct Thrown(u32, Box<u32>);

fn thrown(n: u32) -> Thrown {
    Thrown(n, Box::new(n))
}

/// Takes a hook off at the end of a check, however that ends.
struct Unhook;

impl Drop for Unhook {
    fn drop(&mut self) {
        drop(take_hook());
    }
}

#[must_use]
fn hook(hook: impl Fn(&PanicHookInfo<'_>) + Send + Sync + 'static) -> Unhook {
    set_hook(Box::new(hook));
    Unhook
}

fn value_of<T>(joined: Result<T, JoinError>) -> Option<Thrown> {
    let Err(JoinError::Panicked(panic)) = joined else { return None };
    panic.downcast().ok()
}

fn a_value_goes_wherever_a_panic_goes() {
    let throws = |n| move || -> u32 { panic_any(thrown(n)) };
    assert_eq!(value_of(go(throws(1)).join()), Some(thrown(1)));
    assert_eq!(catch(throws(2)).unwrap_err().downcast(), Ok(thrown(2)));
    assert_eq!(value_of(go(move || blocking(throws(3))).join()), Some(thrown(3)));
    assert_eq!(
        value_of(go(move || scope(|s| s.go(throws(4)).join().map(drop))).join().unwrap()),
        Some(thrown(4))
    );
    // Of a member whose handle was not joined the scope panics.
    let scoped = go(move || {
        scope(|s| {
            drop(s.go(throws(5)));
        });
    });
    assert_eq!(value_of(scoped.join()), Some(thrown(5)));
    let goes_on = move || match catch(throws(6)) {
        Ok(_) => (),
        Err(panic) => resume_unwind(panic.into_payload()),
    };
    assert_eq!(value_of(go(goes_on).join()), Some(thrown(6)));
    let text = go(|| panic!("no {}", 7)).join();
    let Err(JoinError::Panicked(panic)) = text else { panic!("it did") };
    assert_eq!(panic.downcast::<u32>().map_err(|p| p.downcast()), Err(Ok(String::from("no 7"))));
    // A value is dropped once, with the handle that was not joined.
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Relaxed);
        }
    }
    drop(go(|| panic_any(Counts)));
    wait_until(|| DROPS.load(Relaxed) == 1);
    assert!(catch(|| panic_any(Counts)).is_err());
    assert_eq!(DROPS.load(Relaxed), 2);
}

/// What a hook has seen: the G, the line, the number if it was thrown.
type Seen = (u64, u32, Option<u32>);

#[inline(never)]
fn recurse(depth: usize) -> usize {
    let frame = black_box(Box::new([depth; 24]));
    assert!(black_box(depth) < usize::MAX, "so that it may unwind");
    recurse(depth + 1) + frame[0]
}

fn a_hook_is_told_once_of_each_panic_and_of_nothing_else() {
    static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
    let _unhook = hook(|info| {
        let value = info.payload().downcast_ref().map(|thrown: &Thrown| thrown.0);
        let line = info.location().map_or(0, Location::line);
        assert_eq!(value.is_none(), info.payload_as_str().is_some());
        SEEN.lock().unwrap().push((current().id(), line, value));
    });
    let seen = || core::mem::take(&mut *SEEN.lock().unwrap());
    let (tx, rx) = chan::bounded(1);
    let says = move || tx.send(current().id()).unwrap();
    let g = go(move || {
        says();
        panic_any(thrown(1));
    });
    let at = line!() - 2;
    assert!(value_of(g.join()).is_some());
    assert_eq!(seen(), [(rx.recv().unwrap(), at, Some(1))]);
    // A message, in a call, caught: each by the G itself.
    let said = blocking(|| catch(|| panic!("{} words", 2)));
    assert_eq!(said.unwrap_err().message(), "2 words");
    assert_eq!(seen(), [(current().id(), line!() - 2, None)]);
    // What is no panic.
    assert!(catch(|| resume_unwind(Box::new(3))).is_err());
    assert_eq!(go(|| recurse(0)).join(), Err(JoinError::StackOverflow));
    assert_eq!(go(|| goexit()).join(), Err::<(), _>(JoinError::Exited));
    let sleeps = go(|| sleep(Duration::from_secs(3600)));
    wait_until(|| !matches!(sleeps.kill(), Ok(Killed::Pending | Killed::Computing)));
    assert_eq!(sleeps.join(), Err(JoinError::Killed));
    assert_eq!(seen(), []);
}

fn a_hook_that_panics_is_no_harm() {
    let before = abandoned();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let _unhook = hook(|_| {
        CALLS.fetch_add(1, Relaxed);
        assert!(catch(|| panic_any(thrown(7))).is_err(), "as anywhere");
        panic!("in the hook");
    });
    for n in 1..=20 {
        assert_eq!(value_of(go(|| panic_any(thrown(1))).join()), Some(thrown(1)));
        assert_eq!(CALLS.load(Relaxed), n, "not for a panic in itself");
    }
    assert_eq!(
        go(|| blocking(|| panic!("no"))).join(),
        Err::<(), _>(JoinError::Panicked("no".into()))
    );
    let _unhook = hook(|_| goexit());
    assert_eq!(go(|| panic!("no")).join(), Err::<(), _>(JoinError::Panicked("no".into())));
    assert_eq!(abandoned(), before);
    // One that is called as destructors run is that of a nested panic.
    struct Catches;
    impl Drop for Catches {
        fn drop(&mut self) {
            assert_eq!(catch(|| panic!("inner")).unwrap_err().message(), "inner");
        }
    }
    let g = go(|| {
        let _catches = Catches;
        panic!("outer");
    });
    assert_eq!(g.join(), Err::<(), _>(JoinError::Panicked("outer".into())));
    assert_eq!(abandoned(), before);
}

/// Says when it is gone.
struct Flag(&'static AtomicBool);

impl Drop for Flag {
    fn drop(&mut self) {
        assert!(!self.0.swap(true, Relaxed), "once");
    }
}

fn a_hook_may_wait_and_be_replaced_meanwhile() {
    static GATE: Semaphore = Semaphore::new(0);
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static GONE: AtomicBool = AtomicBool::new(false);
    const GS: usize = 16;
    let flag = Flag(&GONE);
    let _unhook = hook(move |_| {
        let flag = &flag; // all of it is the hook's
        WAITING.fetch_add(1, Relaxed);
        GATE.acquire(1);
        assert!(!flag.0.load(Relaxed), "it is there as long as it runs");
        WAITING.fetch_sub(1, Relaxed);
    });
    let gs: Vec<_> = (0..GS).map(|n| go(move || panic_any(thrown(n as u32)))).collect();
    wait_until(|| WAITING.load(Relaxed) == GS);
    // Replaced by itself, as well.
    static REPLACED: AtomicUsize = AtomicUsize::new(0);
    set_hook(Box::new(|_| {
        REPLACED.fetch_add(1, Relaxed);
        drop(take_hook());
    }));
    assert_eq!(go(|| panic!("no")).join(), Err::<(), _>(JoinError::Panicked("no".into())));
    assert_eq!(REPLACED.load(Relaxed), 1);
    assert!(!GONE.load(Relaxed));
    GATE.release(GS);
    for (n, g) in gs.into_iter().enumerate() {
        let g: Result<(), _> = g.join();
        assert_eq!(value_of(g), Some(thrown(n as u32)));
    }
    assert_eq!(WAITING.load(Relaxed), 0);
    assert!(GONE.load(Relaxed));
}

fn a_killed_g_waits_on_in_its_hook() {
    static GATE: Semaphore = Semaphore::new(0);
    static WAITS: AtomicBool = AtomicBool::new(false);
    let _unhook = hook(|_| {
        WAITS.store(true, Relaxed);
        GATE.acquire(1);
    });
    let g = go(|| panic_any(thrown(1)));
    wait_until(|| WAITS.load(Relaxed));
    assert_eq!(tasks::kill(g.id().unwrap()), Ok(Killed::Pending), "it unwinds already");
    GATE.release(1);
    let joined: Result<(), _> = g.join();
    assert_eq!(value_of(joined), Some(thrown(1)));
}

fn a_hook_that_fills_the_stack_ends_its_g_only() {
    let before = abandoned();
    let _unhook = hook(|_| {
        black_box(recurse(0));
    });
    for n in 1..=3 {
        assert_eq!(go(|| panic!("no")).join(), Err::<(), _>(JoinError::StackOverflow));
        assert_eq!(abandoned(), before + n, "there is room to unwind once");
    }
}

fn a_hook_that_prints_what_panics_ends_its_g_only() {
    struct Bomb;
    impl core::fmt::Display for Bomb {
        fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            panic!("as it is printed")
        }
    }
    let before = abandoned();
    let _unhook = hook(|_| println!("{Bomb}"));
    assert_eq!(go(|| panic!("no")).join(), Err::<(), _>(JoinError::Panicked("no".into())));
    assert_eq!(abandoned(), before, "it is caught, like any other");
    let _unhook = hook(|_| panic!("{Bomb}"));
    let joined: Result<(), _> = go(|| panic!("no")).join();
    assert!(matches!(joined, Err(JoinError::Panicked(_))), "{joined:?}");
    assert_eq!(abandoned(), before + 1, "a message that panics is the end, as anywhere");
}

static HOOKED: AtomicUsize = AtomicUsize::new(0);
static HOOK_GONE: AtomicBool = AtomicBool::new(false);

/// Says that it is gone, after a wait; and it panics.
struct Lingers;

impl Drop for Lingers {
    fn drop(&mut self) {
        HOOK_GONE.store(true, Relaxed);
        sleep(Duration::from_secs(3600));
    }
}

fn hooked() {
    let lingers = Lingers;
    set_hook(Box::new(move |_| {
        let _ = &lingers;
        HOOKED.fetch_add(1, Relaxed);
    }));
    assert!(go(|| panic!("no")).join().is_err());
}

fn a_hook_is_its_programs_and_ends_with_it() {
    static MINE: AtomicUsize = AtomicUsize::new(0);
    let _unhook = hook(|_| _ = MINE.fetch_add(1, Relaxed));
    for round in 1..=5 {
        HOOK_GONE.store(false, Relaxed);
        let run = program::start("hooked", Vec::new()).expect("there, and memory");
        assert_eq!(run.wait(), Ended::Code(0));
        assert_eq!((HOOKED.load(Relaxed), MINE.load(Relaxed)), (round, 0));
        assert!(HOOK_GONE.load(Relaxed));
    }
    assert!(go(|| panic!("no")).join().is_err());
    assert_eq!((HOOKED.load(Relaxed), MINE.load(Relaxed)), (5, 1));
}

fn hook_exits() {
    set_hook(Box::new(|_| exit(7)));
    let _ = go(|| panic!("no")).join();
    sleep(Duration::from_secs(3600));
}

fn a_hook_may_end_its_program() {
    let run = program::start("hook_exits", Vec::new()).expect("there, and memory");
    assert_eq!(run.wait(), Ended::Code(7));
}

fn hooks_are_replaced_while_all_cpus_panic() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static STOP: AtomicBool = AtomicBool::new(false);
    const ROUNDS: usize = 20;
    let counts = || {
        let owned = Box::new(1);
        move |_: &PanicHookInfo<'_>| {
            yield_now();
            CALLS.fetch_add(*owned, Relaxed);
        }
    };
    let _unhook = hook(counts());
    let replaces = go(move || {
        while !STOP.load(Relaxed) {
            set_hook(Box::new(counts()));
            yield_now();
        }
    });
    let panics = |n: u32| {
        move || {
            for round in 0..ROUNDS as u32 {
                let caught = catch(|| panic_any(thrown(n + round)));
                assert_eq!(caught.unwrap_err().downcast(), Ok(thrown(n + round)));
            }
        }
    };
    let gs = 2 * num_cpus();
    join_all((0..gs as u32).map(|n| go(panics(n))));
    STOP.store(true, Relaxed);
    replaces.join().unwrap();
    assert_eq!(CALLS.load(Relaxed), gs * ROUNDS);
}
