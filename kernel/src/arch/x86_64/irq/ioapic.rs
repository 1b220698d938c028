//! I/O APICs: from a device's line to a vector on a CPU.
//!
//! Holds the list of I/O APICs and the interrupt source overrides that the
//! MADT named, masks every line at [`init`], and routes single lines on demand.
//! [`init`] also puts the legacy PIC to sleep (`pic`). Reading the MADT is left
//! to `acpi`, mapping the registers to `paging`, and choosing vectors and CPUs
//! to the caller.
//!
//! An I/O APIC is spoken to through an index and a data register, so two CPUs
//! must not interleave: everything goes through one lock.

use super::apic::{FIRST_DEVICE_VECTOR, LAST_DEVICE_VECTOR, Polarity, Trigger};
use super::pic;
use crate::arch::lock::IrqLock;
use crate::arch::x86_64::cpu::mmio::{Mmio, Window};
use crate::arch::x86_64::cpu::ports;
use core::fmt;

/// The most I/O APICs this kernel keeps books for.
pub const MAX_IOAPICS: usize = 16;
/// The lines of the ISA bus.
const ISA_LINES: usize = 16;

/// One I/O APIC, as the MADT names it.
#[derive(Clone, Copy, Debug)]
pub struct IoApicInfo<M = Window> {
    /// Its id, for messages.
    pub id: u8,
    /// The first global system interrupt: the number of its line 0.
    pub gsi_base: u32,
    /// Its registers, mapped; at least [`WINDOW_BYTES`].
    pub registers: M,
}

/// Where a line arrives, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// The global system interrupt.
    pub gsi: u32,
    /// Which level means "interrupt".
    pub polarity: Polarity,
    /// Whether a change or a state interrupts.
    pub trigger: Trigger,
}

/// An ISA line that is not wired as the ISA bus has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptOverride {
    /// The ISA line.
    pub isa_irq: u8,
    /// Its wiring.
    pub wiring: Wiring,
}

/// Why a line cannot be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// No I/O APIC has this line: an ISA line, or the input of an NMI source.
    NoSuchLine(u32),
    /// Not a vector for devices.
    BadVector(u8),
    /// No CPU of this number came up.
    NoSuchCpu(usize),
    /// An I/O APIC addresses the APIC ids 0 to 254 only.
    IdTooLarge(u32),
}

/// What [`init`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApicReport {
    /// I/O APICs in use.
    pub ioapics: usize,
    /// Their lines, all masked.
    pub lines: u32,
    /// Overrides in use.
    pub overrides: usize,
}

/// Puts the PIC to sleep, and masks every line of every I/O APIC.
///
/// An I/O APIC that does not answer, or that claims lines of an earlier one,
/// is named in a warning and left out. Called once, on the boot CPU, with
/// interrupts off.
pub fn init(ioapics: &[IoApicInfo], overrides: &[InterruptOverride]) -> IoApicReport {
    pic::init(&ports::Hardware);
    let mut all = ALL.lock();
    for info in ioapics {
        all.add(*info);
    }
    for entry in overrides {
        all.add_override(*entry);
    }
    all.report()
}

/// Sends the ISA line `irq` to `vector` on the CPU `apic_id`, and leaves it masked, so that the
/// handler can be put in place. Overrides apply. Gives the line's global number.
pub fn route(irq: u8, vector: u8, apic_id: u32) -> Result<u32, RouteError> {
    ALL.lock().route(irq, vector, apic_id)
}

/// Sends a line as an NMI to the CPU `apic_id`: an NMI source of the MADT,
/// unmasked at once.
pub fn route_nmi(source: Wiring, apic_id: u32) -> Result<(), RouteError> {
    ALL.lock().connect(source.gsi, source, NMI, apic_id)
}

/// Lets the ISA line `irq` interrupt.
pub fn unmask(irq: u8) -> Result<(), RouteError> {
    ALL.lock().change_low(irq, |low| low & !MASKED)
}

/// Keeps the ISA line `irq` from interrupting.
pub fn mask(irq: u8) -> Result<(), RouteError> {
    ALL.lock().change_low(irq, |low| low | MASKED)
}

static ALL: IrqLock<IoApics<Window>> = IrqLock::new(IoApics::new());

const INDEX: usize = 0x00;
const DATA: usize = 0x10;
/// The bytes of registers that this file touches.
pub const WINDOW_BYTES: usize = 0x20;

const VERSION: u32 = 0x01;
const FIRST_ENTRY: u32 = 0x10;
/// The index has 8 bits, and each entry takes two of the registers.
const MAX_LINES: u32 = (0x100 - FIRST_ENTRY) / 2;

const MASKED: u32 = 1 << 16;
/// Delivery mode "NMI"; the vector does not matter.
const NMI: u32 = 0b100 << 8;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;
/// 255 means all CPUs.
const MAX_APIC_ID: u32 = 254;

/// One I/O APIC that answered.
struct IoApic<M> {
    registers: M,
    gsi_base: u32,
    lines: u32,
}

impl<M: Mmio> IoApic<M> {
    fn new(info: IoApicInfo<M>) -> Option<IoApic<M>> {
        let mut ioapic = IoApic { registers: info.registers, gsi_base: info.gsi_base, lines: 0 };
        let version = ioapic.read(VERSION);
        // An empty bus reads as all ones.
        if version == u32::MAX || version == 0 {
            return None;
        }
        ioapic.lines = ((version >> 16 & 0xff) + 1).min(MAX_LINES);
        Some(ioapic)
    }

    /// The line's place in this I/O APIC.
    fn entry_of(&self, gsi: u32) -> Option<u32> {
        let line = gsi.checked_sub(self.gsi_base)?;
        (line < self.lines).then(|| FIRST_ENTRY + 2 * line)
    }

    fn mask_all(&self) {
        for line in 0..self.lines {
            let entry = FIRST_ENTRY + 2 * line;
            // The half with the mask first: no moment in between is open.
            self.write(entry, MASKED);
            self.write(entry + 1, 0);
        }
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
    ioapics: [Option<IoApic<M>>; MAX_IOAPICS],
    /// Of each ISA line.
    overrides: [Option<Wiring>; ISA_LINES],
}

impl<M: Mmio> IoApics<M> {
    const fn new() -> IoApics<M> {
        IoApics { ioapics: [const { None }; MAX_IOAPICS], overrides: [None; ISA_LINES] }
    }

    fn add(&mut self, info: IoApicInfo<M>) {
        let id = info.id;
        let Some(ioapic) = IoApic::new(info) else {
            log::warn!("ioapic {id}: does not answer, left out");
            return;
        };
        // Masked even when it is left out below: its lines are not in use.
        ioapic.mask_all();
        let end = u64::from(ioapic.gsi_base) + u64::from(ioapic.lines);
        let overlaps = |other: &IoApic<M>| {
            u64::from(other.gsi_base) < end
                && u64::from(ioapic.gsi_base) < u64::from(other.gsi_base) + u64::from(other.lines)
        };
        if self.ioapics.iter().flatten().any(overlaps) {
            log::warn!("ioapic {id}: claims lines of another one, left out");
            return;
        }
        match self.ioapics.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(ioapic),
            None => log::warn!("ioapic {id}: more than {MAX_IOAPICS}, left out"),
        }
    }

    fn add_override(&mut self, entry: InterruptOverride) {
        let InterruptOverride { isa_irq, wiring } = entry;
        match self.overrides.get_mut(usize::from(isa_irq)) {
            None => log::warn!("ioapic: override of ISA line {isa_irq}, ignored"),
            Some(known) if known.is_some() => {
                log::warn!("ioapic: second override of ISA line {isa_irq}, ignored");
            }
            Some(slot) => *slot = Some(wiring),
        }
    }

    fn report(&self) -> IoApicReport {
        IoApicReport {
            ioapics: self.ioapics.iter().flatten().count(),
            lines: self.ioapics.iter().flatten().map(|ioapic| ioapic.lines).sum(),
            overrides: self.overrides.iter().flatten().count(),
        }
    }

    fn route(&self, irq: u8, vector: u8, apic_id: u32) -> Result<u32, RouteError> {
        if !(FIRST_DEVICE_VECTOR..=LAST_DEVICE_VECTOR).contains(&vector) {
            return Err(RouteError::BadVector(vector));
        }
        let wiring = self.wiring(irq).ok_or(RouteError::NoSuchLine(irq.into()))?;
        self.connect(irq.into(), wiring, MASKED | u32::from(vector), apic_id)?;
        Ok(wiring.gsi)
    }

    /// Writes the entry of a line: `low` and its wiring in the lower half, the CPU
    /// in the upper.
    fn connect(&self, line: u32, to: Wiring, low: u32, apic_id: u32) -> Result<(), RouteError> {
        if apic_id > MAX_APIC_ID {
            return Err(RouteError::IdTooLarge(apic_id));
        }
        let (ioapic, entry) = self.find(to.gsi).ok_or(RouteError::NoSuchLine(line))?;
        let polarity = if to.polarity == Polarity::ActiveLow { ACTIVE_LOW } else { 0 };
        let trigger = if to.trigger == Trigger::Level { LEVEL } else { 0 };
        // Masked, then the target, then the rest: never half a route.
        ioapic.write(entry, MASKED);
        ioapic.write(entry + 1, apic_id << 24);
        ioapic.write(entry, low | polarity | trigger);
        Ok(())
    }

    fn change_low(&self, irq: u8, change: impl Fn(u32) -> u32) -> Result<(), RouteError> {
        let found = self.wiring(irq).and_then(|wiring| self.find(wiring.gsi));
        let (ioapic, entry) = found.ok_or(RouteError::NoSuchLine(irq.into()))?;
        ioapic.write(entry, change(ioapic.read(entry)));
        Ok(())
    }

    /// Where an ISA line arrives, and how it is wired.
    fn wiring(&self, irq: u8) -> Option<Wiring> {
        let own = *self.overrides.get(usize::from(irq))?;
        // Without an override a line arrives where ISA has it, unless that
        // input was given to another line (IRQ 0 arrives at 2, say).
        let gsi = u32::from(irq);
        let is_taken = self.overrides.iter().flatten().any(|wiring| wiring.gsi == gsi);
        let isa = Wiring { gsi, polarity: Polarity::ActiveHigh, trigger: Trigger::Edge };
        own.or((!is_taken).then_some(isa))
    }

    fn find(&self, gsi: u32) -> Option<(&IoApic<M>, u32)> {
        self.ioapics.iter().flatten().find_map(|ioapic| Some((ioapic, ioapic.entry_of(gsi)?)))
    }
}

impl fmt::Display for IoApicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} I/O APICs, {} lines, ", self.ioapics, self.lines)?;
        write!(f, "{} overrides", self.overrides)
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::NoSuchLine(line) => write!(f, "no I/O APIC has line {line}"),
            RouteError::BadVector(vector) => write!(f, "{vector:#x} is no vector for devices"),
            RouteError::NoSuchCpu(cpu) => write!(f, "no CPU {cpu}"),
            RouteError::IdTooLarge(id) => write!(f, "an I/O APIC cannot address APIC id {id}"),
        }
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

    fn with<'a>(fakes: &[(&'a Fake, u32)], overrides: &[InterruptOverride]) -> IoApics<&'a Fake> {
        let mut all = IoApics::new();
        for &(registers, gsi_base) in fakes {
            all.add(IoApicInfo { id: 0, gsi_base, registers });
        }
        overrides.iter().for_each(|entry| all.add_override(*entry));
        all
    }

    fn isa_override(isa_irq: u8, gsi: u32) -> InterruptOverride {
        // As the bus has it: the same as ISA's own way.
        let (polarity, trigger) = (Polarity::SameAsBus, Trigger::SameAsBus);
        InterruptOverride { isa_irq, wiring: Wiring { gsi, polarity, trigger } }
    }

    #[test]
    fn all_lines_are_masked_at_first() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[]);
        let entries = fake.entries.borrow();
        assert!(entries[..48].chunks(2).all(|entry| entry == [MASKED, 0]));
        assert!(entries[48..].iter().all(|word| *word == 0xaa), "beyond the last line");
        assert_eq!(all.report(), IoApicReport { ioapics: 1, lines: 24, overrides: 0 });
    }

    #[test]
    fn number_of_lines_is_bounded_and_silence_is_noticed() {
        let (greedy, silent) = (fake(0x00ff_0011), fake(u32::MAX));
        let all = with(&[(&greedy, 0), (&silent, 300)], &[]);
        assert_eq!(all.report(), IoApicReport { ioapics: 1, lines: MAX_LINES, overrides: 0 });
    }

    #[test]
    fn overlapping_ioapic_is_masked_and_left_out() {
        let (first, second) = (fake(LINES_24), fake(LINES_24));
        let all = with(&[(&first, 0), (&second, 23)], &[]);
        assert_eq!(all.report().ioapics, 1);
        assert_eq!(second.entries.borrow()[0], MASKED);
    }

    #[test]
    fn route_is_written_masked_and_opens_on_unmask() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[]);
        fake.writes.borrow_mut().clear();
        assert_eq!(all.route(4, 0x30, 5), Ok(4));
        let expected = [(0x18, MASKED), (0x19, 5 << 24), (0x18, MASKED | 0x30)];
        assert_eq!(*fake.writes.borrow(), expected);
        assert_eq!(all.change_low(4, |low| low & !MASKED), Ok(()));
        assert_eq!(fake.entries.borrow()[8], 0x30);
    }

    #[test]
    fn overrides_move_lines_and_set_their_wiring() {
        let fake = fake(LINES_24);
        let wiring = Wiring { gsi: 9, polarity: Polarity::ActiveLow, trigger: Trigger::Level };
        let acpi = InterruptOverride { isa_irq: 9, wiring };
        let all = with(&[(&fake, 0)], &[isa_override(0, 2), acpi]);
        assert_eq!(all.route(0, 0x31, 0), Ok(2));
        assert_eq!(fake.entries.borrow()[4], MASKED | 0x31, "high and edge, as the bus has it");
        assert_eq!(all.route(9, 0x32, 0), Ok(9));
        assert_eq!(fake.entries.borrow()[18], MASKED | LEVEL | ACTIVE_LOW | 0x32);
        assert_eq!(all.route(2, 0x33, 0), Err(RouteError::NoSuchLine(2)));
    }

    #[test]
    fn second_override_of_a_line_and_lines_beyond_isa_are_ignored() {
        let fake = fake(LINES_24);
        let all =
            with(&[(&fake, 0)], &[isa_override(0, 2), isa_override(0, 7), isa_override(16, 3)]);
        assert_eq!(all.route(0, 0x31, 0), Ok(2));
        assert_eq!(all.report().overrides, 1);
    }

    #[test]
    fn a_line_may_arrive_at_a_second_ioapic() {
        let (first, second) = (fake(LINES_24), fake(LINES_24));
        let wiring = Wiring { gsi: 26, polarity: Polarity::ActiveLow, trigger: Trigger::Level };
        let moved = InterruptOverride { isa_irq: 5, wiring };
        let all = with(&[(&first, 0), (&second, 24)], &[moved]);
        assert_eq!(all.route(5, 0x40, 1), Ok(26));
        assert_eq!(second.entries.borrow()[4], MASKED | LEVEL | ACTIVE_LOW | 0x40);
    }

    #[test]
    fn impossible_routes_are_errors() {
        let fake = fake(LINES_24);
        let all = with(&[(&fake, 0)], &[]);
        for gsi in [24, u32::MAX] {
            let nmi = Wiring { gsi, polarity: Polarity::ActiveHigh, trigger: Trigger::Edge };
            assert_eq!(all.connect(gsi, nmi, NMI, 0), Err(RouteError::NoSuchLine(gsi)));
        }
        assert_eq!(all.route(16, 0x30, 0), Err(RouteError::NoSuchLine(16)));
        assert_eq!(all.route(4, 0x2f, 0), Err(RouteError::BadVector(0x2f)));
        assert_eq!(all.route(4, 0xf0, 0), Err(RouteError::BadVector(0xf0)));
        assert_eq!(all.route(4, 0x30, 255), Err(RouteError::IdTooLarge(255)));
    }
}
