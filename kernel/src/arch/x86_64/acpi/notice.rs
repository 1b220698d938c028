//! What was odd about the tables, as values that print as one line each.
//!
//! Reading never logs by itself: it collects notices in a [`Report`], which is
//! bounded so that a table full of nonsense cannot fill the heap or the console.

use alloc::vec::Vec;
use core::fmt;

/// The most notices that are kept; the rest are only counted.
pub const MAX_NOTICES: usize = 64;

/// Why a table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Some of its bytes are not in readable memory.
    Unreadable,
    /// Its first letters are not its name.
    Signature,
    /// Its length is below what every table of its kind has.
    TooShort(u32),
    /// Its length is above what any table has.
    TooLong(u32),
    /// Its bytes do not add up to zero.
    Checksum,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unreadable => f.write_str("not all of it is readable"),
            Fault::Signature => f.write_str("wrong signature"),
            Fault::TooShort(len) => write!(f, "too short ({len} bytes)"),
            Fault::TooLong(len) => write!(f, "too long ({len} bytes)"),
            Fault::Checksum => f.write_str("bad checksum"),
        }
    }
}

/// Why entries of the MADT give no CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// Their APIC ids are listed already.
    Duplicates {
        /// The first such id.
        first: u32,
    },
    /// The firmware says that they are disabled.
    Disabled {
        /// How many of them can be enabled while the system runs.
        hot_pluggable: usize,
    },
    /// Their APIC id means "all CPUs".
    Broadcast,
}

/// One thing that was odd, or worth a line in the boot report. A table is named
/// by its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Something that every PC has is not there: its name, and what follows.
    Missing(&'static str, &'static str),
    /// A table cannot be used, and is treated as missing.
    BadTable(&'static str, Fault),
    /// The root table has the address of a table that is not in readable memory.
    StrayPointer(u64),
    /// A table was "replaced" or "hidden" from outside.
    Overridden(&'static str, &'static str),
    /// An entry of a table, by its first byte, has a wrong length; what follows.
    BadEntry(&'static str, usize, &'static str),
    /// Polarity or trigger has a reserved value: read as "same as the bus".
    ReservedFlags(u16),
    /// So many entries of the MADT give no CPU.
    SkippedCpus(usize, Skipped),
    /// The MADT does not list the CPU that runs this, or lists it as disabled.
    BootCpuNotListed(u32),
    /// A list is full: what it holds, and how many were dropped.
    TooMany(&'static str, usize),
}

impl Notice {
    pub(super) const NO_RSDP: Notice = Notice::Missing("RSDP", "the firmware has no ACPI tables");
    pub(super) const NO_ROOT: Notice = Notice::Missing("XSDT and no RSDT", "no ACPI tables");
    pub(super) const NO_MADT: Notice = Notice::Missing("MADT", "running on the boot CPU alone");

    /// The level to log it with.
    pub fn level(&self) -> log::Level {
        match self {
            Notice::SkippedCpus(_, Skipped::Broadcast) => log::Level::Warn,
            Notice::Overridden(..) | Notice::SkippedCpus(..) => log::Level::Info,
            _ => log::Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Missing(what, effect) => write!(f, "no {what}: {effect}"),
            Notice::BadTable(table, fault) => write!(f, "table {table} ignored: {fault}"),
            Notice::StrayPointer(at) => write!(f, "table at {at:#x} ignored: not readable"),
            Notice::Overridden(table, how) => write!(f, "table {table} {how} from outside"),
            Notice::BadEntry(table, at, effect) => {
                write!(f, "table {table}: broken entry at byte {at}: {effect}")
            }
            Notice::ReservedFlags(flags) => {
                write!(
                    f,
                    "reserved polarity or trigger in interrupt flags {flags:#x}: treated as ISA"
                )
            }
            Notice::SkippedCpus(count, Skipped::Duplicates { first }) => {
                write!(f, "{count} duplicate APIC ids in the MADT (first: {first}), dropped")
            }
            Notice::SkippedCpus(count, Skipped::Disabled { hot_pluggable }) => {
                write!(
                    f,
                    "{count} disabled CPUs in the MADT ({hot_pluggable} hot-pluggable), skipped"
                )
            }
            Notice::SkippedCpus(count, Skipped::Broadcast) => {
                write!(f, "{count} CPUs with the broadcast APIC id in the MADT, skipped")
            }
            Notice::BootCpuNotListed(id) => {
                write!(f, "the MADT does not list the boot CPU (APIC id {id}) as enabled")
            }
            Notice::TooMany(what, dropped) => write!(f, "too many {what}: {dropped} dropped"),
        }
    }
}

/// Collects notices while tables are read.
#[derive(Default)]
pub(super) struct Report {
    notices: Vec<Notice>,
    dropped: usize,
}

impl Report {
    pub(super) fn add(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(notice);
        } else {
            self.dropped += 1;
        }
    }

    /// Appends `item` to a list of at most `limit`; what does not fit is counted.
    pub(super) fn push<T>(&mut self, list: &mut Vec<T>, limit: usize, what: &'static str, item: T) {
        if list.len() < limit {
            return list.push(item);
        }
        let count = self.notices.iter_mut().find_map(|notice| match notice {
            Notice::TooMany(of, dropped) if *of == what => Some(dropped),
            _ => None,
        });
        match count {
            Some(dropped) => *dropped += 1,
            None => self.add(Notice::TooMany(what, 1)),
        }
    }

    pub(super) fn finish(mut self) -> Vec<Notice> {
        if self.dropped > 0 {
            self.notices.push(Notice::TooMany("notices", self.dropped));
        }
        self.notices
    }
}
