//! All Gs that there ever were: a list that only grows, as records are never freed; and how a G is
//! found by its number, without a walk over all Gs for each.
//!
//! The number of a G changes with each life, so a table that is always up to date would cost every
//! start something. Numbers are looked up seldom: by a kill, by a backtrace. So the table is built
//! from [`ALL`] when it is needed, and is a hint: Gs are in [`BUCKETS`] chains by the number that
//! they had when they were inserted. A G that its chain does not have is searched in all Gs
//! ([`walk`]), and after a few such walks the table is rebuilt. So thousands of kills in a row cost
//! thousands of short lookups and a few walks.
//!
//! Chains are linked through the records, which are never freed. The table is filled a few records
//! at a time, under a lock; the next caller continues, so a G may be killed in the middle of that.
//! A lookup meanwhile takes no lock: a record that was moved to another chain leads on to records
//! that were moved before it, and so to an end.

use super::task::Task;
use super::{G_SLOT, Link, Record, Registry, name};
use crate::arch;
use crate::arch::lock::IrqLock;
use core::sync::atomic::Ordering::Relaxed;
use sched::G;

pub(crate) static ALL: Registry<G<Task>> = Registry::new();

/// Registers a new G, which has not run yet.
pub(crate) fn add(g: &'static G<Task>) {
    g.kernel.name.store(name::name_of(g), Relaxed);
    ALL.add(g);
}

/// The CPU that runs `g`.
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
    /// Walks since the table was begun.
    walks: usize,
    /// The next record to insert; `None`: the table is complete.
    next: Option<&'static G<Task>>,
}

/// The G whose current life has this number, if there is one. That life may end at any time.
pub(crate) fn find(id: u64) -> Option<&'static G<Task>> {
    let chain = core::iter::successors(chain(id).get(), |g| g.kernel.same_chain.get());
    chain.into_iter().find(|g| g.id() == id).or_else(|| walk(id))
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
