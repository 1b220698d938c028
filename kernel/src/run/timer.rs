//! Sleeping Gs, by deadline: one heap for each CPU, and no timer thread.
//!
//! A G that waits until a time puts itself into the heap of the CPU it runs on ([`Timers::arm`]).
//! That CPU's hardware timer is set for the first deadline of the heap or the end of the slice,
//! whichever is earlier, and its interrupt removes the entries that are due and readies the G of
//! each ([`Timers::on_tick`], [`Timed::due`]). A G that was readied earlier for another reason
//! removes itself ([`Timers::cancel`]). The other entries are the answers of simulated devices.
//!
//! `preempt` owns the hardware timer. The public interface is `time`.
//!
//! # Where the node is
//!
//! In the G's own record, which is never freed, so that nothing is allocated for a timer, a node
//! can be dereferenced at any time, and safe code is enough. A node on the stack of the G that
//! waits would save 72 bytes for each G that never sleeps; but then every way out of the wait (a
//! panic and a kill too) must remove the node, or a CPU reads a stack that another G has now. One
//! node is enough: a G waits in one place, and of several deadlines the earliest counts.
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
//! interrupt it is a state change and a push to a queue of this CPU, neither of which waits.)
//!
//! `on_tick`, when it has readied the G, stores [`NOWHERE`] as the node's home: a `cancel` that
//! reads that need not take the lock, as nothing of the timer is still to come.
//!
//! # The first deadline, without the lock
//!
//! Each change of a heap stores its first deadline beside the lock, before the lock is released.
//! Only the heap's own CPU makes a deadline *earlier*, so it never reads one that is too late; one
//! that is too early, because another CPU cancels, costs an interrupt that finds no G due.
//!
//! # Lock order
//!
//! A CPU holds at most one heap's lock, and takes no other under it except those needed to ready a
//! G ([`Level::Timers`]). Interrupts are off from before until after.
#![forbid(unsafe_code)]

mod heap;

pub use heap::{Heap, Node, Timed};

use super::preempt::NEVER;
use super::task::GHandle;
use crate::arch::MAX_CPUS;
use crate::arch::lock::{IrqLock, Level};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Maximum number of entries that one interrupt calls. If more are due, their deadline is past, so
/// the timer that is set for it fires at once, and other interrupts are served in between.
pub const FIRES_PER_TICK: usize = 64;

/// The home of a node that has left its heap because its time has come.
const NOWHERE: u32 = u32::MAX;

pub struct Timers {
    cpus: [PerCpu; MAX_CPUS],
}

/// Zero when new, so that the static is in .bss. Two cache lines: CPUs fetch lines in pairs.
#[repr(align(128))]
struct PerCpu {
    heap: IrqLock<Heap>,
    /// The first deadline, with all bits inverted: 0 if none will come. Written under the lock,
    /// read by any CPU.
    first_ns: AtomicU64,
}

impl Timers {
    #[must_use]
    pub const fn new() -> Self {
        Timers { cpus: [const { PerCpu::new() }; MAX_CPUS] }
    }

    /// Arranges that `entry` is called on `cpu`, this one, at `deadline_ns`. True if it is the
    /// first here now: then the caller sets the hardware, with interrupts off since before. A
    /// deadline that is past is fine, and so is [`NEVER`]. A G calls it (`preempt::set_timer`)
    /// after `begin_park` and before it parks, and owes a [`Timers::cancel`] when the wait is over.
    ///
    /// # Panics
    /// If it is armed already.
    #[must_use = "the hardware must be set for it"]
    pub fn arm(&self, cpu: usize, entry: &'static dyn Timed, deadline_ns: u64) -> bool {
        let node = entry.timer();
        node.record.call_once(|| entry);
        let mut heap = self.cpus[cpu].heap.lock();
        let is_first = heap.insert(node, deadline_ns);
        // Relaxed: read in `cancel`, by the same G. An earlier NOWHERE was stored before this: the
        // last wait has ended with a `cancel`, which has read it or has taken the lock after it.
        node.home.store(cpu as u32, Relaxed);
        self.cpus[cpu].note_first(&heap);
        is_first && deadline_ns != NEVER
    }

    /// The wait of `entry` is over. True if its time had not come: it was readied for another
    /// reason. Any CPU, not in an interrupt.
    #[inline]
    pub fn cancel(&self, entry: &'static impl Timed) -> bool {
        let node = entry.timer();
        let home = node.home.load(Acquire); // pairs with `on_tick`
        home != NOWHERE && self.remove(home, node)
    }

    fn remove(&self, home: u32, node: &'static Node) -> bool {
        let cpu = &self.cpus[home as usize];
        let mut heap = cpu.heap.lock();
        let was_in = heap.remove(node);
        if was_in {
            cpu.note_first(&heap);
        }
        was_in
    }

    /// The timer of `cpu`, this one, has fired: removes the entries that are due at `now_ns`, in
    /// order, but at most [`FIRES_PER_TICK`], calls each, and `ready` with its G. Returns the first
    /// deadline that is left, for which the caller sets the hardware.
    pub fn on_tick(&self, cpu: usize, now_ns: u64, mut ready: impl FnMut(GHandle)) -> u64 {
        let cpu = &self.cpus[cpu];
        let mut first_ns = NEVER;
        for _ in 0..FIRES_PER_TICK {
            // One lock per entry, so that a `cancel` does not wait for all of them.
            let mut heap = cpu.heap.lock_in_handler();
            let due = heap.pop_due(now_ns);
            first_ns = cpu.note_first(&heap);
            let Some(due) = due else { break };
            // Before the lock is free: see "Exactly one reason".
            if let Some(g) = due.record.get().expect("armed").due(now_ns) {
                ready(g);
            }
            due.home.store(NOWHERE, Release);
            if first_ns > now_ns {
                break;
            }
        }
        first_ns
    }

    /// The first deadline of `cpu`, [`NEVER`] if none will come. On that CPU itself it is never
    /// later than it should be; other CPUs may read one that is a moment old. Any context.
    #[inline]
    #[must_use]
    pub fn first_ns(&self, cpu: usize) -> u64 {
        !self.cpus[cpu].first_ns.load(Relaxed)
    }

    /// The number of entries of `cpu`, for statistics.
    #[must_use]
    pub fn waiting(&self, cpu: usize) -> usize {
        self.cpus[cpu].heap.lock().len()
    }
}

impl PerCpu {
    const fn new() -> Self {
        let heap = IrqLock::at(Level::Timers, Heap::new());
        PerCpu { heap, first_ns: AtomicU64::new(0) }
    }

    /// Under the lock. Gives what it has noted.
    fn note_first(&self, heap: &Heap) -> u64 {
        let first_ns = heap.first_deadline().unwrap_or(NEVER);
        self.first_ns.store(!first_ns, Relaxed);
        first_ns
    }
}

#[cfg(test)]
mod tests;
