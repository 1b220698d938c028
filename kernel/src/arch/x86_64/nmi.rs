//! NMIs: what a CPU takes whatever it does, also with interrupts off.
//!
//! Two things are said with them. *Stop* ([`stop_others`]): the machine goes down,
//! and each CPU notes where it was and halts for good. *Where are you?* ([`sample`]):
//! a CPU does not answer the interrupt that asks whether it takes any ([`ask`]); the
//! NMI finds it, and it goes on afterwards. Every other NMI is the hardware's, and
//! fatal.
//!
//! A CPU is sent the next question only when it has taken the last one: so none is
//! lost in another, and each NMI that comes is known to be one or not.

use super::trap::Frame;
use super::{apic, cpu};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Set by the CPU that stops the others; an NMI means "halt" from then on.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// What is known of the NMIs of a CPU.
struct Nmis {
    /// Where it was when it was stopped; 0 until then.
    stopped_rip: AtomicU64,
    stopped_rbp: AtomicU64,
    /// Samples that were asked for, and those that were taken.
    asked: AtomicU32,
    taken: AtomicU32,
}

static NMIS: [Nmis; cpu::MAX_CPUS] = [const {
    Nmis {
        stopped_rip: AtomicU64::new(0),
        stopped_rbp: AtomicU64::new(0),
        asked: AtomicU32::new(0),
        taken: AtomicU32::new(0),
    }
}; cpu::MAX_CPUS];

/// The handler. False if nobody here has asked for it.
pub fn on_nmi(frame: &mut Frame, sampled: Option<fn(u64, u64, bool)>) -> bool {
    let nmis = &NMIS[cpu::cpu_index()];
    if STOPPING.load(Ordering::Acquire) {
        nmis.stopped_rbp.store(frame.rbp, Ordering::Relaxed);
        nmis.stopped_rip.store(frame.rip, Ordering::Release); // pairs with `stopped_at`
        cpu::halt_forever();
    }
    let taken = nmis.taken.load(Ordering::Relaxed);
    if taken == nmis.asked.load(Ordering::Acquire) {
        return false;
    }
    if let Some(sampled) = sampled {
        sampled(frame.rip, frame.rbp, !frame.irqs_on());
    }
    skip_halt(frame);
    nmis.taken.store(taken.wrapping_add(1), Ordering::Release); // pairs with `was_sampled`
    true
}

/// Between `sti` and `hlt` an interrupt that is pending must end the halt. An NMI
/// that comes there lets it in too early, and the halt would not know: so the halt
/// is over.
fn skip_halt(frame: &mut Frame) {
    const HLT: u8 = 0xf4;
    // SAFETY: the CPU was about to execute what is there.
    if frame.irqs_on() && unsafe { (frame.rip as *const u8).read() } == HLT {
        frame.rip += 1;
    }
}

/// Interrupts CPU `index`, which calls `Handlers::asked` as soon as it takes
/// interrupts.
pub fn ask(index: usize) {
    // The only failure is an APIC that does not answer; then nobody does.
    let _ = apic::send_ipi(cpu::apic_id_of(index), apic::ASK_VECTOR);
}

/// Has CPU `index` call `Handlers::sampled` at once, unless it has not taken the
/// last NMI yet. One caller at a time.
pub fn sample(index: usize) {
    if was_sampled(index) {
        NMIS[index].asked.fetch_add(1, Ordering::Release); // pairs with `on_nmi`
        let _ = apic::send_nmi(cpu::apic_id_of(index));
    }
}

/// Whether CPU `index` has taken the last NMI of [`sample`].
pub fn was_sampled(index: usize) -> bool {
    let nmis = &NMIS[index];
    // Acquire: what `Handlers::sampled` has left.
    nmis.taken.load(Ordering::Acquire) == nmis.asked.load(Ordering::Relaxed)
}

/// Stops all other CPUs by NMI, waiting a bounded while for them. Only the
/// first caller does; `false` says that another CPU is stopping everybody,
/// this one too.
pub fn stop_others() -> bool {
    if STOPPING.swap(true, Ordering::AcqRel) {
        return false;
    }
    let me = cpu::cpu_index();
    let others = || (0..cpu::num_cpus()).filter(|&i| i != me && cpu::is_online(i));
    // Not to all at once: one that was never started is still the firmware's, which
    // takes no NMI, and three faults in a row there reset the machine unheard.
    others().for_each(|i| apic::send_nmi_anyway(cpu::apic_id_of(i)));
    // Bounded by polls, not by the clock, which may be what broke.
    for _ in 0..1_000_000 {
        if others().all(|i| stopped_at(i).is_some()) {
            break;
        }
        cpu::relax();
    }
    true
}

/// Where CPU `index` was when it was stopped: instruction and frame pointer.
pub fn stopped_at(index: usize) -> Option<(u64, u64)> {
    let nmis = &NMIS[index];
    let rip = nmis.stopped_rip.load(Ordering::Acquire);
    (rip != 0).then(|| (rip, nmis.stopped_rbp.load(Ordering::Relaxed)))
}
