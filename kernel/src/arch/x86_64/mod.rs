//! The machine: x86-64 with local APICs.

pub mod acpi;
pub mod apic;
pub mod apstart;
pub mod clock;
pub mod cpu;
pub mod ioapic;
pub mod paging;
pub mod timer;
pub mod topology;
