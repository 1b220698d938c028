//! Devices that lie: fw_cfg, PCI, the disk's ring, the screen, the serial port.
//!
//! Each takes bytes for what the registers of the device say.

use super::{Bytes, assert_line};
use bootloader_api::info::{FrameBufferInfo, PixelFormat};
use runnext::internals::drivers::virtio::slots::SLOTS;
use runnext::internals::parsers::TAKE_MAX;
use runnext::internals::parsers::{Address, Answer, Device, RING, Slots, functions, structure};
use runnext::internals::parsers::{Cell, Color, FileError, FwCfg, Input, Registers, Screen, Sink};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use uart_16550::backend::Backend;
use virtio_drivers::transport::pci::bus::ConfigurationAccess;

/// QEMU's device: its items are the input, one after the other and then its last
/// byte for ever.
struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    reads: usize,
}

impl Registers for &mut Items<'_> {
    fn select(&mut self, item: u16) {
        // The signature, the directory and everything else.
        self.at = match item {
            0 => 0,
            0x19 => 4,
            other => usize::from(other),
        };
    }

    fn read(&mut self) -> u8 {
        self.reads += 1;
        let byte = self.bytes.get(self.at).or(self.bytes.last());
        self.at += 1;
        byte.copied().unwrap_or(0xff)
    }
}

/// A file is no longer than was asked for, and the search has an end.
pub fn fw_cfg(bytes: &[u8]) -> bool {
    const MOST: usize = 100;
    let mut items = Items { bytes, at: 0, reads: 0 };
    let Some(mut fw_cfg) = FwCfg::probe_on(&mut items) else { return false };
    let is_found = match fw_cfg.file("opt/runnext/cmdline", MOST) {
        Ok(contents) => {
            assert!(contents.len() <= MOST);
            true
        }
        Err(FileError::TooLarge(size)) => {
            assert!(size as usize > MOST);
            false
        }
        Err(_) => false,
    };
    assert!(items.reads <= 8 + 64 * 1024 + MOST);
    is_found
}

/// A directory of two files.
pub fn fw_cfgs() -> Vec<Vec<u8>> {
    let mut bytes = b"QEMU\0\0\0\x02".to_vec();
    for (name, size, item) in [("etc/e820", 4u32, 0x20u16), ("opt/runnext/cmdline", 20, 0x90)] {
        bytes.extend(size.to_be_bytes());
        bytes.extend(item.to_be_bytes());
        bytes.extend([0; 2]);
        let mut field = [0; 56];
        field[..name.len()].copy_from_slice(name.as_bytes());
        bytes.extend(field);
    }
    bytes.resize(0x90, 0);
    bytes.extend(b"program=shell log=info ");
    [bytes].to_vec()
}

/// Configuration space of one function: 256 bytes, and then for each of its six
/// address registers which bits can be written.
struct OneFunction {
    words: RefCell<[u32; 64]>,
    writable: [u32; 6],
}

const FIRST_BAR: usize = 4;

impl OneFunction {
    fn new(bytes: &[u8]) -> OneFunction {
        let word = |index: usize| {
            let word = bytes.get(4 * index..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u32::from_le_bytes(*word))
        };
        let words = std::array::from_fn(word);
        OneFunction { words: RefCell::new(words), writable: std::array::from_fn(|i| word(64 + i)) }
    }

    fn bars(&self) -> [u32; 6] {
        std::array::from_fn(|i| self.words.borrow()[FIRST_BAR + i])
    }
}

impl ConfigurationAccess for &OneFunction {
    fn read_word(&self, _: Address, register: u8) -> u32 {
        assert!(register.is_multiple_of(4));
        self.words.borrow()[usize::from(register / 4)]
    }

    fn write_word(&mut self, _: Address, register: u8, value: u32) {
        let index = usize::from(register / 4);
        let bar = index.checked_sub(FIRST_BAR).and_then(|i| self.writable.get(i));
        // Of the command, the half that is the status is the device's.
        let mask = bar.copied().unwrap_or(if index == 1 { 0xffff } else { u32::MAX });
        let old = self.words.borrow()[index];
        self.words.borrow_mut()[index] = value & mask | old & !mask;
    }

    #[expect(unsafe_code, reason = "so the trait has it; no promise is needed here")]
    unsafe fn unsafe_clone(&self) -> Self {
        self
    }
}

/// Lists have an end, regions do not wrap around, structures are inside of them,
/// and address registers are as they were when all was looked at.
pub fn pci(bytes: &[u8]) -> bool {
    let function = OneFunction::new(bytes);
    let before = function.bars();
    let device = Device::new(&function, Address { bus: 0, device: 1, function: 0 });
    let capabilities = device.capabilities();
    for capability in capabilities.iter().flatten() {
        assert!(capability.offset >= 64 && capability.offset.is_multiple_of(4));
    }
    for index in 0..8 {
        match device.memory_bar(index) {
            Ok(region) => {
                assert!(region.bytes > 0 && region.address.checked_add(region.bytes).is_some());
            }
            Err(error) => assert_line(&error.to_string(), 80),
        }
    }
    let mut is_found = false;
    for kind in 1..=5 {
        match structure(&device, kind) {
            Ok(Some((at, region))) => {
                assert!(
                    at >= 64
                        && region.bytes > 0
                        && region.address.checked_add(region.bytes).is_some()
                );
                is_found = true;
            }
            Ok(None) => {}
            Err(error) => assert_line(&error.to_string(), 80),
        }
    }
    if let Err(error) = device.message_table() {
        assert_line(&error.to_string(), 80);
    }
    assert!(device.interrupt_line().is_none_or(|line| line < 16));
    assert_eq!(function.bars(), before, "an address register was left changed");
    is_found
}

/// A virtio disk as QEMU has it: MSI-X, and four structures in one memory.
pub fn pcis() -> Vec<Vec<u8>> {
    let mut words = [0u32; 70];
    words[0] = 0x1042_1af4;
    words[1] = 0x0010_0006; // it has a list of capabilities
    words[FIRST_BAR + 1] = 0xfebd_1000;
    words[FIRST_BAR + 4] = 0xfe00_000c; // 64 bits wide
    words[0x34 / 4] = 0x98;
    words[0x3c / 4] = 0x010b;
    words[0x98 / 4] = 0x0001_8411; // MSI-X, two messages, in the second memory
    words[0x9c / 4] = 1;
    let mut next = 0u32;
    for (kind, at) in [(1u32, 0x40usize), (3, 0x50), (4, 0x60), (2, 0x70)] {
        let bytes = if kind == 2 { 20 } else { 16 };
        words[at / 4] = kind << 24 | bytes << 16 | next << 8 | 9;
        words[at / 4 + 1] = 4;
        words[at / 4 + 2] = (kind - 1) * 0x1000;
        words[at / 4 + 3] = 0x1000;
        next = at as u32;
    }
    words[0x80 / 4] = 4; // the distance of its bells
    words[0x84 / 4] = next << 8 | 0x05;
    words[0x98 / 4] = words[0x98 / 4] & !0xff00 | 0x84 << 8;
    words[64..].copy_from_slice(&[0, !0xfff, 0, 0, !0x3fff, u32::MAX]);
    [words.iter().flat_map(|word| word.to_le_bytes()).collect()].to_vec()
}

/// Functions by their place, five bytes each: bus, device and function, header,
/// secondary bus, vendor. Reads are counted.
struct Bus<'a> {
    bytes: &'a [u8],
    reads: AtomicUsize,
}

impl ConfigurationAccess for &Bus<'_> {
    fn read_word(&self, at: Address, register: u8) -> u32 {
        self.reads.fetch_add(1, Relaxed);
        let place = [at.bus, at.device << 3 | at.function];
        let found = self.bytes.as_chunks::<5>().0.iter().find(|entry| entry[..2] == place);
        match (found, register) {
            (None, _) => u32::MAX,
            (Some(entry), 0) => 0x1001_0000 | (u32::from(entry[4] & 1) * 0x1af4),
            (Some(entry), 0x0c) => u32::from(entry[2]) << 16,
            (Some(entry), 0x18) => u32::from(entry[3]) << 8,
            _ => 0,
        }
    }

    fn write_word(&mut self, _: Address, _: u8, _: u32) {}

    #[expect(unsafe_code, reason = "so the trait has it; no promise is needed here")]
    unsafe fn unsafe_clone(&self) -> Self {
        self
    }
}

/// Every bus is looked at once, whatever bridges say.
pub fn buses(bytes: &[u8]) -> bool {
    let bus = Bus { bytes, reads: AtomicUsize::new(0) };
    let found = functions(&&bus, 0x1af4);
    assert!(bus.reads.load(Relaxed) <= 256 * 256 * 4);
    let mut places: Vec<_> = found.iter().map(|(at, _)| (at.bus, at.device, at.function)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), found.len(), "a function was found twice");
    !found.is_empty()
}

/// Bridges in a row, and in a circle.
pub fn bus_maps() -> Vec<Vec<u8>> {
    let row = [[0, 8, 0, 0, 1], [0, 16, 1, 1, 0], [1, 0, 0x81, 2, 0], [2, 9, 0, 0, 1]];
    let circle = [[0, 8, 1, 1, 1], [1, 8, 1, 2, 1], [2, 8, 1, 0, 1], [2, 16, 1, 2, 0]];
    [row.concat(), circle.concat()].to_vec()
}

/// A disk that answers what it likes: each slot is somebody's at every moment, and
/// answers to nothing are seen. A step is a byte for what, and one for which.
pub fn slots(steps: &[u8]) -> bool {
    let mut slots = Slots::all_idle();
    // What the driver has; what is out, by its head, and whether a G waits for it.
    let (mut held, mut done): (Vec<usize>, Vec<usize>) = ((0..SLOTS).collect(), Vec::new());
    let mut out: Vec<(u16, usize, bool)> = Vec::new();
    let mut answers = 0;
    for &[what, which] in steps.as_chunks().0 {
        let pick = |list: usize| usize::from(which) % list.max(1);
        match what % 6 {
            2 if !held.is_empty() => {
                let head = u16::from(which) % RING as u16;
                if out.iter().any(|(other, ..)| *other == head) {
                    continue; // our own side does not use a head twice
                }
                let slot = held.swap_remove(pick(held.len()));
                slots.send(slot, head);
                out.push((head, slot, true));
            }
            3 => {
                // Any head, also one that is not out; all 65,536 of them.
                let head = u16::from(which) | u16::from(what & 0x80) << 8;
                let known = out.iter().position(|(other, ..)| *other == head);
                match (slots.completed(head), known) {
                    (Ok(Answer::Wake(slot)), Some(at)) => {
                        assert_eq!(out.swap_remove(at), (head, slot, true));
                        done.push(slot);
                    }
                    (Ok(Answer::Returned(slot)), Some(at)) => {
                        assert_eq!(out.swap_remove(at), (head, slot, false));
                        held.push(slot);
                    }
                    (Err(_), None) => {}
                    (answer, known) => panic!("{answer:?} to {known:?}"),
                }
                answers += 1;
            }
            4 if !out.is_empty() => {
                let at = pick(out.len());
                if out[at].2 {
                    out[at].2 = false;
                    assert!(!slots.abandon(out[at].1));
                }
            }
            5 if !done.is_empty() => {
                let slot = done.swap_remove(pick(done.len()));
                assert!(slots.collect(slot));
                held.push(slot);
            }
            _ => {}
        }
        assert_eq!(slots.in_flight(), out.len());
        assert_eq!(held.len() + out.len() + done.len(), SLOTS);
    }
    answers > 0
}

/// Requests that are answered, given up, and answered twice.
pub fn steps() -> Vec<Vec<u8>> {
    let good = [0, 0, 2, 5, 3, 5, 5, 0, 1, 0].repeat(20);
    let late = [0, 0, 2, 9, 4, 0, 3, 9, 3, 9, 0, 0].repeat(20);
    let full = [0, 1, 2, 0].repeat(60);
    [good, late, full].to_vec()
}

/// A screen as the loader describes it, and text for it: drawn inside, or refused.
pub fn screen(bytes: &[u8]) -> bool {
    let mut rest = Bytes(bytes);
    let mut number = || Some(usize::from(u16::from_le_bytes(rest.take()?)));
    let (Some(width), Some(height), Some(stride), Some(kinds)) =
        (number(), number(), number(), number())
    else {
        return false;
    };
    // Numbers near the largest there is, too.
    let far = |n: usize| if n >= 0xfff0 { usize::MAX - (0xffff - n) } else { n };
    let format = match kinds % 5 {
        0 => PixelFormat::Rgb,
        1 => PixelFormat::Bgr,
        2 => PixelFormat::U8,
        _ => PixelFormat::Unknown {
            red_position: (kinds >> 8) as u8,
            green_position: 8,
            blue_position: 200,
        },
    };
    let mut pixels = vec![0; (width.min(256) * height.min(200) * 4).min(1 << 17)];
    let info = FrameBufferInfo {
        byte_len: far(stride).wrapping_mul(far(height)),
        width: far(width),
        height: far(height),
        stride: far(stride),
        bytes_per_pixel: kinds >> 4 & 7,
        pixel_format: format,
    };
    let mut cells = [Cell::BLANK; 500];
    let Some(mut screen) = Screen::new(&mut pixels, info, &mut cells) else { return false };
    let (columns, rows) = screen.size();
    assert!(columns > 0 && rows > 0 && columns * rows <= 500);
    screen.write(rest.0, Color::Normal);
    screen.draw(usize::MAX);
    true
}

/// Small screens with text.
pub fn screens() -> Vec<Vec<u8>> {
    let made = |numbers: [u16; 4]| {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.extend(
            "hello\r\n\twide gr\u{fc}\u{df}e \u{8}\x1b[31m and more than a line\n"
                .repeat(4)
                .bytes(),
        );
        bytes
    };
    [made([200, 100, 208, 0x41]), made([64, 64, 64, 0x30]), made([0xffff, 64, 64, 0x12])].to_vec()
}

/// A serial port whose registers say what the input says.
struct Port {
    bytes: Vec<u8>,
    reads: Arc<AtomicUsize>,
}

impl Backend for Port {
    #[expect(unsafe_code, reason = "so the trait has it; no register is touched")]
    unsafe fn read(&mut self, _: u8) -> u8 {
        let at = self.reads.fetch_add(1, Relaxed);
        self.bytes.get(at % self.bytes.len().max(1)).copied().unwrap_or(0)
    }

    #[expect(unsafe_code, reason = "so the trait has it; no register is touched")]
    unsafe fn write(&mut self, _: u8, _: u8) {}
}

/// An interrupt is over after so many looks at the port, and nothing is read that
/// did not come.
pub fn uart(bytes: &[u8]) -> bool {
    let reads = Arc::new(AtomicUsize::new(0));
    let input = Input::closed();
    input.open(Port { bytes: bytes.to_vec(), reads: reads.clone() });
    let mut taken = 0;
    for _ in 0..80 {
        let before = reads.load(Relaxed);
        input.on_interrupt();
        let looks = reads.load(Relaxed) - before;
        assert!(looks <= 2 * TAKE_MAX + 8, "{looks} looks in one interrupt");
    }
    let stats = input.stats();
    // As much as there is, so that nobody has to wait for more.
    while taken < stats.bytes && input.trouble().is_none() {
        let mut some = [0; 50];
        let Ok(count) = input.read(&mut some[..(stats.bytes - taken).min(50) as usize], None)
        else {
            break;
        };
        taken += count as u64;
    }
    assert!(stats.bytes <= 80 * TAKE_MAX as u64);
    taken > 0
}

/// A port with bytes, with errors, and one that has gone.
pub fn uarts() -> Vec<Vec<u8>> {
    let good = [0x61, b'a', 0x61, b'b', 0x60, 0].to_vec();
    let garbled = [0x61, b'a', 0x6f, b'b', 0x7b, 0, 0x60, 0, 0x61, 3].to_vec();
    let gone = [0x61, b'a', 0xff].to_vec();
    [good, garbled, gone].to_vec()
}
