//! How an image starts: from the kernel's ELF file to a running machine.
//!
//! - [`kernel`] asks cargo for the kernel, or for a program of somebody else;
//! - [`image`] makes BIOS and UEFI disk images of it;
//! - [`data`] makes a disk with files for it to read;
//! - [`qemu`] describes a virtual machine and turns it into QEMU's arguments;
//! - [`bochs`] starts an image in another emulator;
//! - [`host`] finds out what this host has to run it with;
//! - [`cores`] shares out the host's cores among machines;
//! - [`exit`] reads how the machine ended;
//! - [`cost`] counts what it took from an edit to the first output;
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

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub mod args;
pub mod bochs;
pub mod cores;
pub mod cost;
pub mod data;
pub mod exit;
pub mod host;
pub mod image;
pub mod kernel;
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

/// A name beside `file` that nobody else writes to, also no other thread of this
/// process: for what is renamed to it when it is whole.
pub(crate) fn part_of(file: &Path) -> PathBuf {
    static PARTS: AtomicU64 = AtomicU64::new(0);
    let number = PARTS.fetch_add(1, Relaxed);
    file.with_extension(format!("{}-{number}.part", std::process::id()))
}
