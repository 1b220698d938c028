//! A piece of work that is done once, and what comes of it.
//!
//! What a G and its join handle share (`go`): the closure on its way to the G,
//! the result on its way back, and whoever waits for it. Two locks would do; but
//! each step here happens once, by one side, in an order that one word can
//! state. Its loom model is `tests/loom_job.rs`.
//!
//! # The word
//!
//! > STARTED: whoever set it may take the work, and writes the result before it
//! > sets DONE. JOINED: whoever set it writes the waiter before it sets AWAITED,
//! > and takes the result after DONE.
//!
//! All four are set by one read-modify-write each and never cleared. So one of
//! AWAITED and DONE comes first: if AWAITED, who sets DONE sees the waiter and
//! readies it, which had begun to park before; if DONE, who sets AWAITED sees
//! that it need not wait.

use crate::cell::sys::{
    AtomicU32, GHandle, Reason, UnsafeCell, Wait, begin_park, cancel_park, const_fn, die,
    is_killed, park, ready,
};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const STARTED: u32 = 1;
const JOINED: u32 = 2;
const AWAITED: u32 = 4;
const DONE: u32 = 8;

/// Why one waits here. Whose work it is, the job does not know.
const JOIN: Wait = Wait::new(Reason::Join, 0);

/// Work `F`, of which a `T` comes.
///
/// ```
/// use runnext::cell::Job;
/// let job = Job::new(6);
/// job.run(|n| n * 7);
/// assert_eq!(job.join(), 42);
/// ```
pub struct Job<F, T> {
    word: AtomicU32,
    work: UnsafeCell<Option<F>>,
    waiter: UnsafeCell<Option<GHandle>>,
    result: UnsafeCell<Option<T>>,
}

// SAFETY: work and result go from one CPU to another (hence Send), each touched
// by one side at a time (the block quote above); nobody gets a `&` to them.
unsafe impl<F: Send, T: Send> Sync for Job<F, T> {}

impl<F, T> Job<F, T> {
    const_fn! {
        /// Work that nobody has begun.
        pub fn new(work: F) -> Self {
            Job {
                word: AtomicU32::new(0),
                work: UnsafeCell::new(Some(work)),
                waiter: UnsafeCell::new(None),
                result: UnsafeCell::new(None),
            }
        }
    }

    /// Does the work, and wakes who waits for the result.
    ///
    /// # Panics
    /// When it was begun before.
    #[inline]
    pub fn run(&self, f: impl FnOnce(F) -> T) {
        // Relaxed: the work came with the job.
        assert!(self.word.fetch_or(STARTED, Relaxed) & STARTED == 0, "work is done once");
        // SAFETY: we have set STARTED.
        let work = self.work.with_mut(|work| unsafe { (*work).take() });
        let result = f(work.expect("there until it is taken"));
        // SAFETY: we have set STARTED, and DONE is not set.
        self.result.with_mut(|slot| unsafe { *slot = Some(result) });
        // Release: the result, for `take`. Acquire: the waiter, and that it parks.
        if self.word.fetch_or(DONE, AcqRel) & AWAITED != 0 {
            // SAFETY: its writer is done with it, as AWAITED is set.
            let waiter = self.waiter.with_mut(|waiter| unsafe { (*waiter).take() });
            waiter.into_iter().for_each(ready);
        }
    }

    /// Waits for the result and takes it. Blocks this G only.
    ///
    /// # Panics
    /// When somebody else does or did.
    pub fn join(&self) -> T {
        assert!(self.word.fetch_or(JOINED, Relaxed) & JOINED == 0, "joined twice");
        if self.word.load(Acquire) & DONE == 0 {
            self.wait();
        }
        // SAFETY: we have set JOINED, and seen DONE.
        self.result.with_mut(|slot| unsafe { (*slot).take() }).expect("written before DONE")
    }

    /// Returns when DONE is set. Only for who has set JOINED.
    fn wait(&self) {
        let handle = begin_park(JOIN);
        // SAFETY: we have set JOINED, and AWAITED is not set.
        self.waiter.with_mut(|waiter| unsafe { *waiter = Some(handle) });
        // Release: the waiter, and that we are parking. Acquire: the result. The
        // second time it changes nothing, but comes before or after DONE too.
        while self.word.fetch_or(AWAITED, AcqRel) & DONE == 0 {
            park();
            if self.word.load(Acquire) & DONE != 0 {
                return;
            }
            if is_killed() {
                die(); // the handle that is left behind harms nobody
            }
            begin_park(JOIN); // woken by somebody with an old handle
        }
        cancel_park();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_result_is_there_whoever_comes_first() {
        for round in 0..if cfg!(miri) { 10 } else { 1000 } {
            let job = Arc::new(Job::new(String::from("work")));
            let runner = job.clone();
            let thread = std::thread::spawn(move || runner.run(|work| work + " done"));
            if round % 2 == 0 {
                std::thread::yield_now();
            }
            assert_eq!(job.join(), "work done");
            thread.join().expect("no panic");
        }
    }

    #[test]
    fn work_and_result_that_nobody_wants_are_dropped_once() {
        let value = Arc::new(());
        let job = Job::new(value.clone());
        drop(job as Job<_, ()>);
        let job = Job::new(value.clone());
        job.run(|value| value);
        drop(job);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    #[should_panic(expected = "work is done once")]
    fn work_is_not_done_twice() {
        let job = Job::new(());
        job.run(drop);
        job.run(drop);
    }

    #[test]
    #[should_panic(expected = "joined twice")]
    fn a_result_is_not_taken_twice() {
        let job = Job::new(());
        job.run(drop);
        job.join();
        job.join();
    }
}
