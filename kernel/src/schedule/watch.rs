//! For those who watch the scheduler: `trace` and `schedtrace`.
//!
//! What they ask of all CPUs, and what they ask about each. Any CPU may call;
//! what is read may be over at once.

use super::task::Task;
use super::{CPUS, G_SLOT};
use crate::arch;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sched::G;

/// Gs of the kernel's own: `attendants`.
static ATTENDANTS: AtomicUsize = AtomicUsize::new(0);

/// One more G is the kernel's own, and not counted.
pub fn count_attendant() {
    ATTENDANTS.fetch_add(1, Relaxed);
}

/// It did not come to be.
pub fn discount_attendant() {
    ATTENDANTS.fetch_sub(1, Relaxed);
}

pub(super) fn attendants() -> usize {
    ATTENDANTS.load(Relaxed)
}

/// Has every CPU see to it at each switch (bits of `preempt::Attention`).
pub fn ask_for_attention(bits: u32) {
    CPUS.iter().for_each(|cpu| cpu.slices.attention.set(bits));
}

/// Takes that back.
pub fn spare_attention(bits: u32) {
    for cpu in &CPUS {
        let _ = cpu.slices.attention.clear(bits);
    }
}

/// The number of the M on a CPU, and that of the G that runs there, if one does.
pub fn present(cpu: usize) -> (u32, Option<u64>) {
    let g = arch::slot_of::<G_SLOT>(cpu) as *const G<Task>;
    // SAFETY: null, or set by `execute` from a G, which lives for ever.
    let g = unsafe { g.as_ref() };
    (CPUS[cpu].m.get().map_or(0, |m| m.id() as u32), g.map(G::id))
}
