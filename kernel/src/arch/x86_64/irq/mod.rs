//! Interrupts: the flag, the entries of all vectors, the controllers, and what CPUs tell each
//! other by them.

pub mod apic;
pub mod flag;
pub mod ioapic;
pub mod nmi;
pub mod pic;
pub mod preempt;
pub mod sections;
pub mod shootdown;
pub mod trap;
