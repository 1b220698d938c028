//! NMIs: what a CPU takes whatever it does, also with interrupts off.
//!
//! CPUs send them for two purposes. [`stop_others`]: the machine goes down, and each CPU records
//! where it was and halts for good. [`sample`]: a CPU has not taken the interrupt of [`ask`]; the
//! NMI records where it is, and the CPU goes on. Every other NMI was not asked for: a button, a
//! monitor's command, or hardware that reports an error. The CPU goes on, and sends itself an
//! interrupt in which it reports the NMI ([`report_unasked`]), as the NMI may have interrupted the
//! code that prints. If they keep coming, the first, second, fourth, eighth and so on are reported.
//!
//! A CPU is sent the next sample only when it has taken the last one: so no two become one, and
//! each NMI is known to be a sample or not.

use super::apic::{self, Message};
use super::trap::Frame;
use crate::arch::x86_64::cpu;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Set by the CPU that stops the others; an NMI means "halt" from then on.
static STOPPING: AtomicBool = AtomicBool::new(false);
/// That CPU, plus one, when the others have stopped, or did not answer.
static STOPPER: AtomicUsize = AtomicUsize::new(0);

struct Nmis {
    /// Where it was when it was stopped; 0 until then.
    stopped_rip: AtomicU64,
    stopped_rbp: AtomicU64,
    /// Samples that were requested, and those that were taken.
    requested: AtomicU32,
    taken: AtomicU32,
    /// The number of an NMI that was not asked for and is to be reported, 0 if there is none, and
    /// where it came.
    unasked: AtomicU64,
    unasked_rip: AtomicU64,
}

/// NMIs of all CPUs that were not asked for.
static UNASKED: AtomicU64 = AtomicU64::new(0);

static NMIS: [Nmis; cpu::MAX_CPUS] = [const {
    Nmis {
        stopped_rip: AtomicU64::new(0),
        stopped_rbp: AtomicU64::new(0),
        requested: AtomicU32::new(0),
        taken: AtomicU32::new(0),
        unasked: AtomicU64::new(0),
        unasked_rip: AtomicU64::new(0),
    }
}; cpu::MAX_CPUS];

pub fn on_nmi(frame: &mut Frame, nmi_sample: Option<fn(u64, u64, bool)>) {
    let nmis = &NMIS[cpu::cpu_index()];
    if STOPPING.load(Ordering::Acquire) {
        nmis.stopped_rbp.store(frame.rbp, Ordering::Relaxed);
        nmis.stopped_rip.store(frame.rip, Ordering::Release); // pairs with `stopped_at`
        cpu::halt_forever();
    }
    let taken = nmis.taken.load(Ordering::Relaxed);
    if taken == nmis.requested.load(Ordering::Acquire) {
        note_unasked(nmis, frame.rip);
        return skip_halt(frame);
    }
    if let Some(nmi_sample) = nmi_sample {
        nmi_sample(frame.rip, frame.rbp, !frame.irqs_enabled());
    }
    skip_halt(frame);
    nmis.taken.store(taken.wrapping_add(1), Ordering::Release); // pairs with `was_sampled`
}

/// Counts an NMI that was not asked for, and has it reported if it is its turn.
#[cold]
fn note_unasked(nmis: &Nmis, rip: u64) {
    let number = UNASKED.fetch_add(1, Ordering::Relaxed) + 1;
    if number.is_power_of_two() {
        nmis.unasked_rip.store(rip, Ordering::Relaxed);
        nmis.unasked.store(number, Ordering::Release); // pairs with `report_unasked`
        apic::current().inspect(|apic| apic.send_self(apic::ASK_VECTOR));
    }
}

/// Says that this CPU took an NMI that was not asked for, if it did and has not said so.
/// Interrupts off, not in an NMI.
pub fn report_unasked() {
    let nmis = &NMIS[cpu::cpu_index()];
    let number = nmis.unasked.load(Ordering::Acquire); // pairs with `note_unasked`
    if number != 0 {
        nmis.unasked.store(0, Ordering::Relaxed); // one that comes now is in the next count
        let (cpu, rip) = (cpu::cpu_index(), nmis.unasked_rip.load(Ordering::Relaxed));
        log::warn!(
            "CPU {cpu} took an NMI that was not asked for, number {number}, at {rip:#x}; it goes on"
        );
    }
}

/// Between `sti` and `hlt` a pending interrupt must end the halt. An NMI that comes there lets it
/// in too early, and the halt would not know: so the halt is over.
fn skip_halt(frame: &mut Frame) {
    const HLT: u8 = 0xf4;
    // SAFETY: the CPU was about to execute what is there.
    if frame.irqs_enabled() && unsafe { (frame.rip as *const u8).read() } == HLT {
        frame.rip += 1;
    }
}

/// Interrupts CPU `index`, which calls `Handlers::liveness_ipi` as soon as it takes interrupts.
pub fn ask(index: usize) {
    // The only failure is an APIC that does not answer; then the CPU does not either.
    let _ = apic::send(cpu::apic_id_of(index), Message::Vector(apic::ASK_VECTOR));
}

/// Has CPU `index` call `Handlers::nmi_sample` at once, unless it has not taken the last NMI yet.
/// One caller at a time.
pub fn sample(index: usize) {
    if was_sampled(index) {
        NMIS[index].requested.fetch_add(1, Ordering::Release); // pairs with `on_nmi`
        let _ = apic::send(cpu::apic_id_of(index), Message::Nmi);
    }
}

/// Whether CPU `index` has taken the last NMI of [`sample`].
pub fn was_sampled(index: usize) -> bool {
    let nmis = &NMIS[index];
    // Acquire: what `Handlers::nmi_sample` has left.
    nmis.taken.load(Ordering::Acquire) == nmis.requested.load(Ordering::Relaxed)
}

/// Stops all other CPUs by NMI, waiting a bounded while for them. Only the first caller does;
/// `false` says that another CPU is stopping all CPUs, this one too.
pub fn stop_others() -> bool {
    if STOPPING.swap(true, Ordering::AcqRel) {
        return false;
    }
    let me = cpu::cpu_index();
    let others = || (0..cpu::num_cpus()).filter(|&i| i != me);
    // Each started CPU gets its own NMI, and no broadcast is sent: a CPU that was never started is
    // still in the firmware, whose code has no NMI handler. The NMI would end there in a triple
    // fault, which resets the machine before the report is printed.
    if let Some(apic) = apic::current() {
        others().for_each(|i| apic.send_nmi_anyway(cpu::apic_id_of(i)));
    }
    // Bounded by polls, not by the clock, which may be what broke.
    for _ in 0..1_000_000 {
        if others().all(|i| stopped_at(i).is_some()) {
            break;
        }
        cpu::relax();
    }
    STOPPER.store(me + 1, Ordering::Relaxed);
    true
}

/// Whether this CPU has stopped all others, by [`stop_others`]: it alone runs, to the machine's end.
pub fn has_stopped_others() -> bool {
    STOPPER.load(Ordering::Relaxed) == cpu::cpu_index() + 1
}

/// Where CPU `index` was when it was stopped: instruction and frame pointer.
pub fn stopped_at(index: usize) -> Option<(u64, u64)> {
    let nmis = &NMIS[index];
    let rip = nmis.stopped_rip.load(Ordering::Acquire);
    (rip != 0).then(|| (rip, nmis.stopped_rbp.load(Ordering::Relaxed)))
}
