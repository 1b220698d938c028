//! Queries of the running G and the machine: handle, permit, random, counters.
//!
//! No scheduling happens here. The public names for these are in `gref` and `stats`, which call
//! them through [`crate::park`].

use super::{CPUS, GHandle, SCHED, m, running, wake_cpu, watch};
use crate::arch;
use crate::mem::percpu::Here;
use crate::program::{BOOT, Instance};
use crate::stats::{Counters, CpuStats, Histogram, MStats, Stats};
use crate::trace::{self, Kind};
use sched::G;

/// The handle of the running G.
pub fn this() -> GHandle {
    running().expect("no G runs").handle()
}

/// The program of the running G; the booted program if no G runs yet.
pub fn program() -> &'static Instance {
    running().map_or(&BOOT, |g| g.kernel.program())
}

/// Leaves a permit for that life of a G: its next [`take_permit`] finds it.
pub fn permit(handle: &GHandle) {
    // Here, as a stack overflow between the permit and the ready would lose the wake-up.
    arch::probe_stack();
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
    let state = &CPUS[here.index()].random;
    state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
    let word = state.get();
    drop(here);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A snapshot of all counters.
pub fn stats() -> Stats {
    // Ended before created: so the sum never shows more ended Gs than created ones.
    let all = || CPUS[..arch::num_cpus()].iter();
    let ended = all().map(|cpu| cpu.counters.ended.get()).sum();
    let created = all().map(|cpu| cpu.counters.created.get()).sum();
    let cpus = all().enumerate().map(|(index, cpu)| {
        let [ticks, preemptions, displacements] = cpu.slices.counters();
        let counters = &cpu.counters;
        CpuStats {
            switches: cpu.times.queue_wait.total(),
            preemptions,
            ticks,
            halts: counters.halts.get(),
            wakes: counters.wakes.get(),
            displacements,
            handoffs: counters.handoffs.get(),
            retakes: counters.retakes.get(),
            steals: SCHED.slots()[index].steals(),
            stolen: SCHED.slots()[index].stolen(),
            run_ns: cpu.times.run_ns(),
            idle_ns: cpu.times.idle_ns(),
        }
    });
    let (ms, spare, blocked) = m::count();
    let ms = MStats { created: ms, spare, blocked };
    let [mut queue_wait, mut on_cpu] = [Histogram::default(), Histogram::default()];
    for cpu in all() {
        cpu.times.queue_wait.add_to(&mut queue_wait);
        cpu.times.on_cpu.add_to(&mut on_cpu);
    }
    Stats { created, ended, ms, queue_wait, on_cpu, cpus: cpus.collect() }
}

/// How many Gs there are, without the kernel's service Gs.
pub fn num_goroutines() -> usize {
    let count = |of: fn(&Counters) -> u64| CPUS.iter().map(|cpu| of(&cpu.counters)).sum::<u64>();
    let ended = count(|counters| counters.ended.get());
    let alive = count(|counters| counters.created.get()).saturating_sub(ended) as usize;
    alive.saturating_sub(watch::attendants())
}

/// How many Gs were ever started.
pub fn created() -> u64 {
    CPUS.iter().map(|cpu| cpu.counters.created.get()).sum()
}

/// A number that changes whenever a G is created or has ended.
pub fn lives_changed() -> u64 {
    let changes = |cpu: &super::Cpu| cpu.counters.created.get() + cpu.counters.ended.get();
    CPUS.iter().map(changes).sum()
}

/// How many cycles Gs have run, up to the last time that one left its CPU. A caller that sees that
/// a G has left finds its cycles in here.
pub fn cycles_run() -> u64 {
    let cycles = CPUS[..arch::num_cpus()].iter().map(|cpu| cpu.times.cycles_run());
    cycles.fold(0, u64::wrapping_add)
}

/// How many Ps run a G, or are about to.
pub fn busy() -> usize {
    SCHED.counts().busy
}

/// Whether no P runs a G, or looks for one.
pub fn all_idle() -> bool {
    let counts = SCHED.counts();
    counts.busy == 0 && counts.spinning == 0
}

/// How many slices of its own the running G has begun.
pub fn slices_begun() -> u64 {
    running().map_or(0, |g| g.kernel.slices.get())
}

/// The number of the running G.
pub fn current_id() -> u64 {
    running().map_or(0, G::id)
}

/// How many Ps run Gs.
pub fn gomaxprocs() -> usize {
    SCHED.limit()
}

/// Lets `n` Ps run Gs, at least one and at most one for each CPU; returns the previous number (Go:
/// procresize).
pub fn set_gomaxprocs(n: usize) -> usize {
    let (before, n) = (SCHED.limit(), n.clamp(1, arch::num_cpus()));
    trace::cpu_event(Kind::Procs, n as u32);
    for cpu in SCHED.set_limit(n) {
        if cpu < arch::num_cpus() {
            wake_cpu(cpu);
        }
    }
    before
}
