//! The end of the machine: a code for whoever started it, or a halt.

use super::{cpu, trap};
use x86_64::instructions::port::Port;

/// QEMU's isa-debug-exit device: what is written there ends the emulator with
/// the status `value << 1 | 1`.
const DEBUG_EXIT_PORT: u16 = 0xf4;

/// What stands for code 0, so that a status of ours differs from QEMU's own
/// (1 for its errors, 0 for a power-off).
const DEBUG_EXIT_BASE: u32 = 0x10;

/// The highest code that survives the eight bits of a status.
const MAX_CODE: u32 = 111;

/// Ends the machine with `code`. In QEMU the emulator ends; on hardware all
/// CPUs halt, and what was printed stays on the screen.
pub fn exit(code: u32) -> ! {
    cpu::irq_save();
    let value = DEBUG_EXIT_BASE + code.min(MAX_CODE);
    // SAFETY: in QEMU this ends the emulator; elsewhere nobody listens there.
    unsafe { Port::new(DEBUG_EXIT_PORT).write(value) };
    // Still here: there is no such device. A CPU that is stopping the machine
    // already stops this one, too.
    if trap::stop_others() {
        crate::println!("ended with code {code}; the machine may be switched off");
    }
    cpu::halt_forever()
}
