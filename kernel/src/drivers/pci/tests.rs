//! Valid and invalid configuration spaces.

use super::*;
use std::cell::RefCell;
use std::collections::HashMap;

/// Configuration space in memory: words by address and register. An address register knows
/// its size: the bits that can be written.
#[derive(Default)]
pub struct Fake {
    words: RefCell<HashMap<(u8, u8, u8, u8), u32>>,
    writable: HashMap<(u8, u8), u32>,
}

impl Fake {
    pub fn set(&mut self, (bus, device, function): (u8, u8, u8), register: u8, word: u32) {
        self.words.get_mut().insert((bus, device, function, register), word);
    }

    /// A plain function at an address of its own.
    fn function(&mut self, at: (u8, u8, u8), id: u32, header: u8) {
        self.set(at, 0, id);
        self.set(at, HEADER_TYPE, u32::from(header) << 16);
    }

    /// A bridge to `secondary`.
    fn bridge(&mut self, at: (u8, u8, u8), secondary: u8) {
        self.function(at, 0x0001_8086, BRIDGE);
        self.set(at, BUSES, u32::from(secondary) << 8);
    }

    /// Gives device 1 of bus 0 memory of `bytes` bytes (a power of two).
    pub fn bar(&mut self, index: u8, address: u32, bytes: u32) {
        self.set((0, 1, 0), 0x10 + 4 * index, address);
        self.writable.insert((1, 0x10 + 4 * index), !(bytes - 1));
    }
}

impl ConfigurationAccess for &Fake {
    fn read_word(&self, at: Address, register: u8) -> u32 {
        assert!(at.valid() && register.is_multiple_of(4));
        let key = (at.bus, at.device, at.function, register);
        let is_there = self.words.borrow().contains_key(&(at.bus, at.device, at.function, 0));
        match self.words.borrow().get(&key) {
            Some(word) => *word,
            None => u32::MAX * u32::from(!is_there),
        }
    }

    fn write_word(&mut self, at: Address, register: u8, value: u32) {
        let mask = self.writable.get(&(at.device, register)).copied().unwrap_or(u32::MAX);
        let key = (at.bus, at.device, at.function, register);
        let mut words = self.words.borrow_mut();
        let fixed = words.get(&key).copied().unwrap_or(0) & 0xf & !mask;
        words.insert(key, value & mask | fixed);
    }

    unsafe fn unsafe_clone(&self) -> Self {
        self
    }
}

const AT: (u8, u8, u8) = (0, 1, 0);
const OURS: u32 = 0x1001_1af4;

/// Device 1 of bus 0, with a list of capabilities: where, id, next, private.
pub fn with_capabilities(list: &[(u8, u8, u8, u16)]) -> Fake {
    let mut fake = Fake::default();
    fake.function(AT, OURS, 0);
    fake.set(AT, STATUS_COMMAND, 1 << 20);
    fake.set(AT, FIRST_CAPABILITY, list.first().map_or(0, |first| first.0.into()));
    for &(at, id, next, private) in list {
        fake.set(AT, at, u32::from(private) << 16 | u32::from(next) << 8 | u32::from(id));
    }
    fake
}

pub fn device(fake: &Fake) -> Device<&Fake> {
    Device::new(fake, Address { bus: 0, device: 1, function: 0 })
}

fn found(fake: &Fake) -> Vec<String> {
    functions(&fake, 0x1af4).iter().map(|(at, _)| at.to_string()).collect()
}

#[test]
fn functions_are_found_on_the_first_bus_and_behind_bridges() {
    let mut fake = Fake::default();
    fake.function((0, 3, 0), OURS, 0);
    fake.bridge((0, 4, 0), 1);
    fake.bridge((1, 0, 0), 7);
    fake.function((7, 31, 0), OURS, 0);
    fake.function((7, 2, 0), 0x1234_5678, 0);
    fake.function((9, 0, 0), OURS, 0);
    assert_eq!(found(&fake), ["00:03.0", "07:1f.0"], "nothing leads to bus 9");
}

#[test]
fn only_devices_that_say_so_have_more_functions() {
    let mut fake = Fake::default();
    for function in 0..8 {
        fake.function((0, 1, function), OURS, 0);
        fake.function((0, 2, function), OURS, 0x80);
        fake.function((0, 3, function), OURS, 0);
    }
    fake.words.get_mut().remove(&(0, 2, 5, 0));
    let found = found(&fake);
    assert_eq!(found.len(), 1 + 7 + 1, "{found:?}");
    assert!(!found.contains(&"00:02.5".into()));
}

#[test]
fn bridges_in_a_circle_are_crossed_once() {
    let mut fake = Fake::default();
    fake.bridge((0, 1, 0), 1);
    fake.bridge((1, 1, 0), 2);
    fake.bridge((2, 1, 0), 0);
    fake.bridge((2, 2, 0), 2);
    fake.function((2, 3, 0), OURS, 0);
    assert_eq!(found(&fake), ["02:03.0"]);
}

#[test]
fn an_empty_bus_has_nothing_on_it() {
    assert_eq!(found(&Fake::default()), [""; 0]);
}

#[test]
fn capabilities_are_listed_in_order() {
    let fake = with_capabilities(&[(0x40, 9, 0x60, 0x110), (0x60, MSIX, 0, 1)]);
    let list = device(&fake).capabilities().expect("a good list");
    let wanted = [
        Capability { id: 9, offset: 0x40, private: 0x110 },
        Capability { id: MSIX, offset: 0x60, private: 1 },
    ];
    assert_eq!(list, wanted);
}

#[test]
fn a_list_of_capabilities_in_a_circle_is_an_error() {
    for next in [0x40, 0x43, 0x60] {
        let fake = with_capabilities(&[(0x40, 9, 0x60, 0), (0x60, 9, next, 0)]);
        assert_eq!(device(&fake).capabilities(), Err(ENDLESS_LIST), "{next:#x}");
    }
}

#[test]
fn a_link_into_the_header_ends_the_list() {
    let fake = with_capabilities(&[(0x40, 9, 0x10, 0)]);
    assert_eq!(device(&fake).capabilities().map(|list| list.len()), Ok(1));
    let mut none = with_capabilities(&[(0x40, 9, 0, 0)]);
    none.set(AT, STATUS_COMMAND, 0);
    assert_eq!(device(&none).capabilities().map(|list| list.len()), Ok(0), "it says it has none");
}

#[test]
fn memory_has_the_size_of_its_register() {
    let mut fake = with_capabilities(&[]);
    fake.bar(0, 0xfebf_0000, 0x4000);
    fake.bar(1, 0xc001, 0x80); // ports
    fake.bar(2, 0, 0x1000); // not placed by the firmware
    fake.bar(5, 0xfe00_0004, 0x4000); // half of a 64-bit register
    let device = device(&fake);
    assert_eq!(device.memory_bar(0), Ok(Region { address: 0xfebf_0000, bytes: 0x4000 }));
    assert_eq!(device.read(0x10), 0xfebf_0000, "sizing has put the address back");
    for index in [1, 2, 3, 5] {
        assert_eq!(device.memory_bar(index), Err(ProbeError::NoMemoryBar(index)));
    }
    assert_eq!(device.read(0x24), 0xfe00_0004, "and has not touched what it cannot size");
    assert_eq!(device.memory_bar(6), Err(ProbeError::NoSuchBar(6)));
    assert_eq!(device.memory_bar(255), Err(ProbeError::NoSuchBar(255)));
}

#[test]
fn parts_of_memory_lie_inside() {
    let region = Region { address: 0x1000, bytes: 0x100 };
    assert_eq!(region.part(0x80, 0x80), Some(Region { address: 0x1080, bytes: 0x80 }));
    for (offset, bytes) in [(0, 0), (0, 0x101), (0x100, 1), (u32::MAX, 1), (1, u32::MAX)] {
        assert_eq!(region.part(offset, bytes), None, "{bytes} at {offset}");
    }
}

#[test]
fn a_table_of_messages_outside_of_its_memory_is_refused() {
    let table = |private, place| {
        let mut fake = with_capabilities(&[(0x40, MSIX, 0, private)]);
        fake.bar(1, 0xfe00_0000, 0x1000);
        fake.set(AT, 0x44, place);
        device(&fake).message_table().map(|table| (table.region.address, table.entries))
    };
    assert_eq!(table(1, 1), Ok((0xfe00_0000, 2)));
    assert_eq!(table(255, 1), Ok((0xfe00_0000, 256)), "it fills the memory");
    assert_eq!(table(256, 1), Err(ProbeError::OutsideBar(1)));
    assert_eq!(table(0, 0x1000 | 1), Err(ProbeError::OutsideBar(1)));
    assert_eq!(table(0, 0xffff_fff8 | 1), Err(ProbeError::OutsideBar(1)));
    assert_eq!(table(0, 7), Err(ProbeError::NoSuchBar(7)));
    assert_eq!(table(0, 0), Err(ProbeError::NoMemoryBar(0)));
}

#[test]
fn a_function_without_messages_or_with_half_a_capability_says_so() {
    let plain = with_capabilities(&[(0x40, 9, 0, 0)]);
    assert_eq!(device(&plain).message_table().map(drop), Err(NO_MESSAGES));
    let cut = with_capabilities(&[(0xf8, MSIX, 0, 0)]);
    assert_eq!(device(&cut).message_table().map(drop), Err(ProbeError::CutCapability(0xf8)));
}

#[test]
fn one_entry_of_the_table_is_open() {
    let mut memory = [0u32; 4 * 4];
    // SAFETY: the array outlives the window, and is not touched meanwhile.
    let table = unsafe { Window::new(core::ptr::NonNull::from(&mut memory).cast(), 64) };
    write_entries(&table, 4, (0x1_fee0_1000, 0x51));
    assert_eq!(memory[..4], [0xfee0_1000, 1, 0x51, 0]);
    assert_eq!([memory[7], memory[11], memory[15]], [1; 3], "the others are masked");
}

#[test]
fn a_line_is_believed_only_if_it_can_be_one() {
    let line = |word| {
        let mut fake = with_capabilities(&[]);
        fake.set(AT, INTERRUPT_LINE, word);
        device(&fake).interrupt_line()
    };
    assert_eq!(line(0x010b), Some(11));
    assert_eq!(line(0x000b), None, "no pin");
    assert_eq!(line(0x05_0b), None, "there are four pins");
    assert_eq!(line(0x01ff), None, "not connected");
    assert_eq!(line(0x0110), None, "no ISA line");
}

/// Whatever configuration space says, every query returns, with a result or an error.
#[test]
fn nothing_in_configuration_space_leads_astray() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..2000 {
        let first = 0x40 + (random() as u8 & 0x7c);
        let mut fake = with_capabilities(&[(first, MSIX, 0, 0)]);
        for register in (0x0c..=0xfc).step_by(4).filter(|register| *register != 0x34) {
            if random() % 4 == 0 {
                fake.set(AT, register, random() & random());
            }
        }
        // Often enough of a kind that it gets far.
        fake.set(AT, first, (random() % 4) << 16 | random() & 0xfc00 | u32::from(MSIX));
        fake.bar(random() as u8 % 6, random() & !0xfff, 0x1000 << (random() % 8));
        functions(&&fake, 0x1af4);
        let device = device(&fake);
        let bars = (0..=7).filter(|&index| device.memory_bar(index).is_ok()).count();
        assert!(bars <= 6, "there are six address registers");
        device.interrupt_line();
        match device.message_table() {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 50 && bad > 50, "{good} good, {bad} bad: both are tried");
}
