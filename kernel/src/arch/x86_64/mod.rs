//! The machine: x86-64 with local APICs.
//!
//! | folder | contents |
//! |---|---|
//! | `machine` | the bring-up in its order, what it found, the end of the machine |
//! | `cpu` | one hardware thread: its record, tables, features, switch, ports and registers |
//! | `irq` | the interrupt flag, entries, local and I/O APICs, NMIs, flushes, preemption |
//! | `time` | the clock, its references, the timer of each CPU |
//! | `smp` | starting the other CPUs |
//! | `paging` | page tables and the map of addresses |
//! | `acpi` | what the firmware's tables say |
//! | `unwind` | repairing and unwinding a full stack |

pub mod acpi;
pub mod cpu;
pub mod irq;
pub mod machine;
pub mod paging;
pub mod smp;
pub mod time;
pub mod unwind;
