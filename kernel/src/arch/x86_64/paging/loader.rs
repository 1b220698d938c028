//! What is asked of the loader: where things lie in memory when we start.
//!
//! The loader (crate `bootloader`) hands over in long mode, with the kernel at
//! its link address, a stack, and all of physical memory mapped at
//! [`PHYS_OFFSET`]. Everything that it places by itself is kept inside
//! [`LOADER_RANGE`], so that the windows of `mem` are ours.

use super::PHYS_OFFSET;
use bootloader_api::BootloaderConfig;
use bootloader_api::config::Mapping;

/// Where the loader may place what has no address of its own.
pub const LOADER_RANGE: core::ops::Range<u64> = 0xffff_8000_0000_0000..0xffff_bfff_ffff_f000;

/// The stack on which the boot CPU starts. The ring of a disk, 10 KiB, is built on it, and a build with
/// little optimisation copies it several times.
pub const BOOT_STACK: u64 = 128 * 1024;

/// The configuration that the loader reads from the kernel's ELF file.
pub static LOADER_CONFIG: BootloaderConfig = {
    let mut config = BootloaderConfig::new_default();
    config.mappings.physical_memory = Some(Mapping::FixedAddress(PHYS_OFFSET));
    config.mappings.dynamic_range_start = Some(LOADER_RANGE.start);
    config.mappings.dynamic_range_end = Some(LOADER_RANGE.end);
    config.kernel_stack_size = BOOT_STACK;
    config
};
