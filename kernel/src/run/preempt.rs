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
//! and, if `sched` says that the G needs a timer, arms the timer unless it is armed already: not
//! anew for each slice, as Gs that park after a microsecond would spend more time on the timer than
//! on their work. So the timer may fire in the middle of a slice, and is then armed again for what
//! is left of it: once in a slice's time at most.
//!
//! A slice may begin with no other G waiting, and one may come later:
//!
//! - the running G readies or starts another, and arms the timer itself;
//! - an interrupt brings one to this CPU: at its end (`run::interrupt`);
//! - another CPU puts one into the global queue: `sched` knows which CPUs run without a timer (its
//!   `sysmon`), and `run` interrupts them.
//!
//! # Urgent Gs
//!
//! A G that an interrupt has readied (a device has answered, a deadline has passed) need not wait
//! for a slice to be over. If a CPU is idle, it takes the G; if all are busy, the G displaces the one
//! that runs where the interrupt came, which later continues with what is left of its slice: the
//! slice is *lent*. At most half a slice is lent in each, so no G starves, however many interrupts
//! come; an urgent G that needs more waits in the queue like any other.
//!
//! # Other deadlines
//!
//! The one timer of a CPU serves three: the end of the slice, the first of its sleepers (`timer`),
//! and its [`Alarm`]s, a fixed slot for each hook that wants to be called at a time. Whatever sets
//! one of them arms the timer if that is earlier ([`Slices::arm_at`]), and the end of every
//! interrupt and a halt arm it for the first of them ([`Slices::arm_for_deadlines`]).
//!
//! # When a G may be preempted
//!
//! At every instruction at which the timer interrupt can arrive, that is, with interrupts on; but
//! not between the two halves of parking, when it is about to leave by itself and may be readied
//! already. All short sections that must not be preempted (locks, the P of this CPU) turn
//! interrupts off, so the interrupt flag is the preempt word, and there is no second one.

use super::account::Counter;
use super::timer::Timed;
use super::{Leaving, TIMERS, hooks};
use crate::arch;
use crate::mem::percpu::Here;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A slice in cycles of the counter; 0 before [`init`].
static SLICE_CYCLES: AtomicU64 = AtomicU64::new(0);

/// The slice under way on a CPU, and the CPU's timer. Its own, with interrupts off, except for
/// counters, alarms and attention bits, which any CPU may read. Cycles are those of the CPU's
/// counter, which may wrap.
pub struct Slices {
    /// When the slice began, in cycles; later by what was lent and given back.
    began: Cell<u64>,
    loan: Cell<Loan>,
    /// The time for which the timer is armed, ns; [`NEVER`] if it is not.
    armed_ns: Cell<u64>,
    /// When each [`Alarm`] is due, ns; [`NEVER`] if it is not set.
    alarms: [AtomicU64; Alarm::ALL.len()],
    /// With [`Attention::UNTIMED`] unless the timer is armed for the end of the slice, or earlier.
    pub attention: Attention,
    /// As `attention`, for what ticks and halts do: a switch does not test it.
    pub at_rest: Attention,
    /// The most that the slice under way may last, in cycles; drawn by `chaos`.
    limit: Cell<u64>,
    /// An urgent G waits.
    pub is_urgent: Cell<bool>,
    ticks: Counter,
    preemptions: Counter,
    displacements: Counter,
}

/// What a slice has lent, in cycles.
#[derive(Clone, Copy)]
struct Loan {
    /// When the slice began. A loan of an earlier slice is void, so that the begin of a slice need
    /// not clear it.
    of: u64,
    given_back: u64,
    /// When the loan under way began, if one is.
    began: Option<u64>,
}

/// A deadline of a hook on one CPU, whose timer then calls [`hooks::Hooks::alarm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Chaos sends the wake-ups that it has delayed.
    LateWakes,
    /// The watchdog checks the other CPUs. A tick for this alone is not counted.
    Watchdog,
}

impl Alarm {
    const ALL: [Alarm; 2] = [Alarm::LateWakes, Alarm::Watchdog];
}

/// What this CPU must do besides the switch or the readying: a bit each, and all clear nearly
/// always. One word, so that the switch tests it once.
///
/// Any CPU may set a bit of another (a trace begins), an interrupt one of its own (a page fault has
/// used the reserve): so changes are locked. They are rare.
pub struct Attention(AtomicU32);

impl Attention {
    /// Switches are traced.
    pub const TRACE: u32 = 1; // the compiler tests the lowest first
    /// Memory needs upkeep.
    pub const UPKEEP: u32 = 1 << 1;
    /// The timer is not armed for the slice under way: it may have to be.
    pub const UNTIMED: u32 = 1 << 2;
    /// Switches are hashed, too.
    pub const HASH: u32 = 1 << 3;
    /// Events are recorded.
    pub const TRACED: u32 = Self::TRACE | Self::HASH;
    /// `chaos` sets the timer; and [`Attention::UNTIMED`] stays set, armed or not, so that it is
    /// set again and again.
    pub const CHAOS: u32 = 1 << 4;
    /// In [`Slices::at_rest`]: the deadlock watcher rests, and a tick or a halt wakes it.
    pub const WATCHER: u32 = 1;
    /// There, too: a watchdog is missing, and this CPU may become one when it comes out of a halt.
    pub const WATCHDOG: u32 = 1 << 1;

    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire) // pairs with `set`: what the bit announces is visible
    }

    /// Whether any of these bits is set.
    #[inline(always)]
    pub fn has(&self, bits: u32) -> bool {
        self.get() & bits != 0
    }

    /// Any CPU, any context.
    pub fn set(&self, bits: u32) {
        self.0.fetch_or(bits, Ordering::Release);
    }

    /// Any CPU, any context.
    pub fn clear(&self, bits: u32) {
        self.0.fetch_and(!bits, Ordering::Relaxed);
    }
}

// SAFETY: the cells are touched by their own CPU only, with interrupts off.
unsafe impl Sync for Slices {}

/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// When the scheduler tries again to preempt a G.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Sets the length of a slice; after the clock is known, before Gs run.
pub fn init(slice_ms: Option<u32>) {
    let ns = slice_ms.map_or(sched::SLICE_NS, |ms| u64::from(ms) * 1_000_000);
    SLICE_CYCLES.store(arch::ns_to_cycles(ns), Ordering::Relaxed);
}

/// Has `entry` called by the timer of this CPU at `deadline_ns`: see [`super::timer::Timers::arm`].
pub fn set_timer(entry: &'static dyn Timed, deadline_ns: u64) {
    let here = Here::enter(); // armed and set on one CPU
    if TIMERS.arm(here.index(), entry, deadline_ns)
        && let Some(slices) = super::slices()
    {
        slices.arm_at(deadline_ns);
    }
}

impl Slices {
    pub const fn new() -> Self {
        Slices {
            began: Cell::new(0),
            loan: Cell::new(Loan { of: 0, given_back: 0, began: None }),
            armed_ns: Cell::new(NEVER),
            alarms: [const { AtomicU64::new(NEVER) }; Alarm::ALL.len()],
            attention: Attention(AtomicU32::new(Attention::UNTIMED)),
            at_rest: Attention(AtomicU32::new(0)),
            limit: Cell::new(u64::MAX),
            is_urgent: Cell::new(false),
            ticks: Counter::new(),
            preemptions: Counter::new(),
            displacements: Counter::new(),
        }
    }

    #[inline(always)]
    pub fn begin(&self, now: u64) {
        self.began.set(now);
    }

    /// The G that lent its slice continues with what is left of it.
    #[cold]
    pub fn resume(&self, now: u64) {
        let loan = self.loan();
        // Else other Gs have had their own slices here since: a new one.
        let Some(lent_at) = loan.began else { return self.begin(now) };
        let took = now.wrapping_sub(lent_at);
        self.began.set(self.began.get().wrapping_add(took));
        let (of, given_back) = (self.began.get(), loan.given_back + took);
        self.loan.set(Loan { of, given_back, began: None });
    }

    /// The running G is displaced, and lends what follows.
    fn lend(&self, now: u64) {
        self.loan.set(Loan { began: Some(now), ..self.loan() });
    }

    fn loan(&self) -> Loan {
        let (loan, of) = (self.loan.get(), self.began.get());
        if loan.of == of { loan } else { Loan { of, given_back: 0, began: None } }
    }

    /// Cycles of the whole slice.
    fn length(&self) -> u64 {
        SLICE_CYCLES.load(Ordering::Relaxed).min(self.limit.get())
    }

    /// Cycles that are left of the slice, or of what is lent of it: half at most.
    fn left(&self, now: u64) -> u64 {
        let (loan, length) = (self.loan(), self.length());
        match loan.began {
            None => length.saturating_sub(now.wrapping_sub(self.began.get())),
            Some(at) => (length / 2).saturating_sub(loan.given_back + now.wrapping_sub(at)),
        }
    }

    /// Why the running G must leave for another, if it must: its slice is over, or the part that
    /// was lent to it ([`Leaving::Expire`]), or it lends its slice to an urgent G
    /// ([`Leaving::Displace`]). `needs_timer` says whether another G waits.
    pub fn why_to_leave(&self, now: u64, needs_timer: impl FnOnce() -> bool) -> Option<Leaving> {
        let loan = self.loan();
        // While a loan is under way, an urgent G waits for its end.
        let may_lend = loan.began.is_none() && loan.given_back < self.length() / 2;
        if self.is_urgent.get() && may_lend {
            return Some(Leaving::Displace);
        }
        if self.left(now) > 0 {
            return None;
        }
        if self.chaos_on() || needs_timer() {
            return Some(Leaving::Expire);
        }
        // No G waits for the end of the slice: another one begins. Else Gs that ready one another, of
        // which none waits when the timer fires, would set it for a past end at each readying.
        self.begin(now);
        None
    }

    /// The running G leaves for that reason, or continues.
    pub fn carry_out(&self, why: Option<Leaving>) {
        self.is_urgent.set(false);
        match why {
            Some(Leaving::Expire) => self.preemptions.add_one(),
            Some(Leaving::Displace) => {
                self.displacements.add_one();
                self.lend(arch::cycles());
                self.arm();
            }
            _ => {}
        }
    }

    /// Whether the timer is armed for the slice under way.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        !self.attention.has(Attention::UNTIMED)
    }

    #[inline(always)]
    pub fn chaos_on(&self) -> bool {
        self.attention.has(Attention::CHAOS)
    }

    /// Arms the timer for the end of the slice under way.
    #[cold]
    pub fn arm(&self) {
        if self.chaos_on() {
            self.limit.set((hooks::get().slice_limit)());
        } else {
            self.attention.clear(Attention::UNTIMED);
        }
        self.arm_at(arch::now_ns() + arch::cycles_to_ns(self.left(arch::cycles())));
    }

    /// Arms the timer for `at_ns`, unless it is armed for a time before that.
    pub fn arm_at(&self, at_ns: u64) {
        if at_ns < self.armed_ns.get() {
            self.armed_ns.set(at_ns);
            arch::arm_timer(at_ns);
        }
    }

    /// Arms the timer for the first sleeper or alarm of this CPU, if there is one.
    pub fn arm_for_deadlines(&self) {
        let first_ns = TIMERS.next_deadline(arch::cpu_index()).unwrap_or(NEVER);
        self.arm_at(Alarm::ALL.into_iter().map(|alarm| self.alarm(alarm)).fold(first_ns, u64::min));
    }

    /// The running G could not be preempted: tries again a little later.
    pub fn ask_again(&self) {
        self.attention.clear(Attention::UNTIMED);
        self.arm_at(arch::now_ns() + ASK_AGAIN_NS);
    }

    /// This CPU is about to halt: no slice is under way.
    pub fn idle(&self) {
        if self.chaos_on() {
            (hooks::get().delay)();
        }
        if self.is_timed() {
            self.attention.set(Attention::UNTIMED);
            self.armed_ns.set(NEVER);
            self.arm_for_deadlines();
            if self.armed_ns.get() == NEVER {
                arch::disarm_timer();
            }
        }
    }

    /// When `alarm` is due, ns; [`NEVER`] if it is not set. Any CPU.
    pub fn alarm(&self, alarm: Alarm) -> u64 {
        self.alarms[alarm as usize].load(Ordering::Relaxed)
    }

    pub fn set_alarm(&self, alarm: Alarm, at_ns: u64) {
        self.alarms[alarm as usize].store(at_ns, Ordering::Relaxed);
        self.arm_at(at_ns);
    }

    /// Takes an alarm that is due.
    pub fn take_due(&self, now_ns: u64) -> Option<Alarm> {
        let due = Alarm::ALL.into_iter().find(|&alarm| self.alarm(alarm) <= now_ns)?;
        self.alarms[due as usize].store(NEVER, Ordering::Relaxed);
        Some(due)
    }

    /// The timer has fired. Counts it and says how late it is, ns, unless it was armed for the
    /// watchdog alone.
    pub fn fired(&self, now_ns: u64) -> Option<u64> {
        self.attention.set(Attention::UNTIMED);
        let armed_ns = self.armed_ns.replace(NEVER);
        if armed_ns == self.alarm(Alarm::Watchdog) {
            return None;
        }
        self.ticks.add_one();
        Some(now_ns.saturating_sub(armed_ns))
    }

    /// Ticks, preemptions and displacements so far.
    pub fn counters(&self) -> [u64; 3] {
        [&self.ticks, &self.preemptions, &self.displacements].map(Counter::get)
    }
}

#[cfg(test)]
mod tests;
