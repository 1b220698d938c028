//! The kernel's address space: which range of addresses holds what.
//!
//! ```text
//!   0xffff_ffff_8000_0000   kernel image         code RX, constants R, data RW
//!   0xffff_f000_0000_0000   MMIO window          RW, never cached
//!   0xffff_e800_0000_0000   records of its pages RW, as many as it has pages
//!   0xffff_e000_0000_0000   heap                 RW, grows up, may lend pages
//!   0xffff_c000_0000_0000   stacks               RW, on first touch, guards below
//!   0xffff_8000_0000_0000   physical memory      RW, from frame 0; above its end
//!                                                the loader's boot info, framebuffer,
//!                                                ramdisk and first stack
//!   0x0000_0000_0010_0000   nothing              ... up to the canonical hole
//!   0x0000_0000_0000_1000   low memory           one page RX, only while APs start
//!   0x0000_0000_0000_0000   page 0               never
//! ```
//!
//! Only the kernel image and the AP's start page can be executed, and no page is ever both
//! writable and executable.
//!
//! The loader (crate `bootloader`) hands over in long mode, with the kernel at its link address, a
//! stack, and all of physical memory mapped at [`PHYS_OFFSET`]. Everything that it places by itself
//! is kept inside [`LOADER_RANGE`], so that the other windows are ours.

use bootloader_api::BootloaderConfig;
use bootloader_api::config::Mapping;

/// Bytes in a page, and in a frame.
pub const PAGE_SIZE: usize = 4096;
/// Where all of physical memory is mapped, from physical address 0.
pub const PHYS_OFFSET: u64 = 0xffff_8000_0000_0000;
pub const STACK_WINDOW: u64 = 0xffff_c000_0000_0000;
pub const HEAP_WINDOW: u64 = 0xffff_e000_0000_0000;
pub const MMIO_WINDOW: u64 = 0xffff_f000_0000_0000;
pub const KERNEL_IMAGE: u64 = 0xffff_ffff_8000_0000;
/// Real mode, in which APs start, addresses memory below this.
pub const LOW_END: u64 = 1 << 20;

/// The address at which the kernel can read and write physical address `phys`.
#[inline]
pub fn phys_to_virt(phys: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(PHYS_OFFSET.wrapping_add(phys) as usize)
}

/// Where the loader may place what has no address of its own.
pub const LOADER_RANGE: core::ops::Range<u64> = 0xffff_8000_0000_0000..0xffff_bfff_ffff_f000;

/// The boot CPU's first stack. A disk's ring, 10 KiB, is built on it, and copied several times in a
/// build with little optimisation.
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
