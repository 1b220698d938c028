//! A rate limiter: requests take tokens from a bucket, which a G fills at a steady rate.
//!
//! The bucket is a semaphore: its permits are the tokens, and requests wait in line. Up to `BURST`
//! tokens are kept for a burst after a pause.

use runnext::prelude::*;
use runnext::sync::Semaphore;
use runnext::time::Ticker;

runnext::main!(rate_limiter, main);

const BURST: usize = 3;
const PERIOD: Duration = Duration::from_millis(5);
const REQUESTS: usize = 10;

static BUCKET: Semaphore = Semaphore::new(BURST);

fn main() {
    let began = Instant::now();
    let _refills_until_the_program_ends = go(refill);
    let requests: Vec<_> = (0..REQUESTS)
        .map(|_| {
            go(move || {
                BUCKET.acquire(1);
                began.elapsed()
            })
        })
        .collect();
    let mut served: Vec<_> = requests.into_iter().map(|g| g.join().expect("no panic")).collect();
    served.sort_unstable();
    // The burst is served at once; of the others none comes before its token.
    let is_early = |n: usize| n >= BURST && served[n] < PERIOD * (n + 1 - BURST) as u32;
    assert!(!(0..REQUESTS).any(is_early), "{served:?}");
    println!("{REQUESTS} requests, {BURST} at once, then one each {PERIOD:?} at most");
}

/// Adds a token at each tick, if there is room. Ticks do not drift, and those that come while this G
/// does not receive are dropped: the bucket gets fewer tokens then, and never a burst of late ones.
fn refill() {
    for _tick in &*Ticker::new(PERIOD) {
        if BUCKET.available() < BURST {
            BUCKET.release(1);
        }
    }
}
