//! Near and far: which Ps share a core, a cache, a package, a NUMA node.
//!
//! A G that moves to another CPU leaves its data behind in the old one's caches, and each line that
//! it touches has to come after it. From the other thread of the same core that costs nothing, from
//! a core at the same last-level cache about 40 cycles a line, from another node several hundred.
//! So each P gets a [`Row`]: the other Ps by [`Distance`]. Two decisions read it.
//!
//! - **Stealing** (`Sched::steal_near`): near to far, in random order within a level. The Ps of the
//!   other nodes are searched when the passes over the own node have found no G, the slots before
//!   the rings included: there is no steal across nodes while the own node has a G that can be
//!   taken.
//! - **Waking** (`Idle::claim_near`): an idle CPU of the waker's node, one whose whole core is idle
//!   first, the nearest of these first; then one of another node by the same rule. Two hardware
//!   threads share the execution units of their core, so a G gets more done on an idle core
//!   farther away than beside a busy sibling.
//!
//! Dead Gs to be recycled are stored for each node (`Store`), as their records and stacks lie in
//! the memory of the node on which they were made.
//!
//! # No G is overlooked
//!
//! The proof of parking (`idle`) asks that a P which spins searches the queue of every busy P, and
//! that a waker claims any idle P rather than none. A row cannot break either, whatever it says:
//! both searches *split* a set of Ps level by level, and what is left after the last level but one
//! is the last level. So each busy or idle P is in exactly one level; a wrong row only makes for a
//! worse order. And the second look of parking does not read the row: it looks at the rings of all
//! busy Ps, near or far. (`sim` plants both mistakes: a thief that leaves a level out, and a waker
//! that knows only its own node.)
//!
//! # How flat machines pay nothing
//!
//! A machine on which all CPUs are equally far from one another gets no rows. `find_runnable` tests
//! one word for "not Go's flat order" where it tested "another system" before; a waker passes
//! its row, null, to a function which tests a word that is zero unless chance or rows choose the P
//! to wake. No fast path reads a row on any machine: what is not plain about a P is in `P::marks`,
//! and near and far is not.
//!
//! # What was rejected
//!
//! - **The other Ps as a sorted list**: a list is walked over Ps that are idle, which on a large
//!   machine nearly all are; sets are cut with the set of busy Ps, a word at a time. And the order
//!   within a level must be random, or all thieves of a node come upon the same victim.
//! - **A queue for each node** between ring and global queue: one more place in the proof, and a G
//!   would wait in it while its node is busy and others idle.
//! - **Distances from the firmware's SLIT**: numbers without units, equal on most machines, and
//!   a third table to distrust. Two nodes are far from each other, or they would be one.
//! - **Sending a G back to its node**: it is runnable, and a CPU is free there only by luck. A G
//!   that was stolen across nodes stays where it is, and so do its record and stack when it ends:
//!   steals across nodes are rare, by the rule above.

use crate::idle::{Idle, PSet, WORDS, bit};
use crate::p::{Marks, P};
use crate::proc::{Found, steal_from};
use crate::sync::{AtomicU64, Relaxed, planted};
use crate::system::add;
use crate::{MAX_P, STEAL_PASSES, Sched};
use core::fmt;

/// How far two CPUs are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Two threads of one core.
    Core,
    /// Two cores at one last-level cache.
    Cache,
    /// Two caches of one package.
    Package,
    /// Two packages of one NUMA node.
    Node,
    /// Two nodes.
    Remote,
}

/// How many distances there are.
pub const LEVELS: usize = Distance::ALL.len();

impl Distance {
    /// All of them, the nearest first.
    pub const ALL: [Distance; 5] =
        [Distance::Core, Distance::Cache, Distance::Package, Distance::Node, Distance::Remote];
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Distance::Core => "core",
            Distance::Cache => "cache",
            Distance::Package => "package",
            Distance::Node => "node",
            Distance::Remote => "remote",
        })
    }
}

/// Where a CPU sits. The numbers mean nothing, but that two of them are equal or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Its NUMA node.
    pub node: u32,
    /// Its package.
    pub package: u32,
    /// Its last-level cache, within the package.
    pub cache: u32,
    /// Its core, within the package.
    pub core: u32,
}

impl Seat {
    /// How far another CPU is.
    ///
    /// ```
    /// use sched::near::{Distance, Seat};
    /// let here = Seat { node: 0, package: 0, cache: 1, core: 4 };
    /// assert_eq!(here.distance(&here), Distance::Core);
    /// assert_eq!(here.distance(&Seat { core: 5, ..here }), Distance::Cache);
    /// assert_eq!(here.distance(&Seat { node: 1, ..here }), Distance::Remote);
    /// ```
    #[must_use]
    pub fn distance(&self, other: &Seat) -> Distance {
        if self.node != other.node {
            Distance::Remote
        } else if self.package != other.package {
            Distance::Node
        } else if self.cache != other.cache {
            Distance::Package
        } else if self.core != other.core {
            Distance::Cache
        } else {
            Distance::Core
        }
    }
}

/// What is wrong with the seats of a machine, if anything is; then all CPUs count as equally far.
///
/// # Errors
/// In words, for the boot report.
pub fn check(seats: &[Seat]) -> Result<(), &'static str> {
    if seats.len() > MAX_P {
        return Err("more CPUs than there are Ps");
    }
    for (i, a) in seats.iter().enumerate() {
        for b in &seats[..i] {
            let is_one_core = (a.package, a.core) == (b.package, b.core);
            if is_one_core && a.node != b.node {
                return Err("two threads of one core are in different nodes");
            }
            if is_one_core && a.cache != b.cache {
                return Err("two threads of one core have different last-level caches");
            }
        }
    }
    Ok(())
}

/// Whether all CPUs are equally far from one another: then there is nothing to choose.
#[must_use]
pub fn is_flat(seats: &[Seat]) -> bool {
    let mut pairs = seats.iter().enumerate().flat_map(|(i, a)| {
        let others = seats[..i].iter();
        others.map(|b| a.distance(b))
    });
    let first = pairs.next();
    pairs.all(|distance| Some(distance) == first)
}

/// A set of CPUs that does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus([u64; WORDS]);

impl Cpus {
    fn of(is_member: impl Fn(usize) -> bool) -> Self {
        let mut cpus = Cpus::default();
        (0..MAX_P).filter(|&i| is_member(i)).for_each(|i| cpus.0[i / 64] |= bit(i));
        cpus
    }

    /// The CPUs of the core of `index`, itself included.
    #[must_use]
    pub fn of_core(seats: &[Seat], index: usize) -> Self {
        let distance = |i: usize| Some(seats.get(i)?.distance(seats.get(index)?));
        Cpus::of(|i| i == index || distance(i) == Some(Distance::Core))
    }

    pub(crate) fn word(&self, w: usize) -> u64 {
        self.0[w]
    }
}

/// The other Ps as one P sees them, and what it has done over each distance.
pub struct Row {
    /// The Ps no farther than each distance but the last.
    within: [Cpus; LEVELS - 1],
    /// The core of each CPU.
    cores: &'static [Cpus],
    /// The lowest P of this one's node.
    first: usize,
    // The P's owner writes, any CPU reads.
    steals: [AtomicU64; LEVELS],
    wakes: [AtomicU64; LEVELS],
}

impl Row {
    /// What the P of `index` sees, by the seats of all Ps; `cores` are [`Cpus::of_core`] of each.
    ///
    /// # Panics
    /// If `index` has no seat.
    #[must_use]
    pub fn new(seats: &[Seat], index: usize, cores: &'static [Cpus]) -> Self {
        let me = &seats[index];
        let is_within =
            |i: usize, distance| seats.get(i).is_some_and(|s| me.distance(s) <= distance);
        let first = seats.iter().position(|seat| seat.node == me.node);
        Row {
            within: core::array::from_fn(|i| Cpus::of(|p| is_within(p, Distance::ALL[i]))),
            cores,
            first: first.unwrap_or(index),
            steals: core::array::from_fn(|_| AtomicU64::new(0)),
            wakes: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// How often this P has stolen from a P at each distance. Any CPU; for diagnosis.
    #[must_use]
    pub fn steals(&self) -> [u64; LEVELS] {
        self.steals.each_ref().map(|count| count.load(Relaxed))
    }

    /// How often it has woken one.
    #[must_use]
    pub fn wakes(&self) -> [u64; LEVELS] {
        self.wakes.each_ref().map(|count| count.load(Relaxed))
    }

    /// The members of `set` at each distance: each of them once.
    fn split(&self, mut set: PSet) -> [PSet; LEVELS] {
        core::array::from_fn(|i| match self.within.get(i) {
            Some(within) => set.take_out(within),
            None => set, // what is left, whatever the row says
        })
    }
}

impl<K: Sync + 'static> Sched<K> {
    /// This P knows from now on which Ps are near. At any time; `row` is this P's, and was given to
    /// no other.
    ///
    /// ```
    /// use sched::near::{Cpus, Row, Seat};
    /// use sched::{PSlot, Sched};
    ///
    /// static SLOTS: [PSlot<()>; 3] = [const { PSlot::new() }; 3];
    /// static SCHED: Sched<()> = Sched::new(&SLOTS);
    /// // CPUs 0 and 1 are one core.
    /// let seats = [0, 0, 1].map(|core| Seat { core, ..Seat::default() });
    /// let cores: &_ = Box::leak(Box::new([0, 1, 2].map(|i| Cpus::of_core(&seats, i))));
    /// for (i, row) in [0, 1, 2].map(|i| Row::new(&seats, i, cores)).into_iter().enumerate() {
    ///     let mut p = SCHED.acquire(i, 1).expect("new");
    ///     SCHED.seat(&mut p, Box::leak(Box::new(row)));
    /// }
    /// ```
    pub fn seat(&self, p: &mut P<K>, row: &'static Row) {
        p.row = Some(row);
        p.searches_specially = true;
        if let Some(first) = self.slots.get(row.first) {
            p.free.use_store(&first.free);
        }
        self.idle.choose_near();
    }

    /// As `steal_work`, near to far.
    pub(crate) fn steal_near(&self, p: &mut P<K>) -> Option<Found<K>> {
        let Some(row) = p.row else { return self.steal_work(p) };
        if !p.marks.has(Marks::SPINNING) && !self.idle.try_spin(self.limit()) {
            return None;
        }
        p.marks.set(Marks::SPINNING);
        let slots = self.acquired();
        let mut victims = self.idle.busy_ps(slots.len());
        victims.remove(p.index);
        let levels = row.split(victims);
        let (own, others) = levels.split_at(Distance::Remote as usize);
        for (first, levels) in [(0, own), (own.len(), others)] {
            if planted!(SkipOtherNodes) && first > 0 {
                continue;
            }
            for pass in 1..=STEAL_PASSES {
                for (level, victims) in levels.iter().enumerate().filter(|(_, v)| !v.is_empty()) {
                    for index in victims.iter_from(p.random.next()) {
                        let runq = &slots[index].runq;
                        if let Some(found) = steal_from(p, index, runq, pass == STEAL_PASSES) {
                            add(&row.steals[first + level], 1);
                            return Some(found);
                        }
                    }
                }
            }
        }
        None
    }
}

impl Idle {
    /// Claims an idle P: of the waker's node before those of others; whose whole core is idle
    /// before others; then the nearest, and of these the lowest.
    pub(crate) fn claim_near(&self, limit: usize, row: &Row) -> Option<usize> {
        let idle = self.idle_set(limit);
        let has_idle_core = |p: usize| {
            let busy = |w: usize| row.cores.get(p).map_or(0, |c| c.word(w)) & !idle.word(w);
            PSet::below(limit, busy).is_empty()
        };
        let levels = row.split(idle);
        let (own, others) = levels.split_at(Distance::Remote as usize);
        for (first, levels) in [(0, own), (own.len(), others)] {
            if planted!(WakeOwnNode) && first > 0 {
                continue;
            }
            for is_whole in [true, false] {
                for (level, ps) in levels.iter().enumerate() {
                    let mut ps = ps.iter().filter(|&p| !is_whole || has_idle_core(p));
                    if let Some(index) = ps.find(|&p| self.claim(p)) {
                        add(&row.wakes[first + level], 1);
                        return Some(index);
                    }
                }
            }
        }
        None
    }
}
