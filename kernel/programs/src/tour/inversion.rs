//! The scene of priorities: an urgent G waits for what a background G has, while normal Gs never
//! leave the P idle.
//!
//! A background G has one turn in 61 of such a P. So the urgent G would wait for 60 turns of Gs that
//! come after it: its priority is *inverted*. It does if it waits at a semaphore, which has no
//! holder. A mutex has one, which inherits the rank of the urgent G, and runs at once.
//!
//! A normal G counts its turns and yields, so a turn is short and the scene depends on no clock.

use super::stage::{Stage, comes, join_all};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::{Mutex, Semaphore};
use runnext::system;
use runnext::tasks;

/// A turn of the holder is due after 60 turns of others. Half of that is too many for a G that runs
/// before them, and too few for one that waits for its turn.
const MANY: u64 = 30;

pub fn inversion(stage: &mut Stage) {
    // On one P: on several, an idle one would run the holder.
    let ps = set_gomaxprocs(1);
    let at_semaphore = until(at_semaphore, |seen| seen.turns >= MANY);
    let at_mutex = until(at_mutex, |seen| seen.turns < MANY);
    set_gomaxprocs(ps);
    let (Some(at_semaphore), Some(at_mutex)) = (at_semaphore, at_mutex) else {
        return stage
            .check(false, "the background G had its turns, and the urgent G what it wants");
    };
    for (what, seen) in [("semaphore", &at_semaphore), ("mutex", &at_mutex)] {
        let Seen { turns, rank, .. } = seen;
        stage.show(format_args!(
            "{what}: the holder, {rank} then, ran after {turns} turns of normal Gs"
        ));
    }
    let is_background = |seen: &Seen| seen.rank_after == Priority::Background;
    match system::running().promises.priorities {
        true => {
            let text = "who waits at a semaphore lends no rank: the holder waits for its turn";
            let waits = at_semaphore.rank == Priority::Background && at_semaphore.turns >= MANY;
            stage.check(waits, text);
            let text = "the holder of a mutex inherits the rank urgent, and does not wait for it";
            let runs = at_mutex.rank == Priority::Urgent && at_mutex.turns < MANY;
            stage.check(runs, text);
            let falls = is_background(&at_semaphore) && is_background(&at_mutex);
            stage.check(falls, "it falls to background with the unlock");
        }
        false => {
            let ranks = [&at_semaphore, &at_mutex].map(|seen| [seen.rank, seen.rank_after]);
            let is_one = ranks == [[Priority::Normal; 2]; 2];
            stage.check(is_one, "this system promises no priorities: all Gs have one rank");
            let alike = at_semaphore.turns < MANY && at_mutex.turns < MANY;
            stage.check(alike, "and the background G has its turns as the others");
        }
    }
}

/// What the holder sees.
struct Seen {
    /// Turns of the normal Gs from when the urgent G wants what the holder has until the holder runs.
    turns: u64,
    /// Its rank then.
    rank: Priority,
    /// Its rank when the urgent G has had it.
    rank_after: Priority,
}

/// Calls `play` until the result `is_clear`, a few times: a pause of the host may use up what urgent
/// Gs may borrow, and a CPU that is switching to a G when the number of Ps falls runs it until the
/// interrupt comes.
fn until(play: impl Fn() -> Option<Seen>, is_clear: impl Fn(&Seen) -> bool) -> Option<Seen> {
    const TRIES: usize = 10;
    let mut seen = play();
    for _ in 1..TRIES {
        if system::running().promises.priorities && !seen.as_ref().is_some_and(&is_clear) {
            sleep(Duration::from_millis(1));
            seen = play();
        }
    }
    seen
}

fn at_semaphore() -> Option<Seen> {
    let held = Arc::new(Semaphore::new(1));
    let wanted = held.clone();
    let hold = move |has: &dyn Fn()| {
        held.acquire(1);
        has();
        held.release(1);
    };
    invert(hold, move || wanted.acquire(1))
}

fn at_mutex() -> Option<Seen> {
    let held = Arc::new(Mutex::new(()));
    let wanted = held.clone();
    let hold = move |has: &dyn Fn()| {
        let guard = held.lock();
        has();
        drop(guard);
    };
    invert(hold, move || drop(wanted.lock()))
}

/// What the Gs of the scene share.
#[derive(Default)]
struct Shared {
    /// Turns of the normal Gs.
    turns: AtomicU64,
    /// Turns of the holder.
    held: AtomicU64,
    /// `turns` when the urgent G wanted what the holder has.
    wanted_at: AtomicU64,
    is_wanted: AtomicBool,
    is_over: AtomicBool,
}

/// Lets a background G `hold` something, which calls what it is given meanwhile, and an urgent G
/// `want` it right after a turn of the holder, while normal Gs run.
fn invert(
    hold: impl FnOnce(&dyn Fn()) + Send + 'static,
    want: impl FnOnce() + Send + 'static,
) -> Option<Seen> {
    let shared = Arc::new(Shared::default());
    // By a channel, not a join, which would lend the holder a rank.
    let (tx, rx) = chan::bounded(2);
    let its = shared.clone();
    let holder = start(Priority::Background, move || {
        hold(&|| {
            while !its.is_wanted.load(Relaxed) {
                its.held.fetch_add(1, Relaxed);
                yield_now();
            }
            let turns = its.turns.load(Relaxed) - its.wanted_at.load(Relaxed);
            let _ = tx.send((turns, own_rank()));
        });
        while !its.is_over.load(Relaxed) {
            yield_now();
        }
        let _ = tx.send((0, own_rank()));
    });
    comes(|| shared.held.load(Relaxed) > 0);
    let normal = |_| {
        let its = shared.clone();
        go(move || {
            while !its.is_over.load(Relaxed) {
                its.turns.fetch_add(1, Relaxed);
                yield_now();
            }
        })
    };
    let normals: Vec<_> = (0..3).map(normal).collect();
    let is_inverted = a_turn_passes(&shared);
    let its = shared.clone();
    let urgent = start(Priority::Urgent, move || {
        its.wanted_at.store(its.turns.load(Relaxed), Relaxed);
        its.is_wanted.store(true, Relaxed);
        want();
        its.is_over.store(true, Relaxed);
    });
    let has_it = urgent.join().is_ok();
    shared.is_over.store(true, Relaxed);
    join_all(normals);
    let (first, last) = (rx.recv(), rx.recv());
    join_all([holder]);
    let ((turns, rank), (_, rank_after)) = (first.ok()?, last.ok()?);
    (is_inverted && has_it).then_some(Seen { turns, rank, rank_after })
}

/// Waits, as one of the normal Gs, for a turn of the holder, when others have had as many as it must
/// wait for. False: it had none for long.
fn a_turn_passes(shared: &Shared) -> bool {
    const MOST: u64 = 1_000_000;
    let turns = || shared.turns.load(Relaxed);
    let is_slow = system::running().promises.priorities;
    let (mut last, mut at) = (shared.held.load(Relaxed), turns());
    let until = at + MOST;
    while turns() < until {
        yield_now();
        let held = shared.held.load(Relaxed);
        if held != last {
            if !is_slow || turns() - at >= MANY {
                return true;
            }
            (last, at) = (held, turns());
        }
    }
    false
}

fn start<T: Send + 'static>(
    priority: Priority,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Go::new().priority(priority).spawn(f).expect("memory for a G")
}

fn own_rank() -> Priority {
    let me = current().id();
    let g = tasks::gs().into_iter().find(|g| g.id == me);
    g.map_or(Priority::Normal, |g| g.rank)
}
