//! Whether there is memory behind an address, and where on a PC there never is.

use super::{PAGE_SIZE, phys_to_virt};
use bootloader_api::info::{MemoryRegion, MemoryRegionKind};

/// Where a PC has devices, whatever its memory map says: the screen of old and the firmware below
/// 1 MiB, the APICs and the firmware below 4 GiB. Not even tried, as a write there does something.
pub const NEVER_MEMORY: [MemoryRegion; 2] =
    [device(0xa_0000, 0x10_0000), device(0xfec0_0000, 0x1_0000_0000)];

const fn device(start: u64, end: u64) -> MemoryRegion {
    MemoryRegion { start, end, kind: MemoryRegionKind::UnknownBios(2) }
}

/// Whether the frame at `phys` keeps what is written to it. Its last word is tried, and restored:
/// registers, should it have any, are more often at the front.
///
/// # Safety
/// The frame is mapped, writable, in the window of physical memory, and no other
/// CPU or device uses it meanwhile.
pub unsafe fn holds(phys: u64) -> bool {
    let word = phys_to_virt(phys).wrapping_add(PAGE_SIZE - size_of::<u64>()).cast::<u64>();
    // SAFETY: mapped, says the caller, and aligned. Volatile, as it may not be memory.
    let before = unsafe { word.read_volatile() };
    // Every bit both ways: where nothing is, one reads ones or zeros.
    let is_kept = [!before, before].into_iter().all(|value| {
        // SAFETY: as above, and it is not used otherwise.
        unsafe { word.write_volatile(value) };
        flush(word);
        // SAFETY: as above.
        unsafe { word.read_volatile() == value }
    });
    // SAFETY: as above.
    unsafe { word.write_volatile(before) };
    is_kept
}

/// Takes a word out of the caches, which would hold it for memory that does not exist.
fn flush(word: *const u64) {
    // SAFETY: `clflush` faults where a load would, and the caller has just stored
    // there; it changes no memory. Every CPU with long mode has it. The fences keep
    // it between the store before and the load after (Intel SDM vol. 2, CLFLUSH).
    unsafe {
        core::arch::asm!("mfence", "clflush [{}]", "mfence", in(reg) word, options(nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_of_a_pc_begins_or_ends_inside_a_frame() {
        for region in NEVER_MEMORY {
            assert!(region.start < region.end);
            assert!((region.start | region.end).is_multiple_of(PAGE_SIZE as u64));
        }
    }
}
