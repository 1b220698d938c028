//! Sleeping Gs, by deadline: one heap for each CPU, and no timer thread.
//!
//! A G that waits until a time puts itself into the heap of the CPU it runs on
//! ([`Timers::arm`]). That CPU's hardware timer is set for the first deadline of
//! the heap or the end of the slice, whichever is earlier, and its interrupt
//! takes out who is due and readies them ([`Timers::on_tick`]). A G that was
//! readied otherwise before takes itself out ([`Timers::cancel`]).
//!
//! `schedule` calls; it owns the hardware timer and knows what readying means.
//! The order of deadlines is [`Heap`]'s. What a program sees is `time`.
//!
//! # Where the node is
//!
//! In the G's own record, which is never freed, so that nothing is allocated for
//! a timer, a node can be followed at any time, and safe code will do. A node on
//! the stack of the G that waits would save 48 bytes for each G that never
//! sleeps; but then every way out of the wait (also a panic, also a G that is
//! killed) must be shown to take the node out, or a CPU walks through a stack
//! that is somebody else's by now. One node a G is enough: a G waits in one
//! place, and of several deadlines the earliest counts.
//!
//! # Exactly one reason
//!
//! A wait until a time ends because somebody readied the G or because the time
//! came. Both may happen at once; which of the two it was is decided by the lock
//! of the heap, when the node leaves it:
//!
//! - taken out by `on_tick`: the time came. `on_tick` readies the G *before it
//!   lets go of the lock*;
//! - taken out by `cancel`, which the G calls when it runs again: it was readied.
//!
//! So when `cancel` has returned, no `ready` of that timer is still to come: not
//! in a later wait of the G, and not in its next life. (To ready under a lock is
//! fine here and nowhere else: from an interrupt it is a state change and a push
//! to an inbox, neither of which waits.)
//!
//! # The first deadline, without the lock
//!
//! Whoever changes a heap leaves its first deadline beside the lock, before
//! letting go of it. A deadline becomes *earlier* by the heap's own CPU alone,
//! which therefore never reads one that is too late; one that is too early, as
//! another CPU cancels at this moment, or has cancelled since the hardware was
//! set, costs an interrupt that finds nobody due.
//!
//! # Lock order
//!
//! A CPU holds at most one heap's lock, and takes no other under it but what it needs
//! to ready somebody ([`Level::Timers`]). Interrupts are off from before until after.
#![forbid(unsafe_code)]

mod heap;

pub use heap::{Heap, Node, Timed};

use crate::arch::MAX_CPUS;
use crate::lock::{IrqLock, Level};
use crate::mem::percpu::Here;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// How many one interrupt readies at most. If more are due, their deadline is
/// past, so the timer that is set for it fires at once, and other interrupts get
/// their turn in between.
pub const FIRES_PER_TICK: usize = 64;

/// The heaps of all CPUs, for a `static`.
pub struct Timers<T: 'static> {
    cpus: [PerCpu<T>; MAX_CPUS],
}

/// Zero when new, so that the static is in .bss. Two cache lines: CPUs fetch
/// lines in pairs.
#[repr(align(128))]
struct PerCpu<T: 'static> {
    heap: IrqLock<Heap<T>>,
    /// The first deadline, 0 if there is none that will come. Written under the
    /// lock, read by all.
    first_ns: AtomicU64,
}

impl<T: Timed> Timers<T> {
    /// Nobody sleeps.
    #[must_use]
    pub const fn new() -> Self {
        Timers {
            cpus: [const {
                PerCpu {
                    heap: IrqLock::at(Level::Timers, Heap::new()),
                    first_ns: AtomicU64::new(0),
                }
            }; MAX_CPUS],
        }
    }

    /// Lets `entry` be readied on this CPU when `deadline_ns` has come. True if
    /// it is the first here now: then the caller sets the hardware, before it
    /// lets go of `here`. A deadline that is past is fine, and so is [`NEVER`].
    ///
    /// Caller: the G that will wait, after `begin_park` and before it parks; or
    /// whoever else holds it. It owes a [`Timers::cancel`] when the wait is over.
    ///
    /// # Panics
    /// If it is armed already.
    #[must_use = "the hardware must be set for it"]
    pub fn arm(&self, here: &Here, entry: &'static T, deadline_ns: u64) -> bool {
        let cpu = &self.cpus[here.index()];
        let mut heap = cpu.heap.lock();
        let is_first = heap.insert(entry, deadline_ns);
        // Relaxed: read in `cancel`, by the same G.
        entry.timer().home.store(here.index() as u32, Relaxed);
        cpu.note_first(&heap);
        is_first && deadline_ns != NEVER
    }

    /// The wait of `entry` is over. True if its time had not come: it was
    /// readied by somebody else.
    ///
    /// Caller: who called [`Timers::arm`], on any CPU, not in an interrupt.
    pub fn cancel(&self, entry: &'static T) -> bool {
        let home = entry.timer().home.load(Relaxed) as usize;
        let cpu = &self.cpus[home];
        let mut heap = cpu.heap.lock();
        let was_in = heap.remove(entry);
        if was_in {
            cpu.note_first(&heap);
        }
        was_in
    }

    /// Takes out those of this CPU that are due at `now_ns`, in order, but at
    /// most [`FIRES_PER_TICK`], and calls `ready` for each. Afterwards the caller
    /// sets the hardware for [`Timers::next_deadline`]. Gives their number.
    ///
    /// Caller: the handler of the CPU's timer interrupt; or its M, if it finds
    /// that there is no such interrupt. `ready` runs under the heap's lock: it
    /// must not wait, allocate, or call this file.
    pub fn on_tick(&self, here: &Here, now_ns: u64, mut ready: impl FnMut(&'static T)) -> usize {
        for fired in 0..FIRES_PER_TICK {
            // A lock for each, so that nobody who cancels waits for all of them.
            if self.next_deadline(here.index()).is_none_or(|first_ns| first_ns > now_ns) {
                return fired;
            }
            let cpu = &self.cpus[here.index()];
            let mut heap = cpu.heap.lock();
            let Some(due) = heap.pop_due(now_ns) else { return fired };
            cpu.note_first(&heap);
            ready(due); // before the lock is free: see "Exactly one reason"
        }
        FIRES_PER_TICK
    }

    /// The first deadline of `cpu`, if one will come. To that CPU itself it is
    /// never later than it should be; others may find it a moment old.
    ///
    /// Caller: anybody, in any context. A load.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self, cpu: usize) -> Option<u64> {
        match self.cpus[cpu].first_ns.load(Relaxed) {
            0 => None,
            first_ns => Some(first_ns),
        }
    }

    /// How many wait on `cpu`, for statistics.
    #[must_use]
    pub fn waiting(&self, cpu: usize) -> usize {
        self.cpus[cpu].heap.lock().len()
    }
}

impl<T: Timed> PerCpu<T> {
    /// Under the lock. A deadline of 0 is as past as one of 1.
    fn note_first(&self, heap: &Heap<T>) {
        let first_ns = match heap.first_deadline() {
            None | Some(NEVER) => 0,
            Some(first_ns) => first_ns.max(1),
        };
        self.first_ns.store(first_ns, Relaxed);
    }
}

#[cfg(test)]
mod tests;
