//! I/O ports, behind a trait so that port sequences are tested on the host.

use x86_64::instructions::port::Port;

pub trait Ports {
    fn inb(&self, port: u16) -> u8;
    fn outb(&self, port: u16, value: u8);
    fn inl(&self, port: u16) -> u32;
    fn inw(&self, port: u16) -> u16 {
        u16::from_le_bytes([self.inb(port), self.inb(port.wrapping_add(1))])
    }
    fn outw(&self, port: u16, value: u16);
}

/// The machine's own ports.
///
/// Used for ports of devices that this folder owns: the PIC (0x20, 0xa0), the PIT (0x40, 0x42,
/// 0x43, 0x61), the delay port 0x80, what resets the machine (0x64, 0xcf9), and the ports that the
/// ACPI tables name: of the PM timer, for sleep, for a reset, of the power button.
#[derive(Clone, Copy, Debug)]
pub struct Hardware;

// SAFETY, of all five: the devices listed at `Hardware` do no DMA, so neither a read nor a write
// changes memory.
impl Ports for Hardware {
    #[inline]
    fn inb(&self, port: u16) -> u8 {
        // SAFETY: see above.
        unsafe { Port::new(port).read() }
    }

    #[inline]
    fn outb(&self, port: u16, value: u8) {
        // SAFETY: see above.
        unsafe { Port::new(port).write(value) }
    }

    #[inline]
    fn inl(&self, port: u16) -> u32 {
        // SAFETY: see above.
        unsafe { Port::new(port).read() }
    }

    #[inline]
    fn inw(&self, port: u16) -> u16 {
        // SAFETY: see above.
        unsafe { Port::new(port).read() }
    }

    #[inline]
    fn outw(&self, port: u16, value: u16) {
        // SAFETY: see above.
        unsafe { Port::new(port).write(value) }
    }
}
