//! Writes an image to a USB stick, after making sure that it is one.
//!
//! A wrong letter here overwrites a disk. So a device is refused unless the
//! kernel of this host calls it removable, nothing of it is in use, the image
//! fits, and its name was typed twice: on the command line and when asked. What
//! the host says is read below a root directory that the tests replace.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Linux's flag of `open`: on a block device, fail while it is in use.
const O_EXCL: i32 = 0o200;

/// Why a device is not written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No whole disk has this name.
    NotADisk,
    /// It is a partition of the disk named here.
    Partition(String),
    /// The host does not call it removable.
    NotRemovable,
    /// There is no medium in it.
    NoMedium,
    /// This part of it is mounted, swapped to, or held by another device.
    InUse(String),
    /// The image has more bytes than the device.
    TooSmall {
        /// What the device holds, in bytes.
        device: u64,
        /// What the image needs, in bytes.
        image: u64,
    },
    /// Its name was not typed.
    NotConfirmed,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADisk => write!(f, "it is not a disk"),
            Self::Partition(disk) => write!(f, "it is a partition: name the disk, /dev/{disk}"),
            Self::NotRemovable => write!(f, "it is not removable"),
            Self::NoMedium => write!(f, "there is no medium in it"),
            Self::InUse(part) => write!(f, "{part} is in use (mounted, swap, or held)"),
            Self::TooSmall { device, image } => {
                write!(f, "it holds {device} bytes and the image has {image}")
            }
            Self::NotConfirmed => write!(f, "not confirmed"),
        }
    }
}

/// Refuses `device` as soon as possible: before anything is built for it.
pub fn inspect(device: &Path, image_bytes: u64) -> Result<Disk> {
    let device = fs::canonicalize(device).with_context(|| device.display().to_string())?;
    let is_block = fs::metadata(&device)?.file_type().is_block_device();
    let looked =
        if is_block { check(Path::new("/"), &device, image_bytes) } else { Err(Refusal::NotADisk) };
    looked.with_context(|| format!("refusing to write to {}", device.display()))
}

/// Writes `image` to `device` after all checks and the question.
pub fn write(image: &Path, device: &Path) -> Result<()> {
    let size = fs::metadata(image).with_context(|| image.display().to_string())?.len();
    let disk = inspect(device, size)?;
    let device = fs::canonicalize(device)?;
    println!("{} ({disk}) will be overwritten with {}.", device.display(), image.display());
    confirm(&device, &mut io::stdin().lock())?;
    copy(image, &device)
}

/// What would be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// What its maker calls it, if the host knows.
    pub model: String,
    /// What it holds.
    pub bytes: u64,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:.1} GB", self.model, self.bytes as f64 / 1e9)
    }
}

/// Looks at what the host says about `device` below `root`.
pub fn check(root: &Path, device: &Path, image_bytes: u64) -> Result<Disk, Refusal> {
    let name = device.file_name().and_then(|name| name.to_str()).ok_or(Refusal::NotADisk)?;
    let dir = root.join("sys/block").join(name);
    if !dir.is_dir() {
        return Err(whole_disk_of(root, name).map_or(Refusal::NotADisk, Refusal::Partition));
    }
    if word(&dir.join("removable")).as_deref() != Some("1") {
        return Err(Refusal::NotRemovable);
    }
    let sectors: u64 = word(&dir.join("size")).and_then(|s| s.parse().ok()).unwrap_or(0);
    // The unit of this file is 512 bytes, whatever the disk's own sectors are.
    let bytes = sectors.saturating_mul(512);
    if bytes == 0 {
        return Err(Refusal::NoMedium);
    }
    if let Some(part) = part_in_use(root, &dir, name) {
        return Err(Refusal::InUse(part));
    }
    if bytes < image_bytes {
        return Err(Refusal::TooSmall { device: bytes, image: image_bytes });
    }
    let model = word(&dir.join("device/model")).unwrap_or("a disk without a name".into());
    Ok(Disk { model, bytes })
}

/// Asks for the device's name and wants exactly that.
fn confirm(device: &Path, input: &mut impl BufRead) -> Result<(), Refusal> {
    print!("Type its name to confirm: ");
    io::stdout().flush().ok();
    let mut line = String::new();
    input.read_line(&mut line).map_err(|_| Refusal::NotConfirmed)?;
    if Path::new(line.trim()) == device { Ok(()) } else { Err(Refusal::NotConfirmed) }
}

fn copy(image: &Path, device: &Path) -> Result<()> {
    let mut from = fs::File::open(image).with_context(|| image.display().to_string())?;
    let mut to = OpenOptions::new()
        .write(true)
        .custom_flags(O_EXCL)
        .open(device)
        .with_context(|| format!("opening {}", device.display()))?;
    println!("writing…");
    let bytes = io::copy(&mut from, &mut to).context("writing")?;
    to.sync_all().context("waiting for the device")?;
    if bytes != from.metadata()?.len() {
        bail!("only {bytes} bytes were written");
    }
    println!("{bytes} bytes written; the stick can be pulled out.");
    Ok(())
}

/// The first part of the disk, or the disk itself, that is in use.
fn part_in_use(root: &Path, dir: &Path, name: &str) -> Option<String> {
    let mut parts = vec![(name.to_string(), dir.to_path_buf())];
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().join("partition").exists() {
            parts.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    parts.sort();
    let used = |part: &(String, PathBuf)| {
        is_mounted(root, &part.0, &part.1) || is_swap(root, &part.0) || is_held(&part.1)
    };
    parts.into_iter().find(used).map(|part| part.0)
}

/// By name, and by number for mounts that go by another name (/dev/root, a
/// label).
fn is_mounted(root: &Path, name: &str, dir: &Path) -> bool {
    let mounts = fs::read_to_string(root.join("proc/mounts")).unwrap_or_default();
    let by_name = first_words(&mounts).any(|source| source == format!("/dev/{name}"));
    let Some(number) = word(&dir.join("dev")) else { return by_name };
    let mountinfo = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    by_name || mountinfo.lines().any(|line| line.split(' ').nth(2) == Some(&number))
}

fn is_swap(root: &Path, name: &str) -> bool {
    let swaps = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    first_words(&swaps).any(|source| source == format!("/dev/{name}"))
}

/// Encryption, RAID and volume managers show up as holders.
fn is_held(dir: &Path) -> bool {
    fs::read_dir(dir.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
}

fn whole_disk_of(root: &Path, part: &str) -> Option<String> {
    let disks = fs::read_dir(root.join("sys/block")).ok()?;
    disks
        .flatten()
        .find(|disk| disk.path().join(part).join("partition").exists())
        .map(|disk| disk.file_name().to_string_lossy().into_owned())
}

fn first_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split_whitespace().next())
}

fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;
    use tempfile::TempDir;

    /// A host with the stick sdb (two partitions, 1 MiB), the fixed disk sda
    /// and an empty card reader sdc; then `extra` files on top.
    fn host(extra: &[(&str, &str)]) -> TempDir {
        let base = [
            ("sys/block/sda/removable", "0\n"),
            ("sys/block/sda/size", "4096\n"),
            ("sys/block/sdb/removable", "1\n"),
            ("sys/block/sdb/size", "2048\n"),
            ("sys/block/sdb/dev", "8:16\n"),
            ("sys/block/sdb/device/model", "Stick \n"),
            ("sys/block/sdb/sdb1/partition", "1\n"),
            ("sys/block/sdb/sdb1/dev", "8:17\n"),
            ("sys/block/sdb/sdb2/partition", "2\n"),
            ("sys/block/sdc/removable", "1\n"),
            ("sys/block/sdc/size", "0\n"),
            ("proc/mounts", "/dev/sda1 / ext4 rw 0 0\n/dev/sdb10 /x vfat rw 0 0\n"),
        ];
        tree(&[&base, extra].concat())
    }

    fn refusal(device: &str, extra: &[(&str, &str)]) -> Refusal {
        check(host(extra).path(), Path::new(device), 1024).expect_err("must be refused")
    }

    #[test]
    fn an_unused_stick_is_taken() {
        let disk = check(host(&[]).path(), Path::new("/dev/sdb"), 1 << 20).expect("a stick");
        assert_eq!(disk, Disk { model: "Stick".into(), bytes: 1 << 20 });
    }

    #[test]
    fn a_fixed_disk_is_refused() {
        assert_eq!(refusal("/dev/sda", &[]), Refusal::NotRemovable);
    }

    #[test]
    fn what_is_no_whole_disk_is_refused() {
        assert_eq!(refusal("/dev/sdx", &[]), Refusal::NotADisk);
        assert_eq!(refusal("/dev/..", &[]), Refusal::NotADisk);
        assert_eq!(refusal("/dev/sdb1", &[]), Refusal::Partition("sdb".into()));
        assert_eq!(refusal("/dev/sdc", &[]), Refusal::NoMedium);
    }

    #[test]
    fn a_disk_with_a_part_in_use_is_refused() {
        let in_use = |part: &str| Refusal::InUse(part.into());
        let mounts = [("proc/mounts", "/dev/sdb1 /mnt vfat rw 0 0\n")];
        assert_eq!(refusal("/dev/sdb", &mounts), in_use("sdb1"));
        let whole = [("proc/mounts", "/dev/sdb /mnt vfat rw 0 0\n")];
        assert_eq!(refusal("/dev/sdb", &whole), in_use("sdb"));
        let alias = [("proc/self/mountinfo", "20 1 8:17 / /mnt rw - vfat /dev/root rw\n")];
        assert_eq!(refusal("/dev/sdb", &alias), in_use("sdb1"));
        let swap = [("proc/swaps", "Filename Type\n/dev/sdb2 partition 1 0 -2\n")];
        assert_eq!(refusal("/dev/sdb", &swap), in_use("sdb2"));
        let held = [("sys/block/sdb/sdb2/holders/dm-0", "")];
        assert_eq!(refusal("/dev/sdb", &held), in_use("sdb2"));
    }

    #[test]
    fn an_image_that_does_not_fit_is_refused() {
        let image = (1 << 20) + 1;
        let error = check(host(&[]).path(), Path::new("/dev/sdb"), image).expect_err("too big");
        assert_eq!(error, Refusal::TooSmall { device: 1 << 20, image });
    }

    #[test]
    fn only_the_exact_name_confirms() {
        let device = Path::new("/dev/sdb");
        assert_eq!(confirm(device, &mut &b"/dev/sdb\n"[..]), Ok(()));
        for answer in ["", "\n", "y\n", "yes\n", "sdb\n", "/dev/sdb1\n", "/dev/sda\n"] {
            let said = confirm(device, &mut answer.as_bytes());
            assert_eq!(said, Err(Refusal::NotConfirmed), "{answer:?}");
        }
    }
}
