//! Files: a tar archive on the disk, read-only.
//!
//! The disk is the archive, from its first byte on: `tar --format=ustar -cf disk.img -C folder .`
//! creates one, `tar tf` lists it, `make run DISK=disk.img` attaches it. No cache, no index: to
//! find a file, headers are read one after the other; an archive has a few dozen of them.
//!
//! [`crate::api::disk`] reads the disk; `ustar` decodes a header. An archive is not trusted.
#![forbid(unsafe_code)]

pub(crate) mod ustar;

use super::blocking::blocking;
use super::disk::{self, DiskError};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use ustar::Kind;

pub use ustar::{Damage, Entry, Kind as EntryKind};

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsError {
    /// The disk failed.
    Disk(DiskError),
    /// The archive is damaged, at this offset; at 0 the disk may not be one.
    Damaged {
        /// Where the header is.
        offset: u64,
        /// What is wrong with it.
        damage: Damage,
    },
    /// There is no such file.
    NotFound(String),
    /// The path is a directory.
    IsDirectory(String),
    /// No memory to hold so many bytes.
    NoMemory(u64),
}

/// The contents of the file at `path`. The G waits; M, P and CPU do not.
///
/// ```no_run
/// let text = runnext::fs::read("welcome.txt")?;
/// # Ok::<(), runnext::fs::FsError>(())
/// ```
pub fn read(path: &str) -> Result<Vec<u8>, FsError> {
    let entry = find(path)?;
    let mut contents = Vec::new();
    let bytes = usize::try_from(entry.size).map_err(|_| FsError::NoMemory(entry.size))?;
    contents.try_reserve_exact(bytes).map_err(|_| FsError::NoMemory(entry.size))?;
    contents.resize(bytes, 0);
    disk::read_at(entry.start, &mut contents)?;
    Ok(contents)
}

/// As [`read`], but the M waits with its G, and a spare M takes over.
pub fn read_blocking(path: &str) -> Result<Vec<u8>, FsError> {
    blocking(|| read(path))
}

/// All files and directories, in the archive's order.
pub fn list() -> Result<Vec<Entry>, FsError> {
    let mut entries = Vec::new();
    ustar::walk(disk::size()?, read_block, |entry| {
        // An archive of a terabyte may have more names than there is memory.
        entries.try_reserve(1).map_err(|_| FsError::NoMemory(entry.size))?;
        entries.push(entry);
        Ok(())
    })?;
    Ok(entries)
}

/// Where the file at `path` is on the disk, and its size: for reading parts of it by
/// [`disk::read_at`]. The last one, if the archive has several of this name.
pub fn find(path: &str) -> Result<Entry, FsError> {
    let not_found = || FsError::NotFound(path.to_string());
    let wanted = ustar::normal(path).ok_or_else(not_found)?;
    let mut last = None;
    ustar::walk(disk::size()?, read_block, |entry| {
        if entry.name == wanted {
            last = Some(entry); // `tar -r` appends: a later entry replaces an earlier one
        }
        Ok(())
    })?;
    match last {
        Some(entry) if entry.kind == Kind::Directory => Err(FsError::IsDirectory(wanted)),
        found => found.ok_or_else(not_found),
    }
}

fn read_block(offset: u64, block: &mut ustar::Block) -> Result<(), FsError> {
    disk::read_at(offset, block).map_err(FsError::Disk)
}

impl From<DiskError> for FsError {
    fn from(error: DiskError) -> Self {
        FsError::Disk(error)
    }
}

impl From<(u64, Damage)> for FsError {
    fn from((offset, damage): (u64, Damage)) -> Self {
        FsError::Damaged { offset, damage }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsError::Disk(error) => error.fmt(f),
            FsError::Damaged { offset: 0, damage } => {
                write!(f, "the disk is no tar archive, or damaged: {damage}")
            }
            FsError::Damaged { offset, damage } => {
                write!(f, "the archive is damaged at {offset}: {damage}")
            }
            FsError::NotFound(path) => write!(f, "there is no file {path}"),
            FsError::IsDirectory(path) => write!(f, "{path} is a directory"),
            FsError::NoMemory(bytes) => write!(f, "there is no memory for {bytes} bytes"),
        }
    }
}

impl core::error::Error for FsError {}
