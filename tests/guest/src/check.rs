//! Runs checks one after the other and says what came of each.
//!
//! A check is a function that panics if its promise does not hold. It runs as a
//! G of its own, so that a failed one does not end the others; the host reads
//! the lines (`tests::fixture`).

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;

/// A promise, and the function that checks it.
pub type Check = (&'static str, fn());

/// The functions of these names, by name. The host's build script reads the names out of the
/// source (`tests/src/checks.rs`): a program with several lists labels all but one of them.
macro_rules! checks {
    ($label:ident: $($name:ident),+ $(,)?) => {
        checks! { $($name),+ }
    };
    ($($name:ident),+ $(,)?) => {
        &[$((stringify!($name), $name as fn())),+]
    };
}
pub(crate) use checks;

/// Runs `checks`, or those of them that the program's arguments name; ends the
/// machine with 1 if one of them fails.
pub fn run(checks: &[Check]) {
    let is_named = |(name, _): &&Check| args().iter().any(|arg| arg == name);
    let named: Vec<_> = checks.iter().filter(is_named).collect();
    let chosen = if named.is_empty() { checks.iter().collect() } else { named };
    let mut failed = 0;
    for (name, check) in &chosen {
        let ended = Go::new().name(name).spawn(*check).map(JoinHandle::join);
        let error = match ended {
            Ok(Ok(())) => {
                println!("TEST {name} ok");
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        failed += 1;
        println!("TEST {name} FAILED: {error}");
    }
    println!("{} checks, {failed} failed", chosen.len());
    if failed > 0 {
        exit(1);
    }
}

/// Whether the machine preempts and delays at random (`chaos=`): then a check that counts
/// ticks, hand-overs or who is first has nothing to say.
pub fn chaos_on() -> bool {
    runnext::internals::chaos::is_on()
}

/// One round of a hog: 50,000 NOPs and a PAUSE. Under `-icount` an instruction is a
/// nanosecond, whatever it does, and QEMU translates a NOP into nothing: so a hog's second
/// takes the host less than one. A PAUSE ends the turn of a virtual CPU, which takes the host
/// a microsecond: a hog that does nothing else makes virtual time stand still. A hog without
/// any would not do either: after it QEMU 7.2 can leave the next CPU out, turn after turn.
#[inline(always)]
pub fn spin() {
    for _ in 0..100 {
        // SAFETY: NOPs change nothing.
        unsafe { asm!(".rept 500", "nop", ".endr", options(nomem, nostack, preserves_flags)) };
    }
    core::hint::spin_loop();
}

/// Yields until `condition` holds. There is no limit: the host has one.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        yield_now();
    }
}

/// Joins all of them; their results, or the panic of the first that panicked.
pub fn join_all<T>(gs: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    // All are started before the first is waited for, and all have ended before
    // the first panic is passed on.
    let started: Vec<_> = gs.into_iter().collect();
    let ended: Vec<_> = started.into_iter().map(JoinHandle::join).collect();
    ended.into_iter().map(|result| result.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Starts a G on one CPU.
pub fn go_on<T: Send + 'static>(
    cpu: usize,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Go::new().pin(cpu).spawn(f).expect("memory for a G, and the CPU is there")
}

/// Runs `f` beside a G that sleeps again and again: what `f` gave, how late the sleeper was
/// woken at most, ns, and how often it was. On one CPU under virtual time that is for how
/// long interrupts were off, and what it takes to wake a G.
pub fn with_sleeper<T>(f: impl FnOnce() -> T) -> (T, u64, u64) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static LATEST_NS: AtomicU64 = AtomicU64::new(0);
    static WAKES: AtomicU64 = AtomicU64::new(0);
    const PAUSE: Duration = Duration::from_micros(200);
    STOP.store(false, Relaxed);
    let sleeper = go(|| {
        while !STOP.load(Relaxed) {
            let due = Instant::now() + PAUSE;
            sleep(PAUSE);
            let late_ns = Instant::now().as_nanos().saturating_sub(due.as_nanos());
            LATEST_NS.fetch_max(late_ns, Relaxed);
            WAKES.fetch_add(1, Relaxed);
        }
    });
    wait_until(|| WAKES.load(Relaxed) > 1);
    LATEST_NS.store(0, Relaxed);
    WAKES.store(0, Relaxed);
    let result = f();
    let (late_ns, wakes) = (LATEST_NS.load(Relaxed), WAKES.load(Relaxed));
    STOP.store(true, Relaxed);
    sleeper.join().expect("it sleeps");
    (result, late_ns, wakes)
}

/// So many zeros that all Gs can count in.
pub fn counters<T: Default>(n: usize) -> &'static [T] {
    Vec::leak((0..n).map(|_| T::default()).collect())
}
