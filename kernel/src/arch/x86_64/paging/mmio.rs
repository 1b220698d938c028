//! A window for registers of devices: uncached, never executable.
//!
//! Mappings are few and stay for ever. Between mappings one page stays empty, so that a driver that
//! runs off its registers faults.

use super::walk::{Flags, MapError, PhysMemory, Space};
use super::{KERNEL_IMAGE, MMIO_WINDOW, PAGE_SIZE};
use crate::arch::lock::{IrqLock, Level};
use crate::arch::x86_64::cpu::mmio;
use arrayvec::ArrayVec;
use core::ptr::NonNull;

const PAGE: u64 = PAGE_SIZE as u64;
const MAPPINGS: usize = 64;
/// The longest mapping: a generous PCI configuration space.
const MAX_BYTES: u64 = 1 << 30;

static WINDOW: IrqLock<Window> = IrqLock::at(Level::Window, Window::new());

/// Makes `len` bytes of registers at `phys` reachable, uncached, by volatile accesses. The same
/// request gives the same address again. Refuses addresses of memory: a table or device that claims
/// registers there is wrong.
pub fn map_mmio(phys: u64, len: usize) -> Result<mmio::Window, MapError> {
    let space = super::space().ok_or(MapError::NotReady)?;
    let bytes = phys..phys.saturating_add(len as u64);
    if super::FRAMES.get().is_some_and(|frames| (frames.is_memory)(bytes)) {
        return Err(MapError::Memory);
    }
    let virt = WINDOW.lock().map(&space, phys, len)?;
    let base = NonNull::new(core::ptr::with_exposed_provenance_mut(virt as usize));
    // SAFETY: `len` bytes of device registers, mapped for ever.
    Ok(unsafe { mmio::Window::new(base.ok_or(MapError::BadAddress)?, len) })
}

struct Mapping {
    phys: u64,
    bytes: u64,
    virt: u64,
}

struct Window {
    mappings: ArrayVec<Mapping, MAPPINGS>,
    next: u64,
}

impl Window {
    const fn new() -> Self {
        Window { mappings: ArrayVec::new_const(), next: MMIO_WINDOW }
    }

    fn map(
        &mut self,
        space: &Space<impl PhysMemory>,
        phys: u64,
        len: usize,
    ) -> Result<u64, MapError> {
        let start = phys & !(PAGE - 1);
        let end = phys
            .checked_add(len as u64)
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .filter(|&end| len > 0 && end - start <= MAX_BYTES && end <= 1 << 52)
            .ok_or(MapError::BadAddress)?;
        let has_all = |m: &&Mapping| m.phys <= start && end <= m.phys + m.bytes;
        if let Some(old) = self.mappings.iter().find(has_all) {
            return Ok(old.virt + (phys - old.phys));
        }
        let (virt, bytes) = (self.next, end - start);
        if self.mappings.is_full() || virt + bytes + PAGE > KERNEL_IMAGE {
            return Err(MapError::Full);
        }
        // Also if it fails, the addresses are used up: some CPU may have looked already.
        self.next += bytes + PAGE;
        for offset in (0..bytes).step_by(PAGE_SIZE) {
            space.map(virt + offset, start + offset, Flags::DEVICE)?;
        }
        self.mappings.push(Mapping { phys: start, bytes, virt });
        Ok(virt + phys % PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::tests::fake::{FakeMemory, space};
    use super::*;

    #[test]
    fn same_registers_have_one_address() {
        let memory = FakeMemory::new(64);
        let (space, mut window) = (space(&memory), Window::new());
        let apic = window.map(&space, 0xfee0_0000, 0x1000).unwrap();
        assert_eq!(window.map(&space, 0xfee0_0000, 0x1000), Ok(apic));
        assert_eq!(window.map(&space, 0xfee0_0020, 4), Ok(apic + 0x20), "inside the first");
        let other = window.map(&space, 0xfec0_0010, 0x20).unwrap();
        assert_eq!(other % PAGE, 0x10, "the offset in the page is kept");
        let found = space.translate(other).unwrap();
        assert_eq!(found.phys, 0xfec0_0010);
        assert_eq!(found.flags, Flags::DEVICE);
        assert!(space.translate(apic + PAGE).is_none(), "a page stays empty in between");
    }

    #[test]
    fn absurd_requests_are_refused() {
        let memory = FakeMemory::new(64);
        let (space, mut window) = (space(&memory), Window::new());
        assert_eq!(window.map(&space, 0x1000, 0), Err(MapError::BadAddress));
        assert_eq!(window.map(&space, u64::MAX - 4, 16), Err(MapError::BadAddress));
        assert_eq!(window.map(&space, 1 << 52, 16), Err(MapError::BadAddress));
        assert_eq!(window.map(&space, 0, usize::MAX), Err(MapError::BadAddress));
        for i in 0..MAPPINGS as u64 {
            assert!(window.map(&space, i * PAGE * 2, 1).is_ok());
        }
        assert_eq!(window.map(&space, 1 << 40, 1), Err(MapError::Full));
        assert!(window.map(&space, 0, 1).is_ok(), "known ones still work");
    }

    #[test]
    fn no_memory_for_tables_is_an_error_and_leaves_the_window_usable() {
        let memory = FakeMemory::new(2);
        let (space, mut window) = (space(&memory), Window::new());
        assert_eq!(window.map(&space, 0xfee0_0000, 1), Err(MapError::NoMemory));
        memory.add(8);
        let apic = window.map(&space, 0xfee0_0000, 1).unwrap();
        assert_eq!(space.translate(apic).map(|t| t.phys), Some(0xfee0_0000));
    }
}
