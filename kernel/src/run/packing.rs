//! Packing the stacks of parked Gs (`mem::stack::pack`), as far as it has to do with Gs: whether
//! one is at rest, and when it is time.

use super::preempt::{Alarm, Attention};
use super::task::Task;
use super::{CPUS, SCHED, ask_for_upkeep, slices, wake_cpu, yield_now};
use crate::arch;
use crate::mem::stack::POOL;
use crate::mem::stack::pack::{self, AtRest, LONG_NS, MANY, PackChoice};
use core::iter::once;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use sched::{G, Status};

/// Whether a CPU has an [`Alarm::Pack`].
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Sets what is packed. Once, when all CPUs are up.
pub fn init(choice: PackChoice) {
    pack::init(choice, at_rest);
    if pack::is_always() {
        super::all_slices().for_each(|slices| slices.attention.set(Attention::UPKEEP));
    }
}

/// The [`pack::FindAtRest`]. The packer asks twice: if the second answer is the same, and the stack
/// was not touched since, it stays true until the stack's entry says that it is packed.
fn at_rest(record: usize) -> Option<AtRest> {
    // SAFETY: the record of a slot that has one, which is a G (`spawn::g_with_stack`), for ever.
    let g = unsafe { &*core::ptr::with_exposed_provenance::<G<Task>>(record) };
    let parked_ns = match g.handle_and_status().1 {
        Status::Parked => {
            let cycles = arch::cycles().wrapping_sub(g.kernel.account.since());
            Some(if cycles.cast_signed() < 0 { 0 } else { arch::cycles_to_ns(cycles) })
        }
        Status::Runnable => None,
        Status::Dead | Status::Running | Status::Parking | Status::Woken => return None,
    };
    // A G whose stack was full ends on pages that it cannot do without. SAFETY: the record lives
    // for ever; any value of the word is one, and it does not change at rest.
    let full = unsafe { g.kernel.full.as_ptr().read_volatile() };
    if g.kernel.unwinds() || full.is_some_and(|full| full.is_own) {
        return None;
    }
    // SAFETY: the record lives for ever; one instruction writes the word, before the state.
    let sp = unsafe { g.kernel.sp.as_ptr().read_volatile() } as u64;
    Some(AtRest { sp, parked_ns })
}

/// Gs were made, with their stacks: if there are many now, this CPU arranges for packing.
pub(crate) fn made_some() {
    if POOL.made(0) as usize >= MANY && !IS_SET.swap(true, Relaxed) {
        let irqs = arch::irq::disable_probed();
        set_alarm(arch::now_ns() + LONG_NS);
        arch::irq::restore(irqs);
    }
}

/// The handler of [`Alarm::Pack`]: each second, or sooner if the last round did not pack all. A CPU
/// without a G packs; if there is none, this one does, and its G leaves for that. Interrupts off.
pub fn on_alarm(now_ns: u64) {
    let is_behind = pack::is_due();
    if pack::ask() {
        set_alarm(now_ns + if is_behind { sched::SLICE_NS } else { LONG_NS });
        let here = arch::cpu_index();
        let mut cpus = once(here).chain(0..arch::num_cpus());
        let cpu = cpus.find(|&cpu| SCHED.is_idle(cpu)).unwrap_or(here);
        CPUS[cpu].slices.attention.set(Attention::UPKEEP);
        if cpu != here {
            wake_cpu(cpu);
        }
    }
}

fn set_alarm(at_ns: u64) {
    if let Some(slices) = slices() {
        slices.set_alarm(Alarm::Pack, at_ns);
    }
}

/// Packs the stacks of all Gs that are parked, at once. By a G.
pub fn pack_parked() {
    struct Asked;
    impl Drop for Asked {
        fn drop(&mut self) {
            pack::ask_for_all(false);
        }
    }
    pack::ask_for_all(true);
    let _asked = Asked; // this G may be killed where it yields
    while pack::is_due() {
        ask_for_upkeep();
        yield_now();
        if pack::is_always() {
            break;
        }
    }
}
