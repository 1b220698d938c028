//! What the clock found, in words for the boot report.

use super::{By, ClockReport, Source, SyncReport};
use core::fmt;

/// A frequency for a person: "2995.2 MHz".
pub struct Mhz(pub u64);

impl fmt::Display for Mhz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_add(50_000) / 100_000;
        write!(f, "{}.{} MHz", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            By::Option => "option",
            By::Cpuid => "cpuid",
            By::Hypervisor => "hypervisor",
            By::Hpet => "hpet",
            By::PmTimer => "pm timer",
            By::Pit => "pit",
            By::BaseFrequency => "nominal frequency",
            By::Guess => "guess",
        })
    }
}

impl fmt::Display for ClockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = if self.source == Source::Hpet { "hpet; " } else { "" };
        write!(f, "{source}tsc {} by {}", Mhz(self.tsc_hz), self.by)
    }
}

impl fmt::Display for SyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncReport::Measured(verdict) => write!(f, "tsc {verdict}"),
            SyncReport::NotNeeded => f.write_str("tsc not used"),
            SyncReport::NoAnswer => f.write_str("tsc not compared"),
        }
    }
}
