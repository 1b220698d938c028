//! Which G runs next, and where: the Go scheduler's decisions, with no machine.
//!
//! This crate holds the run queues, the rules by which Gs are found, stolen and
//! dealt out, and the protocol by which CPUs go to sleep and are woken. It
//! is told what happened and answers with a decision that the kernel carries out:
//! it has no machine, no clock and no allocator, so all of it runs on the host.
//!
//! # The three letters
//!
//! - **G** ([`G`]): a task with a stack of its own. A G is never freed, only
//!   recycled, so `&'static G` is valid everywhere and queues are links and
//!   pointers. One word holds its state; the state says which CPU may touch it
//!   ([`Status`]).
//! - **M**: an execution context of the kernel with a stack on which scheduling
//!   happens. This crate has no M: the M is the caller.
//! - **P** ([`P`]): the right to run Gs, with a local queue. It is a value that
//!   is moved, never shared; the M that has it may push and pop, other Ms may
//!   only steal. In the steady state P *i* is with the M on CPU *i*.
//!
//! # How the kernel calls
//!
//! 1. **Bring-up.** CPU *i* calls [`Sched::acquire`] once and keeps the [`P`].
//! 2. **A G makes or readies another**, interrupts off, so that it stays on
//!    its P: [`Sched::take_dead`] or a new G, set it up, [`Sched::start`]; or
//!    [`Sched::ready`]. Carry out the [`Wake`]: interrupt that CPU, and each of
//!    [`Sched::take_untimed`]. Ask [`Sched::needs_timer`] if no timer runs.
//! 3. **An interrupt** readies Gs by [`Sched::ready_from_interrupt`]; every
//!    handler, also that of the interrupts of 2, ends with [`Sched::arrive`]
//!    and, if it came upon a G, [`Sched::needs_timer`].
//! 4. **The next G**, on the M's stack, interrupts off throughout: [`Sched::find_local`], and
//!    if that finds none [`Sched::find_runnable`] → [`Next::Run`]: send the wake-up; see to the
//!    [`Run::slice`] and its timer; switch to the G. → [`Next::Park`]: send the
//!    wake-up, `sti; hlt` in one step, `cli`, and round again.
//! 5. **A G stops**: it switches to the M's stack, its context saved, and the M says why:
//!    [`Sched::exited`], [`Sched::expired`], [`Sched::displaced`], [`G::finish_park`] (if that
//!    fails, [`Sched::put_back`]); then 4. Two methods take the next G in the same step, in the
//!    common case: [`Sched::rotate`] if the G yields, and [`Sched::expire`] if its slice is over
//!    and only such Gs wait. To park, the G first calls [`G::begin_park`], *then* publishes that it
//!    waits (unlocks the channel), *then* switches; a `ready` that comes after `begin_park` is
//!    recorded. Or it publishes its handle ([`G::to_park`]), switches with the lock still held, and
//!    the M calls [`G::park_locked`] and frees the lock.
//!
//! # Submitting
//!
//! A CPU that makes a G runnable (`Sched::submit`)
//!
//! 1. puts the G into a queue;
//! 2. fence;
//! 3. if a P spins, or no P is idle: done;
//! 4. else raises the spinning count (0 → 1; a CPU that loses this race is done),
//!    claims an idle P by clearing its bit, and wakes its CPU, which thus begins
//!    as a spinner. If no idle P is left, it lowers the count and goes to 2,
//!    because another submitter may have stopped at 3 on account of that count.
//!
//! So a burst of submits wakes one CPU, not one for each G; the woken CPU wakes the
//! next one if it finds a G ("Spinning").
//!
//! # Parking
//!
//! A P that has found no G in any queue (`Idle::park`)
//!
//! 1. sets its idle bit; stops being counted as spinning, if it was;
//! 2. fence;
//! 3. checks every queue again: global queue, local queues of all busy Ps (`idle`
//!    says why these are enough);
//! 4. if all are empty: halts. If one is not and the P may spin: clears its own
//!    bit and searches again. If it may not spin, another P already spins: halts.
//!
//! **No wake-up is lost.** Of two fences one is first. If the submitter's is, the
//! check at 3 sees the G. If the parker's is, the submitter sees the idle bit, and
//! either wakes a CPU or stops because a P spins. A spinning P stops in one of two
//! ways, both with a fence *after* the count went down, hence after the
//! submitter's: by parking, whose check at 3 sees the G; or by finding a G, after
//! which it does "Submitting" from 2 on and wakes another CPU if a P is idle. The
//! same argument covers the parker that may not spin at 4. The halt itself loses
//! nothing because interrupts are off from before 1 until `sti; hlt`: a wake-up
//! sent meanwhile is pending and ends the halt.
//!
//! **A G in transit** from one queue to another may be in neither when the parker
//! checks. Either it is put into the second before it leaves the first, and the
//! parker checks in that order (`RunQueue::len`, `Sched::has_work`); or the P that
//! moves it owes the submitter's steps once more (`Marks::OWES_WAKE`).
//!
//! # Spinning
//!
//! A P that searches other Ps for work is counted as spinning, and at most half as
//! many spin as are busy (one always may). A P that spins and finds a G stops
//! spinning and *then* wakes another if no P spins and one is idle: so CPUs are
//! woken one by one, each by the one before, as long as there is work for them. A
//! woken P is counted from the moment it is claimed, before its interrupt arrives. In which order
//! Ps are searched, and which idle P is woken, is open; where CPUs are not equally far from one
//! another, [`near`] says.
//!
//! # The inbox
//!
//! A G that must go to one CPU (pinned there, readied by an interrupt there, or in a call
//! and that CPU is idle) goes to that CPU's inbox, and that CPU is interrupted if the inbox
//! was empty, whether it is idle or not. If it was not empty, the sender that found
//! it empty has sent the interrupt or is about to. No idle bit is needed: the
//! interrupt is pending if the CPU was about to halt. An M empties its inbox after
//! a halt, else only when its own queue is empty ([`Order`]): the interrupt handler
//! empties it too.
//!
//! # A G in a call
//!
//! A G that blocks in a call does so on the stack of its M, and is bound to that M
//! until it is out of the call: the CPU that runs the G next puts that M in place of
//! its own, which takes it a few stores. So a G in a call is queued and stolen as any
//! other; only when it is readied it goes to its old P if that is idle, where its data
//! is ([`G::enter_call`], [`G::exit_call`]). A CPU may also keep G
//! and P and halt until the call is over, as in Go ([`G::halt_on`], `sysmon`); the
//! G's state word then names that CPU, so that the CPU that readies the G cannot
//! miss that it must be interrupted.
//!
//! # Displacing
//!
//! A G that an interrupt readies while no P is idle and none spins runs at once, on the interrupted
//! CPU: [`Sched::arrive`] puts it into the run-next slot, and the running G is displaced
//! ([`Sched::displaced`]) into a slot behind that. The displaced G resumes before the ring, with
//! the rest of its slice ([`Slice::Resumed`]), when the borrower that displaced it stops: its slice
//! is lent, not lost. Of each slice the kernel lends half at most; when that is over the borrower
//! goes to the ring's tail ([`Sched::expired`]) with its run-next, and the displaced G resumes. A
//! wake-up that comes during a loan runs at once as well, and sends the borrower to the ring's
//! tail. Pinned Gs can be displaced, but displace no G: a thief may take the run-next slot.
//!
//! # Fairness: what is promised
//!
//! With every CPU busy, counted in slices that begin on one P. Each lasts as
//! long as the kernel says, and half as long again at most if it was lent. 61 is
//! [`GLOBAL_CHECK_EVERY`].
//!
//! - **Local queue.** Of a G with *k* Gs before it in the ring, the slice is at
//!   most the (*n* + ⌈*n* / 60⌉)th to begin, *n* = *k* + 1: run-next chains and
//!   loans are part of the slice under way and end with it, and one in 61 is the
//!   global queue's. Four times that while Gs pinned to this CPU wait as well.
//! - **Global queue.** Of a G with *k* before it, the slice is at most the
//!   (*k* + 1) · 61st to begin on any one P: each takes one in its turn, or more,
//!   which then wait in its ring. About the (*k* / P)th when the local queues are
//!   empty, as they are when all Gs are hogs; and a G that yields alone on its P
//!   lets the global queue through at once.
//! - **Hogs** go round in one circle: a G whose slice ran out is taken alone,
//!   oldest first. If the slices of all CPUs end in the same order each time, any
//!   two hogs differ by at most two slices, for ever. A hog whose slice ends later
//!   than the others' is overtaken by P - 1 of them at most, in each round of the
//!   circle: by chance that is a random walk (4 slices in 2 s), and at the very
//!   worst *n* hogs share as 1 to *n* / (*n* + P - 1).
//!
//! - **Priorities.** Urgent Gs run at once and have a third of a P that others want; background Gs
//!   have its idle time, and one slice in 61: `priority`.
//! - **CPU shares** of programs, while one has another share than the default: `share`.
//!
//! Not promised: any order between Gs of different queues; that a G stays on its P;
//! that a G keeps its place when its ring overflows; anything while a program keeps
//! a P beyond its slice in a section where it may not be preempted.
//!
//! # What was rejected
//!
//! - **One queue under one lock**: fair and simple, and every CPU waits for
//!   every other. It serves only Gs that no P holds.
//! - **Handing a G directly to an idle CPU**: it moves away from its data, while
//!   its parent is often about to wait and could have run it at once; and each
//!   submit would cost an interrupt.
//! - **A G in a call to another idle P, else to the global queue**, as Go's exitsyscall
//!   does. There the M of the call is a thread without a P. Here a CPU that has one
//!   readies it.
//! - **Waking on every submit**: most woken CPUs would find nothing. **Never
//!   waking, only spinning**: eight spinning CPUs on two host cores starve each
//!   other; an idle CPU must halt.
//! - **A second check by spinners only**, as in Go, which closes the hole that
//!   remains with one more flag (`needspinning`) under its lock; a park that ends
//!   in `hlt` can afford the check.
//! - **Waiting, when a G is readied, until it is off its stack**: two CPUs can
//!   do that to each other with interrupts off. The CPU that parks the G puts it
//!   back instead ([`Status`], transition 8).
//! - **A G in a batch when its slice ran out** (`GlobalQueue`): unfair for ever.
//! - **A yield to the global queue**, as in Go: a lock for each yield, and
//!   nothing gained, for the G is as far from running as its P's ring is long.
//! - **A run-next slot that cannot be stolen**: its G waits for a whole slice
//!   while CPUs idle.
//! - **Wake-ups at the ring's tail**, as of Go's netpoller: a slice late for each
//!   G before them. **Wake-ups first, without a loan that ends**: a G that wakes
//!   often enough starves the rest.
//!
//! # How it is checked
//!
//! Event sequences, fairness in slices, host threads as CPUs (`tests/`), also under
//! Miri and ThreadSanitizer; all interleavings of small models (`loom_*`, a ring of
//! 4); seeded interleavings of 1 to 256 CPUs with store buffers, late interrupts
//! and slow CPUs, and planted mistakes that must be found (`sim`).
//!
//! # The files, in the order in which to read them
//!
//! `g` is a G and its state word, `list` links Gs (inbox, global queue), `runq` is the local queue,
//! `p` what comes with a P. `proc` has the decisions, `idle` parking and waking; begin there if you
//! know Go. [`near`], `priority` with `raise`, `start` and `sysmon` each add one rule, [`system`]
//! has the six systems. `sync`, `sim` and `told` are the memory that the code is checked in;
//! `census` finds every G that waits for a CPU, for the invariants.
//!
//! # Go's names and ours
//!
//! | Go                         | here                                             |
//! |----------------------------|--------------------------------------------------|
//! | `newproc`, `gfget`         | [`Sched::start`], [`Sched::take_dead`]           |
//! | `gdestroy`, `gfput`        | [`Sched::exited`], [`Sched::keep_dead`]          |
//! | `gopark`, `park_m`         | [`G::begin_park`], [`G::finish_park`]            |
//! | `parkunlock_c`             | [`G::park_locked`], and the kernel frees the lock |
//! | `goready`                  | [`Sched::ready`]                                 |
//! | `casgstatus`               | the transitions of [`Status`] (`G::step`)        |
//! | `schedule`, `findRunnable` | [`Sched::find_runnable`]                         |
//! | `runqput`                  | `Sched::submit`; [`Owner::push`]                 |
//! | `runqget`                  | [`Owner::take_next`], [`Owner::pop`]             |
//! | `runqgrab`, `runqsteal`    | [`Owner::steal`]                                 |
//! | `runqputslow`              | `Owner::take_half`                               |
//! | `globrunqget`              | `GlobalQueue::pop_batch`, `Sched::get_global`    |
//! | `globrunqput`              | `GlobalQueue::push`                              |
//! | `stealWork`                | `Sched::steal_work`                              |
//! | `wakep`, `resetspinning`   | `Sched::submit`, `Idle::wake_p`; `Sched::pay_wake` |
//! | `netpoll`, `injectglist`   | [`Sched::ready_from_interrupt`], [`Sched::arrive`] |
//! | `goschedImpl`              | [`Sched::rotate`]; preempted: [`Sched::expire`]  |
//! | `entersyscall`, `exitsyscall` | [`G::enter_call`], [`G::exit_call`]           |
//! | `sysmon`, `retake`         | [`Sysmon`], [`Sched::retake`]                    |
//! | `procresize`               | [`Sched::set_limit`]                             |
//!
//! Go's `entersyscall` and `handoffp` (the kernel's `call` and `hand_over`), `checkdead` (its
//! `deadlock`) and `sudog` (the node of its wait queues) are the kernel's: this crate has no M and
//! no wait queue.
//!
//! # Lock order
//!
//! There are two locks, that of the global queue with its lanes and that of the common store of
//! dead Gs. Neither is taken with the other held; both are taken with interrupts
//! off, after all of the kernel's; no function is called with one held.

#![no_std]
#![expect(clippy::new_without_default, reason = "statics need `const`, and nothing else is used")]

mod census;
mod g;
mod idle;
mod list;
pub mod near;
mod p;
mod priority;
mod proc;
mod raise;
mod runq;
mod share;
#[cfg(feature = "sim")]
pub mod sim;
mod start;
mod sync;
mod sysmon;
pub mod system;
#[cfg(loom)]
mod told;

pub use census::QueueName;
pub use g::{G, Handle, Kept, Status};
pub use list::{Inbox, List};
pub use p::{P, PSlot, Random, Slice};
pub use priority::Priority;
pub use proc::Order;
pub use runq::{Owner, RunQueue, Unrotated};
pub use share::{NoShare, Share, ShareLane};
pub use start::StartPlace;
pub use sysmon::Sysmon;

use idle::{Idle, PMask};
use list::GlobalQueue;
use raise::Raises;
use sync::{AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, const_fn};
use system::Rings;

/// The most Ps: one for each CPU that the kernel can have.
pub const MAX_P: usize = 256;

/// Gs in a local ring. A power of two. Small under loom and in the simulator, so
/// that their searches reach overflows.
pub const RUNQ_CAPACITY: usize = if cfg!(loom) {
    4
} else if cfg!(feature = "sim") {
    8
} else {
    1024
};

/// Gs that a full ring moves to the global queue (with the one that did not fit).
pub const RUNQ_HALF: usize = RUNQ_CAPACITY / 2;

/// The most that a thief takes.
pub const STEAL_MAX: usize = if RUNQ_HALF < 128 { RUNQ_HALF } else { 128 };

/// The most Gs that a P takes from the global queue at once.
pub const GLOBAL_BATCH_MAX: usize = STEAL_MAX;

/// Slices after which the global queue is checked before the local one. A prime, so
/// that it resonates with no program's own period.
pub const GLOBAL_CHECK_EVERY: u32 = if cfg!(feature = "sim") { 5 } else { 61 };

/// Rounds over all Ps that a thief makes before it gives up.
pub const STEAL_PASSES: u32 = if cfg!(loom) { 1 } else { 4 };

/// Spin hints that a thief waits before it takes a run-next G, about 1 to 4 µs: a G
/// that readies another is mostly about to park, and its P then runs the readied G.
pub const NEXT_GRACE_SPINS: u32 = if cfg!(any(loom, miri)) {
    1
} else if cfg!(feature = "sim") {
    2
} else {
    32
};

/// The default time slice, in nanoseconds.
pub const SLICE_NS: u64 = 10_000_000;

/// Dead Gs that move between a P and the common store at once; a P keeps at most
/// twice as many.
pub const FREE_PILE: usize = 32;

/// Ids that a P takes from the common counter at once.
pub const ID_BATCH: u64 = 16;

/// The CPU to wake: the kernel sends it an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a wake-up that is not sent is lost"]
pub enum Wake {
    /// No CPU needs to be woken.
    Nobody,
    /// The CPU with the P of this index. If it is the caller's own, it is enough to
    /// check the inbox again.
    Cpu(usize),
}

impl Wake {
    /// As one word, and back: for functions that are called rarely in a path that nearly always
    /// ends with [`Wake::Nobody`]. The compiler does not take a pair that such a function returns
    /// apart, and would then test the constant of that path, too.
    #[inline(always)]
    const fn to_word(self) -> usize {
        match self {
            Wake::Nobody => 0,
            Wake::Cpu(cpu) => cpu + 1,
        }
    }

    #[inline(always)]
    const fn from_word(word: usize) -> Self {
        match word.checked_sub(1) {
            None => Wake::Nobody,
            Some(cpu) => Wake::Cpu(cpu),
        }
    }
}

/// The result of an interrupt for a P; see [`Sched::arrive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a wake-up that is not sent is lost"]
pub struct Arrival {
    /// The CPU to wake.
    pub wake: Wake,
    /// A G waits in the run-next slot that no other P can take at once. If the
    /// interrupt hit a G that may be preempted, and wake-ups have had less than
    /// their share of its slice, that G is to leave ([`Sched::displaced`]). If not,
    /// nothing is lost.
    pub displace: bool,
}

/// A P's next step.
#[must_use = "the G, or the wake-up, would be lost"]
pub enum Next<K: 'static> {
    /// Run a G.
    Run(Run<K>),
    /// Send the wake-up, then halt until an interrupt comes.
    Park(Wake),
}

/// A G to be run, which is [`Status::Running`] from now on.
#[must_use = "the G would be lost"]
pub struct Run<K: 'static> {
    /// The G: switch to it.
    pub g: &'static G<K>,
    /// Which slice it runs on.
    pub slice: Slice,
    /// The CPU to wake first.
    pub wake: Wake,
}

/// The scheduler: the state that all Ps share.
///
/// ```
/// use sched::{G, Next, PSlot, Sched, Status};
///
/// static SLOTS: [PSlot<&str>; 2] = [const { PSlot::new() }; 2];
/// static SCHED: Sched<&str> = Sched::new(&SLOTS);
/// static HELLO: G<&str> = G::new("hello");
///
/// let mut p = SCHED.acquire(0, 42).expect("P 0 is free");
/// let _ = SCHED.start(&mut p, &HELLO, None);
/// let Next::Run(run) = SCHED.find_runnable(&mut p) else { panic!("nothing to run") };
/// assert_eq!(run.g.kernel, "hello");
/// assert!(SCHED.exited(&mut p, run.g));
/// assert_eq!(HELLO.status(), Status::Dead);
/// assert!(matches!(SCHED.find_runnable(&mut p), Next::Park(_)));
/// ```
///
/// Grouped by what writes a field and how often, each group on cache lines of its own
/// ([`Lines`]): so the words that every turn reads (`limit`, the length of the global
/// queue) do not leave a CPU's cache when another CPU parks or starts a G.
#[repr(C)]
pub struct Sched<K: 'static> {
    // Constant, or written once in a while; every turn reads it.
    slots: &'static [PSlot<K>],
    /// One more than the highest index of an acquired P.
    acquired: AtomicUsize,
    limit: AtomicUsize,
    order: AtomicU32,
    start_place: AtomicU32,
    raises: Raises,
    // Written when a P parks or is woken, by the protocol in `idle`; read by every submit.
    idle: Lines<Idle>,
    // Written when a P begins to run a G without a timer, by the protocol in `proc`.
    untimed: Lines<PMask>,
    // Written under its lock, by overflows and slices that end; every turn reads its length.
    global: Lines<GlobalQueue<K>>,
    // Written when a P has used up its batch of ids.
    next_id: Lines<AtomicU64>,
    // Written when an M is made that has a ring of its own; none in Go.
    rings: Lines<Rings<K>>,
}

/// A value on cache lines of its own: two of 64 bytes, as CPUs fetch them in pairs.
#[repr(align(128))]
pub(crate) struct Lines<T>(pub(crate) T);

impl<T> core::ops::Deref for Lines<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<K: Sync + 'static> Sched<K> {
    const_fn! {
        /// A scheduler over these Ps, at most [`MAX_P`] and at least one.
        #[must_use]
        pub fn new(slots: &'static [PSlot<K>]) -> Self {
            assert!(!slots.is_empty() && slots.len() <= MAX_P, "bad slots");
            Sched {
                slots,
                acquired: AtomicUsize::new(0),
                limit: AtomicUsize::new(slots.len()),
                order: AtomicU32::new(Order::Go as u32),
                start_place: AtomicU32::new(StartPlace::Here as u32),
                raises: Raises::new(),
                idle: Lines(Idle::new()),
                untimed: Lines(PMask::new()),
                global: Lines(GlobalQueue::new()),
                next_id: Lines(AtomicU64::new(0)),
                rings: Lines(Rings::new()),
            }
        }
    }

    /// The P of `index`, for the first caller only; it counts as busy from now on.
    /// `seed` starts the generator that orders its stealing.
    pub fn acquire(&self, index: usize, seed: u64) -> Option<P<K>> {
        let mut p = P::new(index, self.slots.get(index)?, &self.slots[0].free, seed)?;
        self.acquired.fetch_max(index + 1, AcqRel);
        self.idle.bring_up(index);
        p.marks.set_if(p::Marks::LIMITED, index >= self.limit());
        Some(p)
    }

    /// The slots of the Ps that exist, and perhaps of some that will: only these
    /// can have a G in their rings. On most machines they are far fewer than all
    /// slots.
    ///
    /// A CPU acquires its P before it puts a G into that P's ring. So a check that
    /// is late enough to see the G (essay, "Parking") sees the P as well.
    fn acquired(&self) -> &'static [PSlot<K>] {
        // Not under loom, which would explore this load at every step.
        let acquired = if cfg!(loom) { self.slots.len() } else { self.acquired.load(Acquire) };
        &self.slots[..acquired]
    }

    /// Sets the order in which Ps search for work; a boot option.
    pub fn set_order(&self, order: Order) {
        self.order.store(order as u32, Relaxed);
    }

    /// From now on choices that the rules leave open are random: where a P searches
    /// for work ([`Order::Random`]), and which idle P is woken. For tests that no
    /// code relies on these choices.
    pub fn be_random(&self, seed: u64) {
        self.set_order(Order::Random);
        self.idle.be_random(seed);
    }

    /// The number of Ps that run Gs.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Acquire) // pairs with `set_limit`
    }

    /// Sets the number of Ps that run Gs (`gomaxprocs`): the ones of lower index.
    /// At least one, at most all. Returns the CPUs that must be interrupted so that
    /// they notice.
    #[must_use = "these CPUs must be interrupted"]
    pub fn set_limit(&self, limit: usize) -> core::ops::Range<usize> {
        let limit = limit.clamp(1, self.slots.len());
        let old = self.limit.swap(limit, Release);
        old.min(limit)..old.max(limit)
    }

    /// The public part of each P, by index.
    #[must_use]
    pub fn slots(&self) -> &'static [PSlot<K>] {
        self.slots
    }

    /// Whether the P of `index` is idle at this instant. For diagnosis.
    #[must_use]
    pub fn is_idle(&self, index: usize) -> bool {
        index < self.slots.len() && self.idle.is_idle(index)
    }

    /// Numbers for statistics: each may be stale at once.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let waits = |rank: &_| self.global.has(*rank);
        let ranked = || [Priority::Urgent, Priority::Background].into_iter().filter(waits);
        Counts {
            global: self.global.len() + self.global.shares.len() + ranked().count(),
            spinning: self.idle.spinning.load(Relaxed) as usize,
            busy: self.idle.busy(self.limit()),
        }
    }
}

/// See [`Sched::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Gs in the global queue; a lane of a rank that is not empty counts as one.
    pub global: usize,
    /// Ps that spin.
    pub spinning: usize,
    /// Ps that are up, below the limit and not idle.
    pub busy: usize,
}

#[cfg(all(test, not(any(loom, feature = "sim"))))]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn each_group_of_fields_has_cache_lines_of_its_own() {
        type S = Sched<()>;
        let read_every_turn = [
            offset_of!(S, slots),
            offset_of!(S, acquired),
            offset_of!(S, limit),
            offset_of!(S, order),
        ];
        assert!(read_every_turn.iter().all(|at| at / 128 == 0));
        let groups = [
            offset_of!(S, idle),
            offset_of!(S, untimed),
            offset_of!(S, global),
            offset_of!(S, next_id),
        ];
        for (i, at) in groups.into_iter().enumerate() {
            assert_eq!(at % 128, 0, "a group begins a line");
            assert!(at > 0 && !groups[..i].contains(&at));
        }
        assert_eq!(align_of::<S>(), 128);
    }
}
