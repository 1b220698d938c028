//! Checks what is seen of Gs from outside, and programs inside the machine.
//!
//! Counts and order only: what others do takes as long as it takes.

use crate::check::{self, checks, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::Semaphore;
use runnext::tasks::{self, GInfo, GState, NoBacktrace};
use runnext::waiting::{Reason, Wait};

runnext::main!(tasks, main);

fn main() {
    check::run(checks![
        every_g_that_lives_is_listed_once_and_by_number,
        a_g_is_seen_to_run_to_wait_and_to_be_in_a_call,
        an_ended_g_is_listed_no_more,
        names_are_whole_while_lives_change,
        who_joins_is_seen_to_wait_for_that_g,
        a_waiting_g_shows_where_it_waits,
        a_call_shows_where_it_waits,
        running_and_ended_gs_show_no_frames,
        frames_are_read_while_stacks_come_and_go,
    ]);
}

/// The G of this number.
fn find(id: u64) -> Option<GInfo> {
    tasks::gs().into_iter().find(|g| g.id == id)
}

/// The Gs of this name.
fn named(name: &str) -> Vec<GInfo> {
    tasks::gs().into_iter().filter(|g| g.name == name).collect()
}

fn every_g_that_lives_is_listed_once_and_by_number() {
    static GATE: Semaphore = Semaphore::new(0);
    let waiters: Vec<_> = (0..500)
        .map(|_| Go::new().name("listed").spawn(|| GATE.acquire(1)).expect("memory"))
        .collect();
    wait_until(|| named("listed").iter().filter(|g| g.state == GState::Waiting).count() == 500);
    let all = tasks::gs();
    assert!(all.windows(2).all(|two| two[0].id < two[1].id), "twice, or out of order");
    assert_eq!(all.len(), num_goroutines(), "one is missing");
    let site = all.iter().find(|g| g.name == "listed").and_then(|g| g.site).expect("a site");
    assert!(site.file().ends_with("tasks.rs"), "{site}");
    GATE.release(500);
    join_all(waiters);
}

fn a_g_is_seen_to_run_to_wait_and_to_be_in_a_call() {
    let me = find(current().id()).expect("I live");
    assert_eq!(
        (me.state, &*me.name),
        (GState::Running, "a_g_is_seen_to_run_to_wait_and_to_be_in_a_call")
    );
    assert!(me.cpu.is_some_and(|cpu| cpu < num_cpus()), "{me:?}");
    assert!(me.m.is_some(), "{me:?}");

    static GATE: Semaphore = Semaphore::new(0);
    let waits = Go::new().name("waits").pin(0).spawn(|| GATE.acquire(1)).expect("memory");
    let calls = Go::new().name("calls").spawn(|| blocking(|| GATE.acquire(1))).expect("memory");
    let state = |name| named(name).first().map(|g| (g.state, g.cpu));
    wait_until(|| state("waits") == Some((GState::Waiting, None)));
    wait_until(|| state("calls") == Some((GState::InCall, None)));
    assert_eq!(named("waits")[0].pin, Some(0));
    assert!(named("calls")[0].m.is_some(), "a call is on an M");
    GATE.release(2);
    join_all([waits, calls]);
}

fn an_ended_g_is_listed_no_more() {
    let ended = go(|| current().id()).join().expect("no panic");
    wait_until(|| find(ended).is_none());
}

/// Lives of different names follow each other in the same records, while others
/// look: no name that nobody has, and none with another's site.
fn names_are_whole_while_lives_change() {
    const NAMES: [&str; 4] = ["a", "bb", "a longer one", "the longest name of the four"];
    static DONE: AtomicBool = AtomicBool::new(false);
    DONE.store(false, Relaxed);
    let is_usual = |g: &GInfo| g.name.is_empty() || g.name.contains('_') || g.name == "tasks";
    // Who has left its result may not have left its CPU yet.
    wait_until(|| tasks::gs().iter().all(is_usual));
    let makers: Vec<_> = (0..num_cpus())
        .map(|n| {
            go(move || {
                for round in 0.. {
                    if DONE.load(Relaxed) {
                        return;
                    }
                    let name = NAMES[(n + round) % NAMES.len()];
                    Go::new()
                        .name(name)
                        .spawn(yield_now)
                        .expect("memory")
                        .join()
                        .expect("no panic");
                }
            })
        })
        .collect();
    let looker = go(move || {
        let mut seen = 0;
        while seen < 400 {
            for g in tasks::gs() {
                assert!(is_usual(&g) || NAMES.contains(&&*g.name), "{g:?}");
                seen += usize::from(NAMES.contains(&&*g.name));
            }
            yield_now();
        }
    });
    let looked = looker.join();
    DONE.store(true, Relaxed);
    join_all(makers);
    assert_eq!(looked, Ok(()), "names were not whole");
}

fn who_joins_is_seen_to_wait_for_that_g() {
    static GATE: Semaphore = Semaphore::new(0);
    let waits = Go::new().name("joined").spawn(|| GATE.acquire(1)).expect("memory");
    let joins = Go::new().name("joiner").spawn(|| waits.join()).expect("memory");
    let wait = || named("joiner").first().and_then(|g| g.wait);
    wait_until(|| wait().is_some());
    let joined = named("joined")[0].id;
    let is_join = |wait: Wait| (wait.reason, wait.object) == (Reason::Join, joined as usize);
    assert!(wait().is_some_and(is_join), "{:?}, not a join of {joined}", wait());
    GATE.release(1);
    assert_eq!(joins.join(), Ok(Ok(())));
}

static GATE: Semaphore = Semaphore::new(0);

/// So that its name is in the backtrace.
#[inline(never)]
fn waits_at_the_gate() {
    GATE.acquire(1);
    core::hint::black_box(&GATE);
}

/// Whether a function of that name is among the calls of the G.
fn shows(id: u64, function: &str) -> bool {
    let frames = tasks::backtrace(id).unwrap_or_default();
    let symbols = frames.iter().filter_map(|frame| frame.symbol);
    symbols.into_iter().any(|symbol| symbol.to_string().contains(function))
}

fn a_waiting_g_shows_where_it_waits() {
    let waiter = Go::new().name("gate").spawn(waits_at_the_gate).expect("memory");
    wait_until(|| named("gate").first().is_some_and(|g| g.state == GState::Waiting));
    let id = named("gate")[0].id;
    assert!(shows(id, "waits_at_the_gate"), "{:?}", tasks::backtrace(id));
    assert!(shows(id, "g_main"), "down to its root: {:?}", tasks::backtrace(id));
    GATE.release(1);
    join_all([waiter]);
}

#[inline(never)]
fn makes_a_call() {
    blocking(waits_at_the_gate);
    core::hint::black_box(&GATE);
}

fn a_call_shows_where_it_waits() {
    let waiter = Go::new().name("call").spawn(makes_a_call).expect("memory");
    wait_until(|| named("call").first().is_some_and(|g| g.state == GState::InCall));
    let id = named("call")[0].id;
    assert!(shows(id, "waits_at_the_gate"), "{:?}", tasks::backtrace(id));
    assert!(shows(id, "makes_a_call"), "and who made it: {:?}", tasks::backtrace(id));
    GATE.release(1);
    join_all([waiter]);
}

fn running_and_ended_gs_show_no_frames() {
    assert_eq!(tasks::backtrace(current().id()), Err(NoBacktrace::Running));
    let ended = go(|| current().id()).join().expect("no panic");
    wait_until(|| tasks::backtrace(ended) == Err(NoBacktrace::NoSuchG));
}

/// Deep Gs end all the time and their pages are taken away, while others read
/// their stacks.
fn frames_are_read_while_stacks_come_and_go() {
    static DONE: AtomicBool = AtomicBool::new(false);
    static READ: AtomicUsize = AtomicUsize::new(0);
    DONE.store(false, Relaxed);
    #[inline(never)]
    fn deep(levels: usize) -> usize {
        let page = core::hint::black_box([levels; 512]);
        if levels == 0 {
            sleep(Duration::from_micros(100))
        } else {
            core::hint::black_box(deep(levels - 1));
        }
        page[levels % 512]
    }
    let readers: Vec<_> = (0..2)
        .map(|_| {
            go(|| {
                while !DONE.load(Relaxed) {
                    for g in named("deep") {
                        let frames = tasks::backtrace(g.id).map_or(0, |frames| frames.len());
                        READ.fetch_add(frames, Relaxed);
                    }
                    yield_now();
                }
            })
        })
        .collect();
    // How much the readers see of a round depends on the machine; there is no limit but the host's.
    let mut rounds = 0;
    while rounds < 20 || READ.load(Relaxed) <= 1_000 {
        let gs = (0..50).map(|_| Go::new().name("deep").stack_size(256 << 10).spawn(|| deep(24)));
        join_all(gs.map(|g| g.expect("memory")));
        rounds += 1;
    }
    DONE.store(true, Relaxed);
    join_all(readers);
}
