//! `chaos=SEED`: random preemption, late wake-ups and delays from a seed.
//!
//! A scheduler is wrong at moments that a quiet machine seldom has: a G that loses its CPU between
//! two instructions, an interrupt that comes late, a CPU that is slow while the others run. This
//! file makes such moments frequent, and derives all of them from one number, so that a failure can
//! be reproduced. Nothing that it does breaks a rule: a kernel that fails under it would fail
//! without it, some day.
//!
//! # What is drawn
//!
//! - **When a slice ends** ([`cut`]): whenever the timer might have to be set (a G is switched to,
//!   readied or started, an interrupt ends), the slice under way is cut to nothing, to a short
//!   time, or not at all. To nothing means: the timer fires as soon as interrupts are on, which is
//!   where the G's kernel call ends. A G that is alone on its CPU is preempted as well: it goes to
//!   the global queue and, perhaps, to another CPU. And as the end of a slice sends the run-next G
//!   to the tail, the next G is drawn too.
//! - **When a wake-up is sent** ([`puts_off`]): at once, or by an alarm of this CPU some time later
//!   ([`Alarm::LateWakes`]). It is never lost: a CPU that halts keeps its alarms.
//! - **How long a CPU takes** ([`delay`]): before it switches, sends a wake-up or halts it may
//!   spin for a while, interrupts off. That widens the windows between two steps of a protocol;
//!   under `-icount`, where CPUs take turns and a turn ends at a `pause`, it is the only source of
//!   interleavings.
//! - **Which P to steal from, which to wake, where to look**: by `sched`, which is told to draw
//!   (`Sched::be_random`); the order of stealing is drawn in any case, and follows from this seed
//!   unless `seed=` gives another.
//!
//! How often each of these happens follows from the seed as well ([`ChaosConfig`]): a machine that
//! does a bit of everything all the time finds less.
//!
//! # Reproducing a run
//!
//! Each CPU draws from its own generator, seeded from SEED and its number, and from the end of
//! bring-up on ([`begin`]): so the draws of one CPU do not depend on how fast the others are. (Only
//! the CPU to wake is drawn from one common generator, as not every waker has a P.) Under
//! `-icount`, with nothing that depends on the host, the same seed gives the same run to the event.
//!
//! # What it costs when it is off
//!
//! Nothing where Gs are switched, readied and started: chaos is one more bit of
//! `preempt::Attention`, which these paths test as a whole already. A wake-up, which costs an
//! interrupt, pays two instructions. `run` calls, through its hooks; failures print [`note`].
#![forbid(unsafe_code)]

use crate::arch;
use crate::mem::percpu::Here;
use crate::run;
use crate::run::preempt::{Alarm, Attention};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use sched::Random;

/// Whether [`begin`] was given a seed.
static IS_ON: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);
static CPUS: [Cpu; arch::MAX_CPUS] =
    [const { Cpu { state: AtomicU64::new(0), late: Late::new() } }; arch::MAX_CPUS];

/// Begins, if there is a seed: at the end of bring-up, on the boot CPU, before the first G starts.
pub fn begin(seed: Option<u64>) {
    let Some(seed) = seed else { return };
    SEED.store(seed, Relaxed);
    for (index, cpu) in CPUS.iter().enumerate() {
        cpu.state.store(generator(seed, index as u64).0, Relaxed);
    }
    IS_ON.store(true, Relaxed);
    run::SCHED.be_random(seed);
    // Releases what is stored above.
    run::all_slices().for_each(|slices| slices.attention.set(Attention::CHAOS));
}

/// Writes `chaos=SEED` and the end of a line, for the report of a failure; nothing if chaos is off.
pub fn note(out: &mut dyn fmt::Write) -> fmt::Result {
    if is_on() { writeln!(out, "chaos={}", SEED.load(Relaxed)) } else { Ok(()) }
}

pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// How many cycles the slice under way on this CPU may last; most often `u64::MAX`. After a
/// [`delay`]. Interrupts off.
pub(crate) fn cut() -> u64 {
    delay();
    let cut_ns = with_draws(|config, draws| config.cut_ns(draws));
    cut_ns.map_or(u64::MAX, arch::ns_to_cycles)
}

/// Spins for a while, now and then. Interrupts off.
pub(crate) fn delay() {
    for _ in 0..with_draws(|config, draws| config.spins(draws)) {
        arch::relax();
    }
}

/// Whether the wake-up of `target` is sent later, by the timer of this CPU.
pub(crate) fn puts_off(here: &Here, target: usize) -> bool {
    delay();
    let late_ns = with_draws(|config, draws| config.late_ns(draws));
    // None: a CPU that runs no Gs yet has no deadlines.
    let (Some(late_ns), Some(slices)) = (late_ns, run::slices()) else { return false };
    CPUS[here.index()].late.add(target);
    // All are sent when the first is due.
    let due_ns = slices.alarm(Alarm::LateWakes).min(arch::now_ns() + late_ns);
    slices.set_alarm(Alarm::LateWakes, due_ns);
    true
}

pub(crate) fn on_alarm() {
    CPUS[arch::cpu_index()].late.take(arch::wake);
}

fn with_draws<R>(f: impl FnOnce(&ChaosConfig, &mut Random) -> R) -> R {
    let cpu = &CPUS[arch::cpu_index()];
    let mut draws = Random(cpu.state.load(Relaxed));
    let result = f(&ChaosConfig::of(SEED.load(Relaxed)), &mut draws);
    cpu.state.store(draws.0, Relaxed);
    result
}

/// The chaos state of a CPU. Its own, with interrupts off; atomic only because it is in a static.
struct Cpu {
    state: AtomicU64,
    late: Late,
}

/// The delayed wake-ups of a CPU: a bit for each CPU that is to be woken.
struct Late([AtomicU64; arch::MAX_CPUS / 64]);

impl Late {
    const fn new() -> Self {
        Late([const { AtomicU64::new(0) }; arch::MAX_CPUS / 64])
    }

    /// Two for the same CPU are one, as two interrupts would be.
    fn add(&self, target: usize) {
        self.0[target / 64].fetch_or(1 << (target % 64), Relaxed);
    }

    fn take(&self, mut send: impl FnMut(usize)) {
        for (word, targets) in self.0.iter().enumerate() {
            let mut bits = targets.swap(0, Relaxed);
            while bits != 0 {
                send(word * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

/// The probability of each event under a seed, in 256ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChaosConfig {
    at_once: u8,
    /// A slice is cut short.
    short: u8,
    /// A wake-up is delayed.
    late: u8,
    /// A CPU spins for a while.
    slow: u8,
}

/// A slice that is cut short lasts for half a microsecond to half a millisecond.
const CUT_BITS: core::ops::Range<u32> = 9..19;
/// A delayed wake-up comes a microsecond to a millisecond later.
const DELAY_BITS: core::ops::Range<u32> = 10..20;
/// A delay is 127 spin hints at most: some 10 µs.
const SPIN_BITS: core::ops::Range<u32> = 1..7;

impl ChaosConfig {
    fn of(seed: u64) -> Self {
        // From the generator of no CPU: the CPUs' draws must not depend on it.
        let word = generator(seed, u64::MAX).next_word();
        let pick = |at: u32, of: [u8; 4]| of[(word >> at) as usize % 4];
        ChaosConfig {
            at_once: pick(8, [0, 4, 16, 40]),
            short: pick(16, [8, 24, 64, 128]),
            late: pick(24, [0, 16, 64, 160]),
            slow: pick(32, [0, 4, 16, 48]),
        }
    }

    /// After how many nanoseconds a slice ends, if it is cut.
    fn cut_ns(&self, draws: &mut Random) -> Option<u64> {
        match (draws.next_word() as u8).checked_sub(self.at_once) {
            None => Some(0),
            Some(rest) => (rest < self.short).then(|| up_to_some_bits(draws, CUT_BITS)),
        }
    }

    /// For how many nanoseconds a wake-up is delayed, if it is.
    fn late_ns(&self, draws: &mut Random) -> Option<u64> {
        let is_late = (draws.next_word() as u8) < self.late;
        is_late.then(|| up_to_some_bits(draws, DELAY_BITS))
    }

    fn spins(&self, draws: &mut Random) -> u64 {
        let is_slow = (draws.next_word() as u8) < self.slow;
        if is_slow { up_to_some_bits(draws, SPIN_BITS) } else { 0 }
    }
}

/// The generator of one CPU under a seed. The states are far apart, because all step alike.
fn generator(seed: u64, cpu: u64) -> Random {
    Random(Random(seed).next_word() ^ cpu.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// A random number whose number of bits is uniform in `bits`.
fn up_to_some_bits(draws: &mut Random, bits: core::ops::Range<u32>) -> u64 {
    let word = draws.next_word();
    let bits = bits.start + (word >> 48) as u32 % bits.len() as u32;
    let top = 1 << bits;
    top + word % top
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, cpu: u64) -> Vec<(Option<u64>, Option<u64>, u64)> {
        let (config, mut draws) = (ChaosConfig::of(seed), generator(seed, cpu));
        let mut draw =
            || (config.cut_ns(&mut draws), config.late_ns(&mut draws), config.spins(&mut draws));
        (0..1000).map(|_| draw()).collect()
    }

    #[test]
    fn draws_follow_from_seed_and_cpu() {
        assert_eq!(draws(7, 0), draws(7, 0));
        assert_ne!(draws(7, 0), draws(7, 1));
        assert_ne!(draws(7, 0), draws(8, 0));
    }

    #[test]
    fn every_kind_of_event_comes_under_some_seed_and_stays_in_bounds() {
        let all: Vec<_> = (0..64).flat_map(|seed| draws(seed, 3)).collect();
        let cuts: Vec<_> = all.iter().filter_map(|(cut, ..)| *cut).collect();
        let delays: Vec<_> = all.iter().filter_map(|(_, delay, _)| *delay).collect();
        assert!(cuts.contains(&0) && cuts.iter().any(|&cut| cut > 100_000));
        assert!(cuts.iter().all(|&cut| cut < 1 << CUT_BITS.end));
        assert!(!delays.is_empty() && delays.iter().all(|&ns| ns < 1 << DELAY_BITS.end));
        assert!(all.iter().any(|&(.., spins)| spins > 0));
        assert!(all.iter().all(|&(.., spins)| spins < 1 << SPIN_BITS.end));
    }

    #[test]
    fn whole_slices_come_under_every_seed() {
        for seed in 0..256 {
            let whole = draws(seed, 0).iter().filter(|(cut, ..)| cut.is_none()).count();
            assert!(whole > 200, "seed {seed}: {whole} of 1000 slices are whole");
        }
    }

    #[test]
    fn late_wakeup_is_sent_once() {
        let (late, mut sent) = (Late::new(), Vec::new());
        [3, 200, 3].into_iter().for_each(|target| late.add(target));
        for _ in 0..2 {
            late.take(|cpu| sent.push(cpu));
            assert_eq!(sent, [3, 200]);
        }
    }
}
