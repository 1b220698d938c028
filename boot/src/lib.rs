//! How an image starts: from the kernel's ELF file to a running machine.
//!
//! - [`kernel`] asks cargo for the kernel, or for a crate that depends on it;
//! - [`image`] makes BIOS and UEFI disk images of it;
//! - [`data`] makes a disk with files for it to read;
//! - [`qemu`] describes a virtual machine and turns it into QEMU's arguments;
//! - [`bochs`] starts an image in another emulator;
//! - [`host`] finds out what this host has to run it with;
//! - [`cores`] shares out the host's cores among machines;
//! - [`exit`] reads how the machine ended;
//! - [`places`] adds files and lines to the backtraces that it prints;
//! - [`cost`] counts what it took from an edit to the first output;
//! - [`new`] writes a crate of one's own;
//! - [`args`] reads the options of the command line;
//! - [`usb`] writes an image to a stick, and mostly refuses to.
//!
//! `make` reaches these through the binary of this crate; the tests and the
//! benchmarks use the library. Nothing here knows what the kernel does once it
//! runs: not G, not M, not P.
//!
//! ```
//! use boot::qemu::{Firmware, Machine};
//!
//! let machine = Machine::new("target/runnext-bios.img", Firmware::Bios)
//!     .smp(8)
//!     .mem("1G")
//!     .cmdline("program=hello -- a,b");
//! let args = machine.args().join(" ");
//! assert!(args.contains("-smp 8"));
//! assert!(args.contains("string=program=hello -- a,,b"));
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result};

pub mod args;
pub mod bochs;
pub mod cores;
pub mod cost;
pub mod data;
pub mod exit;
pub mod host;
pub mod image;
pub mod kernel;
pub mod new;
pub mod places;
pub mod qemu;
#[cfg(test)]
mod testing;
pub mod usb;

/// The top of the source tree, where cargo must run to find the flags of the
/// bare target and the pinned toolchain.
pub use tool::tree::{self, root, scratch};

/// Where images, logs and results go.
pub fn target_dir() -> PathBuf {
    root().join("target")
}

/// A directory below the host's for temporary files, removed when this is dropped. Its name
/// is short, because sockets go into it, and unique.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("runnext-{}", unique()));
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A name beside `file` that no other process or thread writes to: for content that is
/// renamed to `file` when it is complete.
pub(crate) fn part_of(file: &Path) -> PathBuf {
    file.with_extension(format!("{}.part", unique()))
}

/// A word for each call, in all processes.
fn unique() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), CALLS.fetch_add(1, Relaxed))
}
