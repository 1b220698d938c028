//! Everything at once, with 100,000 Gs: `program=stress -- <gs>`.
//!
//! Gs that yield, sleep, lock, send, select, start others and panic, while
//! somebody changes gomaxprocs under them. At most [`ALIVE`] at a time, for the
//! memory's sake. At the end all counts must be right.

use crate::check::{self, checks, join_all};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use runnext::prelude::*;
use runnext::sync::{Condvar, Mutex, Once, RwLock, Semaphore, WaitGroup};

runnext::main!(stress, main);

/// Gs that are started before any is joined.
const ALIVE: usize = 20_000;
/// What a G does is its number modulo this.
const KINDS: usize = 10;

fn main() {
    check::run(checks![all_of_it_at_once_comes_out_right]);
}

static LOCKED: Mutex<usize> = Mutex::new(0);
static SHARED: RwLock<(usize, usize)> = RwLock::new((0, 0));
static PLACES: Semaphore = Semaphore::new(4);
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static GROUP: WaitGroup = WaitGroup::new();
static SETUP: Once = Once::new();
static SETUPS: AtomicUsize = AtomicUsize::new(0);
static BELL: Condvar = Condvar::new();
static STOP: AtomicBool = AtomicBool::new(false);

type Numbers = (chan::Sender<usize>, chan::Receiver<usize>);

fn all_of_it_at_once_comes_out_right() {
    let gs = args().first().and_then(|word| word.parse().ok()).unwrap_or(100_000);
    // Few places and few who empty them, so that senders wait.
    let channels = [chan::rendezvous(), chan::bounded(1), chan::unbounded()];
    let [first, second, third] = channels.clone().map(|(tx, _)| tx);
    let receivers: Vec<_> = (0..2).map(|_| receiver(channels.clone())).collect();
    drop(channels);
    let meddler = go(meddle);

    let (mut ended, mut panicked) = (0, 0);
    for begin in (0..gs).step_by(ALIVE) {
        let batch: Vec<_> = (begin..gs.min(begin + ALIVE))
            .map(|i| {
                let to = [first.clone(), second.clone(), third.clone()];
                Go::new().name("stressed").spawn(move || work(i, &to)).expect("memory for a G")
            })
            .collect();
        for g in batch {
            match g.join() {
                Ok(()) => ended += 1,
                Err(_) => panicked += 1,
            }
        }
    }
    drop((first, second, third));
    GROUP.wait();
    STOP.store(true, Relaxed);
    meddler.join().expect("no panic");

    let each = |kind: usize| (0..gs).filter(|i| i % KINDS == kind && !panics(*i)).count();
    let panics = (0..gs).filter(|i| panics(*i)).count();
    assert_eq!((ended, panicked), (gs - panics, panics), "(ended well, panicked)");
    let mut got = join_all(receivers).concat();
    got.sort_unstable();
    let sent = (0..gs).filter(|i| matches!(i % KINDS, 2..=4) && !self::panics(*i));
    assert!(got.iter().copied().eq(sent), "{} arrived", got.len());
    assert_eq!(*LOCKED.lock().expect("nobody panicked with it"), each(1) + each(9));
    let pair = *SHARED.read().expect("nobody panicked with it");
    assert_eq!(pair, (each(5), each(5)));
    assert_eq!((PLACES.available(), SETUPS.load(Relaxed)), (4, 1));
}

fn panics(i: usize) -> bool {
    i % 4999 == 4998
}

/// What the G of number `i` does.
fn work(i: usize, to: &[chan::Sender<usize>; 3]) {
    SETUP.call_once(|| {
        SETUPS.fetch_add(1, Relaxed);
    });
    assert!(!panics(i), "on purpose");
    let [first, second, third] = to;
    match i % KINDS {
        0 => (0..3).for_each(|_| yield_now()),
        1 => {
            let mut locked = LOCKED.lock().expect("no panic");
            let before = *locked;
            if i % 64 == 1 {
                yield_now(); // with the lock held: the others must wait
            }
            *locked = before + 1;
        }
        2 => first.send(i).expect("open"),
        3 => select! {
            send(first, i) -> sent => sent.expect("open"),
            send(second, i) -> sent => sent.expect("open"),
        },
        4 => third.send(i).expect("open"),
        5 => {
            let mut pair = SHARED.write().expect("no panic");
            pair.0 += 1;
            pair.1 += 1;
        }
        6 => {
            let pair = SHARED.read().expect("no panic");
            assert_eq!(pair.0, pair.1, "somebody writes");
        }
        7 => {
            let _permit = PLACES.permit(1);
            assert!(INSIDE.fetch_add(1, Relaxed) < 4, "five inside");
            yield_now();
            INSIDE.fetch_sub(1, Relaxed);
        }
        8 => {
            sleep(Duration::from_micros(i as u64 % 500));
            let ticket = WaitGroup::ticket(&GROUP);
            let pin = Go::new().pin(i % num_cpus());
            drop(pin.spawn(move || drop(ticket)).expect("memory for a G"));
        }
        _ => {
            let locked = LOCKED.lock().expect("no panic");
            let (mut locked, _) =
                BELL.wait_timeout(locked, Duration::from_micros(100)).expect("no panic");
            *locked += 1;
            BELL.notify_one();
        }
    }
}

/// Receives from all channels until all senders are gone.
fn receiver([(tx1, first), (tx2, second), (tx3, third)]: [Numbers; 3]) -> JoinHandle<Vec<usize>> {
    drop((tx1, tx2, tx3));
    go(move || {
        let mut got = Vec::new();
        loop {
            let next = select! {
                recv(first) -> n => n,
                recv(second) -> n => n,
                recv(third) -> n => n,
            };
            match next {
                Ok(n) => got.push(n),
                // One is closed, so all are soon; what is left in them is left.
                Err(_) => break,
            }
        }
        [first, second, third].iter().for_each(|rx| got.extend(rx.iter()));
        got
    })
}

/// Changes gomaxprocs until the others are done.
fn meddle() {
    for n in (1..=num_cpus()).rev().cycle() {
        if STOP.load(Relaxed) {
            break;
        }
        set_gomaxprocs(n);
        sleep(Duration::from_millis(3));
    }
    set_gomaxprocs(num_cpus());
}
