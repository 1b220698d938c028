//! Slices and the interrupts that end them: from timer interrupt to switch, without unnecessary
//! ticks.
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
//! is left of it: once in a slice's time at most. A tick that ends a
//! slice does not arm it: the switch to the next G does, or the halt, if there is none.
//!
//! A slice may begin with no other G waiting, and one may come later:
//!
//! - the running G readies or starts another, and arms the timer itself;
//! - an interrupt brings one to this CPU: at its end ([`finish`]);
//! - another CPU puts one into the global queue: `sched` knows which CPUs run without a timer (its
//!   `sysmon`), and `run` interrupts them.
//!
//! # Gs in a hurry
//!
//! A G that an interrupt has readied (a device has answered, a deadline has passed) need not wait
//! for a slice to be over. If a CPU is idle, it takes the G; if all are busy, the G displaces the one
//! that runs where the interrupt came, which later continues with what is left of its slice: the
//! slice is *lent*. At most half a slice is lent in each, so no G starves, however many interrupts
//! come; a G that needs more waits in the queue like any other. A G of the rank urgent is in a hurry
//! whatever has readied it (`sched::priority`); what it borrows is counted over all slices.
//!
//! # Other deadlines
//!
//! The one timer of a CPU serves three: the end of the slice, the first of its sleepers (`timer`),
//! and its [`Alarm`]s, a fixed slot for each hook that wants to be called at a time. Whatever sets
//! one of them arms the timer if that is earlier ([`Slices::arm_at`]), and the end of every
//! interrupt and a halt arm it for the first of them ([`Slices::arm_for_deadlines`]).
//!
//! All is kept in cycles of the CPU's own counter, which the timer takes as they are. A time in ns
//! is converted once, when it is set, and the earliest of them is kept ([`Slices::due`]): one
//! comparison tells a tick that there is nothing to do but end the slice. It may be too early,
//! because its sleeper was readied by other means: that costs a tick that finds no G due.
//!
//! # Interrupts
//!
//! A driver touches no run queue: it puts Gs into the inbox of its CPU ([`ready_from_interrupt`]),
//! and they are moved to the queue at the end ([`finish`]), when this CPU cannot be in the middle
//! of a queue operation. The tick puts its sleepers there itself. At the end it is also decided
//! whether the interrupted G continues. Interrupts are off in all handlers.
//!
//! # When a G may be preempted
//!
//! At every instruction at which the timer interrupt can arrive, that is, with interrupts on; but
//! not between the two halves of parking, when it is about to leave by itself and may be readied
//! already. All short sections that must not be preempted (locks, the P of this CPU) turn
//! interrupts off, so the interrupt flag is the preempt word, and there is no second one.

use super::account::Counter;
use super::priority::Priority;
use super::task::{GHandle, Task};
use super::timer::Timed;
use super::{
    BOTTOM, Cpu, Kind, Leaving, OnCpu, SCHED, SP, TIMERS, call, hooks, is_running, kill,
    note_ready, running_or_none, send, wake_cpu,
};
use crate::arch::{self, Frame};
use crate::mem::percpu::Here;
use crate::mem::reclaim;
use crate::mem::stack::pack;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sched::{Arrival, G, P, Sched, Status, Wake};

/// A slice in cycles of the counter; 0 before [`init`]. Each CPU has it as [`Slices::length`].
static SLICE_CYCLES: AtomicU64 = AtomicU64::new(0);

/// The slice under way on a CPU, and the CPU's timer. Its own, with interrupts off, except for
/// counters, alarms and attention bits, which any CPU may read. Cycles are those of the CPU's
/// counter, which may wrap.
pub struct Slices {
    /// When the slice began, in cycles; later by what was lent and given back.
    began: Cell<u64>,
    loan: Cell<Loan>,
    /// The time for which the timer is armed, in cycles; [`NEVER`] if it is not.
    armed: Cell<u64>,
    /// When the first sleeper or alarm of this CPU is due, or was, in cycles; [`NEVER`] if none.
    due: Cell<u64>,
    /// The same of the alarms alone.
    alarms_due: Cell<u64>,
    /// When each [`Alarm`] is due, ns; [`NEVER`] if it is not set.
    alarms: [AtomicU64; Alarm::ALL.len()],
    /// The same in cycles.
    alarms_at: [Cell<u64>; Alarm::ALL.len()],
    /// [`Attention::UNTIMED`] is set when nothing will end the slice. It is clear while the timer
    /// is armed for the end of the slice or earlier, and from the moment the timer fires until its
    /// interrupt, or the switch that this leads to, has armed it again.
    pub attention: Attention,
    /// As `attention`, for what ticks and halts do: a switch does not test it.
    pub at_rest: Attention,
    /// Cycles of the whole slice under way: of every slice, or less if `chaos` has drawn less. Stored
    /// by [`init`], and by this CPU.
    length: AtomicU64,
    /// A G waits that is to displace the running one.
    pub is_urgent: Cell<bool>,
    /// It does so by its rank, also if the running G is a borrower.
    outranks: Cell<bool>,
    ticks: Counter,
    preemptions: Counter,
    displacements: Counter,
}

/// What a slice has lent, in cycles.
#[derive(Clone, Copy)]
struct Loan {
    /// When the slice began. What an earlier slice has lent counts less ([`Slices::loan`]), so that
    /// the begin of a slice need not clear it.
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
    /// Gs that have been parked for long are packed. Nor is a tick for this.
    Pack,
}

impl Alarm {
    const ALL: [Alarm; 3] = [Alarm::LateWakes, Alarm::Watchdog, Alarm::Pack];
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
    /// Full accounting is on (`account`).
    pub const ACCOUNT: u32 = 1 << 5;
    /// A system runs that has other Ms than Go, or new Gs wait elsewhere (`system`). For ever.
    pub const SYSTEM: u32 = 1 << 6;
    /// CPU shares are in force (`share`).
    pub const SHARES: u32 = 1 << 7;
    /// In [`Slices::at_rest`]: this CPU is not watched, and asks its watchdog when it has found a G.
    pub const WATCHDOG: u32 = 1;
    /// There, too: the deadlock watcher rests, and a tick or a halt wakes it.
    pub const WATCHER: u32 = 1 << 1;

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

/// The part of a slice that must be left to lend for an urgent G to displace: an interrupt for less
/// would be a waste.
const LEAST_LOAN: u64 = 16;

/// A time that never comes.
pub const NEVER: u64 = u64::MAX;

/// When the scheduler tries again to preempt a G.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// Sets the length of a slice; after the clock is known, before Gs run. A slice of [`NEVER`] does not
/// end, and its G is not displaced: Gs run until they yield, wait or end.
pub fn init(slice_ns: Option<u64>) {
    let cycles = match slice_ns.unwrap_or(sched::SLICE_NS) {
        NEVER => NEVER,
        ns => arch::ns_to_cycles(ns),
    };
    SLICE_CYCLES.store(cycles, Ordering::Relaxed);
    super::all_slices().for_each(|slices| slices.length.store(cycles, Ordering::Relaxed));
    let ends = if cycles == NEVER { arch::ns_to_cycles(sched::SLICE_NS) } else { cycles };
    SCHED.set_share_slice(ends);
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
            armed: Cell::new(NEVER),
            due: Cell::new(NEVER),
            alarms_due: Cell::new(NEVER),
            alarms: [const { AtomicU64::new(NEVER) }; Alarm::ALL.len()],
            alarms_at: [const { Cell::new(NEVER) }; Alarm::ALL.len()],
            attention: Attention(AtomicU32::new(Attention::UNTIMED)),
            at_rest: Attention(AtomicU32::new(0)),
            length: AtomicU64::new(0),
            is_urgent: Cell::new(false),
            outranks: Cell::new(false),
            ticks: Counter::new(),
            preemptions: Counter::new(),
            displacements: Counter::new(),
        }
    }

    #[inline(always)]
    pub fn begin(&self, now: u64) {
        self.began.set(now);
    }

    /// When the slice began: a time of this CPU that costs no reading of its counter.
    #[inline(always)]
    pub fn began(&self) -> u64 {
        self.began.get()
    }

    /// A slice has begun, perhaps after one whose loan was under way: that has ended.
    pub fn end_loan(&self) {
        if self.loan.get().began.is_some() {
            self.loan.set(self.loan());
        }
    }

    /// The G that lent its slice continues with what is left of it.
    #[cold]
    pub fn resume(&self, now: u64) {
        let loan = self.settle_loan();
        let Some(lent_at) = loan.began else {
            // Other Gs have had their own slices here since: a new one.
            return self.begin(now);
        };
        let took = now.wrapping_sub(lent_at);
        self.began.set(self.began.get().wrapping_add(took));
        let (of, given_back) = (self.began.get(), loan.given_back + took);
        self.loan.set(Loan { of, given_back, began: None });
    }

    /// The running G is displaced, and lends what follows. Returns how much that may be. A borrower
    /// that is displaced passes the loan on.
    fn lend(&self, now: u64) -> u64 {
        let loan = self.settle_loan();
        if loan.began.is_none() {
            self.loan.set(Loan { began: Some(now), ..loan });
        }
        self.left(now)
    }

    /// An urgent G runs before the slice of the next normal G here begins, which lends the time.
    #[cold]
    pub fn lend_next(&self, now: u64) {
        self.begin(now);
        let most = self.lend(now);
        self.arm_in(most, now);
    }

    /// At the next interrupt the running G is displaced, if it may be.
    pub fn make_way(&self) {
        self.is_urgent.set(true);
        self.outranks.set(true);
    }

    /// Whether an urgent G may displace the running one: the slice under way may lend enough.
    pub fn may_lend(&self, now: u64) -> bool {
        self.has_left(self.loan(), now)
    }

    /// Whether an urgent G may run before the next slice begins.
    pub fn may_lend_next(&self, now: u64) -> bool {
        self.has_left(self.loan_of(now), now)
    }

    fn has_left(&self, loan: Loan, now: u64) -> bool {
        let length = self.length();
        let lent = loan.given_back + loan.began.map_or(0, |at| now.wrapping_sub(at));
        length != NEVER && lent.saturating_add(length / LEAST_LOAN) <= length / 2
    }

    /// The CPU has halted: no G has waited, so it owes nothing.
    pub fn rested(&self, now: u64) {
        self.begin(now);
        self.loan.set(Loan { of: now, given_back: 0, began: None });
    }

    fn loan(&self) -> Loan {
        self.loan_of(self.began.get())
    }

    /// As [`loan`](Self::loan), for a displacement that is near: kept, so that what follows need not
    /// compute it again.
    #[inline(always)]
    fn settle_loan(&self) -> Loan {
        let began = self.began.get();
        if self.loan.get().of != began {
            self.loan.set(self.loan_of(began));
        }
        self.loan.get()
    }

    /// The loan of the slice that begins at `of`. Half of the time that Gs have run since is taken off
    /// what earlier slices have lent: after a whole slice nothing is left of it. So however short the
    /// slices are, all that is lent is half of what their own Gs run, and half a slice.
    fn loan_of(&self, of: u64) -> Loan {
        let loan = self.loan.get();
        if loan.of == of {
            return loan;
        }
        let (until, owed) = match loan.began {
            None => (of, loan.given_back),
            Some(at) => {
                core::hint::cold_path(); // mostly the lender goes on, in its slice
                (at, loan.given_back.saturating_add(of.wrapping_sub(at)))
            }
        };
        let ran = until.wrapping_sub(loan.of);
        let given_back = owed.saturating_sub(ran / 2);
        Loan { of, given_back: given_back.min(self.length() / 2), began: None }
    }

    /// Cycles of the whole slice.
    fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    /// Cycles that are left of the slice, or of what is lent of it: half at most.
    fn left(&self, now: u64) -> u64 {
        // lab 5 begin: left
        let (loan, length) = (self.loan.get(), self.length());
        match loan.began.filter(|_| loan.of == self.began.get()) {
            None => length.saturating_sub(now.wrapping_sub(self.began.get())),
            Some(at) => (length / 2).saturating_sub(loan.given_back + now.wrapping_sub(at)),
        }
        // lab 5 end
    }

    /// Why the running G must leave for another, if it must: its slice is over, or the part that
    /// was lent to it ([`Leaving::Expire`]), or it lends its slice to an urgent G
    /// ([`Leaving::Displace`]). `needs_timer` says whether another G waits.
    #[inline(always)]
    pub fn why_to_leave(&self, now: u64, needs_timer: impl FnOnce() -> bool) -> Option<Leaving> {
        // lab 5 begin: verdict
        if self.is_urgent.get() {
            // While a loan is under way, a G that a device has readied waits for its end.
            let (loan, length) = (self.settle_loan(), self.length());
            let is_first = loan.began.is_none() || self.outranks.get();
            if is_first && loan.given_back < length / 2 && length != NEVER {
                return Some(Leaving::Displace);
            }
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
        // lab 5 end
    }

    /// The running G leaves for that reason. If it lends its slice, the timer is armed for the loan;
    /// else by the switch to the next G, or the halt.
    #[inline(always)]
    pub fn carry_out(&self, why: Leaving, now: u64) {
        self.is_urgent.set(false);
        self.outranks.set(false);
        if why == Leaving::Displace {
            self.displacements.add_one();
            let most = self.lend(now);
            self.arm_in(most, now);
        } else {
            self.preemptions.add_one();
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
    pub fn arm(&self, now: u64) {
        if self.chaos_on() {
            let limit = (hooks::get().slice_limit)();
            self.length.store(limit.min(SLICE_CYCLES.load(Ordering::Relaxed)), Ordering::Relaxed);
        } else {
            self.attention.clear(Attention::UNTIMED);
        }
        self.arm_by(now.saturating_add(self.left(now)));
    }

    /// A G waits for the end of the slice that begins now: arms the timer for it.
    #[inline(always)]
    pub fn arm_whole(&self, now: u64) {
        self.arm_in(self.length(), now);
    }

    /// Arms the timer for the end of a slice of which so many cycles are `left`.
    #[inline(always)]
    fn arm_in(&self, left: u64, now: u64) {
        let attention = self.attention.get();
        if attention & Attention::UNTIMED != 0 {
            if attention & Attention::CHAOS != 0 {
                return; // the switch to the next G arms it
            }
            self.attention.clear(Attention::UNTIMED);
        }
        self.arm_by(now.saturating_add(left));
    }

    /// Arms the timer for `at`, in cycles, or the first deadline if that is earlier; unless it is
    /// armed for a time before both.
    #[inline]
    fn arm_by(&self, at: u64) {
        // lab 5 begin: arm
        let at = at.min(self.due.get());
        if at < self.armed.get() {
            self.armed.set(at);
            arch::arm_timer(at);
        }
        // lab 5 end
    }

    /// Something is to be done at `at_ns`: arms the timer, unless it is armed for a time before that.
    pub fn arm_at(&self, at_ns: u64) {
        self.due.set(self.due.get().min(arch::cycles_at(at_ns)));
        self.arm_for_deadlines();
    }

    /// Arms the timer for the first sleeper or alarm of this CPU, if there is one.
    pub fn arm_for_deadlines(&self) {
        self.arm_by(NEVER);
    }

    /// Whether there is, or was, a deadline before `now`. Then all that are due are served, and
    /// [`Slices::find_deadline`] follows.
    pub fn is_due(&self, now: u64) -> bool {
        self.due.get() <= now
    }

    /// Finds the first sleeper or alarm of this CPU.
    #[inline(always)]
    fn find_deadline(&self) {
        self.note_deadline(TIMERS.first_ns(arch::cpu_index()));
    }

    /// `first_ns` is the deadline of the first sleeper of this CPU.
    #[inline(always)]
    fn note_deadline(&self, first_ns: u64) {
        let first = if first_ns == NEVER { NEVER } else { arch::cycles_at(first_ns) };
        self.due.set(first.min(self.alarms_due.get()));
    }

    /// Finds the first alarm of this CPU.
    fn find_alarm(&self, now: u64) {
        let at = |alarm| {
            let at = self.at(alarm);
            // Not anew each time, so that the timer's time can be compared with it (`fired`).
            if at.get() <= now {
                at.set(arch::cycles_at(self.alarm(alarm)));
            }
            at.get()
        };
        self.alarms_due.set(Alarm::ALL.into_iter().map(at).fold(NEVER, u64::min));
    }

    /// The running G could not be preempted: tries again a little later.
    pub fn ask_again(&self) {
        self.attention.clear(Attention::UNTIMED);
        self.arm_by(arch::cycles_at(arch::now_ns() + ASK_AGAIN_NS));
    }

    /// This CPU is about to halt: no slice is under way.
    pub fn idle(&self) {
        if self.chaos_on() {
            (hooks::get().delay)();
        }
        if self.is_timed() {
            self.attention.set(Attention::UNTIMED);
            self.armed.set(NEVER);
            self.find_deadline();
            self.arm_for_deadlines();
            if self.armed.get() == NEVER {
                arch::disarm_timer();
            }
        } else {
            self.arm_for_deadlines(); // a tick may have left that to this halt
        }
    }

    /// When `alarm` is due, ns; [`NEVER`] if it is not set. Any CPU.
    pub fn alarm(&self, alarm: Alarm) -> u64 {
        self.alarms[alarm as usize].load(Ordering::Relaxed)
    }

    fn at(&self, alarm: Alarm) -> &Cell<u64> {
        &self.alarms_at[alarm as usize]
    }

    pub fn set_alarm(&self, alarm: Alarm, at_ns: u64) {
        self.alarms[alarm as usize].store(at_ns, Ordering::Relaxed);
        self.at(alarm).set(arch::cycles_at(at_ns));
        self.find_alarm(arch::cycles());
        self.find_deadline();
        self.arm_for_deadlines();
    }

    /// Takes an alarm that is due.
    pub fn take_due(&self, now_ns: u64) -> Option<Alarm> {
        let due = Alarm::ALL.into_iter().find(|&alarm| self.alarm(alarm) <= now_ns)?;
        self.alarms[due as usize].store(NEVER, Ordering::Relaxed);
        self.at(due).set(NEVER);
        Some(due)
    }

    /// The timer has fired. Counts it and says how late it is, in cycles, unless it was armed for the
    /// watchdog or for packing alone.
    pub fn fired(&self, now: u64) -> Option<u64> {
        let armed = self.armed.replace(NEVER);
        if [Alarm::Watchdog, Alarm::Pack].iter().any(|&alarm| armed == self.at(alarm).get()) {
            return None;
        }
        self.ticks.add_one();
        Some(now.saturating_sub(armed))
    }

    /// Ticks, preemptions and displacements so far.
    pub fn counters(&self) -> [u64; 3] {
        [&self.ticks, &self.preemptions, &self.displacements].map(Counter::get)
    }
}

/// The `tick` of [`arch::Handlers`]: the timer of this CPU has fired.
pub fn on_tick(frame: &Frame) {
    // SAFETY: 1. A handler. 3. It has come where interrupts were on, and none is in use.
    // None: a CPU that is still coming up tests its timer.
    let Some(mut on) = (unsafe { OnCpu::in_handler() }) else { return };
    let (slices, now) = (&on.cpu().slices, arch::cycles());
    if let Some(late) = slices.fired(now) {
        if slices.attention.has(Attention::TRACED) {
            trace_tick(late);
        }
        if slices.at_rest.has(Attention::WATCHER) {
            (hooks::get().poll_watcher)(usize::MAX); // if readied, it arrives at the end
        }
    }
    let displaces = slices.is_due(now) && serve_due(&mut on, now);
    finish(on, now, frame, true, displaces);
}

#[cold]
fn trace_tick(late: u64) {
    let late_us = arch::cycles_to_ns(late) / 1_000;
    hooks::cpu_event(Kind::Tick, late_us.try_into().unwrap_or(u32::MAX));
}

/// Serves the sleepers and alarms of this CPU that are due. Most sleepers go to the queue at once:
/// where interrupts were on, this CPU is not in the middle of a queue operation. Whether one of them is
/// to displace the running G.
#[inline(always)]
fn serve_due(on: &mut OnCpu<'_>, now: u64) -> bool {
    let now_ns = arch::ns_at(now);
    let (cpu, p) = on.parts();
    if cpu.slices.alarms_due.get() <= now {
        serve_alarms(&cpu.slices, now, now_ns);
    }
    // As in `ready_from`.
    let is_noted =
        cpu.slices.attention.has(Attention::TRACED | Attention::ACCOUNT) || cfg!(debug_assertions);
    let mut displaces = false;
    let first_ns = TIMERS.on_tick(arch::cpu_index(), now_ns, |g| {
        if is_noted || !SCHED.ready_here(p, &g, &mut displaces) {
            ready_due(g);
        }
    });
    cpu.slices.note_deadline(first_ns);
    displaces
}

#[cold]
fn serve_alarms(slices: &Slices, now: u64, now_ns: u64) {
    while let Some(alarm) = slices.take_due(now_ns) {
        (hooks::get().alarm)(alarm, now_ns);
    }
    slices.find_alarm(now);
}

/// The deadline of a G has passed, in the less common cases: it arrives at the end.
#[cold]
fn ready_due(g: GHandle) {
    hooks::event(Kind::Fire, g.parts().0.id(), 0);
    ready_from_interrupt(g);
}

/// The `wake` of [`arch::Handlers`]: another CPU has work for this one.
pub fn on_wake(frame: &Frame) {
    hooks::cpu_event(Kind::WakeReceived, 0);
    // SAFETY: as in `on_tick`.
    if let Some(mut on) = unsafe { OnCpu::in_handler() } {
        let now = arch::cycles();
        let (cpu, p) = on.parts();
        let displaces = SCHED.is_asked(p) && sift(cpu, p, now);
        finish(on, now, frame, false, displaces);
    }
}

/// The `device_end` of [`arch::Handlers`]: queues the Gs that a driver has readied.
pub fn on_device_end(frame: &Frame) {
    // SAFETY: as in `on_tick`.
    if let Some(on) = unsafe { OnCpu::in_handler() } {
        finish(on, arch::cycles(), frame, false, false);
    }
}

/// The end of every interrupt: moves the Gs that it has readied from the inbox to the queue (Go:
/// injectglist), and decides whether the running G must leave for another. If so, it leaves from here
/// (Go: asyncPreempt), and the switch to the next G arms the timer; if not, sees that the timer, which
/// perhaps has `fired`, is armed for what is left of its slice. `displaces`: a G that was readied is to
/// displace the running one.
#[inline(always)]
fn finish(mut on: OnCpu<'_>, now: u64, frame: &Frame, fired: bool, mut displaces: bool) {
    let (cpu, p) = on.parts();
    let is_quiet = SCHED.is_quiet(p);
    displaces |= !is_quiet && arrive(cpu, p, now);
    // Else on the stack of the M, or about to be: the M looks for Gs itself. A G that is about to
    // park is not preempted: its state is no longer its CPU's alone.
    let g = Some(running_or_none()).filter(|g| g.status() == Status::Running);
    if let Some(g) = g {
        // An urgent G is displaced by none: a normal one waits for the end of its loan, or slice.
        if displaces && g.rank() != Priority::Urgent {
            cpu.slices.is_urgent.set(true);
        }
        let is_limited = !is_quiet && g.pin().is_none() && arch::cpu_index() >= SCHED.limit();
        let is_rare =
            is_limited || g.kernel.kill.is_set() || cpu.slices.attention.has(Attention::UPKEEP);
        let must = if is_rare { must_leave(g, is_limited) } else { None };
        let why = match must {
            Some(_) => must,
            None => cpu.slices.why_to_leave(now, || SCHED.needs_timer(p)),
        };
        if let Some(why) = why {
            let in_call = g.kernel.m.get().is_some();
            if !arch::can_leave(frame, in_call) {
                return cpu.slices.ask_again();
            }
            cpu.slices.carry_out(why, now);
            if in_call {
                call::hand_over(cpu, g);
            }
            // SAFETY: 1. The G runs here, is not on the M's stack unless its M is away by now, and
            // can leave. 2. As in `mcall`.
            unsafe {
                arch::leave_interrupted::<_, _, SP, BOTTOM>(
                    frame,
                    on.give_up(),
                    g,
                    why.on_m(),
                    in_call,
                )
            }
        }
    }
    // lab 5 begin: rest
    if fired {
        cpu.slices.attention.set(Attention::UNTIMED);
    }
    if is_running() && !cpu.slices.is_timed() && SCHED.needs_timer(p) {
        match g {
            Some(_) => cpu.slices.arm(now),
            // Perhaps it does not park: then it has the timer, and is not ended by this tick.
            None => cpu.slices.arm_whole(now),
        }
    }
    // lab 5 end
    cpu.slices.arm_for_deadlines();
}

/// Gs have arrived, or the P has other work than its queue. Whether a G is to displace the running one.
#[cold]
fn arrive(cpu: &Cpu, p: &mut P<Task>, now: u64) -> bool {
    admit(cpu, p, now, Sched::arrive)
}

/// The rank of a G was raised: this CPU looks for the G in its queues.
#[cold]
fn sift(cpu: &Cpu, p: &mut P<Task>, now: u64) -> bool {
    admit(cpu, p, now, Sched::sift)
}

fn admit(
    cpu: &Cpu,
    p: &mut P<Task>,
    now: u64,
    arrive: fn(&Sched<Task>, &mut P<Task>) -> Arrival,
) -> bool {
    let g = running_or_none();
    let may_leave = g.status() == Status::Running && g.rank() != Priority::Urgent;
    let lends = may_leave && cpu.slices.may_lend(now);
    p.set_lends(lends);
    let arrival = arrive(&SCHED, p);
    if lends && !p.lends() {
        cpu.slices.outranks.set(true);
    }
    send(arrival.wake);
    arrival.displace
}

/// Why the running G must leave whatever its slice is, if it must: its kill is forced; this CPU's P
/// may run Gs no more (`is_limited`); the M has to pack, or to reclaim memory for the G's stack.
#[cold]
fn must_leave(g: &'static G<Task>, is_limited: bool) -> Option<Leaving> {
    if g.kernel.kill.is_set() {
        g.kernel.kill.count_chance();
        if kill::is_forced(g) {
            return Some(Leaving::Abandon);
        }
    }
    // What asks for memory asks for upkeep first (`refill_reserve`).
    let packs = pack::is_due() && !pack::is_always();
    (is_limited || packs || reclaim::is_wanted(arch::cpu_index())).then_some(Leaving::Expire)
}

/// As [`super::ready`], for an interrupt handler: puts the G into the inbox of this CPU, or of that
/// which it is pinned to. The handler ends with [`finish`].
pub fn ready_from_interrupt(g: GHandle) {
    let cpu = arch::cpu_index();
    wake_other(cpu, SCHED.ready_from_interrupt(cpu, g, |g, was| note_ready(g, was, 1)));
}

/// Carries out a wake-up, unless it is for `cpu`, this one, which looks for Gs at the end.
#[inline(always)]
fn wake_other(cpu: usize, wake: Wake) {
    match wake {
        Wake::Cpu(other) if other != cpu => wake_cpu(other),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
