//! What was found while the machine came up, in words: for the boot banner.
//!
//! Each part of the bring-up says in a line what it found, with [`note`]. The line
//! is logged at level debug, and kept for [`reported`], from which the boot banner is
//! made.

use crate::arch::lock::IrqLock;
use alloc::string::{String, ToString};
use core::fmt;
use raw_cpuid::{CpuId, Hypervisor};

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// How many CPUs came up.
    Cpus,
    /// The local APICs.
    Apic,
    /// The I/O APICs.
    IoApic,
    /// What time is read from.
    Clock,
    /// What ends a slice.
    Timer,
}

impl Part {
    /// All of them, in the order in which they stand in [`NOTES`].
    pub const ALL: [Part; 5] = [Part::Cpus, Part::Apic, Part::IoApic, Part::Clock, Part::Timer];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Cpus => "cpus",
            Part::Apic => "apic",
            Part::IoApic => "ioapic",
            Part::Clock => "clock",
            Part::Timer => "timer",
        })
    }
}

static NOTES: IrqLock<[Option<String>; Part::ALL.len()]> = IrqLock::new([const { None }; _]);

/// Keeps what was found. The heap exists.
pub fn note(part: Part, found: impl fmt::Display) {
    let line = found.to_string();
    log::debug!("{part}: {line}");
    NOTES.lock()[part as usize] = Some(line);
}

/// What was found, if that part of the machine has been looked at.
pub fn reported(part: Part) -> Option<String> {
    NOTES.lock()[part as usize].clone()
}

/// Who made this CPU, what it calls itself, and what it runs under.
pub fn identity() -> String {
    let cpuid = CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let brand = cpuid.get_processor_brand_string();
    let mut words = String::new();
    let names = [vendor.as_ref().map(|v| v.as_str()), brand.as_ref().map(|b| b.as_str().trim())];
    for name in names.into_iter().flatten().filter(|name| !name.is_empty()) {
        words.push_str(if words.is_empty() { "" } else { ", " });
        words.push_str(name);
    }
    if words.is_empty() {
        words.push_str("a CPU without a name");
    }
    if let Some(info) = cpuid.get_hypervisor_info() {
        words.push_str(", under ");
        words.push_str(hypervisor(info.identify()));
    }
    words
}

fn hypervisor(kind: Hypervisor) -> &'static str {
    match kind {
        Hypervisor::Xen => "Xen",
        Hypervisor::VMware => "VMware",
        Hypervisor::HyperV => "Hyper-V",
        Hypervisor::KVM => "KVM",
        Hypervisor::QEMU => "QEMU's translator",
        Hypervisor::Bhyve => "bhyve",
        Hypervisor::QNX => "QNX",
        Hypervisor::ACRN => "ACRN",
        Hypervisor::Unknown(..) => "a hypervisor that is not known here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_keeps_the_last_line_about_itself() {
        assert_eq!(reported(Part::Timer), None);
        note(Part::Timer, "one");
        note(Part::Clock, "other");
        note(Part::Timer, format_args!("{}", 2));
        assert_eq!(reported(Part::Timer).as_deref(), Some("2"));
        assert_eq!(reported(Part::Clock).as_deref(), Some("other"));
        for (place, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part as usize, place);
        }
    }

    #[test]
    fn every_cpu_has_some_name() {
        assert!(!identity().is_empty());
    }
}
