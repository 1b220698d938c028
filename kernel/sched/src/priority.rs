//! Priorities: urgent Gs displace, background Gs fill idle time.
//!
//! A G has a *priority*, which its program gave it, and a *rank*, which counts: its priority, or the
//! higher rank of a G that waits for it (inheritance; `run::priority` of the kernel computes it).
//! Both are bits of `G::home`, the word that every fast path tests already; a normal G has none set,
//! so it pays nothing, and a ranked G goes the slow way wherever a G is put into a queue.
//!
//! # Urgent
//!
//! An urgent G that is readied goes to an inbox and its CPU is interrupted (essay, "The inbox"): to
//! that of an idle P if there is one, else to that of the P that readies it. At the end of the
//! interrupt [`Sched::arrive`] puts it into the run-next slot and the running G is displaced
//! (essay, "Displacing"), as for any wake-up by a device. What differs: the running G may itself be
//! a borrower, and an idle P elsewhere does not keep the urgent G from displacing here.
//!
//! The kernel knows the clock: it says by [`P::set_lends`] whether the P may lend time now. It lends
//! at most half of what its normal Gs have run, and half a slice at once; so urgent Gs have a third
//! of a P that normal Gs want, whatever they do. An urgent G that finds the P unable to lend, or on
//! a CPU where an urgent G runs, waits in its lane. A P looks at that lane before its own queue
//! ([`Slice::Lent`]): at the end of a slice each P does, as the flag in the length of the global
//! queue makes [`Sched::expire`] fail; and at its next switch the P that has put the G there, by
//! `Marks::RANKED`. So the G waits for the rest of a slice at most. A pinned one waits in
//! `P::urgent`, which no thief sees, and displaces from there.
//!
//! # Background
//!
//! A background G goes to its lane. A P takes it when it finds nothing else, stealing included, and
//! instead of its turn of the global queue, once in [`GLOBAL_CHECK_EVERY`] slices; the global queue
//! has the slice after that. Its slice is whole: a normal G waits for one such slice at most. A
//! pinned G of this rank waits with the other pinned Gs of its P: its P is the only one that could
//! find it idle.
//!
//! # No wake-up is lost
//!
//! The lanes are part of the global queue: one lock, and one word, the length, which is 0 only if all
//! are empty. So a push to a lane is a push to the global queue in every argument of the essay: the
//! parker's second look sees the word (`Sched::has_work`), a P without a timer is told of it
//! ([`Sched::take_untimed`]), and a CPU that puts a G there does the submitter's steps, or owes them
//! (`Marks::OWES_WAKE`). And a P that sees the word non-zero takes a G of any lane before it parks
//! (`find_last`). A P beyond the limit, which looks no more, passes one urgent G on to P 0, which
//! thus has the mark.
//!
//! # A rank may change at any time
//!
//! Any CPU sets it, while the G is in any queue, or runs. So no queue relies on the rank of a G that
//! is in it: the rank is read where the G is put somewhere, once. The bits are changed by one CPU at
//! a time (the kernel has a lock for it), in locked operations, and only while the life is not over;
//! a life that ends meanwhile is noticed afterwards ([`Handle::set_rank`]).
//!
//! # What was rejected
//!
//! - **A queue of each rank in each P**: three places to look at in every switch.
//! - **Strict priority**: an urgent G in a loop would stop the machine. With a share that is bounded
//!   a mistake costs a third.
//! - **A deadline for each G** (EDF): without a test of admission it promises nothing, either.

use crate::g::{G, Handle};
use crate::list::{GlobalQueue, Link, List};
use crate::p::{Marks, P, Slice};
use crate::proc::Found;
use crate::sync::{AcqRel, Acquire, Relaxed, Release, const_fn, planted, spin_loop};
use crate::{GLOBAL_CHECK_EVERY, Sched, Wake};

/// How much a G is in a hurry.
///
/// ```
/// use sched::Priority;
/// assert!(Priority::Background < Priority::Normal && Priority::Normal < Priority::Urgent);
/// assert_eq!(Priority::default().to_string(), "normal");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Runs when no other G wants the CPU, and in one slice of 61.
    Background,
    /// As Go's goroutines.
    #[default]
    Normal,
    /// Runs at once when it is readied, and has up to a third of a CPU that normal Gs want.
    Urgent,
}

impl Priority {
    /// All of them, lowest first.
    pub const ALL: [Priority; 3] = [Priority::Background, Priority::Normal, Priority::Urgent];

    /// Its word, for reports and commands.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Priority::Background => "background",
            Priority::Normal => "normal",
            Priority::Urgent => "urgent",
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Priority::Background => BACKGROUND,
            Priority::Normal => 0,
            Priority::Urgent => URGENT,
        }
    }

    const fn of_bits(bits: u32) -> Self {
        // One of the two is set at most.
        match (bits & URGENT, bits & BACKGROUND) {
            (0, 0) => Priority::Normal,
            (0, _) => Priority::Background,
            _ => Priority::Urgent,
        }
    }
}

impl core::fmt::Display for Priority {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.as_str())
    }
}

// In `G::home`.
const URGENT: u32 = 1 << 9;
const BACKGROUND: u32 = 1 << 10;
/// The rank.
pub(crate) const RANKED: u32 = URGENT | BACKGROUND;
/// From the rank to the priority.
const PRIORITY_SHIFT: u32 = 2;
const BOTH: u32 = RANKED | RANKED << PRIORITY_SHIFT;

/// The bits of `G::home` for a new G.
pub(crate) const fn at_start(priority: Priority, rank: Priority) -> u32 {
    rank.bits() | priority.bits() << PRIORITY_SHIFT
}

// In the length of the global queue.
/// A lane has a G: one of those below, or of those of `share`.
pub(crate) const HAS_RANKED: usize = 1 << 63;
const HAS_URGENT: usize = 1 << 62;
const HAS_BACKGROUND: usize = 1 << 61;
pub(crate) const HAS_SHARED: usize = 1 << 60;
const HAS_ANY: usize = HAS_URGENT | HAS_BACKGROUND | HAS_SHARED;
/// How many normal Gs wait.
pub(crate) const NORMAL_LEN: usize = HAS_SHARED - 1;

impl<K: 'static> G<K> {
    /// The priority that its program gave it. Any CPU.
    #[must_use]
    pub fn priority(&self) -> Priority {
        Priority::of_bits(self.home.load(Relaxed) >> PRIORITY_SHIFT)
    }

    /// The priority that counts: its own, or that of a G that waits for it. Any CPU.
    #[must_use]
    #[inline(always)]
    pub fn rank(&self) -> Priority {
        Priority::of_bits(self.home.load(Relaxed))
    }
}

impl<K: 'static> Handle<K> {
    /// Sets priority and rank of that life; false if it is over. A G that waits in a queue stays
    /// where it is. Callers: one at a time, and not while a G starts that is not normal; a system that
    /// does not promise priorities has one rank, the normal one.
    pub fn set_rank(&self, priority: Priority, rank: Priority) -> bool {
        let Some(g) = self.get() else { return false };
        let bits = at_start(priority, rank);
        let mut home = g.home.load(Relaxed);
        while let Err(now) =
            g.home.compare_exchange_weak(home, home & !BOTH | bits, AcqRel, Relaxed)
        {
            home = now;
            spin_loop();
        }
        let is_same = self.get().is_some();
        if !is_same {
            // The record may serve another life, which is normal, or will store its own word.
            g.home.fetch_and(!BOTH, Relaxed);
        }
        is_same
    }
}

/// The Gs of one rank that wait for any P. Changed under the lock of the global queue.
struct Lane<K: 'static> {
    head: Link<K>,
    tail: Link<K>,
}

/// The lanes of the ranks other than normal.
pub(crate) struct Lanes<K: 'static> {
    urgent: Lane<K>,
    background: Lane<K>,
}

impl<K: 'static> Lanes<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Lanes {
                urgent: Lane { head: Link::null(), tail: Link::null() },
                background: Lane { head: Link::null(), tail: Link::null() },
            }
        }
    }

    /// The lane of that rank, and its flag in the length.
    fn of(&self, rank: Priority) -> (&Lane<K>, usize) {
        match rank {
            Priority::Urgent => (&self.urgent, HAS_URGENT),
            _ => (&self.background, HAS_BACKGROUND),
        }
    }
}

impl<K: Sync + 'static> GlobalQueue<K> {
    /// Whether a G waits in a lane, also in one of a program. Without the lock.
    #[inline(always)]
    pub(crate) fn has_ranked(&self) -> bool {
        self.len.load(Acquire) & HAS_RANKED != 0
    }

    /// Whether a G waits in the lane of that rank. Without the lock.
    pub(crate) fn has(&self, rank: Priority) -> bool {
        self.len.load(Acquire) & self.lanes.of(rank).1 != 0
    }

    /// Appends a G to the lane of that rank.
    fn push_ranked(&self, rank: Priority, g: &'static G<K>) {
        let (lane, flag) = self.lanes.of(rank);
        g.next.store(None, Relaxed);
        self.lock.with(|| {
            match lane.tail.load(Relaxed) {
                Some(tail) => tail.next.store(Some(g), Relaxed),
                None => lane.head.store(Some(g), Relaxed),
            }
            lane.tail.store(Some(g), Relaxed);
            self.len.store(self.len.load(Relaxed) | flag | HAS_RANKED, Release);
        });
    }

    /// Takes the oldest G of the lane of that rank. An empty lane costs one load and no lock.
    fn pop_ranked(&self, rank: Priority) -> Option<&'static G<K>> {
        let (lane, flag) = self.lanes.of(rank);
        if !self.has(rank) {
            return None;
        }
        self.lock.with(|| {
            let first = lane.head.load(Relaxed)?;
            let second = first.next.load(Relaxed);
            lane.head.store(second, Relaxed);
            if second.is_none() {
                lane.tail.store(None, Relaxed);
                self.clear_if_empty(lane, flag);
            }
            first.set_expired(false);
            Some(first)
        })
    }

    /// Takes `g` out of the lane that it is in, if it is in one (`raise`).
    pub(crate) fn take_ranked(&self, g: &'static G<K>) -> bool {
        [Priority::Urgent, Priority::Background].into_iter().any(|rank| {
            let (lane, flag) = self.lanes.of(rank);
            self.has(rank)
                && self.lock.with(|| {
                    let mut before = None;
                    let mut at = lane.head.load(Relaxed);
                    while let Some(here) = at
                        && !core::ptr::eq(here, g)
                    {
                        (before, at) = (at, here.next.load(Relaxed));
                    }
                    let Some(found) = at else { return false };
                    let next = found.next.load(Relaxed);
                    match before {
                        Some(before) => before.next.store(next, Relaxed),
                        None => lane.head.store(next, Relaxed),
                    }
                    if next.is_none() {
                        lane.tail.store(before, Relaxed);
                    }
                    self.clear_if_empty(lane, flag);
                    found.set_expired(false);
                    true
                })
        })
    }

    /// Clears the flag of a lane that is empty. Under the lock.
    fn clear_if_empty(&self, lane: &Lane<K>, flag: usize) {
        if lane.head.load(Relaxed).is_none() {
            self.clear_flag(flag);
        }
    }

    /// Clears that flag. Under the lock.
    pub(crate) fn clear_flag(&self, flag: usize) {
        let len = self.len.load(Relaxed) & !flag;
        self.len.store(if len & HAS_ANY == 0 { len & !HAS_RANKED } else { len }, Release);
    }

    /// The Gs of the lane of that rank. For a census.
    pub(crate) fn ranked(&self, rank: Priority) -> impl Iterator<Item = &'static G<K>> {
        let first = self.lanes.of(rank).0.head.load(Relaxed);
        core::iter::successors(first, |g| g.next.load(Relaxed))
    }
}

impl<K: Sync + 'static> P<K> {
    /// Says whether the running G of this P may be displaced by an urgent one now, and the P may
    /// take an urgent G next: it has lent less than it may, and no urgent G runs. For
    /// [`Sched::arrive`] and [`Sched::find_runnable`].
    pub fn set_lends(&mut self, lends: bool) {
        self.lends = lends;
    }

    /// Whether that is so still: false after an arrival that displaces because it is urgent.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.lends
    }

    /// The first of its pinned Gs that are urgent.
    pub(crate) fn pop_urgent(&mut self) -> Option<&'static G<K>> {
        let g = self.urgent.pop()?;
        g.set_expired(false);
        // A G that was displaced by it, or has yielded to it, is one more that others can take.
        self.marks.set(Marks::OWES_WAKE);
        Some(g)
    }
}

/// The slow ways of Gs that are not normal.
impl<K: Sync + 'static> Sched<K> {
    /// Whether a G waits in a lane: one that is not normal, or of a program while shares are in force.
    /// Then a P is asked by [`P::set_lends`] before it looks for a G.
    #[must_use]
    #[inline(always)]
    pub fn has_ranked(&self, p: &P<K>) -> bool {
        p.marks.has(Marks::RANKED) || self.global.has_ranked()
    }

    /// `submit` for a G of that rank, if it is not normal; not for a guided one.
    #[cold]
    pub(crate) fn submit_ranked(&self, p: &P<K>, g: &'static G<K>) -> Option<Wake> {
        match g.rank() {
            Priority::Urgent => {
                let is_free = |&at: &usize| self.slots[at].inbox.is_empty();
                let free = || self.idle.idle_ps(self.limit()).find(is_free);
                let wake = self.send_to_inbox(g.pin().or_else(free).unwrap_or(p.index), g);
                Some(if planted!(UrgentUnsent) { Wake::Nobody } else { wake })
            }
            Priority::Background if g.pin().is_none() => {
                self.global.push_ranked(Priority::Background, g);
                if planted!(BackgroundUnseen) {
                    return Some(Wake::Nobody);
                }
                Some(self.wake_for_global(p))
            }
            _ => None,
        }
    }

    /// An urgent G arrives: it displaces if the P lends, else it waits in its lane. False: it is
    /// another, and nothing was done.
    #[cold]
    pub(crate) fn admit_urgent(&self, p: &mut P<K>, g: &'static G<K>, displace: &mut bool) -> bool {
        if g.is_guided() || g.rank() != Priority::Urgent {
            return false;
        }
        if !p.lends || p.index >= self.limit() {
            return self.push_ranked(p, g);
        }
        (p.lends, *displace) = (false, true);
        p.marks.set(Marks::OWES_WAKE); // a thief may take it, or the G that it takes the slot from
        if g.pin().is_some() {
            return self.push_ranked(p, g);
        }
        if let Some(old) = p.runq.swap_next(g) {
            self.push(p, old, crate::system::Why::Readied);
        }
        true
    }

    /// Puts a G of that rank into its lane, or to the urgent Gs pinned here. False: it is normal, or
    /// pinned and not urgent, and nothing was done.
    #[cold]
    pub(crate) fn push_ranked(&self, p: &mut P<K>, g: &'static G<K>) -> bool {
        match (g.rank(), g.pin()) {
            (Priority::Urgent, Some(cpu)) => {
                assert!(cpu == p.index, "wrong cpu");
                p.urgent.push(g);
                p.marks.set(Marks::RANKED);
            }
            (Priority::Urgent, None) => {
                self.global.push_ranked(Priority::Urgent, g);
                p.marks.set(Marks::RANKED | Marks::OWES_WAKE);
            }
            (Priority::Background, None) => {
                self.global.push_ranked(Priority::Background, g);
                p.marks.set(Marks::OWES_WAKE);
            }
            (Priority::Normal, _) | (Priority::Background, Some(_)) => return false,
        }
        true
    }

    /// Looks for a G that comes before those of the P's own queue: an urgent one if the P lends, or
    /// a background one in its turn.
    #[cold]
    pub(crate) fn find_first(&self, p: &mut P<K>) -> Option<Found<K>> {
        let borrows = p.has_displaced();
        if p.lends {
            let urgent = p.pop_urgent().or_else(|| self.global.pop_ranked(Priority::Urgent));
            if p.urgent.is_empty() && !self.global.has(Priority::Urgent) {
                p.marks.take(Marks::RANKED);
            }
            if let Some(g) = urgent {
                p.marks.set_if(Marks::LENT, !borrows);
                return Some((g, if borrows { Slice::Inherited } else { Slice::Lent }));
            }
        }
        if borrows || !p.tick().is_multiple_of(GLOBAL_CHECK_EVERY) {
            return None;
        }
        let background = self.global.pop_ranked(Priority::Background)?;
        p.marks.set(Marks::ALONE); // the turn of the global queue follows
        Some((background, Slice::New))
    }

    /// Takes any G that is not normal: there is no other.
    #[cold]
    pub(crate) fn find_last(&self, p: &mut P<K>) -> Option<Found<K>> {
        let lanes = || {
            let urgent = self.global.pop_ranked(Priority::Urgent);
            urgent.or_else(|| self.global.pop_ranked(Priority::Background))
        };
        p.pop_urgent().or_else(lanes).map(|g| (g, Slice::New))
    }

    /// A P beyond the limit halts: if an urgent G waits that this P would have looked for, and no
    /// idle P was woken, P 0 gets it, and with it the mark.
    #[cold]
    pub(crate) fn pass_on_urgent(&self, wake: Wake) -> Wake {
        let urgent =
            if wake == Wake::Nobody { self.global.pop_ranked(Priority::Urgent) } else { None };
        urgent.map_or(wake, |g| self.send_to_inbox(0, g))
    }

    /// Takes a list of Gs apart: those that may go to a ring stay in it.
    pub(crate) fn push_ranked_of(&self, p: &mut P<K>, list: List<K>) -> List<K> {
        let (mut list, mut rest) = (list, List::new());
        while let Some(g) = list.pop() {
            if !self.push_ranked(p, g) {
                rest.push(g);
            }
        }
        rest
    }
}
