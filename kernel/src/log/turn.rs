//! The turn to print: one G at a time, the others wait in order without a CPU.
//!
//! A lock like a mutex, with two differences that printing needs. A killed G continues to wait:
//! printing does not unwind. And the lock survives its holder: if a G is abandoned while it has the
//! turn, the turn passes to the next G in the queue ([`Turn::pass_from`]), as the lock guards no
//! value that could be half changed.
//!
//! # How it passes
//!
//! `holder` has the name of the G whose turn it is, 0 if it is free. A G takes a free turn by one
//! compare-exchange, or queues. Everything else is under the queue's lock: a G that queues checks
//! `holder` once more; a G that is done stores the name of the first G in the queue there, and
//! wakes it. So `holder` is 0 only while the queue is empty, except for Gs that are about to take
//! the lock of the queue, and no wake-up is lost.
//!
//! A waiter that is woken for another reason, by a kill, queues again. A waiter that was abandoned
//! in the queue (its frame is kept) is skipped.

use crate::cell::held::PANICKING;
use crate::cell::wait::{Place, WaitQueue, Waited};
use crate::park::{self, Reason};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The right to print, and the Gs that wait for it.
pub struct Turn {
    /// The name of the G that has it; 0 if it is free.
    holder: AtomicU64,
    /// With the name of each waiter.
    waiters: WaitQueue<(), u64>,
}

/// The guard from [`Turn::take`]: the turn passes to the next G when this is dropped.
#[must_use]
pub struct Taken<'a>(&'a Turn);

impl Turn {
    /// A free turn.
    pub const fn new() -> Self {
        Turn { holder: AtomicU64::new(0), waiters: WaitQueue::new(()) }
    }

    /// Waits until it is the calling G's turn. Only where [`park::may_wait`].
    pub fn take(&self) -> Taken<'_> {
        let me = park::me() & !PANICKING;
        while !self.try_take(me) {
            let waiters = self.waiters.lock();
            if self.try_take(me) {
                break;
            }
            // "IO wait" ends without another G, for the deadlock scan: a holder always continues.
            let place = Place { reason: Reason::Poll, list: 0, value: Some(me), deadline_ns: None };
            // True, so that a killed G does not unwind.
            if let Waited::Granted(_) = self.waiters.wait(waiters, place, |()| true) {
                break; // passed on to this G
            }
        }
        Taken(self)
    }

    fn try_take(&self, me: u64) -> bool {
        self.holder.compare_exchange(0, me, Acquire, Relaxed).is_ok()
    }

    /// The number of waiters.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiters.lock().waiting(0)
    }

    /// The G of this name is abandoned: if it has the turn, passes it on.
    pub fn pass_from(&self, gone: u64) {
        if self.holder.load(Acquire) == gone & !PANICKING {
            self.pass();
        }
    }

    /// Passes the turn on. Only for the holder, or if the holder is gone.
    fn pass(&self) {
        let mut waiters = self.waiters.lock();
        let next = loop {
            match waiters.front(0) {
                // SAFETY: a name that `park::me` gave.
                Some(name) if unsafe { park::is_gone(name) } => drop(waiters.grant(0)),
                next => break next,
            }
        };
        // Release: pairs with the Acquire of the next G that takes a free turn.
        self.holder.store(next.unwrap_or(0), Release);
        let wake = next.and_then(|_| waiters.grant(0));
        waiters.ready_if(wake);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.pass();
    }
}
