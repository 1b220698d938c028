//! The poller (Go: netpoll): readies the G that waits for a ready device.
//!
//! [`PollDesc`] connects the two. A driver has one for each thing that can be waited for (a port, a
//! request); its interrupt handler calls [`PollDesc::ready`], its callers wait in
//! [`PollDesc::wait`]. The driver defines what "ready" means.
//!
//! # The states of a descriptor
//!
//! ```text
//!                 (1) ready                  (2) wait: Ok
//!        ┌───────┐──────────────▶┌───────┐──────────────▶ Idle
//!        │ Idle  │               │ Ready │
//!        └─┬───▲─┘               └─┬───▲─┘
//!          │   │                   └───┘ (1) ready: one edge is kept, not two
//! (3) wait │   │ (4) deadline: TimedOut
//!        ┌─▼───┴───┐  (5) ready  ┌───────┐  (6) it runs: Ok
//!        │ Waiting ├────────────▶│ Woken ├──────────────▶ Idle
//!        └─────────┘             └─▲───┬─┘
//!                                  └───┘ (5) ready: it has not looked yet
//! ```
//!
//! [`PollDesc::close`] readies the waiter, and from then on every wait ends with `Closed`. A second
//! G that comes in `Waiting` or `Woken` gets `Busy`: an edge has one taker.
//!
//! An edge means "check again". The driver makes its data visible first and calls `ready` then; the
//! G checks when `wait` has returned, and sees the data of all edges until then. So one bit is
//! enough to remember, and none is lost:
//!
//! - before the wait: (1), and the wait returns at once by (2);
//! - while the G is about to park: the handle is stored under the lock, after `begin_park`, so (5)
//!   finds it, and `park` returns at once;
//! - together with the deadline: both take the same lock. If the edge was first, the state is
//!   `Woken` and the outcome is `Ok`, late as it is; if the deadline was, the state is `Idle` again
//!   and (1) keeps the edge for the next wait.
//!
//! # No wake-up is left over
//!
//! `ready` readies the G *before it releases the lock*, and no G leaves a wait without having taken
//! the lock. So when `wait` has returned, no wake-up of its descriptor is still under way, which
//! would end a later wait of the same G early, in a channel, say. (`timer` does the same, for the
//! same reason; readying is a change of a word and a push to an inbox, neither of which waits.) An
//! unrelated wake-up is recognized: the state is still `Waiting`, and the G continues to wait.
//!
//! # What differs from Go
//!
//! Go's `pollDesc` has the same four states in a word, changed without a lock. Here a lock of a few
//! instructions guards them, because the argument above is then a short one. What is left out:
//!
//! - **Two directions**: Go's has one word for readers and one for writers. Here a thing that can
//!   be waited for in two ways has two descriptors.
//! - **Sequence numbers** (`rseq`, `wseq`): Go's deadline is a timer that fires into the
//!   descriptor, which may serve another file by then. Here a deadline is an argument of the wait;
//!   its timer is the G's own and ends with it.
//! - **`pdWait`**, the state of a G that is about to park: `begin_park` has one.
//! - **Polling** (`netpoll`): Go polls the operating system when a P has nothing to do, and sysmon
//!   polls if 10 ms went by without. Here the interrupt reports it.
//!
//! # Which context
//!
//! `ready` and `close` are for any context. In an interrupt, the end of the interrupt collects the
//! readied Gs ([`serve`] marks that there will be one); everywhere else the CPU interrupts itself,
//! so that the same happens as soon as interrupts are on. Only a G may `wait`, with interrupts on.
#![forbid(unsafe_code)]

use crate::arch::lock::IrqLock;
use crate::arch::{self, MAX_CPUS};
use crate::run::door::{self, GHandle, Reason, Wait};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

/// Why a wait ended without an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollError {
    /// The deadline came first.
    TimedOut,
    /// The descriptor was closed, before or meanwhile.
    Closed,
    /// Another G waits for it.
    Busy,
}

/// Connects a device's edges and the G that waits for them: one G and one remembered edge.
pub struct PollDesc {
    edge: IrqLock<Edge<GHandle>>,
}

impl PollDesc {
    /// Open, with no edge.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        PollDesc { edge: IrqLock::at(crate::arch::lock::Level::Poll, Edge::NEW) }
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        PollDesc { edge: IrqLock::new(Edge::NEW) }
    }

    /// The device is ready: the waiting G runs again, or the next wait returns at once (Go:
    /// netpollready). Any context.
    pub fn ready(&self) {
        // lab 7 begin: ready
        let mut edge = self.edge.lock();
        wake(edge.ready());
        // lab 7 end
    }

    /// Waits for the next edge, or takes the one that is remembered; until `deadline_ns` at most.
    ///
    /// # Errors
    /// The deadline, a close, or another G that waits there already. An edge that comes with the
    /// deadline is not lost: this wait is `Ok`, or the next one is.
    pub fn wait(&self, deadline_ns: Option<u64>) -> Result<(), PollError> {
        door::might_park();
        // lab 7 begin: wait
        let mut edge = self.edge.lock();
        if let Some(outcome) = edge.enter() {
            return outcome;
        }
        loop {
            // (3): stored after `begin_park`.
            edge.state = State::Waiting(door::begin_park(Wait::at(Reason::Poll, self)));
            drop(edge);
            let in_time = match deadline_ns {
                Some(deadline_ns) => door::park_until(deadline_ns),
                None => {
                    door::park();
                    true
                }
            };
            edge = self.edge.lock();
            if let Some(outcome) = edge.leave(in_time) {
                return outcome;
            }
            if door::is_killed() {
                let _ = edge.leave(false); // as at the deadline
                drop(edge);
                door::die();
            }
        }
        // lab 7 end
    }

    /// Ends all waits, also future ones, with [`PollError::Closed`] (Go: pollUnblock).
    pub fn close(&self) {
        // lab 7 begin: close
        let mut edge = self.edge.lock();
        wake(edge.close());
        // lab 7 end
    }

    /// Resets it for the next use: open, with no edge (Go: pollReset).
    ///
    /// # Errors
    /// [`PollError::Busy`] if a G is in a wait; nothing has changed then.
    pub fn reset(&self) -> Result<(), PollError> {
        self.edge.lock().reset()
    }
}

impl Default for PollDesc {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs `handler` in an interrupt at whose end the caller collects the readied Gs
/// (`run::on_device`, `run::on_tick`).
pub(crate) fn serve(handler: impl FnOnce()) {
    let is_served = &SERVED[arch::cpu_index()];
    is_served.store(true, Relaxed);
    handler();
    is_served.store(false, Relaxed);
}

/// Whether this CPU is in [`serve`]. Each CPU's own, with interrupts off: so no ordering is needed.
static SERVED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Readies the waiter. Under the descriptor's lock (see "No wake-up is left over"), hence with
/// interrupts off, hence on one CPU.
fn wake(waiter: Option<GHandle>) {
    let Some(g) = waiter else { return };
    door::ready_from_interrupt(g);
    if !SERVED[arch::cpu_index()].load(Relaxed) {
        door::interrupt_this_cpu();
    }
}

/// See the drawing at the top of this file. `H` names a G.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State<H> {
    /// No G waits, and no edge is remembered.
    Idle,
    /// An edge is remembered.
    Ready,
    /// A G waits, or is about to.
    Waiting(H),
    /// Its edge has come, and it has not left its wait yet.
    Woken,
}

/// A descriptor as a pure state machine: everything but locking and parking.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge<H> {
    state: State<H>,
    is_closed: bool,
}

impl<H> Edge<H> {
    const NEW: Self = Edge { state: State::Idle, is_closed: false };

    // lab 7 begin: edge
    /// (1), (5): an edge. Returns the G to be readied.
    #[must_use]
    fn ready(&mut self) -> Option<H> {
        if self.is_closed {
            return None; // no wait will take it
        }
        let (after, waiter) = match core::mem::replace(&mut self.state, State::Idle) {
            State::Idle | State::Ready => (State::Ready, None),
            State::Waiting(g) => (State::Woken, Some(g)),
            State::Woken => (State::Woken, None),
        };
        self.state = after;
        waiter
    }

    /// (2): a G comes to wait. None: it must wait, and stores its handle next.
    #[must_use]
    fn enter(&mut self) -> Option<Result<(), PollError>> {
        if self.is_closed {
            return Some(Err(PollError::Closed));
        }
        match self.state {
            State::Idle => None,
            State::Ready => {
                self.state = State::Idle;
                Some(Ok(()))
            }
            State::Waiting(_) | State::Woken => Some(Err(PollError::Busy)),
        }
    }

    /// (4), (6): the G runs again, because it was readied `in_time` or because of the deadline.
    /// None: the wake-up was unrelated, and it continues to wait.
    #[must_use]
    fn leave(&mut self, in_time: bool) -> Option<Result<(), PollError>> {
        let outcome = match self.state {
            _ if self.is_closed => Err(PollError::Closed),
            State::Woken => Ok(()),
            _ if in_time => return None,
            _ => Err(PollError::TimedOut),
        };
        self.state = State::Idle;
        Some(outcome)
    }

    /// Returns the G to be readied, which sees the close in `leave`.
    #[must_use]
    fn close(&mut self) -> Option<H> {
        let waiter = self.ready();
        self.is_closed = true;
        waiter
    }

    fn reset(&mut self) -> Result<(), PollError> {
        if matches!(self.state, State::Waiting(_) | State::Woken) {
            return Err(PollError::Busy);
        }
        *self = Self::NEW;
        Ok(())
    }
    // lab 7 end
}

// By its path, because `tests/loom_poller.rs` compiles this file from elsewhere.
#[cfg(all(test, not(loom)))]
#[path = "poller/tests.rs"]
mod tests;
