//! The second disk: what the guest finds on it, and how QEMU attaches it.
//!
//! [`build`] makes the disk of `make run`: a tar archive of the folder `disk/`
//! with one more file, `pattern.bin`, whose every byte is known ([`pattern`]).
//! It is made here and not by `tar`, so that it is the same to the byte wherever
//! it is made. [`DataDisk`] attaches an image as a virtio block device, and for
//! tests makes it slow or faulty.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::qemu::comma;

/// Bytes of `pattern.bin`.
pub const PATTERN_BYTES: usize = 1 << 20;

/// Bytes that look like noise, and tell where they are from: the word of four
/// bytes with number n is n times an odd constant, little end first.
///
/// ```
/// let bytes = boot::data::pattern(12);
/// assert_eq!(bytes[4..8], 0x9e37_79b1_u32.to_le_bytes());
/// ```
pub fn pattern(bytes: usize) -> Vec<u8> {
    let words = (0..).map(|n: u32| n.wrapping_mul(0x9e37_79b1).to_le_bytes());
    words.flatten().take(bytes).collect()
}

/// The files of the disk of `make run`, by name, in their order.
pub fn files() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    collect(&crate::root().join("disk"), "", &mut files)?;
    files.push(("pattern.bin".into(), pattern(PATTERN_BYTES)));
    files.sort();
    Ok(files)
}

fn collect(dir: &Path, above: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{above}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else {
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            files.push((name, bytes));
        }
    }
    Ok(())
}

/// Makes `disk.img` in `out_dir`, unless it is there already and the same.
pub fn build(out_dir: &Path) -> Result<PathBuf> {
    let image = out_dir.join("disk.img");
    let archive = archive(&files()?)?;
    if fs::read(&image).is_ok_and(|old| old == archive) {
        return Ok(image);
    }
    fs::create_dir_all(out_dir).with_context(|| format!("creating {}", out_dir.display()))?;
    // Under another name first: a machine that starts meanwhile sees all of it.
    let part = crate::part_of(&image);
    fs::write(&part, archive).with_context(|| format!("writing {}", part.display()))?;
    fs::rename(&part, &image).with_context(|| format!("writing {}", image.display()))?;
    Ok(image)
}

/// Bytes of a block of an archive.
const BLOCK: usize = 512;

/// A POSIX ustar archive of these files.
pub fn archive(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (name, contents) in files {
        archive.extend(header(name, contents.len())?);
        archive.extend(contents);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // The end is marked by two empty blocks.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

/// The header of a file that all users may read, from the first second of 1970.
fn header(name: &str, bytes: usize) -> Result<[u8; BLOCK]> {
    if name.len() > 100 {
        bail!("{name}: more than 100 bytes of name");
    }
    let mut block = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        "); // how the checksum is counted
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// A disk for the guest's data, on virtio.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct DataDisk {
    image: PathBuf,
    keeps_writes: bool,
    failing_sector: Option<u64>,
    drive: Vec<String>,
    device: Vec<String>,
    is_behind_bridge: bool,
}

impl DataDisk {
    /// The disk with this content. What the guest writes is forgotten.
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            keeps_writes: false,
            failing_sector: None,
            drive: Vec::new(),
            device: Vec::new(),
            is_behind_bridge: false,
        }
    }

    /// What the guest writes goes to the image.
    pub fn keeping_writes(mut self) -> Self {
        self.keeps_writes = true;
        self
    }

    /// Reading this sector of 512 bytes fails.
    pub fn failing_at(mut self, sector: u64) -> Self {
        self.failing_sector = Some(sector);
        self
    }

    /// A further property of QEMU's drive: `throttling.iops-total=1`.
    pub fn drive(mut self, property: &str) -> Self {
        self.drive.push(property.into());
        self
    }

    /// A further property of QEMU's device: `vectors=0`.
    pub fn device(mut self, property: &str) -> Self {
        self.device.push(property.into());
        self
    }

    /// It hangs on a bridge, as all devices of PCI Express do; for `q35`.
    pub fn behind_bridge(mut self) -> Self {
        self.is_behind_bridge = true;
        self
    }

    /// The arguments for QEMU.
    pub fn args(&self) -> Vec<String> {
        let file = comma(&self.image.to_string_lossy());
        let mut drive = vec!["if=none".to_string(), "id=data".into(), "format=raw".into()];
        match self.failing_sector {
            None => drive.push(format!("file={file}")),
            Some(sector) => drive.extend([
                "file.driver=blkdebug".into(),
                "file.image.driver=file".into(),
                format!("file.image.filename={file}"),
                "file.inject-error.0.event=read_aio".into(),
                format!("file.inject-error.0.sector={sector}"),
            ]),
        }
        drive.push(if self.keeps_writes { "snapshot=off" } else { "snapshot=on" }.into());
        drive.extend(self.drive.iter().cloned());
        let mut device = vec!["virtio-blk-pci".to_string(), "drive=data".into()];
        device.extend(self.device.iter().cloned());
        let mut args = vec!["-drive".into(), drive.join(",")];
        if self.is_behind_bridge {
            args.extend(["-device".into(), "pcie-root-port,id=bridge,chassis=1".into()]);
            device.push("bus=bridge".into());
        }
        args.extend(["-device".into(), device.join(",")]);
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_what_is_built() {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let image = build(dir.path()).expect("a disk");
        let tar = std::process::Command::new("tar").arg("-xOf").arg(&image).output();
        let listed = std::process::Command::new("tar").arg("-tf").arg(&image).output();
        let (names, contents): (Vec<_>, Vec<_>) = files().expect("files").into_iter().unzip();
        let listed = String::from_utf8(listed.expect("a tar").stdout).expect("text");
        assert_eq!(listed.lines().collect::<Vec<_>>(), names);
        assert!(tar.expect("a tar").stdout == contents.concat(), "contents differ");
    }

    #[test]
    fn several_who_want_a_disk_at_once_all_get_it() {
        for _ in 0..20 {
            let dir = tempfile::TempDir::new().expect("a writable directory");
            std::thread::scope(|scope| {
                let builds: Vec<_> = (0..8).map(|_| scope.spawn(|| build(dir.path()))).collect();
                for build in builds {
                    build.join().expect("no panic").expect("a disk");
                }
            });
            assert_eq!(fs::read_dir(&dir).expect("it is there").count(), 1, "no parts are left");
        }
    }

    #[test]
    fn the_disk_is_made_anew_only_when_it_changes() {
        let dir = tempfile::TempDir::new().expect("a writable directory");
        let image = build(dir.path()).expect("a disk");
        let made = |image: &Path| fs::metadata(image).and_then(|m| m.modified()).expect("a file");
        let first = made(&image);
        build(dir.path()).expect("a disk");
        assert_eq!(made(&image), first);
        fs::write(&image, "old").expect("a writable file");
        build(dir.path()).expect("a disk");
        assert!(fs::read(&image).expect("a file").len() > PATTERN_BYTES);
    }

    #[test]
    fn the_image_is_not_written_unless_asked() {
        let disk = DataDisk::new("a,b.img");
        assert!(disk.args()[1].contains("file=a,,b.img,snapshot=on"), "{:?}", disk.args());
        assert!(disk.keeping_writes().args()[1].ends_with("snapshot=off"));
    }

    #[test]
    fn faults_and_properties_reach_qemu() {
        let disk = DataDisk::new("a.img").failing_at(7).drive("x=1").device("vectors=0");
        let args = disk.args().join(" ");
        assert!(args.contains("inject-error.0.sector=7"), "{args}");
        assert!(args.contains(",x=1 -device virtio-blk-pci,drive=data,vectors=0"), "{args}");
    }
}
