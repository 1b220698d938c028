//! What was found while the machine came up, in words: for the boot banner.
//!
//! Each part of the bring-up says in a line what it found, with [`note`]. The boot banner is made
//! from [`reported`].

use crate::arch::lock::IrqLock;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use raw_cpuid::{CpuId, Hypervisor};

/// The part of the machine, and the last line about it.
static NOTES: IrqLock<Vec<(&str, String)>> = IrqLock::new(Vec::new());

/// Logs and keeps what was found of a part of the machine. The heap exists.
pub fn note(part: &'static str, found: impl fmt::Display) {
    let line = found.to_string();
    log::debug!("{part}: {line}");
    let mut notes = NOTES.lock();
    notes.retain(|(of, _)| *of != part);
    notes.push((part, line));
}

/// What was found, if that part of the machine has been looked at.
pub fn reported(part: &str) -> Option<String> {
    let notes = NOTES.lock();
    notes.iter().find(|(of, _)| *of == part).map(|(_, line)| line.clone())
}

/// The CPU's vendor, its name, and the hypervisor it runs under.
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
        assert_eq!(reported("timer"), None);
        note("timer", "one");
        note("clock", "other");
        note("timer", format_args!("{}", 2));
        assert_eq!(reported("timer").as_deref(), Some("2"));
        assert_eq!(reported("clock").as_deref(), Some("other"));
    }

    #[test]
    fn every_cpu_has_some_name() {
        assert!(!identity().is_empty());
    }
}
