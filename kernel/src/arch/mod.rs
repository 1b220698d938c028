//! The contract: the only names of the machine that others may use.
//!
//! Everything below `x86_64` is private to this folder. What the rest of the
//! kernel may rely on is re-exported here, one line a promise.

mod x86_64;

pub use x86_64::cpu::{MAX_CPUS, cpu_index, irq_restore, irq_save, probe_stack, relax};
pub use x86_64::paging;
