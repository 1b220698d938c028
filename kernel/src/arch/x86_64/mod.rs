//! The machine: x86-64 with local APICs.

pub mod acpi;
pub mod apic;
pub mod apstart;
pub mod boot;
pub mod clock;
pub mod cpu;
pub mod exit;
pub mod features;
pub mod gdt;
pub mod hpet;
pub mod ioapic;
pub mod irq;
#[cfg(any(test, target_os = "none"))]
pub mod lsda;
pub mod machine;
pub mod mmio;
pub mod msr;
pub mod nmi;
pub mod paging;
pub mod pci;
pub mod pic;
pub mod pit;
pub mod pmtimer;
pub mod ports;
pub mod power_button;
pub mod preempt;
pub mod probe;
pub mod reference;
pub mod report;
pub mod rescue;
pub mod shootdown;
pub mod switch;
pub mod timer;
pub mod topology;
pub mod trap;
pub mod violation;
