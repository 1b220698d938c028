//! Priorities of Gs, and ranks that a waiting G lends to the G that it waits for.
//!
//! `sched::priority` has the rules: what a rank does to a G. Here a program's request becomes a
//! rank, and inheritance is kept: a G that waits for a lock or a join lends its rank to the G that
//! holds the lock, or is joined, if that G has a lower one; and so on along the chain.
//!
//! # Who owns what
//!
//! [`LENT`] lists the ranks that are lent now: which G, to which, at which object. Under its lock, and
//! there alone, ranks change: the rank of a G is the highest of its own priority and those that are
//! lent to it ([`settle`]). A G with a rank that was lent has no list of its locks; what ends a loan
//! looks for it by the object or by the waiter:
//!
//! - an unlock that comes to the wait queue: the loans at that lock go to the next holder, or the
//!   waiter that was called ([`passed_on`]). So a lock with a waiter is freed that way (`wait::mutex`:
//!   an urgent waiter sets CALLS), and a lock that no G waits for pays nothing;
//! - the end of the wait: granted, too late, killed ([`take_back`]), or abandoned;
//! - the end of the holder: a rank ends with its life.
//!
//! So no rank stays raised: each loan has one waiter, which ends it when its wait ends.
//!
//! # Against a race with the unlock
//!
//! The waiter lists the loan, then reads the lock's owner again; the G that frees the lock stores the
//! new owner, then looks for loans. One of them sees the other (`watch::holder::lend_rank`).
//!
//! At most [`MOST`] ranks are lent at a time; a G that waits beyond that lends none. Rejected: a list
//! through the records of the Gs, which would be larger by two words each for what hardly any needs.

use super::SCHED;
use super::{
    CPUS, GHandle, Task, roster, running, running_or_none, submitted, system, wake_cpu, with_p,
};
use crate::arch;
use crate::arch::lock::IrqLock;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use sched::G;

pub use sched::Priority;

/// The most ranks that are lent at a time.
const MOST: usize = 64;
/// The most Gs whose rank rises at once: of a longer chain the rest is not raised.
pub(crate) const CHAIN: usize = 8;

/// A rank that is lent.
struct Lent {
    waiter: GHandle,
    holder: GHandle,
    /// What the waiter waits for: see `Wait::object`.
    object: usize,
}

/// All of them; and ranks change under this lock.
static LENT: IrqLock<ArrayVec<Lent, MOST>> = IrqLock::new(ArrayVec::new_const());
/// How many there are. Written under the lock; read by each G that ends a wait or frees a lock that
/// others wait for, after the fence that is in changing the lock's word.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether a G was ever given another priority than the normal one. Stored before that.
static ARE_USED: AtomicBool = AtomicBool::new(false);

/// Gs whose rank has risen.
type Risen = ArrayVec<GHandle, CHAIN>;

/// The rank that a G of that priority has, if none is lent to it. A system that says where Gs wait
/// promises no priorities, and knows one rank.
fn rank_of(priority: Priority) -> Priority {
    if system::running().promises.priorities { priority } else { Priority::Normal }
}

/// Whether ranks may differ, so that a G that waits may have one to lend.
pub(crate) fn are_used() -> bool {
    ARE_USED.load(Relaxed)
}

/// Sets the priority of that life of a G; false if it is over.
pub fn set(g: &GHandle, priority: Priority) -> bool {
    let Some(record) = g.get() else { return false };
    if priority != Priority::Normal {
        ARE_USED.store(true, Relaxed);
    }
    let mut risen = Risen::new();
    let lent = LENT.lock();
    let before = record.rank();
    // Its rank stays if it is lent: `settle` finds that.
    let is_set = g.set_rank(priority, before);
    settle(&lent, g, &mut risen);
    drop(lent);
    have_risen(risen);
    is_set
}

/// Sets the priority of the running G.
pub fn set_own(priority: Priority) {
    if let Some(g) = running() {
        let _ = set(&g.handle(), priority);
    }
}

/// Whether the running G is urgent, so that an unlock must call it.
pub fn is_urgent() -> bool {
    running_or_none().rank() == Priority::Urgent
}

/// Calls `start`, which starts a G of that priority.
pub(crate) fn while_starting<T>(priority: Priority, start: impl FnOnce() -> T) -> T {
    let _lent = (priority != Priority::Normal).then(|| {
        ARE_USED.store(true, Relaxed);
        LENT.lock()
    });
    start()
}

/// `waiter`, which waits at `object` for `holder`, lends its rank, if that is higher than the
/// holder's own. False: it is not, or there is no room.
pub(crate) fn lend(waiter: &GHandle, holder: &GHandle, object: usize) -> bool {
    let (Some(above), Some(below)) = (waiter.get(), holder.get()) else { return false };
    if above.rank() <= rank_of(below.priority()) {
        return false;
    }
    let mut risen = Risen::new();
    let mut lent = LENT.lock();
    let has_room = lend_in(&mut lent, waiter, holder, object, &mut risen);
    COUNT.store(lent.len(), SeqCst);
    drop(lent);
    have_risen(risen);
    has_room
}

/// The part of [`lend`] under the lock.
fn lend_in(
    lent: &mut ArrayVec<Lent, MOST>,
    waiter: &GHandle,
    holder: &GHandle,
    object: usize,
    risen: &mut Risen,
) -> bool {
    // The lock may have had another holder when the G began to wait: that one has the loan still if
    // its unlock did not come to the wait queue.
    let before = lent.iter().position(|lent| is_same(&lent.waiter, waiter));
    let before = before.map(|at| lent.swap_remove(at).holder);
    let new = Lent { waiter: waiter.clone(), holder: holder.clone(), object };
    let has_room = lent.try_push(new).is_ok();
    before.inspect(|before| settle(lent, before, risen));
    settle(lent, holder, risen);
    has_room
}

/// The wait of that G has ended: so has its loan.
pub(crate) fn take_back(waiter: &GHandle) {
    if COUNT.load(SeqCst) != 0 {
        change(|lent| is_same(&lent.waiter, waiter).then_some(None));
    }
}

/// As [`take_back`], for the running G.
pub fn stop_lending() {
    if COUNT.load(SeqCst) != 0
        && let Some(g) = running()
    {
        take_back(&g.handle());
    }
}

/// The lock at which Gs wait as `object` has another owner, or is free and the G of that name is
/// called: what is lent at the lock is lent to that G. 0: to none.
#[inline]
pub fn passed_on(object: usize, name: u64) {
    if COUNT.load(SeqCst) != 0 {
        passed_on_slow(object, name);
    }
}

#[cold]
fn passed_on_slow(object: usize, name: u64) {
    // SAFETY: out of the word of a lock, or of a waiter there.
    let heir = unsafe { roster::record(name) }.map(G::handle);
    change(|lent| (lent.object == object).then(|| heir.clone()));
}

/// Changes the holder of each loan for which `to` says so; a loan without one is over, and so is one
/// to its own waiter.
fn change(to: impl Fn(&Lent) -> Option<Option<GHandle>>) {
    let mut risen = Risen::new();
    let own = || running_or_none().rank();
    let before = own();
    let mut lent = LENT.lock();
    while let Some(at) =
        lent.iter().position(|lent| to(lent).is_some_and(|to| !has(&to, &lent.holder)))
    {
        let old = lent[at].holder.clone();
        let new = to(&lent[at]).flatten().filter(|new| !is_same(new, &lent[at].waiter));
        match &new {
            Some(new) => lent[at].holder = new.clone(),
            None => drop(lent.swap_remove(at)),
        }
        COUNT.store(lent.len(), SeqCst);
        settle(&lent, &old, &mut risen);
        new.inspect(|new| settle(&lent, new, &mut risen));
    }
    drop(lent);
    have_risen(risen);
    if own() < before {
        make_way();
    }
}

/// The rank of the running G has fallen: if an urgent G waits here, as it was called by that G, it
/// displaces now.
fn make_way() {
    with_p(|p| {
        if SCHED.has_ranked(p) {
            CPUS[arch::cpu_index()].slices.make_way();
            arch::wake(arch::cpu_index());
        }
    });
}

/// Computes the rank of a G anew, and those of the Gs that it lends to. Under the lock.
fn settle(all: &[Lent], first: &GHandle, risen: &mut Risen) {
    let mut at = first.clone();
    for _ in 0..CHAIN {
        let Some(g) = at.get() else { return };
        let to_it = all.iter().filter(|lent| is_same(&lent.holder, &at));
        let lent = to_it.filter_map(|lent| lent.waiter.get()).map(G::rank).max();
        let (before, own) = (g.rank(), rank_of(g.priority()));
        let rank = lent.map_or(own, |lent| lent.max(own));
        if rank == before || !at.set_rank(g.priority(), rank) {
            return;
        }
        if rank > before {
            let _ = risen.try_push(at.clone());
        }
        let Some(on) = all.iter().find(|lent| is_same(&lent.waiter, &at)) else { return };
        at = on.holder.clone();
    }
}

/// These Gs may wait in queues in which they would wait for too long.
fn have_risen(risen: Risen) {
    for g in risen {
        with_p(|p| {
            let wake = SCHED.raised(p, &g, wake_cpu);
            submitted(&CPUS[arch::cpu_index()], p, wake);
        });
    }
}

fn is_same(one: &GHandle, other: &GHandle) -> bool {
    let ((one, life), (other, other_life)) = (one.parts(), other.parts());
    core::ptr::eq::<G<Task>>(one, other) && life == other_life
}

fn has(g: &Option<GHandle>, other: &GHandle) -> bool {
    g.as_ref().is_some_and(|g| is_same(g, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(priority: Priority) -> GHandle {
        let g: &'static G<Task> = Box::leak(Box::new(G::new(Task::new(0))));
        assert!(g.handle().set_rank(priority, priority));
        g.handle()
    }

    fn rank(g: &GHandle) -> Priority {
        g.parts().0.rank()
    }

    #[test]
    fn a_g_that_waits_for_another_holder_lends_to_that_one_only() {
        let [urgent, normal] = [Priority::Urgent, Priority::Normal];
        let (waiter, first, second) = (handle(urgent), handle(normal), handle(normal));
        let (mut lent, mut risen) = (ArrayVec::new(), Risen::new());
        assert!(lend_in(&mut lent, &waiter, &first, 1, &mut risen));
        assert_eq!((rank(&first), rank(&second)), (urgent, normal));
        // The lock has another holder, and the unlock in between came to no queue.
        assert!(lend_in(&mut lent, &waiter, &second, 1, &mut risen));
        assert_eq!((rank(&first), rank(&second)), (normal, urgent));
        assert!(lend_in(&mut lent, &waiter, &second, 1, &mut risen));
        assert_eq!((rank(&second), lent.len()), (urgent, 1), "the same once more");
    }
}
