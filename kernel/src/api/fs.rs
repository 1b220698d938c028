//! Files: a tar archive on the disk, read-only.
//!
//! The disk is the archive, from its first byte on: `tar --format=ustar -cf disk.img -C folder .`
//! creates one, `tar tf` lists it, `make run DISK=disk.img` attaches it. No cache, no index: to
//! find a file, headers are read one after the other; an archive has a few dozen of them.
//!
//! [`crate::api::disk`] reads the disk; `ustar` decodes a header. An archive is not trusted.
#![forbid(unsafe_code)]

pub(crate) mod ustar;

use super::disk::{self, DiskError};
use crate::arch::text_enum;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ustar::Kind;

pub use ustar::{Damage, Entry, Kind as EntryKind};

text_enum! {
    /// Why a file was not read.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub error FsError {
        Disk(error: DiskError) => "{error}",
        NoArchive(damage: Damage) => "the disk is no tar archive, or damaged: {damage}",
        Damaged { offset: u64, damage: Damage } => "the archive is damaged at {offset}: {damage}",
        NotFound(path: String) => "there is no file {path}",
        IsDirectory(path: String) => "{path} is a directory",
        NoMemory(bytes: u64) => "there is no memory for {bytes} bytes",
    }
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
        if offset == 0 { FsError::NoArchive(damage) } else { FsError::Damaged { offset, damage } }
    }
}
