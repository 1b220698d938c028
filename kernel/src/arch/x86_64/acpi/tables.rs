//! Finding tables, validating them, and walking their entries within bounds.
//!
//! From the RSDP to the XSDT (or the RSDT) to a table by its signature; each
//! step is checked before the next one trusts it. The layouts are the `acpi`
//! crate's; `mod.rs` says why its walks are not used. What is inside a table is
//! left to `madt.rs`, `srat.rs` and `fixed.rs`.

use super::notice::Report;
use ::acpi::rsdp::Rsdp;
use ::acpi::sdt::fadt::Fadt;
use ::acpi::sdt::hpet::HpetTable;
use ::acpi::sdt::{SdtHeader, madt};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};

/// The longest table we believe: the MADT of 4096 CPUs, listed in both forms,
/// is a tenth of it.
pub const MAX_TABLE_BYTES: usize = 1 << 20;

/// The most pointers we follow from a root table; real ones have 10 to 40.
const MAX_ROOT_POINTERS: usize = 256;

/// The first RSDP had so many bytes, under a checksum of their own.
const RSDP_V1_BYTES: usize = 20;

/// Bytes that every table starts with.
pub(super) const HEADER_BYTES: usize = size_of::<SdtHeader>();

/// Why a table is ignored.
const UNREADABLE: &str = "not all of it is readable";

/// Reading physical memory: the direct map on the machine, a list of made-up
/// tables in tests.
pub trait PhysicalMemory {
    /// The `len` bytes at a physical address, or `None` unless all of them can
    /// be read.
    fn bytes(&self, phys: u64, len: usize) -> Option<&[u8]>;
}

/// Physical memory as the loader maps it: all of it at one offset.
#[derive(Debug)]
pub struct DirectMap {
    offset: u64,
    end: u64,
}

impl DirectMap {
    /// Physical `0..end` is readable at `offset` and above.
    ///
    /// # Safety
    ///
    /// 1. Every address in `offset..offset + end` is mapped and readable, and
    ///    the sum does not wrap.
    /// 2. No CPU writes to a firmware table while a slice from here is in use.
    pub const unsafe fn new(offset: u64, end: u64) -> Self {
        DirectMap { offset, end }
    }
}

impl PhysicalMemory for DirectMap {
    fn bytes(&self, phys: u64, len: usize) -> Option<&[u8]> {
        let end = phys.checked_add(len as u64)?;
        if phys == 0 || end > self.end {
            return None;
        }
        let start = (self.offset + phys) as *const u8;
        // SAFETY: (1) phys..end lies inside 0..self.end, which `new` was
        // promised to be mapped; (2) the same promise rules out writers; bytes
        // have no alignment and no invalid values.
        Some(unsafe { core::slice::from_raw_parts(start, len) })
    }
}

/// Asked for a table by its signature before the firmware is: bytes replace the
/// firmware's table (and are validated like it), no bytes hide it.
pub type Overrides<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// All tables that the root table names, not yet validated.
pub(super) struct Tables<'a, M: PhysicalMemory> {
    memory: &'a M,
    overrides: Overrides<'a>,
    /// Signature and address of each.
    index: Vec<([u8; 4], u64)>,
}

impl<'a, M: PhysicalMemory> Tables<'a, M> {
    /// Follows the RSDP. Without a usable one the index is empty, and overrides
    /// still work.
    pub(super) fn locate(
        rsdp: Option<u64>,
        memory: &'a M,
        overrides: Overrides<'a>,
        report: &mut Report,
    ) -> Self {
        let mut tables = Tables { memory, overrides, index: Vec::new() };
        match rsdp.map(|at| roots(memory, at)) {
            Some(Ok(roots)) => tables.fill_index(roots, report),
            Some(Err(why)) => report.ignored("RSDP", &why),
            None => report.warn(format_args!("no RSDP: the firmware has no ACPI tables")),
        }
        tables
    }

    /// The first valid table of that signature, at least `min` bytes long.
    pub(super) fn find(
        &self,
        signature: &'static str,
        min: usize,
        report: &mut Report,
    ) -> Option<Cow<'a, [u8]>> {
        let given = (self.overrides)(signature);
        if let Some(bytes) = &given {
            let how = if bytes.is_empty() { "hidden" } else { "replaced" };
            report.info(format_args!("table {signature} {how} from outside"));
        }
        let mut usable =
            |table: Result<_, String>| table.map_err(|why| report.ignored(signature, &why)).ok();
        match given {
            Some(bytes) if bytes.is_empty() => None,
            Some(bytes) => {
                let table = validate(signature, min, |len| bytes.get(..len));
                usable(table.map(|table| Cow::Owned(table.to_vec())))
            }
            None => {
                let named = self.index.iter().filter(|(name, _)| name == signature.as_bytes());
                let mut tables = named.map(|(_, at)| load(self.memory, *at, signature, min));
                tables.find_map(|table| usable(table.map(Cow::Borrowed)))
            }
        }
    }

    /// The table at this address, which another table names.
    pub(super) fn at(&self, at: u64, signature: &'static str) -> Option<&'a [u8]> {
        load(self.memory, at, signature, HEADER_BYTES).ok()
    }

    /// Enters signature and address of each table, from the first usable root.
    fn fill_index(&mut self, roots: [Root; 2], report: &mut Report) {
        for (signature, root, pointer_bytes) in roots.into_iter().filter(|root| root.1 != 0) {
            let bytes = match load(self.memory, root, signature, HEADER_BYTES) {
                Ok(bytes) => bytes,
                Err(why) => {
                    report.ignored(signature, &why);
                    continue;
                }
            };
            for at in bytes[HEADER_BYTES..].chunks_exact(pointer_bytes).map(little_endian) {
                match self.memory.bytes(at, HEADER_BYTES).and_then(<[u8]>::first_chunk) {
                    Some(name) => {
                        report.push(
                            &mut self.index,
                            MAX_ROOT_POINTERS,
                            "too many tables: ",
                            (*name, at),
                        );
                    }
                    // Some firmware leaves unused pointers zero.
                    None if at == 0 => {}
                    None => report.warn(format_args!("table at {at:#x} ignored: not readable")),
                }
            }
            return;
        }
        report.warn(format_args!("no XSDT and no RSDT: no ACPI tables"));
    }
}

/// A table of tables: its signature, its address (0: none), and the bytes of a
/// pointer in it.
type Root = (&'static str, u64, usize);

/// The root tables that the RSDP names, the better one first.
fn roots(memory: &impl PhysicalMemory, at: u64) -> Result<[Root; 2], String> {
    let first = memory.bytes(at, RSDP_V1_BYTES).ok_or(UNREADABLE)?;
    if !first.starts_with(b"RSD PTR ") {
        return Err("wrong signature".into());
    }
    if sum(first) != 0 {
        return Err("bad checksum".into());
    }
    let rsdt = little_endian(&first[offset_of!(Rsdp, rsdt_address)..]); // its last field

    // ACPI 2.0 added fields, under a second checksum. If that is wrong, the
    // first part is still good, and so is the old root.
    let whole = memory.bytes(at, size_of::<Rsdp>());
    let whole = whole.filter(|bytes| first[15] >= 2 && sum(bytes) == 0);
    let xsdt = offset_of!(Rsdp, xsdt_address);
    let xsdt = whole.map_or(0, |bytes| little_endian(&bytes[xsdt..xsdt + 8]));
    Ok([("XSDT", xsdt, 8), ("RSDT", rsdt, 4)])
}

/// The bytes of the table at `at`, validated.
fn load<'a>(
    memory: &'a impl PhysicalMemory,
    at: u64,
    signature: &str,
    min: usize,
) -> Result<&'a [u8], String> {
    validate(signature, min, |len| memory.bytes(at, len))
}

/// The table whose first `len` bytes are `bytes(len)`, if its signature, its
/// length and its checksum are right.
fn validate<'a>(
    signature: &str,
    min: usize,
    bytes: impl Fn(usize) -> Option<&'a [u8]>,
) -> Result<&'a [u8], String> {
    let header = bytes(HEADER_BYTES).ok_or(UNREADABLE)?;
    if !header.starts_with(signature.as_bytes()) {
        return Err("wrong signature".into());
    }
    let at = offset_of!(SdtHeader, length);
    let len = little_endian(&header[at..at + 4]) as usize;
    if len < min.max(HEADER_BYTES) {
        return Err(format!("too short ({len} bytes)"));
    }
    if len > MAX_TABLE_BYTES {
        return Err(format!("too long ({len} bytes)"));
    }
    let table = bytes(len).ok_or(UNREADABLE)?;
    if sum(table) == 0 { Ok(table) } else { Err("bad checksum".into()) }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Up to eight bytes as a number, least significant first.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// Calls `read` with each entry of a MADT or SRAT, from byte `start` of the
/// table on. An entry begins with its kind and its length, a byte each.
///
/// An entry with a length below two or beyond the table's end ends the walk: the
/// places of the entries behind it are unknown. So each step moves on by two bytes at
/// least. An entry for which `read` gives `None` is too short for its kind, and
/// is skipped alone.
pub(super) fn for_each_entry(
    table: &[u8],
    signature: &'static str,
    start: usize,
    report: &mut Report,
    mut read: impl FnMut(&[u8], &mut Report) -> Option<()>,
) {
    let mut at = start;
    while at < table.len() {
        let len = table.get(at + 1).map_or(0, |len| usize::from(*len));
        let Some(entry) = table.get(at..at + len).filter(|_| len >= 2) else {
            return report.bad_entry(signature, at, "rest of the table skipped");
        };
        if read(entry, report).is_none() {
            report.bad_entry(signature, at, "entry skipped");
        }
        at += len;
    }
}

/// Layouts that any bytes are a value of.
///
/// # Safety
///
/// The type has no padding, no invalid bit pattern and no pointer.
pub(super) unsafe trait Plain: Copy {}

/// The front of `bytes` as a `T`, if there are enough.
pub(super) fn view<T: Plain>(bytes: &[u8]) -> Option<T> {
    let front = bytes.get(..size_of::<T>())?;
    // SAFETY: `front` is as long as T; the read needs no alignment; `Plain`
    // says that these bytes are a T.
    Some(unsafe { front.as_ptr().cast::<T>().read_unaligned() })
}

macro_rules! plain {
    ($($layout:ty),* $(,)?) => {
        // SAFETY: packed structs of integers (some of them `MaybeUninit`), checked
        // against the ACPI specification.
        $(unsafe impl Plain for $layout {})*
    };
}

plain!(
    madt::LocalApicEntry,
    madt::LocalX2ApicEntry,
    madt::IoApicEntry,
    madt::InterruptSourceOverrideEntry,
    madt::NmiSourceEntry,
    madt::LocalApicNmiEntry,
    madt::X2ApicNmiEntry,
    madt::LocalApicAddressOverrideEntry,
    HpetTable,
    Fadt,
);
