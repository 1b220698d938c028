//! A mapped window of device registers.
//!
//! The local APIC, the I/O APICs and the HPET are written against the trait [`Mmio`], so that their
//! sequences of reads and writes are tested on the host. `paging` maps the pages, uncached.

use core::ops::Not;
use core::ptr::NonNull;

/// Registers of 32 bits, by their offset in bytes.
pub trait Mmio {
    fn read(&self, offset: usize) -> u32;
    fn write(&self, offset: usize, value: u32);
}

/// Device registers that are mapped at an address of the kernel's, for ever. An access outside
/// the window or not aligned reads all ones and writes nothing, as where no device answers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: that every CPU may touch the registers is part of the promise made to `Window::new`.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// A window without registers.
    pub const NONE: Window = Window { base: NonNull::dangling(), bytes: 0 };

    /// A window of `bytes` bytes at `base`. It has no registers if that is no multiple of 4.
    ///
    /// # Safety
    /// 1. `bytes` bytes from `base` are mapped, readable and writable, on every CPU, for ever.
    /// 2. They are device registers, or memory that no Rust reference covers.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Window {
        Window { base, bytes: if base.cast::<u32>().is_aligned() { bytes } else { 0 } }
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Reads a register of the width of `T`: a device may answer to no other.
    #[inline]
    pub fn get<T: Copy + Default + Not<Output = T>>(&self, offset: usize) -> T {
        // SAFETY: aligned and inside the window, which `Window::new` was promised is mapped.
        self.register::<T>(offset)
            .map_or(!T::default(), |register| unsafe { register.read_volatile() })
    }

    #[inline]
    pub fn put<T: Copy>(&self, offset: usize, value: T) {
        if let Some(register) = self.register::<T>(offset) {
            // SAFETY: as in `get`.
            unsafe { register.write_volatile(value) };
        }
    }

    fn register<T>(&self, offset: usize) -> Option<*mut T> {
        let is_inside = offset.checked_add(size_of::<T>())? <= self.bytes;
        let is_sound = is_inside && offset.is_multiple_of(size_of::<T>());
        is_sound.then(|| self.base.as_ptr().wrapping_add(offset).cast())
    }
}

impl Mmio for Window {
    #[inline]
    fn read(&self, offset: usize) -> u32 {
        self.get(offset)
    }

    #[inline]
    fn write(&self, offset: usize, value: u32) {
        self.put(offset, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of an array, which outlives the window and is not touched meanwhile.
    fn window<const N: usize>(memory: &mut [u32; N], bytes: usize) -> Window {
        // SAFETY: the array is mapped, and no reference to it is used meanwhile.
        unsafe { Window::new(NonNull::from(memory).cast(), bytes) }
    }

    #[test]
    fn registers_of_all_widths_are_read_and_written_in_place() {
        let mut memory = [0u32; 2];
        let registers = window(&mut memory, 8);
        registers.write(0, 0x1122_3344);
        registers.put(2, 0xaabbu16);
        registers.put(6, 0xccddu16);
        assert_eq!([0, 2, 4, 6].map(|at| registers.get::<u16>(at)), [0x3344, 0xaabb, 0, 0xccdd]);
        assert_eq!(registers.read(4), 0xccdd_0000);
        assert_eq!(memory, [0xaabb_3344, 0xccdd_0000]);
    }

    #[test]
    fn what_is_outside_or_askew_is_absent() {
        let mut memory = [0u32; 2];
        let registers = window(&mut memory, 6);
        for offset in [4, 5, 6, 8, usize::MAX] {
            registers.write(offset, 1);
            assert_eq!(registers.read(offset), u32::MAX, "at {offset}");
        }
        for offset in [1, 5, 6, 8, usize::MAX] {
            registers.put(offset, 1u16);
            assert_eq!(registers.get::<u16>(offset), u16::MAX, "at {offset}");
        }
        // SAFETY: inside the array.
        let askew = unsafe { registers.base().add(2) };
        // SAFETY: as in `window`.
        let askew = unsafe { Window::new(askew, 4) };
        assert_eq!(askew.get::<u16>(0), u16::MAX);
        assert_eq!(memory, [0; 2]);
    }
}
