//! CPU shares: two programs at 300 and 100 get three quarters and one quarter of the CPUs.
//!
//! A program has a *share*, 100 unless it was started with another. While every program has 100 no
//! code here runs. As soon as one has another, shares are *in force*: each program has a *lane* in
//! the global queue, and the Gs of all programs wait there and nowhere else. A P that looks for a G
//! takes it from the lane whose program has used least in proportion to its share: stride
//! scheduling, with the time that was used in place of counted slices.
//!
//! # The mechanism
//!
//! Each lane has a number, its *pass*: what its program has used, divided by its share. A P takes
//! the oldest G of the lane with the lowest pass, of those that have Gs ([`GlobalQueue::pop_shared`]),
//! and adds the price of a whole slice at once; so the next P, a moment later, sees that a CPU is
//! given already, and 64 Ps that look at the same time do not all take from one lane. When the G
//! leaves its CPU the P pays the difference between that price and the time that the G has run
//! ([`Sched::end_share`]), before it looks for the next one.
//!
//! - **No program catches up the past.** A lane that had no G waiting, because the program is new,
//!   slept, or had fewer Gs than CPUs, comes back with the pass of the lane that was taken from last,
//!   if its own is lower. What it did not want then it does not get now. A pass that is higher stays:
//!   what was used is paid, also across a sleep.
//! - **Passes are kept relative to that one**, so no number grows with uptime: the lane that is taken
//!   from has 0, and all others move back by what it had (`ahead`). A program that alone has used
//!   the CPUs for a day has no debt from it, and the next one that starts has no credit.
//! - **At most two slices are paid for one run.** A G runs on beyond its slice only while no other G
//!   waits (`proc`, "The slice timer"), and time that no other G wanted costs nothing.
//!
//! The lanes are part of the global queue, as those of `priority` are: one lock, and a flag in its
//! length. So all arguments of the essay about wake-ups, timers and parking hold for a G in a lane as
//! for any G there, and no other word is read by fast paths.
//!
//! # How it costs nothing while it is not in force
//!
//! The number of the lane is in bits of [`G::home`] that are otherwise 0, so the fast paths, which
//! test that word, send a G with a lane the slow way. The number there is a copy: the kernel sets it
//! when the G starts or begins to run, while shares are in force ([`Sched::begin_share`]; an
//! attention bit sends both the slow way). So no list of Gs is walked when shares come into force:
//! a running G has its lane when its slice is over, at the latest, and one that waits in a ring when
//! it has run once. When shares are no longer in force, a G with a lane goes to its lane no more, and
//! loses the number ([`Sched::lane_for`]).
//!
//! # What is promised
//!
//! Programs each of which always has a G waiting get CPU time as their shares, within a slice for each
//! CPU, over any time: so over 100 slices and more, within one in 100. It is time that is counted,
//! so it does not matter how many Gs a program has, how often they yield, park or start others, nor
//! what they had before: each of that gives more Gs in the same lane, or a lane that is taken from
//! more often for less. A program that wants less than its share gets what it wants: its G is next
//! when a slice ends on any CPU, as its pass is lowest. The rest goes to the others, as their shares.
//! Within a program Gs have their turns in the order in which they came.
//!
//! # What is not
//!
//! - **Gs outside the shares**: the kernel's, and those of the booted program (the shell), unless it
//!   has a share by a boot word. They wait in rings as ever, come before the lanes when they are
//!   readied, and take turns with the lanes when their slice is over.
//! - **Pinned Gs** wait at their P, and have every other slice of it. **Urgent** ones displace, and have
//!   a third of it. Both are paid for by their program: its other Gs wait for longer, but those that
//!   are pinned or urgent do not. **Background** Gs have what is left, and cost nothing.
//! - **Programs that start programs**: each has a share of its own, as large as its starter says.
//! - **Time in interrupts and in the scheduler** is paid by the G that runs next, as in all reports.
//! - **Speed.** While shares are in force each switch of a program's G takes the lock of the global
//!   queue three times, no G runs next where it was readied, and none is displaced for it: as under
//!   `system=shared`, which is good enough for programs that compute, and slow for Gs that talk. A
//!   yield gives way to Gs of the same program, and to others only as the shares say.
//!
//! # What was rejected
//!
//! - **Lanes for Gs whose slice is over alone**, with rings for all others: a program that yields
//!   before its slice is over, or starts a new G for each millisecond of work, would stay in the rings,
//!   and have as much as it likes. Time is counted wherever it is used, so there is no such trick.
//! - **Longer slices for larger shares**, or more turns in a ring: the share would then be that of a
//!   G, and a program with ten times the Gs would have ten times the time.
//! - **A lottery**: simple, and right on average; it needs 10,000 slices to be right within 1 %.
//! - **A share of each CPU**: a program with fewer Gs than CPUs could not use it.

use crate::g::G;
use crate::list::{GlobalQueue, Link};
use crate::p::{P, Slice};
use crate::priority::{HAS_RANKED, HAS_SHARED, Priority};
use crate::proc::Found;
use crate::sync::{
    Acquire, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, array_of, const_fn,
    spin_loop,
};
use crate::{SLICE_NS, Sched};
use core::fmt;
use core::str::FromStr;

/// How much of the CPUs a program gets, in proportion to the others.
///
/// ```
/// use sched::Share;
/// assert_eq!(Share::default().get(), 100);
/// assert_eq!("300".parse(), Ok(Share::new(300).unwrap()));
/// assert!(Share::new(0).is_none() && Share::new(10_001).is_none());
/// assert_eq!("x".parse::<Share>().unwrap_err().to_string(), "a share is a number from 1 to 10000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// That of a program that was started with no other.
    pub const DEFAULT: Share = Share(100);
    /// The most.
    pub const MAX: u16 = 10_000;

    /// A share from 1 to [`Share::MAX`].
    #[must_use]
    pub const fn new(share: u16) -> Option<Self> {
        match share {
            1..=Self::MAX => Some(Share(share)),
            _ => None,
        }
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Share {
    fn default() -> Self {
        Share::DEFAULT
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A word that is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoShare;

impl fmt::Display for NoShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a share is a number from 1 to {}", Share::MAX)
    }
}

impl core::error::Error for NoShare {}

impl FromStr for Share {
    type Err = NoShare;

    fn from_str(word: &str) -> Result<Self, NoShare> {
        // `parse` alone would accept a sign.
        let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
        let share = word.parse().ok().filter(|_| is_decimal);
        share.and_then(Share::new).ok_or(NoShare)
    }
}

/// How many lanes there are, and one more: no lane has the number 0.
const LANES: usize = if cfg!(loom) {
    2
} else if cfg!(feature = "sim") {
    5
} else {
    64
};
/// The last lane is for all programs that find no other one free.
const COMMON: usize = LANES - 1;

/// The number of a lane: see [`Sched::add_lane`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareLane(u8);

impl ShareLane {
    /// As a number; 0 for none.
    #[must_use]
    pub const fn number(lane: Option<Self>) -> u8 {
        match lane {
            None => 0,
            Some(ShareLane(number)) => number,
        }
    }

    /// The lane of that number.
    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        if number == 0 { None } else { Some(ShareLane(number)) }
    }

    fn index(self) -> usize {
        usize::from(self.0) % LANES
    }
}

// In `G::home`.
const LANE_SHIFT: u32 = 25;
/// The lane.
pub(crate) const LANE_MASK: u32 = 0x3f << LANE_SHIFT;
const _: () = assert!(LANES <= 64);

impl<K: 'static> G<K> {
    /// The lane that it waits in while shares are in force; in reports it may be stale.
    #[must_use]
    pub fn lane(&self) -> Option<ShareLane> {
        ShareLane::of_number(((self.home.load(Relaxed) & LANE_MASK) >> LANE_SHIFT) as u8)
    }

    /// Holder only; any CPU may change the ranks meanwhile.
    fn set_lane(&self, lane: Option<ShareLane>) {
        let bits = lane_bits(lane);
        let mut home = self.home.load(Relaxed);
        while home & LANE_MASK != bits
            && let Err(now) =
                self.home.compare_exchange_weak(home, home & !LANE_MASK | bits, Relaxed, Relaxed)
        {
            home = now;
            spin_loop();
        }
    }
}

/// The bits of `G::home`.
pub(crate) fn lane_bits(lane: Option<ShareLane>) -> u32 {
    u32::from(ShareLane::number(lane)) << LANE_SHIFT
}

/// The units of a pass in a cycle of a program with a share of 1.
const SCALE: i64 = 1 << 12;
/// So many slices are paid at most for one run.
const MOST_SLICES: u64 = 2;

/// The lanes. Written under the lock of the global queue.
pub(crate) struct Shares<K: 'static> {
    lanes: [Lane<K>; LANES],
    /// Which lanes have Gs: a bit each.
    waiting: AtomicU64,
    /// How many Gs wait in all of them. Read by any CPU.
    len: AtomicUsize,
    /// Cycles of a slice.
    slice: AtomicU64,
    /// Read by any CPU.
    in_force: AtomicBool,
}

struct Lane<K: 'static> {
    head: Link<K>,
    tail: Link<K>,
    /// How many programs have it.
    programs: AtomicU32,
    share: AtomicU32,
    /// How far its pass is ahead of that of the lane that was taken from last: an `i64`.
    ahead: AtomicU64,
    /// Another one for each program, and each time that shares come into force: a P pays for the
    /// program that it has run only.
    life: AtomicU32,
}

impl<K: 'static> Lane<K> {
    fn ahead(&self) -> i64 {
        self.ahead.load(Relaxed).cast_signed()
    }

    fn set_ahead(&self, ahead: i64) {
        self.ahead.store(ahead.cast_unsigned(), Relaxed);
    }

    /// So many cycles are used, or given back.
    fn pay(&self, cycles: i64) {
        let share = i64::from(self.share.load(Relaxed).max(1));
        self.set_ahead(self.ahead().saturating_add(cycles.saturating_mul(SCALE) / share));
    }

    fn is_free(&self) -> bool {
        self.programs.load(Relaxed) == 0
    }

    fn begin_life(&self) {
        self.life.store(self.life.load(Relaxed).wrapping_add(1), Relaxed);
        self.set_ahead(0);
    }
}

impl<K: Sync + 'static> Shares<K> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Shares {
                lanes: array_of![
                    Lane {
                        head: Link::null(),
                        tail: Link::null(),
                        programs: AtomicU32::new(0),
                        share: AtomicU32::new(0),
                        ahead: AtomicU64::new(0),
                        life: AtomicU32::new(0),
                    };
                    LANES
                ],
                waiting: AtomicU64::new(0),
                len: AtomicUsize::new(0),
                slice: AtomicU64::new(SLICE_NS),
                in_force: AtomicBool::new(false),
            }
        }
    }

    /// How many Gs wait in lanes. Without the lock.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Lanes have got other programs or shares.
    fn changed(&self) {
        let is_other = |lane: &Lane<K>| {
            !lane.is_free() && lane.share.load(Relaxed) != u32::from(Share::DEFAULT.0)
        };
        let is_in_force = self.lanes.iter().any(is_other);
        if is_in_force && !self.in_force.load(Relaxed) {
            self.lanes.iter().for_each(Lane::begin_life);
        }
        self.in_force.store(is_in_force, Release);
    }
}

/// The price of a slice is paid for a G that was taken from a lane.
struct Paid {
    lane: ShareLane,
    life: u32,
    cycles: u64,
}

/// What a P has to pay for the G that it runs.
struct Pays {
    /// When the G began to run, in cycles.
    since: u64,
    /// What is paid already.
    paid: Paid,
}

/// What a P keeps about shares.
pub(crate) struct Purse {
    pays: Option<Pays>,
    /// What was paid for the G that it has taken last.
    paid: Option<Paid>,
    /// The last G that it took from the global queue was one of a lane, and others waited.
    had_lane: bool,
}

impl Purse {
    pub(crate) const fn new() -> Self {
        Purse { pays: None, paid: None, had_lane: false }
    }
}

impl<K: Sync + 'static> GlobalQueue<K> {
    /// Whether a G waits in a lane of a program. Without the lock.
    #[inline(always)]
    pub(crate) fn has_shared(&self) -> bool {
        self.len.load(Acquire) & HAS_SHARED != 0
    }

    /// Appends a G to that lane.
    fn push_shared(&self, lane: ShareLane, g: &'static G<K>) {
        let shares = &self.shares;
        let to = &shares.lanes[lane.index()];
        g.next.store(None, Relaxed);
        self.lock.with(|| {
            match to.tail.load(Relaxed) {
                Some(tail) => tail.next.store(Some(g), Relaxed),
                None => {
                    to.head.store(Some(g), Relaxed);
                    to.set_ahead(to.ahead().max(0)); // it does not catch up the past
                    let waiting = shares.waiting.load(Relaxed) | 1 << lane.index();
                    shares.waiting.store(waiting, Relaxed);
                }
            }
            to.tail.store(Some(g), Relaxed);
            shares.len.store(shares.len.load(Relaxed) + 1, Relaxed);
            self.len.store(self.len.load(Relaxed) | HAS_SHARED | HAS_RANKED, Release);
        });
    }

    /// Takes the oldest G of the lane with the lowest pass, which pays for a slice.
    fn pop_shared(&self) -> Option<(&'static G<K>, Paid)> {
        let shares = &self.shares;
        self.lock.with(|| {
            let waiting = shares.waiting.load(Relaxed);
            let has_gs = |lane: &usize| waiting & 1 << lane != 0;
            let from = (1..LANES).filter(has_gs).min_by_key(|&lane| shares.lanes[lane].ahead())?;
            let lane = &shares.lanes[from];
            let first = lane.head.load(Relaxed)?;
            self.cut_shared(from, None, first);
            let ahead = lane.ahead();
            if ahead > 0 {
                for other in shares.lanes.iter().filter(|other| !other.is_free()) {
                    other.set_ahead(other.ahead().saturating_sub(ahead));
                }
            }
            let cycles = shares.slice.load(Relaxed);
            lane.pay(cycles.cast_signed());
            first.set_expired(false);
            let life = lane.life.load(Relaxed);
            Some((first, Paid { lane: ShareLane(from as u8), life, cycles }))
        })
    }

    /// Takes `g` out of the lane that it is in, if it is in one, and not behind `most` others (`raise`).
    pub(crate) fn take_shared(&self, g: &'static G<K>, most: usize) -> bool {
        self.has_shared()
            && self.lock.with(|| {
                (1..LANES).any(|lane| {
                    let mut before = None;
                    let mut at = self.shares.lanes[lane].head.load(Relaxed);
                    for _ in 0..most {
                        let Some(here) = at else { break };
                        if core::ptr::eq(here, g) {
                            self.cut_shared(lane, before, g);
                            g.set_expired(false);
                            return true;
                        }
                        (before, at) = (at, here.next.load(Relaxed));
                    }
                    false
                })
            })
    }

    /// Cuts `g` out of a lane, where it is behind `before`. Under the lock.
    fn cut_shared(&self, from: usize, before: Option<&'static G<K>>, g: &'static G<K>) {
        let (shares, lane) = (&self.shares, &self.shares.lanes[from]);
        let next = g.next.load(Relaxed);
        match before {
            Some(before) => before.next.store(next, Relaxed),
            None => lane.head.store(next, Relaxed),
        }
        if next.is_none() {
            lane.tail.store(before, Relaxed);
        }
        if before.is_none() && next.is_none() {
            shares.waiting.store(shares.waiting.load(Relaxed) & !(1 << from), Relaxed);
        }
        let left = shares.len.load(Relaxed) - 1;
        shares.len.store(left, Relaxed);
        if left == 0 {
            self.clear_flag(HAS_SHARED);
        }
    }

    /// The Gs of all lanes, with their lanes. For a census.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (&'static G<K>, u8)> {
        (1..LANES).flat_map(|lane| {
            let first = self.shares.lanes[lane].head.load(Relaxed);
            core::iter::successors(first, |g| g.next.load(Relaxed)).map(move |g| (g, lane as u8))
        })
    }
}

/// Lanes are given to programs.
impl<K: Sync + 'static> Sched<K> {
    /// A lane for a program with that share. If that makes [`Sched::shares_in_force`] true, the caller
    /// sees to it that [`Sched::begin_share`] is called. None: all lanes have programs. A program with
    /// the share of most shares the last lane with others then, so it always gets one.
    pub fn add_lane(&self, share: Share) -> Option<ShareLane> {
        let lanes = &self.global.shares.lanes;
        self.global.lock.with(|| {
            let free = (1..COMMON).find(|&at| lanes[at].is_free());
            let at = free.or_else(|| (share == Share::DEFAULT).then_some(COMMON))?;
            if lanes[at].is_free() {
                lanes[at].begin_life();
            }
            lanes[at].share.store(u32::from(share.0), Relaxed);
            lanes[at].programs.store(lanes[at].programs.load(Relaxed) + 1, Relaxed);
            self.global.shares.changed();
            Some(ShareLane(at as u8))
        })
    }

    /// The program that has that lane is over, and has no Gs left.
    pub fn remove_lane(&self, lane: ShareLane) {
        let lane = &self.global.shares.lanes[lane.index()];
        self.global.lock.with(|| {
            lane.programs.store(lane.programs.load(Relaxed) - 1, Relaxed);
            self.global.shares.changed();
        });
    }

    /// The program that has that lane is to end: from now on its Gs wait as briefly as those of any
    /// program, and what they have used counts no more. Not for a lane that programs have in common.
    pub fn hurry_lane(&self, lane: ShareLane) {
        if lane.index() == COMMON || !self.shares_in_force() {
            return;
        }
        let lane = &self.global.shares.lanes[lane.index()];
        self.global.lock.with(|| {
            lane.share.store(Share::MAX.into(), Relaxed);
            lane.set_ahead(0);
        });
    }

    /// Whether a program has another share than the default.
    #[must_use]
    pub fn shares_in_force(&self) -> bool {
        self.global.shares.in_force.load(Acquire) // pairs with `changed`
    }

    /// Sets the length of a slice, in the units of [`Sched::begin_share`].
    pub fn set_share_slice(&self, cycles: u64) {
        self.global.shares.slice.store(cycles, Relaxed);
    }
}

/// Gs go through the lanes, and their time is paid. All of it is cold while shares are not in force.
impl<K: Sync + 'static> Sched<K> {
    /// This P is about to run `g`, whose program has that lane: it pays from now on. Caller: as for
    /// [`Sched::find_runnable`], after that, while shares are in force. [`Sched::end_share`] follows
    /// when the G leaves.
    #[cold]
    pub fn begin_share(&self, p: &mut P<K>, g: &'static G<K>, lane: Option<ShareLane>, now: u64) {
        self.end_share(p, now);
        let paid = p.purse.paid.take();
        if g.is_guided() {
            return;
        }
        g.set_lane(lane);
        p.purse.pays = lane.filter(|_| g.rank() != Priority::Background).map(|lane| {
            let life = self.global.shares.lanes[lane.index()].life.load(Relaxed);
            let paid = paid.filter(|paid| paid.lane == lane && paid.life == life);
            Pays { since: now, paid: paid.unwrap_or(Paid { lane, life, cycles: 0 }) }
        });
    }

    /// The G that this P ran has left: what it has used is paid, if it was not before. Caller: the M,
    /// before it looks for another G, or halts.
    #[cold]
    pub fn end_share(&self, p: &mut P<K>, now: u64) {
        let Some(Pays { since, paid }) = p.purse.pays.take() else { return };
        let most = self.global.shares.slice.load(Relaxed).saturating_mul(MOST_SLICES);
        let used = now.saturating_sub(since).min(most);
        let lane = &self.global.shares.lanes[paid.lane.index()];
        self.global.lock.with(|| {
            if lane.life.load(Relaxed) == paid.life {
                lane.pay(used.cast_signed() - paid.cycles.cast_signed());
            }
        });
    }

    /// The lane that `g` is to wait in, if it is to; one of before is forgotten. Holder only.
    pub(crate) fn lane_for(&self, g: &'static G<K>) -> Option<ShareLane> {
        let lane = g.lane()?;
        if self.shares_in_force() {
            return Some(lane);
        }
        g.set_lane(None);
        None
    }

    /// Puts a normal G that is not pinned into its lane. False: it has none, and nothing was done.
    #[cold]
    pub(crate) fn push_to_lane(&self, g: &'static G<K>) -> bool {
        let lane = self.lane_for(g);
        if let Some(lane) = lane {
            self.global.push_shared(lane, g);
        }
        lane.is_some()
    }

    /// Takes a G of the program whose turn it is, unless it is the turn of the Gs outside of the
    /// shares: those that wait in the global queue have every other one.
    #[inline(always)]
    pub(crate) fn get_shared(&self, p: &mut P<K>) -> Option<Found<K>> {
        if self.global.has_shared() { self.get_shared_slow(p) } else { None }
    }

    #[cold]
    fn get_shared_slow(&self, p: &mut P<K>) -> Option<Found<K>> {
        let others = self.global.len();
        p.purse.had_lane = !p.purse.had_lane && others > 0;
        if !p.purse.had_lane && others > 0 {
            return None;
        }
        let (g, paid) = self.global.pop_shared()?;
        p.purse.paid = Some(paid);
        Some((g, Slice::New))
    }
}
