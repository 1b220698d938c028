//! Which Gs of a set have ended, in that order: what a `JoinSet` waits for.
//!
//! Each G of the set leaves its number there with the ticket of its job (`job`, "The ticket"):
//! after its outcome is in the cell, so that a join does not wait, and whichever way it ended, also
//! if it was abandoned or never ran. Where that happens there may be no G and no memory, so room
//! for the number is made before the G is started.
//!
//! Rejected: a channel that each G sends its number to, because an abandoned G sends nothing, and
//! its set would wait for ever.
#![forbid(unsafe_code)]

use super::Job;
use super::error::JoinError;
use super::sys::{GHandle, IrqLock, irq, ready_from};
use super::unwind::Caught;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// The numbers of those that have ended and were not taken.
pub struct EndedGs(IrqLock<State>);

struct State {
    ended: VecDeque<u64>,
    /// The G that waits for the next.
    waiter: Option<GHandle>,
}

impl EndedGs {
    pub const fn new() -> Self {
        EndedGs(IrqLock::new(State { ended: VecDeque::new(), waiter: None }))
    }

    /// Makes room for as many; false if there is no memory. Only the owner calls this.
    pub fn reserve(&self, gs: usize) -> bool {
        if self.0.lock().ended.capacity() >= gs {
            return true;
        }
        // Not under the lock, which Gs take when they end.
        let mut larger = VecDeque::new();
        if larger.try_reserve(2 * gs).is_err() {
            return false;
        }
        let mut state = self.0.lock();
        larger.extend(state.ended.drain(..));
        let smaller = core::mem::replace(&mut state.ended, larger);
        drop(state);
        drop(smaller);
        true
    }

    /// The first that has ended, if any has.
    pub fn take(&self) -> Option<u64> {
        self.0.lock().ended.pop_front()
    }

    /// That one was not started, after all.
    pub fn forget(&self, number: u64) {
        self.0.lock().ended.retain(|&ended| ended != number);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().ended.is_empty()
    }

    /// Has `waiter` readied when one ends. False if one has.
    pub fn enlist(&self, waiter: GHandle) -> bool {
        let mut state = self.0.lock();
        let waits = state.ended.is_empty();
        if waits {
            state.waiter = Some(waiter);
        }
        waits
    }

    pub fn withdraw(&self) {
        self.0.lock().waiter = None;
    }
}

/// A closure that is run by a G of a set, and its number there.
pub struct InSet<F> {
    pub f: Caught<F>,
    pub set: Arc<EndedGs>,
    pub number: u64,
}

/// Says that the G of that number has ended, when it is dropped.
pub struct Ticket {
    set: Arc<EndedGs>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let irqs = irq::disable();
        let mut state = self.set.0.lock();
        state.ended.push_back(self.number); // there is room
        let waiter = state.waiter.take();
        drop(state);
        match waiter {
            Some(waiter) => ready_from(irqs, waiter),
            None => irq::restore(irqs),
        }
    }
}

impl<T, F> Job for InSet<F>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    type Outcome = Result<T, JoinError>;
    type Ticket = Ticket;

    fn ticket(&self) -> Ticket {
        Ticket { set: self.set.clone(), number: self.number }
    }

    fn run(self) -> Self::Outcome {
        self.f.run()
    }

    fn failed(why: JoinError, _: &Ticket) -> Self::Outcome {
        Err(why)
    }

    fn discard(outcome: Self::Outcome) {
        Caught::<F>::discard(outcome);
    }
}
