//! The machine: x86-64 with local APICs.

pub mod acpi;
pub mod apic;
pub mod apstart;
pub mod clock;
pub mod cpu;
pub mod hpet;
pub mod ioapic;
pub mod mmio;
pub mod msr;
pub mod paging;
pub mod pic;
pub mod pit;
pub mod pmtimer;
pub mod ports;
pub mod reference;
pub mod timer;
pub mod topology;
