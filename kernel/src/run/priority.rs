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
//! - an unlock that comes to the wait queue: the loans to the G that unlocks go to the next holder, or
//!   the waiter that was called ([`passed_on`]). So a lock with a waiter is freed that way
//!   (`wait::mutex`: an urgent waiter sets CALLS), and a lock that no G waits for pays nothing;
//! - a G that takes a lock, or begins to wait for it, beside others that wait: a G may have barged, and
//!   the one before it may have freed the lock on the fast path, as a spinning G had cleared CALLS. So
//!   all loans at that lock go to the G that has it ([`taken_over`]);
//! - a loan at a lock that is free has no holder: the G that takes the lock gets it;
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
    /// `None` while the lock is free, and a waiter on its way: the G that takes it gets the loan.
    holder: Option<GHandle>,
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

/// A few Gs.
type Few = ArrayVec<GHandle, CHAIN>;

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
    let mut risen = Few::new();
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
/// holder's own, or urgent: the next holder may have a lower one. False: it is not, or there is no
/// room.
pub(crate) fn lend(waiter: &GHandle, holder: Option<&GHandle>, object: usize) -> bool {
    let Some(rank) = waiter.get().map(G::rank) else { return false };
    let below = match holder {
        None => rank_of(Priority::Background),
        Some(holder) => match holder.get() {
            Some(holder) => rank_of(holder.priority()),
            None => return false,
        },
    };
    if rank <= below && rank != Priority::Urgent {
        return false;
    }
    let new = Lent { waiter: waiter.clone(), holder: holder.cloned(), object };
    let mut has_room = false;
    changing(|all, touched, risen| has_room = add(new, all, touched, risen));
    has_room
}

/// Lists a loan. Its waiter may have lent to another holder before, which has the loan still if its
/// unlock did not come to the wait queue.
fn add(new: Lent, all: &mut ArrayVec<Lent, MOST>, touched: &mut Few, risen: &mut Few) -> bool {
    end_loan(&new.waiter, all, touched, risen);
    let holder = new.holder.clone();
    let has_room = all.try_push(new).is_ok();
    touch(touched, holder, all, risen);
    has_room
}

/// The wait of that G has ended: so has its loan.
pub(crate) fn take_back(waiter: &GHandle) {
    if COUNT.load(SeqCst) != 0 {
        changing(|all, touched, risen| end_loan(waiter, all, touched, risen));
    }
}

fn end_loan(waiter: &GHandle, all: &mut ArrayVec<Lent, MOST>, touched: &mut Few, risen: &mut Few) {
    if let Some(at) = all.iter().position(|lent| is_same(&lent.waiter, waiter)) {
        let old = all.swap_remove(at).holder;
        touch(touched, old, all, risen);
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

/// The running G has freed the lock at which Gs wait as `object`: what is lent to it there is lent to
/// the G of that name, which has the lock now or is called. 0: to the G that takes it.
///
/// No loan to another G is touched: a waiter that was called may be too late, and may have lent its
/// rank to the next holder before the G that called it comes here.
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
    let Some(own) = running().map(G::handle) else { return };
    let is_own = |lent: &Lent| lent.object == object && is_to(lent, &own);
    change(|lent| is_own(lent).then(|| heir.clone()));
}

/// The G of that name has the lock at which Gs wait as `object`: what others lend there is lent to
/// it. False: none lends anything. The caller reads the owner again, as the lock may have been freed
/// meanwhile.
#[inline]
pub fn taken_over(object: usize, name: u64) -> bool {
    let is_lent = COUNT.load(SeqCst) != 0;
    if is_lent {
        taken_over_slow(object, name);
    }
    is_lent
}

#[cold]
fn taken_over_slow(object: usize, name: u64) {
    // SAFETY: out of the word of a lock.
    let Some(owner) = unsafe { roster::record(name) }.map(G::handle) else { return };
    // A loan of the owner ends with its wait, which is over, or is another one by now.
    let is_others = |lent: &Lent| lent.object == object && !is_same(&lent.waiter, &owner);
    change(|lent| is_others(lent).then(|| Some(owner.clone())));
}

/// Changes the holder of each loan for which `to` says so. A loan to its own waiter has none.
fn change(to: impl Fn(&Lent) -> Option<Option<GHandle>>) {
    changing(|all, touched, risen| {
        for at in 0..all.len() {
            let Some(new) = to(&all[at]) else { continue };
            let new = new.filter(|new| !is_same(new, &all[at].waiter));
            let is_as_before = match (&new, &all[at].holder) {
                (Some(new), Some(old)) => is_same(new, old),
                (new, old) => new.is_none() && old.is_none(),
            };
            if !is_as_before {
                let old = core::mem::replace(&mut all[at].holder, new.clone());
                touch(touched, old, all, risen);
                touch(touched, new, all, risen);
            }
        }
    });
}

/// Calls `f` under the lock, with a list for the Gs whose ranks it may change ([`touch`]); then
/// computes these.
fn changing(f: impl FnOnce(&mut ArrayVec<Lent, MOST>, &mut Few, &mut Few)) {
    let (mut touched, mut risen) = (Few::new(), Few::new());
    let own = || running_or_none().rank();
    let before = own();
    let mut lent = LENT.lock();
    f(&mut lent, &mut touched, &mut risen);
    COUNT.store(lent.len(), SeqCst);
    touched.iter().for_each(|g| settle(&lent, g, &mut risen));
    drop(lent);
    have_risen(risen);
    if own() < before {
        make_way();
    }
}

/// The rank of that G may change. Of many loans at one lock, all have one holder, whose rank is
/// computed once, at the end; where there are too many holders, at once, and again if need be.
fn touch(touched: &mut Few, g: Option<GHandle>, all: &[Lent], risen: &mut Few) {
    let Some(g) = g.filter(|g| !touched.iter().any(|known| is_same(known, g))) else { return };
    if let Err(full) = touched.try_push(g) {
        settle(all, &full.element(), risen);
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
fn settle(all: &[Lent], first: &GHandle, risen: &mut Few) {
    let mut at = first.clone();
    for _ in 0..CHAIN {
        let Some(g) = at.get() else { return };
        let to_it = all.iter().filter(|lent| is_to(lent, &at));
        let lent = to_it.filter_map(|lent| lent.waiter.get()).map(G::rank).max();
        let (before, own) = (g.rank(), rank_of(g.priority()));
        let rank = lent.map_or(own, |lent| lent.max(own));
        if rank == before || !at.set_rank(g.priority(), rank) {
            return;
        }
        if rank > before {
            let _ = risen.try_push(at.clone());
        }
        let on = all.iter().find(|lent| is_same(&lent.waiter, &at));
        let Some(next) = on.and_then(|on| on.holder.clone()) else { return };
        at = next;
    }
}

/// These Gs may wait in queues in which they would wait for too long.
fn have_risen(risen: Few) {
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

fn is_to(lent: &Lent, g: &GHandle) -> bool {
    lent.holder.as_ref().is_some_and(|holder| is_same(holder, g))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

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
        let mut all = ArrayVec::new();
        let mut lends_to = |holder: &GHandle| {
            let (mut touched, mut risen) = (Few::new(), Few::new());
            let new = Lent { waiter: waiter.clone(), holder: Some(holder.clone()), object: 1 };
            assert!(add(new, &mut all, &mut touched, &mut risen));
            touched.iter().for_each(|g| settle(&all, g, &mut risen));
            assert_eq!(all.len(), 1);
            [rank(&first), rank(&second)]
        };
        assert_eq!(lends_to(&first), [urgent, normal]);
        // The lock has another holder, and the unlock in between came to no queue.
        assert_eq!(lends_to(&second), [normal, urgent]);
        assert_eq!(lends_to(&second), [normal, urgent], "the same once more");
    }
}
