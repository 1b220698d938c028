//! The legacy PIC, put to sleep.
//!
//! The two 8259s are moved to vectors 0x20 to 0x2f, away from the exceptions, and masked for good:
//! all interrupts come by way of the APICs. Even a masked PIC can raise its spurious interrupts
//! (lines 7 and 15), so vectors 0x27 and 0x2f need a handler, without an end of interrupt.

use crate::arch::x86_64::cpu::ports::Ports;

/// The vector of line 0; line 8 and on follow at 0x28.
pub const FIRST_VECTOR: u8 = 0x20;

const MASTER: u16 = 0x20;
const SLAVE: u16 = 0xa0;
/// A write here takes about a microsecond, which old PICs want between words.
pub const DELAY: u16 = 0x80;

/// Initialise, with a fourth word to come; edge-triggered, cascaded.
const INIT: u8 = 0x11;
/// The line of the master that the slave is on, as a bit and as a number.
const CASCADE_BIT: u8 = 1 << 2;
const CASCADE_LINE: u8 = 2;
/// 8086 mode, no automatic end of interrupt.
const MODE_8086: u8 = 0x01;

/// Remaps both PICs and masks every line. Interrupts are off.
pub fn init(ports: &impl Ports) {
    let put = |port, value| {
        ports.outb(port, value);
        ports.outb(DELAY, 0);
    };
    // Masked while half set up, too.
    for (pic, first, cascade) in
        [(MASTER, FIRST_VECTOR, CASCADE_BIT), (SLAVE, FIRST_VECTOR + 8, CASCADE_LINE)]
    {
        put(pic + 1, 0xff);
        put(pic, INIT);
        put(pic + 1, first);
        put(pic + 1, cascade);
        put(pic + 1, MODE_8086);
        put(pic + 1, 0xff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::vec::Vec;

    #[derive(Default)]
    struct Fake(RefCell<Vec<(u16, u8)>>);

    impl Ports for Fake {
        fn outw(&self, _: u16, _: u16) {}
        fn inb(&self, _: u16) -> u8 {
            unreachable!()
        }
        fn outb(&self, port: u16, value: u8) {
            self.0.borrow_mut().push((port, value));
        }
        fn inl(&self, _: u16) -> u32 {
            unreachable!()
        }
    }

    #[test]
    fn pics_end_remapped_and_fully_masked() {
        let fake = Fake::default();
        init(&fake);
        let writes = fake.0.into_inner();
        let to = |port| writes.iter().filter(|w| w.0 == port).map(|w| w.1).collect::<Vec<_>>();
        assert_eq!((to(0x20), to(0xa0)), ([0x11].to_vec(), [0x11].to_vec()));
        assert_eq!(to(0x21), [0xff, 0x20, 4, 1, 0xff]);
        assert_eq!(to(0xa1), [0xff, 0x28, 2, 1, 0xff]);
        assert_eq!(to(0x80).len(), 12);
    }
}
