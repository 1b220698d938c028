//! From the kernel's ELF file to disk images that BIOS and UEFI can start.
//!
//! An image is a FAT partition with the loader's stages, the kernel under the
//! name `kernel-x86_64`, the loader's settings in `boot.json`, and a text file
//! named `ramdisk`: the kernel's command line, for a person to edit. The loader
//! hands it to the kernel as its ramdisk. Of the two loaders only UEFI's reads
//! the FAT with care. BIOS's wants exactly that name in lower case, and takes a
//! deleted entry for a file; so edit the file in place and do not replace it.
//!
//! The kernel goes in without debug sections (the loader reads it sector by
//! sector) but with its symbol table, from which it names the functions of its
//! own backtraces.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use bootloader::{BootConfig, DiskImageBuilder};
use bootloader_boot_config::LevelFilter;

use crate::qemu::Firmware;

/// A BIOS image and a UEFI image of the same kernel.
///
/// ```
/// use boot::image::Images;
/// use boot::qemu::Firmware;
/// use std::path::Path;
///
/// let images = Images::named(Path::new("target"), "runnext");
/// assert_eq!(images.of(Firmware::Uefi), Path::new("target/runnext-uefi.img"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// MBR disk, for BIOS.
    pub bios: PathBuf,
    /// GPT disk, for UEFI.
    pub uefi: PathBuf,
}

impl Images {
    /// Where the images called `name` are, or will be.
    pub fn named(out_dir: &Path, name: &str) -> Self {
        Self {
            bios: out_dir.join(format!("{name}-bios.img")),
            uefi: out_dir.join(format!("{name}-uefi.img")),
        }
    }

    /// The image for this firmware.
    pub fn of(&self, firmware: Firmware) -> &Path {
        match firmware {
            Firmware::Bios => &self.bios,
            Firmware::Uefi => &self.uefi,
        }
    }

    /// Makes both images of `kernel`, with the command line in the text file
    /// `cmdline`, unless they are there and made of the same.
    pub fn build(kernel: &Path, cmdline: &Path, out_dir: &Path, name: &str) -> Result<Self> {
        let images = Self::named(out_dir, name);
        check_kernel(kernel)?;
        let ingredients = ingredients(&[kernel, cmdline])?;
        let note = out_dir.join(format!("{name}.made-of"));
        let is_same = fs::read_to_string(&note).is_ok_and(|noted| noted == ingredients);
        if is_same && images.bios.is_file() && images.uefi.is_file() {
            return Ok(images);
        }
        fs::create_dir_all(out_dir).with_context(|| format!("creating {}", out_dir.display()))?;
        // The stripped file's name becomes the label of the FAT partition.
        let scratch = crate::part_of(&out_dir.join(name));
        fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        // Until they are made they are made of nothing that is known.
        fs::remove_file(&note).ok();
        let result = images.write(kernel, cmdline, &scratch.join(name));
        fs::remove_dir_all(&scratch).ok();
        result?;
        fs::write(&note, ingredients).with_context(|| format!("writing {}", note.display()))?;
        Ok(images)
    }

    fn write(&self, kernel: &Path, cmdline: &Path, stripped: &Path) -> Result<()> {
        strip_debug(kernel, stripped)?;
        let mut builder = DiskImageBuilder::new(stripped.to_path_buf());
        builder.set_ramdisk(cmdline.to_path_buf());
        builder.set_boot_config(&loader_config());
        // Under another name first: a machine that starts meanwhile sees the
        // old image or the new one, never half of one.
        let part = stripped.with_extension("img");
        builder.create_bios_image(&part).context("making the BIOS image")?;
        rename(&part, &self.bios)?;
        builder.create_uefi_image(&part).context("making the UEFI image")?;
        rename(&part, &self.uefi)
    }
}

/// What images are made of: each file with its size and its time. Not just whether it
/// is older than they are: another kernel may be that, too.
fn ingredients(files: &[&Path]) -> Result<String> {
    // This tool is one as well: it carries the loader.
    let tool = std::env::current_exe().context("finding this program's own file")?;
    let lines = files.iter().copied().chain([tool.as_path()]).map(|file| {
        let about = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?;
        let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
        Ok(format!("{} {} {:?}\n", file.display(), about.len(), about.modified()?))
    });
    lines.collect()
}

/// Quiet unless something is wrong: what the loader says would stand between
/// the user and the kernel's first line. Errors go to both consoles.
///
/// No framebuffer size is asked for: UEFI's loader would take the last mode that
/// is large enough, which is the largest one, and BIOS's does not read it.
fn loader_config() -> BootConfig {
    let mut config = BootConfig::default();
    config.log_level = LevelFilter::Error;
    config.frame_buffer_logging = true;
    config.serial_logging = true;
    config
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
    let objcopy = llvm_objcopy()?;
    let output = Command::new(&objcopy)
        .arg("--strip-debug")
        .arg(kernel)
        .arg(stripped)
        .output()
        .with_context(|| format!("starting {}", objcopy.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("llvm-objcopy could not strip {}: {}", kernel.display(), said.trim());
    }
    Ok(())
}

/// The pinned toolchain's own objcopy (component llvm-tools).
fn llvm_objcopy() -> Result<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".into());
    let ask = |args: &[&str]| -> Result<String> {
        let output = Command::new(&rustc)
            .args(args)
            .current_dir(crate::root())
            .output()
            .with_context(|| format!("starting {rustc}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
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

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("writing {}", to.display()))
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
            let error = Images::build(&kernel, &kernel, &dir, "x").expect_err("no kernel");
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
            let images = Images::build(kernel, &dir.join("cmdline"), &dir, "x").expect("images");
            fs::metadata(images.bios).and_then(|m| m.modified()).expect("a time")
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
        let build = |text: &str| {
            if fs::read(&cmdline).ok().as_deref() != Some(text.as_bytes()) {
                fs::write(&cmdline, text).expect("a writable file");
            }
            let images = Images::build(&kernel, &cmdline, &dir, "x").expect("images");
            [images.bios, images.uefi].map(|path| {
                let bytes = fs::read(&path).expect("an image");
                let has_text = bytes.windows(text.len()).any(|part| part == text.as_bytes());
                assert!(has_text, "{} does not hold {text:?}", path.display());
                fs::metadata(&path).and_then(|m| m.modified()).expect("a time")
            })
        };
        let first = build("program=first-one");
        assert_eq!(build("program=first-one"), first);
        let second = build("program=second-one");
        assert!(second.iter().zip(&first).all(|(new, old)| new > old));
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn the_loader_speaks_only_of_errors_but_on_both_consoles() {
        let config = loader_config();
        assert_eq!(config.log_level, LevelFilter::Error);
        assert!(config.frame_buffer_logging && config.serial_logging);
    }

    #[test]
    fn the_default_command_line_is_only_comments_and_not_empty() {
        // Empty, BIOS's loader would not hand it over.
        let text = include_str!("../cmdline.txt");
        assert!(!text.is_empty());
        assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')));
    }
}
