//! The serial port COM1: output, and input by polling, on the `uart_16550` crate.
//!
//! Holds the probe (is there a port at all?) and a writer that never waits
//! without a limit. Who prints what, and that lines stay whole, is the
//! business of `log.rs`, the only caller.
//!
//! The crate waits for the device without a bound, while it initialises and in
//! its loopback test. So it does not get the ports themselves but [`Patient`],
//! which answers from the ports until its patience is used up and from then
//! on with whatever ends the crate's loops. The probe then finds nothing.

use crate::arch;
use crate::log::Sink;
use uart_16550::backend::{Backend, PioBackend};
use uart_16550::spec::FIFO_SIZE;
use uart_16550::spec::registers::{LSR, offsets};
use uart_16550::{BaudRate, Config, Uart16550};

/// The first serial port of a PC.
const COM1: u16 = 0x3f8;

/// Reads that the whole probe may cost. A port read takes about 1 µs on a real
/// bus, so this is a tenth of a second; what firmware left in the transmitter
/// at 9600 baud takes 17 ms, the loopback test 2 ms.
const PROBE_READS: u32 = 100_000;

/// Polls for room in the transmitter before its bytes count as lost. A full
/// FIFO drains in 1.4 ms; a virtual machine's takes as long as its reader is
/// busy with something else.
const SEND_POLLS: u32 = 1 << 20;

/// Polls after a loss, until a byte gets through again: somebody who prints a
/// lot to a stuck port must not pay [`SEND_POLLS`] every time.
const SEND_POLLS_AFTER_LOSS: u32 = 1 << 12;

/// Losses in a row after which the port is dead: it is still tried, but not
/// waited for.
const LOSSES_UNTIL_DEAD: u32 = 8;

/// A serial port that answered when it was probed.
///
/// ```no_run
/// use runnext::drivers::serial::Serial;
/// use runnext::log::Sink;
///
/// if let Some(mut serial) = Serial::probe() {
///     serial.write(b"hello\n");
///     assert_eq!(serial.lost(), 0);
/// }
/// ```
pub struct Serial<B: Backend = PioBackend> {
    uart: Uart16550<Patient<B>>,
    lost: u64,
    losses_in_a_row: u32,
}

impl Serial {
    /// COM1 at 115200 baud, 8N1, FIFO on; `None` where no port answers.
    ///
    /// Takes a tenth of a second at most.
    pub fn probe() -> Option<Serial> {
        // SAFETY: 0x3f8 to 0x3ff belong to COM1 on a PC; where there is none,
        // reads give 0xff and writes go nowhere.
        let port = unsafe { Uart16550::new_port(COM1) }.ok()?;
        Serial::probe_on(*port.backend())
    }
}

impl<B: Backend> Serial<B> {
    /// The same on any registers. The caller owns the device behind `backend`.
    fn probe_on(backend: B) -> Option<Self> {
        let patient = Patient { backend, reads_left: Some(PROBE_READS), flip: false };
        // SAFETY: `Patient` passes on register offsets that the crate itself
        // keeps in range, and the device stays where it is.
        let mut uart = unsafe { Uart16550::new_with_backend(patient) };
        let config = Config { baud_rate: BaudRate::Baud115200, ..Config::DEFAULT };
        uart.init(config).ok()?;
        uart.test_loopback().ok()?;
        if uart.backend().reads_left == Some(0) {
            return None;
        }
        // From here on the limits are this driver's own.
        uart.backend_mut().reads_left = None;
        Some(Serial { uart, lost: 0, losses_in_a_row: 0 })
    }

    /// How many bytes never left, because the transmitter stayed busy.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the port has stopped taking bytes. Each write still tries once:
    /// the reader at the other end may come back.
    pub fn is_dead(&self) -> bool {
        self.losses_in_a_row >= LOSSES_UNTIL_DEAD
    }

    /// The next byte that was received, if there is one.
    pub fn read(&mut self) -> Option<u8> {
        self.uart.try_receive_byte().ok()
    }

    /// Sends at most a FIFO of bytes, or counts the rest as lost.
    fn send(&mut self, mut bytes: &[u8]) {
        let mut polls = match self.losses_in_a_row {
            0 => SEND_POLLS,
            _ if self.is_dead() => 1,
            _ => SEND_POLLS_AFTER_LOSS,
        };
        while !bytes.is_empty() && polls > 0 {
            // One read of the line status for up to 16 bytes: with an empty
            // FIFO the crate fills it without asking again.
            let sent = self.uart.send_bytes(bytes);
            bytes = &bytes[sent..];
            if sent > 0 {
                self.losses_in_a_row = 0;
                polls = SEND_POLLS;
            } else {
                polls -= 1;
                arch::relax();
            }
        }
        if !bytes.is_empty() {
            self.lost = self.lost.saturating_add(bytes.len() as u64);
            self.losses_in_a_row = self.losses_in_a_row.saturating_add(1);
        }
    }
}

impl<B: Backend + Send> Sink for Serial<B> {
    /// A line feed leaves as carriage return and line feed, as terminals want.
    fn write(&mut self, bytes: &[u8]) {
        let mut load = [0; FIFO_SIZE];
        let mut used = 0;
        for &byte in bytes {
            // Room for two, because a line feed becomes two.
            if used + 2 > load.len() {
                self.send(&load[..used]);
                used = 0;
            }
            if byte == b'\n' {
                load[used] = b'\r';
                used += 1;
            }
            load[used] = byte;
            used += 1;
        }
        self.send(&load[..used]);
    }
}

/// Registers with a limit on how often they are read.
///
/// While `reads_left` is a number it counts down. At 0 the device is not asked
/// any more: the line status then says "transmitter empty" and, in turns, "data
/// ready" and "no data", so that every wait of the crate comes to an end, those
/// for data and those for the end of data.
struct Patient<B> {
    backend: B,
    reads_left: Option<u32>,
    flip: bool,
}

impl<B: Backend> Backend for Patient<B> {
    unsafe fn read(&mut self, register_offset: u8) -> u8 {
        match &mut self.reads_left {
            Some(0) => {
                self.flip = !self.flip;
                let data = if self.flip { LSR::DATA_READY } else { LSR::empty() };
                match register_offset as usize {
                    offsets::LSR => (LSR::THR_EMPTY | LSR::TRANSMITTER_EMPTY | data).bits(),
                    _ => 0,
                }
            }
            limit => {
                if let Some(left) = limit {
                    *left -= 1;
                }
                // SAFETY: the caller's promise about the offset is passed on.
                unsafe { self.backend.read(register_offset) }
            }
        }
    }

    unsafe fn write(&mut self, register_offset: u8, value: u8) {
        // SAFETY: the caller's promise about the offset is passed on.
        unsafe { self.backend.write(register_offset, value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// What is wrong with the model UART.
    #[derive(PartialEq, Clone, Copy)]
    enum Fault {
        Nothing,
        /// No device: reads give 0xff.
        Absent,
        /// Scratch register works, transmitter never empties.
        NeverEmpty,
        /// Loopback bytes get lost.
        Deaf,
        /// Loopback gives data for ever.
        Babbling,
        /// Loopback bytes come back changed.
        Garbling,
    }

    struct Model {
        fault: Fault,
        scratch: u8,
        lcr: u8,
        mcr: u8,
        divisor: [u8; 2],
        fifo_on: bool,
        loopback: VecDeque<u8>,
        sent: Vec<u8>,
        in_fifo: usize,
        /// Line status reads until the FIFO is empty again; `None`: never.
        drain_after: Option<u32>,
        busy: u32,
        overruns: usize,
        reads: u32,
    }

    fn model(fault: Fault) -> Model {
        Model {
            fault,
            scratch: 0,
            lcr: 0,
            mcr: 0,
            divisor: [0; 2],
            fifo_on: false,
            loopback: VecDeque::new(),
            sent: Vec::new(),
            in_fifo: 0,
            drain_after: Some(3),
            busy: 0,
            overruns: 0,
            reads: 0,
        }
    }

    impl Model {
        fn line_status(&mut self) -> u8 {
            let mut lsr = LSR::empty();
            if self.in_fifo > 0 {
                self.busy += 1;
                if self.drain_after.is_some_and(|n| self.busy > n) {
                    self.in_fifo = 0;
                    self.busy = 0;
                }
            }
            if self.in_fifo == 0 && self.fault != Fault::NeverEmpty {
                lsr |= LSR::THR_EMPTY | LSR::TRANSMITTER_EMPTY;
            }
            if !self.loopback.is_empty() || self.fault == Fault::Babbling {
                lsr |= LSR::DATA_READY;
            }
            lsr.bits()
        }

        fn transmit(&mut self, byte: u8) {
            if self.mcr & 0x10 != 0 {
                match self.fault {
                    Fault::Deaf => {}
                    Fault::Garbling => self.loopback.push_back(byte ^ 1),
                    _ => self.loopback.push_back(byte),
                }
                return;
            }
            self.in_fifo += 1;
            if self.in_fifo > 16 {
                self.overruns += 1;
            }
            self.sent.push(byte);
        }
    }

    impl Backend for &mut Model {
        unsafe fn read(&mut self, offset: u8) -> u8 {
            self.reads += 1;
            if self.fault == Fault::Absent {
                return 0xff;
            }
            match offset {
                0 => self.loopback.pop_front().unwrap_or(0),
                2 if self.fifo_on => 0xc1,
                3 => self.lcr,
                4 => self.mcr,
                5 => self.line_status(),
                6 => 0xb0,
                7 => self.scratch,
                _ => 0,
            }
        }

        unsafe fn write(&mut self, offset: u8, value: u8) {
            match offset {
                0 | 1 if self.lcr & 0x80 != 0 => self.divisor[offset as usize] = value,
                0 => self.transmit(value),
                2 => self.fifo_on = value & 1 != 0,
                3 => self.lcr = value,
                4 => self.mcr = value,
                7 => self.scratch = value,
                _ => {}
            }
        }
    }

    #[test]
    fn working_port_is_set_to_115200_8n1_with_fifo() {
        let mut model = model(Fault::Nothing);
        assert!(Serial::probe_on(&mut model).is_some());
        assert_eq!(model.divisor, [1, 0]);
        assert_eq!(model.lcr, 0b11);
        assert!(model.fifo_on);
        assert_eq!(model.mcr & 0x10, 0, "left in loopback mode");
        assert!(model.sent.is_empty(), "the probe is silent on the wire");
    }

    #[test]
    fn absent_or_broken_port_is_refused_within_the_limit() {
        for fault in
            [Fault::Absent, Fault::NeverEmpty, Fault::Deaf, Fault::Babbling, Fault::Garbling]
        {
            let mut model = model(fault);
            assert!(Serial::probe_on(&mut model).is_none());
            assert!(model.reads <= PROBE_READS);
        }
    }

    #[test]
    fn line_feeds_get_a_carriage_return() {
        let mut model = model(Fault::Nothing);
        let mut serial = Serial::probe_on(&mut model).expect("model works");
        serial.write(b"\none\ntwo");
        assert_eq!(model.sent, b"\r\none\r\ntwo");
    }

    #[test]
    fn long_text_fills_the_fifo_and_never_overruns_it() {
        let mut model = model(Fault::Nothing);
        let mut serial = Serial::probe_on(&mut model).expect("model works");
        let text = "0123456789abcdef\n".repeat(100);
        serial.write(text.as_bytes());
        assert_eq!(serial.lost(), 0);
        assert_eq!(model.sent, text.replace('\n', "\r\n").into_bytes());
        assert_eq!(model.overruns, 0);
    }

    #[test]
    fn status_is_read_once_for_each_fifo_load() {
        let mut model = model(Fault::Nothing);
        model.drain_after = Some(0);
        let mut serial = Serial::probe_on(&mut model).expect("model works");
        let before = serial.uart.backend().backend.reads;
        serial.write(&[b'x'; 15 * 20]);
        let reads = serial.uart.backend().backend.reads - before;
        assert!(reads <= 25, "{reads} reads for 20 loads");
    }

    #[test]
    fn stuck_port_loses_bytes_in_bounded_time_then_dies_and_can_come_back() {
        let mut model = model(Fault::Nothing);
        model.drain_after = None;
        let mut serial = Serial::probe_on(&mut model).expect("model works");
        for _ in 0..100 {
            serial.write(b"0123456789");
        }
        assert_eq!(serial.lost(), 99 * 10, "the first load went into the FIFO");
        assert!(serial.is_dead());
        assert!(serial.uart.backend().backend.reads < SEND_POLLS * 2);

        serial.uart.backend_mut().backend.drain_after = Some(0);
        serial.write(b"again");
        assert!(!serial.is_dead());
        assert!(model.sent.ends_with(b"again"));
    }
}
