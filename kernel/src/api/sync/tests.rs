//! The promises of this folder, tested with threads in place of Gs.
//!
//! No test asserts a window of time. A test that must know that a thread waits reads how many have
//! ever queued.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Long enough never to pass in a test that succeeds.
const LONG: Duration = Duration::from_secs(600);
/// Short enough not to slow the test.
const SHORT: Duration = Duration::from_micros(50);

/// Rounds, fewer where every step is interpreted.
const fn rounds(n: usize) -> usize {
    if cfg!(miri) { n.div_ceil(200) } else { n }
}

fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}

/// Runs `f` on `n` threads at a time and waits for all of them.
fn on_threads(n: usize, f: impl Fn(usize) + Sync) {
    thread::scope(|s| {
        for i in 0..n {
            let f = &f;
            s.spawn(move || f(i));
        }
    });
}

/// Runs `f`, which panics, on a thread of its own.
fn panicking(f: impl FnOnce() + Send) {
    thread::scope(|s| {
        assert!(s.spawn(f).join().is_err());
    });
}

/// How many Gs have ever queued at a lock.
trait Queued {
    fn queued_ever(&self) -> u64;
}

macro_rules! queued {
    ($($lock:ident $(<$t:ident>)?: $($queue:ident).+;)+) => {
        $(impl$(<$t>)? Queued for $lock$(<$t>)? {
            fn queued_ever(&self) -> u64 {
                self.$($queue).+.lock().queued_ever()
            }
        })+
    };
}

queued! {
    Mutex<T>: lock.queue;
    RwLock<T>: lock.queue;
    Condvar: queue;
    Semaphore: free;
    WaitGroup: queue;
    Once: queue;
}

mod condvar;
mod mutex;
mod others;
mod rwlock;
mod sharing;

/// Unwinds without a report on the terminal.
fn panic_quietly() {
    std::panic::resume_unwind(Box::new("on purpose"));
}
