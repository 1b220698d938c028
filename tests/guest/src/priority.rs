//! What priorities promise (`sched::priority`): `program=priority slice=1`, in virtual time.
//!
//! Figures are printed as `PRIORITY <what> <number>`. A time is exact on one CPU, where nothing but
//! this program takes any; on several CPUs the order is checked instead.

use crate::check::{self, checks, join_all, wait_until};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::inspect::{now_ns, slices};
use runnext::prelude::*;
use runnext::sync::{Mutex, RwLock};
use runnext::tasks::{self, GState};

runnext::main!(priority, main);

fn main() {
    check::run(checks![
        an_urgent_g_runs_at_once_beside_two_hogs_on_every_p,
        an_urgent_g_that_a_clock_readies_runs_at_once,
        normal_gs_keep_two_thirds_of_a_p_whatever_urgent_ones_do,
        normal_gs_with_short_slices_keep_two_thirds_too,
        an_urgent_g_beyond_its_third_waits_for_a_slice_at_most,
        a_background_g_has_one_slice_in_61,
        background_gs_have_the_idle_time,
        a_priority_changes_while_the_g_runs_or_waits,
        a_pinned_urgent_g_runs_at_once_on_its_cpu,
        a_holder_of_a_lock_inherits_from_an_urgent_waiter,
        a_holder_in_a_call_inherits,
        a_chain_of_three_passes_a_rank_on,
        a_writer_inherits_from_those_that_wait_for_its_lock,
        a_g_that_is_joined_inherits,
        no_rank_stays_when_the_waiter_gives_up_or_is_killed,
        no_rank_stays_when_the_holder_is_killed,
    ]);
}

/// The slice with which this is to be run: `slice=1`.
const SLICE: Duration = Duration::from_millis(1);

/// From the call that readies an urgent G to that G, in instructions.
const AT_ONCE: u64 = 1_500;

fn figure(what: &str, number: u64) {
    println!("PRIORITY {what} {number}");
}

fn start<T: Send + 'static>(
    priority: Priority,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let name = if priority == Priority::Urgent { "" } else { MEASURED };
    Go::new().name(name).priority(priority).spawn(f).expect("memory for a G")
}

/// The name of Gs that are not urgent.
const MEASURED: &str = "measured";

/// Hogs until it is dropped: so many of that priority.
struct Hogs {
    stop: &'static AtomicBool,
    gs: Vec<JoinHandle<()>>,
}

impl Hogs {
    fn start(priority: Priority, count: usize) -> Self {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let hog = || {
            while !stop.load(Relaxed) {
                spin();
            }
        };
        Hogs { stop, gs: (0..count).map(|_| start(priority, hog)).collect() }
    }
}

/// Nanoseconds that the Gs that are measured were on a CPU.
fn ran() -> u64 {
    tasks::gs().iter().filter(|g| g.name == MEASURED).map(|g| g.cpu_ns).sum()
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        join_all(self.gs.drain(..));
    }
}

/// A turn of an emulated CPU ends at a pause.
fn spin() {
    for _ in 0..1_000 {
        core::hint::black_box(());
    }
    core::hint::spin_loop();
}

/// Computes for so long.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        spin();
    }
}

/// One P, until dropped.
struct OneP;

impl OneP {
    fn only() -> Self {
        set_gomaxprocs(1);
        yield_now();
        OneP
    }
}

impl Drop for OneP {
    fn drop(&mut self) {
        set_gomaxprocs(num_cpus());
    }
}

/// An urgent G that parks, and when it was readied and ran: the longest time between.
struct Alarm {
    readied: &'static AtomicU64,
    seen: &'static AtomicU64,
    g: GRef,
    handle: JoinHandle<u64>,
}

impl Alarm {
    fn start(options: Go, rounds: u64) -> Self {
        let counter = || -> &'static AtomicU64 { Box::leak(Box::new(AtomicU64::new(0))) };
        let (readied, seen) = (counter(), counter());
        let (tx, rx) = chan::bounded(1);
        let alarm = move || {
            tx.send(current()).expect("it is awaited");
            let mut longest = 0;
            for round in 1..=rounds {
                let came = loop {
                    let came = readied.load(Relaxed);
                    if came != 0 {
                        break came;
                    }
                    park();
                };
                longest = longest.max(now_ns() - came);
                readied.store(0, Relaxed);
                seen.store(round, Relaxed);
            }
            longest
        };
        let handle = options.priority(Priority::Urgent).spawn(alarm).expect("memory for a G");
        let g = rx.recv().expect("it says");
        // Else the first round would find it on its way to park.
        wait_until(|| tasks::gs().iter().any(|it| it.id == g.id() && it.state == GState::Waiting));
        Alarm { readied, seen, g, handle }
    }

    /// Readies it for that round; it has run when this returns, if it displaces.
    fn ready(&self, round: u64) -> bool {
        self.readied.store(now_ns(), Relaxed);
        self.g.unpark();
        self.seen.load(Relaxed) == round
    }
}

/// The G that readies it is a hog as the others are: it is displaced before its call returns.
fn an_urgent_g_runs_at_once_beside_two_hogs_on_every_p() {
    const ROUNDS: u64 = 20;
    let _hogs = Hogs::start(Priority::Normal, 2 * num_cpus());
    let alarm = Alarm::start(Go::new(), ROUNDS);
    for round in 1..=ROUNDS {
        // No round is at the same place of a slice as another.
        compute(SLICE * (round as u32 % 7 + 1) / 5);
        assert!(alarm.ready(round), "round {round}: it waits");
    }
    let longest = alarm.handle.join().expect("no panic");
    figure("urgent_to_g", longest);
    assert!(num_cpus() > 1 || longest <= AT_ONCE, "{longest} instructions");
}

fn an_urgent_g_that_a_clock_readies_runs_at_once() {
    let _hogs = Hogs::start(Priority::Normal, 2 * num_cpus());
    let late = |round: u32| {
        let nap = SLICE * (round + 2) / 7;
        let due = Instant::now() + nap;
        sleep(nap);
        due.elapsed().as_nanos() as u64
    };
    let longest = start(Priority::Urgent, move || (0..20).map(late).max());
    let longest = longest.join().expect("no panic").expect("rounds");
    figure("urgent_late", longest);
    assert!(num_cpus() > 1 || longest <= 2 * AT_ONCE, "{longest} ns late");
}

/// What normal hogs have of one P beside urgent ones, in thousandths.
fn share_beside_urgent_hogs(normal: impl FnOnce() -> Hogs) -> u64 {
    let _one = OneP::only();
    tasks::set_priority(Priority::Urgent); // or it would not come to measure
    let _urgent = Hogs::start(Priority::Urgent, 3);
    let _normal = normal();
    sleep(SLICE * 5);
    let (before, began) = (ran(), now_ns());
    sleep(SLICE * 90);
    let share = (ran() - before) * 1_000 / (now_ns() - began);
    tasks::set_priority(Priority::Normal);
    share
}

fn normal_gs_keep_two_thirds_of_a_p_whatever_urgent_ones_do() {
    let share = share_beside_urgent_hogs(|| Hogs::start(Priority::Normal, 2));
    figure("normal_share", share);
    // A slice at either end, and what the switches take.
    assert!((640..700).contains(&share), "{share} of 1,000");
}

/// They yield after a twentieth of a slice each time.
fn normal_gs_with_short_slices_keep_two_thirds_too() {
    let share = share_beside_urgent_hogs(|| {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let yielder = || {
            while !stop.load(Relaxed) {
                compute(SLICE / 20);
                yield_now();
            }
        };
        let gs = (0..2).map(|_| start(Priority::Normal, yielder)).collect();
        Hogs { stop, gs }
    });
    figure("short_share", share);
    assert!((620..720).contains(&share), "{share} of 1,000");
}

/// An urgent hog sees the clock jump where it waited.
fn an_urgent_g_beyond_its_third_waits_for_a_slice_at_most() {
    let _one = OneP::only();
    let _hogs = Hogs::start(Priority::Normal, 3);
    let hog = || {
        let begin = now_ns();
        let (mut last, mut longest) = (begin, 0);
        while last - begin < 60_000_000 {
            let now = now_ns();
            (longest, last) = (longest.max(now - last), now);
            core::hint::spin_loop();
        }
        longest
    };
    let longest = start(Priority::Urgent, hog).join().expect("no panic");
    figure("urgent_waits_us", longest / 1_000);
    let slice = SLICE.as_nanos() as u64;
    assert!(longest > slice / 2, "it never waited: {longest} ns");
    assert!(longest <= slice * 11 / 10, "{longest} ns");
}

/// Slices of others that begin between two of a background G, while the P has Gs all the time.
fn a_background_g_has_one_slice_in_61() {
    let _one = OneP::only();
    let _hogs = Hogs::start(Priority::Normal, 3);
    let background = || {
        let begun = || stats().cpus[0].slices;
        let (mut last, mut longest, mut own) = (begun(), 0, slices());
        for _ in 0..4 {
            while slices() == own {
                core::hint::spin_loop();
            }
            (longest, last, own) = (longest.max(begun() - last), begun(), slices());
        }
        u64::from(longest)
    };
    // Not by a join, which would lend it a rank.
    let (tx, rx) = chan::bounded(1);
    drop(start(Priority::Background, move || tx.send(background())));
    let longest = rx.recv().expect("no panic");
    figure("background_turn", longest);
    assert!((40..=62).contains(&longest), "{longest} slices");
}

fn background_gs_have_the_idle_time() {
    let _hogs = Hogs::start(Priority::Background, num_cpus());
    let (before, began) = (ran(), now_ns());
    sleep(SLICE * 20);
    let share = (ran() - before) * 1_000 / (now_ns() - began);
    figure("idle_share", share);
    // On several CPUs virtual time is that of all of them.
    assert!(share > 900, "{share} of 1,000");
}

fn a_priority_changes_while_the_g_runs_or_waits() {
    let of = |id| tasks::gs().into_iter().find(|g| g.id == id).map(|g| (g.priority, g.rank));
    let me = current().id();
    assert_eq!(of(me), Some((Priority::Normal, Priority::Normal)));
    tasks::set_priority(Priority::Background);
    yield_now();
    assert_eq!(of(me), Some((Priority::Background, Priority::Background)));
    tasks::set_priority(Priority::Normal);
    let (tx, rx) = chan::bounded(1);
    let waits = go(move || {
        tx.send(current().id()).expect("it is awaited");
        park();
    });
    let id = rx.recv().expect("it says");
    wait_until(|| tasks::gs().iter().any(|g| g.id == id && g.state == GState::Waiting));
    assert!(tasks::nice(id, Priority::Urgent));
    assert_eq!(of(id), Some((Priority::Urgent, Priority::Urgent)));
    assert_eq!(tasks::kill(id), Ok(tasks::Killed::Ended));
    assert!(waits.join().is_err() && !tasks::nice(id, Priority::Background), "its life is over");
    let next = go(|| tasks::gs().into_iter().find(|g| g.id == current().id()).map(|g| g.rank));
    assert_eq!(next.join(), Ok(Some(Priority::Normal)), "a rank outlives its G");
}

fn a_pinned_urgent_g_runs_at_once_on_its_cpu() {
    const ROUNDS: u64 = 10;
    let _hogs = Hogs::start(Priority::Normal, 2 * num_cpus());
    let alarm = Alarm::start(Go::new().pin(0), ROUNDS);
    let readier = move || {
        for round in 1..=ROUNDS {
            compute(SLICE * (round as u32 % 7 + 1) / 5);
            assert!(alarm.ready(round), "round {round}: it waits");
        }
        alarm.handle.join().expect("no panic")
    };
    let longest = check::go_on(0, readier).join().expect("no panic");
    figure("pinned_to_g", longest);
    assert!(num_cpus() > 1 || longest <= 2 * AT_ONCE, "{longest} instructions");
}

/// A lock that a background G holds while two normal hogs have the one P.
struct Inverted<L: 'static> {
    lock: &'static L,
    goes_on: &'static AtomicBool,
    holder: u64,
    handle: JoinHandle<Priority>,
    _hogs: Hogs,
    _one: OneP,
}

fn rank_of(id: u64) -> Priority {
    let g = tasks::gs().into_iter().find(|g| g.id == id);
    g.map_or(Priority::Normal, |g| g.rank)
}

/// A fifth of a slice, however long it takes.
fn work() {
    (0..40).for_each(|_| spin());
}

impl<L: Sync + 'static> Inverted<L> {
    /// `hold` takes the lock, calls what it is given and frees it.
    fn new(lock: L, hold: impl FnOnce(&'static L, &dyn Fn()) + Send + 'static) -> Self {
        let one = OneP::only();
        let lock: &'static L = Box::leak(Box::new(lock));
        let goes_on: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let (tx, rx) = chan::bounded(1);
        let handle = start(Priority::Background, move || {
            hold(lock, &|| {
                tx.send(current().id()).expect("it is awaited");
                while !goes_on.load(Relaxed) {
                    spin();
                }
                work();
            });
            rank_of(current().id())
        });
        let holder = rx.recv().expect("it holds the lock");
        let hogs = Hogs::start(Priority::Normal, 2);
        sleep(SLICE * 3);
        goes_on.store(true, Relaxed);
        Inverted { lock, goes_on, holder, handle, _hogs: hogs, _one: one }
    }

    /// An urgent G takes the lock: how long it waits. The holder's rank afterwards is its own.
    fn take(self, take: impl FnOnce(&'static L) + Send + 'static) -> u64 {
        let lock = self.lock;
        let urgent = start(Priority::Urgent, move || {
            let began = now_ns();
            take(lock);
            now_ns() - began
        });
        let waited = urgent.join().expect("no panic");
        // It may have ended by now.
        let rank = tasks::gs().into_iter().find(|g| g.id == self.holder).map(|g| g.rank);
        assert!(rank.is_none_or(|rank| rank == Priority::Background), "it stays {rank:?}");
        let Inverted { goes_on, handle, _hogs, _one, .. } = self;
        goes_on.store(true, Relaxed);
        drop(_hogs);
        assert!(handle.join().is_ok()); // the joiner lends its own rank
        waited
    }
}

/// Without inheritance it would be 61 slices: the holder is a background G.
fn is_short(what: &str, waited: u64) {
    figure(what, waited / 1_000);
    assert!(waited < 2 * SLICE.as_nanos() as u64, "{waited} ns");
}

fn a_holder_of_a_lock_inherits_from_an_urgent_waiter() {
    let inverted = Inverted::new(Mutex::new(()), |lock, f| {
        let _held = lock.lock().expect("no panic");
        f();
    });
    is_short("inversion_us", inverted.take(|lock| drop(lock.lock().expect("no panic"))));
}

fn a_holder_in_a_call_inherits() {
    let inverted = Inverted::new(Mutex::new(()), |lock, f| {
        let _held = lock.lock().expect("no panic");
        // On the stack of its M, which leaves with it whenever its slice is over.
        blocking(f);
    });
    is_short("inversion_call_us", inverted.take(|lock| drop(lock.lock().expect("no panic"))));
}

/// The urgent G waits for a lock whose holder waits for a lock that the background G holds.
fn a_chain_of_three_passes_a_rank_on() {
    static SECOND: Mutex<()> = Mutex::new(());
    let inverted = Inverted::new(Mutex::new(()), |lock, f| {
        let _held = lock.lock().expect("no panic");
        f();
    });
    let first = inverted.lock;
    inverted.goes_on.store(false, Relaxed);
    let middle = go(move || {
        let _second = SECOND.lock().expect("no panic");
        drop(first.lock().expect("no panic"));
        rank_of(current().id())
    });
    sleep(SLICE * 5);
    inverted.goes_on.store(true, Relaxed);
    is_short("chain_us", inverted.take(|_| drop(SECOND.lock().expect("no panic"))));
    assert!(middle.join().is_ok());
}

fn a_writer_inherits_from_those_that_wait_for_its_lock() {
    let hold = |lock: &'static RwLock<()>, f: &dyn Fn()| {
        let _held = lock.write().expect("no panic");
        f();
    };
    let reads = Inverted::new(RwLock::new(()), hold).take(|lock| drop(lock.read().expect("")));
    is_short("inversion_read_us", reads);
    let writes = Inverted::new(RwLock::new(()), hold).take(|lock| drop(lock.write().expect("")));
    is_short("inversion_write_us", writes);
}

fn a_g_that_is_joined_inherits() {
    let _one = OneP::only();
    let worker = start(Priority::Background, || {
        work();
        rank_of(current().id())
    });
    let _hogs = Hogs::start(Priority::Normal, 2);
    let joiner = start(Priority::Urgent, move || {
        let began = now_ns();
        (worker.join(), now_ns() - began)
    });
    let (rank, waited) = joiner.join().expect("no panic");
    assert_eq!(rank, Ok(Priority::Urgent));
    is_short("join_us", waited);
}

fn no_rank_stays_when_the_waiter_gives_up_or_is_killed() {
    let inverted = Inverted::new(Mutex::new(()), |lock, f| {
        let _held = lock.lock().expect("no panic");
        f();
    });
    inverted.goes_on.store(false, Relaxed);
    let (lock, holder) = (inverted.lock, inverted.holder);
    let gives_up = start(Priority::Urgent, move || {
        let during = start(Priority::Urgent, move || {
            sleep(SLICE / 2);
            rank_of(holder)
        });
        assert!(lock.lock_until(SLICE).is_err());
        (during.join(), rank_of(holder))
    });
    let (during, after) = gives_up.join().expect("no panic");
    assert_eq!((during, after), (Ok(Priority::Urgent), Priority::Background));
    let (tx, rx) = chan::bounded(1);
    let killed = start(Priority::Urgent, move || {
        tx.send(current().id()).expect("it is awaited");
        drop(lock.lock());
    });
    let id = rx.recv().expect("it says");
    sleep(SLICE * 2);
    assert_eq!(rank_of(holder), Priority::Urgent);
    assert_eq!(tasks::kill(id), Ok(tasks::Killed::Ended));
    assert!(killed.join().is_err());
    assert_eq!(rank_of(holder), Priority::Background);
    inverted.goes_on.store(true, Relaxed);
    is_short("after_a_kill_us", inverted.take(|lock| drop(lock.lock().expect("no panic"))));
}

/// Its guard is dropped as it unwinds: the waiter has the lock, poisoned.
fn no_rank_stays_when_the_holder_is_killed() {
    let inverted = Inverted::new(Mutex::new(()), |lock, f| {
        let _held = lock.lock().expect("no panic");
        f();
        loop {
            yield_now();
        }
    });
    let (lock, holder) = (inverted.lock, inverted.holder);
    let urgent = start(Priority::Urgent, || lock.lock().is_err());
    sleep(SLICE * 3);
    assert_eq!(rank_of(holder), Priority::Urgent);
    assert_eq!(tasks::kill(holder), Ok(tasks::Killed::Ended));
    assert_eq!(urgent.join(), Ok(true), "poisoned");
    assert!(inverted.handle.join().is_err());
    let next = go(|| rank_of(current().id()));
    assert_eq!(next.join(), Ok(Priority::Normal));
}
