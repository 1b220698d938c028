//! A snapshot of all Gs, queues and counters at one moment, for `invariant`.
//!
//! Only collects. All CPUs stand still meanwhile, each in a G that has interrupts off, so nothing
//! moves and no CPU is in the middle of an operation. It does not allocate.

use crate::arch;
use crate::arch::paging::{self, Flags};
use crate::fail::abandon;
use crate::mem::stack::{self, slot};
use crate::run::roster::ALL;
use crate::run::task::Task;
use crate::run::{CPUS, SCHED, m, running_on};
use alloc::vec::Vec;
use sched::{G, Place, Status};

/// A G that was found in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Its number.
    pub g: u64,
    /// The queue.
    pub place: Place,
    /// Its status word.
    pub status: Status,
}

/// The snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// CPUs that stood still.
    pub cpus: usize,
    /// Gs that were started.
    pub created: u64,
    /// Gs that have ended.
    pub ended: u64,
    /// Gs whose status is runnable.
    pub runnable: usize,
    /// Gs whose status is running.
    pub running: usize,
    /// Gs between running and parked.
    pub parking: usize,
    /// Gs that are parked.
    pub parked: usize,
    /// Ps that are marked as idle.
    pub idle: usize,
    /// Ps that are counted as idle: `wake_p` uses this count.
    pub counted_idle: usize,
    /// Ps that are counted as looking for work.
    pub spinning: usize,
    /// Ps whose own flag says that they are idle, or spin.
    pub without_g: usize,
    /// The number of the G that each CPU runs.
    pub on_cpus: Vec<u64>,
    /// Stacks without an owner: neither of a G that lives or was abandoned, nor of an M, nor with a
    /// dead G that is to be used again, nor in the pool. While Gs are being started there may be
    /// some; otherwise none.
    pub adrift: usize,
    /// A G off all CPUs with its stack pointer outside of its stack.
    pub astray: Option<u64>,
    /// A G off all CPUs whose saved return address is no code.
    pub overwritten: Option<u64>,
    /// A G whose stack was overwritten at the top: the canary has changed.
    pub overrun: Option<u64>,
    /// The same for an M.
    pub m_overrun: Option<usize>,
    /// A G whose stack's guard page is mapped.
    pub unguarded: Option<u64>,
    /// The Gs that are in queues.
    pub queued: Vec<Queued>,
    /// There was no memory for all of them.
    pub is_cut: bool,
}

impl Census {
    /// Allocates room for as many Gs as there are now, and more that may come.
    #[must_use]
    pub fn with_memory() -> Census {
        let room = 2 * ALL.iter().count() + 1024;
        Census {
            on_cpus: Vec::with_capacity(arch::num_cpus()),
            queued: Vec::with_capacity(room),
            ..Census::default()
        }
    }

    /// Takes the snapshot. All CPUs stand still, as the file's head says.
    pub(crate) fn take(&mut self) {
        self.cpus = arch::num_cpus();
        let all = || CPUS[..arch::num_cpus()].iter();
        self.created = all().map(|cpu| cpu.counters.created.get()).sum();
        self.ended = all().map(|cpu| cpu.counters.ended.get()).sum();
        self.spinning = SCHED.counts().spinning;
        self.counted_idle = SCHED.counted_idle();
        self.idle = (0..self.cpus).filter(|&cpu| SCHED.is_idle(cpu)).count();
        self.on_cpus.clear();
        self.on_cpus.extend((0..self.cpus).filter_map(running_on).map(G::id));
        ALL.iter().for_each(|g| self.count(g));
        self.m_overrun = m::overrun();
        self.queued.clear();
        SCHED.census(&mut |g, place| self.find(g, place));
        let mut kept = SCHED.stored_dead();
        for cpu in all() {
            // SAFETY: every CPU has its P, and stands still with interrupts off in code that does
            // not touch it; no other CPU touches it.
            let p = unsafe { &*cpu.p.get() };
            // SAFETY: a CPU that runs Gs has been through `init_cpu`.
            let p = unsafe { p.assume_init_ref() };
            p.census(&mut |g, place| self.find(g, place));
            self.without_g += usize::from(p.idles() || p.spins());
            kept += p.kept_dead();
        }
        let alive = self.runnable + self.running + self.parking + self.parked;
        let had = alive + abandon::abandoned() + m::count().0 as usize;
        self.adrift = stack::POOL.in_use().saturating_sub(had + kept);
    }

    fn count(&mut self, g: &'static G<Task>) {
        match g.status() {
            Status::Dead => {}
            Status::Runnable => self.runnable += 1,
            Status::Running => self.running += 1,
            Status::Parking | Status::Woken => self.parking += 1,
            Status::Parked => self.parked += 1,
        }
        self.look_at_stack(g);
    }

    /// Checks that neither the top of the G's stack nor its saved context was overwritten, and that
    /// the guard page below is unmapped.
    fn look_at_stack(&mut self, g: &'static G<Task>) {
        // A G is at the top of its stack. In a call it is on that of its M.
        let (top, sp) = (core::ptr::from_ref(g).addr(), g.kernel.sp.get());
        let slot = slot::locate(top as u64).map(|(slot, _)| slot);
        if slot.is_none_or(|slot| paging::translate(slot.base()).is_some()) {
            self.unguarded = Some(g.id());
        }
        if slot.is_some_and(|slot| !stack::is_whole(slot)) {
            self.overrun = Some(g.id());
        }
        let is_at_rest = matches!(g.status(), Status::Runnable | Status::Parked);
        if !is_at_rest {
            return;
        }
        let is_in = |slot: slot::Slot| (slot.base()..top as u64).contains(&(sp as u64));
        if g.kernel.m.get().is_none() && !slot.is_some_and(is_in) {
            self.astray = Some(g.id());
        } else if !goes_on_with_code(sp) {
            self.overwritten = Some(g.id());
        }
    }

    fn find(&mut self, g: &'static G<Task>, place: Place) {
        if self.queued.len() < self.queued.capacity() {
            self.queued.push(Queued { g: g.id(), place, status: g.status() });
        } else {
            self.is_cut = true;
        }
    }
}

/// Whether the context saved at `sp` continues at an instruction.
fn goes_on_with_code(sp: usize) -> bool {
    let (at, _) = arch::saved_at(sp);
    if paging::translate(at as u64).is_none() {
        return false;
    }
    // SAFETY: mapped, and of a stack at rest: no CPU writes to it while all stand still.
    let address = unsafe { (at as *const usize).read() };
    paging::translate(address as u64).is_some_and(|found| found.flags == Flags::CODE)
}
