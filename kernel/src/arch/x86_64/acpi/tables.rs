//! Finding tables, validating them, and walking their entries within bounds.
//!
//! From the RSDP to the XSDT (or the RSDT) to a table by its signature; each step is checked before
//! the next one trusts it. What is inside a table is left to `madt` and `fixed`.

use super::Firmware;
use ::acpi::rsdp::Rsdp;
use ::acpi::sdt::SdtHeader;
use alloc::format;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use log::Level;

/// The longest table we believe: the MADT of 4096 CPUs, listed in both forms,
/// is a tenth of it.
const MAX_TABLE_BYTES: usize = 1 << 20;

/// The first RSDP had so many bytes, under a checksum of their own.
const RSDP_V1_BYTES: usize = 20;

/// Bytes that every table starts with.
pub(super) const HEADER_BYTES: usize = size_of::<SdtHeader>();

const UNREADABLE: &str = "not all of it is readable";

/// Gives so many bytes at a physical address, or `None` unless all of them can be read. The direct
/// map on the machine, a list of made-up tables in tests.
pub type Memory<'a> = &'a dyn Fn(u64, usize) -> Option<&'a [u8]>;

/// A [`Memory`] as the loader maps it: physical `0..end` is readable at `offset` and above.
///
/// # Safety
/// For as long as the slice is in use:
///
/// 1. every address in `offset..offset + end` is mapped and readable, and the sum does not wrap;
/// 2. no CPU writes to a firmware table.
pub unsafe fn direct_map<'a>(offset: u64, end: u64, phys: u64, len: usize) -> Option<&'a [u8]> {
    if phys == 0 || phys.checked_add(len as u64)? > end {
        return None;
    }
    // SAFETY: (1) the bytes lie in 0..end, which is mapped; (2) there are no writers; bytes
    // have no alignment and no invalid values.
    Some(unsafe { core::slice::from_raw_parts((offset + phys) as *const u8, len) })
}

/// Asked for a table by its signature (`"APIC"` is the MADT) before the firmware is: bytes replace
/// the firmware's table (and are validated like it), no bytes hide it.
pub type Overrides<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// All tables that the root table points at, not yet validated.
pub(super) struct Tables<'a> {
    memory: Memory<'a>,
    overrides: Overrides<'a>,
    pointers: Vec<u64>,
}

/// A table of tables: its signature, its address (0: none), and the bytes of a pointer in it.
type Root = (&'static str, u64, usize);

type Checked<'a> = Result<&'a [u8], &'static str>;

impl<'a> Tables<'a> {
    /// Follows the RSDP. Without a usable one there are no tables, and overrides still work.
    pub(super) fn locate(
        rsdp: Option<u64>,
        memory: Memory<'a>,
        overrides: Overrides<'a>,
        report: &mut Firmware,
    ) -> Self {
        let mut tables = Tables { memory, overrides, pointers: Vec::new() };
        match rsdp.map(|at| tables.roots(at)) {
            Some(Ok(roots)) => tables.pointers = tables.follow(roots, report),
            Some(Err(why)) => report.ignored("RSDP", why),
            None => report.warn("no RSDP: the firmware has no ACPI tables"),
        }
        tables
    }

    /// The first valid table of that signature, at least `min` bytes long.
    pub(super) fn find(
        &self,
        signature: &str,
        min: usize,
        report: &mut Firmware,
    ) -> Option<Vec<u8>> {
        let usable = |table: Checked<'_>, report: &mut Firmware| {
            table.map(<[u8]>::to_vec).map_err(|why| report.ignored(signature, why)).ok()
        };
        if let Some(bytes) = (self.overrides)(signature) {
            let how = if bytes.is_empty() { "hidden" } else { "replaced" };
            report.notice(Level::Info, format!("table {signature} {how} from outside"));
            let table = validate(signature, min, |len| bytes.get(..len));
            return if bytes.is_empty() { None } else { usable(table, report) };
        }
        let is_named = |at: &&u64| (self.memory)(**at, 4) == Some(signature.as_bytes());
        let mut named = self.pointers.iter().filter(is_named);
        named.find_map(|at| usable(self.load(*at, signature, min), report))
    }

    pub(super) fn load(&self, at: u64, signature: &str, min: usize) -> Checked<'a> {
        validate(signature, min, |len| (self.memory)(at, len))
    }

    /// The root tables that the RSDP names, the better one first.
    fn roots(&self, at: u64) -> Result<[Root; 2], &'static str> {
        let first = (self.memory)(at, RSDP_V1_BYTES).ok_or(UNREADABLE)?;
        if !first.starts_with(b"RSD PTR ") {
            return Err("wrong signature");
        }
        if sum(first) != 0 {
            return Err("bad checksum");
        }
        // ACPI 2.0 added fields, under a second checksum; the old root is good without them.
        let whole = (self.memory)(at, size_of::<Rsdp>());
        let whole = whole.filter(|bytes| first[15] >= 2 && sum(bytes) == 0);
        // SAFETY: whole numbers.
        let rsdp = unsafe { layout::<Rsdp>(whole.unwrap_or(first)) };
        Ok([("XSDT", rsdp.xsdt_address, 8), ("RSDT", rsdp.rsdt_address.into(), 4)])
    }

    fn follow(&self, roots: [Root; 2], report: &mut Firmware) -> Vec<u64> {
        for (signature, root, pointer_bytes) in roots.into_iter().filter(|root| root.1 != 0) {
            match self.load(root, signature, 0) {
                Ok(root) => {
                    let pointers = root[HEADER_BYTES..].chunks_exact(pointer_bytes);
                    return pointers.map(little_endian).collect();
                }
                Err(why) => report.ignored(signature, why),
            }
        }
        report.warn("no XSDT and no RSDT: no ACPI tables");
        Vec::new()
    }
}

/// The table whose first `len` bytes are `bytes(len)`, if signature, length and checksum are right.
fn validate<'a>(
    signature: &str,
    min: usize,
    bytes: impl Fn(usize) -> Option<&'a [u8]>,
) -> Checked<'a> {
    let header = bytes(HEADER_BYTES).ok_or(UNREADABLE)?;
    if !header.starts_with(signature.as_bytes()) {
        return Err("wrong signature");
    }
    // SAFETY: whole numbers.
    let len = unsafe { layout::<SdtHeader>(header) }.length as usize;
    if len < min.max(HEADER_BYTES) {
        return Err("too short");
    }
    if len > MAX_TABLE_BYTES {
        return Err("too long");
    }
    let table = bytes(len).ok_or(UNREADABLE)?;
    if sum(table) == 0 { Ok(table) } else { Err("bad checksum") }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// The bytes of a table as the crate's layout of it; what they do not have is zero.
///
/// # Safety
/// A `T` has whole numbers only.
pub(super) unsafe fn layout<T: Copy>(bytes: &[u8]) -> T {
    let mut filled = MaybeUninit::<T>::zeroed();
    let len = bytes.len().min(size_of::<T>());
    // SAFETY: so many bytes are in both, and `filled` is new.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(filled.as_mut_ptr().cast(), len) };
    // SAFETY: all bytes are set, and any will do.
    unsafe { filled.assume_init() }
}

/// Up to eight bytes as a number, least significant first.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// The entries of a MADT or SRAT, from byte `start` on, that are of one of these kinds and have at
/// least the bytes of their kind. An entry begins with its kind and its length, a byte each.
///
/// A length below two or beyond the table's end ends the walk, as the places of the entries behind
/// are unknown: so each step moves on by two bytes at least.
pub(super) fn sound_entries<'t>(
    table: &'t [u8],
    signature: &'static str,
    start: usize,
    kinds: &[(u8, usize)],
    report: &mut Firmware,
) -> impl Iterator<Item = &'t [u8]> {
    let mut at = start;
    core::iter::from_fn(move || {
        while at < table.len() {
            let len = table.get(at + 1).map_or(0, |len| usize::from(*len));
            let Some(entry) = table.get(at..at + len).filter(|_| len >= 2) else {
                let what = format_args!("broken entry at byte {at}: rest of the table");
                report.skip(signature, what);
                at = table.len();
                return None;
            };
            at += len;
            match kinds.iter().find(|(kind, _)| *kind == entry[0]) {
                Some((_, least)) if len >= *least => return Some(entry),
                Some(_) => report.skip(signature, "entries too short for their kind"),
                None => {}
            }
        }
        None
    })
}
