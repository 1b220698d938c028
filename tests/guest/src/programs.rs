//! Checks programs inside the machine: how they begin, and that they end whole.
//!
//! `programs` starts the others of this file, each of which ends in its own way.
//! Counts and order only.

use crate::check::{self, checks, counters, wait_until};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::console;
use runnext::prelude::*;
use runnext::program::{self, Ended, ProgramId, Run, StartError, start};
use runnext::sync::{Mutex, RwLock, Semaphore, WaitGroup};
use runnext::tasks;
use runnext::waiting::Reason;

runnext::main!(programs, main);
runnext::main!(p_returns, p_returns);
runnext::main!(p_panics, p_panics);
runnext::main!(p_exits, p_exits);
runnext::main!(p_args, p_args);
runnext::main!(p_waits_everywhere, p_waits_everywhere);
runnext::main!(p_hogs, p_hogs);
runnext::main!(p_crowd, p_crowd);
runnext::main!(p_computes, p_computes);
runnext::main!(p_wants_ours, p_wants_ours);
runnext::main!(p_hoards, p_hoards);
runnext::main!(p_sleeps, p_sleeps);
runnext::main!(p_yields, p_yields);
runnext::main!(p_prints, p_prints);
runnext::main!(p_forks, p_forks);
runnext::main!(p_deadlocks, p_deadlocks);
runnext::main!(p_crossed, p_crossed);
runnext::main!(p_reads, p_reads);
runnext::main!(p_family, p_family);
runnext::main!(p_lingers, p_lingers);
runnext::main!(p_never_drops, p_never_drops);
runnext::main!(endless, endless);
runnext::main!(rest, rest);

fn main() {
    check::run(match args().first().map(String::as_str) {
        // Ten billion instructions: on one CPU, as it runs on one P anyway.
        Some("crowd") => checks![crowd: a_crowd_that_calls_nobody_is_abandoned_with_its_program],
        _ => checks![
            a_program_ends_as_its_main_or_its_exit_says,
            a_program_has_its_own_arguments,
            there_is_no_program_of_another_name,
            gs_are_of_the_program_that_started_them,
            the_kernels_supervisor_of_a_program_is_not_counted,
            when_main_returns_all_other_gs_are_unwound,
            a_program_is_stopped_whatever_it_does,
            a_g_that_calls_nobody_is_abandoned_with_its_program,
            a_program_that_starts_gs_without_end_is_stopped,
            a_deadlocked_program_ends_and_the_others_do_not,
            a_deadlock_is_found_while_another_program_computes,
            a_deadlock_is_found_while_another_program_reads_what_is_typed,
            who_waits_for_another_programs_lock_is_not_deadlocked,
            a_deadlock_is_told_without_memory,
            destructors_that_wait_are_waited_for,
            a_hundred_programs_leave_nothing_behind,
        ],
    });
}

fn started(name: &str) -> Run {
    start(name, Vec::new()).expect("it is in the image, and there is memory")
}

fn members(of: ProgramId) -> usize {
    tasks::gs().iter().filter(|g| g.program == of).count()
}

/// Each program has a G of the kernel's own that sees it to its end.
fn the_kernels_supervisor_of_a_program_is_not_counted() {
    let runs = [started("p_sleeps"), started("p_sleeps")];
    wait_until(|| runs.iter().all(|run| members(run.id()) > 0));
    let of_programs = || tasks::gs().iter().filter(|g| g.program != ProgramId::KERNEL).count();
    assert!(members(ProgramId::KERNEL) >= runs.len());
    wait_until(|| num_goroutines() == of_programs());
    runs.iter().for_each(Run::stop);
    for run in runs {
        assert_eq!(run.wait(), Ended::Stopped);
    }
}

fn p_returns() {}

fn p_panics() {
    panic!("on purpose");
}

fn p_exits() {
    let _ = go(|| go(|| exit(7)).join()).join();
    park(); // it ends here
}

fn a_program_ends_as_its_main_or_its_exit_says() {
    assert_eq!(started("p_returns").wait(), Ended::Code(0));
    assert_eq!(started("p_panics").wait(), Ended::Panicked);
    assert_eq!(started("p_exits").wait(), Ended::Code(7));
}

fn p_args() {
    let words: Vec<_> = args().iter().map(String::as_str).collect();
    exit(if words == ["two", "words"] { 0 } else { words.len() as u32 + 1 });
}

fn a_program_has_its_own_arguments() {
    let words = |n: usize| ["two", "words"][..n].iter().map(|word| (*word).into()).collect();
    for _ in 0..3 {
        assert_eq!(start("p_args", words(2)).expect("there").wait(), Ended::Code(0));
        assert_eq!(start("p_args", words(1)).expect("there").wait(), Ended::Code(2));
    }
}

fn there_is_no_program_of_another_name() {
    assert_eq!(start("p_unheard_of", Vec::new()).map(drop), Err(StartError::Unknown));
}

static FAMILY: Semaphore = Semaphore::new(0);

fn p_family() {
    let child = go(|| go(|| blocking(|| FAMILY.acquire(1))).join());
    FAMILY.acquire(1);
    child.join().expect("no panic").expect("no panic");
}

fn gs_are_of_the_program_that_started_them() {
    let run = started("p_family");
    wait_until(|| members(run.id()) == 3);
    assert!(run.id() > ProgramId::BOOT);
    let me = current().id();
    assert!(tasks::gs().iter().any(|g| g.id == me && g.program == ProgramId::BOOT));
    let id = run.id();
    FAMILY.release(2);
    assert_eq!(run.wait(), Ended::Code(0));
    assert_eq!(members(id), 0);
}

/// Counts itself when it is dropped.
struct Counted(&'static AtomicUsize);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

static BEGUN: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

const WAYS: usize = 14;

/// How to wait, and what that is called.
type Way = (&'static str, Box<dyn FnOnce() + Send>);

/// One G in each kind of wait, and then main returns.
fn p_waits_everywhere() {
    static HELD: Mutex<()> = Mutex::new(());
    static SHARED: RwLock<()> = RwLock::new(());
    static NEVER: Semaphore = Semaphore::new(0);
    static GROUP: WaitGroup = WaitGroup::new();
    GROUP.add(1);
    let (tx, rx) = chan::rendezvous::<u32>();
    let (tx2, rx2) = chan::rendezvous::<u32>();
    let ways: [Way; WAYS] = [
        ("recv", {
            let rx = rx.clone();
            Box::new(move || _ = rx.recv())
        }),
        ("send", {
            let tx2 = tx2.clone();
            Box::new(move || _ = tx2.send(1))
        }),
        ("select", {
            let rx = rx.clone();
            Box::new(
                move || select! { recv(rx) -> _v => (), after(Duration::from_secs(3600)) => () },
            )
        }),
        (
            "mutex holder",
            Box::new(|| {
                let _held = HELD.lock();
                NEVER.acquire(1)
            }),
        ),
        (
            "mutex",
            Box::new(|| {
                wait_until(|| HELD.try_lock().is_err());
                drop(HELD.lock())
            }),
        ),
        (
            "reader",
            Box::new(|| {
                let _read = SHARED.read();
                NEVER.acquire(1)
            }),
        ),
        (
            "writer",
            Box::new(|| {
                wait_until(|| SHARED.try_write().is_err());
                drop(SHARED.write())
            }),
        ),
        ("semaphore", Box::new(|| NEVER.acquire(1))),
        ("group", Box::new(|| GROUP.wait())),
        ("join", Box::new(|| drop(go(|| NEVER.acquire(1)).join()))),
        ("sleep", Box::new(|| sleep(Duration::from_secs(3600)))),
        ("park", Box::new(park)),
        ("call", Box::new(|| blocking(|| NEVER.acquire(1)))),
        (
            "yield",
            Box::new(|| {
                loop {
                    yield_now()
                }
            }),
        ),
    ];
    for (name, way) in ways {
        let g = Go::new().name(name).spawn(move || {
            let _counted = Counted(&DROPPED);
            BEGUN.fetch_add(1, Relaxed);
            way();
        });
        drop(g.expect("memory"));
    }
    wait_until(|| BEGUN.load(Relaxed).is_multiple_of(WAYS));
    sleep(Duration::from_millis(2)); // most of them wait by now
    drop((tx, rx2));
}

fn when_main_returns_all_other_gs_are_unwound() {
    for round in 1..=3 {
        let (run, before) = (started("p_waits_everywhere"), program::abandoned());
        let id = run.id();
        assert_eq!(run.wait(), Ended::Code(0));
        assert_eq!(members(id), 0);
        assert_eq!(program::abandoned(), before, "all of them listen");
        assert_eq!(DROPPED.load(Relaxed), round * WAYS, "destructors run");
    }
}

fn p_sleeps() {
    sleep(Duration::from_secs(3600));
}

fn p_yields() {
    loop {
        yield_now();
    }
}

fn p_prints() {
    loop {
        print!("");
    }
}

fn a_program_is_stopped_whatever_it_does() {
    for name in ["p_sleeps", "p_yields", "p_prints", "p_deadlocks"] {
        let (run, before) = (started(name), program::abandoned());
        wait_until(|| members(run.id()) > 0);
        assert_eq!(run.wait_until(Duration::from_micros(100)), None, "{name}");
        run.stop();
        assert_eq!(run.wait(), Ended::Stopped, "{name}");
        // Printing is no place to unwind from: a G that does nothing else is abandoned.
        let expected = before + if name == "p_prints" { 1 } else { 0 };
        assert_eq!(program::abandoned(), expected, "{name} listens, or only prints");
    }
}

fn p_hogs() {
    static HOGS: AtomicUsize = AtomicUsize::new(0);
    HOGS.store(0, Relaxed);
    for _ in 0..num_cpus() {
        drop(go(|| {
            HOGS.fetch_add(1, Relaxed);
            loop {
                check::spin();
            }
        }));
    }
    wait_until(|| HOGS.load(Relaxed) == num_cpus());
}

fn a_g_that_calls_nobody_is_abandoned_with_its_program() {
    let before = program::abandoned();
    let run = started("p_hogs");
    let id = run.id();
    assert_eq!(run.wait(), Ended::Code(0));
    assert_eq!(program::abandoned() - before, num_cpus());
    assert_eq!(members(id), 0);
    // They are off their CPUs, for all of these run.
    let ran: &'static [AtomicBool] = counters(num_cpus());
    let gs = ran.iter().enumerate();
    check::join_all(gs.map(|(cpu, ran)| check::go_on(cpu, || ran.store(true, Relaxed))));
    assert!(ran.iter().all(|ran| ran.load(Relaxed)));
}

/// So many that on one P none of them has had its patience's worth after 10 s.
fn p_crowd() {
    for _ in 0..230 {
        drop(go(p_computes));
    }
}

fn p_computes() {
    loop {
        check::spin();
    }
}

fn a_crowd_that_calls_nobody_is_abandoned_with_its_program() {
    let ps = set_gomaxprocs(1);
    let run = started("p_crowd");
    let id = run.id();
    assert_eq!(run.wait(), Ended::Code(0));
    assert_eq!(members(id), 0);
    set_gomaxprocs(ps);
}

fn p_forks() {
    fn fork() {
        for _ in 0..2 {
            if num_goroutines() < 200 {
                drop(go(fork));
            }
        }
        yield_now();
        drop(go(fork));
    }
    fork();
    sleep(Duration::from_secs(3600));
}

fn a_program_that_starts_gs_without_end_is_stopped() {
    let run = started("p_forks");
    wait_until(|| members(run.id()) > 50);
    run.stop();
    let id = run.id();
    assert_eq!(run.wait(), Ended::Stopped);
    assert_eq!(members(id), 0);
}

fn p_deadlocks() {
    let (tx, rx) = chan::rendezvous::<u32>();
    let waits = go(move || rx.recv().is_ok());
    drop(Go::new().name("stuck").spawn(park).expect("memory"));
    if args().is_empty() {
        sleep(Duration::from_secs(3600)); // not yet
    }
    assert_eq!(waits.join(), Ok(false));
    drop(tx);
}

fn a_deadlocked_program_ends_and_the_others_do_not() {
    for _ in 0..30 {
        let run = start("p_deadlocks", vec!["now".into()]).expect("there");
        let id = run.id();
        assert_eq!(run.wait(), Ended::Deadlock);
        assert_eq!(members(id), 0);
    }
    // One that waits for a program is no deadlock of its own; nor is this.
    let others = go(|| started("p_returns").wait());
    assert_eq!(others.join(), Ok(Ended::Code(0)));
}

fn a_deadlock_is_found_while_another_program_computes() {
    let busy = started("p_computes");
    for _ in 0..2 {
        let run = start("p_deadlocks", vec!["now".into()]).expect("there");
        assert_eq!(run.wait(), Ended::Deadlock);
    }
    busy.stop();
    assert_eq!(busy.wait(), Ended::Stopped);
}

/// Each of two waits for what only the other could send.
fn p_crossed() {
    let (to_left, left) = chan::rendezvous::<u32>();
    let (to_right, right) = chan::rendezvous::<u32>();
    let pass = |from: chan::Receiver<u32>, to: chan::Sender<u32>| {
        go(move || from.recv().map(|n| to.send(n)).is_ok())
    };
    check::join_all([pass(left, to_right), pass(right, to_left)]);
}

/// Waits for a key, as the shell does; here nobody presses one.
fn p_reads() {
    let _ = console::read(&mut [0; 8]);
}

fn a_deadlock_is_found_while_another_program_reads_what_is_typed() {
    let reads = started("p_reads");
    let is_waiting = |g: &tasks::GInfo| {
        g.program == reads.id() && g.wait.is_some_and(|wait| wait.reason == Reason::Poll)
    };
    wait_until(|| tasks::gs().iter().any(is_waiting));
    for _ in 0..3 {
        assert_eq!(started("p_crossed").wait(), Ended::Deadlock);
        assert!(tasks::gs().iter().any(is_waiting), "it has nothing to do with it");
    }
    reads.stop();
    assert_eq!(reads.wait(), Ended::Stopped);
}

static OURS: Mutex<u32> = Mutex::new(0);

fn p_wants_ours() {
    drop(OURS.lock());
}

/// The lock is held for longer than it takes to find a deadlock.
fn who_waits_for_another_programs_lock_is_not_deadlocked() {
    let busy = started("p_computes");
    let held = OURS.lock();
    let run = started("p_wants_ours");
    assert_eq!(run.wait_until(Duration::from_secs(4)), None);
    drop(held);
    assert_eq!(run.wait(), Ended::Code(0));
    busy.stop();
    assert_eq!(busy.wait(), Ended::Stopped);
}

/// `program=rest`: in virtual time, where it costs nothing to wait for seconds, and with stated
/// frequencies, so that a timer of the CPU's goes off neither early nor late.
fn rest() {
    check::run(checks![rest: a_machine_at_rest_takes_no_ticks_for_its_programs]);
}

fn a_machine_at_rest_takes_no_ticks_for_its_programs() {
    let ticks = || stats().cpus.iter().map(|cpu| cpu.ticks).sum::<u64>();
    let run = started("p_sleeps");
    sleep(Duration::from_secs(3));
    let before = ticks();
    sleep(Duration::from_secs(8));
    let taken = ticks() - before;
    println!("REST {taken} ticks");
    // Ours, and that of the watcher's scan, a second after our tick before.
    assert!(taken <= 2, "{taken} ticks");
    run.stop();
    assert_eq!(run.wait(), Ended::Stopped);
}

/// Takes all the memory there is, and then waits for nobody.
fn p_hoards() {
    let (_tx, rx) = chan::rendezvous::<u32>();
    let mut hoard: Vec<Vec<u8>> = Vec::with_capacity(1 << 16);
    let mut size = 1 << 24;
    while size > 0 && hoard.len() < hoard.capacity() {
        let mut block = Vec::new();
        match block.try_reserve_exact(size) {
            Ok(()) => hoard.push(block),
            Err(_) => size /= 2,
        }
    }
    let _ = rx.recv();
    drop(hoard);
}

fn a_deadlock_is_told_without_memory() {
    let run = started("p_hoards");
    assert_eq!(run.wait(), Ended::Deadlock);
}

static LINGERED: AtomicUsize = AtomicUsize::new(0);

/// Sleeps when it is dropped.
struct Lingering;

impl Drop for Lingering {
    fn drop(&mut self) {
        for _ in 0..5 {
            sleep(Duration::from_millis(1));
            yield_now();
        }
        LINGERED.fetch_add(1, Relaxed);
    }
}

fn p_lingers() {
    for _ in 0..8 {
        drop(go(|| {
            let _lingering = Lingering;
            park();
        }));
    }
    // Another that panics, and waits while it unwinds.
    let panics = go(|| {
        let _lingering = Lingering;
        panic!("on purpose");
    });
    drop(panics);
    sleep(Duration::from_millis(2));
}

fn destructors_that_wait_are_waited_for() {
    let before = program::abandoned();
    assert_eq!(started("p_lingers").wait(), Ended::Code(0));
    assert_eq!((LINGERED.load(Relaxed), program::abandoned()), (9, before));
}

fn a_hundred_programs_leave_nothing_behind() {
    assert_eq!(started("p_exits").wait(), Ended::Code(7));
    let before = num_goroutines();
    for _ in 0..10 {
        let runs: Vec<_> = (0..10).map(|_| started("p_exits")).collect();
        for run in runs {
            assert_eq!(run.wait(), Ended::Code(7));
        }
    }
    // One that was joined may have been counted before it was laid to rest.
    wait_until(|| num_goroutines() <= before);
}

/// `program=endless`: by itself, as it takes its time.
fn endless() {
    check::run(checks![endless: destructors_that_do_not_end_do_not_keep_their_cpus]);
}

fn p_never_drops() {
    struct Endless;
    impl Drop for Endless {
        fn drop(&mut self) {
            p_computes();
        }
    }
    for _ in 0..num_cpus() {
        drop(go(|| {
            let _endless = Endless;
            park();
        }));
    }
    sleep(Duration::from_millis(2)); // most of them wait by now
}

fn destructors_that_do_not_end_do_not_keep_their_cpus() {
    let before = program::abandoned();
    let run = started("p_never_drops");
    let id = run.id();
    assert_eq!(run.wait(), Ended::Code(0));
    assert_eq!((program::abandoned() - before, members(id)), (num_cpus(), 0));
    check::join_all((0..num_cpus()).map(|cpu| check::go_on(cpu, || ())));
}
