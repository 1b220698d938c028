//! A million Gs at once: they park on one channel, are woken, and end.
//!
//! Prints how long it takes until all wait, how many bytes a G takes meanwhile (its stack and
//! its share of the page tables included), and how long it takes from the close of the
//! channel until the last has ended. A million need 4.8 GB: `make run PROGRAM=million
//! MEM=6G`. With less memory their stacks are packed: `make run PROGRAM=million MEM=16G
//! ARGS="-- 10000000"`. Argument: how many; without it, as many as fit unpacked.

use core::sync::atomic::{AtomicUsize, Ordering};
use runnext::inspect::{self, PAGE_SIZE};
use runnext::prelude::*;

runnext::main!(million, main);

/// How many Gs, without an argument.
const USUAL: usize = 1_000_000;
/// The most bytes that a waiting G may take, all included.
const LIMIT: usize = 4_820;

/// How many Gs are about to wait, or wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let wanted = args().first().and_then(|word| word.parse().ok()).unwrap_or_else(as_many_as_fit);
    let (gate, closed) = chan::rendezvous::<()>();
    let mut gs = Vec::with_capacity(wanted);
    let free = inspect::memory().frames.free;
    let start = Instant::now();
    park(wanted, &closed, &mut gs);
    let (many, took) = (gs.len(), start.elapsed());
    println!("{many} Gs wait after {} ms, {} ns each", took.as_millis(), each(took, many));
    let used = free.saturating_sub(inspect::memory().frames.free) * PAGE_SIZE / many.max(1);
    println!("{used} bytes each, of {LIMIT} that it may be");
    let pack = inspect::memory().pack;
    println!("{} of them are packed, {} were unpacked again", pack.packed, pack.unpacks);

    let start = Instant::now();
    gate.close();
    let ended = gs.into_iter().filter_map(|g| g.join().ok()).filter(|&woken| woken).count();
    let took = start.elapsed();
    println!("{ended} of {many} were woken and have ended");
    println!("that took {} ms, {} ns each", took.as_millis(), each(took, many));
    if ended < many {
        exit(1);
    }
}

/// A million, or as many as there is memory for: some of it is left to other Gs.
fn as_many_as_fit() -> usize {
    let free = inspect::memory().frames.free * PAGE_SIZE;
    let fitting = free / 16 * 15 / LIMIT;
    if fitting < USUAL {
        println!("{} MiB are free, enough for {fitting} Gs; MEM=6G has a million", free >> 20);
    }
    fitting.min(USUAL)
}

/// Starts so many Gs, or as many as there is memory for, and returns when all wait.
fn park(wanted: usize, closed: &chan::Receiver<()>, gs: &mut Vec<JoinHandle<bool>>) {
    WAITING.store(0, Ordering::Relaxed); // the program may have run before
    while gs.len() < wanted {
        let closed = closed.clone();
        let wait = move || {
            WAITING.fetch_add(1, Ordering::Relaxed);
            closed.recv().is_err()
        };
        match Go::new().name("waiting").spawn(wait) {
            Ok(g) => gs.push(g),
            Err(error) => {
                println!("{error} after {}: those will have to do", gs.len());
                break;
            }
        }
    }
    while WAITING.load(Ordering::Relaxed) < gs.len() {
        yield_now();
    }
}

fn each(took: Duration, many: usize) -> u128 {
    took.as_nanos() / many.max(1) as u128
}
