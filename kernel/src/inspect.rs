//! Read-only snapshots of the machine, for tests and for programs.
//!
//! Everything here only reads. A program may call any of it at any time.

pub use crate::arch::CpuInfo;
pub use crate::arch::paging::Audit;
pub use crate::drivers::irq::LineInfo as IrqInfo;
pub use crate::mem::PAGE_SIZE;
pub use crate::mem::Stats as MemoryStats;
pub use crate::schedule::PInfo;

use crate::{arch, mem};
use alloc::vec::Vec;

/// The CPUs that came up, by index.
///
/// ```no_run
/// for cpu in runnext::inspect::cpus() {
///     runnext::println!("CPU {}: APIC id {}, {}", cpu.index, cpu.apic_id, cpu.topology);
/// }
/// ```
pub fn cpus() -> &'static [CpuInfo] {
    arch::cpus()
}

/// Walks all page tables and counts the kinds of entries.
///
/// ```no_run
/// assert_eq!(runnext::inspect::page_tables().writable_and_executable, 0);
/// ```
pub fn page_tables() -> Audit {
    arch::paging::audit().unwrap_or_default()
}

/// The interrupts of all drivers.
///
/// ```
/// for irq in runnext::inspect::irqs() {
///     println!("{:#x} {}: {} interrupts", irq.vector, irq.name, irq.count);
/// }
/// ```
pub fn irqs() -> impl Iterator<Item = IrqInfo> {
    crate::drivers::irq::lines()
}

/// Frames, heap and stacks, in numbers.
pub fn memory() -> MemoryStats {
    mem::stats()
}

/// All possible Ps, by number, and the length of the global queue.
///
/// ```
/// let (ps, global) = runnext::inspect::ps();
/// println!("{} Gs wait in queues of Ps", ps.iter().map(|p| p.queued).sum::<usize>());
/// assert_eq!(global, 0);
/// ```
#[must_use]
pub fn ps() -> (Vec<PInfo>, usize) {
    crate::schedule::ps()
}

/// How many time slices of its own the calling G has begun. A G that runs next after the G that
/// readied it inherits that G's slice.
pub fn slices() -> u64 {
    crate::schedule::slices_begun()
}

/// Nanoseconds since the clock was started.
pub fn now_ns() -> u64 {
    arch::now_ns()
}

/// By how much a reading of the clock may seem to go back between two CPUs.
pub fn clock_uncertainty_ns() -> u64 {
    arch::clock_uncertainty_ns()
}
