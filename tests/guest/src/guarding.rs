//! Checks that CPUs watch each other: `runnext::watchdog`.
//!
//! Who is stuck here stays so until it was reported, however long that takes: the
//! host's time says nothing.

use crate::check::{self, checks, go_on, wait_until};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use runnext::internals::arch;
use runnext::internals::lock::IrqLock;
use runnext::internals::watchdog::{self, Counts};
use runnext::prelude::*;
use runnext::stats;

runnext::main!(guarding, main);

fn main() {
    if args().is_empty() {
        check::run(checks![
            a_g_alone_on_its_cpu_is_asked_and_not_reported,
            a_cpu_with_interrupts_off_is_reported_and_seen_to_go_on,
            a_lock_that_is_not_freed_is_reported_for_whoever_spins,
            a_cpu_that_wakes_an_idle_machine_and_gets_stuck_is_reported,
        ]);
    } else {
        check::run(checks![idle: an_idle_machine_is_not_looked_at]);
    }
}

/// Spins, as nothing else is possible with interrupts off, until that holds.
fn spin_until(condition: impl Fn(Counts) -> bool) {
    while !condition(watchdog::counts()) {
        check::spin();
    }
}

fn a_g_alone_on_its_cpu_is_asked_and_not_reported() {
    if num_cpus() == 1 {
        return;
    }
    let before = watchdog::counts();
    let asked_twice = move |now: Counts| now.questions >= before.questions + 2;
    go_on(num_cpus() - 1, move || spin_until(asked_twice)).join().expect("no panic");
    assert_eq!(watchdog::counts().reports, before.reports);
}

fn a_cpu_with_interrupts_off_is_reported_and_seen_to_go_on() {
    if num_cpus() == 1 {
        return;
    }
    let before = watchdog::counts();
    go_on(num_cpus() - 1, move || spin_with_interrupts_off(before)).join().expect("no panic");
    wait_until(|| watchdog::counts().ends > before.ends);
    assert_eq!(watchdog::counts().reports, before.reports + 1, "once an incident");
}

#[inline(never)]
fn spin_with_interrupts_off(before: Counts) {
    let irqs = arch::irq::disable_probed();
    spin_until(|now| now.reports > before.reports);
    arch::irq::restore(irqs);
}

/// What nobody can have.
struct NeverFreed;

fn a_lock_that_is_not_freed_is_reported_for_whoever_spins() {
    static LOCK: IrqLock<NeverFreed> = IrqLock::new(NeverFreed);
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    // Two are stuck: who has the lock, and who wants it.
    if num_cpus() < 3 {
        return;
    }
    let before = watchdog::counts();
    let holder = go_on(num_cpus() - 1, move || {
        let _held = LOCK.lock();
        IS_HELD.store(true, Relaxed);
        spin_until(|now| now.reports >= before.reports + 2);
    });
    wait_until(|| IS_HELD.load(Relaxed));
    go_on(num_cpus() - 2, || drop(LOCK.lock())).join().expect("no panic");
    holder.join().expect("no panic");
    wait_until(|| watchdog::counts().ends >= before.ends + 2);
}

/// While all CPUs are halted no CPU is watched, so the CPU that wakes must arrange for it itself.
fn a_cpu_that_wakes_an_idle_machine_and_gets_stuck_is_reported() {
    if num_cpus() == 1 {
        return;
    }
    let before = watchdog::counts();
    sleep(Duration::from_secs(3));
    spin_with_interrupts_off(before);
    wait_until(|| watchdog::counts().ends > before.ends);
    assert_eq!(watchdog::counts().reports, before.reports + 1, "once an incident");
}

/// The CPU that wakes up arms a watchdog for one check, which finds all CPUs idle and stops.
/// So the number of checks does not grow with the time that the machine sleeps.
fn an_idle_machine_is_not_looked_at() {
    sleep(Duration::from_secs(2));
    let before = watchdog::counts();
    let ticks = || stats().cpus.iter().map(|cpu| cpu.ticks).sum::<u64>();
    let ticks_before = ticks();
    sleep(Duration::from_secs(20));
    let looks = watchdog::counts().looks - before.looks;
    assert!(looks <= 2, "{looks} checks in 20 s of idling");
    // The one that ends the sleep, or two if the first came a moment early.
    let ticks = ticks() - ticks_before;
    assert!(ticks <= 2, "{ticks} ticks in 20 s of idling");
}
