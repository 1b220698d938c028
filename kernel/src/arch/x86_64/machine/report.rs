//! What was found while the machine came up, in words: for the boot banner.
//!
//! Each part of the bring-up says in a line what it found, with [`note`]. The boot banner is made
//! from [`reported`].

use crate::arch::lock::IrqLock;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use raw_cpuid::{CpuId, Hypervisor};

static NOTES: IrqLock<BTreeMap<&str, String>> = IrqLock::new(BTreeMap::new());

/// Logs and keeps what was found of a part of the machine. The heap exists.
pub fn note(part: &'static str, found: impl fmt::Display) {
    let line = found.to_string();
    log::debug!("{part}: {line}");
    NOTES.lock().insert(part, line);
}

/// What was found, if that part of the machine has been looked at.
pub fn reported(part: &str) -> Option<String> {
    NOTES.lock().get(part).cloned()
}

/// The CPU's vendor, its name, and the hypervisor it runs under.
pub fn identity() -> String {
    let cpuid = CpuId::new();
    let vendor = cpuid.get_vendor_info();
    let brand = cpuid.get_processor_brand_string();
    let names = [vendor.as_ref().map(|v| v.as_str()), brand.as_ref().map(|b| b.as_str().trim())];
    let names: Vec<_> = names.into_iter().flatten().filter(|name| !name.is_empty()).collect();
    let name = if names.is_empty() { "a CPU without a name".into() } else { names.join(", ") };
    match cpuid.get_hypervisor_info().map(|info| info.identify()) {
        None => name,
        Some(Hypervisor::QEMU) => format!("{name}, under QEMU's translator"),
        Some(Hypervisor::Unknown(..)) => format!("{name}, under an unknown hypervisor"),
        Some(known) => format!("{name}, under {known:?}"),
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
