//! The machine below the scheduler, at any time: CPUs, memory, interrupts, clock. Read-only, but
//! for [`pack_parked`].
#![forbid(unsafe_code)]

pub use crate::arch::paging::Audit;
pub use crate::arch::{CpuInfo, clock_uncertainty_ns, cpus, now_ns};
pub use crate::drivers::irq::{LineInfo as IrqInfo, lines as irqs};
pub use crate::mem::{PAGE_SIZE, Stats as MemoryStats, stats as memory};
pub use crate::run::near::{Distance, distance};
pub use crate::run::packing::pack_parked;
pub use crate::run::slices_begun as slices;
pub use crate::watch::irqs_off::{IrqsOff, longest_irqs_off};

/// Walks all page tables and counts the kinds of entries.
pub fn page_tables() -> Audit {
    crate::arch::paging::audit().unwrap_or_default()
}
