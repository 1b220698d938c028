//! Promises of the local APIC's sequences, on a bus that records.

use super::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::vec::Vec;

/// What was written, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Msr(u32, u64),
    Mmio(usize, u32),
    Fence,
}

use Op::*;

/// A bus that remembers writes, and gives back what was written or set.
#[derive(Default)]
pub struct Fake {
    pub ops: RefCell<Vec<Op>>,
    pub msrs: RefCell<HashMap<u32, u64>>,
    pub mmio: RefCell<HashMap<usize, u32>>,
    /// The CPU faults on writes to these.
    pub refused: Vec<u32>,
}

impl Fake {
    fn with_base(base: u64) -> Fake {
        let fake = Fake::default();
        fake.msrs.borrow_mut().insert(IA32_APIC_BASE, base);
        fake
    }

    pub fn taken(&self) -> Vec<Op> {
        core::mem::take(&mut self.ops.borrow_mut())
    }

    /// As the SDM has it: which changes of mode fault.
    fn is_legal(from: u64, to: u64) -> bool {
        let mode = |base: u64| (base & BASE_ENABLE != 0, base & BASE_X2APIC != 0);
        match (mode(from), mode(to)) {
            ((false, false), (_, is_x2apic)) => !is_x2apic,
            ((true, true), (true, false)) => false,
            (_, (false, true)) => false,
            _ => true,
        }
    }
}

impl Bus for &Fake {
    fn read_msr(&self, msr: u32) -> u64 {
        self.msrs.borrow().get(&msr).copied().unwrap_or(0)
    }
    fn write_msr(&self, msr: u32, value: u64) {
        self.ops.borrow_mut().push(Msr(msr, value));
        self.msrs.borrow_mut().insert(msr, value);
    }
    fn try_write_msr(&self, msr: u32, value: u64) -> Result<(), MsrFault> {
        let illegal = msr == IA32_APIC_BASE && !Fake::is_legal(self.read_msr(msr), value);
        if illegal || self.refused.contains(&msr) {
            return Err(MsrFault(msr));
        }
        self.write_msr(msr, value);
        Ok(())
    }
    fn read_mmio(&self, offset: usize) -> u32 {
        self.mmio.borrow().get(&offset).copied().unwrap_or(0)
    }
    fn write_mmio(&self, offset: usize, value: u32) {
        self.ops.borrow_mut().push(Mmio(offset, value));
        self.mmio.borrow_mut().insert(offset, value);
    }
    fn fence(&self) {
        self.ops.borrow_mut().push(Fence);
    }
}

const BASE: u64 = 0xfee0_0000;
/// What CPUID says of x2APIC.
const BOTH: bool = true;
const XAPIC_ONLY: bool = false;

fn choose(fake: &Fake, choice: Option<Mode>, has_x2apic: bool) -> Result<Mode, ApicError> {
    LocalApic::new(fake, Mode::XApic).choose(choice, has_x2apic, true)
}

#[test]
fn x2apic_is_taken_where_the_cpu_has_it() {
    let fake = Fake::with_base(BASE | BASE_ENABLE);
    assert_eq!(choose(&fake, None, BOTH), Ok(Mode::X2Apic));
    assert_eq!(choose(&fake, Some(Mode::XApic), BOTH), Ok(Mode::XApic));
    assert_eq!(choose(&fake, None, XAPIC_ONLY), Ok(Mode::XApic));
    assert_eq!(choose(&fake, Some(Mode::X2Apic), XAPIC_ONLY), Ok(Mode::XApic));
}

#[test]
fn xapic_without_a_mapping_is_an_error() {
    let fake = Fake::with_base(BASE | BASE_ENABLE);
    let apic = LocalApic::new(&fake, Mode::XApic);
    let unmapped = apic.choose(None, XAPIC_ONLY, false);
    assert_eq!(unmapped, Err(ApicError::NotMapped));
}

#[test]
fn an_x2apic_that_firmware_left_on_stays() {
    let fake = Fake::with_base(BASE | BASE_ENABLE | BASE_X2APIC);
    for choice in [None, Some(Mode::XApic), Some(Mode::X2Apic)] {
        assert_eq!(choose(&fake, choice, XAPIC_ONLY), Ok(Mode::X2Apic));
    }
}

#[test]
fn every_change_of_mode_takes_legal_steps() {
    let bsp = 1 << 8;
    let (off, x, x2) = (BASE | bsp, BASE | bsp | BASE_ENABLE, BASE | bsp | 0xc00);
    let cases: [(u64, Mode, &[u64]); 5] = [
        (off, Mode::XApic, &[x]),
        (x, Mode::XApic, &[x]),
        (off, Mode::X2Apic, &[x, x2]),
        (x, Mode::X2Apic, &[x, x2]),
        (x2, Mode::X2Apic, &[]),
    ];
    for (from, mode, steps) in cases {
        let fake = Fake::with_base(from);
        assert_eq!(LocalApic::new(&fake, mode).enter_mode(BOTH, BASE), Ok(()));
        let expected: Vec<Op> = steps.iter().map(|&step| Msr(IA32_APIC_BASE, step)).collect();
        assert_eq!(fake.taken(), expected, "{from:#x} to {mode}");
    }
}

#[test]
fn a_step_back_from_x2apic_is_an_error_and_not_a_fault() {
    let fake = Fake::with_base(BASE | BASE_ENABLE | BASE_X2APIC);
    let entered = LocalApic::new(&fake, Mode::XApic).enter_mode(BOTH, BASE);
    assert_eq!(entered, Err(ApicError::ModeRefused(Mode::XApic)));
}

#[test]
fn other_cpu_without_x2apic_is_refused() {
    let fake = Fake::with_base(BASE | BASE_ENABLE);
    let entered = LocalApic::new(&fake, Mode::X2Apic).enter_mode(XAPIC_ONLY, BASE);
    assert_eq!(entered, Err(ApicError::ModeRefused(Mode::X2Apic)));
    assert_eq!(fake.taken(), []);
}

#[test]
fn set_up_masks_everything_and_then_opens_errors_and_nmi() {
    let fake = Fake::default();
    fake.mmio.borrow_mut().extend([(0x20, 5 << 24), (0x30, 6 << 16)]);
    let nmi = LocalNmi { lint: Lint::Lint1, polarity: Polarity::ActiveLow };
    assert_eq!(LocalApic::new(&fake, Mode::XApic).set_up(&[nmi]), 7);
    let masked = 0x1_00ff;
    let expected = [
        Mmio(0xf0, 0x1ff),
        Mmio(0x80, 0),
        Mmio(0x370, masked),
        Mmio(0x320, masked),
        Mmio(0x350, masked),
        Mmio(0x360, masked),
        Mmio(0x340, masked),
        Mmio(0x330, masked),
        Mmio(0x2f0, masked),
        Mmio(0x360, 0x2400),
        Mmio(0x280, 0),
        Mmio(0x370, 0xfe),
    ];
    assert_eq!(fake.taken(), expected);
}

#[test]
fn local_interrupts_that_do_not_exist_are_not_touched() {
    let fake = Fake::default();
    fake.msrs.borrow_mut().insert(0x803, 3 << 16);
    LocalApic::new(&fake, Mode::X2Apic).set_up(&[]);
    let touched = |msr| fake.ops.borrow().iter().any(|op| matches!(op, Msr(m, _) if *m == msr));
    assert!(touched(0x832) && touched(0x835) && touched(0x836) && touched(0x837));
    assert!(!touched(0x834) && !touched(0x833) && !touched(0x82f));
}

#[test]
fn thermal_interrupt_that_firmware_handles_is_left_alone() {
    let fake = Fake::default();
    fake.mmio.borrow_mut().extend([(0x30, 5 << 16), (0x330, 0x200)]);
    LocalApic::new(&fake, Mode::XApic).set_up(&[]);
    assert_eq!(fake.mmio.borrow()[&0x330], 0x200);
}

#[test]
fn interrupts_left_in_service_are_ended() {
    let fake = Fake::default();
    fake.mmio.borrow_mut().extend([(0x110, 0b101), (0x170, 1)]);
    LocalApic::new(&fake, Mode::XApic).set_up(&[]);
    let eois = fake.taken().into_iter().filter(|op| *op == Mmio(0xb0, 0)).count();
    assert_eq!(eois, 3);
}

#[test]
fn xapic_writes_the_target_before_the_command() {
    let fake = Fake::default();
    let apic = LocalApic::new(&fake, Mode::XApic);
    assert_eq!(apic.send(254, Message::Vector(0xf1)), Ok(()));
    assert_eq!(fake.taken(), [Mmio(0x310, 254 << 24), Mmio(0x300, 0x40f1)]);
    assert_eq!(apic.send(255, Message::Vector(0xf1)), Err(ApicError::IdTooLarge(255)));
    assert_eq!(fake.taken(), []);
}

#[test]
fn start_sequence_has_the_commands_of_the_manual() {
    let fake = Fake::default();
    let apic = LocalApic::new(&fake, Mode::X2Apic);
    assert_eq!(apic.send(0x1_0203, Message::Init), Ok(()));
    assert_eq!(apic.send(0x1_0203, Message::Startup(0x8)), Ok(()));
    apic.send_nmi_anyway(0x1_0203);
    let expected = [
        Fence,
        Msr(0x830, 0x1_0203_0000_4500),
        Fence,
        Msr(0x830, 0x1_0203_0000_4608),
        Fence,
        Msr(0x830, 0x1_0203_0000_4400),
    ];
    assert_eq!(fake.taken(), expected);
}

#[test]
fn interrupt_to_itself_leaves_the_target_of_another_command_alone() {
    let fake = Fake::default();
    LocalApic::new(&fake, Mode::XApic).send_self(0xf3);
    assert_eq!(fake.taken(), [Mmio(0x300, 0x4_40f3)]);
    LocalApic::new(&fake, Mode::X2Apic).send_self(0xf3);
    assert_eq!(fake.taken(), [Msr(0x830, 0x4_40f3)]);
}

#[test]
fn stuck_command_is_an_error_after_a_bound_but_nmi_is_sent_all_the_same() {
    let fake = Fake::default();
    fake.mmio.borrow_mut().insert(0x300, COMMAND_PENDING);
    let apic = LocalApic::new(&fake, Mode::XApic);
    assert_eq!(apic.send(1, Message::Vector(0xf1)), Err(ApicError::DeliveryStuck));
    assert_eq!(fake.taken(), []);
    apic.send_nmi_anyway(2);
    assert_eq!(fake.taken(), [Mmio(0x310, 2 << 24), Mmio(0x300, 0x4400)]);
}

#[test]
fn ids_have_8_bits_in_xapic_and_32_in_x2apic() {
    let fake = Fake::default();
    fake.mmio.borrow_mut().insert(0x20, 0x0700_0000);
    fake.msrs.borrow_mut().insert(0x802, 0x1234);
    assert_eq!(LocalApic::new(&fake, Mode::XApic).id(), 7);
    assert_eq!(LocalApic::new(&fake, Mode::X2Apic).id(), 0x1234);
}
