//! The turn to print: one G at a time, the others wait in order without a CPU.
//!
//! A lock like a mutex, with two differences that printing needs. A killed G continues to wait:
//! printing does not unwind. And the lock survives its holder: if a G is abandoned while it has the
//! turn, the turn passes to the next G in the queue ([`Turn::pass_from`]), as the lock guards no
//! value that could be half changed.
//!
//! The name of the holder is the state of the wait queue, 0 if the turn is free: all changes are
//! under its lock. A G that is done stores the name of the first G in the queue there, and wakes
//! it. So the turn is free only while the queue is empty, and no wake-up is lost. A waiter that is
//! woken for another reason, by a kill, queues again. It waits in two steps (`wait_watching`): in
//! one, a G whose kill was requested does not park. A waiter that was abandoned in the queue (its
//! frame is kept) is skipped.

use crate::run::door::{self, Reason};
use crate::wait::held::PANICKING;
use crate::wait::queue::{Place, WaitQueue, Waited};

/// The right to print: the name of the G that has it, and the names of those that wait for it.
pub struct Turn(pub(super) WaitQueue<u64, u64>);

/// The guard from [`Turn::take`]: the turn passes to the next G when this is dropped.
#[must_use]
pub struct Taken<'a> {
    turn: &'a Turn,
    me: u64,
}

impl Turn {
    pub const fn new() -> Self {
        Turn(WaitQueue::new(0))
    }

    /// Waits until it is the calling G's turn. Only where [`door::may_wait`].
    pub fn take(&self) -> Taken<'_> {
        let me = door::me() & !PANICKING;
        let mut turn = self.0.lock();
        while *turn != 0 {
            // "IO wait" ends without another G, for the deadlock scan: a holder always continues.
            let place = Place { reason: Reason::Poll, list: 0, value: Some(me), deadline_ns: None };
            // True, so that a killed G does not unwind.
            turn = match turn.wait_watching(place, Some(|| ()), |_| true) {
                Waited::Granted(_) => return Taken { turn: self, me }, // passed on to this G
                Waited::Took(turn) | Waited::TimedOut(turn, _) => turn,
            };
        }
        *turn = me;
        Taken { turn: self, me }
    }

    /// Passes the turn on, if this G has it: the G is done, or was abandoned.
    pub fn pass_from(&self, name: u64) {
        let mut turn = self.0.lock();
        if *turn != name & !PANICKING {
            return;
        }
        let next = loop {
            match turn.front(0) {
                // SAFETY: a name that `park::me` gave.
                Some(name) if unsafe { door::is_gone(name) } => drop(turn.grant(0)),
                next => break next,
            }
        };
        *turn = next.unwrap_or(0);
        let wake = next.and_then(|_| turn.grant(0));
        turn.ready_if(wake);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.turn.pass_from(self.me);
    }
}
