//! Very many Gs at once: they park on one channel, are woken, and end.
//!
//! Says how many bytes a G takes while it waits, its stack and its share of the
//! page tables included. Argument: how many (100000, which fits into 1 GiB).

use core::sync::atomic::{AtomicUsize, Ordering};
use runnext::inspect;
use runnext::mem::PAGE_SIZE;
use runnext::prelude::*;

runnext::main!(million, main);

/// How many Gs are about to wait, or wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let wanted = args().first().and_then(|word| word.parse().ok()).unwrap_or(100_000);
    WAITING.store(0, Ordering::Relaxed); // it may have run before
    let (gate, closed) = chan::rendezvous::<()>();
    let mut gs = Vec::with_capacity(wanted);
    let free = inspect::memory().frames.free;
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
    let used = free.saturating_sub(inspect::memory().frames.free) * PAGE_SIZE;
    println!("{} Gs wait, {} bytes each", gs.len(), used / gs.len().max(1));

    gate.close();
    let started = gs.len();
    let ended = gs.into_iter().filter_map(|g| g.join().ok()).filter(|&woken| woken).count();
    println!("{ended} of {started} were woken and have ended");
    if ended < started {
        exit(1);
    }
}
