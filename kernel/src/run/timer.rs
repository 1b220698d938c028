//! Sleeping Gs, by deadline: one heap for each CPU, and no timer thread.
//!
//! A G that waits until a time puts itself into the heap of the CPU it runs on ([`Timers::arm`]).
//! That CPU's hardware timer is set for the first deadline of the heap or the end of the slice,
//! whichever is earlier, and its interrupt removes the Gs that are due and readies them
//! ([`Timers::on_tick`]). A G that was readied earlier for another reason removes itself
//! ([`Timers::cancel`]).
//!
//! `interrupt` calls; it owns the hardware timer and knows how to ready a G. The order of deadlines
//! is [`Heap`]'s. The public interface is `time`.
//!
//! # Where the node is
//!
//! In the G's own record, which is never freed, so that nothing is allocated for a timer, a node
//! can be dereferenced at any time, and safe code is enough. A node on the stack of the G that
//! waits would save 48 bytes for each G that never sleeps; but then every way out of the wait (also
//! a panic, also a kill) must be shown to remove the node, or a CPU walks through a stack that
//! belongs to another G by now. One node per G is enough: a G waits in one place, and of several
//! deadlines the earliest counts.
//!
//! # Exactly one reason
//!
//! A wait until a time ends because the G was readied or because the time came. Both may happen at
//! once; the lock of the heap decides which of the two it was, when the node leaves it:
//!
//! - removed by `on_tick`: the time came. `on_tick` readies the G *before it releases the lock*;
//! - removed by `cancel`, which the G calls when it runs again: it was readied.
//!
//! So when `cancel` has returned, no `ready` of that timer is still to come: not in a later wait of
//! the G, and not in its next life. (Readying under a lock is fine here and nowhere else: from an
//! interrupt it is a state change and a push to an inbox, neither of which waits.)
//!
//! # The first deadline, without the lock
//!
//! Each change of a heap stores its first deadline beside the lock, before the lock is released.
//! Only the heap's own CPU makes a deadline *earlier*, so it never reads one that is too late; one
//! that is too early, because another CPU cancels at this moment, or has cancelled since the
//! hardware was set, costs an interrupt that finds no G due.
//!
//! # Lock order
//!
//! A CPU holds at most one heap's lock, and takes no other under it except those needed to ready a
//! G ([`Level::Timers`]). Interrupts are off from before until after.
#![forbid(unsafe_code)]

mod heap;

pub use heap::{Heap, Node, Timed};

use crate::arch::MAX_CPUS;
use crate::arch::lock::{IrqLock, Level};
use crate::mem::percpu::Here;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// Maximum number of Gs that one interrupt readies. If more are due, their deadline is past, so the
/// timer that is set for it fires at once, and other interrupts are served in between.
pub const FIRES_PER_TICK: usize = 64;

/// The heaps of all CPUs, for a `static`.
pub struct Timers<T: 'static> {
    cpus: [PerCpu<T>; MAX_CPUS],
}

/// Zero when new, so that the static is in .bss. Two cache lines: CPUs fetch lines in pairs.
#[repr(align(128))]
struct PerCpu<T: 'static> {
    heap: IrqLock<Heap<T>>,
    /// The first deadline, 0 if there is none that will come. Written under the lock, read by any
    /// CPU.
    first_ns: AtomicU64,
}

impl<T: Timed> Timers<T> {
    /// Without sleepers.
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

    /// Arranges that `entry` is readied on this CPU at `deadline_ns`. True if it is the first here
    /// now: then the caller sets the hardware, before it drops `here`. A deadline that is past is
    /// fine, and so is [`NEVER`].
    ///
    /// Caller: the G that will wait, after `begin_park` and before it parks; or another holder of
    /// the G. It owes a [`Timers::cancel`] when the wait is over.
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

    /// The wait of `entry` is over. True if its time had not come: it was readied for another
    /// reason.
    ///
    /// Caller: the caller of [`Timers::arm`], on any CPU, not in an interrupt.
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

    /// Removes the entries of this CPU that are due at `now_ns`, in order, but at most
    /// [`FIRES_PER_TICK`], and calls `ready` for each. Afterwards the caller sets the hardware for
    /// [`Timers::next_deadline`]. Returns their number.
    ///
    /// Caller: the handler of the CPU's timer interrupt; or its M, if there is no such interrupt.
    /// `ready` runs under the heap's lock: it must not wait, allocate, or call this file.
    pub fn on_tick(&self, here: &Here, now_ns: u64, mut ready: impl FnMut(&'static T)) -> usize {
        for fired in 0..FIRES_PER_TICK {
            // One lock per entry, so that a `cancel` does not wait for all of them.
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

    /// The first deadline of `cpu`, if one will come. On that CPU itself it is never later than it
    /// should be; other CPUs may read one that is a moment old.
    ///
    /// Caller: any CPU, in any context. One load.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self, cpu: usize) -> Option<u64> {
        match self.cpus[cpu].first_ns.load(Relaxed) {
            0 => None,
            first_ns => Some(first_ns),
        }
    }

    /// The number of sleepers on `cpu`, for statistics.
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
