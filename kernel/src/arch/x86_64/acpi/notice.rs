//! What was odd about the tables, as values that print as one line each.
//!
//! Reading never logs by itself: it collects notices in a [`Report`], which is
//! bounded so that a table full of nonsense cannot fill the heap or the console.

use alloc::vec::Vec;
use core::fmt;

/// The most notices that are kept; the rest are only counted.
pub(super) const MAX_NOTICES: usize = 64;

/// The four letters that name a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 4]);

impl Signature {
    /// The table of tables with 64-bit pointers.
    pub const XSDT: Self = Self(*b"XSDT");
    /// The table of tables with 32-bit pointers.
    pub const RSDT: Self = Self(*b"RSDT");
    /// Multiple APIC description: CPUs and interrupt controllers.
    pub const MADT: Self = Self(*b"APIC");
    /// System resource affinity: NUMA nodes.
    pub const SRAT: Self = Self(*b"SRAT");
    /// High precision event timer.
    pub const HPET: Self = Self(*b"HPET");
    /// Fixed ACPI description: PM timer, reset, power-off.
    pub const FADT: Self = Self(*b"FACP");
    /// The firmware's own code, of which we read a constant.
    pub const DSDT: Self = Self(*b"DSDT");

    /// The letters, where they are letters: a signature comes from the firmware
    /// and may hold any bytes.
    pub fn as_str(&self) -> &str {
        match core::str::from_utf8(&self.0) {
            Ok(text) if self.0.iter().all(u8::is_ascii_graphic) => text,
            _ => "????",
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Its bytes are not in memory that we can read.
    Unreadable,
    /// Its first letters are not what they must be.
    Signature,
    /// It says it is shorter than what every table of its kind holds.
    TooShort(u32),
    /// It says it is longer than any table we believe, or than its bytes.
    TooLong(u32),
    /// Its bytes do not add up to zero.
    Checksum,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unreadable => f.write_str("not in readable memory"),
            Fault::Signature => f.write_str("wrong signature"),
            Fault::TooShort(len) => write!(f, "too short ({len} bytes)"),
            Fault::TooLong(len) => write!(f, "too long ({len} bytes)"),
            Fault::Checksum => f.write_str("bad checksum"),
        }
    }
}

/// One thing that was odd, or worth a line in the boot report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The loader found no RSDP.
    NoRsdp,
    /// There is an RSDP, and it cannot be used.
    BadRsdp(Fault),
    /// Neither XSDT nor RSDT can be used.
    NoRootTable,
    /// No usable MADT.
    NoMadt,
    /// A table cannot be used, and is treated as missing.
    BadTable(Signature, Fault),
    /// The root table points to something that is not in readable memory.
    StrayPointer(u64),
    /// A table was replaced from outside.
    Replaced(Signature),
    /// A table was hidden from outside.
    Hidden(Signature),
    /// An entry says it has no length, or more than is left: the rest of the
    /// table is not read.
    BrokenEntry(Signature, usize),
    /// An entry is shorter than its kind: it alone is not read.
    ShortEntry(Signature, usize),
    /// Polarity or trigger has a reserved value: taken as "same as the bus".
    ReservedFlags(u16),
    /// Ids that are listed more than once: how many times too often, and the
    /// first such id.
    DuplicateCpus(usize, u32),
    /// CPUs that are disabled, and how many of them could be enabled later.
    DisabledCpus(usize, usize),
    /// Enabled CPUs with the id that means "all CPUs".
    BroadcastCpus(usize),
    /// The MADT does not list the CPU that runs this, or lists it as disabled.
    BootCpuNotListed(u32),
    /// A list is full: what it holds, and how many were dropped.
    TooMany(&'static str, usize),
    /// More notices than we keep.
    MoreNotices(usize),
}

impl Notice {
    /// How loudly it is to be said.
    pub fn level(&self) -> log::Level {
        match self {
            Notice::Replaced(_) | Notice::Hidden(_) => log::Level::Info,
            Notice::DuplicateCpus(..) | Notice::DisabledCpus(..) => log::Level::Info,
            _ => log::Level::Warn,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoRsdp => f.write_str("no RSDP: the firmware has no ACPI tables"),
            Notice::BadRsdp(fault) => write!(f, "RSDP ignored: {fault}"),
            Notice::NoRootTable => f.write_str("neither XSDT nor RSDT can be used"),
            Notice::NoMadt => f.write_str("no MADT: running on the boot CPU alone"),
            Notice::BadTable(table, fault) => write!(f, "table {table} ignored: {fault}"),
            Notice::StrayPointer(at) => write!(f, "a table at {at:#x} cannot be read"),
            Notice::Replaced(table) => write!(f, "table {table} replaced from outside"),
            Notice::Hidden(table) => write!(f, "table {table} hidden from outside"),
            Notice::BrokenEntry(table, at) => {
                write!(f, "table {table}: broken entry at byte {at}, rest not read")
            }
            Notice::ShortEntry(table, at) => {
                write!(f, "table {table}: entry at byte {at} too short, not read")
            }
            Notice::ReservedFlags(flags) => {
                write!(f, "reserved polarity or trigger in interrupt flags {flags:#x}")
            }
            Notice::DuplicateCpus(count, first) => {
                write!(f, "{count} duplicate APIC ids in the MADT (first: {first}), dropped")
            }
            Notice::DisabledCpus(count, capable) => {
                write!(f, "{count} disabled CPUs in the MADT ({capable} hot-pluggable), skipped")
            }
            Notice::BroadcastCpus(count) => {
                write!(f, "{count} CPUs with the broadcast APIC id in the MADT, skipped")
            }
            Notice::BootCpuNotListed(id) => {
                write!(f, "the MADT does not list the boot CPU (APIC id {id}) as enabled")
            }
            Notice::TooMany(what, dropped) => write!(f, "too many {what}: {dropped} dropped"),
            Notice::MoreNotices(count) => write!(f, "{count} more notices not shown"),
        }
    }
}

/// Collects notices while tables are read.
#[derive(Default)]
pub(super) struct Report {
    notices: Vec<Notice>,
    suppressed: usize,
}

impl Report {
    pub(super) fn add(&mut self, notice: Notice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(notice);
        } else {
            self.suppressed += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Notice> {
        if self.suppressed > 0 {
            self.notices.push(Notice::MoreNotices(self.suppressed));
        }
        self.notices
    }
}

/// A list that takes so many and counts the rest.
pub(super) struct Bounded<T> {
    items: Vec<T>,
    limit: usize,
    dropped: usize,
}

impl<T> Bounded<T> {
    pub(super) fn new(limit: usize) -> Self {
        Bounded { items: Vec::new(), limit, dropped: 0 }
    }

    pub(super) fn push(&mut self, item: T) {
        if self.items.len() < self.limit {
            self.items.push(item);
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    pub(super) fn finish(self, what: &'static str, report: &mut Report) -> Vec<T> {
        if self.dropped > 0 {
            report.add(Notice::TooMany(what, self.dropped));
        }
        self.items
    }
}
