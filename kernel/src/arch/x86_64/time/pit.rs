//! The PIT's channel 2, polled: the reference of last resort.
//!
//! Channel 0, whose tick firmware leaves running, is stopped by [`silence`], and
//! started again by [`begin_turns`] for an emulator that counts instructions.
//!
//! Channel 2 drives the speaker, which stays off, so no interrupt hangs on it. It counts down in
//! mode 2 over its whole 16 bits, and is read by latching: nothing waits for the output bit of port
//! 0x61, which on machines without a PIT never comes (asterinas#3613, genode#5215).

use super::reference::Reference;
use crate::arch::x86_64::cpu::ports::Ports;

/// The PC's oldest crystal, divided by twelve.
const FREQUENCY_HZ: u64 = 1_193_182;

const CHANNEL_0: u16 = 0x40;
const CHANNEL_2: u16 = 0x42;
const COMMAND: u16 = 0x43;
const GATE: u16 = 0x61;

/// Channel 0, low byte then high byte, mode 0 (once, then nothing), binary.
const COMMAND_ONCE: u8 = 0b0011_0000;
/// Channel 0, low byte then high byte, mode 2 (rate generator), binary.
const COMMAND_RATE: u8 = 0b0011_0100;
/// Channel 2, low byte then high byte, mode 2 (rate generator), binary.
const COMMAND_MODE_2: u8 = 0b1011_0100;
/// Channel 2: hold the count for reading.
const COMMAND_LATCH: u8 = 0b1000_0000;
const GATE_ON: u8 = 1 << 0;
const SPEAKER_ON: u8 = 1 << 1;

/// Stops the PC's old tick, once its line is masked. An emulator would go on serving it: under
/// `-icount` it ends CPUs' turns, at times that depend on when the firmware was done.
pub fn silence(ports: &impl Ports) {
    start_channel_0(ports, COMMAND_ONCE, 1); // the last edge comes in a microsecond
}

/// Starts channel 0 again with a period of `turn_us`, its line still masked, so no CPU
/// executes an instruction for it. Under QEMU's `-icount` one thread runs the virtual CPUs
/// in turns, and a turn ends no later than the next deadline of any device's timer: short
/// turns let all CPUs work side by side, at points that depend on the guest alone.
pub fn begin_turns(ports: &impl Ports, turn_us: u16) {
    let count = (u64::from(turn_us) * FREQUENCY_HZ).div_ceil(1_000_000);
    start_channel_0(ports, COMMAND_RATE, u16::try_from(count).unwrap_or(u16::MAX));
}

fn start_channel_0(ports: &impl Ports, command: u8, count: u16) {
    ports.outb(COMMAND, command);
    count.to_le_bytes().into_iter().for_each(|byte| ports.outb(CHANNEL_0, byte));
}

/// Starts channel 2. It counts down, and is read turned round. No other code may touch it.
pub fn reference(ports: impl Ports) -> Reference<impl Fn() -> u64> {
    let gate = ports.inb(GATE) & !SPEAKER_ON & 0x0f;
    // The gate goes up after the mode is set: that edge starts the count.
    ports.outb(GATE, gate & !GATE_ON);
    ports.outb(COMMAND, COMMAND_MODE_2);
    // A count of 0 stands for 65,536.
    ports.outb(CHANNEL_2, 0);
    ports.outb(CHANNEL_2, 0);
    ports.outb(GATE, gate | GATE_ON);
    let read = move || {
        ports.outb(COMMAND, COMMAND_LATCH);
        let [low, high] = [ports.inb(CHANNEL_2), ports.inb(CHANNEL_2)];
        u64::from(0u16.wrapping_sub(u16::from_le_bytes([low, high])))
    };
    Reference { hz: FREQUENCY_HZ, mask: 0xffff, read }
}

#[cfg(test)]
mod tests {
    use super::super::reference::{STOPPED, measure};
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A PIT that counts down by 3 at each latch once its gate is up.
    #[derive(Default)]
    struct Fake {
        gate: RefCell<u8>,
        count: RefCell<u16>,
        latched: RefCell<std::vec::Vec<u8>>,
        writes: RefCell<std::vec::Vec<(u16, u8)>>,
        is_missing: bool,
    }

    impl Ports for &Fake {
        fn outw(&self, _: u16, _: u16) {}
        fn inb(&self, port: u16) -> u8 {
            match port {
                _ if self.is_missing => 0xff,
                GATE => *self.gate.borrow(),
                CHANNEL_2 => self.latched.borrow_mut().remove(0),
                _ => panic!("port {port:#x}"),
            }
        }
        fn outb(&self, port: u16, value: u8) {
            if (port, value) == (COMMAND, COMMAND_LATCH) {
                let running = *self.gate.borrow() & GATE_ON != 0;
                let mut count = self.count.borrow_mut();
                *count = count.wrapping_sub(if running { 3 } else { 0 });
                *self.latched.borrow_mut() = count.to_le_bytes().to_vec();
                return;
            }
            if port == GATE {
                *self.gate.borrow_mut() = value;
            }
            self.writes.borrow_mut().push((port, value));
        }
        fn inl(&self, _: u16) -> u32 {
            unreachable!()
        }
    }

    #[test]
    fn gate_opens_last_and_the_speaker_stays_off() {
        let fake = Fake::default();
        *fake.gate.borrow_mut() = SPEAKER_ON | 0x30;
        reference(&fake);
        let expected = [(GATE, 0), (COMMAND, 0xb4), (CHANNEL_2, 0), (CHANNEL_2, 0), (GATE, 1)];
        assert_eq!(*fake.writes.borrow(), expected);
    }

    #[test]
    fn silence_leaves_no_periodic_mode_and_touches_channel_0_only() {
        let fake = Fake::default();
        silence(&&fake);
        assert_eq!(*fake.writes.borrow(), [(COMMAND, 0x30), (CHANNEL_0, 1), (CHANNEL_0, 0)]);
    }

    #[test]
    fn turns_are_the_periodic_mode_of_channel_0() {
        for (turn_us, low, high) in [(5, 6, 0), (50, 60, 0), (20_000, 0x38, 0x5d)] {
            let fake = Fake::default();
            begin_turns(&&fake, turn_us);
            let expected = [(COMMAND, 0x34), (CHANNEL_0, low), (CHANNEL_0, high)];
            assert_eq!(*fake.writes.borrow(), expected, "{turn_us} µs");
        }
    }

    #[test]
    fn count_down_reads_as_count_up() {
        let fake = Fake::default();
        let pit = reference(&fake);
        let first = (pit.read)();
        assert_eq!((pit.read)() - first, 3);
    }

    #[test]
    fn missing_pit_is_refused_and_not_waited_for() {
        let fake = Fake { is_missing: true, ..Fake::default() };
        let now = Cell::new(0);
        let sample = || now.replace(now.get() + 1_000);
        assert_eq!(measure(&reference(&fake), 10_000_000, sample), Err(STOPPED));
    }
}
