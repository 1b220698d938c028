//! Serial input: from the receive interrupt to the G that reads.
//!
//! The port's interrupt moves all received bytes into a ring, and tells the poller; a G takes them
//! out of the ring, or waits. Lines, echo and names for programs are in [`crate::api::console`].
//!
//! # Two drivers of one port
//!
//! The log's writer has the transmitter, and holds its lock with interrupts off while it prints: 87
//! µs a byte on a real line, so that after 16 bytes the receiver's FIFO is full. Receiving must not
//! wait for that. So this half has a lock of its own, for a few register accesses at a time, and
//! the registers are divided: the data register (to read), interrupt enable and modem control are
//! this half's, the data register (to write) is the writer's. Both read the line status. Reading
//! clears its error bits, and the writer's own CPU takes no interrupts meanwhile; so the writer
//! passes on the bits it reads ([`Input::on_line_status`]), and received bytes are taken at that
//! moment. The byte that another CPU takes between the writer's read and its call passes as good:
//! its error is counted, but assigned to the next byte.
//!
//! # The ring
//!
//! Bytes go from the interrupt to the reader through crossbeam's `ArrayQueue`, allocated when the
//! port is opened; bytes that were typed earlier, while there was no heap, wait in an array. A
//! `push` waits for a half-done `pop`, so readers pop with interrupts off.
//!
//! If the ring is full no byte is dropped. The rest stays in the port, whose FIFO fills: "ready to
//! send" is cleared, and receive interrupts are off until half of the ring is free. A sender that
//! respects the signal waits, and so does an emulator's pipe; another sender overruns the FIFO,
//! which the port reports and the driver counts.
//!
//! A G that runs a program for the user can catch Ctrl-C ([`Input::catch_key`]): it then ends that
//! G's wait, and readers never see it. It is taken in order, so behind a full ring it waits like
//! any byte.
//!
//! # The line is an edge
//!
//! ISA interrupts are edges, so a handler that leaves a byte in the port gets no further interrupt
//! for it. The handler therefore ends when the line status says that the FIFO is empty; if it has
//! taken [`TAKE_MAX`] by then and there is still more (a fast pipe, or a stuck bit), it turns the
//! port's interrupts off and on, which makes a new edge, and lets other interrupts have their turn.

use super::{OPEN, Port, RECEIVER_ERRORS};
use crate::arch::lock::{IrqGuard, IrqLock};
use crate::arch::text_enum;
use crate::mem::percpu::Here;
use crate::run::poller::{PollDesc, PollError};
use crate::wait::queue::TimedOut;
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use uart_16550::backend::{Backend, PioBackend};
use uart_16550::spec::registers::{IER, LSR, MCR, offsets};

/// The bytes that may wait for a reader: 0.36 s at 115,200 baud.
pub const RING_SIZE: usize = 4096;

/// The most bytes that are taken at a time.
pub const TAKE_MAX: usize = 64;

/// The first serial port's input.
pub static INPUT: Input<PioBackend> = Input::closed();

text_enum! {
    /// Why input cannot be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub error InputError {
        NoPort => "there is no serial port to read from",
        NoInterrupt => "the serial port's interrupt cannot reach a CPU",
        Gone => "the serial port does not answer any more",
        TimedOut => "nothing was typed in time",
        WouldBlock => "nothing has been typed yet",
        Busy => "another G reads the serial port",
        /// Its part of the line is lost, and so is the turn.
        Abandoned => "a G was abandoned while it read the serial port",
    }
}

/// Counters since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputStats {
    /// Interrupts taken.
    pub interrupts: u64,
    /// Bytes received.
    pub bytes: u64,
    /// How often the port reported that bytes were lost, as they were not taken in time.
    pub overruns: u64,
    /// Bytes dropped because they were garbled on the line: parity and framing errors.
    pub garbled: u64,
    /// Breaks: the line was low for longer than a byte.
    pub breaks: u64,
    /// How often the ring was full and the sender was told to wait.
    pub holds: u64,
}

const INTERRUPT_KEY: u8 = 0x03; // Ctrl-C

pub struct Input<B> {
    receiver: IrqLock<Receiver<B>>,
    /// Received bytes, from when the port is opened. Filled under the receiver's lock.
    ring: spin::Once<ArrayQueue<u8>>,
    desc: PollDesc,
    /// Where the G that catches Ctrl-C waits.
    key: PollDesc,
}

impl<B: Backend> Input<B> {
    #[must_use]
    pub const fn closed() -> Self {
        let stats =
            InputStats { interrupts: 0, bytes: 0, overruns: 0, garbled: 0, breaks: 0, holds: 0 };
        let receiver = IrqLock::new(Receiver {
            port: None,
            trouble: InputError::NoPort,
            early: ArrayVec::new_const(),
            is_held: false,
            is_key_caught: false,
            is_key_pressed: false,
            stats,
        });
        Input { receiver, ring: spin::Once::new(), desc: PollDesc::new(), key: PollDesc::new() }
    }

    /// Enables the interrupt of the port behind `backend`, which is claimed. There is a heap.
    pub fn open(&self, backend: B) {
        let ring = self.ring.call_once(|| ArrayQueue::new(RING_SIZE));
        let mut receiver = self.receiver.lock();
        receiver.early.drain(..).for_each(|byte| ring.push(byte).expect("as long as the ring"));
        receiver.port = Some(Port(backend));
        receiver.release();
    }

    /// Keeps a byte that was typed before the port was opened, while there is room.
    pub fn keep(&self, byte: u8) {
        let mut receiver = self.receiver.lock();
        receiver.stats.bytes += u64::from(receiver.early.try_push(byte).is_ok());
    }

    /// Takes bytes as if the port had received them, as many as there is room for, and returns
    /// their number: for a script that types, where bytes on a line would follow another clock.
    #[cfg(any(not(target_os = "none"), feature = "internals"))]
    pub fn type_in(&self, bytes: &[u8]) -> usize {
        let Some(ring) = self.ring.get() else { return 0 };
        let mut receiver = self.receiver.lock();
        let typed = bytes.len().min(RING_SIZE - ring.len());
        bytes[..typed].iter().for_each(|&byte| receiver.accept(byte, ring));
        self.notify(receiver);
        typed
    }

    pub fn refuse(&self, trouble: InputError) {
        self.receiver.lock().trouble = trouble;
    }

    /// Why there is no input, if there is none.
    pub fn trouble(&self) -> Option<InputError> {
        let receiver = self.receiver.lock();
        receiver.port.is_none().then_some(receiver.trouble)
    }

    /// Takes at least one byte, waiting until `deadline_ns` at most, and returns their number; 0
    /// only for an empty buffer.
    pub fn read(&self, buffer: &mut [u8], deadline_ns: Option<u64>) -> Result<usize, InputError> {
        loop {
            let taken = self.pop(buffer)?;
            if taken > 0 || buffer.is_empty() {
                return Ok(taken);
            }
            self.wait(deadline_ns)?;
        }
    }

    /// Takes the bytes that are there, without waiting for any.
    pub fn try_read(&self, buffer: &mut [u8]) -> Result<usize, InputError> {
        match self.pop(buffer)? {
            0 if !buffer.is_empty() => Err(InputError::WouldBlock),
            taken => Ok(taken),
        }
    }

    /// Waits, until `deadline_ns` at most, until a byte can be read; none is taken.
    pub fn wait_for_byte(&self, deadline_ns: Option<u64>) -> Result<(), InputError> {
        while self.ring.get().is_none_or(ArrayQueue::is_empty) {
            self.pop(&mut [])?; // is there a port?
            self.wait(deadline_ns)?;
        }
        Ok(())
    }

    fn wait(&self, deadline_ns: Option<u64>) -> Result<(), InputError> {
        self.desc.wait(deadline_ns).map_err(|error| match error {
            PollError::TimedOut => InputError::TimedOut,
            PollError::Busy => InputError::Busy,
            PollError::Closed => InputError::Gone,
        })
    }

    fn pop(&self, buffer: &mut [u8]) -> Result<usize, InputError> {
        let mut taken = 0;
        let left = self.ring.get().map_or(0, |ring| {
            for place in &mut *buffer {
                let _here = Here::enter(); // interrupts off: see "The ring"
                let Some(byte) = ring.pop() else { break };
                *place = byte;
                taken += 1;
            }
            ring.len()
        });
        let mut receiver = self.receiver.lock();
        // Bytes that came before the failure can still be read.
        if taken == 0 && left == 0 && receiver.port.is_none() {
            return Err(receiver.trouble);
        }
        if receiver.is_held && left <= RING_SIZE / 2 {
            receiver.release();
        }
        Ok(taken)
    }

    /// True: from now on Ctrl-C is not a byte to be read, but ends a
    /// [`wait_for_key`](Self::wait_for_key). False: it is a byte again.
    pub fn catch_key(&self, is_caught: bool) {
        let mut receiver = self.receiver.lock();
        receiver.is_key_caught = is_caught;
        receiver.is_key_pressed = false;
        drop(receiver);
        self.key.ready(); // the waiting G checks again
    }

    /// Waits until Ctrl-C is pressed, until `deadline_ns` at most. False if it is not caught any
    /// more, or another G waits for it.
    pub fn wait_for_key(&self, deadline_ns: Option<u64>) -> Result<bool, TimedOut> {
        loop {
            let mut receiver = self.receiver.lock();
            if !receiver.is_key_caught {
                return Ok(false);
            }
            if core::mem::take(&mut receiver.is_key_pressed) {
                return Ok(true);
            }
            drop(receiver);
            match self.key.wait(deadline_ns) {
                Ok(()) => {}
                Err(PollError::TimedOut) => return Err(TimedOut),
                Err(PollError::Busy | PollError::Closed) => return Ok(false),
            }
        }
    }

    pub fn stats(&self) -> InputStats {
        self.receiver.lock().stats
    }

    pub fn on_interrupt(&self) {
        let mut receiver = self.receiver.lock();
        receiver.stats.interrupts += 1;
        if let Some(ring) = self.ring.get() {
            receiver.take(LSR::empty(), ring);
            self.notify(receiver);
        }
    }

    /// The writer has read these receiver bits of the line status. Any context.
    pub fn on_line_status(&self, seen: LSR) {
        // Held by a CPU that takes the bytes now, or, on the panic path, by one that died.
        if let (Some(mut receiver), Some(ring)) = (self.receiver.try_lock(), self.ring.get()) {
            // The line status is read again: another CPU may have taken the byte.
            receiver.take(seen & RECEIVER_ERRORS, ring);
            self.notify(receiver);
        }
    }

    /// Bytes may have been taken, or the port has gone: the Gs that wait check again.
    fn notify(&self, receiver: IrqGuard<'_, Receiver<B>>) {
        let (is_gone, is_key_pressed) = (receiver.port.is_none(), receiver.is_key_pressed);
        drop(receiver);
        if is_key_pressed {
            self.key.ready();
        }
        if is_gone { self.desc.close() } else { self.desc.ready() }
    }
}

/// The causes of interrupts: a byte, or an error of one.
const INTERRUPTS: IER = IER::DATA_READY.union(IER::RECEIVER_LINE_STATUS);
/// The signals of an open port whose sender should wait.
const HELD: MCR = OPEN.difference(MCR::RTS);

struct Receiver<B> {
    port: Option<Port<B>>,
    trouble: InputError,
    early: ArrayVec<u8, RING_SIZE>,
    /// The ring was full: the sender has been told to wait.
    is_held: bool,
    /// Ctrl-C is not passed to readers.
    is_key_caught: bool,
    /// It came, and its G has not seen it yet.
    is_key_pressed: bool,
    stats: InputStats,
}

impl<B: Backend> Receiver<B> {
    /// Takes received bytes. `seen` are the error bits that the caller has read and so cleared.
    fn take(&mut self, mut seen: LSR, ring: &ArrayQueue<u8>) {
        for _ in 0..TAKE_MAX {
            if !self.is_held && ring.is_full() {
                self.hold();
            }
            let Some(port) = self.port.as_mut().filter(|_| !self.is_held) else { return };
            let status = port.status();
            // A missing port reads as all ones; a port never does.
            if status.bits() == u8::MAX {
                self.port = None;
                self.trouble = InputError::Gone;
                return;
            }
            seen |= status;
            // A break comes with a zero byte and a framing error, which do not count.
            let is_break = seen.contains(LSR::BREAK_INTERRUPT);
            let is_garbled = seen.intersects(LSR::PARITY_ERROR | LSR::FRAMING_ERROR) && !is_break;
            self.stats.overruns += u64::from(seen.contains(LSR::OVERRUN_ERROR));
            self.stats.breaks += u64::from(is_break);
            self.stats.garbled += u64::from(is_garbled);
            if !seen.contains(LSR::DATA_READY) {
                return;
            }
            let byte = port.get(offsets::DATA);
            if !is_break && !is_garbled {
                self.accept(byte, ring);
            }
            seen = LSR::empty();
        }
        // Off and on: see "The line is an edge".
        self.set(offsets::IER, 0);
        self.set(offsets::IER, INTERRUPTS.bits());
    }

    /// Takes a good byte; there is room for it.
    fn accept(&mut self, byte: u8, ring: &ArrayQueue<u8>) {
        self.stats.bytes += 1;
        if self.is_key_caught && byte == INTERRUPT_KEY {
            self.is_key_pressed = true;
        } else {
            let _ = ring.push(byte); // not full
        }
    }

    /// The ring is full: makes the sender wait.
    fn hold(&mut self) {
        self.is_held = true;
        self.stats.holds += 1;
        self.set(offsets::IER, 0);
        self.set(offsets::MCR, HELD.bits());
    }

    /// Lets the sender send. If bytes are waiting, the interrupt comes at once.
    fn release(&mut self) {
        self.is_held = false;
        self.set(offsets::MCR, OPEN.bits());
        self.set(offsets::IER, INTERRUPTS.bits());
    }

    fn set(&mut self, register: usize, value: u8) {
        if let Some(port) = &mut self.port {
            port.set(register, value);
        }
    }
}

#[cfg(test)]
mod tests;
