//! The disk API for programs: bytes at an offset, read or written; checked, and split into requests
//! for the driver. [`crate::api::fs`] knows files, `drivers::virtio_blk` the device.
//!
//! # Two ways to wait, one mechanism
//!
//! [`read_at`] is the *asynchronous* way: the G parks until the device's interrupt readies it, and
//! costs no M meanwhile. The same call inside of [`blocking`](mod@crate::api::blocking) is the
//! *blocking* way: the M waits with its G, and a spare M takes over its CPU and P. The bytes are
//! the same; the cost is not.
//!
//! The driver keeps up to [`SLOTS`](crate::drivers::virtio::slots::SLOTS) requests under way;
//! further callers wait, in order, within their own limits.
#![forbid(unsafe_code)]

use crate::arch::text_enum;
use crate::drivers::virtio_blk::{self, Command, Disk, Failure, SECTOR, SLOT_BYTES};
use crate::run::time::{Duration, Instant};
use crate::wait::limit::Limit;

pub use crate::drivers::virtio_blk::DeviceError;

/// How long a call waits for the device, if it does not say. Each of the requests of a long read
/// has its own timeout: a slow disk that answers is not taken for one that does not.
pub const TIMEOUT: Duration = Duration::from_secs(5);

text_enum! {
    /// Why the disk was not read or written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error DiskError {
        /// (Or none that the kernel can use.)
        NoDisk => "there is no disk",
        PastEnd { offset: u64, bytes: usize, size: u64 } =>
            "{bytes} bytes at {offset} are past the end of the disk, which has {size}",
        /// (See [`block`].)
        Unaligned { offset: u64, bytes: usize, block: usize } =>
            "{bytes} bytes at {offset} cannot be written: not multiples of {block}",
        ReadOnly => "the disk is read-only",
        Device(error: DeviceError) => "{error}",
        /// (The data may have been written, or not.)
        TimedOut { waited: Duration } => "the disk did not answer within {waited:?}",
        NoMemory => "there is no memory for a disk buffer",
    }
}

/// The size of the disk in bytes.
pub fn size() -> Result<u64, DiskError> {
    virtio_blk::disk().map(bytes_of).ok_or(DiskError::NoDisk)
}

/// Writes begin and end at multiples of this many bytes: 512, or more (4096, say).
pub fn block() -> Result<usize, DiskError> {
    virtio_blk::disk().map(|disk| disk.block).ok_or(DiskError::NoDisk)
}

/// Fills `buffer` with the bytes at `offset` on the disk, on an error perhaps in part. The G waits
/// for each answer of the device, [`TIMEOUT`] at most; M, P and CPU do not.
///
/// ```no_run
/// let mut first = [0; 512];
/// runnext::disk::read_at(0, &mut first)?;
/// # Ok::<(), runnext::disk::DiskError>(())
/// ```
pub fn read_at(offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
    read_by(offset, buffer, TIMEOUT.into())
}

/// As [`read_at`], with the caller's limit to the time that it waits for each answer of the device.
pub fn read_at_timeout(offset: u64, buffer: &mut [u8], timeout: Duration) -> Result<(), DiskError> {
    read_by(offset, buffer, timeout.into())
}

/// As [`read_at`], until `limit` at most, for all answers together.
///
/// ```no_run
/// use runnext::prelude::*;
/// let (request, mut first) = (Context::new(), [0; 512]);
/// runnext::disk::read_at_until(0, &mut first, &request)?;
/// # Ok::<(), runnext::disk::DiskError>(())
/// ```
pub fn read_at_until<'l>(
    offset: u64,
    buffer: &mut [u8],
    limit: impl Into<Limit<'l>>,
) -> Result<(), DiskError> {
    read_by(offset, buffer, limit.into().starting_now())
}

fn read_by(offset: u64, buffer: &mut [u8], limit: Limit<'_>) -> Result<(), DiskError> {
    let disk = checked(offset, buffer.len())?;
    let mut rest = buffer;
    for piece in pieces(offset, rest.len(), disk.block) {
        let (now, later) = rest.split_at_mut(piece.bytes);
        run(disk, limit, |request, deadline_ns| {
            request.run(Command::Read(piece.sector, piece.sectors * SECTOR), deadline_ns)?;
            now.copy_from_slice(&request.data()[piece.skip..][..now.len()]);
            Ok(())
        })?;
        rest = later;
    }
    Ok(())
}

/// Writes `bytes` at `offset` on the disk, both multiples of [`block`]; on an error perhaps in
/// part. They survive a power cut when [`flush`] has returned.
///
/// ```no_run
/// runnext::disk::write_at(512, &[0; 512])?;
/// runnext::disk::flush()?;
/// # Ok::<(), runnext::disk::DiskError>(())
/// ```
pub fn write_at(offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    write_by(offset, bytes, TIMEOUT.into())
}

/// As [`write_at`], until `limit` at most, for all answers together.
pub fn write_at_until<'l>(
    offset: u64,
    bytes: &[u8],
    limit: impl Into<Limit<'l>>,
) -> Result<(), DiskError> {
    write_by(offset, bytes, limit.into().starting_now())
}

fn write_by(offset: u64, bytes: &[u8], limit: Limit<'_>) -> Result<(), DiskError> {
    let disk = checked(offset, bytes.len())?;
    if disk.is_read_only {
        return Err(DiskError::ReadOnly);
    }
    let block = disk.block;
    if !offset.is_multiple_of(block as u64) || !bytes.len().is_multiple_of(block) {
        return Err(DiskError::Unaligned { offset, bytes: bytes.len(), block });
    }
    let mut rest = bytes;
    for piece in pieces(offset, rest.len(), block) {
        let (now, later) = rest.split_at(piece.bytes);
        run(disk, limit, |request, deadline_ns| {
            request.data()[..now.len()].copy_from_slice(now);
            request.run(Command::Write(piece.sector, now.len()), deadline_ns)
        })?;
        rest = later;
    }
    Ok(())
}

/// Waits until all written data survives a power cut, for [`TIMEOUT`] at most.
pub fn flush() -> Result<(), DiskError> {
    flush_until(TIMEOUT)
}

/// As [`flush`], until `limit` at most.
pub fn flush_until<'l>(limit: impl Into<Limit<'l>>) -> Result<(), DiskError> {
    let disk = checked(0, 0)?;
    if !disk.can_flush {
        return Ok(()); // no cache
    }
    run(disk, limit.into(), |request, deadline_ns| request.run(Command::Flush, deadline_ns))
}

fn checked(offset: u64, bytes: usize) -> Result<&'static Disk, DiskError> {
    let disk = virtio_blk::disk().ok_or(DiskError::NoDisk)?;
    let size = bytes_of(disk);
    let is_inside = is_inside(offset, bytes, size);
    is_inside.then_some(disk).ok_or(DiskError::PastEnd { offset, bytes, size })
}

/// Gets a slot and lets `f` use it, both within the limit.
fn run(
    disk: &Disk,
    limit: Limit<'_>,
    f: impl FnOnce(&mut virtio_blk::Request<'_>, u64) -> Result<(), Failure>,
) -> Result<(), DiskError> {
    let began = Instant::now();
    let done = limit.during(|deadline_ns| {
        let request = disk.request(deadline_ns);
        request.and_then(|mut request| f(&mut request, deadline_ns))
    });
    done.map_err(|failure| match (failure, limit) {
        (Failure::TimedOut, Limit::For(timeout)) => DiskError::TimedOut { waited: timeout },
        (Failure::TimedOut, _) => DiskError::TimedOut { waited: began.elapsed() },
        (Failure::NoMemory, _) => DiskError::NoMemory,
        (Failure::Device(error), _) => DiskError::Device(error),
    })
}

/// Without an incomplete last block. A disk may claim more sectors than a byte count can express.
fn bytes_of(disk: &Disk) -> u64 {
    let block = disk.block as u64;
    disk.sectors.saturating_mul(SECTOR as u64) / block * block
}

fn is_inside(offset: u64, bytes: usize, size: u64) -> bool {
    offset.checked_add(bytes as u64).is_some_and(|end| end <= size)
}

/// The part of a longer range that one request transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    sector: u64,
    sectors: usize,
    /// Bytes of these before the wanted ones.
    skip: usize,
    bytes: usize,
}

/// The requests that transfer `bytes` bytes from `offset` on, each of whole blocks.
fn pieces(offset: u64, bytes: usize, block: usize) -> impl Iterator<Item = Piece> {
    let (mut offset, mut left) = (offset, bytes);
    core::iter::from_fn(move || {
        let skip = (offset % block as u64) as usize;
        let bytes = left.min(SLOT_BYTES - skip);
        let sectors = (skip + bytes).next_multiple_of(block) / SECTOR;
        let piece = Piece { sector: (offset - skip as u64) / SECTOR as u64, sectors, skip, bytes };
        offset += bytes as u64;
        left -= bytes;
        (bytes > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces cover `bytes` at `offset` of a disk with such blocks once and in order.
    fn pieces_cover(offset: u64, bytes: usize, block: usize) {
        let mut next = offset;
        for piece in pieces(offset, bytes, block) {
            assert_eq!(piece.sector * 512 + piece.skip as u64, next);
            assert!((piece.sector * 512).is_multiple_of(block as u64), "{piece:?}");
            assert!((piece.sectors * SECTOR).is_multiple_of(block), "{piece:?}");
            assert!(piece.skip + piece.bytes <= piece.sectors * SECTOR);
            assert!(piece.sectors * SECTOR <= SLOT_BYTES, "fits a slot: {piece:?}");
            assert!(piece.bytes > 0);
            next += piece.bytes as u64;
        }
        assert_eq!(next, offset + bytes as u64, "{bytes} at {offset}");
    }

    #[test]
    fn pieces_cover_every_byte_once_and_in_order() {
        for block in [512, 4096, SLOT_BYTES] {
            for offset in [0, 1, 511, 512, 513, 4096, 10_000, u64::from(u32::MAX)] {
                for bytes in [0, 1, 511, 512, SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + 1, 100_000] {
                    pieces_cover(offset, bytes, block);
                }
            }
        }
    }

    #[test]
    fn the_end_of_the_disk_is_the_end() {
        assert!(is_inside(0, 1024, 1024));
        assert!(is_inside(1024, 0, 1024));
        assert!(!is_inside(1, 1024, 1024));
        assert!(!is_inside(u64::MAX, 2, u64::MAX));
        assert!(!is_inside(u64::MAX - 1, 512, u64::MAX));
    }

    #[test]
    fn without_a_disk_everything_says_so() {
        assert_eq!(read_at(0, &mut [0; 512]), Err(DiskError::NoDisk));
        let read = || read_at(0, &mut [0; 512]);
        assert_eq!(crate::api::blocking::blocking(read), Err(DiskError::NoDisk));
        assert_eq!(write_at(0, &[0; 512]), Err(DiskError::NoDisk));
        assert_eq!(flush(), Err(DiskError::NoDisk));
    }

    #[test]
    fn errors_are_sentences() {
        let past = DiskError::PastEnd { offset: 5, bytes: 7, size: 9 };
        assert_eq!(past.to_string(), "7 bytes at 5 are past the end of the disk, which has 9");
        let late = DiskError::TimedOut { waited: Duration::from_millis(50) };
        assert_eq!(late.to_string(), "the disk did not answer within 50ms");
        let io = DiskError::Device(DeviceError::Io);
        assert_eq!(io.to_string(), "the disk could not read or write there");
    }
}
