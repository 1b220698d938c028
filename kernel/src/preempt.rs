//! Slices: from timer interrupt to switch, and no tick that nobody needs.
//!
//! A G may run for a slice (10 ms, or `slice=`), and then the next one of its P
//! runs. The timer of a CPU is armed for that only while somebody waits for it:
//! a G alone on its CPU is never interrupted, and neither is a CPU that halts.
//!
//! # When the timer is armed
//!
//! A slice begins when a G is switched to ([`Slices::begin`]); the CPU notes its cycle
//! counter and, if `sched` says that the G needs a timer, arms the timer unless it is armed already.
//! It does not arm it anew for each slice: Gs that yield or park after a
//! microsecond would spend more on the timer than on themselves. So the timer
//! may fire in the middle of a slice, and then it is armed again for what is
//! left of it: once in a slice's time at most.
//!
//! A slice may begin with nobody waiting and somebody come later:
//!
//! - the running G readies or starts another, and arms the timer itself;
//! - an interrupt brings one to this CPU: by the handler, [`on_wake`] or [`on_tick`];
//! - a G is put into the global queue by another CPU: `sched` knows which CPUs
//!   run without a timer (its `tick`), and `schedule` interrupts them.
//!
//! # When a G may be preempted
//!
//! At every instruction at which the timer interrupt can arrive, that is, with
//! interrupts on; but not between the two halves of parking, when it is about to
//! leave by itself and may be readied already. All short sections that must not be preempted (locks, the P of
//! this CPU) turn interrupts off, so the interrupt flag is the preempt word: there
//! is no second one to be kept in step with it.

use crate::trace::{self, Kind};
use crate::{arch, schedule};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// A slice in cycles of the counter; 0 before [`init`].
static SLICE_CYCLES: AtomicU64 = AtomicU64::new(0);

/// What a CPU knows of the slice under way. Its own, with interrupts off, but for
/// the counters, which all may read.
pub struct Slices {
    /// The cycle counter when the slice began.
    began: Cell<u64>,
    /// The time for which the timer is armed, ns; [`NEVER`] if it is not.
    armed_ns: Cell<u64>,
    /// The timer is armed for the end of a slice, or for before.
    is_timed: Cell<bool>,
    ticks: AtomicU64,
    preemptions: AtomicU64,
}

// SAFETY: the cells are touched by their own CPU only, with interrupts off.
unsafe impl Sync for Slices {}

const NEVER: u64 = u64::MAX;

/// Sets the length of a slice; after the clock is known, before Gs run.
pub fn init(slice_ms: Option<u32>) {
    let ns = slice_ms.map_or(sched::SLICE_NS, |ms| u64::from(ms) * 1_000_000);
    SLICE_CYCLES.store(arch::ns_to_cycles(ns), Ordering::Relaxed);
}

/// Timer interrupts that `cpu` took since Gs run, and Gs that it preempted.
pub fn counters(cpu: usize) -> (u64, u64) {
    schedule::slice_counters(cpu)
}

impl Slices {
    /// No slice is under way.
    pub const fn new() -> Self {
        Slices {
            began: Cell::new(0),
            armed_ns: Cell::new(NEVER),
            is_timed: Cell::new(false),
            ticks: AtomicU64::new(0),
            preemptions: AtomicU64::new(0),
        }
    }

    /// A slice begins.
    #[inline(always)]
    pub fn begin(&self) {
        self.began.set(arch::cycles());
    }

    /// Whether the timer is armed for the slice under way.
    #[inline(always)]
    pub fn is_timed(&self) -> bool {
        self.is_timed.get()
    }

    /// This CPU is about to halt: no slice is under way.
    pub fn idle(&self) {
        if self.is_timed.replace(false) {
            self.armed_ns.set(NEVER);
            match schedule::next_deadline() {
                Some(deadline_ns) => self.arm_for_sleeper(deadline_ns),
                None => arch::disarm_timer(),
            }
        }
    }

    /// Arms the timer for the end of the slice under way.
    #[cold]
    pub fn arm(&self) {
        self.is_timed.set(true);
        let left = SLICE_CYCLES.load(Ordering::Relaxed).saturating_sub(self.used());
        self.arm_for_sleeper(arch::now_ns() + arch::cycles_to_ns(left));
    }

    /// Arms the timer for `at_ns`, unless it is armed for a time before that.
    pub fn arm_for_sleeper(&self, at_ns: u64) {
        if at_ns < self.armed_ns.get() {
            self.armed_ns.set(at_ns);
            arch::arm_timer(at_ns);
        }
    }

    /// Ticks and preemptions so far.
    pub fn counters(&self) -> (u64, u64) {
        (self.ticks.load(Ordering::Relaxed), self.preemptions.load(Ordering::Relaxed))
    }

    /// Cycles since the slice began.
    fn used(&self) -> u64 {
        arch::cycles().wrapping_sub(self.began.get())
    }

    /// Preempts the running G, if its slice is over and somebody waits; arms the
    /// timer for what is left of it, if not.
    fn look(&self) -> arch::Afterwards {
        // On the stack of the M, or about to be: it looks for itself.
        if !schedule::may_be_preempted() {
            return arch::Afterwards::Resume;
        }
        if schedule::must_leave() {
            return arch::Afterwards::Preempt;
        }
        if !schedule::needs_timer() {
            return arch::Afterwards::Resume;
        }
        if self.used() >= SLICE_CYCLES.load(Ordering::Relaxed) {
            self.preemptions.fetch_add(1, Ordering::Relaxed);
            return arch::Afterwards::Preempt;
        }
        if !self.is_timed() {
            self.arm();
        }
        arch::Afterwards::Resume
    }
}

impl Default for Slices {
    fn default() -> Self {
        Self::new()
    }
}

/// The `tick` of [`arch::Handlers`]: the timer of this CPU has fired.
pub fn on_tick() -> arch::Afterwards {
    // None: a CPU that is still coming up proves its timer.
    let Some(slices) = schedule::slices() else { return arch::Afterwards::Resume };
    slices.ticks.fetch_add(1, Ordering::Relaxed);
    trace::cpu_event(Kind::Tick, 0);
    slices.armed_ns.set(NEVER);
    slices.is_timed.set(false);
    schedule::wake_sleepers(arch::now_ns());
    schedule::drain_inbox();
    let afterwards = slices.look();
    if let Some(deadline_ns) = schedule::next_deadline() {
        slices.arm_for_sleeper(deadline_ns);
    }
    afterwards
}

/// The `wake` of [`arch::Handlers`]: there is something to look at.
pub fn on_wake() -> arch::Afterwards {
    trace::cpu_event(Kind::WakeReceived, 0);
    schedule::drain_inbox();
    schedule::slices().map_or(arch::Afterwards::Resume, Slices::look)
}

/// The end of every device interrupt: whom its driver has readied gets a look.
pub fn on_device() -> arch::Afterwards {
    schedule::drain_inbox();
    schedule::slices().map_or(arch::Afterwards::Resume, Slices::look)
}
