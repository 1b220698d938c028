//! Gs that wait for each other in a ring, found while other Gs still run.
//!
//! A mutex has an owner, a `RwLock` that is written has one, and a joiner waits for one G. So a
//! link leads from each G in such a wait to another G, and if the links lead back to the first G,
//! no G of the ring ever continues. [`find`] follows the links when a G is about to leave its CPU
//! for such a wait; no other path pays. Mostly the first link ends the walk: the owner runs.
//!
//! **Why the last G of a ring finds it.** Each G first publishes what it waits for, then has a
//! fence, then walks. Of the Gs that close a ring together, the fence of one is the last, and this
//! G sees what all others have published: they wait already, or are about to (`Parking`), which
//! counts. A G that is woken from such a wait and begins it again walks again.
//!
//! **Why a ring that was found is a deadlock.** Links are read one after the other, and a link may
//! be gone before the ring is closed. So the ring is walked until two walks in a row meet the same
//! waits (`ring`; `watch::WaitingG`: the same life of the G, which has not left a CPU since). A G
//! that waits frees nothing. In the later of the two walks, the owner of each lock was a G that had
//! been in its present wait since the earlier walk, so it has held the lock since before that wait,
//! and holds it until the wait ends. So all links existed at the moment between the walks, and none
//! of them is ever removed: not by the ring's own Gs, which wait; not by a deadline or a context,
//! as a wait with a limit is no link: its word says so from the beginning of the wait (`Wait::by`);
//! and not by a kill that has come. A later kill ends the ring, but programs may not count on it.
//!
//! One state looks like a ring and is none: a lock that was granted to a waiter has that waiter as
//! its owner, a moment before it is woken. So a lock whose owner is its own waiter is no link, and
//! a G that takes a lock twice finds that out before it waits.
//!
//! **What is not found**: rings through channels, condition variables, semaphores, groups, or the
//! readers of a `RwLock`, which have no owners; rings of more than [`MOST`] Gs. If no other G of
//! the program is left to run, the scans for programs that are asleep as a whole find these, too.

use super::ring::{MOST, is_ring};
use super::{MAX_WITH_CALLS, write_g};
use crate::arch::lock::IrqLock;
use crate::fail::end::EXIT_DEADLOCK;
use crate::fail::panic;
use crate::run::time::{Duration, sleep};
use crate::run::{Ended, GHandle, Instance, KERNEL, ProgramId};
use crate::watch::WaitingG;
use crate::{run, watch};
use core::fmt::{self, Write};

/// The running G has published what it waits for, and is about to leave: ends its program if the G
/// waits for itself, which the caller may know already. Does not wait, allocates nothing.
pub fn find(waits_for_itself: bool) {
    if let Some(me) = WaitingG::me()
        && (waits_for_itself || is_ring(me, WaitingG::next))
    {
        end_program_of(me);
    }
    watch::lend_rank();
}

/// The ring that was found last, until it is reported: the program that ends for it, and one of its
/// Gs.
static FOUND: IrqLock<Option<(ProgramId, GHandle)>> = IrqLock::new(None);

/// A ring that some G of this program is in, if there is one: one of its Gs.
pub(crate) fn within(instance: &Instance) -> Option<WaitingG> {
    let found = FOUND.lock().take_if(|(id, _)| *id == instance.id());
    if let Some((_, g)) = found {
        return WaitingG::of(&g);
    }
    // A ring of another program was found meanwhile.
    let mut gs = watch::members(instance.id()).filter_map(|(handle, _)| WaitingG::of(&handle));
    gs.find(|&g| is_ring(g, WaitingG::next))
}

#[cold]
fn end_program_of(first: WaitingG) {
    // Through a static, a ring may span several programs: ending one is enough.
    let is_kernels = |instance: &&Instance| core::ptr::eq(*instance, &KERNEL);
    let instance = ring(first).map(WaitingG::program).find(|instance| !is_kernels(instance));
    match instance {
        // Its supervisor reports it.
        Some(instance) if instance.is_started() => {
            *FOUND.lock() = Some((instance.id(), run::this()));
            instance.end(instance.id(), Ended::Deadlock);
        }
        _ => panic::stop_with(EXIT_DEADLOCK, |out| report(out, first)),
    }
}

fn ring(first: WaitingG) -> impl Iterator<Item = WaitingG> {
    let next = move |g: &WaitingG| g.next().map(|(_, next)| next).filter(|next| *next != first);
    core::iter::successors(Some(first), next).take(MOST)
}

/// Waits, for 100 ms at most, until all Gs of a ring have left their CPUs, so that their frames can
/// be read.
pub(crate) fn wait_until_parked(first: WaitingG) {
    let mut rounds = 0..100;
    while !ring(first).all(WaitingG::has_left) && rounds.next().is_some() {
        sleep(Duration::from_millis(1));
    }
}

pub(crate) fn report(out: &mut dyn Write, first: WaitingG) -> fmt::Result {
    match ring(first).count() {
        1 => writeln!(out, "fatal error: a goroutine waits for itself - deadlock!")?,
        count => writeln!(out, "fatal error: {count} goroutines wait for each other - deadlock!")?,
    }
    for (place, g) in ring(first).enumerate() {
        g.info().map_or(Ok(()), |info| write_g(out, &info, place < MAX_WITH_CALLS))?;
    }
    Ok(())
}
