//! What a waiting G waits for: the holder of a lock, or the G that it joins.
//!
//! For snapshots, and for `fail::deadlock::cycle`, which walks from a G to the one that it waits
//! for ([`WaitingG`]).
//!
//! # Reading the word of a lock that another G may free
//!
//! A G that waits records the address of the lock. The lock there lives as long as the G waits,
//! because that G has a reference to it; but the G may be woken at any time, and then the lock may
//! be freed during the read. So the word is read as `calls` reads stacks: looked up in the page
//! tables, through the window of physical memory, interrupts off. It counts only if the G is in the
//! same wait before and after ([`Seen`]); until then it is not used.

use super::snapshot::{GInfo, GState};
use super::{calls, snapshot};
use crate::arch;
use crate::mem::stack::slot;
use crate::run::priority::{self, CHAIN};
use crate::run::roster::{is_gone, name_of, record};
use crate::run::task::{GHandle, Task};
use crate::run::waiting::{Reason, Wait};
use crate::run::{Instance, WORKER_WORD, running, running_on, worker_in};
use crate::wait::held;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::fence;
use sched::{G, Status};

/// One wait of a G, as seen from outside: if two are equal, they are one wait, and the G has not
/// run in between.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) handle: GHandle,
    waiting: u64,
    switches: u64,
}

impl Seen {
    /// `None` if the G does not wait, or was woken.
    fn of(g: &'static G<Task>) -> Option<Seen> {
        let (handle, status) = g.handle_and_status(); // Acquire; pairs with `begin_park`
        let waits = matches!(status, Status::Parking | Status::Parked);
        let waiting = g.kernel.waiting.load(Relaxed);
        waits.then(|| Seen { handle, waiting, switches: g.kernel.account.switches() })
    }

    /// A hash in one word: the same for the same wait, and hardly ever for another.
    fn stamp(&self) -> u64 {
        let (g, generation) = self.handle.parts();
        mix(0, [name_of(g), generation.into(), self.waiting, self.switches])
    }
}

/// Adds words to a hash.
pub(crate) fn mix<const N: usize>(stamp: u64, parts: [u64; N]) -> u64 {
    let multiplied = |word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    parts.into_iter().fold(stamp, |stamp, part| multiplied(stamp ^ part).rotate_left(29))
}

/// The result of `read` while `g` is in one wait, with that wait. Read again if the wait changes
/// meanwhile: it does so once, when the G leaves its CPU. If it changes twice, the G has run, and
/// does its own check when it waits again.
fn during_wait<T>(g: &'static G<Task>, read: impl Fn(Wait) -> Option<T>) -> Option<(Seen, T)> {
    let mut seen = Seen::of(g)?;
    for _ in 0..2 {
        let found = read(Wait::unpack(seen.waiting));
        let now = Seen::of(g)?;
        if now.stamp() == seen.stamp() {
            return found.map(|found| (seen, found));
        }
        seen = now;
    }
    None
}

/// If `g` waits for a lock: its wait, and the name in the lock word, 0 if there is none.
pub(crate) fn owner_for(g: &'static G<Task>) -> Option<(Seen, u64)> {
    during_wait(g, |Wait { reason, object, .. }| {
        if !matches!(reason, Reason::MutexLock | Reason::RwLockRead | Reason::RwLockWrite) {
            return None;
        }
        let word = read(object.wrapping_sub(held::WORD_BEFORE_QUEUE))?;
        Some(held::owner_in(reason, word as u64))
    })
}

/// If `g` waits for a lock that another G holds: its wait, and that G.
fn holder(g: &'static G<Task>) -> Option<(Seen, &'static G<Task>)> {
    let (seen, owner) = owner_for(g)?;
    // SAFETY: read from a lock word whose waiter was there all the time.
    let is_gone = unsafe { is_gone(owner) };
    // SAFETY: as above.
    let owner = unsafe { record(owner) };
    owner.filter(|_| !is_gone).map(|owner| (seen, owner))
}

/// The G that `g` waits for, if there is one, with the wait. It looks only where the reason says that
/// there may be one; what is called reads the reason again.
fn blocker(g: &'static G<Task>) -> Option<(Seen, &'static G<Task>)> {
    match Wait::unpack(Seen::of(g)?.waiting).reason {
        Reason::Join => joined(g),
        _ => holder(g),
    }
}

/// If `g` joins another: its wait, and that G.
pub(crate) fn joined(g: &'static G<Task>) -> Option<(Seen, &'static G<Task>)> {
    let (seen, worker) = during_wait(g, |Wait { reason, object: job, .. }| {
        if reason != Reason::Join {
            return None;
        }
        // A job among the records of stacks is in its worker's own place.
        match slot::of_record(job as u64) {
            Some(slot) => Some(slot.record() as usize),
            None => worker_in(read(job + WORKER_WORD)?),
        }
    })?;
    let at = core::ptr::with_exposed_provenance::<G<Task>>(worker);
    // SAFETY: 1. a joiner waits at the head of a job, which exists as long as it waits. 2. Among
    // the records of stacks, only the places of Gs hold jobs, and a G is the record of its slot,
    // for ever (`spawn::g_with_stack`). 3. On the heap, a job's head has the address of a G or none
    // (`spawn::spawn_slow`). 4. If the joiner left while the word was read, the word may be
    // anything, and `during_wait` has discarded it.
    Some((seen, unsafe { &*at }))
}

/// A word of kernel memory that may have been freed; it counts only if the G that waits there still
/// does.
fn read(address: usize) -> Option<usize> {
    let irqs = arch::irq::disable_probed();
    let word = calls::read_word(address);
    arch::irq::restore(irqs);
    fence(Acquire); // reads the word before the check that validates it
    word
}

/// The running G is about to wait, or does: it lends its rank to the G that it waits for, and that
/// one to the next (`run::priority`).
pub fn lend_rank() {
    if !priority::are_used() {
        return; // all ranks are equal
    }
    let Some(mut g) = running() else { return };
    for _ in 0..CHAIN {
        let Some((seen, next)) = blocker_or_none(g) else { return };
        let object = Wait::unpack(seen.waiting).object;
        let holder = next.map(G::handle);
        if next.is_some_and(|next| ptr::eq(g, next))
            || !priority::lend(&seen.handle, holder.as_ref(), object)
        {
            return;
        }
        // Stored, and read again: pairs with the unlock, which stores the owner, and looks for loans,
        // and with the G that takes a free lock, and looks for loans.
        fence(SeqCst);
        let now = blocker_or_none(g);
        let is_same = |(now, other): &(Seen, Option<&'static G<Task>>)| {
            now.stamp() == seen.stamp() && other.map(ptr::from_ref) == next.map(ptr::from_ref)
        };
        match next {
            _ if !now.as_ref().is_some_and(is_same) => priority::take_back(&seen.handle), // once more
            Some(next) => g = next,
            None => return,
        }
    }
}

/// As [`blocker`]; with a wait and no G if `g` waits for a mutex that is free, which another G is
/// about to take.
fn blocker_or_none(g: &'static G<Task>) -> Option<(Seen, Option<&'static G<Task>>)> {
    let of_free = || {
        owner_for(g).filter(|(seen, owner)| {
            *owner == 0 && Wait::unpack(seen.waiting).reason == Reason::MutexLock
        })
    };
    let free = || of_free().map(|(seen, _)| (seen, None));
    blocker(g).map(|(seen, next)| (seen, Some(next))).or_else(free)
}

/// The number of the G that holds the lock that `g` waits for.
pub(crate) fn holder_of(g: &'static G<Task>) -> Option<u64> {
    holder(g).map(|(_, holder)| holder.id())
}

/// Whether that G waits for a G of another program: for a lock of it, or its end.
pub fn waits_for_another(handle: &GHandle, own: &'static Instance) -> bool {
    let blocker = handle.get().and_then(blocker);
    blocker.is_some_and(|(_, other)| !core::ptr::eq(other.kernel.program(), own))
}

/// A G that may wait for another.
#[derive(Clone, Copy)]
pub struct WaitingG(&'static G<Task>);

impl PartialEq for WaitingG {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl WaitingG {
    pub fn me() -> Option<Self> {
        running().map(WaitingG)
    }

    pub fn of(handle: &GHandle) -> Option<Self> {
        handle.get().map(WaitingG)
    }

    /// The G that this one waits for, and a stamp of the wait: the same only for the same wait.
    /// `None` if it does not wait for a G, or if its wait can end without that G, by its limit or
    /// by a kill. Also `None` if it holds the lock itself: then the lock was granted to it, and it
    /// is about to be woken. (A G that locks twice finds that out by itself.)
    pub fn next(self) -> Option<(u64, Self)> {
        let (seen, next) = blocker(self.0)?;
        let wait = Wait::unpack(seen.waiting);
        let is_granted = core::ptr::eq(self.0, next) && wait.reason != Reason::Join;
        let ends = wait.is_limited || is_granted || self.0.kernel.ends_when_woken(self.0.id());
        (!ends).then(|| (seen.stamp(), WaitingG(next)))
    }

    /// The G that keeps that CPU: it waits in a call, and the CPU halts for it (`handoff=never`).
    pub fn that_keeps(cpu: usize) -> Option<Self> {
        let waits = |g: &&G<Task>| g.kernel.m.get().is_some() && g.status() == Status::Parking;
        running_on(cpu).filter(waits).map(WaitingG)
    }

    /// Its wait, after a stamp that is the same only for the same wait, if it waits.
    pub fn wait(self) -> Option<(u64, Wait)> {
        Seen::of(self.0).map(|seen| (seen.stamp(), Wait::unpack(seen.waiting)))
    }

    pub fn program(self) -> &'static Instance {
        self.0.kernel.program()
    }

    pub fn has_left(self) -> bool {
        self.0.status() != Status::Parking
    }

    /// Its snapshot; as a waiting G, even if it is only about to wait.
    pub fn info(self) -> Option<GInfo> {
        let mut info = snapshot::of_record(self.0)?;
        info.state = GState::Waiting;
        info.wait = Some(snapshot::wait_of(self.0));
        info.holder = holder_of(self.0);
        Some(info)
    }
}
