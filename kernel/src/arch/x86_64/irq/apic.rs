//! The local APIC, in its two forms.
//!
//! Holds the vectors of the kernel, the machine's one choice between xAPIC (registers in memory)
//! and x2APIC (registers as MSRs), and the sequences that are written to the registers: set-up, end
//! of interrupt, sending. [`LocalApic`] is generic over a [`Bus`], so that every sequence is tested
//! on the host against a bus that records. Sections named below are of Intel SDM vol. 3, "Advanced
//! Programmable Interrupt Controller (APIC)".
//!
//! [`init`] once on the boot CPU, then [`init_cpu`] on every other, with interrupts off.

use crate::arch::x86_64::cpu::mmio::{Mmio, Window};
use crate::arch::x86_64::cpu::msr::{self, IA32_APIC_BASE, MsrFault};
use crate::arch::{self, text_enum};
use alloc::format;
use alloc::string::String;
use core::arch::x86_64::__cpuid;
use x86_64::registers::model_specific::Msr;

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

text_enum! {
    /// The form in which the local APICs run: the same on every CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        /// Registers in memory; ids of 8 bits.
        XApic => "xapic",
        /// Registers as MSRs; ids of 32 bits.
        X2Apic => "x2apic",
    }
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

text_enum! {
    /// Why something about a local APIC could not be done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ApicError {
        NotMapped => "the APIC's registers are not mapped",
        IdTooLarge(id: u32) => "xapic cannot address APIC id {id}",
        DeliveryStuck => "an interrupt sent was never accepted",
        ModeRefused(mode: Mode) => "the CPU does not go to {mode} mode",
        NotInitialised => "the APIC is not set up yet",
    }
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
    let hardware = Hardware { registers: registers.unwrap_or(Window::NONE) };
    let apic = LocalApic::new(hardware, Mode::XApic);
    let mode = apic.choose(choice, has_x2apic(), registers.is_some())?;
    let (apic, _) = MACHINE.call_once(|| (LocalApic::new(hardware, mode), physical_base));
    let lvt_entries = init_cpu(nmis)?;
    Ok(format!("{mode} id {}, {lvt_entries} local interrupts", apic.id()))
}

/// Sets this CPU's APIC up: form, spurious and error vectors, NMI pins, and every other local
/// interrupt masked. Gives the number of local interrupts. On the boot CPU [`init`] calls it.
pub fn init_cpu(nmis: &[LocalNmi]) -> Result<u32, ApicError> {
    let (apic, base) = MACHINE.get().ok_or(ApicError::NotInitialised)?;
    apic.enter_mode(has_x2apic(), *base)?;
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
        apic.write(Eoi, 0);
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
    registers: Window,
}

impl Bus for Hardware {
    fn read_msr(&self, msr: u32) -> u64 {
        // SAFETY: `LocalApic` reads APIC registers only, and those of x2APIC only in that mode.
        unsafe { Msr::new(msr).read() }
    }

    fn write_msr(&self, msr: u32, value: u64) {
        // It may send an IPI: for the compiler the write reads memory, so what was stored before is
        // not moved behind it.
        // SAFETY: `LocalApic` writes APIC registers only; an APIC touches no memory.
        unsafe { Msr::new(msr).write(value) }
    }

    fn try_write_msr(&self, msr: u32, value: u64) -> Result<(), MsrFault> {
        // SAFETY: as above; `init` asked for the #GP handler.
        unsafe { msr::wrmsr_checked(msr, value) }
    }

    fn read_mmio(&self, offset: usize) -> u32 {
        self.registers.read(offset)
    }

    fn write_mmio(&self, offset: usize, value: u32) {
        self.registers.write(offset, value);
    }

    /// An MSR write that others act on is not ordered after earlier stores by itself (SDM vol. 3).
    fn fence(&self) {
        // SAFETY: SSE2 belongs to x86-64.
        unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    }
}

/// How a local APIC's registers are reached.
pub trait Bus {
    /// Reads an MSR that exists.
    fn read_msr(&self, msr: u32) -> u64;
    /// Writes an MSR that exists, with a value that it takes.
    fn write_msr(&self, msr: u32, value: u64);
    /// Writes an MSR that may not exist or may refuse the value.
    fn try_write_msr(&self, msr: u32, value: u64) -> Result<(), MsrFault>;
    fn read_mmio(&self, offset: usize) -> u32;
    fn write_mmio(&self, offset: usize, value: u32);
    /// Waits until all earlier stores are visible.
    fn fence(&self);
}

/// A register, by its offset in memory. As an MSR it is 0x800 + offset / 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    Id = 0x020,
    Version = 0x030,
    TaskPriority = 0x080,
    Eoi = 0x0b0,
    /// Spurious vector and software enable.
    Spurious = 0x0f0,
    /// Interrupts in service, the first of eight registers.
    InService = 0x100,
    /// Interrupts that wait to be taken, the first of eight registers.
    Requested = 0x200,
    ErrorStatus = 0x280,
    /// Corrected machine checks.
    LvtCmci = 0x2f0,
    CommandLow = 0x300,
    /// Interrupt command, upper half; not in x2APIC, whose command has 64 bits.
    CommandHigh = 0x310,
    LvtTimer = 0x320,
    LvtThermal = 0x330,
    LvtPerformance = 0x340,
    LvtLint0 = 0x350,
    LvtLint1 = 0x360,
    LvtError = 0x370,
    /// The timer's initial count: a write starts it.
    InitialCount = 0x380,
    CurrentCount = 0x390,
    /// The timer's divider.
    Divide = 0x3e0,
}

use Register::*;

/// A local interrupt that does not interrupt.
pub const LVT_MASKED: u32 = 1 << 16;
/// With a legal vector: some APICs report an error for a vector below 16, masked or not.
const MASKED: u32 = LVT_MASKED | SPURIOUS_VECTOR as u32;
const DELIVER_SMI: u32 = 2 << 8;
const DELIVER_NMI: u32 = 4 << 8;
const DELIVER_INIT: u32 = 5 << 8;
const DELIVER_STARTUP: u32 = 6 << 8;
const DELIVERY_BITS: u32 = 7 << 8;
const PIN_ACTIVE_LOW: u32 = 1 << 13;
const SOFTWARE_ENABLE: u32 = 1 << 8;
const COMMAND_PENDING: u32 = 1 << 12;
const COMMAND_ASSERT: u32 = 1 << 14;
/// To the CPU that sends; the target does not count.
const COMMAND_TO_SELF: u32 = 1 << 18;

const BASE_ENABLE: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The largest id that an xAPIC sends to; 255 means all CPUs.
const XAPIC_MAX_ID: u32 = 254;
/// Reads of the command register while an interrupt is being sent: about 100 µs on hardware.
const MAX_SEND_POLLS: u32 = 1_000;

/// Whether CPUID says that this CPU's APIC can run as x2APIC.
pub fn has_x2apic() -> bool {
    __cpuid(1).ecx & 1 << 21 != 0
}

/// The local APIC of the CPU that executes, in one of its forms.
#[derive(Clone, Copy, Debug)]
pub struct LocalApic<B> {
    bus: B,
    mode: Mode,
}

impl<B: Bus> LocalApic<B> {
    pub fn new(bus: B, mode: Mode) -> LocalApic<B> {
        LocalApic { bus, mode }
    }

    /// The form for this machine: the choice if the CPU supports it, else x2APIC if the CPU has it.
    /// Where firmware left x2APIC on, it stays: the way back may be locked, and the id may not fit.
    pub fn choose(
        &self,
        choice: Option<Mode>,
        has_x2apic: bool,
        is_mapped: bool,
    ) -> Result<Mode, ApicError> {
        // An APIC that already runs as x2APIC has it, whatever CPUID says.
        let is_on = self.bus.read_msr(IA32_APIC_BASE) & BASE_X2APIC != 0;
        match choice {
            Some(Mode::XApic) if is_on => log::warn!("apic=xapic: the firmware left x2apic on"),
            Some(Mode::X2Apic) if !is_on && !has_x2apic => {
                log::warn!("apic=x2apic: this CPU has none, using xapic");
            }
            _ => {}
        }
        if is_on || has_x2apic && choice != Some(Mode::XApic) {
            return Ok(Mode::X2Apic);
        }
        if is_mapped { Ok(Mode::XApic) } else { Err(ApicError::NotMapped) }
    }

    /// Brings this CPU's APIC to the machine's form, by legal steps only: disabled, xAPIC, x2APIC.
    /// Any other step is a #GP ("x2APIC State Transitions"), and an error here.
    pub fn enter_mode(&self, has_x2apic: bool, physical_base: u64) -> Result<(), ApicError> {
        let refused = Err(ApicError::ModeRefused(self.mode));
        let now = self.bus.read_msr(IA32_APIC_BASE);
        let is_x2apic = now & BASE_X2APIC != 0;
        let off = now & !(BASE_ENABLE | BASE_X2APIC | BASE_ADDRESS) | physical_base & BASE_ADDRESS;
        let steps: &[u64] = match (self.mode, is_x2apic) {
            (Mode::X2Apic, true) => &[],
            (Mode::X2Apic, false) if !has_x2apic => return refused,
            (Mode::X2Apic, false) => &[off | BASE_ENABLE, off | BASE_ENABLE | BASE_X2APIC],
            (Mode::XApic, _) => &[off | BASE_ENABLE],
        };
        for &step in steps {
            if self.bus.try_write_msr(IA32_APIC_BASE, step).is_err() {
                return refused;
            }
        }
        // A virtual machine may ignore the write instead of refusing it.
        let reached = self.bus.read_msr(IA32_APIC_BASE);
        let is_x2apic = reached & BASE_X2APIC != 0;
        let fits = reached & BASE_ENABLE != 0 && is_x2apic == (self.mode == Mode::X2Apic);
        if fits { Ok(()) } else { refused }
    }

    /// Enables the APIC, masks every local interrupt, then opens errors and the NMI pins. Gives the
    /// number of local interrupts. Interrupts are off.
    pub fn set_up(&self, nmis: &[LocalNmi]) -> u32 {
        // First of all enable: a disabled APIC keeps its entries masked.
        self.write(Spurious, SOFTWARE_ENABLE | u32::from(SPURIOUS_VECTOR));
        self.write(TaskPriority, 0);
        let lvt_entries = self.mask_all();
        // End interrupts that firmware left in service: they would keep all of equal or lower
        // priority away. At most 256, one for each vector.
        let words = (0..8).map(|word| self.read_at(InService as usize + word * 0x10).count_ones());
        for _ in 0..words.sum() {
            self.write(Eoi, 0);
        }
        for nmi in nmis {
            let pin = match nmi.lint {
                Lint::Lint0 => LvtLint0,
                Lint::Lint1 => LvtLint1,
            };
            let polarity = if nmi.polarity == Polarity::ActiveLow { PIN_ACTIVE_LOW } else { 0 };
            // NMIs are edge-triggered whatever the entry says.
            self.write(pin, DELIVER_NMI | polarity);
        }
        // Errors that firmware left are not ours.
        self.take_errors();
        self.write(LvtError, u32::from(ERROR_VECTOR));
        lvt_entries
    }

    /// Masks the local interrupts that this APIC has: touching one that it does
    /// not have is a #GP in x2APIC mode. Gives their number.
    fn mask_all(&self) -> u32 {
        let entries = (self.read(Version) >> 16 & 0xff) + 1;
        // Errors first: masking the others may itself report one.
        for entry in [LvtError, LvtTimer, LvtLint0, LvtLint1] {
            self.write(entry, MASKED);
        }
        for (least, entry) in [(5, LvtPerformance), (6, LvtThermal), (7, LvtCmci)] {
            // Firmware that handles heat or memory errors by SMI keeps them.
            if entries >= least && self.read(entry) & DELIVERY_BITS != DELIVER_SMI {
                self.write(entry, MASKED);
            }
        }
        entries
    }

    pub fn id(&self) -> u32 {
        match self.mode {
            Mode::XApic => self.read(Id) >> 24,
            Mode::X2Apic => self.read(Id),
        }
    }

    /// Whether an interrupt with this vector waits to be taken.
    pub fn is_requested(&self, vector: u8) -> bool {
        let word = self.read_at(Requested as usize + usize::from(vector / 32) * 0x10);
        word >> (vector % 32) & 1 != 0
    }

    /// The errors since the last call ("Error Handling"). The write makes the register show them.
    pub fn take_errors(&self) -> u32 {
        self.write(ErrorStatus, 0);
        self.read(ErrorStatus)
    }

    /// Sends a message to one CPU. INIT and start-up are seen to be accepted.
    pub fn send(&self, apic_id: u32, message: Message) -> Result<(), ApicError> {
        if self.mode == Mode::XApic && apic_id > XAPIC_MAX_ID {
            return Err(ApicError::IdTooLarge(apic_id));
        }
        let (low, is_waited_for) = match message {
            Message::Vector(vector) => (u32::from(vector), false),
            Message::Nmi => (DELIVER_NMI, false),
            Message::Init => (DELIVER_INIT, true),
            Message::Startup(page) => (DELIVER_STARTUP | u32::from(page), true),
        };
        // The command is two registers in xAPIC: a handler that sends between the writes would
        // redirect ours. (An NMI still can: only the panic path and `send_self` send from there.)
        let irqs = arch::irq::disable();
        let sent = self.wait_sent().map(|()| self.command(apic_id, COMMAND_ASSERT | low));
        arch::irq::restore(irqs);
        if is_waited_for { sent.and_then(|()| self.wait_sent()) } else { sent }
    }

    /// Sends an NMI to one CPU, also when the APIC is stuck: for the panic path.
    pub fn send_nmi_anyway(&self, apic_id: u32) {
        let _ = self.wait_sent(); // a stuck APIC may drop it
        self.command(apic_id, COMMAND_ASSERT | DELIVER_NMI);
    }

    /// Interrupts this CPU as soon as it takes interrupts. May be called in an NMI: it writes only
    /// the low half of the command register, and the interrupt is sent when it returns, so a
    /// command that the NMI interrupted is not disturbed.
    pub fn send_self(&self, vector: u8) {
        let low = COMMAND_ASSERT | COMMAND_TO_SELF | u32::from(vector);
        let _ = self.wait_sent(); // a stuck APIC may drop it
        self.write(CommandLow, low);
        let _ = self.wait_sent();
    }

    fn command(&self, apic_id: u32, low: u32) {
        match self.mode {
            Mode::XApic => {
                self.write(CommandHigh, apic_id << 24);
                self.write(CommandLow, low);
            }
            Mode::X2Apic => {
                // What was stored must be visible before the interrupt is.
                self.bus.fence();
                let command = u64::from(apic_id) << 32 | u64::from(low);
                self.bus.write_msr(msr_at(CommandLow as usize), command);
            }
        }
    }

    /// Waits, within a bound, until the last interrupt sent has left. An x2APIC has no such state.
    fn wait_sent(&self) -> Result<(), ApicError> {
        let is_sent = || self.read(CommandLow) & COMMAND_PENDING == 0;
        if self.mode == Mode::X2Apic || (0..MAX_SEND_POLLS).any(|_| is_sent()) {
            return Ok(());
        }
        Err(ApicError::DeliveryStuck)
    }

    #[inline]
    pub fn read(&self, register: Register) -> u32 {
        self.read_at(register as usize)
    }

    #[inline]
    pub fn write(&self, register: Register, value: u32) {
        match self.mode {
            Mode::XApic => self.bus.write_mmio(register as usize, value),
            Mode::X2Apic => self.bus.write_msr(msr_at(register as usize), u64::from(value)),
        }
    }

    /// Writes a register whose value the CPU may refuse (as MSRs do).
    pub fn try_write(&self, register: Register, value: u32) -> Result<(), MsrFault> {
        match self.mode {
            Mode::XApic => self.bus.write_mmio(register as usize, value),
            Mode::X2Apic => self.bus.try_write_msr(msr_at(register as usize), u64::from(value))?,
        }
        Ok(())
    }

    /// The bus, for MSRs that belong to the APIC's timer.
    pub fn bus(&self) -> &B {
        &self.bus
    }

    #[inline]
    fn read_at(&self, offset: usize) -> u32 {
        match self.mode {
            Mode::XApic => self.bus.read_mmio(offset),
            Mode::X2Apic => self.bus.read_msr(msr_at(offset)) as u32,
        }
    }
}

const fn msr_at(offset: usize) -> u32 {
    0x800 + (offset >> 4) as u32
}

#[cfg(test)]
pub mod tests;
