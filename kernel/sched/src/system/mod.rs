//! Systems: six answers to "which G runs next, and on which M", chosen at boot.
//!
//! Go's scheduler is the last of a row. Each of the earlier ones is simpler, and falls short in one
//! thing that the next one mends:
//!
//! | system | a ready G waits in | a processor looks in | a G's M | a call that blocks |
//! |---|---|---|---|---|
//! | [`one_to_one`] | one list | that list | its own, made for it | leaves with its M |
//! | [`pool`] | one list | that list | its own, used again | leaves with its M |
//! | [`n1`] | the ring of the one P | that ring | the one | stops all Gs |
//! | [`shared`] | one queue under a lock | that queue | any | hands its P off |
//! | [`distributed`] | the ring of an M | its M's ring, then all | any | leaves with M *and ring* |
//! | [`mpn`] | the ring of a P | its P's ring, the global queue, other Ps | any | hands its P off |
//!
//! A system is one file here and one line in [`all`]; a crate outside adds one as `examples/system`
//! does. States of Gs, parking, waking, slices and the inbox are the same under each: a system only
//! says where Gs wait ([`Places`]), and what the kernel does with Ms ([`Rules`]).
//!
//! # How it costs Go's way nothing
//!
//! Every fast path tests a word already that is zero nearly always: `G::home` when a G is put into
//! a queue, `P::marks` when a P looks for one; and the kernel its attention bits when a G starts or
//! an M leaves. A bit in each sends a G, a P or a CPU of another system the slow way, and only
//! there it is asked. So the fast paths of M:P:N have not one instruction more. (Rejected: a
//! scheduler that is generic over its system. That is six images, or a test in each path.)
//!
//! # What a system promises
//!
//! [`Promises`] are the sentences that a program, a test or a scene of the tour may rely on. A
//! check whose sentence is not promised asserts the opposite, where that can be seen, and never
//! just passes.

pub mod distributed;
pub mod mpn;
pub mod n1;
pub mod one_to_one;
pub mod pool;
mod rings;
pub mod shared;

pub use rings::MRing;
pub(crate) use rings::Rings;

use crate::Sched;
use crate::g::G;
use crate::p::{Marks, P, PSlot, Slice};
use crate::proc::Found;
use crate::runq::Owner;
use crate::sync::{AtomicU64, Relaxed};

/// The six, in the order in which each mends what the one before lacks.
#[must_use]
pub fn all<K: Sync + 'static>() -> [&'static dyn System<K>; 6] {
    [
        &one_to_one::OneToOne,
        &n1::N1,
        &pool::Pool,
        &shared::Shared,
        &distributed::Distributed,
        &mpn::Mpn,
    ]
}

/// A scheduling system.
pub trait System<K: Sync + 'static>: Sync {
    /// What it is.
    fn about(&self) -> &'static About;

    /// Where its Gs wait, if not as in Go.
    fn places(&self) -> Option<&'static dyn Places<K>> {
        None
    }
}

/// What a system is, in words and in rules.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// The word after `system=`.
    pub name: &'static str,
    /// Where does a ready G wait? Where does a processor look? Whose is the M under a G? What does
    /// a call do that blocks?
    pub answers: [&'static str; 4],
    /// What the next system mends.
    pub drawback: &'static str,
    /// What the kernel does with Ps and Ms.
    pub rules: Rules,
    /// What a program may rely on.
    pub promises: Promises,
}

/// What the kernel does with Ps and Ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Only one P runs Gs, whatever `gomaxprocs` says.
    pub one_p: bool,
    /// The M under a G.
    pub m: OwnM,
    /// A call that blocks keeps its P, and the CPU halts.
    pub keeps_p: bool,
    /// Rings go with Ms, not with Ps.
    pub rings_of_ms: bool,
}

/// Which M a G runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnM {
    /// Any; a G in a call has one of its own until the call returns.
    InCalls,
    /// One of its own for life, which the next G uses again.
    Pooled,
    /// One of its own for life, made for it and freed with it.
    Fresh,
}

/// What a program may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// As many Gs run at once as there are CPUs.
    pub parallel: bool,
    /// A call that blocks stops no other G.
    pub calls_let_others_run: bool,
    /// There may be a million Gs; else no more than Ms.
    pub many_gs: bool,
    /// A G that is readied runs next on the P of the G that readied it, in the same slice.
    pub run_next: bool,
    /// A G that an interrupt readies while all CPUs are busy runs at once.
    pub displaces: bool,
    /// An urgent G that is readied runs at once, and a background G when no other wants the CPU.
    pub priorities: bool,
    /// Programs have CPU time as their shares say, while one has a share of its own.
    pub shares: bool,
    /// A switch takes no lock that all CPUs share; not while shares are in force.
    pub no_shared_lock: bool,
    /// Finding a G costs the same however many calls are blocked.
    pub flat_search: bool,
}

impl Promises {
    /// All of them: Go's.
    pub const ALL: Self = Promises {
        parallel: true,
        calls_let_others_run: true,
        many_gs: true,
        run_next: true,
        displaces: true,
        priorities: true,
        shares: true,
        no_shared_lock: true,
        flat_search: true,
    };
}

impl Rules {
    /// Go's.
    pub const GO: Self =
        Rules { one_p: false, m: OwnM::InCalls, keeps_p: false, rings_of_ms: false };
}

/// Where ready Gs wait: asked each time a G is put somewhere and each time a P looks.
///
/// Callers: the M that holds the P, interrupts off. Pinned Gs are not its business.
///
/// # Safety
///
/// Both methods run inside the scheduler, on the stack of an M, in the middle of a switch. They
/// call the methods of [`Here`] and [`Ready`], and nothing else of the kernel's: they start, ready
/// or wait for no G, take no lock, allocate nothing and do not panic. A G that `put` is given goes
/// into a queue of that `Here` before it returns.
pub unsafe trait Places<K: Sync + 'static>: Sync {
    /// Where does a ready G wait?
    fn put(&self, at: &mut Here<'_, K>, g: Ready<K>, why: Why) -> Queued;

    /// Where does a P look?
    fn find(&self, at: &mut Here<'_, K>) -> Option<Ready<K>>;
}

/// A G that is in no queue. Not `Copy`: that a G is in one queue is a matter of types.
#[must_use = "the G would be lost"]
pub struct Ready<K: 'static>(&'static G<K>);

impl<K: Sync + 'static> Ready<K> {
    /// The number of its life.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id()
    }
}

/// The proof that a G was put into a queue: only [`Here`] makes one.
pub struct Queued(());

/// Why a G is put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is new, or has waited.
    Readied,
    /// It lets others run.
    Yielded,
    /// Its slice is over.
    Expired,
}

/// The queues within reach of a P, for a system that decides among them.
pub struct Here<'a, K: 'static> {
    sched: &'a Sched<K>,
    p: &'a P<K>,
}

impl<K: Sync + 'static> Here<'_, K> {
    /// To the tail of the queue that all Ps share.
    pub fn push_back(&mut self, g: Ready<K>) -> Queued {
        self.count();
        self.sched.global.push(g.0);
        Queued(())
    }

    /// To its head: the next G that any P takes.
    pub fn push_front(&mut self, g: Ready<K>) -> Queued {
        self.count();
        self.sched.global.push_front(g.0);
        Queued(())
    }

    /// Takes the G at the head of that queue.
    pub fn take(&mut self) -> Option<Ready<K>> {
        if self.sched.global.is_empty() {
            return None;
        }
        self.count();
        self.sched.global.pop_batch(1).pop().map(Ready)
    }

    /// Counts that this P takes the lock of the shared queue.
    fn count(&self) {
        add(&self.p.slot.queue_locks, 1);
    }
}

/// Adds to a counter that one P writes.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// The slow ways, where a system is asked.
impl<K: Sync + 'static> Sched<K> {
    /// As [`Sched::acquire`], under a system whose Gs wait there; the same for all Ps.
    pub fn acquire_under(
        &self,
        index: usize,
        seed: u64,
        places: Option<&'static dyn Places<K>>,
    ) -> Option<P<K>> {
        let mut p = self.acquire(index, seed)?;
        p.places = places;
        p.marks.set_if(Marks::GUIDED, p.places.is_some());
        p.searches_specially |= p.places.is_some();
        Some(p)
    }

    /// Adds the ring of an M to those that thieves search, for ever.
    pub fn add_ring(&self, ring: &'static MRing<K>) -> Option<Owner<K>> {
        self.rings.add(ring)
    }

    /// Spin hints of CPUs that waited for the lock of the global queue, since boot.
    #[must_use]
    pub fn lock_spins(&self) -> u64 {
        self.global.lock.spins.load(Relaxed)
    }

    /// Puts a runnable G, which is guided, where its system says.
    #[cold]
    pub(crate) fn put(&self, p: &mut P<K>, g: &'static G<K>, why: Why) {
        let places = p.places.expect("a guided G on a P without a system");
        let Queued(()) = places.put(&mut Here { sched: self, p }, Ready(g), why);
    }

    /// Looks where the system says, after the inbox; pinned Gs have every other slice.
    #[cold]
    pub(crate) fn find_guided(&self, p: &mut P<K>) -> Option<Found<K>> {
        let places = p.places?;
        self.push_all(p, p.slot.inbox.take_all());
        let pinned_first = !p.tick().is_multiple_of(2);
        let pinned = if pinned_first { p.pop_pinned() } else { None };
        // A G that has just yielded to this one is one more in the queue.
        p.marks.set_if(Marks::OWES_WAKE, pinned.is_some());
        let mut here = Here { sched: self, p };
        // A system that overlooks a G of the shared queue would have this P search for ever.
        let found = pinned.or_else(|| {
            let Ready(g) = places.find(&mut here).or_else(|| here.take())?;
            Some((g, Slice::New))
        });
        found.or_else(|| p.pop_pinned())
    }
}

impl<K: Sync + 'static> PSlot<K> {
    /// How many rings of Ms this P has searched (`system::distributed`). Any CPU; for diagnosis.
    #[must_use]
    pub fn scanned(&self) -> u64 {
        self.scanned.load(Relaxed)
    }

    /// How often this P has put a G into a queue, or taken one from there, as a system other than
    /// Go's said: each time it took the lock of that queue. Any CPU; for diagnosis.
    #[must_use]
    pub fn queue_locks(&self) -> u64 {
        self.queue_locks.load(Relaxed)
    }
}
