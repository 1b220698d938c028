//! The serial port COM1: the probe, and output.
//!
//! Neither waits without a limit, which is why the set-up is not that of `uart_16550`, whose
//! registers and port accesses it uses. `log.rs` decides what is printed and keeps lines whole.
//! [`input`] has the other half of the port, and describes how the two share it.

pub mod input;

use super::log::{Color, Sink};
use super::{irq, log};
use crate::arch;
use input::{INPUT, InputError};
use uart_16550::Uart16550;
use uart_16550::backend::{Backend, PioBackend};
use uart_16550::spec::FIFO_SIZE;
use uart_16550::spec::registers::{FCR, FifoTriggerLevel, LCR, LSR, MCR, WordLength, offsets};

const COM1: u16 = 0x3f8;
const COM1_IRQ: u8 = 4;

/// The port interrupts when so many bytes have come, or fewer and then none for the time of four.
/// Half of its FIFO is left for bytes that come until the CPU responds: 0.7 ms at 115,200 baud.
const RECEIVE_TRIGGER: FifoTriggerLevel = FifoTriggerLevel::Eight;

/// The most reads of the line status in the probe: 0.1 s on a real bus. Bytes that firmware left in
/// the transmitter at 9600 baud take 17 ms.
const PROBE_READS: u32 = 100_000;

/// Reads of the line status for one more byte, before the FIFO is turned on, which drops a
/// byte that has come. An emulator that has more in its pipe delivers it within a few reads.
const TYPED_READS: usize = 200;

/// Polls for room in the transmitter until bytes count as lost: a virtual one may drain slowly.
const SEND_POLLS: u32 = 1 << 19;

/// After so many polls, a pause of [`POLL_PAUSE`] turns of a loop follows each. An emulator locks its
/// devices for each poll, and drains the transmitter under the same lock: on a busy host, polls
/// without a pause keep it from that until all are used up.
const POLLS_AT_ONCE: u32 = 1 << 10;
const POLL_PAUSE: u32 = if cfg!(test) { 1 } else { 1 << 10 };

/// Polls after a loss, until a byte gets through again: to print to a stuck port must not be slow.
const SEND_POLLS_AFTER_LOSS: u32 = 1 << 12;

/// Losses in a row after which the port is dead: it is still tried, but not waited for.
const LOSSES_UNTIL_DEAD: u32 = 8;

/// The signals of an open port; on a PC, "output 2" is the gate of its interrupt.
const OPEN: MCR = MCR::DTR.union(MCR::RTS).union(MCR::OUT_2_INT_ENABLE);

const RECEIVER_ERRORS: LSR = LSR::OVERRUN_ERROR
    .union(LSR::PARITY_ERROR)
    .union(LSR::FRAMING_ERROR)
    .union(LSR::BREAK_INTERRUPT);

struct Port<B>(B);

impl<B: Backend> Port<B> {
    fn get(&mut self, register: usize) -> u8 {
        // SAFETY: a register of the port, which belongs to this driver.
        unsafe { self.0.read(register as u8) }
    }

    fn set(&mut self, register: usize, value: u8) {
        // SAFETY: as above.
        unsafe { self.0.write(register as u8, value) };
    }

    fn status(&mut self) -> LSR {
        LSR::from_bits_retain(self.get(offsets::LSR))
    }
}

/// A serial port that answered when it was probed.
pub struct Serial<B: Backend = PioBackend> {
    port: Port<B>,
    /// How many bytes an empty transmitter takes: a 16450 has no FIFO.
    load: usize,
    /// Gets the receiver bits of the line status, which reading clears. Interrupts are off.
    listener: Option<fn(LSR)>,
    losses_in_a_row: u32,
}

/// Lets typed bytes be read from [`INPUT`], if there is a port. When all CPUs have come up.
pub fn init_input() {
    let Some(port) = log::with_serial(|serial| serial.port.0) else { return };
    match irq::claim_isa(COM1_IRQ, "serial", || INPUT.on_interrupt()) {
        Ok(_) => INPUT.open(port),
        Err(error) => {
            INPUT.refuse(InputError::NoInterrupt);
            ::log::warn!("serial: no input: {error}");
        }
    }
}

impl Serial {
    /// COM1 at 115200 baud, 8N1, FIFO on; `None` where no port answers.
    pub fn probe() -> Option<Serial> {
        // SAFETY: 0x3f8 to 0x3ff belong to COM1 on a PC; where there is none, reads give 0xff
        // and writes go nowhere.
        let port = unsafe { Uart16550::new_port(COM1) }.ok()?;
        let mut serial = Serial::probe_on(*port.backend(), |byte| INPUT.keep(byte))?;
        serial.listener = Some(|seen| INPUT.on_line_status(seen));
        Some(serial)
    }
}

impl<B: Backend> Serial<B> {
    /// The caller owns the device behind `backend`. `keep` gets bytes typed until it is set up.
    fn probe_on(backend: B, keep: fn(u8)) -> Option<Self> {
        let mut probe =
            Probe { port: Port(backend), reads_left: PROBE_READS, keep, has_typed: false };
        let load = probe.set_up()?;
        Some(Serial { port: probe.port, load, listener: None, losses_in_a_row: 0 })
    }

    fn is_dead(&self) -> bool {
        self.losses_in_a_row >= LOSSES_UNTIL_DEAD
    }

    /// Sends at most what an empty transmitter takes, or loses it.
    fn send(&mut self, load: &[u8]) {
        let polls = match self.losses_in_a_row {
            0 => SEND_POLLS,
            _ if self.is_dead() => 1,
            _ => SEND_POLLS_AFTER_LOSS,
        };
        for poll in 0..polls {
            let status = self.port.status();
            let seen = status & (LSR::DATA_READY | RECEIVER_ERRORS);
            if let Some(listener) = self.listener.filter(|_| !seen.is_empty()) {
                listener(seen);
            }
            if status.contains(LSR::THR_EMPTY) {
                load.iter().for_each(|&byte| self.port.set(offsets::DATA, byte));
                self.losses_in_a_row = 0;
                return;
            }
            match poll {
                ..POLLS_AT_ONCE => arch::relax(),
                // An emulator may take that lock at `relax` as well.
                _ => (0..POLL_PAUSE).for_each(|turn| _ = core::hint::black_box(turn)),
            }
        }
        self.losses_in_a_row = self.losses_in_a_row.saturating_add(1);
    }
}

impl<B: Backend + Send> Sink for Serial<B> {
    /// Sends a line feed as carriage return and line feed, as terminals need.
    fn write(&mut self, bytes: &[u8], _: Color) {
        let mut load = arrayvec::ArrayVec::<u8, FIFO_SIZE>::new();
        let returns = |&byte: &u8| (byte == b'\n').then_some(b'\r');
        for byte in bytes.iter().flat_map(|byte| returns(byte).into_iter().chain([*byte])) {
            load.push(byte);
            if load.len() == self.load {
                self.send(&load);
                load.clear();
            }
        }
        if !load.is_empty() {
            self.send(&load);
        }
    }
}

/// The set-up of a port. Its steps end with `None` when the line status was read too often.
struct Probe<B> {
    port: Port<B>,
    reads_left: u32,
    keep: fn(u8),
    has_typed: bool,
}

impl<B: Backend> Probe<B> {
    /// Sets the port to 115200 baud, 8N1, FIFO on. How many bytes its transmitter takes.
    fn set_up(&mut self) -> Option<usize> {
        let remembers = |value| {
            self.port.set(offsets::SPR, value);
            self.port.get(offsets::SPR) == value
        };
        if ![0x42, 0x73].into_iter().all(remembers) {
            return None; // no port
        }
        self.port.set(offsets::LCR, LCR::DLAB.bits());
        self.port.set(offsets::DLL, 1); // of 115,200 baud
        self.port.set(offsets::DLM, 0);
        self.port.set(offsets::LCR, LCR::empty().set_word_length(WordLength::EightBits).bits());
        self.port.set(offsets::IER, 0);
        self.take_typed()?; // the FIFO drops them when it is turned on
        let fifo = FCR::FIFO_ENABLE | FCR::TX_FIFO_RESET;
        self.port.set(offsets::FCR, fifo.set_fifo_trigger_level(RECEIVE_TRIGGER).bits());
        let has_fifo = self.port.get(offsets::ISR) & 0xc0 == 0xc0;
        self.port.set(offsets::MCR, OPEN.bits());
        while !self.status()?.contains(LSR::TRANSMITTER_EMPTY) {}
        // If a pipe types all the time, its bytes come instead of ours: the modem lines tell.
        let mut is_good = !self.has_typed && self.loops_byte()?;
        if !is_good {
            self.take_typed()?;
            is_good = self.has_typed && self.loops_modem_lines();
        }
        self.port.set(offsets::MCR, OPEN.bits());
        is_good.then_some(if has_fifo { FIFO_SIZE } else { 1 })
    }

    fn status(&mut self) -> Option<LSR> {
        self.reads_left = self.reads_left.checked_sub(1)?;
        Some(self.port.status())
    }

    /// Passes on typed bytes until none comes.
    fn take_typed(&mut self) -> Option<()> {
        let (mut taken, mut reads) = (0, 0);
        while reads < TYPED_READS && taken < input::RING_SIZE {
            reads += 1;
            if self.status()?.contains(LSR::DATA_READY) {
                (self.keep)(self.port.get(offsets::DATA));
                self.has_typed = true;
                (taken, reads) = (taken + 1, 0);
            }
        }
        Some(())
    }

    /// Whether a byte that is sent comes back, in loopback.
    fn loops_byte(&mut self) -> Option<bool> {
        const BYTE: u8 = 0x42;
        self.port.set(offsets::MCR, MCR::LOOP_BACK.bits());
        self.port.set(offsets::DATA, BYTE);
        let mut is_back = false;
        // In an emulator bytes that were typed meanwhile come first.
        for _ in 0..FIFO_SIZE {
            while !self.status()?.contains(LSR::DATA_READY) {}
            let byte = self.port.get(offsets::DATA);
            is_back = byte == BYTE;
            if is_back {
                break;
            }
            self.has_typed = true;
            (self.keep)(byte);
        }
        self.port.set(offsets::MCR, OPEN.bits());
        Some(is_back)
    }

    /// Whether the modem lines come back as they are set, in loopback.
    fn loops_modem_lines(&mut self) -> bool {
        // DTR to DSR, RTS to CTS, OUT1 to RI, OUT2 to DCD.
        let lines = [(MCR::RTS | MCR::OUT_2_INT_ENABLE, 0x90), (MCR::DTR | MCR::OUT_1, 0x60)];
        lines.into_iter().all(|(set, expected)| {
            self.port.set(offsets::MCR, (set | MCR::LOOP_BACK).bits());
            self.port.get(offsets::MSR) & 0xf0 == expected
        })
    }
}

#[cfg(test)]
mod tests;
