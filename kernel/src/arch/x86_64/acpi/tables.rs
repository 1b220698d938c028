//! Finding tables, validating them, and walking their entries within bounds.
//!
//! From the RSDP to the XSDT (or the RSDT) to a table by its signature; each
//! step is checked before the next one trusts it. The layouts are the `acpi`
//! crate's; see the essay in `mod.rs` for why its walks are not. What is inside
//! a table is left to `madt.rs`, `srat.rs` and `fixed.rs`.

use super::notice::{Fault, Notice, Report, Signature};
use ::acpi::rsdp::Rsdp;
use ::acpi::sdt::SdtHeader;
use alloc::borrow::Cow;
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
    /// 2. Nobody writes to a firmware table while a slice from here is in use.
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

/// What to use in place of a table of the firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Override {
    /// This table, with header and checksum; it is validated like any other.
    Replace(Vec<u8>),
    /// As if the firmware had no such table.
    Hide,
}

/// All tables that the root table names, not yet validated.
pub(super) struct Tables<'a, M: PhysicalMemory> {
    memory: &'a M,
    overrides: &'a dyn Fn(&str) -> Option<Override>,
    index: Vec<(Signature, u64)>,
}

impl<'a, M: PhysicalMemory> Tables<'a, M> {
    /// Follows the RSDP. Without a usable one the index is empty, and overrides
    /// still work.
    pub(super) fn locate(
        rsdp: Option<u64>,
        memory: &'a M,
        overrides: &'a dyn Fn(&str) -> Option<Override>,
        report: &mut Report,
    ) -> Self {
        let mut tables = Tables { memory, overrides, index: Vec::new() };
        let Some(rsdp) = rsdp else {
            report.add(Notice::NoRsdp);
            return tables;
        };
        match roots(memory, rsdp) {
            Ok(roots) => tables.fill_index(roots, report),
            Err(fault) => report.add(Notice::BadRsdp(fault)),
        }
        tables
    }

    /// The first valid table of that name, at least `min` bytes long.
    pub(super) fn find(
        &self,
        signature: Signature,
        min: usize,
        report: &mut Report,
    ) -> Option<Cow<'a, [u8]>> {
        match (self.overrides)(signature.as_str()) {
            None => {}
            Some(Override::Hide) => {
                report.add(Notice::Hidden(signature));
                return None;
            }
            Some(Override::Replace(mut bytes)) => {
                report.add(Notice::Replaced(signature));
                return match check(&bytes, signature, min) {
                    Ok(len) => {
                        bytes.truncate(len);
                        Some(Cow::Owned(bytes))
                    }
                    Err(fault) => {
                        report.add(Notice::BadTable(signature, fault));
                        None
                    }
                };
            }
        }
        for &(_, at) in self.index.iter().filter(|(name, _)| *name == signature) {
            match load(self.memory, at, signature, min) {
                Ok(bytes) => return Some(Cow::Borrowed(bytes)),
                Err(fault) => report.add(Notice::BadTable(signature, fault)),
            }
        }
        None
    }

    /// The table at this address, which another table names.
    pub(super) fn at(&self, at: u64, signature: Signature) -> Option<&'a [u8]> {
        load(self.memory, at, signature, HEADER_BYTES).ok()
    }

    /// Notes name and address of each table, from the first usable root.
    fn fill_index(&mut self, roots: [Option<Root>; 2], report: &mut Report) {
        for root in roots.into_iter().flatten() {
            let bytes = match load(self.memory, root.at, root.signature, HEADER_BYTES) {
                Ok(bytes) => bytes,
                Err(fault) => {
                    report.add(Notice::BadTable(root.signature, fault));
                    continue;
                }
            };
            let pointers = bytes[HEADER_BYTES..].chunks_exact(root.pointer_bytes);
            if pointers.len() > MAX_ROOT_POINTERS {
                report.add(Notice::TooMany("tables", pointers.len() - MAX_ROOT_POINTERS));
            }
            for pointer in pointers.take(MAX_ROOT_POINTERS) {
                let at = little_endian(pointer);
                match self.memory.bytes(at, HEADER_BYTES) {
                    Some(header) => {
                        let name = Signature([header[0], header[1], header[2], header[3]]);
                        self.index.push((name, at));
                    }
                    // Some firmware leaves unused pointers zero.
                    None if at == 0 => {}
                    None => report.add(Notice::StrayPointer(at)),
                }
            }
            return;
        }
        report.add(Notice::NoRootTable);
    }
}

/// A table of tables: where it is and how wide its pointers are.
#[derive(Clone, Copy)]
struct Root {
    at: u64,
    signature: Signature,
    pointer_bytes: usize,
}

/// The root tables that the RSDP names, the better one first.
fn roots(memory: &impl PhysicalMemory, at: u64) -> Result<[Option<Root>; 2], Fault> {
    let first = memory.bytes(at, RSDP_V1_BYTES).ok_or(Fault::Unreadable)?;
    if !first.starts_with(b"RSD PTR ") {
        return Err(Fault::Signature);
    }
    if sum(first) != 0 {
        return Err(Fault::Checksum);
    }
    let field = |bytes: &[u8], offset: usize, len: usize| {
        bytes.get(offset..offset + len).map_or(0, little_endian)
    };
    let rsdt = field(first, offset_of!(Rsdp, rsdt_address), 4);

    // Since ACPI 2.0 there is more, under a second checksum. If that does not
    // hold, the first part still does, and the old root is as good as ever.
    let whole = memory.bytes(at, size_of::<Rsdp>());
    let whole = whole.filter(|bytes| first[15] >= 2 && sum(bytes) == 0);
    let xsdt = whole.map_or(0, |bytes| field(bytes, offset_of!(Rsdp, xsdt_address), 8));

    let xsdt = Root { at: xsdt, signature: Signature::XSDT, pointer_bytes: 8 };
    let rsdt = Root { at: rsdt, signature: Signature::RSDT, pointer_bytes: 4 };
    Ok([xsdt, rsdt].map(|root| Some(root).filter(|root| root.at != 0)))
}

/// The bytes of the table at `at`, validated.
fn load<M: PhysicalMemory>(
    memory: &M,
    at: u64,
    signature: Signature,
    min: usize,
) -> Result<&[u8], Fault> {
    let header = memory.bytes(at, HEADER_BYTES).ok_or(Fault::Unreadable)?;
    let len = claimed_length(header, signature, min)?;
    let bytes = memory.bytes(at, len).ok_or(Fault::Unreadable)?;
    check(bytes, signature, min)?;
    Ok(bytes)
}

/// Validates a table whose bytes are at hand; gives its length.
fn check(bytes: &[u8], signature: Signature, min: usize) -> Result<usize, Fault> {
    let len = claimed_length(bytes, signature, min)?;
    let table = bytes.get(..len).ok_or(Fault::TooLong(len as u32))?;
    if sum(table) != 0 {
        return Err(Fault::Checksum);
    }
    Ok(len)
}

/// What the header says about the length, if it can be believed.
fn claimed_length(bytes: &[u8], signature: Signature, min: usize) -> Result<usize, Fault> {
    let header = bytes.get(..HEADER_BYTES).ok_or(Fault::TooShort(bytes.len() as u32))?;
    if header[..4] != signature.0 {
        return Err(Fault::Signature);
    }
    let at = offset_of!(SdtHeader, length);
    let len = little_endian(&header[at..at + 4]) as u32;
    if (len as usize) < min.max(HEADER_BYTES) {
        return Err(Fault::TooShort(len));
    }
    if len as usize > MAX_TABLE_BYTES {
        return Err(Fault::TooLong(len));
    }
    Ok(len as usize)
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Up to eight bytes as a number, least significant first.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// One entry of a MADT or SRAT: both start with a kind and a length of one byte
/// each.
pub(super) struct Entry<'a> {
    pub(super) kind: u8,
    /// Where it starts in the table, for notices.
    pub(super) at: usize,
    pub(super) bytes: &'a [u8],
}

impl Entry<'_> {
    /// The entry as the layout `T`, or a notice that it is too short for that.
    pub(super) fn view<T: Plain>(&self, table: Signature, report: &mut Report) -> Option<T> {
        let value = view(self.bytes);
        if value.is_none() {
            report.add(Notice::ShortEntry(table, self.at));
        }
        value
    }
}

/// The entries of a table from byte `start` on.
///
/// Ends, with the place as an error, at the first entry that says it has fewer
/// than its own two bytes or more than are left: from there on nothing can be
/// told apart. So each step moves on by two bytes at least, and the walk ends.
pub(super) fn entries(
    table: &[u8],
    start: usize,
) -> impl Iterator<Item = Result<Entry<'_>, usize>> {
    let mut at = start;
    core::iter::from_fn(move || {
        let left = table.get(at..).filter(|left| !left.is_empty())?;
        let this = at;
        let len = left.get(1).map_or(0, |len| usize::from(*len));
        if len < 2 || len > left.len() {
            at = table.len();
            return Some(Err(this));
        }
        at += len;
        Some(Ok(Entry { kind: left[0], at: this, bytes: &left[..len] }))
    })
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
