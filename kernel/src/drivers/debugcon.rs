//! The debug console of emulators: a port that takes bytes for the host.
//!
//! It is `-debugcon file:…` of QEMU, port 0xe9 of Bochs. It has no registers, no interrupts
//! and no flow control: a byte that is written is written. It reports its presence by
//! answering a read with its own port number. Used by `trace`; real machines have none.

use core::arch::asm;
use x86_64::instructions::port::Port;

/// Its port, and its answer to a read.
const PORT: u16 = 0xe9;

pub struct DebugCon(());

impl DebugCon {
    pub fn probe() -> Option<DebugCon> {
        // SAFETY: reads a port that is this device's or unused (0xff then).
        let answer = unsafe { Port::<u8>::new(PORT).read() };
        (u16::from(answer) == PORT).then_some(DebugCon(()))
    }

    /// Writes all of `bytes`; a string instruction is faster in an emulator.
    pub fn write_all(&mut self, bytes: &[u8]) {
        // SAFETY: writes to the port of a device that answered; the direction flag is clear.
        unsafe {
            asm!("rep outsb", inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _,
                in("dx") PORT, options(readonly, nostack, preserves_flags));
        }
    }
}
