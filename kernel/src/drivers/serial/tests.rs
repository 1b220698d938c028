//! The writer against a model UART: probes, FIFO loads, a port that is stuck.

use super::*;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::collections::VecDeque;

/// The fault of the model UART.
#[derive(PartialEq, Clone, Copy)]
enum Fault {
    Nothing,
    /// No device: reads give 0xff.
    Absent,
    /// Scratch register works, transmitter never empties.
    NeverEmpty,
    /// Loopback bytes get lost.
    Deaf,
    /// The line status says "data ready" for ever.
    Babbling,
    /// Loopback bytes come back changed.
    Garbling,
    /// The modem lines do not come back in loopback.
    Unwired,
}

struct Model {
    fault: Fault,
    scratch: u8,
    lcr: u8,
    mcr: u8,
    divisor: [u8; 2],
    fifo_on: bool,
    loopback: VecDeque<u8>,
    /// Bytes typed at the other end, in loopback too, as in QEMU.
    typed: VecDeque<u8>,
    sent: Vec<u8>,
    in_fifo: usize,
    /// Line status reads until the FIFO is empty again; `None`: never.
    drain_after: Option<u32>,
    busy: u32,
    overruns: usize,
    reads: u32,
    /// The receiver bits of the line status.
    receiver: LSR,
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
        typed: VecDeque::new(),
        sent: Vec::new(),
        in_fifo: 0,
        drain_after: Some(3),
        busy: 0,
        overruns: 0,
        reads: 0,
        receiver: LSR::empty(),
    }
}

impl Model {
    fn line_status(&mut self) -> u8 {
        let mut lsr = core::mem::replace(&mut self.receiver, LSR::empty());
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
        let has_come = !self.loopback.is_empty() || !self.typed.is_empty();
        if has_come || self.fault == Fault::Babbling {
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
            0 => self.typed.pop_front().or_else(|| self.loopback.pop_front()).unwrap_or(0),
            2 if self.fifo_on => 0xc1,
            3 => self.lcr,
            4 => self.mcr,
            5 => self.line_status(),
            // In loopback: OUT2, OUT1, DTR, RTS.
            6 if self.mcr & 0x10 != 0 && self.fault != Fault::Unwired => {
                self.mcr << 4 & 0xc0 | self.mcr << 5 & 0x20 | self.mcr << 3 & 0x10
            }
            6 => 0xb0,
            7 => self.scratch,
            _ => 0,
        }
    }

    unsafe fn write(&mut self, offset: u8, value: u8) {
        match offset {
            0 | 1 if self.lcr & 0x80 != 0 => self.divisor[offset as usize] = value,
            0 => self.transmit(value),
            2 => {
                // A change of mode, or a reset, drops received bytes.
                if self.fifo_on != (value & 1 != 0) || value & 2 != 0 {
                    self.typed.clear();
                }
                self.fifo_on = value & 1 != 0;
            }
            3 => self.lcr = value,
            4 => self.mcr = value,
            7 => self.scratch = value,
            _ => {}
        }
    }
}

fn write(serial: &mut Serial<&mut Model>, text: &[u8]) {
    serial.write(text, Color::Normal);
}

#[test]
fn working_port_is_set_to_115200_8n1_with_fifo() {
    let mut model = model(Fault::Nothing);
    assert!(Serial::probe_on(&mut model, |_| {}).is_some());
    assert_eq!(model.divisor, [1, 0]);
    assert_eq!(model.lcr, 0b11);
    assert!(model.fifo_on);
    assert_eq!(model.mcr & 0x10, 0, "left in loopback mode");
    assert!(model.sent.is_empty(), "the probe is silent on the wire");
}

std::thread_local! {
    static KEPT: core::cell::RefCell<Vec<u8>> = const { core::cell::RefCell::new(Vec::new()) };
}

#[test]
fn what_is_typed_before_the_probe_neither_hides_the_port_nor_is_lost() {
    let mut model = model(Fault::Nothing);
    model.typed.extend(b"echo typed early\n");
    let keep = |byte| KEPT.with_borrow_mut(|kept| kept.push(byte));
    assert!(Serial::probe_on(&mut model, keep).is_some());
    assert_eq!(KEPT.take(), b"echo typed early\n");
    assert_eq!(model.mcr & 0x10, 0, "left in loopback mode");
}

#[test]
fn a_port_that_types_all_the_time_must_have_its_modem_lines() {
    for (fault, is_port) in [(Fault::Nothing, true), (Fault::Unwired, false)] {
        let mut model = model(fault);
        model.typed.extend([b'x'; 10_000]);
        assert_eq!(Serial::probe_on(&mut model, |_| {}).is_some(), is_port);
    }
}

#[test]
fn absent_or_broken_port_is_refused_within_the_limit() {
    for fault in [Fault::Absent, Fault::NeverEmpty, Fault::Deaf, Fault::Garbling] {
        let mut model = model(fault);
        assert!(Serial::probe_on(&mut model, |_| {}).is_none());
        assert!(model.reads <= PROBE_READS + 10);
    }
}

#[test]
fn a_port_that_always_says_data_ready_is_good_to_print_on() {
    let mut model = model(Fault::Babbling);
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("its modem lines answer");
    write(&mut serial, b"heard");
    assert_eq!(model.sent, b"heard");
    assert!(model.reads <= PROBE_READS + 10);
}

#[test]
fn line_feeds_get_a_carriage_return() {
    let mut model = model(Fault::Nothing);
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("model works");
    write(&mut serial, b"\none\ntwo");
    assert_eq!(model.sent, b"\r\none\r\ntwo");
}

#[test]
fn long_text_fills_the_fifo_and_never_overruns_it() {
    let mut model = model(Fault::Nothing);
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("model works");
    let text = "0123456789abcdef\n".repeat(100);
    write(&mut serial, text.as_bytes());
    assert_eq!(model.sent, text.replace('\n', "\r\n").into_bytes());
    assert_eq!(model.overruns, 0);
}

#[test]
fn status_is_read_once_for_each_fifo_load() {
    let mut model = model(Fault::Nothing);
    model.drain_after = Some(0);
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("model works");
    let before = serial.port.0.reads;
    write(&mut serial, &[b'x'; 15 * 20]);
    let reads = serial.port.0.reads - before;
    assert!(reads <= 25, "{reads} reads for 20 loads");
}

#[test]
fn stuck_port_loses_bytes_in_bounded_time_then_dies_and_can_come_back() {
    let mut model = model(Fault::Nothing);
    model.drain_after = None;
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("model works");
    for _ in 0..100 {
        write(&mut serial, b"0123456789");
    }
    assert_eq!(serial.port.0.sent, b"0123456789", "the first load went into the FIFO");
    assert!(serial.is_dead());
    assert!(serial.port.0.reads < SEND_POLLS * 2);

    serial.port.0.drain_after = Some(0);
    write(&mut serial, b"again");
    assert!(!serial.is_dead());
    assert!(model.sent.ends_with(b"again"));
}

#[test]
fn what_the_writer_sees_of_the_receiver_is_passed_on() {
    static SEEN: AtomicU8 = AtomicU8::new(0);
    let mut model = model(Fault::Nothing);
    let mut serial = Serial::probe_on(&mut model, |_| {}).expect("model works");
    serial.listener = Some(|seen| _ = SEEN.fetch_or(seen.bits(), Relaxed));
    write(&mut serial, b"nothing has come");
    assert_eq!(SEEN.load(Relaxed), 0);
    let came = LSR::DATA_READY | LSR::OVERRUN_ERROR;
    serial.port.0.receiver = came;
    write(&mut serial, b"x");
    assert_eq!(SEEN.load(Relaxed), came.bits(), "looking has cleared it");
}
