//! Fills stacks, in every way there is: `program=overflow`.
//!
//! Each overflow must end its G and nobody else, with its destructors run, and
//! leave nothing behind. `program=overflow_many -- <n>` does it n times, and n times
//! again, and wants nothing to have grown.

use crate::check::{self, checks, join_all};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::inspect;
use runnext::internals::mem::stack::{BATCH, DEFAULT_SIZE, slot};
use runnext::prelude::*;
use runnext::program::abandoned;
use runnext::simulated::{Config, Device, Latency};
use runnext::sync::{LockError, Mutex, RwLock, Semaphore};

runnext::main!(overflow, main);
runnext::main!(overflow_many, many);
runnext::main!(left_behind, left_behind, stack = 64 << 10);

fn main() {
    check::run(checks![
        a_full_stack_is_the_error_of_its_join,
        destructors_run_from_the_caller_of_the_full_frame_on,
        a_recursion_that_was_proved_not_to_unwind_unwinds_above_it,
        a_frame_larger_than_the_stack_is_an_overflow,
        a_lock_that_was_held_is_poisoned_and_free,
        a_lock_that_no_table_knows_of_is_abandoned,
        a_peer_of_a_full_g_sees_its_end_of_the_channel_closed,
        a_g_that_waits_at_every_depth_overflows_between_waits,
        a_g_near_the_end_of_its_stack_is_preempted_and_goes_on,
        all_cpus_overflow_at_once,
        overflows_among_timers_and_devices_end_their_gs_only,
        a_destructor_that_overflows_leaves_its_g_behind_and_the_join_says_so,
        who_waits_for_a_lock_of_one_that_is_left_behind_is_told,
        a_program_whose_main_is_left_behind_has_panicked,
        a_full_stack_in_a_call_ends_its_g_only,
        a_call_that_has_waited_overflows_on_the_stack_it_left_with,
        all_cpus_overflow_in_calls_at_once,
        calls_that_overflow_grow_nothing,
        a_destructor_that_overflows_in_a_call_leaves_g_and_m_behind,
        reports_have_calls_again_after_a_while,
    ]);
}

/// Counts what was made, and what of it was dropped.
struct Counts {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Counts {
    const fn new() -> Self {
        Counts { made: AtomicUsize::new(0), dropped: AtomicUsize::new(0) }
    }

    fn lost(&self) -> usize {
        self.made.load(Relaxed) - self.dropped.load(Relaxed)
    }
}

struct Counted(&'static Counts);

impl Counted {
    fn new(counts: &'static Counts) -> Self {
        counts.made.fetch_add(1, Relaxed);
        Counted(counts)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Relaxed);
    }
}

/// Recurses with frames of about `N` words, each with something to drop.
#[inline(never)]
fn recurse<const N: usize>(depth: usize, counts: &'static Counts) -> usize {
    let _counted = Counted::new(counts);
    let frame = black_box([depth; N]);
    assert!(black_box(depth) < usize::MAX, "so that it may unwind");
    recurse::<N>(depth + 1, counts) + frame[0]
}

/// Recurses with nothing but arithmetic.
#[inline(never)]
#[expect(unconditional_recursion, reason = "the stack is to overflow")]
fn recurse_plainly(depth: usize) -> usize {
    let frame = black_box([depth; 24]);
    recurse_plainly(depth + 1) + frame[0]
}

fn overflows(f: impl FnOnce() -> usize + Send + 'static) {
    assert_eq!(go(f).join(), Err(JoinError::StackOverflow));
}

/// With frames of many sizes, so that every instruction of a prologue, and the
/// calls, are where the stack ends.
fn a_full_stack_is_the_error_of_its_join() {
    static COUNTS: Counts = Counts::new();
    for start in 0..8 {
        overflows(move || recurse::<1>(start, &COUNTS));
        overflows(move || recurse::<3>(start, &COUNTS));
        overflows(move || recurse::<10>(start, &COUNTS));
        overflows(move || recurse::<33>(start, &COUNTS));
        overflows(move || recurse::<200>(start, &COUNTS));
        overflows(move || recurse::<500>(start, &COUNTS));
        overflows(move || recurse::<513>(start, &COUNTS));
        overflows(move || recurse::<1500>(start, &COUNTS));
    }
}

fn destructors_run_from_the_caller_of_the_full_frame_on() {
    static COUNTS: Counts = Counts::new();
    fn check<const N: usize>() {
        let (made, lost) = (COUNTS.made.load(Relaxed), COUNTS.lost());
        overflows(|| recurse::<N>(0, &COUNTS));
        assert!(COUNTS.made.load(Relaxed) >= made + 2, "it did not recurse");
        assert!(COUNTS.lost() <= lost + 1, "{} of {N} words were lost", COUNTS.lost() - lost);
    }
    let before = abandoned();
    check::<1>();
    check::<2>();
    check::<4>();
    check::<17>();
    check::<64>();
    check::<255>();
    check::<512>();
    check::<1030>();
    assert_eq!(abandoned(), before);
}

fn a_recursion_that_was_proved_not_to_unwind_unwinds_above_it() {
    static COUNTS: Counts = Counts::new();
    let before = abandoned();
    overflows(|| {
        let _counted = Counted::new(&COUNTS);
        // A call that may unwind: through a pointer that nobody knows.
        black_box(through as fn(fn(usize) -> usize) -> usize)(recurse_plainly)
    });
    assert_eq!((abandoned(), COUNTS.lost()), (before, 0));
}

#[inline(never)]
fn through(f: fn(usize) -> usize) -> usize {
    f(0) + 1
}

fn a_frame_larger_than_the_stack_is_an_overflow() {
    #[inline(never)]
    fn large() -> usize {
        black_box([7usize; 2 * DEFAULT_SIZE / 8])[black_box(0)]
    }
    static COUNTS: Counts = Counts::new();
    overflows(|| {
        let _counted = Counted::new(&COUNTS);
        black_box(large as fn() -> usize)()
    });
    assert_eq!(COUNTS.lost(), 0);
}

fn a_lock_that_was_held_is_poisoned_and_free() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    static COUNTS: Counts = Counts::new();
    overflows(|| {
        let mut held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
        *held = 1;
        recurse::<20>(0, &COUNTS)
    });
    let Err(LockError::Poisoned(poisoned)) = LOCK.lock() else { panic!("not poisoned") };
    assert_eq!(*poisoned, 1);
}

/// A lock whose holder's stack was full, in frames that no table lists.
pub fn lose_a_lock() -> &'static Mutex<usize> {
    static LOCK: Mutex<usize> = Mutex::new(0);
    #[inline(never)]
    fn locked(depth: usize) -> usize {
        let held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
        recurse_plainly(depth) + *held
    }
    overflows(move || black_box(through as fn(fn(usize) -> usize) -> usize)(locked));
    &LOCK
}

/// As the recursion does not unwind, what its caller holds is in no table; who called
/// that one unwinds, and catches.
fn a_lock_that_no_table_knows_of_is_abandoned() {
    static SHARED: RwLock<usize> = RwLock::new(0);
    #[inline(never)]
    fn written(depth: usize) -> usize {
        let held = SHARED.write().unwrap_or_else(|error| error.into_inner());
        recurse_plainly(depth) + *held
    }
    let before = abandoned();
    let lock = lose_a_lock();
    overflows(move || black_box(through as fn(fn(usize) -> usize) -> usize)(written));
    assert_eq!(abandoned(), before, "they unwind");
    if cfg!(debug_assertions) {
        // Its arithmetic may panic in such a build, so the tables know after all.
        assert!(lock.is_poisoned() && SHARED.is_poisoned());
        return;
    }
    assert!(matches!(lock.try_lock(), Err(LockError::Abandoned)));
    assert!(matches!(SHARED.try_write(), Err(LockError::Abandoned)));
}

fn a_peer_of_a_full_g_sees_its_end_of_the_channel_closed() {
    static COUNTS: Counts = Counts::new();
    let (tx, rx) = chan::bounded::<u32>(1);
    overflows(move || {
        let _tx = tx;
        recurse::<20>(0, &COUNTS)
    });
    assert!(rx.recv().is_err());
}

/// Between the two halves of parking nobody may be unwound: at each depth the G
/// waits for another.
fn a_g_that_waits_at_every_depth_overflows_between_waits() {
    #[inline(never)]
    fn ask<const N: usize>(
        depth: usize,
        tx: &chan::Sender<usize>,
        rx: &chan::Receiver<usize>,
    ) -> usize {
        let frame = black_box([depth; N]);
        tx.send(depth).expect("somebody answers");
        assert_eq!(rx.recv(), Ok(depth + 1));
        ask::<N>(depth + 1, tx, rx) + frame[0]
    }
    fn check<const N: usize>() {
        let (tx, questions) = chan::rendezvous();
        let (answers, rx) = chan::rendezvous();
        let oracle = go(move || {
            questions.iter().map(|n| answers.send(n + 1)).take_while(Result::is_ok).count()
        });
        overflows(move || ask::<N>(0, &tx, &rx));
        assert!(oracle.join().expect("no panic") > 2);
    }
    check::<1>();
    check::<2>();
    check::<5>();
    check::<11>();
    check::<23>();
    check::<40>();
    check::<77>();
    check::<120>();
    check::<190>();
    check::<301>();
}

/// The scheduler uses the stack of a G that it preempts, near its end also.
fn a_g_near_the_end_of_its_stack_is_preempted_and_goes_on() {
    const HOVERING: usize = 120;
    static STOP: AtomicBool = AtomicBool::new(false);
    /// Goes down until `left` bytes are left, and computes there until the hog of its CPU
    /// has run: which takes a preemption, as both are pinned there.
    #[inline(never)]
    fn hover(left: usize, end: usize, hog: &AtomicUsize) -> usize {
        let here = black_box(0usize);
        if (&raw const here).addr() > end + left {
            return hover(left, end, hog) + black_box(1);
        }
        let before = hog.load(Relaxed);
        while hog.load(Relaxed) == before {}
        0
    }
    STOP.store(false, Relaxed);
    let progress = check::counters::<AtomicUsize>(num_cpus());
    let hogs: Vec<_> = (0..num_cpus())
        .map(|cpu| {
            let hog = move || {
                while !STOP.load(Relaxed) {
                    progress[cpu].store(progress[cpu].load(Relaxed) + 1, Relaxed);
                }
            };
            check::go_on(cpu, hog)
        })
        .collect();
    check::wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    // From 400 bytes before the end, 32 bytes further away each time: of the G's stack, and in a call
    // of the M's.
    let down = |step: usize, cpu: usize| {
        let here = black_box(0usize);
        let (slot, _) = slot::locate((&raw const here).addr() as u64).expect("a stack");
        let end = slot.page_from_top(slot.body_pages() - 1) as usize;
        hover(400 + 32 * step, end, &progress[cpu])
    };
    let hovering: Vec<_> = (0..2 * HOVERING)
        .map(|n| {
            let (step, cpu) = (n / 2, n / 2 % num_cpus());
            check::go_on(cpu, move || match n % 2 {
                0 => down(step, cpu),
                _ => blocking(|| down(step, cpu)),
            })
        })
        .collect();
    assert_eq!(join_all(hovering).len(), 2 * HOVERING);
    STOP.store(true, Relaxed);
    join_all(hogs);
}

fn all_cpus_overflow_at_once() {
    static COUNTS: Counts = Counts::new();
    static READY: AtomicUsize = AtomicUsize::new(0);
    for round in 1..=5 {
        let all = round * num_cpus();
        let gs: Vec<_> = (0..num_cpus())
            .map(|cpu| {
                let work = move || {
                    READY.fetch_add(1, Relaxed);
                    check::wait_until(|| READY.load(Relaxed) >= all);
                    recurse::<40>(0, &COUNTS)
                };
                Go::new().pin(cpu).spawn(work).expect("memory for a G")
            })
            .collect();
        for g in gs {
            assert_eq!(g.join(), Err(JoinError::StackOverflow));
        }
    }
}

fn overflows_among_timers_and_devices_end_their_gs_only() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static COUNTS: Counts = Counts::new();
    STOP.store(false, Relaxed);
    let latency = Latency::Uniform { min_ns: 1_000, max_ns: 300_000 };
    let device = Device::new(Config { seed: 7, latency, ..Config::default() }).expect("memory");
    let device: &'static Device = Box::leak(Box::new(device));
    let users: Vec<_> = (0..2 * num_cpus())
        .map(|i| {
            let ask = move || {
                let mut rounds = 0;
                while !STOP.load(Relaxed) {
                    let word = rounds as u64;
                    let answer = device.submit(word).expect("memory").wait(None);
                    assert_eq!(answer, Ok(!word));
                    sleep(Duration::from_micros(50));
                    rounds += 1;
                }
                rounds
            };
            Go::new().pin(i % num_cpus()).spawn(ask).expect("memory for a G")
        })
        .collect();
    for batch in 0..7 {
        let gs: Vec<_> = (0..8).map(|i| go(move || recurse::<9>(batch + i, &COUNTS))).collect();
        for g in gs {
            assert_eq!(g.join(), Err(JoinError::StackOverflow));
        }
    }
    STOP.store(true, Relaxed);
    assert!(join_all(users).into_iter().all(|rounds| rounds > 0), "a user starved");
}

struct Overflows;

impl Drop for Overflows {
    fn drop(&mut self) {
        static COUNTS: Counts = Counts::new();
        black_box(recurse::<30>(0, &COUNTS));
    }
}

fn who_waits_for_a_lock_of_one_that_is_left_behind_is_told() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    static COUNTS: Counts = Counts::new();
    static GATE: Semaphore = Semaphore::new(0);
    let before = abandoned();
    let (tx, rx) = chan::bounded(1);
    let holder = go(move || {
        let _held = LOCK.lock().expect("not poisoned yet");
        tx.send(()).expect("somebody wants to know");
        GATE.acquire(1);
        let _overflows = Overflows;
        recurse::<30>(0, &COUNTS)
    });
    rx.recv().expect("it has the lock");
    // Some wait, and some come when it is gone.
    let is_told = || matches!(LOCK.lock(), Err(LockError::Abandoned));
    let waiters: Vec<_> = (0..8).map(|_| go(is_told)).collect();
    GATE.release(1);
    assert_eq!(holder.join(), Err(JoinError::StackOverflow));
    assert!(join_all(waiters).into_iter().all(|is_told| is_told));
    assert_eq!(abandoned(), before + 1);
}

/// A main that overflows, and overflows again while it is unwound.
fn left_behind() {
    static COUNTS: Counts = Counts::new();
    let _overflows = Overflows;
    black_box(recurse::<30>(0, &COUNTS));
}

fn a_program_whose_main_is_left_behind_has_panicked() {
    let before = abandoned();
    let run = runnext::program::start("left_behind", Vec::new()).expect("there, and memory");
    assert_eq!(run.wait(), runnext::program::Ended::Panicked);
    assert_eq!(abandoned(), before + 1);
}

fn a_destructor_that_overflows_leaves_its_g_behind_and_the_join_says_so() {
    static COUNTS: Counts = Counts::new();
    let before = abandoned();
    overflows(|| {
        let _overflows = Overflows;
        recurse::<30>(0, &COUNTS)
    });
    assert_eq!(abandoned(), before + 1);
    // A panic that is unwound does not help it either.
    let g = go(|| {
        let _overflows = Overflows;
        panic!("and then it overflows");
    });
    assert_eq!(g.join(), Err::<(), _>(JoinError::StackOverflow));
    assert_eq!(abandoned(), before + 2);
    // Others go on, and panic as they like.
    assert_eq!(go(|| panic!("still")).join(), Err::<(), _>(JoinError::Panicked("still".into())));
}

/// Destructors inside the call and outside run; the lock is poisoned and free; and the
/// CPU goes on to make calls.
fn a_full_stack_in_a_call_ends_its_g_only() {
    static LOCK: Mutex<usize> = Mutex::new(0);
    static COUNTS: Counts = Counts::new();
    fn check<const N: usize>() {
        let lost = COUNTS.lost();
        let (tx, rx) = chan::bounded::<u32>(1);
        overflows(move || {
            let _outside = (Counted::new(&COUNTS), tx);
            let _held = LOCK.lock().unwrap_or_else(|error| error.into_inner());
            blocking(|| recurse::<N>(0, &COUNTS))
        });
        assert!(COUNTS.lost() <= lost + 1, "{} of {N} words were lost", COUNTS.lost() - lost);
        assert!(rx.recv().is_err());
        assert!(LOCK.lock().is_err(), "not poisoned");
        assert_eq!(go(|| blocking(|| black_box(7))).join(), Ok(7));
    }
    let before = abandoned();
    check::<1>();
    check::<3>();
    check::<10>();
    check::<33>();
    check::<200>();
    check::<513>();
    // A call within a call, and an overflow of its own stack by who was in one.
    overflows(|| blocking(|| blocking(|| recurse::<40>(0, &COUNTS))));
    overflows(|| blocking(|| black_box(0)) + recurse::<40>(0, &COUNTS));
    assert_eq!(abandoned(), before);
}

fn a_call_that_has_waited_overflows_on_the_stack_it_left_with() {
    static COUNTS: Counts = Counts::new();
    let before = abandoned();
    let call = || {
        blocking(|| {
            sleep(Duration::from_millis(1));
            recurse::<60>(0, &COUNTS)
        })
    };
    for _ in 0..3 {
        let gs: Vec<_> = (0..8).map(|_| go(call)).collect();
        for g in gs {
            assert_eq!(g.join(), Err(JoinError::StackOverflow));
        }
    }
    assert_eq!(abandoned(), before);
}

fn all_cpus_overflow_in_calls_at_once() {
    static COUNTS: Counts = Counts::new();
    static READY: AtomicUsize = AtomicUsize::new(0);
    for round in 1..=5 {
        let all = round * num_cpus();
        let overflow = move || {
            blocking(|| {
                READY.fetch_add(1, Relaxed);
                check::wait_until(|| READY.load(Relaxed) >= all);
                recurse::<40>(0, &COUNTS)
            })
        };
        let gs: Vec<_> = (0..num_cpus()).map(|cpu| check::go_on(cpu, overflow)).collect();
        for g in gs {
            assert_eq!(g.join(), Err(JoinError::StackOverflow));
        }
    }
}

/// Some, and as many again: neither Ms nor memory.
fn calls_that_overflow_grow_nothing() {
    static COUNTS: Counts = Counts::new();
    const MANY: usize = 63;
    let before = abandoned();
    let round = || {
        for _ in 0..MANY {
            overflows(|| blocking(|| recurse::<150>(0, &COUNTS)));
        }
        (stats().ms.created, inspect::memory().frames.free)
    };
    let (first_ms, first_free) = round();
    let (ms, free) = round();
    println!("Ms {first_ms}, then {ms}; free frames {first_free}, then {free}");
    assert_eq!(abandoned(), before);
    // As many as are put aside until they are worth a round of forgetting, and the
    // pages of their stacks.
    let few = 2 * num_cpus() + 8;
    assert!(ms <= first_ms + few as u64, "{ms} Ms");
    assert!(free + 140 * few >= first_free, "{free} frames");
    assert!(ms < 200, "{ms} Ms in all");
}

fn a_destructor_that_overflows_in_a_call_leaves_g_and_m_behind() {
    static COUNTS: Counts = Counts::new();
    let (before, left) = (abandoned(), inspect::memory().stacks.left_pages);
    overflows(|| {
        blocking(|| {
            let _overflows = Overflows;
            recurse::<30>(0, &COUNTS)
        })
    });
    assert_eq!(abandoned(), before + 1);
    // All of the M's stack, and a page of the G's.
    let left = inspect::memory().stacks.left_pages - left;
    assert!((100..200).contains(&left), "{left} pages were left");
    assert_eq!(join_all((0..20).map(|n| go(move || blocking(|| n)))).len(), 20);
}

/// Of hundreds the last ones had none: but there may be more with time.
fn reports_have_calls_again_after_a_while() {
    #[inline(never)]
    fn late(depth: usize) -> usize {
        let frame = black_box([depth; 50]);
        assert!(black_box(depth) < usize::MAX, "so that it may unwind");
        late(depth + 1) + frame[0]
    }
    sleep(Duration::from_secs(3)); // in which one report is refilled at least
    overflows(|| late(0));
}

fn many() {
    static COUNTS: Counts = Counts::new();
    let n: usize = args().first().and_then(|word| word.parse().ok()).unwrap_or(1_000);
    let round = || {
        for batch in (0..n).step_by(4) {
            let gs: Vec<_> =
                (0..4).map(|i| go(move || recurse::<150>(batch + i, &COUNTS))).collect();
            for g in gs {
                assert_eq!(g.join(), Err(JoinError::StackOverflow));
            }
        }
        inspect::memory()
    };
    let first = round();
    let second = round();
    println!("first {first:?}");
    println!("second {second:?}");
    // A few more may be on their way from here to there; and a P that ran none of the first has as
    // many as are made at a time.
    let few = 4 * num_cpus();
    assert!(second.stacks.made <= first.stacks.made + BATCH * num_cpus(), "stacks");
    assert!(second.frames.free + 20 * few >= first.frames.free, "frames");
    assert_eq!(abandoned(), 0);
    println!("MANY {n} and {n} again: {} stacks in all", second.stacks.made);
}
