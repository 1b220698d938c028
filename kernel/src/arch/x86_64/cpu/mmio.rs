//! A mapped window of device registers, 32 bits at a time.
//!
//! The local APIC, the I/O APICs and the HPET are written against the trait [`Mmio`], so that their
//! sequences of reads and writes are tested on the host. `paging` maps the pages, uncached.

use core::ptr::NonNull;

/// Registers of 32 bits, by their offset in bytes.
pub trait Mmio {
    fn read(&self, offset: usize) -> u32;
    fn write(&self, offset: usize, value: u32);
}

/// Device registers that are mapped at an address of the kernel's.
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
    /// A window of `bytes` bytes at `base`.
    ///
    /// # Safety
    /// 1. `base` is aligned to 4 bytes, and `bytes` bytes from there are mapped,
    ///    readable and writable, on every CPU and for ever.
    /// 2. They are device registers, or memory that no Rust reference covers.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Window {
        Window { base, bytes }
    }

    /// The register at `offset`, or nothing when it is outside the window.
    fn register(&self, offset: usize) -> Option<*mut u32> {
        let inside = offset.is_multiple_of(4) && offset.checked_add(4)? <= self.bytes;
        debug_assert!(inside, "mmio offset");
        inside.then(|| self.base.as_ptr().wrapping_add(offset).cast())
    }
}

impl Mmio for Window {
    #[inline]
    fn read(&self, offset: usize) -> u32 {
        match self.register(offset) {
            // SAFETY: aligned and inside the window, which `Window::new` was promised is mapped.
            Some(register) => unsafe { register.read_volatile() },
            // What a bus gives when no device answers.
            None => u32::MAX,
        }
    }

    #[inline]
    fn write(&self, offset: usize, value: u32) {
        if let Some(register) = self.register(offset) {
            // SAFETY: as in `read`.
            unsafe { register.write_volatile(value) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_reads_back_what_was_written() {
        let mut memory = [0u32; 4];
        let base = NonNull::from(&mut memory).cast();
        // SAFETY: the array outlives the window and is not touched meanwhile.
        let window = unsafe { Window::new(base, 16) };
        window.write(8, 0x1234);
        assert_eq!((window.read(8), window.read(12)), (0x1234, 0));
        assert_eq!(window.register(12), Some(base.as_ptr().wrapping_add(12).cast()));
    }

    #[test]
    #[should_panic(expected = "mmio offset")]
    fn register_outside_the_window_is_refused() {
        let mut memory = [0u32; 4];
        // SAFETY: the array outlives the window.
        let window = unsafe { Window::new(NonNull::from(&mut memory).cast(), 16) };
        window.read(16);
    }
}
