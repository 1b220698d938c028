//! Gs that wait for each other in a ring, found while others still run.
//!
//! A mutex has an owner, a `RwLock` that is written has one, and who joins waits
//! for one G. So from each G that waits for such a thing a link leads to another G,
//! and if the links lead back to where they began, none of those Gs goes on, ever,
//! whatever the rest of the machine does. [`look`] follows the links when a G is
//! about to leave its CPU for such a wait; nobody else pays. Mostly the first link
//! ends it: the owner runs.
//!
//! # Why the last one sees it
//!
//! Each G first says what it waits for, then has a fence, then walks. Of those that
//! close a ring together, the fence of one is the last, and this one sees what all
//! others have said: they wait already, or are about to (`Parking`), which counts.
//! Who is woken from such a wait and begins it again walks again.
//!
//! # Why it is one, if it is seen
//!
//! Links are read one after the other, and what was read may be over before the ring
//! is closed. So it is walked until two walks in a row meet the same waits (`ring`;
//! `schedule::Waiting`: the same life of the G, which has not left a CPU since). A
//! G that waits frees nothing. In the later of the two, each lock was seen in the hands
//! of a G that had been in its present wait since the earlier, so it had the lock from
//! before that wait on, and has it until its end. So all links were there at the
//! moment between the walks, and none of them is ever undone: not by the ring's own
//! Gs, which wait; not by a deadline, as a wait that has one is no link and says so
//! from its beginning; and not by a kill that has come. One that comes later ends
//! the ring, but nobody may count on it: this is reported at once.
//!
//! One thing looks like a ring and is none: a lock that was granted to one who waits
//! has that one as its owner, a moment before it is woken. So a lock that its own
//! waiter has is no link, and who takes a lock twice finds that out before it waits.
//!
//! # What is not seen
//!
//! Rings through channels, condition variables, semaphores, groups, or the readers
//! of a `RwLock`: these have no owners. Rings of more than [`MOST`] Gs. If nobody else of
//! the program is left to run, the checks for programs that are asleep as a whole find
//! these, too ([`Look`](super::Look), [`beside`](super::beside)).

use super::ring::{MOST, is_ring};
use super::{MAX_WITH_CALLS, Told};
use crate::lock::IrqLock;
use crate::program::{Ended, Instance, KERNEL, ProgramId};
use crate::schedule::{self, GHandle, Waiting};
use crate::time::{Duration, sleep};
use crate::{arch, backtrace, panic, park};
use core::fmt::{self, Write};

/// The running G has said what it waits for, and is about to leave: ends its program
/// if it waits for itself, which it may know already. Does not wait, allocates
/// nothing.
#[cfg_attr(
    not(target_os = "none"),
    expect(dead_code, reason = "of threads nobody knows what they wait for")
)]
pub fn look(waits_for_itself: bool) {
    if let Some(me) = Waiting::me()
        && (waits_for_itself || is_ring(me, Waiting::next))
    {
        end_program_of(me);
    }
}

/// The ring that was found last, until somebody has told of it: the program that
/// ends for it, and one of its Gs.
static FOUND: IrqLock<Option<(ProgramId, GHandle)>> = IrqLock::new(None);

/// A ring that some G of this program is in, if there is one: one of its Gs.
pub(super) fn within(instance: &Instance) -> Option<Waiting> {
    let found = FOUND.lock().take_if(|(id, _)| *id == instance.id());
    if let Some((_, g)) = found {
        return Waiting::of(&g);
    }
    // Another program's was found meanwhile.
    let gs = schedule::members(instance.id()).filter_map(|(handle, _)| Waiting::of(&handle));
    gs.into_iter().find(|&g| is_ring(g, Waiting::next))
}

#[cold]
fn end_program_of(first: Waiting) {
    // By way of a static, a ring may be of several programs: one is enough.
    let is_kernels = |instance: &&Instance| core::ptr::eq(*instance, &KERNEL);
    let instance = ring(first).map(Waiting::program).find(|instance| !is_kernels(instance));
    match instance {
        // Its supervisor tells of it.
        Some(instance) if instance.is_started() => {
            *FOUND.lock() = Some((instance.id(), schedule::this()));
            instance.end(instance.id(), Ended::Deadlock, park::ready);
        }
        _ => panic::deadlock(|out| report(out, first)),
    }
}

/// The Gs of a ring, from `first` on.
fn ring(first: Waiting) -> impl Iterator<Item = Waiting> {
    let next = move |g: &Waiting| g.next().map(|(_, next)| next).filter(|next| *next != first);
    core::iter::successors(Some(first), next).take(MOST)
}

/// Waits a little until all of a ring have left their CPUs, so that their frames can
/// be read.
pub(super) fn settle(first: Waiting) {
    for _ in 0..ROUNDS {
        if ring(first).all(Waiting::has_left) {
            break;
        }
        sleep(Duration::from_millis(1));
    }
}

/// How often that is looked at, a millisecond apart.
const ROUNDS: usize = 100;

/// Names the ring, G by G.
pub(super) fn report(out: &mut dyn Write, first: Waiting) -> fmt::Result {
    match ring(first).count() {
        1 => writeln!(out, "fatal error: a goroutine waits for itself - deadlock!")?,
        count => writeln!(out, "fatal error: {count} goroutines wait for each other - deadlock!")?,
    }
    for (place, g) in ring(first).enumerate() {
        let Some(info) = g.info() else { continue };
        writeln!(out, "\n{}", Told(&info))?;
        if place >= MAX_WITH_CALLS {
            continue;
        }
        if Waiting::me() == Some(g) {
            let (rip, rbp) = arch::here();
            let readable = |address: usize| arch::paging::translate(address as u64).is_some();
            backtrace::print(out, rip as usize, rbp as usize, readable)?;
        } else {
            super::write_calls(out, info.id);
        }
    }
    Ok(())
}
