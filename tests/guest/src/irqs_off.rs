//! For how long interrupts are off at most: `program=irqs_off slice=1`.
//!
//! For virtual time (`-icount`) on one CPU, where a nanosecond is an instruction, and for the profile
//! `checked`, which measures sections (`arch::sections`) and has longer ones than the usual build.
//! Each check does one kind of work, in numbers that would show a section that grows with them,
//! and prints `IRQS_OFF <check> <instructions>`.

use crate::check::{self, checks, join_all, wait_until};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::inspect;
use runnext::internals::arch::sections;
use runnext::prelude::*;
use runnext::sync::{Mutex, RwLock, Semaphore};
use runnext::tasks;

extern crate alloc;

runnext::main!(irqs_off, main);

fn main() {
    if !sections::ARE_MEASURED {
        println!("nothing is measured in this build");
        exit(1);
    }
    check::run(checks![
        gs_that_start_wait_and_end,
        gs_that_wait_in_one_queue,
        channels_and_selections,
        locks_and_ranks,
        many_that_lend_to_one_holder,
        a_holder_far_back_in_the_global_queue,
        sleepers_that_are_due_at_once,
        calls_that_wait,
        gs_that_panic_and_gs_that_are_killed,
        reports,
        lines,
        memory,
    ]);
}

/// The most instructions with interrupts off: `docs/how-it-works.md` states these.
const MOST: u64 = 20_000;
/// In a tick, for each sleeper that is due.
const SLEEPER: u64 = 200;
/// While a value goes to a channel, for each G that selects there.
const SELECTOR: u64 = 60;
/// While a text goes to the consoles: 128 bytes, and 32 characters on the screen.
const PIECE: u64 = 500_000;

fn measure(what: &str, work: impl FnOnce()) {
    measure_to(MOST, what, work);
}

/// Calls `work`, and compares the longest section in it with the bound.
fn measure_to(most: u64, what: &str, work: impl FnOnce()) {
    yield_now();
    sections::reset();
    work();
    let longest = inspect::longest_irqs_off().expect("each switch is one");
    println!("IRQS_OFF {what} {}: {longest}", longest.ns);
    assert!(longest.ns <= most, "{longest}");
}

fn gs_that_start_wait_and_end() {
    measure("gs", || {
        for _ in 0..3 {
            let gs: Vec<_> = (0..2_000).map(|n| go(move || (yield_now(), n))).collect();
            assert_eq!(join_all(gs).len(), 2_000);
        }
    });
}

fn gs_that_wait_in_one_queue() {
    measure("queue", || {
        let gate = Arc::new(Semaphore::new(0));
        let waits = |_| {
            let gate = gate.clone();
            go(move || gate.acquire(1))
        };
        let gs: Vec<_> = (0..2_000).map(waits).collect();
        yield_now();
        gate.release(2_000);
        join_all(gs);
    });
}

fn channels_and_selections() {
    const RECEIVERS: u64 = 500;
    measure_to(MOST + RECEIVERS * SELECTOR, "channels", || {
        let (tx, rx) = chan::bounded::<u64>(16);
        let (late_tx, late) = chan::bounded::<u64>(1);
        let receive = |_| {
            let (rx, late) = (rx.clone(), late.clone());
            go(move || {
                let mut sum = 0;
                loop {
                    select! {
                        recv(rx) -> value => match value {
                            Ok(value) => sum += value,
                            Err(_) => break sum,
                        },
                        recv(late) -> value => sum += value.unwrap_or(0),
                    }
                }
            })
        };
        let receivers: Vec<_> = (0..RECEIVERS).map(receive).collect();
        (0..5_000).for_each(|value| tx.send(value).expect("they receive"));
        late_tx.send(1).expect("one receives");
        yield_now();
        tx.close(); // all of them wait at two
        assert_eq!(join_all(receivers).into_iter().sum::<u64>(), (0..5_000).sum::<u64>() + 1);
    });
}

fn start(priority: Priority, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Go::new().priority(priority).spawn(f).expect("memory for a G")
}

/// Each that has the lock passes what the others lend on.
fn many_that_lend_to_one_holder() {
    measure("lenders", || {
        let lock = Arc::new(Mutex::new(0));
        let (held, goes_on) = (lock.clone(), Arc::new(Semaphore::new(0)));
        let ends = goes_on.clone();
        let (tx, rx) = chan::bounded(1);
        let holder = start(Priority::Background, move || {
            let _held = held.lock().expect("no panic");
            tx.send(()).expect("it is awaited");
            ends.acquire(1);
        });
        rx.recv().expect("it has the lock");
        let lender = |_| {
            let lock = lock.clone();
            start(Priority::Urgent, move || *lock.lock().expect("no panic") += 1)
        };
        let lenders: Vec<_> = (0..100).map(lender).collect();
        sleep(Duration::from_millis(20));
        goes_on.release(1);
        join_all(lenders);
        assert!(holder.join().is_ok());
    });
}

fn locks_and_ranks() {
    const PRIORITIES: [Priority; 3] = [Priority::Background, Priority::Normal, Priority::Urgent];
    measure("locks", || {
        let locks: Arc<[Mutex<u64>]> = (0..8).map(|_| Mutex::new(0)).collect();
        let shared = Arc::new(RwLock::new(0u64));
        let worker = |n: usize| {
            let (locks, shared) = (locks.clone(), shared.clone());
            start(PRIORITIES[n % 3], move || {
                for round in 0..20 {
                    // In one order: a chain of holders that wait.
                    let at = (n + round) % 7;
                    let mut first = locks[at].lock().expect("no panic");
                    yield_now();
                    let mut second = locks[at + 1].lock().expect("no panic");
                    (*first, *second) = (*first + 1, *second + 1);
                    yield_now();
                    drop((first, second));
                    match round % 4 {
                        0 => *shared.write().expect("no panic") += 1,
                        _ => drop(shared.read()),
                    }
                }
            })
        };
        join_all((0..60).map(worker));
    });
}

/// A G that holds a lock is taken out of the list of 1,000 Gs whose slices were over.
fn a_holder_far_back_in_the_global_queue() {
    static STOP: AtomicBool = AtomicBool::new(false);
    measure("raise", || {
        let lock = Arc::new(Mutex::new(()));
        let hog = || {
            while !STOP.load(Relaxed) {
                check::spin();
            }
        };
        let hogs: Vec<_> = (0..1_000).map(|_| go(hog)).collect();
        let held = lock.clone();
        let holder = go(move || {
            let _held = held.lock().expect("no panic");
            hog();
        });
        for _ in 0..5 {
            let wanted = lock.clone();
            let urgent = start(Priority::Urgent, move || {
                drop(wanted.lock_until(Duration::from_millis(3)));
            });
            sleep(Duration::from_millis(30));
            assert!(urgent.join().is_ok());
        }
        STOP.store(true, Relaxed);
        join_all(hogs);
        assert!(holder.join().is_ok());
    });
}

fn sleepers_that_are_due_at_once() {
    const SLEEPERS: u64 = 500;
    measure_to(MOST + SLEEPERS * SLEEPER, "sleepers", || {
        let due = Instant::now() + Duration::from_millis(20);
        let sleeper = |_| go(move || runnext::time::sleep_until(due));
        join_all((0..SLEEPERS).map(sleeper).collect::<Vec<_>>());
    });
}

fn calls_that_wait() {
    measure("calls", || {
        let call = |n: u64| go(move || blocking(|| sleep(Duration::from_micros(10 * n))));
        join_all((0..100).map(call).collect::<Vec<_>>());
    });
}

fn gs_that_panic_and_gs_that_are_killed() {
    measure("ends", || {
        for _ in 0..3 {
            assert!(go(|| panic!("on purpose")).join().is_err());
            let (tx, rx) = chan::bounded(1);
            let waits = go(move || {
                tx.send(current().id()).expect("it is awaited");
                park();
            });
            let id = rx.recv().expect("it says");
            yield_now();
            assert_eq!(tasks::kill(id), Ok(tasks::Killed::Ended));
            assert!(waits.join().is_err());
        }
    });
}

fn reports() {
    let gate = Arc::new(Semaphore::new(0));
    let waits = |_| {
        let gate = gate.clone();
        go(move || gate.acquire(1))
    };
    let gs: Vec<_> = (0..200).map(waits).collect();
    yield_now();
    measure("reports", || {
        let all = tasks::gs();
        assert!(all.len() >= 200);
        all.iter().take(20).for_each(|g| drop(tasks::backtrace(g.id)));
        assert!(stats().created > 0 && !runnext::schedtrace::detail().is_empty());
        drop((inspect::memory(), inspect::irqs(), inspect::page_tables()));
    });
    gate.release(200);
    join_all(gs);
}

fn lines() {
    measure_to(PIECE, "lines", || {
        (0..50).for_each(|n| println!("line {n} of fifty, as long as most of them are"));
        let long = "a long line, ".repeat(100);
        println!("{long}");
        assert!(runnext::console::dmesg().is_ok());
    });
}

fn memory() {
    fn deep(n: usize) -> usize {
        let page = core::hint::black_box([n as u8; 512]);
        if n == 0 { 0 } else { deep(n - 1) + usize::from(page[n % 512] > 0) }
    }
    measure("memory", || {
        let large: Vec<Vec<u8>> = (0..8).map(|n| vec![n; 1 << 20]).collect();
        let small: Vec<Box<u64>> = (0..20_000).map(Box::new).collect();
        drop((large, small));
        let gate = Arc::new(Semaphore::new(0));
        let waits = |_| {
            let gate = gate.clone();
            go(move || {
                let depth = deep(60);
                gate.acquire(1);
                depth
            })
        };
        let gs: Vec<_> = (0..200).map(waits).collect();
        wait_until(|| tasks::gs().iter().filter(|g| g.wait.is_some()).count() >= 200);
        inspect::pack_parked();
        gate.release(200);
        join_all(gs);
    });
}
