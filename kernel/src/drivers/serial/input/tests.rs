//! The receiver against a model UART: FIFO, overrun, garbage, edges.

use super::*;
use crate::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use uart_16550::spec::FIFO_SIZE;

/// The receiving half of a 16550, and the edge that its line makes.
#[derive(Default)]
struct Model {
    /// Each byte with its errors.
    fifo: VecDeque<(u8, LSR)>,
    has_overrun: bool,
    /// Bytes that come when there is room, as from an emulator's pipe.
    pipe: VecDeque<u8>,
    is_stuck: bool,
    has_gone: bool,
    ier: u8,
    mcr: u8,
    line: bool,
    /// Rising edges of the line.
    edges: usize,
    reads: usize,
}

impl Model {
    /// A byte arrives on the line, whether there is room or not.
    fn receive(&mut self, byte: u8, errors: LSR) {
        if self.fifo.len() == FIFO_SIZE {
            self.has_overrun = true;
        } else {
            self.fifo.push_back((byte, errors));
        }
        self.update();
    }

    fn refill(&mut self) {
        while self.fifo.len() < FIFO_SIZE
            && let Some(byte) = self.pipe.pop_front()
        {
            self.fifo.push_back((byte, LSR::empty()));
        }
    }

    fn update(&mut self) {
        let pending = !self.fifo.is_empty() || self.has_overrun || self.is_stuck;
        let line = pending && IER::from_bits_retain(self.ier).contains(IER::DATA_READY);
        self.edges += usize::from(line && !self.line);
        self.line = line;
    }

    fn line_status(&mut self) -> LSR {
        let mut lsr = LSR::THR_EMPTY | LSR::TRANSMITTER_EMPTY;
        if let Some((_, errors)) = self.fifo.front_mut() {
            lsr |= LSR::DATA_READY | core::mem::replace(errors, LSR::empty());
        }
        if core::mem::take(&mut self.has_overrun) {
            lsr |= LSR::OVERRUN_ERROR;
        }
        if self.is_stuck {
            lsr |= LSR::DATA_READY;
        }
        lsr
    }
}

#[derive(Clone, Default)]
struct Port(Arc<Mutex<Model>>);

impl Port {
    fn with<R>(&self, f: impl FnOnce(&mut Model) -> R) -> R {
        f(&mut self.0.lock().expect("no panic"))
    }

    /// Serves interrupts until the line is quiet, as a CPU does. True if at least one came.
    fn interrupt(&self, input: &Input<Port>, served: &mut usize) -> bool {
        let mut came = false;
        while self.with(|model| model.edges) > *served {
            *served += 1;
            came = true;
            input.on_interrupt();
        }
        came
    }
}

impl Backend for Port {
    unsafe fn read(&mut self, offset: u8) -> u8 {
        self.with(|model| {
            model.reads += 1;
            if model.has_gone {
                return 0xff;
            }
            let value = match offset as usize {
                offsets::DATA => {
                    let byte = model.fifo.pop_front().map_or(0x55, |(byte, _)| byte);
                    model.refill();
                    byte
                }
                offsets::LSR => model.line_status().bits(),
                _ => 0,
            };
            model.update();
            value
        })
    }

    unsafe fn write(&mut self, offset: u8, value: u8) {
        self.with(|model| {
            match offset as usize {
                offsets::IER => model.ier = value,
                offsets::MCR => model.mcr = value,
                other => panic!("register {other} is the writer's"),
            }
            model.update();
        });
    }
}

fn open() -> (Port, Input<Port>) {
    let (port, input) = (Port::default(), Input::closed());
    input.open(port.clone());
    (port, input)
}

fn receive(port: &Port, bytes: &[u8]) {
    port.with(|model| bytes.iter().for_each(|&byte| model.receive(byte, LSR::empty())));
}

/// All bytes that can be read without waiting.
fn read_all(input: &Input<Port>) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1000]);
    while let Ok(n) = input.read(&mut buffer, Some(0)) {
        all.extend_from_slice(&buffer[..n]);
    }
    all
}

#[test]
fn bytes_of_a_burst_are_read_in_order() {
    let (port, input) = open();
    receive(&port, b"sixteen bytes...");
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(read_all(&input), b"sixteen bytes...");
    let InputStats { interrupts, bytes, overruns, .. } = input.stats();
    assert_eq!((interrupts, bytes, overruns), (1, 16, 0));
}

#[test]
fn what_a_script_types_is_read_as_what_is_received() {
    let (port, input) = open();
    receive(&port, b"one ");
    input.on_interrupt();
    assert_eq!(input.type_in(b"two "), 4);
    receive(&port, b"three");
    input.on_interrupt();
    assert_eq!(read_all(&input), b"one two three");
    assert_eq!(input.type_in(&[b'x'; RING_SIZE + 7]), RING_SIZE, "all that there is room for");
    input.catch_key(true);
    assert_eq!(read_all(&input).len(), RING_SIZE);
    assert_eq!(input.type_in(b"a\x03b"), 3);
    assert_eq!(input.wait_for_key(None), Ok(true));
    assert_eq!(read_all(&input), b"ab");
}

#[test]
fn a_spurious_interrupt_brings_nothing() {
    let (_port, input) = open();
    input.on_interrupt();
    assert_eq!(input.read(&mut [0; 4], Some(0)), Err(InputError::TimedOut));
    let InputStats { interrupts, bytes, .. } = input.stats();
    assert_eq!((interrupts, bytes), (1, 0));
}

#[test]
fn an_overrun_is_counted_whoever_sees_it() {
    let (port, input) = open();
    receive(&port, b"0123456789abcdefX");
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(read_all(&input), b"0123456789abcdef");
    assert_eq!(input.stats().overruns, 1);
    input.on_line_status(LSR::OVERRUN_ERROR | LSR::DATA_READY);
    assert_eq!((input.stats().overruns, input.stats().bytes), (2, 16), "no byte was there");
}

#[test]
fn the_writers_look_takes_what_has_come() {
    let (port, input) = open();
    receive(&port, b"typed");
    input.on_line_status(LSR::DATA_READY);
    assert_eq!(read_all(&input), b"typed");
    // The edge was made before that, and its handler finds nothing.
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(input.stats().bytes, 5);
}

#[test]
fn garbled_bytes_and_breaks_are_counted_and_not_read() {
    let (port, input) = open();
    port.with(|model| {
        model.receive(b'a', LSR::empty());
        model.receive(0xe7, LSR::FRAMING_ERROR);
        model.receive(0xe8, LSR::PARITY_ERROR);
        model.receive(0, LSR::BREAK_INTERRUPT | LSR::FRAMING_ERROR);
        model.receive(0, LSR::empty());
        model.receive(b'b', LSR::empty());
    });
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(read_all(&input), b"a\0b");
    let InputStats { bytes, garbled, breaks, .. } = input.stats();
    assert_eq!((bytes, garbled, breaks), (3, 2, 1));
}

#[test]
fn every_byte_value_passes() {
    let (port, input) = open();
    let all: Vec<u8> = (0..=255).collect();
    let mut served = 0;
    for burst in all.chunks(7) {
        receive(&port, burst);
        port.interrupt(&input, &mut served);
    }
    assert_eq!(read_all(&input), all);
}

/// A pipe that refills the FIFO at once never lets the line fall: the handler
/// has to make the edges.
#[test]
fn a_fast_pipe_is_taken_in_turns_and_loses_nothing() {
    let (port, input) = open();
    let sent: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
    port.with(|model| {
        model.pipe = sent.iter().copied().collect();
        model.refill();
        model.update();
    });
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(read_all(&input), sent);
    let InputStats { interrupts, .. } = input.stats();
    assert!(interrupts >= (sent.len() / TAKE_MAX) as u64, "{interrupts} interrupts");
}

#[test]
fn a_full_ring_holds_the_sender_until_half_is_free() {
    let (port, input) = open();
    let sent: Vec<u8> = (0..3 * RING_SIZE).map(|n| (n / 3) as u8).collect();
    port.with(|model| {
        model.pipe = sent.iter().copied().collect();
        model.refill();
        model.update();
    });
    let mut served = 0;
    port.interrupt(&input, &mut served);
    let is_held = || port.with(|model| (model.ier, MCR::from_bits_retain(model.mcr)));
    assert_eq!(is_held(), (0, HELD), "the sender goes on");
    assert_eq!(input.stats().holds, 1);

    let mut read = vec![0; RING_SIZE / 2];
    assert_eq!(input.read(&mut read[1..], Some(0)), Ok(RING_SIZE / 2 - 1));
    assert_eq!(is_held().0, 0, "not half yet");
    assert_eq!(input.read(&mut read[..1], Some(0)), Ok(1));
    assert_eq!(is_held(), (INTERRUPTS.bits(), OPEN));
    read.rotate_left(1);
    while port.interrupt(&input, &mut served) {
        read.extend(read_all(&input));
    }
    assert_eq!(read, sent);
    assert_eq!(input.stats().overruns, 0);
}

#[test]
fn a_stuck_bit_costs_a_bounded_number_of_reads() {
    let (port, input) = open();
    port.with(|model| {
        model.is_stuck = true;
        model.update();
    });
    let before = port.with(|model| model.reads);
    input.on_interrupt();
    assert!(port.with(|model| model.reads) - before <= 2 * TAKE_MAX);
    // It continues while there is room, and not a read longer.
    port.interrupt(&input, &mut 0);
    assert_eq!(input.stats().bytes, RING_SIZE as u64);
    let reads = port.with(|model| model.reads);
    input.on_interrupt();
    input.on_line_status(LSR::DATA_READY);
    assert_eq!(port.with(|model| model.reads), reads);
}

#[test]
fn a_port_that_goes_away_ends_the_wait() {
    let (port, input) = open();
    receive(&port, b"x");
    assert!(port.interrupt(&input, &mut 0));
    port.with(|model| model.has_gone = true);
    input.on_interrupt();
    assert_eq!(input.read(&mut [0; 4], None), Ok(1), "what came before");
    assert_eq!(input.read(&mut [0; 4], None), Err(InputError::Gone));
}

#[test]
fn without_a_port_reading_is_an_error() {
    let input = Input::<Port>::closed();
    assert_eq!(input.read(&mut [0; 4], None), Err(InputError::NoPort));
    input.refuse(InputError::NoInterrupt);
    assert_eq!(input.read(&mut [0; 4], None), Err(InputError::NoInterrupt));
    input.on_interrupt();
    input.on_line_status(LSR::DATA_READY);
    assert_eq!(input.stats().bytes, 0);
}

#[test]
fn reading_without_waiting_gives_what_is_there_or_an_error() {
    let (port, input) = open();
    let mut buffer = [0; 4];
    assert_eq!(input.try_read(&mut buffer), Err(InputError::WouldBlock));
    assert_eq!(input.wait_for_byte(Some(0)), Err(InputError::TimedOut));
    assert_eq!(input.try_read(&mut []), Ok(0), "no byte is wanted");
    receive(&port, b"typed");
    assert!(port.interrupt(&input, &mut 0));
    assert_eq!(input.wait_for_byte(Some(0)), Ok(()));
    assert_eq!(input.wait_for_byte(Some(0)), Ok(()), "none was taken");
    assert_eq!((input.try_read(&mut buffer), &buffer), (Ok(4), b"type"));
    assert_eq!((input.try_read(&mut buffer), buffer[0]), (Ok(1), b'd'));
    assert_eq!(input.try_read(&mut buffer), Err(InputError::WouldBlock));
    assert_eq!(input.wait_for_byte(Some(0)), Err(InputError::TimedOut), "what came was taken");
    let none = Input::<Port>::closed();
    assert_eq!(none.try_read(&mut buffer), Err(InputError::NoPort));
    assert_eq!(none.wait_for_byte(None), Err(InputError::NoPort));
}

#[test]
fn a_reader_that_waits_gets_what_comes() {
    let (port, input) = open();
    let input: &'static Input<Port> = Box::leak(Box::new(input));
    let reader = go(|| {
        let mut got = Vec::new();
        while got.len() < 300 {
            let mut buffer = [0; 64];
            let n = input.read(&mut buffer, None).expect("bytes come");
            got.extend_from_slice(&buffer[..n]);
        }
        got
    });
    let sent: Vec<u8> = (0..300u32).map(|n| n as u8).collect();
    let mut served = 0;
    for burst in sent.chunks(10) {
        receive(&port, burst);
        port.interrupt(input, &mut served);
    }
    assert_eq!(reader.join(), Ok(sent));
}

#[test]
fn ctrl_c_ends_a_wait_for_it_and_is_read_by_nobody_while_it_is_caught() {
    let (port, input) = open();
    let mut served = 0;
    input.catch_key(true);
    receive(&port, b"a\x03b");
    port.interrupt(&input, &mut served);
    assert_eq!(input.wait_for_key(None), Ok(true));
    assert_eq!(input.wait_for_key(Some(0)), Err(TimedOut), "it was pressed once");
    let mut bytes = [0; 8];
    assert_eq!(input.read(&mut bytes, None), Ok(2));
    assert_eq!(&bytes[..2], b"ab");

    // Not caught any more: the waiting G is told, and Ctrl-C is an ordinary byte.
    input.catch_key(false);
    assert_eq!(input.wait_for_key(None), Ok(false));
    receive(&port, b"\x03");
    port.interrupt(&input, &mut served);
    assert_eq!(input.read(&mut bytes, None), Ok(1));
    assert_eq!(bytes[0], 3);
}

#[test]
fn who_waits_for_ctrl_c_is_woken_when_it_is_no_longer_caught() {
    let (_port, input) = open();
    let input = Arc::new(input);
    input.catch_key(true);
    let waiter = std::thread::spawn({
        let input = input.clone();
        move || input.wait_for_key(None)
    });
    // Most likely it waits by then; if it does not, it returns all the same.
    std::thread::sleep(std::time::Duration::from_millis(50));
    input.catch_key(false);
    assert_eq!(waiter.join().expect("no panic"), Ok(false));
}
