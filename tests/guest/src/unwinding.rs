//! Panics while it panics, in every way there is: `program=unwinding`.
//!
//! Such a G cannot go on, and there is nothing left to unwind to. It is left behind,
//! and nobody else is. `doubled` is a program whose main does it.

use crate::check::{self, checks, go_on, join_all, wait_until};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::internals::unwind;
use runnext::prelude::*;
use runnext::program::abandoned;
use runnext::program::{self, Ended};
use runnext::sync::{LockError, Mutex, Semaphore};
use runnext::tasks::{self, GState, KillError};
use runnext::time::sleep_until;

runnext::main!(unwinding, main);
runnext::main!(doubled, doubled);

fn main() {
    check::run(checks![
        a_destructor_that_panics_while_its_g_unwinds_ends_that_g_only,
        a_panic_that_a_destructor_catches_is_not_the_end_of_the_unwinding,
        who_waits_for_its_locks_is_told,
        a_killed_g_whose_destructor_panics_was_killed,
        a_call_in_which_it_happens_is_over_for_its_g_only,
        a_message_that_panics_as_it_is_printed_ends_its_g_only,
        it_happens_on_all_cpus_at_once,
        a_program_whose_main_does_it_has_panicked,
        words_of_a_failed_allocation_are_no_failed_allocation,
        a_g_that_is_preempted_as_it_unwinds_keeps_its_registers,
    ]);
}

/// Its destructor panics.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("second");
    }
}

fn panics_twice() {
    let _panics = Panics;
    panic!("first");
}

/// What the join of one says that does it.
fn twice<T>() -> Result<T, JoinError> {
    Err(JoinError::Panicked("while it panicked: second".into()))
}

fn a_destructor_that_panics_while_its_g_unwinds_ends_that_g_only() {
    let before = abandoned();
    for times in 1..=20 {
        assert_eq!(go(panics_twice).join(), twice());
        assert_eq!(abandoned(), before + times, "it is counted");
    }
    // Once is no harm, and others panic as they like.
    let once = go(|| drop(Panics)).join();
    assert_eq!(once, Err(JoinError::Panicked("second".into())));
    assert_eq!(go(|| 1).join(), Ok(1));
    assert_eq!(abandoned(), before + 20);
}

fn a_panic_that_a_destructor_catches_is_not_the_end_of_the_unwinding() {
    use core::sync::atomic::AtomicUsize;
    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    /// Panics so many times in itself, each in a destructor that the one before runs.
    struct Catches(u32);
    impl Drop for Catches {
        fn drop(&mut self) {
            let left = self.0;
            let panics = || {
                let _next = (left > 0).then(|| Catches(left - 1));
                panic!("inner {left}");
            };
            let why = unwind::catch(panics).err();
            assert_eq!(why, Some(JoinError::Panicked(format!("inner {left}").into())));
            CAUGHT.fetch_add(1, Relaxed);
        }
    }
    let before = abandoned();
    for depth in 0..4 {
        assert_eq!(CAUGHT.swap(0, Relaxed), depth as usize);
        let g = go(move || {
            let _catches = Catches(depth);
            panic!("outer");
        });
        assert_eq!(g.join(), Err::<(), _>(JoinError::Panicked("outer".into())));
    }
    // In a call, and one that overflows; and a lock sees one panic, not two.
    static LOCK: Mutex<u32> = Mutex::new(0);
    let g = go(move || {
        let _catches = Catches(1);
        let _held = LOCK.lock().expect("not poisoned yet");
        blocking(|| unwind::resume(JoinError::Killed));
    });
    assert_eq!(g.join(), Err::<(), _>(JoinError::Killed));
    assert_eq!(CAUGHT.load(Relaxed), 4 + 2);
    assert!(LOCK.is_poisoned());
    assert_eq!(abandoned(), before);
    // What leaves the destructor still ends the G.
    let g = go(move || {
        let _catches = Catches(2);
        panics_twice();
    });
    assert_eq!(g.join(), twice());
    assert_eq!(abandoned(), before + 1);
}

fn who_waits_for_its_locks_is_told() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    static GATE: Semaphore = Semaphore::new(0);
    let holder = go(|| {
        // Dropped after what panics, that is, never.
        let _held = LOCK.lock().expect("not poisoned yet");
        GATE.acquire(1);
        panics_twice();
    });
    wait_until(|| LOCK.try_lock().is_err());
    let is_told = || matches!(LOCK.lock(), Err(LockError::Abandoned));
    let waiters: Vec<_> = (0..8).map(|_| go(is_told)).collect();
    GATE.release(1);
    assert_eq!(holder.join(), twice());
    assert!(join_all(waiters).into_iter().all(|is_told| is_told));
}

fn a_killed_g_whose_destructor_panics_was_killed() {
    let before = abandoned();
    let (tx, rx) = chan::bounded(1);
    let victim = go(move || {
        let _panics = Panics;
        tx.send(current().id()).expect("somebody asks");
        sleep(Duration::from_secs(3600));
    });
    let id = rx.recv().expect("it says so");
    wait_until(|| tasks::gs().iter().any(|g| g.id == id && g.state == GState::Waiting));
    wait_until(|| tasks::kill(id) == Err(KillError::NoSuchG));
    assert_eq!(victim.join(), Err(JoinError::Killed));
    assert_eq!(abandoned(), before + 1);
}

fn a_call_in_which_it_happens_is_over_for_its_g_only() {
    for _ in 0..5 {
        assert_eq!(go(|| blocking(panics_twice)).join(), twice());
        assert_eq!(blocking(|| 1), 1, "there is another M");
    }
}

/// Panics when it is printed, and so does what that says, so many times.
struct Bomb(u32);

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("a dud"),
            left => panic!("{}", Bomb(left - 1)),
        }
    }
}

fn a_message_that_panics_as_it_is_printed_ends_its_g_only() {
    let said = |bombs| match go(move || panic!("{}", Bomb(bombs))).join() {
        Ok(()) => "nothing".into(),
        Err(error) => error.to_string(),
    };
    assert_eq!(said(0), "panicked: a dud");
    assert_eq!(said(1), "panicked: while it panicked: a dud");
    assert_eq!(said(2), "panicked: while its panic was printed");
    assert_eq!(said(1_000), "panicked: while its panic was printed");
}

fn it_happens_on_all_cpus_at_once() {
    let before = abandoned();
    let rounds = 10;
    for _ in 0..rounds {
        let gs: Vec<_> = (0..num_cpus()).map(|cpu| go_on(cpu, panics_twice)).collect();
        gs.into_iter().for_each(|g| assert_eq!(g.join(), twice()));
    }
    assert_eq!(abandoned(), before + rounds * num_cpus());
}

fn doubled() {
    panics_twice();
}

fn a_program_whose_main_does_it_has_panicked() {
    let run = program::start("doubled", Vec::new()).expect("there, and memory");
    assert_eq!(run.wait(), Ended::Panicked);
}

/// A failed allocation unwinds from above the last caller that forbids it. A panic of the
/// program's own that says the same words does not: the callers in between have
/// something to drop.
fn words_of_a_failed_allocation_are_no_failed_allocation() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            DROPPED.store(true, Relaxed);
        }
    }
    #[inline(never)]
    fn holds() {
        let _held = Held;
        panic!("memory allocation of 8 bytes failed");
    }
    /// No panic may unwind out of it.
    #[inline(never)]
    extern "C" fn forbids() {
        holds();
    }
    /// A panic may unwind out of this one, so the G's own catch is in the tables.
    #[inline(never)]
    fn calls() {
        yield_now();
        forbids();
    }
    let ended = go(calls).join();
    assert!(
        matches!(&ended, Err(JoinError::Panicked(why)) if why.message().contains("cannot unwind")),
        "{ended:?}"
    );
    assert!(DROPPED.load(Relaxed), "what it held was dropped on the way");
}

/// The unwinder resumes in a landing pad by some twenty instructions, of which the first sets
/// the stack pointer and the others read registers from below it: a frame of a preemption
/// written there would spoil them. So this G unwinds again and again while another G of its
/// CPU wakes up, each time a few instructions later, and displaces it. On one CPU in virtual
/// time, where an instruction is a nanosecond, the wake-ups go through the whole end of the
/// unwinding; elsewhere they come at random.
fn a_g_that_is_preempted_as_it_unwinds_keeps_its_registers() {
    const LEAD: Duration = Duration::from_micros(100);
    const END_NS: u64 = 3_000;
    const STEP_NS: u64 = 6;

    struct Adds<'a>(&'a mut u64, u64);
    impl Drop for Adds<'_> {
        fn drop(&mut self) {
            *self.0 += self.1;
        }
    }
    #[inline(never)]
    fn unwinds(sum: &mut u64, add: u64) {
        let _adds = Adds(sum, add);
        unwind::resume(JoinError::Killed); // reports nothing
    }
    /// When it began to unwind, and how long that took.
    fn unwind_at(begin: Instant, n: u64) -> Duration {
        let mut sum = n;
        let [a, b, c] = [n ^ 3, n ^ 5, n ^ 9].map(core::hint::black_box);
        while Instant::now() < begin {}
        let ended = unwind::catch(|| unwinds(&mut sum, 7));
        let took = begin.elapsed();
        assert_eq!(ended, Err(JoinError::Killed));
        assert_eq!((sum, a, b, c), (n + 7, n ^ 3, n ^ 5, n ^ 9), "wake-up {n}");
        took
    }

    let (tx, rx) = chan::bounded::<Instant>(0);
    let sleeper = go(move || rx.iter().for_each(sleep_until));
    let took = unwind_at(Instant::now() + LEAD, 0).as_nanos() as u64;
    for n in 0..END_NS / STEP_NS {
        let begin = Instant::now() + LEAD;
        let wake = took.saturating_sub(END_NS) + n * STEP_NS;
        tx.send(begin + Duration::from_nanos(wake)).expect("the sleeper receives");
        unwind_at(begin, n);
    }
    drop(tx);
    sleeper.join().expect("it sleeps");
}
