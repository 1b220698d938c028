//! The debug console of emulators: a port that takes bytes, for whatever is at
//! the other end of it (`-debugcon file:…` of QEMU, port 0xe9 of Bochs).
//!
//! It has no registers, no interrupts and no flow control: a byte that is
//! written is written. It says that it is there by answering a read with its own
//! number. Used by `trace`; real machines have none.

use core::arch::asm;

/// Where it is, and what it answers.
const PORT: u16 = 0xe9;

/// A debug console that answered.
pub struct DebugCon(());

impl DebugCon {
    /// The console, if there is one.
    pub fn probe() -> Option<DebugCon> {
        let answer: u8;
        // SAFETY: reads a port that is this device's or nobody's (0xff then).
        unsafe {
            asm!("in al, dx", out("al") answer, in("dx") PORT, options(nomem, nostack, preserves_flags));
        }
        (u16::from(answer) == PORT).then_some(DebugCon(()))
    }

    /// Writes all of `bytes`; an emulator is faster with a string of them.
    pub fn write(&mut self, bytes: &[u8]) {
        // SAFETY: reads `bytes` and writes to the port of a device that answered.
        // The direction flag is clear, as everywhere.
        unsafe {
            asm!("rep outsb", inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _,
                in("dx") PORT, options(readonly, nostack, preserves_flags));
        }
    }
}
