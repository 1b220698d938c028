//! Archives as `tar` makes them: blocks of 512 bytes, a header before each file.
//!
//! Reads headers (POSIX ustar, and GNU tar's own format) and walks from one to the next. [`walk`]
//! calls a function for blocks, so that damaged archives are tested on the host.
//!
//! **An archive is not trusted.** The checksum of a header must be right, and a file must end
//! inside the archive. Every step of the walk advances by a block at least, so it ends. Names are
//! bytes until they have been checked.
//!
//! ```text
//!   offset  bytes
//!        0    100   name, ends with NUL unless it fills the field
//!      124     12   size, octal digits; or base 256 if the top bit is set
//!      148      8   checksum: the sum of all bytes, these taken as spaces
//!      156      1   kind: '0' or NUL a file, '5' a directory, others are skipped
//!      257      6   "ustar", then NUL or a space
//!      345    155   what stands before the name and a '/', if not empty
//! ```

use crate::arch::text_enum;
use alloc::string::String;

/// Bytes of a header; contents are rounded up to it.
pub const BLOCK: usize = 512;

/// A header.
pub type Block = [u8; BLOCK];

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with contents.
    File,
    /// A directory: only a name.
    Directory,
    /// Unused by this kernel: links, devices, long names.
    Other,
}

/// A file or directory of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path from the top of the archive: `a/b.txt`.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of contents.
    pub size: u64,
    /// Their offset in the archive.
    pub start: u64,
}

text_enum! {
    /// The kinds of damage.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error Damage {
        NoHeader => "there is no tar header",
        Checksum => "the checksum of a header is wrong",
        Size => "the size of a file is no number",
        CutOff => "a file ends behind the end of the disk",
    }
}

/// Calls `visit` for every entry of an archive of `size` bytes, in order; not for those with
/// unusable names: not UTF-8, empty, or with `..` in them. `read` gives the block at an offset.
///
/// # Errors
/// The error of `read` or `visit`; or damage, with the offset of the damaged header.
pub fn walk<E: From<(u64, Damage)>>(
    size: u64,
    mut read: impl FnMut(u64, &mut Block) -> Result<(), E>,
    mut visit: impl FnMut(Entry) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0u64;
    let mut block = [0; BLOCK];
    // Without an end mark the archive ends where the disk does.
    while let Some(start) = at.checked_add(BLOCK as u64).filter(|&start| start <= size) {
        read(at, &mut block)?;
        if block == [0; BLOCK] {
            break;
        }
        let (name, kind, bytes) = parse(&block).map_err(|damage| E::from((at, damage)))?;
        let end = start.checked_add(bytes).filter(|&end| end <= size);
        let end = end.ok_or_else(|| E::from((at, Damage::CutOff)))?;
        if let Some(name) = name.filter(|_| kind != Kind::Other) {
            visit(Entry { name, kind, size: bytes, start })?;
        }
        let Some(next) = end.checked_next_multiple_of(BLOCK as u64) else { break };
        at = next;
    }
    Ok(())
}

/// Name (if usable), kind and size of an entry.
fn parse(block: &Block) -> Result<(Option<String>, Kind, u64), Damage> {
    if &block[257..262] != b"ustar" {
        return Err(Damage::NoHeader);
    }
    if octal(&block[148..156]) != Some(checksum(block)) {
        return Err(Damage::Checksum);
    }
    let size = number(&block[124..136]).ok_or(Damage::Size)?;
    let kind = match block[156] {
        b'0' | b'7' | 0 => Kind::File,
        b'5' => Kind::Directory,
        _ => Kind::Other,
    };
    // Links and the like may state a size that they do not have.
    let size = if matches!(block[156], b'1'..=b'6') { 0 } else { size };
    // GNU's own format keeps other things where the prefix is.
    let prefix = if block[262] == 0 { text(&block[345..500]) } else { b"" };
    Ok((join(prefix, text(&block[..100])), kind, size))
}

/// The sum of all bytes, those of the checksum taken as spaces.
fn checksum(block: &Block) -> u64 {
    let own = 148..156;
    let byte = |(i, &byte)| if own.contains(&i) { u64::from(b' ') } else { u64::from(byte) };
    block.iter().enumerate().map(byte).sum()
}

/// Octal digits between spaces, up to a NUL or a space.
fn octal(field: &[u8]) -> Option<u64> {
    let field = core::str::from_utf8(field).ok()?;
    let digits = field.trim_ascii_start().trim_end_matches(['\0', ' ']);
    u64::from_str_radix(digits, 8).ok().filter(|_| !digits.starts_with('+'))
}

/// A size: octal, or with the top bit of the first byte set a big-endian number in the rest (GNU's
/// base 256), of which a negative one is invalid.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        [0x80, rest @ ..] => rest
            .iter()
            .try_fold(0u64, |value, &byte| Some(value.checked_mul(256)? | u64::from(byte))),
        [0x81..=0xff, ..] => None,
        _ => octal(field),
    }
}

/// A field's bytes up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// `prefix/name` without `.` and empty parts; `None` if it is not usable.
fn join(prefix: &[u8], name: &[u8]) -> Option<String> {
    let parts = [prefix, name].map(|part| core::str::from_utf8(part).ok());
    let [Some(prefix), Some(name)] = parts else { return None };
    let mut path = String::new();
    for part in prefix.split('/').chain(name.split('/')) {
        match part {
            "" | "." => continue,
            ".." => return None,
            _ if !path.is_empty() => path.push('/'),
            _ => {}
        }
        path.push_str(part);
    }
    (!path.is_empty()).then_some(path)
}

/// A path as a program writes it, in the form that entries have.
pub fn normal(path: &str) -> Option<String> {
    join(b"", path.as_bytes())
}

#[cfg(test)]
mod tests;
