//! Makes one disk image: `loader KERNEL CMDLINE IMAGE`.
//!
//! The crate `bootloader` builds its stages in its build script, which takes minutes,
//! and this tool carries them. It is built with the feature `bios` or `uefi`, and makes
//! images for that firmware. `boot` builds and calls it; see `boot/src/image.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use bootloader::{BootConfig, DiskImageBuilder};
use bootloader_boot_config::LevelFilter;

#[cfg(all(feature = "bios", feature = "uefi"))]
compile_error!("one loader at a time: each feature has a target directory of its own");

fn main() -> ExitCode {
    match make_image() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loader: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn make_image() -> Result<()> {
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let mut word = || words.next().context("usage: loader KERNEL CMDLINE IMAGE");
    let (kernel, cmdline, image) = (word()?, word()?, word()?);
    let mut builder = DiskImageBuilder::new(kernel);
    builder.set_ramdisk(cmdline);
    builder.set_boot_config(&settings());
    #[cfg(feature = "bios")]
    builder.create_bios_image(&image)?;
    #[cfg(feature = "uefi")]
    builder.create_uefi_image(&image)?;
    #[cfg(not(any(feature = "bios", feature = "uefi")))]
    anyhow::bail!("built without a loader; {} is not made", image.display());
    Ok(())
}

/// Quiet unless something is wrong: what the loader says would stand between
/// the user and the kernel's first line. Errors go to both consoles.
///
/// No framebuffer size is asked for: UEFI's loader would take the last mode that
/// is large enough, which is the largest one, and BIOS's does not read it.
fn settings() -> BootConfig {
    let mut config = BootConfig::default();
    config.log_level = LevelFilter::Error;
    config.frame_buffer_logging = true;
    config.serial_logging = true;
    config
}
