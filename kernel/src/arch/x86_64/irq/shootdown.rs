//! Making every CPU forget a translation: one interrupt, one answer each.
//!
//! Frames of unmapped pages must not be freed before the last CPU has dropped its translations of
//! them. The asking CPU takes the next number, sends every other CPU an interrupt, and waits until
//! each has answered with that number or a later one. A CPU flushes its whole TLB, whatever was
//! asked: unmapping is batched so that it is rare, and a list of ranges in shared memory would be a
//! protocol of its own.
//!
//! Interrupts are on while a CPU waits, also for its turn to ask: two CPUs that ask at once must be
//! able to answer each other.

use super::{apic, flag};
use crate::arch::x86_64::cpu;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use x86_64::instructions::tlb;

/// The interrupt that asks; between the other vectors of the kernel's own.
pub const VECTOR: u8 = 0xf3;

/// One asks at a time.
static ASKING: AtomicBool = AtomicBool::new(false);
/// The number of the latest question.
static ASKED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: [AtomicU64; cpu::MAX_CPUS] = [const { AtomicU64::new(0) }; cpu::MAX_CPUS];

/// Polls after which a CPU that does not answer is taken for dead: minutes on hardware.
const MAX_POLLS: u64 = 1 << 34;

/// Makes all CPUs forget their translations, and returns when they have.
/// Interrupts on, no lock held.
pub fn shootdown() {
    assert!(flag::enabled(), "irqs off");
    while ASKING.swap(true, Ordering::Acquire) {
        cpu::relax();
    }
    // Pairs with `answer`: the unmapping comes before the question.
    let number = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    // Not this CPU, whichever that is while interrupts are on: on the stack of
    // an M this code is not moved.
    let me = cpu::cpu_index();
    let others = || (0..cpu::num_cpus()).filter(move |&i| i != me);
    for i in others() {
        let _ = apic::send(cpu::apic_id_of(i), apic::Message::Vector(VECTOR));
    }
    tlb::flush_all();
    for i in others() {
        let mut polls = 0..MAX_POLLS;
        // Pairs with the store in `answer`: it has forgotten.
        while ANSWERED[i].load(Ordering::Acquire) < number {
            assert!(polls.next().is_some(), "CPU {i} does not answer");
            cpu::relax();
        }
    }
    ASKING.store(false, Ordering::Release); // pairs with the swap above
}

/// What the handler of [`VECTOR`] does; `also` is `Handlers::shootdown`.
pub fn answer(also: fn()) {
    let number = ASKED.load(Ordering::Acquire);
    tlb::flush_all();
    also();
    ANSWERED[cpu::cpu_index()].store(number, Ordering::Release);
}
