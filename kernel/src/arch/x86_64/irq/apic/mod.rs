//! The local APIC, in its two forms.
//!
//! Holds the vectors of the kernel, and the machine's one choice between xAPIC (registers in
//! memory) and x2APIC (registers as MSRs). The sequences (set-up, end of interrupt, sending) are in
//! [`local`], written against a trait and tested on the host.
//!
//! [`init`] once on the boot CPU, then [`init_cpu`] on every other, with interrupts off.

pub mod local;

use crate::arch::x86_64::cpu::mmio::{Mmio, Window};
use crate::arch::x86_64::cpu::msr::{self, MsrFault};
use alloc::format;
use alloc::string::String;
use core::fmt;
use local::{Bus, LocalApic};

/// The first vector for devices; those below are exceptions and the PIC's.
pub const FIRST_DEVICE_VECTOR: u8 = 0x30;
/// The last vector for devices.
pub const LAST_DEVICE_VECTOR: u8 = 0xef;
/// The CPU's timer.
pub const TIMER_VECTOR: u8 = 0xf0;
/// Another CPU has work for this one.
pub const WAKE_VECTOR: u8 = 0xf1;
/// Another CPU asks whether this one takes interrupts.
pub const ASK_VECTOR: u8 = 0xf2;
/// The local APIC met an error: see [`LocalApic::take_errors`].
pub const ERROR_VECTOR: u8 = 0xfe;
/// An interrupt that was withdrawn. Its handler returns, without an [`eoi`].
pub const SPURIOUS_VECTOR: u8 = 0xff;

/// The form in which the local APICs run: the same on every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Registers in memory; ids of 8 bits.
    XApic,
    /// Registers as MSRs; ids of 32 bits.
    X2Apic,
}

// The words of the MADT for how a line is wired. The bus of `SameAsBus` is ISA:
// active high, edge.
pub use ::acpi::platform::interrupt::{
    LocalInterruptLine as Lint, Polarity, TriggerMode as Trigger,
};

/// A pin of the local APIC that is wired to NMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalNmi {
    pub lint: Lint,
    /// Which level means "interrupt".
    pub polarity: Polarity,
}

/// Why something about a local APIC could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApicError {
    /// xAPIC is to be used, and no mapped registers were handed in.
    NotMapped,
    /// An xAPIC addresses the ids 0 to 254 only.
    IdTooLarge(u32),
    /// The last interrupt sent was not accepted within the bound.
    DeliveryStuck,
    /// The CPU did not go to the form that the machine uses.
    ModeRefused(Mode),
    /// [`init`] has not been called.
    NotInitialised,
}

/// Chooses the form for the machine, and sets the boot CPU's APIC up, with these NMI pins. Gives a
/// line for the boot banner. A choice that the CPU cannot follow is named in a warning.
///
/// The legacy PIC is masked, and the IDT loaded, with a #GP handler that calls [`msr::fixup`].
///
/// # Safety
/// 1. `physical_base` holds nothing but the local APIC's registers, and `registers`, if any, maps
///    that page. Every CPU's registers are put there; an x2APIC needs none.
/// 2. Called once, on the boot CPU, with interrupts off.
pub unsafe fn init(
    choice: Option<Mode>,
    physical_base: u64,
    registers: Option<Window>,
    nmis: &[LocalNmi],
) -> Result<String, ApicError> {
    let hardware = Hardware { registers };
    let apic = LocalApic::new(hardware, Mode::XApic);
    let mode = apic.choose(choice, local::has_x2apic(), registers.is_some())?;
    let (apic, _) = MACHINE.call_once(|| (LocalApic::new(hardware, mode), physical_base));
    let lvt_entries = init_cpu(nmis)?;
    Ok(format!("{mode} id {}, {lvt_entries} local interrupts", apic.id()))
}

/// Sets this CPU's APIC up: form, spurious and error vectors, NMI pins, and every other local
/// interrupt masked. Gives the number of local interrupts. On the boot CPU [`init`] calls it.
pub fn init_cpu(nmis: &[LocalNmi]) -> Result<u32, ApicError> {
    let (apic, base) = MACHINE.get().ok_or(ApicError::NotInitialised)?;
    apic.enter_mode(local::has_x2apic(), *base)?;
    Ok(apic.set_up(nmis))
}

/// The form in use, once [`init`] has chosen.
pub fn mode() -> Option<Mode> {
    current().map(|apic| apic.mode)
}

/// The interrupt being served is done; the next may come.
#[inline]
pub fn eoi() {
    if let Some(apic) = current() {
        apic.eoi();
    }
}

/// What one CPU sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// An interrupt with this vector.
    Vector(u8),
    /// Resets the CPU: it waits for a start-up.
    Init,
    /// Starts the CPU in real mode at this page.
    Startup(u8),
    /// A non-maskable interrupt.
    Nmi,
}

/// Sends `message` to the CPU `apic_id`. What this CPU stored before is visible to its handler.
pub fn send(apic_id: u32, message: Message) -> Result<(), ApicError> {
    current().ok_or(ApicError::NotInitialised)?.send(apic_id, message)
}

/// This CPU's APIC. Nothing before [`init`].
#[inline]
pub fn current() -> Option<LocalApic<Hardware>> {
    MACHINE.get().map(|(apic, _)| *apic)
}

/// The APIC, which has the same form on every CPU, and its physical address.
static MACHINE: spin::Once<(LocalApic<Hardware>, u64)> = spin::Once::new();

/// The registers of the CPU that executes.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    registers: Option<Window>,
}

impl Bus for Hardware {
    fn read_msr(&self, msr: u32) -> u64 {
        // SAFETY: `local` reads APIC registers only, and those of x2APIC only in that mode.
        unsafe { msr::rdmsr(msr) }
    }

    fn write_msr(&self, msr: u32, value: u64) {
        // SAFETY: `local` writes APIC registers only; an APIC touches no memory.
        unsafe { msr::wrmsr(msr, value) }
    }

    fn try_write_msr(&self, msr: u32, value: u64) -> Result<(), MsrFault> {
        // SAFETY: as above; `init` asked for the #GP handler.
        unsafe { msr::wrmsr_checked(msr, value) }
    }

    fn read_mmio(&self, offset: usize) -> u32 {
        self.registers.map_or(0, |window| window.read(offset))
    }

    fn write_mmio(&self, offset: usize, value: u32) {
        if let Some(window) = self.registers {
            window.write(offset, value);
        }
    }

    /// An MSR write that others act on is not ordered after earlier stores by itself (SDM vol. 3).
    fn fence(&self) {
        // SAFETY: SSE2 belongs to x86-64.
        unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::XApic => "xapic",
            Mode::X2Apic => "x2apic",
        })
    }
}

impl fmt::Display for ApicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApicError::NotMapped => f.write_str("the APIC's registers are not mapped"),
            ApicError::IdTooLarge(id) => write!(f, "xapic cannot address APIC id {id}"),
            ApicError::DeliveryStuck => f.write_str("an interrupt sent was never accepted"),
            ApicError::ModeRefused(mode) => write!(f, "the CPU does not go to {mode} mode"),
            ApicError::NotInitialised => f.write_str("the APIC is not set up yet"),
        }
    }
}
