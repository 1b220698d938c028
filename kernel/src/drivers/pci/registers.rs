//! Device memory as registers of one, two or four bytes, within bounds.
//!
//! A device may answer only to accesses of a register's own width, so each has a width here.
//! An access outside reads all ones and writes nothing, as on a bus where no device answers.

use core::ptr::NonNull;

/// A register's width: an unsigned number.
pub trait Word: Copy {
    /// The value read from a bus where no device answers.
    const ABSENT: Self;
}

impl Word for u8 {
    const ABSENT: u8 = u8::MAX;
}
impl Word for u16 {
    const ABSENT: u16 = u16::MAX;
}
impl Word for u32 {
    const ABSENT: u32 = u32::MAX;
}

/// A mapped range of device memory.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: only an address; the promise made to `Registers::new` says that the registers
// behind it may be touched from every CPU.
unsafe impl Send for Registers {}
// SAFETY: as above.
unsafe impl Sync for Registers {}

impl Registers {
    /// `bytes` bytes at `base`; None for the null pointer.
    ///
    /// # Safety
    /// They are device memory, or memory that no Rust reference covers, mapped
    /// on every CPU and for ever.
    pub unsafe fn new(base: *mut u8, bytes: usize) -> Option<Registers> {
        Some(Registers { base: NonNull::new(base)?, bytes })
    }

    /// The address at which they are mapped.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Reads the register at `offset`.
    pub fn read<T: Word>(&self, offset: usize) -> T {
        match self.register::<T>(offset) {
            // SAFETY: `register` gives aligned addresses inside only, and `Registers::new`
            // was promised that those are mapped.
            Some(register) => unsafe { register.read_volatile() },
            None => T::ABSENT,
        }
    }

    /// Writes the register at `offset`.
    pub fn write<T: Word>(&self, offset: usize, value: T) {
        if let Some(register) = self.register::<T>(offset) {
            // SAFETY: as in `read`.
            unsafe { register.write_volatile(value) };
        }
    }

    fn register<T: Word>(&self, offset: usize) -> Option<*mut T> {
        let is_inside = offset.checked_add(size_of::<T>())? <= self.bytes;
        let register = self.base.as_ptr().wrapping_add(offset).cast::<T>();
        (is_inside && register.is_aligned()).then_some(register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_of_all_widths_are_read_and_written_in_place() {
        let mut memory = [0u32; 2];
        // SAFETY: the array outlives the registers and is not touched meanwhile.
        let registers = unsafe { Registers::new((&raw mut memory).cast(), 8) }.expect("not null");
        registers.write(0, 0x1122_3344u32);
        registers.write(2, 0xaabbu16);
        registers.write(7, 0xccu8);
        assert_eq!(registers.read::<u32>(0), 0xaabb_3344);
        assert_eq!(registers.read::<u32>(4), 0xcc00_0000);
        assert_eq!(registers.read::<u16>(6), 0xcc00);
    }

    #[test]
    fn what_is_outside_or_askew_is_absent() {
        let mut memory = [0u32; 2];
        // SAFETY: as above.
        let registers = unsafe { Registers::new((&raw mut memory).cast(), 6) }.expect("not null");
        for offset in [4, 5, 6, 8, usize::MAX] {
            registers.write(offset, 1u32);
            assert_eq!(registers.read::<u32>(offset), u32::MAX, "at {offset}");
        }
        registers.write(1, 1u16);
        assert_eq!(registers.read::<u16>(1), u16::MAX, "askew");
        assert_eq!(memory, [0; 2]);
    }
}
