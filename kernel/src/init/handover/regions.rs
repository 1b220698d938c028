//! Regions that are added to the loader's memory map, for tests.
//!
//! The file has records of 24 bytes: start, end (exclusive), kind, each a little-endian word of 8
//! bytes. The kinds are those of the BIOS: 1 is usable, 2 reserved. This file does not check the
//! regions: they may lie anywhere and be nonsense, as in a map of broken firmware.

use bootloader_api::info::{MemoryRegion, MemoryRegionKind};
use core::fmt;

/// Bytes of a record.
pub const RECORD: usize = 24;
/// Maximum number of records that are read.
pub const MAX_RECORDS: usize = 256;

const USABLE: u64 = 1;
const RESERVED: u64 = 2;

/// Ignored parts of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A record with an unknown kind: its number, and the kind.
    Kind(usize, u64),
    /// So many bytes that are no whole record.
    Rest(usize),
    /// So many bytes after the records that are read.
    TooMuch(usize),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::Kind(number, kind) => write!(f, "record {number} ignored: no kind {kind:#x}"),
            Ignored::Rest(bytes) => write!(f, "last {bytes} bytes ignored: half a record"),
            Ignored::TooMuch(bytes) => {
                write!(f, "{bytes} bytes after the first {MAX_RECORDS} records ignored")
            }
        }
    }
}

/// The regions of a file of `size` bytes that begins with `bytes`, in `out`.
pub fn parse<'out>(
    bytes: &[u8],
    size: usize,
    out: &'out mut [MemoryRegion; MAX_RECORDS],
    mut ignore: impl FnMut(Ignored),
) -> &'out [MemoryRegion] {
    let bytes = &bytes[..bytes.len().min(size).min(MAX_RECORDS * RECORD)];
    let (records, rest) = bytes.as_chunks::<RECORD>();
    let mut count = 0;
    for (number, record) in records.iter().enumerate() {
        let [start, end, kind] = words(record);
        let kind = match kind {
            USABLE => MemoryRegionKind::Usable,
            RESERVED => MemoryRegionKind::UnknownBios(RESERVED as u32),
            _ => {
                ignore(Ignored::Kind(number, kind));
                continue;
            }
        };
        out[count] = MemoryRegion { start, end, kind };
        count += 1;
    }
    if size > bytes.len() {
        ignore(Ignored::TooMuch(size - bytes.len()));
    } else if !rest.is_empty() {
        ignore(Ignored::Rest(rest.len()));
    }
    &out[..count]
}

fn words(record: &[u8; RECORD]) -> [u64; 3] {
    let words = record.as_chunks::<8>().0;
    core::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(start: u64, end: u64, kind: u64) -> Vec<u8> {
        [start, end, kind].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn parsed(bytes: &[u8]) -> (Vec<MemoryRegion>, Vec<Ignored>) {
        let mut out = [MemoryRegion::empty(); MAX_RECORDS];
        let mut ignored = Vec::new();
        let kept = parse(bytes, bytes.len(), &mut out, |what| ignored.push(what));
        (kept.to_vec(), ignored)
    }

    #[test]
    fn records_are_regions_and_what_is_none_is_named() {
        let file = [record(1, 2, 1), record(3, 4, 7), record(6, 5, 2), vec![0; 23]].concat();
        let (kept, ignored) = parsed(&file);
        let kinds = [MemoryRegionKind::Usable, MemoryRegionKind::UnknownBios(2)];
        let regions = [(1, 2, kinds[0]), (6, 5, kinds[1])];
        assert_eq!(kept, regions.map(|(start, end, kind)| MemoryRegion { start, end, kind }));
        assert_eq!(ignored, [Ignored::Kind(1, 7), Ignored::Rest(23)]);
        assert_eq!(parsed(&[]), (vec![], vec![]));
    }

    #[test]
    fn a_file_that_is_too_long_counts_as_far_as_it_is_taken() {
        let (kept, ignored) = parsed(&record(0, 1, 1).repeat(MAX_RECORDS + 2));
        assert_eq!(kept.len(), MAX_RECORDS);
        assert_eq!(ignored, [Ignored::TooMuch(2 * RECORD)]);
    }
}
