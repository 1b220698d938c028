//! What a program asks about itself: who am I, a permit, a random word, figures.
//!
//! No scheduling happens here. The program's names for these are in `gref` and
//! `stats`, which come through [`crate::park`].

use super::{GHandle, MS, running};
use crate::mem::percpu::Here;
use crate::stats::{Counters, CpuStats, Stats};
use crate::{arch, preempt};

/// Names the running G.
pub fn this() -> GHandle {
    running().expect("no G runs").handle()
}

/// Leaves a permit for that life of a G: its next [`take_permit`] finds it.
pub fn permit(handle: &GHandle) {
    let (g, generation) = handle.parts();
    g.kernel.permit.give(generation);
}

/// Takes the permit of the running G, if there is one.
pub fn take_permit() -> bool {
    let (g, generation) = this().parts();
    g.kernel.permit.take(generation)
}

/// A random word, repeatable from the seed: SplitMix64, one state a CPU.
pub fn random() -> u64 {
    let here = Here::enter();
    let state = &MS[here.index()].random;
    state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
    let word = state.get();
    drop(here);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What was counted so far.
pub fn stats() -> Stats {
    // Ended before created: so no G is seen to end that was not begun.
    let ms = || MS[..arch::num_cpus()].iter();
    let ended = ms().map(|m| m.counters.ended.get()).sum();
    let created = ms().map(|m| m.counters.created.get()).sum();
    let cpus = ms().enumerate().map(|(cpu, m)| {
        let (ticks, preemptions) = preempt::counters(cpu);
        let Counters { switches, halts, wakes, .. } = &m.counters;
        let (switches, halts, wakes) = (switches.get(), halts.get(), wakes.get());
        CpuStats { switches, preemptions, ticks, halts, wakes }
    });
    Stats { created, ended, cpus: cpus.collect() }
}

/// How many Gs there are.
pub fn num_goroutines() -> usize {
    let count = |of: fn(&Counters) -> u64| MS.iter().map(|m| of(&m.counters)).sum::<u64>();
    let ended = count(|counters| counters.ended.get());
    count(|counters| counters.created.get()).saturating_sub(ended) as usize
}
