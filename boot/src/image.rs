//! From the kernel's ELF file to disk images that BIOS and UEFI can start.
//!
//! An image is a FAT partition with the loader's stages, the kernel under the
//! name `kernel-x86_64`, the loader's settings in `boot.json`, and a text file
//! named `ramdisk`: the kernel's command line, for a person to edit. The loader
//! hands it to the kernel as its ramdisk. Of the two loaders only UEFI's reads
//! the FAT with care. BIOS's wants exactly that name in lower case, and takes a
//! deleted entry for a file; so edit the file in place and do not replace it.
//!
//! The loaders are carried by a tool of its own, `boot/loader`, which is built for a
//! firmware when the first image for it is made.
//!
//! The kernel goes in without debug sections (the loader reads it sector by
//! sector) but with its symbol table, from which it names the functions of its
//! own backtraces.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::host::output;
use crate::qemu::Firmware;

/// Where the image called `name` for this firmware is, or will be.
///
/// ```
/// use boot::{image, qemu::Firmware};
/// use std::path::Path;
///
/// let image = image::path(Firmware::Uefi, Path::new("target"), "runnext");
/// assert_eq!(image, Path::new("target/runnext-uefi.img"));
/// ```
pub fn path(firmware: Firmware, out_dir: &Path, name: &str) -> PathBuf {
    out_dir.join(format!("{name}-{}.img", firmware.name()))
}

/// Makes the image of `kernel` for one firmware, with the command line in the text file
/// `cmdline`, unless it is there and made of the same.
pub fn build(
    firmware: Firmware,
    kernel: &Path,
    cmdline: &Path,
    out_dir: &Path,
    name: &str,
) -> Result<PathBuf> {
    let image = path(firmware, out_dir, name);
    check_kernel(kernel)?;
    fs::create_dir_all(out_dir).with_context(|| format!("creating {}", out_dir.display()))?;
    // Of several that want the same image, one makes it and the others wait.
    let lock = image.with_extension("lock");
    let lock = fs::File::create(&lock).with_context(|| lock.display().to_string())?;
    lock.lock().context("waiting for others that make the same image")?;
    let ingredients = ingredients(&[kernel, cmdline])?;
    let note = image.with_extension("made-of");
    let is_same = fs::read_to_string(&note).is_ok_and(|noted| noted == ingredients);
    if is_same && image.is_file() {
        return Ok(image);
    }
    // The stripped file's name becomes the label of the FAT partition.
    let scratch = crate::part_of(&out_dir.join(name));
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    // Until it is made it is made of nothing that is known.
    fs::remove_file(&note).ok();
    let result = write(firmware, kernel, cmdline, &scratch.join(name), &image);
    fs::remove_dir_all(&scratch).ok();
    result?;
    fs::write(&note, ingredients).with_context(|| format!("writing {}", note.display()))?;
    Ok(image)
}

fn write(
    firmware: Firmware,
    kernel: &Path,
    cmdline: &Path,
    stripped: &Path,
    image: &Path,
) -> Result<()> {
    let loader = loader(firmware)?;
    strip_debug(kernel, stripped)?;
    // Under another name first: a machine that starts meanwhile sees the
    // old image or the new one, never half of one.
    let part = stripped.with_extension("img");
    output(Command::new(&loader).args([stripped, cmdline, &part]))
        .with_context(|| format!("making {}", image.display()))?;
    fs::rename(&part, image).with_context(|| format!("writing {}", image.display()))
}

/// The sources of the tool that carries a loader.
const LOADER_SOURCES: [&str; 3] =
    ["boot/loader/Cargo.toml", "boot/loader/Cargo.lock", "boot/loader/src/main.rs"];

/// The tool that carries this firmware's loader, built if need be. Each firmware has a
/// target directory of its own, so a tree that never starts from UEFI never builds its loader.
fn loader(firmware: Firmware) -> Result<PathBuf> {
    let root = crate::root();
    let dir = crate::target_dir().join(format!("loader-{}", firmware.name()));
    let tool = dir.join("debug/loader");
    if !tool.is_file() {
        eprintln!("building the loader for {firmware} (minutes, the first time only)…");
    }
    let mut cargo = crate::kernel::cargo();
    cargo
        .args(["build", "--locked", "--features", firmware.name(), "--manifest-path"])
        .arg(root.join(LOADER_SOURCES[0]))
        .arg("--target-dir")
        .arg(&dir);
    output(&mut cargo).with_context(|| format!("building the loader for {firmware}"))?;
    Ok(tool)
}

/// What images are made of: each file with its size and its time. Not just whether it
/// is older than they are: another kernel may be that, too.
fn ingredients(files: &[&Path]) -> Result<String> {
    let loader = LOADER_SOURCES.map(|file| crate::root().join(file));
    let lines = files.iter().copied().chain(loader.iter().map(PathBuf::as_path)).map(|file| {
        let about = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?;
        let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        Ok(format!("{} {} {:?}\n", file.display(), about.len(), about.modified()?))
    });
    lines.collect()
}

/// A wrong file here would be a loader's panic on a black screen later.
fn check_kernel(kernel: &Path) -> Result<()> {
    const HEAD: &[u8] = b"\x7fELF\x02\x01";
    let mut head = Vec::new();
    fs::File::open(kernel)
        .and_then(|file| file.take(HEAD.len() as u64).read_to_end(&mut head))
        .with_context(|| format!("reading the kernel {} (make build?)", kernel.display()))?;
    if head != HEAD {
        bail!("{} is no 64-bit ELF file", kernel.display());
    }
    Ok(())
}

fn strip_debug(kernel: &Path, stripped: &Path) -> Result<()> {
    let mut objcopy = Command::new(llvm_objcopy()?);
    output(objcopy.arg("--strip-debug").args([kernel, stripped])).map(drop)
}

/// The pinned toolchain's own objcopy (component llvm-tools).
fn llvm_objcopy() -> Result<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
    let ask = |args: &[&str]| output(Command::new(&rustc).args(args).current_dir(crate::root()));
    let sysroot = ask(&["--print", "sysroot"])?;
    let version = ask(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not name its host")?;
    let objcopy = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/llvm-objcopy");
    if !objcopy.is_file() {
        bail!(
            "{} is missing: the toolchain lacks the component llvm-tools (make setup)",
            objcopy.display()
        );
    }
    Ok(objcopy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("runnext-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a writable directory");
        dir
    }

    #[test]
    fn what_is_no_kernel_is_refused_by_name() {
        let dir = directory("no-kernel");
        let text = dir.join("not-a-kernel");
        fs::write(&text, "hello").expect("a writable file");
        for (kernel, why) in [(text, "is no 64-bit ELF file"), (dir.join("missing"), "make build")]
        {
            let built = build(Firmware::Bios, &kernel, &kernel, &dir, "x");
            let error = built.expect_err("no kernel");
            let name = kernel.file_name().expect("it has one").to_string_lossy();
            let said = format!("{error:#}");
            assert!(said.contains(&*name) && said.contains(why), "{said}");
        }
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn another_kernel_is_taken_even_if_it_is_older_than_the_images() {
        let dir = directory("older");
        let [older, newer] = ["older", "newer"].map(|name| dir.join(name));
        for kernel in [&older, &newer] {
            fs::copy(std::env::current_exe().expect("this test is a file"), kernel).expect("room");
        }
        let build = |kernel: &Path| {
            let image = build(Firmware::Bios, kernel, &dir.join("cmdline"), &dir, "x");
            fs::metadata(image.expect("an image")).and_then(|m| m.modified()).expect("a time")
        };
        fs::write(dir.join("cmdline"), "# none").expect("a writable file");
        let first = build(&newer);
        assert!(build(&older) > first);
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn images_are_made_anew_only_when_an_ingredient_changes() {
        // Any ELF file will do: this test's own, without its debug sections.
        let dir = directory("images");
        let kernel = std::env::current_exe().expect("this test is a file");
        let cmdline = dir.join("cmdline.txt");
        let make = |text: &str| {
            if fs::read(&cmdline).ok().as_deref() != Some(text.as_bytes()) {
                fs::write(&cmdline, text).expect("a writable file");
            }
            [Firmware::Bios, Firmware::Uefi].map(|firmware| {
                let path = build(firmware, &kernel, &cmdline, &dir, "x").expect("an image");
                let bytes = fs::read(&path).expect("an image");
                // The loader says errors only, but on both consoles.
                let settings =
                    [r#""log_level": "Error""#, r#""serial_logging": true"#, "frame_buffer_l"];
                for text in settings.into_iter().chain([text]) {
                    let has_text = bytes.windows(text.len()).any(|part| part == text.as_bytes());
                    assert!(has_text, "{} does not hold {text:?}", path.display());
                }
                fs::metadata(&path).and_then(|m| m.modified()).expect("a time")
            })
        };
        let first = make("program=first-one");
        assert_eq!(make("program=first-one"), first);
        let second = make("program=second-one");
        assert!(second.iter().zip(&first).all(|(new, old)| new > old));
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn the_default_command_line_is_only_comments_and_not_empty() {
        // Empty, BIOS's loader would not hand it over.
        let text = include_str!("../cmdline.txt");
        assert!(!text.is_empty());
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')));
    }
}
