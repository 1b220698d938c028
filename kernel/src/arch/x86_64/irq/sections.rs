//! How long interrupts were off: the longest section of each CPU, in builds with `debug_assertions`.
//!
//! A section is of a CPU, not of a G: it begins where interrupts are turned off, or one arrives, and
//! ends where they are on again, perhaps after a switch to another G. Each CPU keeps its longest,
//! with the instructions at which it began and ended. The words of an interrupt's entry and return
//! (17 instructions each) are not in it.
//!
//! An interrupt that comes in a section waits for its end. So the longest is what an urgent G may
//! wait for beyond the way from its interrupt to its first instruction (`docs/how-it-works.md`).
//!
//! In other builds the functions here are empty: two readings of the counter for each lock would
//! cost more than the lock. What was rejected: measuring by a timer that comes late, which needs no
//! instruction here, but finds a long section only if the timer fires in it.
//!
//! Not counted: what is before [`count`], as CPUs come up with interrupts off, and an interrupt
//! before a handler is set.

use super::trap;
use crate::arch::x86_64::cpu::{self, MAX_CPUS};
use crate::arch::x86_64::time::clock;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Whether sections are measured in this build.
pub const ARE_MEASURED: bool = cfg!(all(debug_assertions, target_os = "none"));

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

/// A section with interrupts off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub cpu: usize,
    pub ns: u64,
    /// The addresses at which it began and ended.
    pub from: u64,
    pub to: u64,
}

/// Of one CPU. Written by it alone, interrupts off; [`reset`] only shortens.
struct Longest {
    /// When the section under way began, in cycles, and where; 0 if it is not counted.
    began: AtomicU64,
    at: AtomicU64,
    cycles: AtomicU64,
    from: AtomicU64,
    to: AtomicU64,
}

static LONGEST: [Longest; if ARE_MEASURED { MAX_CPUS } else { 0 }] =
    [const { Longest::new() }; if ARE_MEASURED { MAX_CPUS } else { 0 }];

impl Longest {
    const fn new() -> Self {
        let [began, at, cycles, from, to] = [const { AtomicU64::new(0) }; 5];
        Longest { began, at, cycles, from, to }
    }

    fn begin(&self, now: u64, at: u64) {
        self.began.store(now, Relaxed);
        self.at.store(at, Relaxed);
    }

    fn end(&self, now: u64, at: u64) {
        let began = self.began.load(Relaxed);
        self.began.store(0, Relaxed);
        let cycles = now.saturating_sub(began);
        if began != 0 && cycles > self.cycles.load(Relaxed) {
            self.cycles.store(cycles, Relaxed);
            self.from.store(self.at.load(Relaxed), Relaxed);
            self.to.store(at, Relaxed);
        }
    }

    fn seen(&self, cpu: usize) -> Option<Section> {
        let (cycles, from, to) =
            (self.cycles.load(Relaxed), self.from.load(Relaxed), self.to.load(Relaxed));
        (cycles > 0).then(|| Section { cpu, ns: clock::cycles_to_ns(cycles), from, to })
    }
}

/// Interrupts were on, and are off now.
#[inline(always)]
pub fn begin() {
    if ARE_MEASURED && IS_COUNTED.load(Relaxed) {
        LONGEST[cpu::cpu_index()].begin(clock::tsc::cycles(), cpu::here().0);
    }
}

/// Interrupts are off, and are about to be on.
#[inline(always)]
pub fn end() {
    if ARE_MEASURED && IS_COUNTED.load(Relaxed) {
        LONGEST[cpu::cpu_index()].end(clock::tsc::cycles(), cpu::here().0);
    }
}

/// `g` is about to go on with its context, interrupts off: a section ends if that is the return from
/// the interrupt in which the G has left.
///
/// # Safety
/// At `SP` in `g` is the context.
#[inline(always)]
pub unsafe fn goes_on<G, const SP: usize>(g: &G) {
    if !ARE_MEASURED {
        return;
    }
    let at = (&raw const *g).wrapping_byte_add(SP).cast::<*const usize>();
    // SAFETY: the caller's promise.
    let context = unsafe { *at };
    // SAFETY: a context begins with the address to go on at.
    if trap::is_trap_return(unsafe { *context }) {
        end();
    }
}

/// Sections are counted from now on.
pub fn count() {
    IS_COUNTED.store(true, Relaxed);
}

/// The longest of all CPUs since [`count`] or `reset`; `None` in a build that measures none.
pub fn longest() -> Option<Section> {
    let seen = LONGEST.iter().enumerate().filter_map(|(cpu, longest)| longest.seen(cpu));
    seen.max_by_key(|section| section.ns)
}

/// Forgets what was the longest. A CPU that ends a longer one at this instant may keep it.
#[cfg(feature = "internals")]
pub fn reset() {
    LONGEST.iter().for_each(|longest| longest.cycles.store(0, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_kept_and_where_it_was() {
        let longest = Longest::new();
        longest.end(5, 1);
        assert_eq!(longest.seen(0), None, "it began before it was counted");
        for (began, from, ended, to) in [(10, 1, 40, 2), (50, 3, 60, 4)] {
            longest.begin(began, from);
            longest.end(ended, to);
        }
        longest.end(1_000, 9); // turned on twice
        let at = |word: &AtomicU64| word.load(Relaxed);
        assert_eq!([&longest.cycles, &longest.from, &longest.to].map(at), [30, 1, 2]);
    }
}
