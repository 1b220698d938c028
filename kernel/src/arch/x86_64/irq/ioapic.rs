//! I/O APICs: from a device's line to a vector on a CPU.
//!
//! Holds the I/O APICs and the wiring of ISA lines that the MADT named, masks every line at
//! [`init`], and routes single lines on demand. [`init`] also puts the legacy PIC to sleep (`pic`).
//!
//! An I/O APIC is spoken to through an index and a data register, so two CPUs must not interleave:
//! everything goes through one lock.

use super::apic::{FIRST_DEVICE_VECTOR, LAST_DEVICE_VECTOR, Polarity, Trigger};
use super::pic;
use crate::arch::lock::IrqLock;
use crate::arch::text_enum;
use crate::arch::x86_64::cpu::mmio::{Mmio, Window};
use crate::arch::x86_64::cpu::ports;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub const ISA_LINES: usize = 16;

/// Where a line arrives, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiring {
    pub gsi: u32,
    /// Which level means "interrupt".
    pub polarity: Polarity,
    /// Whether a change or a state interrupts.
    pub trigger: Trigger,
}

text_enum! {
    /// Why a line cannot be routed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RouteError {
        NoSuchLine(line: u8) => "no I/O APIC has line {line}",
        BadVector(vector: u8) => "{vector:#x} is no vector for devices",
        NoSuchCpu(cpu: usize) => "no CPU {cpu}",
        IdTooLarge(id: u32) => "an I/O APIC cannot address APIC id {id}",
    }
}

/// Masks the PIC, and every line of every I/O APIC, given by its id, its first global system
/// interrupt and its registers of at least [`WINDOW_BYTES`]. Gives a line for the boot banner.
///
/// One that does not answer, or that claims lines of an earlier one, is left out with a warning.
/// Called once, on the boot CPU, with interrupts off.
pub fn init(
    ioapics: impl Iterator<Item = (u8, u32, Window)>,
    overrides: [Option<Wiring>; ISA_LINES],
) -> String {
    pic::init(&ports::Hardware);
    let mut all = IoApics { ioapics: Vec::new(), overrides };
    ioapics.for_each(|(id, gsi_base, registers)| all.add(id, gsi_base, registers));
    let (ioapics, lines) = (all.ioapics.len(), all.ioapics.iter().map(|io| io.lines).sum::<u32>());
    *ALL.lock() = all;
    let overrides = overrides.iter().flatten().count();
    format!("{ioapics} I/O APICs, {lines} lines, {overrides} overrides")
}

/// Sends the ISA line `irq` to `vector` on the CPU `apic_id`, and lets it interrupt.
pub fn route(irq: u8, vector: u8, apic_id: u32) -> Result<(), RouteError> {
    ALL.lock().route(irq, vector, apic_id)
}

/// Keeps the ISA line `irq` from interrupting.
pub fn mask(irq: u8) -> Result<(), RouteError> {
    ALL.lock().mask(irq)
}

static ALL: IrqLock<IoApics<Window>> =
    IrqLock::new(IoApics { ioapics: Vec::new(), overrides: [None; ISA_LINES] });

const INDEX: usize = 0x00;
const DATA: usize = 0x10;
/// The bytes of registers that this file touches.
pub const WINDOW_BYTES: usize = 0x20;

const VERSION: u32 = 0x01;
const FIRST_ENTRY: u32 = 0x10;
/// The index has 8 bits, and each entry takes two of the registers.
const MAX_LINES: u32 = (0x100 - FIRST_ENTRY) / 2;

const MASKED: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;
/// 255 means all CPUs.
const MAX_APIC_ID: u32 = 254;

struct IoApic<M> {
    registers: M,
    gsi_base: u32,
    lines: u32,
}

impl<M: Mmio> IoApic<M> {
    fn entry_of(&self, gsi: u32) -> Option<u32> {
        let line = gsi.checked_sub(self.gsi_base)?;
        (line < self.lines).then(|| FIRST_ENTRY + 2 * line)
    }

    fn read(&self, register: u32) -> u32 {
        self.registers.write(INDEX, register);
        self.registers.read(DATA)
    }

    fn write(&self, register: u32, value: u32) {
        self.registers.write(INDEX, register);
        self.registers.write(DATA, value);
    }
}

struct IoApics<M> {
    ioapics: Vec<IoApic<M>>,
    overrides: [Option<Wiring>; ISA_LINES],
}

impl<M: Mmio> IoApics<M> {
    fn add(&mut self, id: u8, gsi_base: u32, registers: M) {
        let mut new = IoApic { registers, gsi_base, lines: 0 };
        let version = new.read(VERSION);
        // An empty bus reads as all ones.
        if version == u32::MAX || version == 0 {
            return log::warn!("ioapic {id}: does not answer, left out");
        }
        new.lines = ((version >> 16 & 0xff) + 1).min(MAX_LINES);
        // Masked even when it is left out below: its lines are not in use.
        for line in 0..new.lines {
            let entry = FIRST_ENTRY + 2 * line;
            // The half with the mask first: no moment in between is open.
            new.write(entry, MASKED);
            new.write(entry + 1, 0);
        }
        let end = |of: &IoApic<M>| u64::from(of.gsi_base) + u64::from(of.lines);
        let overlaps = |other: &IoApic<M>| {
            u64::from(other.gsi_base) < end(&new) && u64::from(gsi_base) < end(other)
        };
        if self.ioapics.iter().any(overlaps) {
            return log::warn!("ioapic {id}: claims lines of another one, left out");
        }
        self.ioapics.push(new);
    }

    fn route(&self, irq: u8, vector: u8, apic_id: u32) -> Result<(), RouteError> {
        if !(FIRST_DEVICE_VECTOR..=LAST_DEVICE_VECTOR).contains(&vector) {
            return Err(RouteError::BadVector(vector));
        }
        if apic_id > MAX_APIC_ID {
            return Err(RouteError::IdTooLarge(apic_id));
        }
        let (ioapic, entry, to) = self.find(irq)?;
        let polarity = if to.polarity == Polarity::ActiveLow { ACTIVE_LOW } else { 0 };
        let trigger = if to.trigger == Trigger::Level { LEVEL } else { 0 };
        // Masked, then the target, then the rest: never half a route.
        ioapic.write(entry, MASKED);
        ioapic.write(entry + 1, apic_id << 24);
        ioapic.write(entry, u32::from(vector) | polarity | trigger);
        Ok(())
    }

    fn mask(&self, irq: u8) -> Result<(), RouteError> {
        let (ioapic, entry, _) = self.find(irq)?;
        ioapic.write(entry, ioapic.read(entry) | MASKED);
        Ok(())
    }

    fn wiring(&self, irq: u8) -> Option<Wiring> {
        let own = *self.overrides.get(usize::from(irq))?;
        // Without an override as ISA has it, unless that input was given to another line.
        let gsi = u32::from(irq);
        let is_taken = self.overrides.iter().flatten().any(|wiring| wiring.gsi == gsi);
        let isa = Wiring { gsi, polarity: Polarity::ActiveHigh, trigger: Trigger::Edge };
        own.or((!is_taken).then_some(isa))
    }

    /// Where an ISA line arrives: the I/O APIC, the entry there, and the wiring.
    fn find(&self, irq: u8) -> Result<(&IoApic<M>, u32, Wiring), RouteError> {
        let wiring = self.wiring(irq).ok_or(RouteError::NoSuchLine(irq))?;
        let entry_in = |ioapic| Some((ioapic, IoApic::entry_of(ioapic, wiring.gsi)?, wiring));
        self.ioapics.iter().find_map(entry_in).ok_or(RouteError::NoSuchLine(irq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::vec::Vec;

    /// An I/O APIC with 24 lines (or what `version` says), all open.
    struct Fake {
        version: u32,
        index: Cell<u32>,
        entries: RefCell<Vec<u32>>,
        writes: RefCell<Vec<(u32, u32)>>,
    }

    impl Mmio for &Fake {
        fn read(&self, offset: usize) -> u32 {
            assert_eq!(offset, DATA);
            match self.index.get() {
                VERSION => self.version,
                entry => self.entries.borrow()[(entry - FIRST_ENTRY) as usize],
            }
        }
        fn write(&self, offset: usize, value: u32) {
            if offset == INDEX {
                assert!(value < 0x100, "the index has 8 bits");
                return self.index.set(value);
            }
            assert_eq!(offset, DATA);
            self.writes.borrow_mut().push((self.index.get(), value));
            self.entries.borrow_mut()[(self.index.get() - FIRST_ENTRY) as usize] = value;
        }
    }

    fn fake(version: u32) -> Fake {
        let (index, writes) = (Cell::new(0), RefCell::default());
        Fake { version, index, entries: RefCell::new([0xaa; 0x100].to_vec()), writes }
    }

    const LINES_24: u32 = 23 << 16 | 0x11;

    fn with<'a>(fakes: &[(&'a Fake, u32)], overrides: &[(usize, Wiring)]) -> IoApics<&'a Fake> {
        let mut all = IoApics { ioapics: Vec::new(), overrides: [None; ISA_LINES] };
        fakes.iter().for_each(|&(registers, gsi_base)| all.add(0, gsi_base, registers));
        overrides.iter().for_each(|(line, wiring)| all.overrides[*line] = Some(*wiring));
        all
    }

    fn low_level(gsi: u32) -> Wiring {
        Wiring { gsi, polarity: Polarity::ActiveLow, trigger: Trigger::Level }
    }

    #[test]
    fn all_lines_are_masked_at_first() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[]);
        let entries = fake.entries.borrow();
        assert!(entries[..48].chunks(2).all(|entry| entry == [MASKED, 0]));
        assert!(entries[48..].iter().all(|word| *word == 0xaa), "beyond the last line");
        assert_eq!((all.ioapics.len(), all.ioapics[0].lines), (1, 24));
    }

    #[test]
    fn number_of_lines_is_bounded_and_silence_is_noticed() {
        let (greedy, silent) = (fake(0x00ff_0011), fake(u32::MAX));
        let all = with(&[(&greedy, 0), (&silent, 300)], &[]);
        assert_eq!((all.ioapics.len(), all.ioapics[0].lines), (1, MAX_LINES));
    }

    #[test]
    fn overlapping_ioapic_is_masked_and_left_out() {
        let (first, second) = (fake(LINES_24), fake(LINES_24));
        let all = with(&[(&first, 0), (&second, 23)], &[]);
        assert_eq!(all.ioapics.len(), 1);
        assert_eq!(second.entries.borrow()[0], MASKED);
    }

    #[test]
    fn a_route_is_written_masked_and_then_opened() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[]);
        fake.writes.borrow_mut().clear();
        assert_eq!(all.route(4, 0x30, 5), Ok(()));
        assert_eq!(*fake.writes.borrow(), [(0x18, MASKED), (0x19, 5 << 24), (0x18, 0x30)]);
        assert_eq!(all.mask(4), Ok(()));
        assert_eq!(fake.entries.borrow()[8], MASKED | 0x30);
    }

    #[test]
    fn overrides_move_lines_and_set_their_wiring() {
        let fake = fake(LINES_24);
        // As the bus has it: the same as ISA's own way.
        let (polarity, trigger) = (Polarity::SameAsBus, Trigger::SameAsBus);
        let timer = Wiring { gsi: 2, polarity, trigger };
        let all = with(&[(&fake, 0)], &[(0, timer), (9, low_level(9))]);
        assert_eq!(all.route(0, 0x31, 0), Ok(()));
        assert_eq!(fake.entries.borrow()[4], 0x31, "high and edge, as the bus has it");
        assert_eq!(all.route(9, 0x32, 0), Ok(()));
        assert_eq!(fake.entries.borrow()[18], LEVEL | ACTIVE_LOW | 0x32);
        assert_eq!(all.route(2, 0x33, 0), Err(RouteError::NoSuchLine(2)));
    }

    #[test]
    fn a_line_may_arrive_at_a_second_ioapic() {
        let (first, second) = (fake(LINES_24), fake(LINES_24));
        let all = with(&[(&first, 0), (&second, 24)], &[(5, low_level(26))]);
        assert_eq!(all.route(5, 0x40, 1), Ok(()));
        assert_eq!(second.entries.borrow()[4], LEVEL | ACTIVE_LOW | 0x40);
    }

    #[test]
    fn impossible_routes_are_errors() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[(5, low_level(24)), (6, low_level(u32::MAX))]);
        for line in [5, 6] {
            assert_eq!(all.route(line, 0x30, 0), Err(RouteError::NoSuchLine(line)));
        }
        assert_eq!(all.route(16, 0x30, 0), Err(RouteError::NoSuchLine(16)));
        assert_eq!(all.route(4, 0x2f, 0), Err(RouteError::BadVector(0x2f)));
        assert_eq!(all.route(4, 0xf0, 0), Err(RouteError::BadVector(0xf0)));
        assert_eq!(all.route(4, 0x30, 255), Err(RouteError::IdTooLarge(255)));
    }
}
