//! The poller (Go: netpoll): readies the G that waits for a ready device.
//!
//! Holds [`PollDesc`], which connects the two. A driver has one for each thing that can be waited
//! for (a port, a request); its interrupt handler calls [`PollDesc::ready`], its callers wait in
//! [`PollDesc::wait`]. The driver defines what "ready" means; no register is touched here. The
//! waiting itself is [`mod@crate::run::door`]'s, which calls back no code.
//!
//! # One direction of a descriptor
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
//! [`PollDesc::close`] readies the waiters, and from then on every wait ends with `Closed`. A
//! second G that comes to a direction in `Waiting` or `Woken` gets `Busy`: an edge has one taker.
//!
//! An edge means "check again", and no more. The driver makes its data visible first and calls
//! `ready` then; the G checks when `wait` has returned. All edges between two checks are one: the
//! check sees the data of all of them. So one bit is enough to remember, and none is lost:
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
//! Go's `pollDesc` has the same four states in a word for each direction, changed without a lock.
//! Here a lock of a few instructions guards both, because the argument above is then a short one.
//! What is left out:
//!
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
use crate::run::door;
use crate::run::door::{GHandle, Reason, Wait};
use core::fmt;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

/// The two directions of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data has come, or a request is done.
    Read,
    /// There is room for more.
    Write,
}

/// Why a wait ended without an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollError {
    /// The deadline came first.
    TimedOut,
    /// The descriptor was closed, before or meanwhile.
    Closed,
    /// Another G waits for the same direction.
    Busy,
}

/// Connects a device's edges and the G that waits for them: one G and one remembered edge for each
/// direction.
pub struct PollDesc {
    sides: IrqLock<Sides<GHandle>>,
}

impl PollDesc {
    /// Open, with no edge.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        let level = crate::arch::lock::Level::Poll;
        PollDesc { sides: IrqLock::at(level, Sides::NEW) }
    }

    /// The same, for models, which register locks when they are made.
    #[cfg(loom)]
    pub fn new() -> Self {
        PollDesc { sides: IrqLock::new(Sides::NEW) }
    }

    /// The device is ready: the waiting G runs again, or the next wait returns at once (Go:
    /// netpollready). Any context.
    pub fn ready(&self, direction: Direction) {
        let mut sides = self.sides.lock();
        wake([sides.ready(direction), None]);
    }

    /// Waits for the next edge, or takes the one that is remembered; until
    /// `deadline_ns` at most, by the clock of [`crate::run::time::Instant`].
    ///
    /// # Errors
    /// The deadline, a close, or another G that waits there already. An edge that comes with the
    /// deadline is not lost: this wait is `Ok`, or the next one is.
    pub fn wait(&self, direction: Direction, deadline_ns: Option<u64>) -> Result<(), PollError> {
        door::might_park();
        let mut sides = self.sides.lock();
        if let Some(outcome) = sides.enter(direction) {
            return outcome;
        }
        loop {
            sides.wait_as(direction, door::begin_park(Wait::at(Reason::Poll, self)));
            drop(sides);
            let in_time = match deadline_ns {
                Some(deadline_ns) => door::park_until(deadline_ns),
                None => {
                    door::park();
                    true
                }
            };
            sides = self.sides.lock();
            if let Some(outcome) = sides.leave(direction, in_time) {
                return outcome;
            }
            if door::is_killed() {
                let _ = sides.leave(direction, false); // as at the deadline
                drop(sides);
                door::die();
            }
        }
    }

    /// Ends all waits, also future ones, with [`PollError::Closed`] (Go: pollUnblock).
    pub fn close(&self) {
        let mut sides = self.sides.lock();
        wake(sides.close());
    }

    /// Resets it for the next use: open, with no edge (Go: pollReset).
    ///
    /// # Errors
    /// [`PollError::Busy`] if a G is in a wait; nothing has changed then.
    pub fn reset(&self) -> Result<(), PollError> {
        self.sides.lock().reset()
    }
}

impl Default for PollDesc {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PollDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PollDesc")
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PollError::TimedOut => "the device was not ready in time",
            PollError::Closed => "the device was closed",
            PollError::Busy => "another G waits for the same",
        })
    }
}

impl core::error::Error for PollError {}

/// Runs `handler`, which is a part of an interrupt at whose end the caller collects the readied Gs
/// (`run::on_device`, `run::on_tick`). Interrupts are off.
pub(crate) fn serve(handler: impl FnOnce()) {
    let is_served = &SERVED[arch::cpu_index()];
    is_served.store(true, Relaxed);
    handler();
    is_served.store(false, Relaxed);
}

/// Whether this CPU is in [`serve`]. Each CPU's own, with interrupts off: so no ordering is needed.
static SERVED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Readies the waiters. Under the descriptor's lock (see "No wake-up is left over"), hence with
/// interrupts off, hence on one CPU.
fn wake(waiters: [Option<GHandle>; 2]) {
    let mut readied = false;
    for g in waiters.into_iter().flatten() {
        door::ready_from_interrupt(g);
        readied = true;
    }
    if readied && !SERVED[arch::cpu_index()].load(Relaxed) {
        door::interrupt_this_cpu();
    }
}

/// One direction: see the drawing at the top of this file. `H` names a G.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side<H> {
    /// No G waits, and no edge is remembered.
    Idle,
    /// An edge is remembered.
    Ready,
    /// A G waits, or is about to.
    Waiting(H),
    /// Its edge has come, and it has not left its wait yet.
    Woken,
}

/// Both directions, as a pure state machine: everything but locking and parking.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sides<H> {
    read: Side<H>,
    write: Side<H>,
    is_closed: bool,
}

impl<H> Sides<H> {
    const NEW: Self = Sides { read: Side::Idle, write: Side::Idle, is_closed: false };

    fn side(&mut self, direction: Direction) -> &mut Side<H> {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }

    /// (1), (5): an edge. Returns the G to be readied.
    #[must_use]
    fn ready(&mut self, direction: Direction) -> Option<H> {
        if self.is_closed {
            return None; // no wait will take it
        }
        let side = self.side(direction);
        let (after, waiter) = match core::mem::replace(side, Side::Idle) {
            Side::Idle | Side::Ready => (Side::Ready, None),
            Side::Waiting(g) => (Side::Woken, Some(g)),
            Side::Woken => (Side::Woken, None),
        };
        *side = after;
        waiter
    }

    /// (2): a G comes to wait. None: it must wait, and calls `wait_as` next.
    #[must_use]
    fn enter(&mut self, direction: Direction) -> Option<Result<(), PollError>> {
        if self.is_closed {
            return Some(Err(PollError::Closed));
        }
        let side = self.side(direction);
        match side {
            Side::Idle => None,
            Side::Ready => {
                *side = Side::Idle;
                Some(Ok(()))
            }
            Side::Waiting(_) | Side::Woken => Some(Err(PollError::Busy)),
        }
    }

    /// (3): stores the handle. The G that has entered only, after `begin_park`.
    fn wait_as(&mut self, direction: Direction, g: H) {
        *self.side(direction) = Side::Waiting(g);
    }

    /// (4), (6): the G runs again, because it was readied `in_time` or because of the deadline.
    /// None: the wake-up was unrelated, and it continues to wait.
    #[must_use]
    fn leave(&mut self, direction: Direction, in_time: bool) -> Option<Result<(), PollError>> {
        let is_closed = self.is_closed;
        let side = self.side(direction);
        let outcome = match side {
            _ if is_closed => Err(PollError::Closed),
            Side::Woken => Ok(()),
            _ if in_time => return None,
            _ => Err(PollError::TimedOut),
        };
        *side = Side::Idle;
        Some(outcome)
    }

    /// Returns the Gs to be readied, which see the close in `leave`.
    #[must_use]
    fn close(&mut self) -> [Option<H>; 2] {
        let waiters = [self.ready(Direction::Read), self.ready(Direction::Write)];
        self.is_closed = true;
        waiters
    }

    fn reset(&mut self) -> Result<(), PollError> {
        let is_free = |side: &Side<H>| matches!(side, Side::Idle | Side::Ready);
        if !is_free(&self.read) || !is_free(&self.write) {
            return Err(PollError::Busy);
        }
        *self = Self::NEW;
        Ok(())
    }
}

// By its path, because `tests/loom_poller.rs` compiles this file from elsewhere.
#[cfg(all(test, not(loom)))]
#[path = "poller/tests.rs"]
mod tests;
