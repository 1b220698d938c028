//! Slices: from timer interrupt to switch, without unnecessary ticks.
//!
//! A G may run for a slice (10 ms, or `slice=`), and then the next one of its P runs. The timer of
//! a CPU is armed for that only while another G waits for it: a G alone on its CPU is never
//! interrupted, and neither is a halted CPU, except for a liveness interrupt once a second
//! (`watchdog`).
//!
//! # When the timer is armed
//!
//! A slice begins when a G is switched to ([`Slices::begin`]); the CPU records its cycle counter
//! and, if `sched` says that the G needs a timer, arms the timer unless it is armed already. It
//! does not arm it anew for each slice: Gs that yield or park after a microsecond would spend more
//! time on the timer than on their work. So the timer may fire in the middle of a slice, and then
//! it is armed again for what is left of it: once in a slice's time at most.
//!
//! A slice may begin with no other G waiting, and one may come later:
//!
//! - the running G readies or starts another, and arms the timer itself;
//! - an interrupt brings one to this CPU: at its end (`run::interrupt`);
//! - a G is put into the global queue by another CPU: `sched` knows which CPUs
//!   run without a timer (its `sysmon`), and `run` interrupts them.
//!
//! # Urgent Gs
//!
//! A G that an interrupt has readied (a device has answered, a deadline has passed) need not wait
//! for a slice to be over, even if all CPUs are busy. It displaces the G that runs where the
//! interrupt came, which later continues with what is left of its slice: the slice is *lent*. At
//! most half a slice is lent in each, so no G starves, however many interrupts come; an urgent G
//! that needs more waits in the queue like any other. If a CPU is idle, it takes the G, and nothing
//! is lent.
//!
//! # When a G may be preempted
//!
//! At every instruction at which the timer interrupt can arrive, that is, with interrupts on; but
//! not between the two halves of parking, when it is about to leave by itself and may be readied
//! already. All short sections that must not be preempted (locks, the P of this CPU) turn
//! interrupts off, so the interrupt flag is the preempt word: there is no second word to keep
//! consistent with it.

mod account;

pub use account::Verdict;

use super::hooks;
use crate::{arch, run};
use account::Account;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A slice in cycles of the counter; 0 before [`init`].
static SLICE_CYCLES: AtomicU64 = AtomicU64::new(0);

/// The slice under way on a CPU. Its own, with interrupts off, except for the counters, which any
/// CPU may read.
pub struct Slices {
    /// What is spent and lent of it, in cycles of the counter.
    account: Account,
    /// The time for which the timer is armed, ns; [`NEVER`] if it is not.
    armed_ns: Cell<u64>,
    /// With [`Attention::UNTIMED`] unless the timer is armed for the end of the slice, or earlier.
    pub attention: Attention,
    /// The most that the slice under way may last, in cycles; drawn by `chaos`.
    limit: Cell<u64>,
    /// An urgent G waits.
    pub is_urgent: Cell<bool>,
    ticks: AtomicU64,
    preemptions: AtomicU64,
    displacements: AtomicU64,
}

/// What this CPU must do besides the switch or the readying: a bit each, and all clear nearly
/// always. One word, so that the switch tests it once.
///
/// Any CPU may set a bit of another (a trace begins), an interrupt one of its own (a page fault has
/// used the reserve): so changes are locked. They are rare.
pub struct Attention(AtomicU32);

impl Attention {
    /// The timer is not armed for the slice under way: it may have to be.
    pub const UNTIMED: u32 = 1 << 2;
    /// Memory needs upkeep.
    pub const UPKEEP: u32 = 1 << 1;
    /// Switches are traced.
    pub const TRACE: u32 = 1; // the compiler tests the lowest first
    /// Switches are hashed, too.
    pub const HASH: u32 = 1 << 3;
    /// Either of the two.
    pub const TRACED: u32 = Self::TRACE | Self::HASH;
    /// `chaos` sets the timer; and [`Attention::UNTIMED`] stays set, armed or not, so that it is
    /// set again and again.
    pub const CHAOS: u32 = 1 << 4;

    /// All bits.
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire) // pairs with `set`: what the bit announces is visible
    }

    /// Whether one of these bits is set.
    #[inline(always)]
    pub fn has(&self, bits: u32) -> bool {
        self.get() & bits != 0
    }

    /// Sets a bit. Any CPU, any context.
    pub fn set(&self, bit: u32) {
        self.0.fetch_or(bit, Ordering::Release);
    }

    /// Clears a bit; true if it was set. Any CPU, any context.
    pub fn clear(&self, bit: u32) -> bool {
        self.0.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

// SAFETY: the cells are touched by their own CPU only, with interrupts off.
unsafe impl Sync for Slices {}

const NEVER: u64 = u64::MAX;

/// How long the scheduler waits before it tries again to preempt a G, ns.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Sets the length of a slice; after the clock is known, before Gs run.
pub fn init(slice_ms: Option<u32>) {
    let ns = slice_ms.map_or(sched::SLICE_NS, |ms| u64::from(ms) * 1_000_000);
    SLICE_CYCLES.store(arch::ns_to_cycles(ns), Ordering::Relaxed);
}

impl Slices {
    /// No slice is under way.
    pub const fn new() -> Self {
        Slices {
            account: Account::new(),
            armed_ns: Cell::new(NEVER),
            attention: Attention(AtomicU32::new(Attention::UNTIMED)),
            limit: Cell::new(u64::MAX),
            is_urgent: Cell::new(false),
            ticks: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
            displacements: AtomicU64::new(0),
        }
    }

    /// A slice begins, `now` by the cycle counter.
    #[inline(always)]
    pub fn begin(&self, now: u64) {
        self.account.begin(now);
    }

    /// The G that lent its slice continues with what is left of it.
    #[cold]
    pub fn resume(&self, now: u64) {
        self.account.resume(now);
    }

    /// Whether the timer is armed for the slice under way.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        !self.attention.has(Attention::UNTIMED)
    }

    /// Whether chaos is on.
    #[inline(always)]
    pub fn chaos_on(&self) -> bool {
        self.attention.has(Attention::CHAOS)
    }

    /// This CPU is about to halt: no slice is under way.
    pub fn idle(&self) {
        if self.chaos_on() {
            (hooks::get().delay)();
        }
        if self.is_timed() {
            self.attention.set(Attention::UNTIMED);
            self.armed_ns.set(NEVER);
            match run::next_deadline() {
                Some(deadline_ns) => self.arm_for_sleeper(deadline_ns),
                None => arch::disarm_timer(),
            }
        }
    }

    /// Arms the timer for the end of the slice under way.
    #[cold]
    pub fn arm(&self) {
        if self.chaos_on() {
            (hooks::get().delay)();
            self.limit.set((hooks::get().slice_limit)());
        } else {
            self.attention.clear(Attention::UNTIMED);
        }
        self.arm_for_sleeper(arch::now_ns() + arch::cycles_to_ns(self.left()));
    }

    /// Arms the timer for `at_ns`, unless it is armed for a time before that.
    pub fn arm_for_sleeper(&self, at_ns: u64) {
        if at_ns < self.armed_ns.get() {
            self.armed_ns.set(at_ns);
            arch::arm_timer(at_ns);
        }
    }

    /// The running G could not be preempted: tries again a little later.
    pub fn ask_again(&self) {
        self.attention.clear(Attention::UNTIMED);
        self.arm_for_sleeper(arch::now_ns() + ASK_AGAIN_NS);
    }

    /// Ticks, preemptions and displacements so far.
    pub fn counters(&self) -> [u64; 3] {
        [&self.ticks, &self.preemptions, &self.displacements].map(|n| n.load(Ordering::Relaxed))
    }

    /// Cycles that are left of the slice, or of what is lent of it.
    fn left(&self) -> u64 {
        self.account.left(self.length(), arch::cycles())
    }

    /// Cycles of the whole slice.
    fn length(&self) -> u64 {
        SLICE_CYCLES.load(Ordering::Relaxed).min(self.limit.get())
    }

    /// The timer has fired: returns when it was armed for.
    pub fn fired(&self) -> u64 {
        self.attention.set(Attention::UNTIMED);
        self.armed_ns.replace(NEVER)
    }

    /// No G waits for the end of the slice: if it is over, another one begins. Else a chain of Gs
    /// that ready one another, of which none waits when the timer fires, would set the timer for
    /// the end that is past at each readying.
    pub fn renew(&self) {
        if self.left() == 0 {
            self.begin(arch::cycles());
        }
    }

    /// Counts a tick.
    pub fn count_tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the running G must leave; `needs_timer` says whether another G waits.
    pub fn verdict(&self, needs_timer: impl FnOnce() -> bool) -> Verdict {
        let may_expire = || self.chaos_on() || needs_timer();
        self.account.verdict(self.length(), arch::cycles(), self.is_urgent.get(), may_expire)
    }

    /// The running G leaves for that reason, or continues.
    pub fn carry_out(&self, verdict: Verdict) {
        self.is_urgent.set(false);
        match verdict {
            Verdict::GoOn => {}
            Verdict::Expire => {
                self.preemptions.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Displace => {
                self.displacements.fetch_add(1, Ordering::Relaxed);
                self.account.lend(arch::cycles());
                self.arm();
            }
        }
    }
}

impl Default for Slices {
    fn default() -> Self {
        Self::new()
    }
}
