//! Queries of the running G, the counters and each CPU; requests to all CPUs. Any CPU may call; a
//! value may be stale at once. Reports read snapshots instead (`snapshot`).

use super::preempt::Slices;
use super::task::Task;
use super::{
    BOOT, CPUS, GHandle, Instance, Joiner, Kind, SCHED, hooks, running, running_on, service,
    system, wake_cpu, worker_in,
};
use crate::arch;
use crate::mem::percpu::Here;
use crate::mem::stack::slot;
use alloc::string::String;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use sched::{G, Random};

pub fn this() -> GHandle {
    running().expect("no G runs").handle()
}

/// The name of that life of a G, if it is not over.
pub fn name_of(handle: &GHandle) -> Option<String> {
    let (name, _) = handle.get()?.kernel.label(|| handle.get().is_some())?;
    Some(name.into_owned())
}

/// The G that this joiner waits for, and its number; `None` if it has ended, or is about to.
pub fn worker<T>(joiner: &Joiner<T>) -> Option<(GHandle, u64)> {
    let (cell, word) = joiner.cell();
    // In the record of its worker's stack, or on the heap.
    let worker = match slot::of_record(cell as u64) {
        Some(slot) => slot.record() as usize,
        None => worker_in(word)?,
    };
    let at = core::ptr::with_exposed_provenance::<G<Task>>(worker);
    // SAFETY: as in `watch::holder`, `joined`: the joiner keeps the cell.
    let g = unsafe { &*at };
    let found = (g.handle(), g.id());
    // The life that runs the job is not over before the outcome is there: so what was read before
    // is of that life.
    fence(Acquire);
    (!joiner.is_done()).then_some(found)
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

/// A random word, repeatable from the seed: one generator a CPU.
pub fn random() -> u64 {
    let here = Here::enter();
    let state = &CPUS[here.index()].random;
    let mut random = Random(state.get());
    let word = random.next_word();
    state.set(random.0);
    word
}

pub fn created() -> u64 {
    CPUS.iter().map(|cpu| cpu.counters.created.get()).sum()
}

/// How many Gs there are, without the kernel's service Gs.
pub fn num_goroutines() -> usize {
    let (created, ended) = created_and_ended();
    (created.saturating_sub(ended) as usize).saturating_sub(service::COUNT.load(Relaxed))
}

/// How many Gs were ever started, and how many have ended.
pub fn created_and_ended() -> (u64, u64) {
    // Before `created`: never more ended than created.
    let ended = CPUS.iter().map(|cpu| cpu.counters.ended.get()).sum();
    (created(), ended)
}

/// A number that changes whenever a G is created or has ended.
pub fn lives_changed() -> u64 {
    let (created, ended) = created_and_ended();
    created + ended
}

/// The cycles that Gs have run, summed over all CPUs. A CPU adds those of its G when it goes idle.
/// If the sum is the same at two moments when all CPUs are idle, no G ran in between; or the CPU
/// that ran one adds its cycles later, and compares again then.
pub fn cycles_run() -> u64 {
    let runs = CPUS[..arch::num_cpus()].iter().map(|cpu| cpu.times.runs());
    runs.fold(0, u64::wrapping_add)
}

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
    let (before, n) = (SCHED.limit(), n.clamp(1, system::most_ps()));
    hooks::cpu_event(Kind::Procs, n as u32);
    for cpu in SCHED.set_limit(n) {
        if cpu < arch::num_cpus() {
            wake_cpu(cpu);
        }
    }
    before
}

/// The slices of every CPU. Any CPU may set and clear their attention bits (`preempt::Attention`):
/// each CPU acts on those of `attention` at its switches, on those of `at_rest` at ticks and halts.
pub fn all_slices() -> impl Iterator<Item = &'static Slices> {
    CPUS[..arch::num_cpus()].iter().map(|cpu| &cpu.slices)
}

/// The number of the M on a CPU, and that of the G that runs there, if one does.
pub fn present(cpu: usize) -> (u32, Option<u64>) {
    (CPUS[cpu].m.get().map_or(0, |m| m.id() as u32), running_on(cpu).map(G::id))
}

/// Whether a CPU runs a G or may be about to, as seen from outside, for `watchdog`.
pub fn is_busy(cpu: usize) -> bool {
    running_on(cpu).is_some() || cpu < SCHED.limit() && !SCHED.is_idle(cpu)
}

/// A number that changes whenever a CPU makes progress: begins a slice, halts, takes a tick. As
/// [`is_busy`].
pub fn progress(cpu: usize) -> u64 {
    let record = &CPUS[cpu];
    let [ticks, preemptions, _] = record.slices.counters();
    let counted = [record.counters.halts.get(), ticks, preemptions];
    counted.into_iter().fold(SCHED.slots()[cpu].tick().into(), u64::wrapping_add)
}
