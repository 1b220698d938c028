//! The local APIC's timer: the writes that set, start and stop it.
//!
//! Over any local APIC, real or recording, so that the order of writes is
//! tested on the host. Sections named are of Intel SDM vol. 3, "APIC Timer".

use crate::arch::x86_64::cpu::msr::{IA32_TSC_DEADLINE, MsrFault};
use crate::arch::x86_64::irq::apic::TIMER_VECTOR;
use crate::arch::x86_64::irq::apic::local::{Bus, LVT_MASKED, LocalApic, Register::*};

/// In which way the timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At a value of the time stamp counter.
    TscDeadline,
    /// When a count of its own has run down.
    OneShot,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::TscDeadline => "tsc-deadline",
            Mode::OneShot => "one-shot",
        }
    }
}

/// The one-shot counter runs at its input divided by this: at 1 GHz (QEMU)
/// it lasts for 68 s, at 24 MHz it still resolves 0.7 µs.
pub const DIVIDER: u64 = 16;
const DIVIDE_BY_16: u32 = 0b0011;

const LVT_ONE_SHOT: u32 = TIMER_VECTOR as u32;
const LVT_TSC_DEADLINE: u32 = 2 << 17 | TIMER_VECTOR as u32;

/// The timer of a local APIC.
#[derive(Clone, Copy, Debug)]
pub struct Device<B>(pub LocalApic<B>);

impl<B: Bus> Device<B> {
    /// Puts the timer into `mode`, not armed. A CPU that does not have the mode may refuse.
    pub fn enter(&self, mode: Mode) -> Result<(), MsrFault> {
        match mode {
            Mode::TscDeadline => {
                self.0.try_write(LvtTimer, LVT_TSC_DEADLINE)?;
                // "TSC-Deadline Mode": writes to an xAPIC are not ordered with the MSR's.
                self.0.bus().fence();
                self.0.bus().try_write_msr(IA32_TSC_DEADLINE, 0)
            }
            Mode::OneShot => {
                self.0.write(InitialCount, 0);
                self.0.write(Divide, DIVIDE_BY_16);
                self.0.try_write(LvtTimer, LVT_ONE_SHOT)
            }
        }
    }

    /// Fires when this CPU's time stamp counter reaches `tsc`, at once if it has.
    #[inline]
    pub fn arm_deadline(&self, tsc: u64) {
        // A handler's stores before arming are visible when it fires.
        self.0.bus().fence();
        // 0 would disarm.
        self.0.bus().write_msr(IA32_TSC_DEADLINE, tsc.max(1));
    }

    /// Fires when more than `count` counts have passed: early only if `count`
    /// does not fit. 0 would stop the timer.
    #[inline]
    pub fn arm_count(&self, count: u64) {
        let count = u32::try_from(count.saturating_add(1)).unwrap_or(u32::MAX);
        self.0.write(InitialCount, count);
    }

    pub fn disarm(&self, mode: Mode) {
        match mode {
            Mode::TscDeadline => self.0.bus().write_msr(IA32_TSC_DEADLINE, 0),
            Mode::OneShot => self.0.write(InitialCount, 0),
        }
    }

    /// Keeps the timer from interrupting. Leaving TSC-deadline mode forgets the deadline.
    pub fn silence(&self) {
        self.0.write(LvtTimer, LVT_MASKED | u32::from(TIMER_VECTOR));
        self.0.write(InitialCount, 0);
    }

    /// Starts the one-shot counter from the top, without an interrupt.
    pub fn start_counting(&self) {
        self.0.write(LvtTimer, LVT_MASKED | LVT_ONE_SHOT);
        self.0.write(Divide, DIVIDE_BY_16);
        self.0.write(InitialCount, u32::MAX);
    }

    /// How far it has counted since [`Device::start_counting`].
    pub fn counted(&self) -> u64 {
        u64::from(u32::MAX - self.0.read(CurrentCount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::irq::apic::Mode as ApicMode;
    use crate::arch::x86_64::irq::apic::local::tests::Fake;
    use crate::arch::x86_64::irq::apic::local::tests::Op::{Fence, Mmio, Msr};

    #[test]
    fn deadline_mode_has_a_fence_between_entry_and_msr() {
        let fake = Fake::default();
        let device = Device(LocalApic::new(&fake, ApicMode::XApic));
        device.enter(Mode::TscDeadline).expect("not refused");
        assert_eq!(fake.taken(), [Mmio(0x320, 0x4_00f0), Fence, Msr(0x6e0, 0)]);
    }

    #[test]
    fn deadline_mode_that_the_cpu_refuses_is_an_error_in_both_forms() {
        let fake = Fake { refused: [0x6e0, 0x832].to_vec(), ..Fake::default() };
        let device = Device(LocalApic::new(&fake, ApicMode::XApic));
        assert_eq!(device.enter(Mode::TscDeadline), Err(MsrFault(0x6e0)));
        let device = Device(LocalApic::new(&fake, ApicMode::X2Apic));
        assert_eq!(device.enter(Mode::TscDeadline), Err(MsrFault(0x832)));
    }

    #[test]
    fn one_shot_is_stopped_divided_and_then_opened() {
        let fake = Fake::default();
        let device = Device(LocalApic::new(&fake, ApicMode::X2Apic));
        device.enter(Mode::OneShot).expect("not refused");
        assert_eq!(fake.taken(), [Msr(0x838, 0), Msr(0x83e, 3), Msr(0x832, 0xf0)]);
    }

    #[test]
    fn deadlines_past_or_far_still_arm() {
        let fake = Fake::default();
        let device = Device(LocalApic::new(&fake, ApicMode::XApic));
        device.arm_count(0);
        device.arm_count(u64::MAX);
        device.arm_deadline(0);
        let expected = [Mmio(0x380, 1), Mmio(0x380, u32::MAX), Fence, Msr(0x6e0, 1)];
        assert_eq!(fake.taken(), expected);
    }

    #[test]
    fn disarm_and_silence_stop_it() {
        let fake = Fake::default();
        let device = Device(LocalApic::new(&fake, ApicMode::XApic));
        device.disarm(Mode::OneShot);
        device.disarm(Mode::TscDeadline);
        device.silence();
        let expected = [Mmio(0x380, 0), Msr(0x6e0, 0), Mmio(0x320, 0x1_00f0), Mmio(0x380, 0)];
        assert_eq!(fake.taken(), expected);
    }

    #[test]
    fn count_down_reads_as_count_up() {
        let fake = Fake::default();
        let device = Device(LocalApic::new(&fake, ApicMode::XApic));
        device.start_counting();
        fake.mmio.borrow_mut().insert(0x390, u32::MAX - 1234);
        assert_eq!(device.counted(), 1234);
        let masked = fake.taken().contains(&Mmio(0x320, 0x1_00f0));
        assert!(masked, "no interrupt while measuring");
    }
}
