//! The serial port COM1: the probe, and output, on the `uart_16550` crate.
//!
//! Holds the probe (is there a port at all?) and a writer that never waits without a limit.
//! `log.rs`, the only caller, decides what is printed and keeps lines whole. [`input`] has
//! the other half of the port, and describes how the two share it.
//!
//! The crate waits for the device without a bound, while it initialises and in its loopback
//! test. So it does not get the ports themselves but [`Patient`], which answers from the
//! ports until its read limit is reached and from then on with values that end the crate's
//! loops. The probe then finds nothing.

pub mod input;

use super::log::Sink;
use super::{irq, log};
use crate::arch;
use input::{INPUT, InputError};
use uart_16550::backend::{Backend, PioBackend};
use uart_16550::spec::FIFO_SIZE;
use uart_16550::spec::registers::{FCR, FifoTriggerLevel, LSR, MCR, offsets};
use uart_16550::{BaudRate, Config, Uart16550};

/// The first serial port of a PC, and its interrupt.
const COM1: u16 = 0x3f8;
const COM1_IRQ: u8 = 4;
/// The second one.
const COM2: u16 = 0x2f8;
/// The CPU that takes its interrupts.
const INPUT_CPU: usize = 0;

/// The port interrupts when so many bytes have come, or fewer and then none for the time of
/// four. Half of its FIFO is left for bytes that come until the CPU responds: 0.7 ms at
/// 115,200 baud.
const RECEIVE_TRIGGER: FifoTriggerLevel = FifoTriggerLevel::Eight;

/// The most reads of the whole probe. A port read takes about 1 µs on a real bus, so this is
/// a tenth of a second; bytes that firmware left in the transmitter at 9600 baud take 17 ms,
/// the loopback test 2 ms.
const PROBE_READS: u32 = 100_000;

/// Polls for room in the transmitter before its bytes count as lost. A full FIFO drains in
/// 1.4 ms; that of a virtual machine takes as long as its reader is busy.
const SEND_POLLS: u32 = 1 << 20;

/// Polls after a loss, until a byte gets through again: a G that prints a lot to a stuck port
/// must not pay [`SEND_POLLS`] every time.
const SEND_POLLS_AFTER_LOSS: u32 = 1 << 12;

/// Losses in a row after which the port is dead: it is still tried, but not waited for.
const LOSSES_UNTIL_DEAD: u32 = 8;

/// A serial port that answered when it was probed.
pub struct Serial<B: Backend = PioBackend> {
    uart: Uart16550<Patient<B>>,
    /// The owner of the other half of the port.
    listener: Option<&'static dyn Listener>,
    lost: u64,
    losses_in_a_row: u32,
}

/// Is told the receiver bits that the writer reads, and clears by reading.
pub trait Listener: Sync {
    /// The line status had these bits. Under the console's lock, interrupts off.
    fn on_line_status(&self, seen: LSR);
}

/// Enables the port's receive interrupt, if there is a port; when all CPUs have come up.
/// Typed bytes can then be read from [`INPUT`].
pub fn init_input() {
    let Some(port) = log::with_serial(|serial| serial.uart.backend().backend) else { return };
    match irq::claim_isa(COM1_IRQ, INPUT_CPU, "serial", &INPUT) {
        Ok(_) => {
            INPUT.open(port);
            log::with_serial(|serial| serial.listener = Some(&INPUT));
        }
        Err(error) => {
            INPUT.refuse(InputError::NoInterrupt);
            ::log::warn!("serial: no input: {error}");
        }
    }
}

impl Serial {
    /// COM1 at 115200 baud, 8N1, FIFO on; `None` where no port answers.
    ///
    /// Takes a tenth of a second at most.
    pub fn probe() -> Option<Serial> {
        // SAFETY: 0x3f8 to 0x3ff belong to COM1 on a PC; where there is none, reads give 0xff
        // and writes go nowhere.
        let port = unsafe { Uart16550::new_port(COM1) }.ok()?;
        Serial::probe_on(*port.backend(), |byte| INPUT.keep(byte))
    }

    /// As [`Serial::probe`], for COM2, which is never read.
    pub fn probe_second() -> Option<Serial> {
        // SAFETY: as there, of 0x2f8 to 0x2ff.
        let port = unsafe { Uart16550::new_port(COM2) }.ok()?;
        Serial::probe_on(*port.backend(), |_| ())
    }
}

impl<B: Backend> Serial<B> {
    /// The same on any registers. The caller owns the device behind `backend`. `keep` gets
    /// bytes that were typed before and during the set-up.
    fn probe_on(backend: B, keep: fn(u8)) -> Option<Self> {
        let patient = Patient {
            backend,
            reads_left: Some(PROBE_READS),
            flip: false,
            seen: LSR::empty(),
            keep,
            is_looped: false,
            has_typed: false,
        };
        // SAFETY: `Patient` passes on register offsets that the crate itself keeps in range,
        // and the device stays at its address.
        let mut uart = unsafe { Uart16550::new_with_backend(patient) };
        let config = Config {
            baud_rate: BaudRate::Baud115200,
            fifo_trigger_level: Some(RECEIVE_TRIGGER),
            ..Config::DEFAULT
        };
        uart.init(config).ok()?;
        let is_quiet = !uart.backend().has_typed;
        if !(is_quiet && uart.test_loopback().is_ok()) {
            // Where an emulator's pipe types all the time, the crate's test reads that
            // instead of its own bytes; the modem lines prove as much.
            let patient = uart.backend_mut();
            patient.take_typed();
            if !(patient.has_typed && patient.loops_modem_lines()) {
                return None;
            }
        }
        if uart.backend().reads_left == Some(0) {
            return None;
        }
        // From here on the limits are this driver's own.
        uart.backend_mut().reads_left = None;
        uart.backend_mut().seen = LSR::empty(); // of the loopback
        Some(Serial { uart, listener: None, lost: 0, losses_in_a_row: 0 })
    }

    /// How many bytes were not sent, because the transmitter stayed busy.
    #[cfg(test)]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the port has stopped taking bytes. Each write still tries once: the reader at
    /// the other end may come back.
    pub fn is_dead(&self) -> bool {
        self.losses_in_a_row >= LOSSES_UNTIL_DEAD
    }

    /// Sends bytes as they are; counts bytes that are not sent as lost.
    pub fn write_raw(&mut self, bytes: &[u8]) {
        bytes.chunks(FIFO_SIZE).for_each(|load| self.send(load));
    }

    /// Sends at most a FIFO of bytes, or counts the rest as lost.
    fn send(&mut self, mut bytes: &[u8]) {
        let mut polls = match self.losses_in_a_row {
            0 => SEND_POLLS,
            _ if self.is_dead() => 1,
            _ => SEND_POLLS_AFTER_LOSS,
        };
        while !bytes.is_empty() && polls > 0 {
            // One read of the line status for up to 16 bytes: the crate fills an empty FIFO
            // without another read.
            let sent = self.uart.send_bytes(bytes);
            bytes = &bytes[sent..];
            self.tell_listener();
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

    /// Passes on the receiver bits of the last read of the line status.
    fn tell_listener(&mut self) {
        let seen = core::mem::replace(&mut self.uart.backend_mut().seen, LSR::empty());
        if let Some(listener) = self.listener
            && !seen.is_empty()
        {
            listener.on_line_status(seen);
        }
    }
}

impl<B: Backend + Send> Sink for Serial<B> {
    /// Sends a line feed as carriage return and line feed, as terminals need.
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
/// While `reads_left` is a number it counts down. At 0 the device is not read any more: the
/// line status then says "transmitter empty" and, in turns, "data ready" and "no data", so
/// that every wait of the crate ends, for data and for the end of data.
struct Patient<B> {
    backend: B,
    reads_left: Option<u32>,
    flip: bool,
    /// Receiver bits of the line status since this was taken.
    seen: LSR,
    /// Gets the bytes that came during the probe.
    keep: fn(u8),
    /// The port is in loopback.
    is_looped: bool,
    /// A byte was typed during the probe.
    has_typed: bool,
}

/// Reads of the line status for one more byte, before the FIFO is turned on, which drops a
/// byte that has come. An emulator that has more in its pipe delivers it within a few reads.
const TYPED_LOOKS: usize = 200;

impl<B: Backend> Patient<B> {
    /// Passes on typed bytes until none comes, within the read limit.
    fn take_typed(&mut self) {
        let has_come = |patient: &mut Self| {
            // SAFETY: a register of the port.
            let status = LSR::from_bits_retain(unsafe { patient.read(offsets::LSR as u8) });
            // All ones: no port.
            status.contains(LSR::DATA_READY) && status.bits() != 0xff
        };
        for _ in 0..input::RING_SIZE {
            if !(0..TYPED_LOOKS).any(|_| has_come(self)) {
                return;
            }
            // SAFETY: a register of the port.
            unsafe { self.read(offsets::DATA as u8) };
        }
    }

    /// Whether the modem lines come back as they are set, in loopback.
    fn loops_modem_lines(&mut self) -> bool {
        // DTR to DSR, RTS to CTS, OUT1 to RI, OUT2 to DCD.
        let lines = [(MCR::RTS | MCR::OUT_2_INT_ENABLE, 0x90), (MCR::DTR | MCR::OUT_1, 0x60)];
        let comes_back = lines.into_iter().all(|(set, expected)| {
            // SAFETY: a register of the port.
            unsafe { self.write(offsets::MCR as u8, (set | MCR::LOOP_BACK).bits()) };
            // SAFETY: a register of the port.
            unsafe { self.read(offsets::MSR as u8) & 0xf0 == expected }
        });
        let ready = MCR::DTR | MCR::RTS | MCR::OUT_2_INT_ENABLE;
        // SAFETY: a register of the port.
        unsafe { self.write(offsets::MCR as u8, ready.bits()) };
        comes_back
    }
}

/// The receiver's bits of the line status.
const RECEIVER: LSR = LSR::DATA_READY
    .union(LSR::OVERRUN_ERROR)
    .union(LSR::PARITY_ERROR)
    .union(LSR::FRAMING_ERROR)
    .union(LSR::BREAK_INTERRUPT);

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
                // SAFETY: the caller's promise about the offset.
                let value = unsafe { self.backend.read(register_offset) };
                match register_offset as usize {
                    offsets::LSR => self.seen |= LSR::from_bits_retain(value) & RECEIVER,
                    offsets::DATA if self.reads_left.is_some() && !self.is_looped => {
                        self.has_typed = true;
                        (self.keep)(value);
                    }
                    _ => {}
                }
                value
            }
        }
    }

    unsafe fn write(&mut self, register_offset: u8, mut value: u8) {
        match register_offset as usize {
            offsets::MCR => self.is_looped = value & MCR::LOOP_BACK.bits() != 0,
            offsets::FCR if self.reads_left.is_some() => {
                self.take_typed();
                value &= !FCR::RX_FIFO_RESET.bits(); // received bytes stay
            }
            _ => {}
        }
        // SAFETY: the caller's promise about the offset.
        unsafe { self.backend.write(register_offset, value) }
    }
}

#[cfg(test)]
mod tests;
