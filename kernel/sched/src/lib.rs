//! Who runs next: the Go scheduler's decisions, with no machine in them.
//!
//! This crate holds the run queues, the rules by which Gs are found, stolen and
//! dealt out, and the protocol by which CPUs go to sleep and are woken. It is
//! told what happened and answers with a decision that the kernel carries out:
//! it knows no machine, no clock and no allocator, so all of it runs on the host.
//!
//! # The three letters
//!
//! - **G** ([`G`]): a task with a stack of its own. Never freed, only used
//!   again, so `&'static G` is good everywhere and queues are links and
//!   pointers. What it is doing, and who may touch it, is one word ([`Status`]).
//! - **M**: an execution context of the kernel with a stack on which scheduling
//!   happens. This crate has no M: it is whoever calls.
//! - **P** ([`P`]): the right to run Gs, with a local queue. It is a value that
//!   is moved, never shared; the M that has it may push and pop, all others may
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
//! 4. **The loop of an M**, on its own stack, interrupts off throughout:
//!    [`Sched::find_runnable`] → [`Next::Run`]: send the wake-up; see to the
//!    [`Run::slice`] and its timer; switch to the G. → [`Next::Park`]: send the
//!    wake-up, `sti; hlt` in one step, `cli`, and round again.
//! 5. **A G stops**: it switches to the M's stack, its context saved, and the M
//!    calls one of [`Sched::yielded`], [`Sched::expired`], [`Sched::displaced`],
//!    [`Sched::parked`], [`Sched::exited`]; then 4. To park, the G first calls
//!    [`G::begin_park`], *then* lets others know that it waits (unlocks the
//!    channel), *then* switches; from `begin_park` on, readying is remembered.
//!
//! # Submitting
//!
//! A CPU that makes a G runnable (`Idle::wake_p`)
//!
//! 1. puts the G into a queue;
//! 2. fence;
//! 3. if somebody spins, or nobody is idle: done;
//! 4. else counts one as spinning (0 → 1; whoever loses this race is done),
//!    claims an idle P by clearing its bit, and wakes its CPU, which thus begins
//!    as a spinner. No idle P left: takes the count back and goes to 2, because
//!    others may have stopped at 3 on account of it.
//!
//! So a burst of submits wakes one CPU, not one for each G; the one that is
//! woken wakes the next if it finds something ("Spinning").
//!
//! # Parking
//!
//! A P that has found nothing in any place (`Idle::park`)
//!
//! 1. sets its idle bit; stops being counted as spinning, if it was;
//! 2. fence;
//! 3. looks at everything again: global queue, all local queues;
//! 4. if there is nothing: halts. If there is something and it may spin: clears
//!    its own bit and looks for it properly. If it may not spin, then somebody
//!    else does: halts.
//!
//! **No wake-up is lost.** Of two fences one is first. If the submitter's is,
//! the look at 3 sees the G. If the parker's is, the submitter sees the idle
//! bit, and either wakes somebody or stops because somebody spins. Who spins
//! stops in one of two ways, both with a fence *after* the count went down,
//! hence after the submitter's: by parking, whose look at 3 sees the G; or by
//! finding work, after which it does "Submitting" from 2 on and wakes another
//! if there is one. The same argument covers the parker that may not spin at 4.
//! The halt itself loses nothing because interrupts are off from before 1 until
//! `sti; hlt`: a wake-up sent meanwhile is pending and ends the halt.
//!
//! **A G on its way** from one place to another may be in neither when the
//! parker looks. Either it is put into the second before it leaves the first,
//! and the parker looks in that order (`RunQueue::len`, `Sched::has_work`); or
//! its mover owes the submitter's steps once more (`Marks::OWES_WAKE`).
//!
//! # Spinning
//!
//! A P that looks for work on other Ps is counted as spinning, and at most half
//! as many spin as are busy (one always may). A P that spins and finds work
//! stops spinning and *then* wakes another if nobody spins and somebody is
//! idle: so CPUs are woken one by one, each by the one before, as long as there
//! is work for them. A woken P is counted from the moment it is claimed, before
//! its interrupt arrives.
//!
//! # The inbox
//!
//! A G for one certain CPU (pinned there, readied by an interrupt there, out of
//! a call there) goes to that CPU's inbox, and that CPU is interrupted if the
//! inbox was empty, whether it is idle or not. If it was not empty, whoever
//! found it empty has sent the interrupt or is about to. No idle bit is needed:
//! the interrupt is pending if the CPU was about to halt. An M looks here after
//! a halt, else only when it finds nothing nearer ([`Order`]): the interrupt will.
//!
//! # A G in a call
//!
//! A G that blocks in a call does so on the stack of its M, and is bound to that
//! M until it is out of the call ([`G::enter_call`], [`G::exit_call`]): whoever
//! runs it puts that M in place of its own. That is no small thing to do in the
//! middle of somebody's slice. So when it is readied the G goes where nobody
//! runs: to its old P if that is idle, else to another that is, else to the
//! global queue. A CPU may also keep G and P and halt until the call is over, as
//! in Go ([`G::halt_on`], `sysmon`); it is then named in the G's state word, so
//! that who readies the G cannot miss that this CPU must be interrupted.
//!
//! # Displacing
//!
//! A G that an interrupt readies while no P is idle and none spins runs at
//! once, where the interrupt came: [`Sched::arrive`] puts it into the run-next
//! slot, and the running G is [`Sched::displaced`] into a slot behind that. From
//! there it goes on, before the ring, with what was left of its slice
//! ([`Slice::Resumed`]), when whoever displaced it stops: its slice is lent, not
//! lost. Of each slice the kernel lends half at most; when that is over the
//! borrower is [`Sched::expired`], goes to the ring's tail with its run-next, and
//! the displaced G goes on. A wake-up that comes during a loan runs at once as
//! well, and sends the borrower to the ring's tail. Pinned Gs can be displaced,
//! but displace nobody: a run-next slot can be robbed.
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
//!   empty, as they are when all Gs are hogs.
//! - **Hogs** go round in one circle: a G whose slice ran out is taken alone,
//!   oldest first. If the slices of all CPUs end in the same order each time, any
//!   two differ by at most two slices, for ever. Who ends later than others is
//!   overtaken by those, P - 1 of them at most, in each round of the circle: by
//!   chance that is a random walk (4 slices in 2 s), and at the very worst *n*
//!   hogs share as 1 to *n* / (*n* + P - 1).
//!
//! Not promised: any order between Gs of different queues; that a G stays on
//! its P; a place that a G had before its ring overflowed; anything while a
//! program keeps a P beyond its slice in a section where it may not be preempted.
//!
//! # What was rejected
//!
//! - **One queue under one lock**: fair and simple, and every CPU waits for
//!   every other. It is here only for what has no P.
//! - **Handing a G directly to an idle CPU**: it moves away from its data, while
//!   its maker is often about to wait and could have run it at once; and each
//!   submit would cost an interrupt. (A G in a call has no such maker.)
//! - **Waking on every submit**: most woken CPUs would find nothing. **Never
//!   waking, only spinning**: eight spinning CPUs on two host cores starve each
//!   other; an idle CPU must halt.
//! - **A second look by spinners only**, as in Go, which closes the hole that
//!   remains with one more flag (`needspinning`) under its lock; a park that ends
//!   in `hlt` can afford the look.
//! - **Waiting, when a G is readied, until it is off its stack**: two CPUs can
//!   do that to each other with interrupts off. The one who parks it puts it
//!   back instead ([`Status`], transition 8).
//! - **A G in a batch when its slice ran out** (`globq`): unfair for ever.
//! - **A yield to the global queue**, as in Go: a lock for each yield, and
//!   nothing gained, for the G is as far from running as its P's ring is long.
//! - **A run-next slot that cannot be stolen**: its G waits for a whole slice
//!   while CPUs idle.
//! - **Wake-ups at the ring's tail**, as of Go's netpoller: a slice late for each
//!   G before them. **Wake-ups first, without a loan that ends**: whoever wakes
//!   often enough starves the rest.
//!
//! # How it is checked
//!
//! Event sequences, fairness in slices, host threads as CPUs (`tests/`), also
//! under Miri and ThreadSanitizer; all interleavings of small models (`loom_*`,
//! a ring of 4); seeded interleavings of 1 to 256 CPUs with store buffers, late
//! interrupts and slow CPUs, and mistakes planted to be found (`sim`).
//!
//! # Lock order
//!
//! There are two locks, that of the global queue and that of the common store
//! of dead Gs. Neither is taken with the other held; both are taken with interrupts
//! off, after all of the kernel's; nothing is called with one held.

#![no_std]
#![expect(clippy::new_without_default, reason = "statics need `const`, and nothing else is used")]

mod census;
mod find;
mod free;
mod g;
mod globq;
mod idle;
mod list;
mod p;
mod runq;
#[cfg(feature = "sim")]
pub mod sim;
mod submit;
mod sync;
mod sysmon;

pub use census::Place;
pub use find::Order;
pub use g::{G, Handle, Home, Status};
pub use list::{Inbox, List};
pub use p::{P, PSlot, Slice};
pub use runq::{Owner, RunQueue};
pub use submit::{ReadyRest, StartRest};
pub use sysmon::{CallSeen, Sysmon, retake};

use free::Store;
use globq::GlobalQueue;
use idle::{Idle, PMask};
use sync::{AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, const_fn};

/// Ps at most: one for each CPU that the kernel can have.
pub const MAX_P: usize = 256;

/// Gs in a local ring. A power of two. Small where all ways are searched, so
/// that they lead to overflows.
pub const RUNQ_CAPACITY: usize = if cfg!(loom) {
    4
} else if cfg!(feature = "sim") {
    8
} else {
    256
};

/// Gs that a full ring gives to the global queue (with the one that did not
/// fit), and at most what a thief takes.
pub const RUNQ_HALF: usize = RUNQ_CAPACITY / 2;

/// Gs that a P takes from the global queue at once, at most.
pub const GLOBAL_BATCH_MAX: usize = RUNQ_HALF;

/// Slices between two looks at the global queue before the local one. A prime,
/// so that it falls in with no program's own rhythm.
pub const GLOBAL_CHECK_EVERY: u32 = if cfg!(feature = "sim") { 5 } else { 61 };

/// Rounds over all Ps that a thief makes before it gives up.
pub const STEAL_PASSES: u32 = if cfg!(loom) { 1 } else { 4 };

/// Spin hints that a thief waits before it takes a run-next G, about 1 to 4 µs:
/// most who ready a G are about to park, and then run it themselves.
pub const NEXT_GRACE_SPINS: u32 = if cfg!(any(loom, miri)) {
    1
} else if cfg!(feature = "sim") {
    2
} else {
    32
};

/// Time slice, in nanoseconds, unless the kernel is told otherwise.
pub const SLICE_NS: u64 = 10_000_000;

/// Dead Gs that move between a P and the common store at once; a P keeps twice as
/// many at most.
pub const FREE_PILE: usize = 32;

/// Ids that a P takes from the common counter at once.
pub const ID_BATCH: u64 = 16;

/// Whom to wake: the kernel sends that CPU an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a wake-up that is not sent is lost"]
pub enum Wake {
    /// Nobody needs to be.
    Nobody,
    /// The CPU with the P of this index. If it is the caller's own, it is
    /// enough to look again.
    Cpu(usize),
}

/// What an interrupt has brought to a P; see [`Sched::arrive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a wake-up that is not sent is lost"]
pub struct Arrival {
    /// Whom to wake.
    pub wake: Wake,
    /// A G waits to run next that no other P can take at once. If the
    /// interrupt came upon a G that may be preempted, and wake-ups have had
    /// less than their share of its slice, it is to leave
    /// ([`Sched::displaced`]). If not, nothing is lost.
    pub displace: bool,
}

/// What a P does next.
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
    /// Whose time it runs on.
    pub slice: Slice,
    /// Whom to wake first.
    pub wake: Wake,
}

/// The scheduler: what all Ps share.
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
/// SCHED.exited(&mut p, run.g);
/// assert_eq!(HELLO.status(), Status::Dead);
/// assert!(matches!(SCHED.find_runnable(&mut p), Next::Park(_)));
/// ```
pub struct Sched<K: 'static> {
    // Constant.
    slots: &'static [PSlot<K>],
    // Written rarely, read by anyone.
    /// One more than the highest P that somebody has acquired.
    acquired: AtomicUsize,
    limit: AtomicUsize,
    order: AtomicU32,
    next_id: AtomicU64,
    // Atomic, by the protocol in `idle`.
    idle: Idle,
    // Atomic, by the protocol in `sysmon`: Ps that run a G without a timer.
    untimed: PMask,
    // Each under a lock of its own.
    global: GlobalQueue<K>,
    free: Store<K>,
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
                next_id: AtomicU64::new(0),
                idle: Idle::new(),
                untimed: PMask::new(),
                global: GlobalQueue::new(),
                free: Store::new(),
            }
        }
    }

    /// The P of `index`, for the first who asks; it counts as busy from now on.
    /// `seed` starts the generator that orders its stealing.
    pub fn acquire(&self, index: usize, seed: u64) -> Option<P<K>> {
        let p = P::new(index, self.slots.get(index)?, seed)?;
        self.acquired.fetch_max(index + 1, AcqRel);
        self.idle.bring_up(index);
        Some(p)
    }

    /// The slots of the Ps that there are, and perhaps of some that there will be: only
    /// these can have anything in their rings. Many fewer than all on most machines,
    /// and who looks for work looks at each several times.
    ///
    /// Whoever puts a G into a ring has acquired its P before that. So a look that is
    /// late enough to see the G (essay, "Parking") sees the P as well.
    fn acquired(&self) -> &'static [PSlot<K>] {
        // Not for loom, which would try this load at every moment.
        let acquired = if cfg!(loom) { self.slots.len() } else { self.acquired.load(Acquire) };
        &self.slots[..acquired]
    }

    /// Sets where Ps look for work; a boot option.
    pub fn set_order(&self, order: Order) {
        self.order.store(order as u32, Relaxed);
    }

    /// Draws from now on what the rules leave open: where a P looks for work
    /// ([`Order::Random`]), and which of those who are idle is woken. For those who
    /// want to see that nobody relies on it.
    pub fn be_random(&self, seed: u64) {
        self.set_order(Order::Random);
        self.idle.be_random(seed);
    }

    /// How many Ps run Gs.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Acquire) // pairs with `set_limit`
    }

    /// Sets how many Ps run Gs (`gomaxprocs`): those of lower index. At least
    /// one, at most all. Gives the CPUs that must be interrupted so that they
    /// notice.
    #[must_use = "these CPUs must be interrupted"]
    pub fn set_limit(&self, limit: usize) -> core::ops::Range<usize> {
        let limit = limit.clamp(1, self.slots.len());
        let old = self.limit.swap(limit, Release);
        old.min(limit)..old.max(limit)
    }

    /// What other CPUs see of the Ps, by index.
    #[must_use]
    pub fn slots(&self) -> &'static [PSlot<K>] {
        self.slots
    }

    /// Whether the P of `index` is idle at this instant. For watchers.
    #[must_use]
    pub fn is_idle(&self, index: usize) -> bool {
        index < self.slots.len() && self.idle.is_idle(index)
    }

    /// Whether a P is idle or looks for work.
    #[must_use]
    pub fn somebody_free(&self) -> bool {
        self.idle.somebody_free(self.limit())
    }

    /// Numbers for statistics: each may be over at once.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            global: self.global.len(),
            spinning: self.idle.spinning(),
            busy: self.idle.busy(self.limit()),
        }
    }
}

/// See [`Sched::counts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Gs in the global queue.
    pub global: usize,
    /// Ps that look for work.
    pub spinning: usize,
    /// Ps that are up, below the limit and not idle.
    pub busy: usize,
}
