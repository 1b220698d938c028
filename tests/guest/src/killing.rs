//! Checks that a G can be ended from outside, and that nobody else notices.
//!
//! `killing` kills; `deadlocked` is for the host: it waits for ever in the way
//! that its argument names. `masskill <n>` says what it costs to find and to kill one of so
//! many sleepers, and to end a program that has them.

use crate::check::{self, checks, wait_until};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::console;
use runnext::prelude::*;
use runnext::sync::{Condvar, LockError, Mutex, Once, RwLock, Semaphore, WaitGroup, broadcast};
use runnext::tasks::{self, GState, KillError, Killed};

runnext::main!(killing, main);
runnext::main!(deadlocked, deadlocked);
runnext::main!(masskill, mass_kill);
runnext::main!(sleepers, sleepers);

fn main() {
    check::run(checks![
        a_waiting_g_unwinds_and_its_join_says_killed,
        a_g_in_a_call_is_killed_there,
        a_killed_holder_frees_its_lock,
        who_waits_behind_a_killed_writer_is_let_in,
        who_wants_less_than_a_killed_one_is_served,
        a_value_is_not_lost_with_a_killed_receiver,
        a_g_that_calls_nobody_is_told_and_goes_on,
        a_g_that_waits_long_after_it_was_told_ends,
        a_g_that_was_told_ends_at_its_next_call,
        a_g_that_was_told_can_still_print,
        a_g_that_panics_is_not_killed_before_that_is_over,
        a_kill_hits_no_later_life,
        nobody_and_the_kernel_are_not_killed,
        kills_at_any_moment_lose_nobody,
    ]);
}

/// Starts a G, and returns its number when it has begun.
fn begin<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> (u64, JoinHandle<T>) {
    let (tx, rx) = chan::bounded(1);
    let g = go(move || {
        tx.send(current().id()).expect("main asks");
        f()
    });
    (rx.recv().expect("it says so"), g)
}

/// Starts a G and waits until it does what is expected.
pub(crate) fn go_until<T: Send + 'static>(
    state: GState,
    f: impl FnOnce() -> T + Send + 'static,
) -> (u64, JoinHandle<T>) {
    let (id, g) = begin(f);
    wait_until(|| tasks::gs().iter().any(|g| g.id == id && g.state == state));
    (id, g)
}

/// Kills a G that listens, however long it takes.
pub(crate) fn end(id: u64) {
    wait_until(|| !matches!(tasks::kill(id), Ok(Killed::Pending | Killed::Computing)));
    assert_eq!(tasks::kill(id), Err(KillError::NoSuchG));
}

fn a_waiting_g_unwinds_and_its_join_says_killed() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Noted;
    impl Drop for Noted {
        fn drop(&mut self) {
            DROPPED.store(true, Relaxed);
        }
    }
    let (id, g) = go_until(GState::Waiting, || {
        let _noted = Noted;
        sleep(Duration::from_secs(3600));
    });
    end(id);
    assert_eq!(g.join(), Err(JoinError::Killed));
    assert!(DROPPED.load(Relaxed), "destructors run");
    assert_eq!(tasks::kill(id), Err(KillError::NoSuchG));
}

fn a_g_in_a_call_is_killed_there() {
    static NEVER: Semaphore = Semaphore::new(0);
    let (id, g) = go_until(GState::InCall, || blocking(|| NEVER.acquire(1)));
    end(id);
    assert_eq!(g.join(), Err(JoinError::Killed));
    assert_eq!(blocking(|| 1), 1, "the M can be used again");
}

fn a_killed_holder_frees_its_lock() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let (id, g) = go_until(GState::Waiting, || {
        let _held = LOCK.lock().expect("not poisoned");
        park();
    });
    let (_, next) = go_until(GState::Waiting, || LOCK.lock().is_err());
    end(id);
    assert_eq!(g.join(), Err(JoinError::Killed));
    assert_eq!(next.join(), Ok(true), "poisoned, as by a panic");
}

fn who_waits_behind_a_killed_writer_is_let_in() {
    static LOCK: RwLock<u32> = RwLock::new(0);
    let read = LOCK.read().expect("not poisoned");
    let (id, writer) = go_until(GState::Waiting, || drop(LOCK.write()));
    let (_, reader) = go_until(GState::Waiting, || LOCK.read().is_ok());
    end(id);
    assert_eq!(writer.join(), Err(JoinError::Killed));
    assert_eq!(reader.join(), Ok(true), "beside us, who read still");
    drop(read);
    assert!(LOCK.write().is_ok());
}

fn who_wants_less_than_a_killed_one_is_served() {
    static GATE: Semaphore = Semaphore::new(1);
    let (id, much) = go_until(GState::Waiting, || GATE.acquire(2));
    let (_, little) = go_until(GState::Waiting, || GATE.acquire(1));
    end(id);
    assert_eq!((much.join(), little.join()), (Err(JoinError::Killed), Ok(())));
    assert_eq!(GATE.available(), 0);
}

fn a_value_is_not_lost_with_a_killed_receiver() {
    for ways in 0..2 {
        let (tx, rx) = chan::rendezvous::<u32>();
        let first = rx.clone();
        let (id, g) = go_until(GState::Waiting, move || match ways {
            0 => drop(first.recv()),
            _ => select! { recv(first) -> _v => (), after(Duration::from_secs(3600)) => () },
        });
        let (_, second) = go_until(GState::Waiting, move || rx.recv());
        end(id);
        tx.send(5).expect("one waits");
        assert_eq!((g.join(), second.join()), (Err(JoinError::Killed), Ok(Ok(5))));
    }
}

fn a_g_that_calls_nobody_is_told_and_goes_on() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let preempted = || stats().cpus.iter().map(|cpu| cpu.preemptions).sum::<u64>();
    let before = preempted();
    let (tx, rx) = chan::bounded(1);
    let hog = go(move || {
        tx.send(current().id()).expect("somebody asks");
        while !STOP.load(Relaxed) {
            check::spin();
        }
        yield_now(); // the first that could end it
        "not reached"
    });
    let id = rx.recv().expect("it says so");
    // It may not have had a CPU yet when it is asked first.
    wait_until(|| {
        let answer = tasks::kill(id).expect("it goes on");
        assert_ne!(answer, Killed::Ended, "there is no place to unwind from");
        answer == Killed::Computing
    });
    if num_cpus() == 1 {
        assert!(preempted() > before, "we ran, so it was preempted: no place to unwind from");
    }
    assert!(tasks::gs().iter().any(|g| g.id == id), "and so it does");
    STOP.store(true, Relaxed);
    assert_eq!(hog.join(), Err(JoinError::Killed));
}

/// One kill each, and it begins to wait only when nobody stands by any more.
fn a_g_that_waits_long_after_it_was_told_ends() {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    for ways in 0..3 {
        GO_ON.store(false, Relaxed);
        let (tx, rx) = chan::bounded(1);
        let (never, waits) = chan::rendezvous::<u32>();
        let hog = go(move || {
            tx.send(current().id()).expect("somebody asks");
            while !GO_ON.load(Relaxed) {
                check::spin();
            }
            match ways {
                0 => _ = waits.recv(),
                1 => sleep(Duration::from_secs(3600)),
                _ => loop {
                    compute();
                    sleep(Duration::from_micros(1));
                },
            }
        });
        let id = rx.recv().expect("it says so");
        assert_ne!(tasks::kill(id), Ok(Killed::Ended), "it goes on");
        GO_ON.store(true, Relaxed);
        assert_eq!(hog.join(), Err(JoinError::Killed), "{ways}");
        drop(never);
    }
}

/// Calls nobody for a while.
fn compute() {
    for _ in 0..1_000_000 {
        core::hint::black_box(());
    }
}

/// What is called again and again, and its name.
type Call = (&'static str, Box<dyn Fn() + Send>);

/// None of these waits, ever.
fn a_g_that_was_told_can_still_print() {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    static PRINTED: AtomicUsize = AtomicUsize::new(0);
    let (told, tell) = chan::bounded(1);
    let g = go(move || {
        told.send(current().id()).expect("somebody asks");
        while !GO_ON.load(Relaxed) {
            check::spin();
        }
        for n in 0..3 {
            println!("a killed G prints line {n}");
            PRINTED.fetch_add(1, Relaxed);
        }
        yield_now(); // ends it
    });
    let id = tell.recv().expect("it says so");
    assert_ne!(tasks::kill(id).expect("it spins"), Killed::Ended);
    GO_ON.store(true, Relaxed);
    assert_eq!(g.join(), Err(JoinError::Killed));
    assert_eq!(PRINTED.load(Relaxed), 3);
}

fn a_g_that_was_told_ends_at_its_next_call() {
    static TAKEN: Mutex<()> = Mutex::new(());
    static SHARED: RwLock<()> = RwLock::new(());
    static NONE: Semaphore = Semaphore::new(0);
    let _taken = (TAKEN.lock(), SHARED.write());
    let (tx, rx) = chan::bounded::<u32>(1);
    tx.send(1).expect("there is room");
    let (_empty, nothing) = chan::bounded::<u32>(1);
    let select = nothing.clone();
    let (_news, news) = broadcast::channel::<u32>(1);
    let calls: [Call; 10] = [
        ("go", Box::new(|| drop(go(|| ())))),
        ("try_send", Box::new(move || _ = tx.try_send(2))),
        ("try_recv", Box::new(move || _ = nothing.try_recv())),
        ("select", Box::new(move || select! { recv(select) -> _v => (), default => () })),
        ("try_lock", Box::new(|| drop(TAKEN.try_lock()))),
        ("try_read", Box::new(|| drop(SHARED.try_read()))),
        ("try_write", Box::new(|| drop(SHARED.try_write()))),
        ("try_acquire", Box::new(|| _ = NONE.try_acquire(1))),
        ("broadcast", Box::new(move || _ = news.clone().try_recv())),
        ("console", Box::new(|| _ = console::try_read(&mut [0]))),
    ];
    for (name, call) in calls {
        let (told, tell) = chan::bounded(1);
        let g = go(move || {
            told.send(current().id()).expect("somebody asks");
            loop {
                call();
            }
        });
        let id = tell.recv().expect("it says so");
        assert!(tasks::kill(id).is_ok(), "{name}");
        assert_eq!(g.join(), Err::<(), _>(JoinError::Killed), "{name}");
    }
    drop(rx);
}

fn a_g_that_panics_is_not_killed_before_that_is_over() {
    static GATE: Semaphore = Semaphore::new(0);
    struct Waits;
    impl Drop for Waits {
        fn drop(&mut self) {
            GATE.acquire(1);
        }
    }
    let (id, g) = go_until(GState::Waiting, || {
        let _waits = Waits;
        panic!("on purpose");
    });
    assert_eq!(tasks::kill(id), Ok(Killed::Pending), "its destructor waits");
    GATE.release(1);
    let panicked = JoinError::Panicked("on purpose".into());
    assert_eq!(g.join(), Err::<(), _>(panicked), "what it unwound with");
}

/// The record of a killed G is used again at once.
fn a_kill_hits_no_later_life() {
    for _ in 0..200 {
        let (id, g) = go_until(GState::Waiting, park);
        let killer = go(move || end(id));
        assert_eq!(g.join(), Err(JoinError::Killed));
        let lives: Vec<_> = (0..4).map(|n| go(move || (yield_now(), n).1)).collect();
        assert_eq!(check::join_all(lives), [0, 1, 2, 3]);
        assert_eq!(killer.join(), Ok(()));
    }
}

fn nobody_and_the_kernel_are_not_killed() {
    assert_eq!(tasks::kill(u64::MAX), Err(KillError::NoSuchG));
    let run = runnext::program::start("p_sleeps", Vec::new()).expect("there");
    let supervisor = || tasks::gs().into_iter().find(|g| g.name == "supervisor");
    wait_until(|| supervisor().is_some());
    let id = supervisor().expect("seen").id;
    assert_eq!(tasks::kill(id), Err(KillError::Kernel));
    assert!(!tasks::nice(id, Priority::Background), "nor does it wait for programs");
    run.stop();
    let _ = run.wait();
}

/// Gs that hand values round, and die at any moment: nobody waits for ever, and
/// no lock stays locked.
fn kills_at_any_moment_lose_nobody() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    const GS: usize = 40;
    let (tx, rx) = chan::bounded::<u32>(3);
    let victims: Vec<_> = (0..GS)
        .map(|n| {
            let (tx, rx) = (tx.clone(), rx.clone());
            // Not until it waits: in virtual time it may sleep whenever main does not look.
            begin(move || {
                struct Ends;
                impl Drop for Ends {
                    fn drop(&mut self) {
                        ENDED.fetch_add(1, Relaxed);
                    }
                }
                let _ends = Ends;
                sleep(Duration::from_micros(100));
                loop {
                    match n % 4 {
                        0 => drop(tx.send(1)),
                        1 => drop(rx.recv()),
                        2 => *LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1,
                        _ => sleep(Duration::from_micros(10)),
                    }
                    if n % 8 < 4 {
                        yield_now();
                    }
                    sleep(Duration::from_micros(1));
                }
            })
        })
        .collect();
    victims.iter().for_each(|(id, _)| end(*id));
    for (_, g) in victims {
        assert_eq!(g.join(), Err::<(), _>(JoinError::Killed));
    }
    assert_eq!(ENDED.load(Relaxed), GS);
    drop(LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    drop(rx);
    assert!(tx.send(1).is_err(), "all other ends are gone");
}

/// A name for who waits, and how.
type Way = (&'static str, Box<dyn FnOnce() + Send>);

/// A G in each kind of wait that only another G could end; main waits for the one that
/// holds the locks.
fn wait_in_every_way() {
    static LOCK: Mutex<()> = Mutex::new(());
    static SHARED: RwLock<()> = RwLock::new(());
    static SETUP: Once = Once::new();
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    static OTHER: Mutex<()> = Mutex::new(());
    static CHANGED: Condvar = Condvar::new();
    static NEVER: Semaphore = Semaphore::new(0);
    static GROUP: WaitGroup = WaitGroup::new();
    GROUP.add(1);
    let named = |name, f: Box<dyn FnOnce() + Send>| Go::new().name(name).spawn(f).expect("memory");
    let holder: Box<dyn FnOnce() + Send> = Box::new(|| {
        let _held = (LOCK.lock(), SHARED.write());
        SETUP.call_once(|| {
            IS_HELD.store(true, Relaxed);
            NEVER.acquire(1);
        });
    });
    let holder = named("holds the locks", holder);
    wait_until(|| IS_HELD.load(Relaxed));
    let (empty, rx) = chan::bounded::<u32>(1);
    let (tx, nobody) = chan::rendezvous::<u32>();
    let select = rx.clone();
    let ways: [Way; 12] = [
        ("receives", Box::new(move || _ = rx.recv())),
        ("sends", Box::new(move || _ = tx.send(1))),
        ("selects", Box::new(move || select! { recv(select) -> _v => () })),
        ("locks", Box::new(|| drop(LOCK.lock()))),
        ("reads", Box::new(|| drop(SHARED.read()))),
        ("writes", Box::new(|| drop(SHARED.write()))),
        ("comes second", Box::new(|| SETUP.call_once(|| ()))),
        (
            "is not notified",
            Box::new(|| drop(OTHER.lock().map(|held| CHANGED.wait_while(held, |()| true)))),
        ),
        ("acquires", Box::new(|| NEVER.acquire(1))),
        ("waits for a group", Box::new(|| GROUP.wait())),
        ("parks", Box::new(park)),
        ("calls", Box::new(|| blocking(|| NEVER.acquire(1)))),
    ];
    for (name, way) in ways {
        drop(named(name, way));
    }
    let _ = holder.join();
    drop((empty, nobody));
}

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("while it unwinds");
    }
}

/// A G is abandoned with one of everything that can be held; others want it.
fn wait_for_what_an_abandoned_g_held() {
    static LOCK: Mutex<()> = Mutex::new(());
    static WRITTEN: RwLock<()> = RwLock::new(());
    static READ: RwLock<()> = RwLock::new(());
    static GATE: Semaphore = Semaphore::new(1);
    static SETUP: Once = Once::new();
    static GROUP: WaitGroup = WaitGroup::new();
    let named = |name, f: Box<dyn FnOnce() + Send>| Go::new().name(name).spawn(f).expect("memory");
    let (tx, receives) = chan::bounded::<u32>(1);
    let (sends, rx) = chan::rendezvous::<u32>();
    let ticket = WaitGroup::ticket(&GROUP);
    let holder = named(
        "is abandoned",
        Box::new(move || {
            let _locks = (LOCK.lock(), WRITTEN.write(), READ.read());
            let _rest = (GATE.permit(1), ticket, tx, rx);
            SETUP.call_once(|| {
                let _panics = Panics;
                panic!("once");
            });
        }),
    );
    assert!(holder.join().is_err());
    // These are told.
    assert!(matches!(LOCK.lock(), Err(LockError::Abandoned)));
    assert!(matches!(WRITTEN.read(), Err(LockError::Abandoned)));
    assert!(READ.read().is_ok());
    // These wait.
    let ways: [Way; 6] = [
        ("writes", Box::new(|| drop(READ.write()))),
        ("acquires", Box::new(|| GATE.acquire(1))),
        ("comes second", Box::new(|| SETUP.call_once(|| ()))),
        ("waits for a group", Box::new(|| GROUP.wait())),
        ("receives", Box::new(move || _ = receives.recv())),
        ("sends", Box::new(move || _ = sends.send(1))),
    ];
    let gs = ways.map(|(name, way)| named(name, way));
    gs.into_iter().for_each(|g| _ = g.join());
}

fn deadlocked() {
    let (tx, rx) = chan::rendezvous::<u32>();
    match args().first().map(String::as_str) {
        Some("alone") => drop(rx.recv()),
        Some("many") => {
            for _ in 0..1_000 {
                let rx = rx.clone();
                drop(go(move || rx.recv()));
            }
            park();
        }
        Some("while-another-runs") => {
            drop(runnext::program::start("p_computes", Vec::new()).expect("there"));
            let _ = rx.recv();
        }
        Some("not") => {
            drop(Go::new().name("stuck").spawn(move || rx.recv()).expect("memory"));
            sleep(Duration::from_millis(20));
            println!("still here");
        }
        Some("abandoned") => wait_for_what_an_abandoned_g_held(),
        _ => wait_in_every_way(),
    }
    drop(tx);
}

/// So many Gs that sleep, as the program's argument says; when all of them do.
fn start_sleepers() -> Vec<JoinHandle<()>> {
    let count = args().first().and_then(|word| word.parse().ok()).expect("a number of Gs");
    static ASLEEP: AtomicUsize = AtomicUsize::new(0);
    ASLEEP.store(0, Relaxed);
    let sleeps = || {
        ASLEEP.fetch_add(1, Relaxed);
        sleep(Duration::from_secs(36_000));
    };
    let gs = (0..count).map(|_| go(sleeps)).collect();
    wait_until(|| ASLEEP.load(Relaxed) == count);
    sleep(Duration::from_millis(1)); // the last is about to
    gs
}

/// A program with many Gs, which is stopped.
fn sleepers() {
    let _gs = start_sleepers();
    println!("all sleep");
    park();
}

fn mass_kill() {
    let before: Vec<u64> = tasks::gs().iter().map(|g| g.id).collect();
    let gs = start_sleepers();
    let mut ids: Vec<u64> = tasks::gs().iter().map(|g| g.id).collect();
    ids.retain(|id| !before.contains(id));
    ids.sort_unstable();
    assert_eq!(ids.len(), gs.len());
    let each = |name: &str, f: &mut dyn FnMut(u64)| {
        let began = Instant::now();
        ids.iter().for_each(|&id| f(id));
        let took = (Instant::now() - began).as_nanos();
        println!("{name} {}", took / ids.len() as u128);
    };
    each("FIND", &mut |id| assert!(runnext::internals::schedule::find(id).is_some()));
    each("KILL", &mut |id| assert_eq!(tasks::kill(id), Ok(Killed::Ended)));
    gs.into_iter().for_each(|g| assert_eq!(g.join(), Err(JoinError::Killed)));
    let run = runnext::program::start("sleepers", args().to_vec()).expect("it is in the image");
    let count = || tasks::gs().iter().filter(|g| g.program == run.id()).count();
    while count() <= ids.len() {
        sleep(Duration::from_millis(100));
    }
    sleep(Duration::from_millis(100));
    let began = Instant::now();
    run.stop();
    let _ended = run.wait();
    println!("STOP {}", (Instant::now() - began).as_nanos() / ids.len() as u128);
}
