//! The machine below the scheduler, read-only, at any time: CPUs, memory, interrupts, clock.
#![forbid(unsafe_code)]

pub use crate::arch::paging::Audit;
pub use crate::arch::{CpuInfo, clock_uncertainty_ns, cpus, now_ns};
pub use crate::drivers::irq::{LineInfo as IrqInfo, lines as irqs};
pub use crate::mem::{PAGE_SIZE, Stats as MemoryStats, stats as memory};
pub use crate::run::slices_begun as slices;

/// Walks all page tables and counts the kinds of entries.
///
/// ```no_run
/// assert_eq!(runnext::inspect::page_tables().writable_and_executable, 0);
/// ```
pub fn page_tables() -> Audit {
    crate::arch::paging::audit().unwrap_or_default()
}
