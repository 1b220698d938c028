//! Device interrupts: which line goes to which CPU, and how many came.
//!
//! The machine knows how a line is wired ([`arch::route_isa`]); this file keeps
//! the books. A driver that serves its interrupts will be called from here.

use crate::{arch, preempt};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use crate::arch::RouteError;

/// What is kept of one vector.
struct Line {
    count: AtomicU64,
    cpu: AtomicUsize,
}

static LINES: [Line; 256] =
    [const { Line { count: AtomicU64::new(0), cpu: AtomicUsize::new(0) } }; 256];

/// Sends the ISA interrupt `irq` to `cpu` as `vector` (0x30 to 0xef), and lets
/// it come.
///
/// # Errors
/// No such line or CPU, or not a vector for devices.
///
/// ```no_run
/// use runnext::drivers::irq;
/// irq::route_isa(4, 0x34, 0)?; // the first serial port, to the boot CPU
/// # Ok::<(), irq::RouteError>(())
/// ```
pub fn route_isa(irq: u8, vector: u8, cpu: usize) -> Result<(), RouteError> {
    arch::route_isa(irq, vector, cpu)
}

/// Keeps the ISA interrupt `irq` from coming.
///
/// # Errors
/// No such line.
pub fn mask_isa(irq: u8) -> Result<(), RouteError> {
    arch::mask_isa(irq)
}

/// How many interrupts came as `vector`, and which CPU took the latest.
pub fn taken(vector: u8) -> (u64, usize) {
    let line = &LINES[usize::from(vector)];
    // Pairs with `on_interrupt`: the CPU was written before the count.
    (line.count.load(Ordering::Acquire), line.cpu.load(Ordering::Relaxed))
}

/// The `device` of [`arch::Handlers`].
pub(crate) fn on_interrupt(vector: u8) -> arch::Afterwards {
    let line = &LINES[usize::from(vector)];
    line.cpu.store(arch::cpu_index(), Ordering::Relaxed);
    line.count.fetch_add(1, Ordering::Release); // pairs with `taken`
    preempt::on_device()
}
