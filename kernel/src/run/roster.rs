//! All Gs that were ever made, found by number without a walk over all, or by name in a lock word.
//! (What such a name is made of, and why it has an epoch, is in `wait::held`.)
//!
//! The number of a G changes with each life, so a table that is always up to date would cost every
//! start something. Numbers are looked up seldom: by a kill, by a backtrace. So the table is built
//! from [`ALL`] when it is needed, and is a hint: Gs are in [`BUCKETS`] chains by the number that
//! they had when they were inserted. A G that its chain does not have is searched in all Gs
//! ([`walk`]), and after a few such walks the table is rebuilt.
//!
//! Chains are linked through the records, which are never freed. The table is filled a few records
//! at a time, under a lock; the next caller continues, so a G may be killed in the middle of that.
//! A lookup meanwhile takes no lock: a record that was moved to another chain leads on to records
//! that were moved before it, and so to an end.

use super::task::Task;
use super::{G_SLOT, Link, Record, Registry, running_or_none};
use crate::arch;
use crate::arch::lock::IrqLock;
use core::sync::atomic::Ordering::Relaxed;
use sched::G;

pub(crate) static ALL: Registry<G<Task>> = Registry::new();

pub(crate) fn add(gs: &[&'static G<Task>]) {
    gs.iter().for_each(|g| g.kernel.name.store(name_of(g), Relaxed));
    ALL.add(gs);
}

pub(crate) fn cpu_of(g: &'static G<Task>) -> Option<usize> {
    let address = core::ptr::from_ref(g).addr();
    (0..arch::num_cpus()).find(|&cpu| arch::slot_of::<G_SLOT>(cpu) == address)
}

/// Chains. 32 KiB, and with a million Gs 250 records in each.
const BUCKETS: usize = 4096;
/// Records that are put into the table under one hold of the lock.
const BATCH: usize = 64;
/// Walks over all Gs after which the table is made anew.
const WALKS: usize = 4;

static CHAINS: [Link<G<Task>>; BUCKETS] = [const { Link::new() }; BUCKETS];
static FILLING: IrqLock<Filling> = IrqLock::new(Filling { walks: 0, next: None });

struct Filling {
    walks: usize,
    /// The next record to insert; `None`: the table is complete.
    next: Option<&'static G<Task>>,
}

/// The G whose current life has this number, if there is one. That life may end at any time.
pub(crate) fn find(id: u64) -> Option<&'static G<Task>> {
    let mut chain = core::iter::successors(chain(id).get(), |g| g.kernel.same_chain.get());
    chain.find(|g| g.id() == id).or_else(|| walk(id))
}

fn chain(id: u64) -> &'static Link<G<Task>> {
    &CHAINS[id as usize % BUCKETS]
}

/// Searches all Gs; after [`WALKS`] walks, rebuilds the table.
#[cold]
fn walk(id: u64) -> Option<&'static G<Task>> {
    let found = ALL.iter().find(|g| g.id() == id);
    let mut filling = FILLING.lock();
    filling.walks += 1;
    if filling.walks >= WALKS && filling.next.is_none() {
        filling.walks = 0;
        filling.next = ALL.iter().next();
        CHAINS.iter().for_each(|chain| chain.set(None));
    }
    drop(filling);
    while fill() {}
    found
}

/// Inserts one batch of records into the table; false if all are inserted.
fn fill() -> bool {
    let mut filling = FILLING.lock();
    for _ in 0..BATCH {
        let Some(g) = filling.next else { return false };
        let chain = chain(g.id());
        g.kernel.same_chain.set(chain.get());
        chain.set(Some(g));
        filling.next = g.older().get();
    }
    true
}

/// The name for every lock holder that is not a G.
pub(crate) const NO_G_NAME: u64 = 1 << 5;
/// The distance between two epochs.
pub(crate) const EPOCH: u64 = 1 << 48;
/// The record's bits of a name; all higher bits of its address are set.
const RECORD: u64 = EPOCH - 64;

pub(crate) const fn is_no_name(word: u64) -> bool {
    word & RECORD == 0 && word != NO_G_NAME
}

pub(crate) fn name_of(g: &'static G<Task>) -> u64 {
    core::ptr::from_ref(g).expose_provenance() as u64 & RECORD
}

/// The name of the running G, for lock words; [`NO_G_NAME`] if no G runs.
#[inline(always)]
pub fn me() -> u64 {
    running_or_none().kernel.name.load(Relaxed)
}

/// Whether the G of that name has ended without unwinding.
///
/// # Safety
/// It is 0, or a name that [`me`] gave.
#[inline]
pub unsafe fn is_gone(name: u64) -> bool {
    // SAFETY: the caller's promise.
    let now = unsafe { record(name) }.map_or(name, |g| g.kernel.name.load(Relaxed));
    now / EPOCH != name / EPOCH
}

/// The G of that name.
///
/// # Safety
/// As for [`is_gone`].
pub(crate) unsafe fn record(name: u64) -> Option<&'static G<Task>> {
    let address = (name & RECORD != 0).then_some(name | !(EPOCH - 1))? & !63;
    // SAFETY: the address of a G, which was exposed when it got its name, and Gs live for ever.
    Some(unsafe { &*core::ptr::with_exposed_provenance(address as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_no_g_is_never_gone() {
        for name in [0, NO_G_NAME] {
            // SAFETY: these names belong to no G.
            assert!(!unsafe { is_gone(name) });
        }
    }
}
